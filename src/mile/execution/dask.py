"""Chains on a Dask cluster: one task is one block of one group, and this process stores its result.

Dask sends tasks to workers; when a worker dies, it gives the task to another, three times at most. This file adds what
Dask cannot know: which workers compute the same bits, when to repeat a task that takes too long, whether a result can
be right, and clear messages.
"""

import collections
import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar, cast

import jax
import numpy as np

from mile import _registry
from mile._checks import check_number
from mile._errors import ClusterError, warn
from mile._types import PyTree
from mile.execution._answers import HERE
from mile.execution._dispatch import Dispatch
from mile.execution.base import Done, Fingerprint, Identify, Report, Task
from mile.execution.dask_client import Client, Future, Outcome, Security, WorkerPlugin
from mile.execution.in_process import InProcess

_CONNECT_SECONDS = 10.0
_GLANCE_SECONDS = 2.0  # between two looks at the workers
_SHORTEST_SHARE = 10  # a block is not cut below this part of its length
_SHARES = 2  # blocks per worker that the rest of a phase should have: few wait long at its end

Result = TypeVar("Result")


@_registry.backend("dask")
@dataclass(frozen=True)
class DaskBackend:
    """Run chains on a Dask cluster; needs the extra `dask`.

    Draws, checkpoints and the run directory stay with this process; workers need no files, but the same version of
    this package. The best cluster has one worker process with one thread for each core.

    Parameters
    ----------
    client
        A `distributed.Client`, the address of a scheduler such as "tcp://scheduler:8786", or None for the client of
        this process.
    statistical
        Whether to admit workers that compute other bits, such as those with another processor. The run can then be
        repeated statistically only, and its manifest says so.
    block_seconds
        How long a task should last: a worker that dies loses no more.
    patience
        Seconds to wait when there is no worker that can be used.
    verify
        Share of the tasks, between 0 and 1, that are computed a second time on another worker and compared bit by
        bit. Seed and number of a task decide, not chance. A single worker is asked twice; where two answers differ, a
        third worker or this process decides. Not where `statistical` allows other bits.
    security
        A `distributed.security.Security` with certificates, or what `tls_security` returns, for a cluster whose traffic
        is encrypted with TLS; with an address only, because a client has its own.

    Raises
    ------
    ClusterError
        When it is used: if the scheduler cannot be reached, no worker can be used, the cluster is lost, or its
        workers contradict each other and none can be shown to be wrong.

    Examples
    --------
    >>> from mile import MileRegressor
    >>> from mile.execution import DaskBackend
    >>> model = MileRegressor(backend=DaskBackend("tcp://scheduler:8786"))
    """

    client: Client | str | None = None
    statistical: bool = False
    block_seconds: float = 10.0
    patience: float = 60.0
    verify: float = field(default=0.02, kw_only=True)
    security: Security | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.security is not None and not isinstance(self.client, str):
            raise ValueError(
                "security belongs to the address of a scheduler, such as client='tls://scheduler:8786'; a "
                "distributed.Client has its own."
            )
        if isinstance(self.client, str) and self.security is not None and not self.client.startswith("tls://"):
            raise ValueError(f"with security the address must begin with tls://; got {self.client!r}.")
        check_number("block_seconds", self.block_seconds, positive=True)
        check_number("patience", self.patience, positive=True)
        check_number("verify", self.verify, smallest=0.0, largest=1.0)

    def __deepcopy__(self, memo: dict[int, object]) -> "DaskBackend":
        return self  # a connection is not copied when an estimator is cloned

    @contextlib.contextmanager
    def open_pool(self) -> Iterator["DaskWorkerPool"]:
        """Connect to the cluster; leave it as it was."""
        client, is_ours = self._connect()
        pool = DaskWorkerPool(self, client)
        try:
            yield pool
        finally:
            pool.close()
            if is_ours:
                client.close(timeout=_CONNECT_SECONDS)

    def _connect(self) -> tuple[Client, bool]:
        """Return a client, and whether it is ours to close."""
        try:
            import distributed
        except ImportError as error:
            raise ImportError("Running on a Dask cluster needs distributed: pip install 'mile-bnn[dask]'.") from error
        if isinstance(self.client, distributed.Client):
            return cast(Client, self.client), False
        if self.client is None:
            try:
                return cast(Client, distributed.default_client()), False
            except ValueError:
                raise ValueError(
                    "backend 'dask' needs the address of a scheduler, such as address='tcp://scheduler:8786', or a "
                    "distributed.Client made before."
                ) from None
        if not isinstance(self.client, str):
            raise ValueError(f"client must be a distributed.Client, an address or None; got {self.client!r}.")
        try:
            client = distributed.Client(
                self.client, set_as_default=False, timeout=_CONNECT_SECONDS, security=self.security
            )
            return cast(Client, client), True
        except (OSError, ValueError, TimeoutError, TypeError, RuntimeError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            advice = "Start one with `dask scheduler`, or check the address and whether this machine can reach it."
            if self.client.startswith("tls://"):
                advice += " Its certificates must be signed by the authority that is given (security=, --dask-tls-ca)."
            raise ClusterError(f"No Dask scheduler answers at {self.client} ({reason}). {advice}") from None


class _Identified(NamedTuple):
    """What workers returned when asked for their fingerprint, by address."""

    fingerprints: dict[str, Fingerprint]
    failures: dict[str, BaseException]


class DaskWorkerPool:
    """The workers of a cluster that compute the same bits; see `DaskBackend`."""

    is_local = False
    growth = 16

    def __init__(self, backend: DaskBackend, client: Client) -> None:
        self.block_seconds, self.is_statistical = backend.block_seconds, backend.statistical
        self.verify = 0.0 if backend.statistical else backend.verify
        self._backend, self.client = backend, client
        self._address = client.scheduler.address if client.scheduler else "?"
        self.name = f"mile-{uuid.uuid4().hex[:12]}"  # of the resource that our tasks ask for
        self._width = 1
        self._identify: Identify | None = None
        self._expected: Fingerprint = {}
        self.slots: dict[str, int] = {}  # threads of each admitted worker
        self.hosts: dict[str, str] = {}  # of all workers
        self.distrusted: set[str] = set()  # workers that have returned a wrong result
        self._n_flows = 0
        self.slow: set[str] = set()  # workers whose last task had to be repeated elsewhere: others are asked first
        self._known: set[str] = set()  # workers that were admitted or refused
        self._glanced = self._alive = time.monotonic()
        self.latest = "nothing"  # name of the task that was submitted last, for messages
        self._shared: tuple[object, str] | None = None
        # Copies that came second, with the digest that they should have.
        self.echoes: dict[str, tuple[Future[Outcome], str]] = {}
        self._plugins: list[str] = []

    # -- admission

    @property
    def program(self) -> InProcess:
        """What each worker runs."""
        return InProcess(n_threads=1, lanes=self._width)

    @property
    def n_workers(self) -> int:
        """Tasks that run at the same time."""
        return sum(self.slots.values())

    def agree(self, identify: Identify, known: Fingerprint | None = None) -> Fingerprint:
        """Ask the workers for their fingerprints, and admit those that agree with the run, or with most."""
        from mile.execution import _worker_side

        try:
            self.client.wait_for_workers(1, timeout=self._backend.patience)
        except TimeoutError:
            raise ClusterError(
                f"No worker has joined the scheduler at {self._address} within {self._backend.patience:g} s. Start "
                f"some, such as `dask worker {self._address} --nthreads 1` for each core of each machine."
            ) from None
        self._identify = identify
        answers = self._ask()
        if not answers.fingerprints:
            address, reason = next(iter(answers.failures.items()))
            raise ClusterError(
                f"No worker can be used. {address}: {type(reason).__name__}: {reason}. Install this version of "
                "mile-bnn there."
            )
        usable = list(answers.fingerprints.values())
        wanted = _plain(known) if known is not None else None
        counts = collections.Counter(map(_frozen, usable))
        most = next(found for found in usable if _frozen(found) == counts.most_common(1)[0][0])
        self._expected = wanted if wanted is not None and wanted in usable else most
        self._width = int(cast(int, self._expected["width"]))
        expected = None if self._backend.statistical else self._expected
        self._register(_worker_side.Admission(identify, expected, self.name))
        self._glance(answers)
        return {**self._expected, "statistical": True} if self._backend.statistical else self._expected

    def _ask(self, workers: list[str] | None = None) -> _Identified:
        """Ask some workers, or all, for their fingerprints."""
        from mile.execution import _worker_side

        options = {} if workers is None else {"workers": workers}
        answers = self.client.run(_worker_side.identify_here, self._identify, on_error="return", **options)
        failures = {address: found for address, found in answers.items() if isinstance(found, BaseException)}
        fingerprints = {
            address: cast(Fingerprint, found) for address, found in answers.items() if address not in failures
        }
        return _Identified(fingerprints, failures)

    def _register(self, plugin: WorkerPlugin) -> None:
        self.client.register_plugin(plugin)
        self._plugins.append(plugin.name)

    def _glance(self, answers: _Identified | None = None) -> None:
        """Find out which workers are there; warn of those that are refused."""
        self._glanced = time.monotonic()
        workers = self.client.scheduler_info(n_workers=-1).get("workers")
        if workers is None:  # the client has given up on the scheduler
            raise OSError("the client is closed")
        self.slots = {
            address: int(worker.get("nthreads", 1))
            for address, worker in workers.items()
            if worker.get("resources", {}).get(self.name) and address not in self.distrusted
        }
        self.hosts |= {address: worker.get("host", "?") for address, worker in workers.items()}
        if self.slots:
            self._alive = time.monotonic()
        new = [address for address in workers if address not in self._known]
        others = [address for address in new if address not in self.slots]
        if others and answers is None:
            answers = self._ask(others)
        for address in others:
            difference = self._difference(address, answers) if answers is not None else ""
            if difference:
                warn(
                    f"The worker {address} on host {self.hosts[address]} is not used: {difference}. DaskBackend(..., "
                    "statistical=True) allows such workers, and the draws can then not be repeated bit for bit."
                )
                self._known.add(address)
        self._known |= set(self.slots)

    def _difference(self, address: str, answers: _Identified) -> str:
        """Say how a worker differs; nothing if it does not and is about to be admitted."""
        failure = answers.failures.get(address)
        if failure is not None:
            return f"it says {type(failure).__name__}: {failure}"
        found = answers.fingerprints.get(address, self._expected)
        names = [name for name in self._expected if found.get(name) != self._expected[name]]
        return ", ".join(f"its {name} is {found.get(name)!r}, the run's {self._expected[name]!r}" for name in names)

    def _check_workers(self) -> None:
        """Look for workers from time to time; give up when there has been none for long."""
        if time.monotonic() - self._glanced > _GLANCE_SECONDS or not self.slots:
            try:
                self._glance()
            except (OSError, TimeoutError) as error:
                raise self.lost_scheduler() from error
        if not self.slots and time.monotonic() - self._alive > self._backend.patience:
            raise ClusterError(
                f"The scheduler at {self._address} has had no worker that can be used for {self._backend.patience:g} s."
            )

    # -- how long blocks are

    def bounded(self, n_steps: int, n_left: int) -> int:
        """Cut a block so that all workers reach the end of a phase at about the same time."""
        share = n_left // (_SHARES * max(1, self.n_workers))
        return max(n_steps // _SHORTEST_SHARE, min(n_steps, share))

    def rounds(self, n_groups: int) -> float:
        """Return how many groups share one worker."""
        return max(1.0, n_groups / max(1, self.n_workers))

    # -- tasks

    def flow(
        self,
        function: Callable[..., Result],
        next_task: Callable[[], Task[Result] | None],
        shared: object,
        report: Report,
        *,
        together: bool = False,
    ) -> Iterator[list[Done[Result]]]:
        """Do tasks until there are none; see `WorkerPool.flow`. Groups never wait for each other here."""
        dispatch = Dispatch(self, function, self._share(shared), report, self._n_flows)
        self._n_flows += 1
        try:
            while True:
                self._check_workers()
                self._compare_echoes()
                waiting = True
                while waiting and len(dispatch.jobs) + len(self.echoes) < self.n_workers:
                    task = next_task()
                    waiting = task is not None
                    if task is not None:
                        dispatch.begin(task)
                if not waiting and not dispatch.jobs:
                    return
                if not waiting:
                    dispatch.repeat_stragglers()
                yield dispatch.collect()
        finally:
            dispatch.close()

    def _compare_echoes(self) -> None:
        """Discard copies that came second, after comparing them with the first."""
        for key, (future, digest) in list(self.echoes.items()):
            if not future.done():
                continue
            del self.echoes[key]
            outcome = future.result() if future.status == "finished" and not self.is_statistical else None
            if outcome is not None and outcome.failure is None and outcome.digest != digest:
                warn(
                    f"The worker {outcome.address} on host {outcome.host} computed other bits than another worker for "
                    "the same block: this cluster repeats results statistically only."
                )

    def distrust(self, address: str) -> bool:
        """Give a worker no more tasks, unless it is the last one; say whether that was done."""
        if len(self.slots) > 1 and self.slots.pop(address, None) is not None:
            self.distrusted.add(address)
        return address in self.distrusted

    def perform_here(self, function: Callable[..., Result], task: Task[Result]) -> Outcome | None:
        """Do a task in this process, if it computes the same bits as the workers; else return None."""
        from mile.execution import _worker_side

        is_like_them = self._identify is not None and self._identify() == self._expected
        if self._shared is None or self.is_statistical or not is_like_them:
            return None
        return _worker_side.perform_here(function, task.arguments, self._shared[0], HERE)

    def _share(self, value: PyTree) -> str:
        """Send all workers what tasks share, in place of what they shared before; return its name."""
        from mile.execution import _worker_side

        if self._shared is not None and self._shared[0] is value:
            return self._shared[1]
        if self._shared is not None:
            self._unregister(self._shared[1])
        name = f"{self.name}-{uuid.uuid4().hex[:12]}"
        self._register(_worker_side.Sharing(name, jax.tree.map(np.asarray, value)))
        self._shared = (value, name)
        return name

    def _unregister(self, name: str) -> None:
        self._plugins.remove(name)
        with contextlib.suppress(Exception):  # the cluster may be gone
            if self.client.status == "running":
                self.client.unregister_worker_plugin(name)

    def close(self) -> None:
        """Remove what was set up on the workers."""
        for future, _ in self.echoes.values():
            future.release()
        for name in list(self._plugins):
            self._unregister(name)

    def lost_scheduler(self) -> ClusterError:
        """Return the error for a scheduler that is gone; it names the last task."""
        return ClusterError(
            f"The Dask scheduler at {self._address} was lost; the last task it was given was {self.latest}."
        )


def _plain(fingerprint: Fingerprint) -> Fingerprint:
    return {name: value for name, value in fingerprint.items() if name != "statistical"}


def _frozen(fingerprint: Fingerprint) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, str(value)) for name, value in fingerprint.items()))
