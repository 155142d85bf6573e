"""The running tasks of a Dask cluster: submitted, timed, collected and checked.

A task is repeated if it takes too long, if its result cannot be right, and if it is chosen to be computed twice.
"""

import collections
import contextlib
import logging
import queue
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Generic, Protocol, TypeVar

import jax
import jax.numpy as jnp

from mile._errors import ClusterError, warn
from mile.execution._answers import HERE, MOST_ANSWERS, Answer, choose, is_sampled, last_resort, next_places
from mile.execution.base import Done, Report, Task
from mile.execution.dask_client import Client, Future, Outcome

_logger = logging.getLogger("mile.execution")

_WAIT_SECONDS = 1.0  # for a result, before the caller gets its turn
_SLOW, _SHORTEST_DELAY, _FEWEST_TIMED = 3.0, 5.0, 3  # a task is a straggler: times the usual, seconds, tasks timed
_MOST_ATTEMPTS = 3  # of a task that runs out of memory

Result = TypeVar("Result")


class Cluster(Protocol):
    """What a dispatch needs of the workers; see `DaskWorkerPool`."""

    client: Client
    name: str  # of the resource that tasks ask for
    verify: float  # share of the tasks that are computed twice
    is_statistical: bool  # whether workers may compute other bits
    slots: dict[str, int]  # threads of each admitted worker
    hosts: dict[str, str]  # of all workers
    slow: set[str]  # workers whose last task had to be repeated elsewhere
    distrusted: set[str]  # workers that have returned a wrong result
    echoes: dict[str, tuple[Future[Outcome], str]]  # copies that came second, with the digest they should have
    latest: str  # name of the task that was submitted last

    @property
    def n_workers(self) -> int:
        """Tasks that run at the same time."""
        ...

    def distrust(self, address: str) -> bool:
        """Give a worker no more tasks, unless it is the last one; say whether that was done."""
        ...

    def perform_here(self, function: Callable[..., Result], task: Task[Result]) -> Outcome | None:
        """Do a task in this process, if it computes the same bits as the workers."""
        ...

    def lost_scheduler(self) -> ClusterError:
        """Return the error for a scheduler that is gone."""
        ...


@dataclass(eq=False)
class _Job(Generic[Result]):
    """A running task: one copy of it, or more when the first is a straggler, failed, or has to be confirmed."""

    task: Task[Result]
    began: float
    copies: dict[str, Future[Outcome]] = field(default_factory=dict)  # by key
    failures: list[str] = field(default_factory=list)  # which workers ran out of memory
    answers: list[Answer] = field(default_factory=list)
    needs_two: bool = False  # whether two workers must agree


