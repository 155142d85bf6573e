"""The tasks that are under way on a Dask cluster: given away, timed, done again where it takes too long, collected."""

import collections
import contextlib
import logging
import queue
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp

from mile.execution._contract import Done, Report, Task

_logger = logging.getLogger("mile.execution")

_WAIT_SECONDS = 1.0  # for a result, until the caller may look around
_SLOW, _SHORTEST_DELAY, _FEWEST_TIMED = 3.0, 5.0, 3  # a task is a straggler: times the usual, seconds, tasks timed
_MOST_ATTEMPTS = 3  # of a task for which memory did not do


@dataclass(eq=False)
class _Job:
    """A task under way: one copy of it, or more when the first is a straggler or failed."""

    task: Task
    began: float
    copies: dict[str, Any] = field(default_factory=dict)  # futures by key
    failures: list[str] = field(default_factory=list)  # where memory did not do


class Dispatch:
    """The tasks of one flow that are under way."""

    def __init__(self, crew: Any, function: Callable[..., Any], shared: str, report: Report) -> None:
        self.jobs: dict[str, _Job] = {}  # by key of each of its copies
        self._crew, self._client = crew, crew.client
        self._function, self._shared = function, shared
        self._arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._paces: collections.deque[float] = collections.deque(maxlen=50)  # seconds per unit of work
        self._topic = f"{shared}-{uuid.uuid4().hex[:12]}"
        self._client.subscribe_topic(self._topic, lambda event: report(event[1]["group"], event[1]["step"]))

    def begin(self, task: Task) -> None:
        """Give a task to the cluster."""
        self._crew.latest = task.name
        self._submit(_Job(task, time.monotonic()))

    def _submit(self, job: _Job, avoid: str = "") -> None:
        from mile.execution import _worker_side

        better = self._better_workers(avoid)
        restrictions = {"workers": better, "allow_other_workers": True} if better else {}
        double_precision = jnp.result_type(float) == jnp.float64
        task, key = job.task, f"{self._crew.name}-{uuid.uuid4().hex}"
        future = self._client.submit(
            _worker_side.perform,
            *(self._function, task.arguments, self._shared, self._topic, task.group, double_precision),
            key=key,
            pure=False,
            resources={self._crew.name: 1},
            **restrictions,
        )
        job.copies[key] = future
        self.jobs[key] = job
        future.add_done_callback(self._arrived.put)

    def _better_workers(self, avoid: str) -> list[str]:
        """Return whom a task should rather go to; nobody in particular if all are alike."""
        slots, slow = self._crew.slots, self._crew.slow
        if not slow:
            return [address for address in slots if address != avoid] if avoid else []
        busy = self._client.processing()
        idle = [address for address, n_threads in slots.items() if len(busy.get(address, ())) < n_threads]
        return [address for address in idle if address not in slow and address != avoid]

    def repeat_stragglers(self) -> None:
        """Do tasks a second time that take far longer than others, where a worker has nothing to do."""
        if len(self._paces) < _FEWEST_TIMED:
            return
        usual, now = median(self._paces), time.monotonic()
        for job in {id(job): job for job in self.jobs.values()}.values():
            idle = self._crew.n_workers - len(self.jobs) - len(self._crew.echoes)
            limit = max(_SHORTEST_DELAY, _SLOW * usual * job.task.size)
            if idle > 0 and len(job.copies) == 1 and now - job.began > limit:
                busy = [address for address, keys in self._client.processing().items() if set(keys) & set(job.copies)]
                self._crew.slow.update(busy)
                self._submit(job, avoid=busy[0] if busy else "")

    def collect(self) -> list[Done]:
        """Wait a moment and return what is done by then."""
        found = []
        with contextlib.suppress(queue.Empty):
            found.append(self._arrived.get(timeout=_WAIT_SECONDS))
            while True:
                found.append(self._arrived.get_nowait())
        done = [self._take(future) for future in found]
        return [one for one in done if one is not None]

    def _take(self, future: Any) -> Done | None:
        job = self.jobs.pop(future.key, None)
        if job is None:  # its double was faster
            return None
        job.copies.pop(future.key)
        if future.status == "error":
            return self._declare_lost(job, future.exception())
        if future.status != "finished":
            raise self._crew.lost_scheduler()
        outcome = future.result()
        if outcome.failure is not None:
            return self._try_elsewhere(job, outcome)
        if _digest(outcome) != outcome.digest:
            job.failures.append(f"host {outcome.host} ({outcome.address}), whose result was damaged on its way")
            return self._again_or_lost(job, outcome.address)
        for key, copy in job.copies.items():  # the first result counts
            self.jobs.pop(key)
            self._crew.echoes[key] = (copy, outcome.digest)
        self._paces.append(outcome.seconds / job.task.size)
        if outcome.seconds <= max(_SHORTEST_DELAY, _SLOW * median(self._paces) * job.task.size):
            self._crew.slow.discard(outcome.address)
        _log(job, outcome)
        return Done(job.task.group, outcome.result, outcome.seconds)

    def _try_elsewhere(self, job: _Job, outcome: Any) -> Done | None:
        from mile.execution import _worker_side

        error = outcome.failure
        where = f"host {outcome.host} ({outcome.address})"
        if not _worker_side.is_memory_error(error):
            error.add_note(f"This happened in {job.task.name}, on {where}.")
            raise error
        job.failures.append(f"{where} had no memory for it")
        return self._again_or_lost(job, outcome.address)

    def _again_or_lost(self, job: _Job, address: str) -> Done | None:
        if job.copies:
            return None
        if len(job.failures) < _MOST_ATTEMPTS:
            self._submit(job, avoid=address)
            return None
        return self._lost(job, "; ".join(dict.fromkeys(job.failures)))

    def _declare_lost(self, job: _Job, error: BaseException) -> Done | None:
        last = getattr(error, "last_worker", None)
        if last is None:
            error.add_note(f"This happened in {job.task.name}.")
            raise error
        if job.copies:
            return None
        deaths = error.args[2] + 1
        return self._lost(job, f"{deaths} workers died while they computed it, the last on host {last.host}")

    def _lost(self, job: _Job, reason: str) -> Done:
        sentence = f"{job.task.name[0].upper()}{job.task.name[1:]}, could not be computed: {reason}."
        return Done(job.task.group, None, 0.0, sentence)

    def close(self) -> None:
        """Let go of what is still under way."""
        with contextlib.suppress(Exception):  # the cluster may be gone
            self._client.unsubscribe_topic(self._topic)
        for key, job in self.jobs.items():
            if key in job.copies:
                job.copies[key].release()


def _digest(outcome: Any) -> str:
    from mile.execution import _worker_side

    return _worker_side.digest_of(outcome.result)


def _log(job: _Job, outcome: Any) -> None:
    """Leave a line about a task for whoever measures."""
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