class Dispatch(Generic[Result]):
    """The running tasks of one flow."""

    def __init__(
        self, pool: Cluster, function: Callable[..., Result], shared: str, report: Report, number: int = 0
    ) -> None:
        self.jobs: dict[str, _Job[Result]] = {}  # by key of each of its copies
        self._pool, self._client = pool, pool.client
        self._function, self._shared, self._number = function, shared, number
        self._begun: collections.Counter[int] = collections.Counter()  # tasks of each group
        self._failed: set[int] = set()  # groups that two workers agree are not finite
        self._arrived: queue.SimpleQueue[Future[Outcome]] = queue.SimpleQueue()
        self._paces: collections.deque[float] = collections.deque(maxlen=50)  # seconds per unit of work
        self._topic = f"{shared}-{uuid.uuid4().hex[:12]}"
        self._client.subscribe_topic(self._topic, lambda event: report(event[1]["group"], event[1]["step"]))

    def begin(self, task: Task[Result]) -> None:
        """Submit a task to the cluster."""
        self._pool.latest = task.name
        is_chosen = is_sampled(self._pool.verify, task.seed, self._number, task.group, self._begun[task.group])
        self._begun[task.group] += 1
        self._submit(_Job(task, time.monotonic(), needs_two=is_chosen))

    def _submit(self, job: _Job[Result], avoid: str = "", better: list[str] | None = None) -> None:
        from mile.execution import _worker_side

        better = better or self._better_workers(avoid)
        restrictions = {"workers": better, "allow_other_workers": True} if better else {}
        double_precision = jnp.result_type(float) == jnp.float64
        task, key = job.task, f"{self._pool.name}-{uuid.uuid4().hex}"
        future = self._client.submit(
            _worker_side.perform,
            *(self._function, task.arguments, self._shared, self._topic, task.group, double_precision),
            key=key,
            pure=False,
            resources={self._pool.name: 1},
            **restrictions,
        )
        job.copies[key] = future
        self.jobs[key] = job
        future.add_done_callback(self._arrived.put)

    def _better_workers(self, avoid: str) -> list[str]:
        """Return the workers to prefer; none if all are alike."""
        slots, slow, distrusted = self._pool.slots, self._pool.slow, self._pool.distrusted
        others = [address for address in slots if address != avoid] if avoid or distrusted else []
        if not slow:
            return others
        busy = self._client.processing()
        idle = [address for address, n_threads in slots.items() if len(busy.get(address, ())) < n_threads]
        return [address for address in idle if address not in slow and address != avoid] or (
            others if distrusted else []
        )

    def repeat_stragglers(self) -> None:
        """Repeat tasks that take far longer than others, while a worker is idle."""
        if len(self._paces) < _FEWEST_TIMED:
            return
        usual, now = median(self._paces), time.monotonic()
        for job in {id(job): job for job in self.jobs.values()}.values():
            idle = self._pool.n_workers - len(self.jobs) - len(self._pool.echoes)
            limit = max(_SHORTEST_DELAY, _SLOW * usual * job.task.size)
            if idle > 0 and len(job.copies) == 1 and now - job.began > limit:
                busy = [address for address, keys in self._client.processing().items() if set(keys) & set(job.copies)]
                self._pool.slow.update(busy)
                self._submit(job, avoid=busy[0] if busy else "")

    def collect(self) -> list[Done[Result]]:
        """Wait a moment and return what is done."""
        found = []
        with contextlib.suppress(queue.Empty):
            found.append(self._arrived.get(timeout=_WAIT_SECONDS))
            while True:
                found.append(self._arrived.get_nowait())
        done = [self._take(future) for future in found]
        return [one for one in done if one is not None]

    def _take(self, future: Future[Outcome]) -> Done[Result] | None:
        job = self.jobs.pop(future.key, None)
        if job is None:  # another copy was faster
            return None
        job.copies.pop(future.key)
        if future.status == "error":
            return self._declare_lost(job, future.exception())
        if future.status == "cancelled":
            raise self._pool.lost_scheduler()
        if future.status != "finished":
            job.failures.append("a worker that died before its result was fetched")
            return self._again_or_lost(job, "")
        try:
            outcome = future.result()
        except OSError as error:  # what goes wrong in the task itself is part of the outcome
            raise self._pool.lost_scheduler() from error
        except Exception as error:  # the worker has died since then, and so have those that repeated the task
            return self._declare_lost(job, error)
        if outcome.failure is not None:
            return self._try_elsewhere(job, outcome, outcome.failure)
        if _digest(outcome) != outcome.digest:
            job.failures.append(f"host {outcome.host} ({outcome.address}), whose result was damaged in transit")
            return self._again_or_lost(job, outcome.address)
        return self._judge(job, outcome)

    def _judge(self, job: _Job[Result], outcome: Outcome) -> Done[Result] | None:
        """Add an answer; return the one that counts, or ask again."""
        pool, task = self._pool, job.task
        flaw = task.check(outcome.result) if task.check else None
        # Where workers may compute other bits, two of them agree if both are not finite.
        token = flaw.sentence if flaw and pool.is_statistical else outcome.digest
        job.answers.append(Answer(outcome, flaw, token))
        job.needs_two |= outcome.address in pool.distrusted
        accepted = choose(
            job.answers,
            needs_two=job.needs_two,
            knows_failure=task.group in self._failed,
            only_one_place=len(pool.slots) < 2,
        )
        if accepted is not None:
            return self._accept(job, accepted)
        if job.copies:  # they decide
            return None
        if len(job.answers) >= MOST_ANSWERS:
            return self._lost(
                job, "; ".join(dict.fromkeys(f"{one.where} returned {_words(one)}" for one in job.answers))
            )
        return self._ask_again(job)

    def _ask_again(self, job: _Job[Result]) -> Done[Result] | None:
        """Repeat a task on another worker; here if answers contradict each other and no worker is left."""
        places = [answer.place for answer in job.answers]
        hosts = {address: self._pool.hosts.get(address, "?") for address in self._pool.slots}
        is_new = not set(hosts) <= set(places)
        if not is_new and len({answer.token for answer in job.answers}) > 1 and HERE not in places:
            outcome = self._pool.perform_here(self._function, job.task)
            if outcome is not None:
                return self._judge(job, outcome)
        job.began = time.monotonic()  # repeated, so not a straggler
        self._submit(job, better=next_places(job.answers, hosts))
        return None

    def _accept(self, job: _Job[Result], accepted: Answer) -> Done[Result]:
        outcome = accepted.outcome
        if accepted.flaw is not None:
            self._failed.add(job.task.group)
        wrong = {one.place: one for one in job.answers if one.token != accepted.token}
        for answer in wrong.values():
            _blame(job.task.name, answer, accepted, is_let_go=self._pool.distrust(answer.place))
        for key, copy in job.copies.items():  # the first result counts
            self.jobs.pop(key)
            self._pool.echoes[key] = (copy, outcome.digest)
        self._paces.append(outcome.seconds / job.task.size)
        if outcome.seconds <= max(_SHORTEST_DELAY, _SLOW * median(self._paces) * job.task.size):
            self._pool.slow.discard(outcome.address)
        _log(job, outcome)
        return Done(job.task.group, outcome.result, outcome.seconds)

    def _try_elsewhere(self, job: _Job[Result], outcome: Outcome, error: Exception) -> Done[Result] | None:
        from mile.execution import _worker_side

        where = f"host {outcome.host} ({outcome.address})"
        if not _worker_side.is_memory_error(error):
            error.add_note(f"This happened in {job.task.name}, on {where}.")
            raise error
        job.failures.append(f"{where} had no memory for it")
        return self._again_or_lost(job, outcome.address)

    def _again_or_lost(self, job: _Job[Result], address: str) -> Done[Result] | None:
        if job.copies:
            return None
        if len(job.failures) < _MOST_ATTEMPTS:
            self._submit(job, avoid=address)
            return None
        return self._lost(job, "; ".join(dict.fromkeys(job.failures)))

    def _declare_lost(self, job: _Job[Result], error: BaseException) -> Done[Result] | None:
        last = getattr(error, "last_worker", None)
        if last is None:
            error.add_note(f"This happened in {job.task.name}.")
            raise error
        if job.copies:
            return None
        deaths = error.args[2] + 1
        return self._lost(job, f"{deaths} workers died while they computed it, the last on host {last.host}")

    def _lost(self, job: _Job[Result], reason: str) -> Done[Result]:
        """Give a task up, unless it has one answer without a flaw."""
        found = last_resort(job.answers)
        if len(found) == 1:
            return self._accept(job, found[0])
        if len(found) > 1:
            places = ", ".join(dict.fromkeys(answer.where for answer in job.answers))
            raise ClusterError(
                f"Two computations of {job.task.name}, never gave the same bits: {places}. A machine among these "
                "computes wrong numbers, or the network is not a pure function. Leave the hosts out in turn to find "
                "which; DaskBackend(..., verify=0) does not compare."
            )
        sentence = f"{job.task.name[0].upper()}{job.task.name[1:]}, could not be computed: {reason}."
        return Done(job.task.group, None, 0.0, sentence)

    def close(self) -> None:
        """Release what is still running."""
        with contextlib.suppress(Exception):  # the cluster may be gone
            self._client.unsubscribe_topic(self._topic)
        for key, job in self.jobs.items():
            if key in job.copies:
                job.copies[key].release()


def _words(answer: Answer) -> str:
    return answer.flaw.sentence if answer.flaw is not None else "other bits"


def _blame(name: str, wrong: Answer, right: Answer, *, is_let_go: bool) -> None:
    """Warn which worker returned a wrong result, and what was wrong with it."""
    who = f"The worker {wrong.place} on host {wrong.outcome.host}" if wrong.place != HERE else "This process"
    found = _words(wrong) + ("" if wrong.flaw is not None else f" than {right.where}")
    consequence = (
        "It gets no more tasks; what it returned before was not all computed twice."
        if is_let_go
        else "Check that host."
    )
    warn(
        f"{who} returned a wrong result for {name}: {found}. The block "
        f"was computed again, and the right result is used. {consequence}"
    )


def _digest(outcome: Outcome) -> str:
    from mile.execution import _worker_side

    return _worker_side.digest_of(outcome.result)


def _log(job: _Job[Result], outcome: Outcome) -> None:
    """Log a line about a task, for measurements."""
    if _logger.isEnabledFor(logging.DEBUG):
        leaves = jax.tree.leaves((job.task.arguments, outcome.result))
        about = {
            "stage": job.task.name,
            "group": job.task.group,
            "size": job.task.size,
            "seconds": outcome.seconds,
            "submitted": job.began,
            "received": time.monotonic(),
            "host": outcome.host,
            "bytes": sum(leaf.nbytes for leaf in leaves if hasattr(leaf, "nbytes")),
        }
        _logger.debug(
            "%s done on %s in %.2f s", job.task.name, outcome.host, outcome.seconds, extra={"mile_task": about}
        )
