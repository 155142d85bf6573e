"""Chains on a Dask cluster: one task is one block of one group, and what it returns is kept by this process.

Dask brings tasks to workers, notices when one dies and gives its task to another; after three such deaths it declares
a task bad. This file adds what Dask cannot know: which workers compute the same bits, that a task that
takes far too long may be done twice, whether a result can be right, and what to call it all when it goes wrong.
"""

import collections
import contextlib
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from mile import _registry
from mile._checks import check_number
from mile._errors import ClusterError, FitWarning
from mile.execution._answers import HERE
from mile.execution._dispatch import Dispatch
from mile.execution.base import Done, Identify, Report, Task
from mile.execution.in_process import InProcess

_CONNECT_SECONDS = 10.0
_GLANCE_SECONDS = 2.0  # between two looks at who is there
_SHORTEST_SHARE = 10  # a block is not cut below this part of its length
_SHARES = 2  # blocks of what is left of a phase that each worker should still get: nobody waits long at its end


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
        Whether workers may take part that would compute other bits, such as those with another processor. The run
        can then be repeated statistically only, and its manifest says so.
    block_seconds
        How long a task should last: a worker that dies loses no more.
    patience
        Seconds to wait when there is no worker that can be used.
    verify
        Share of the tasks, between 0 and 1, that are computed a second time on another worker and compared bit by
        bit. Seed and number of a task decide, not chance. A single worker is asked twice; where two answers differ, a
        third worker or this process decides. Not where `statistical` allows other bits.

    Raises
    ------
    ClusterError
        When it is used: if the scheduler cannot be reached, no worker can be used, the cluster is lost, or its
        workers contradict each other and nobody can tell which one is wrong.

    Examples
    --------
    >>> from mile import MileRegressor
    >>> from mile.execution import DaskBackend
    >>> model = MileRegressor(backend=DaskBackend("tcp://scheduler:8786"))
    """

    client: Any = None
    statistical: bool = False
    block_seconds: float = 10.0
    patience: float = 60.0
    verify: float = field(default=0.02, kw_only=True)

    def __post_init__(self) -> None:
        check_number("block_seconds", self.block_seconds, positive=True)
        check_number("patience", self.patience, positive=True)
        check_number("verify", self.verify, smallest=0.0, largest=1.0)

    def __deepcopy__(self, memo: dict[int, Any]) -> "DaskBackend":
        return self  # a connection is not copied when an estimator is cloned

    @contextlib.contextmanager
    def open_pool(self) -> Iterator["DaskWorkerPool"]:
        """Connect to the cluster; what was set up there is taken away in the end."""
        client = self._connect()
        pool = DaskWorkerPool(self, client)
        try:
            yield pool
        finally:
            pool.close()
            if client is not self.client and isinstance(self.client, str):
                client.close(timeout=_CONNECT_SECONDS)

    def _connect(self) -> Any:
        try:
            import distributed
        except ImportError as error:
            raise ImportError("Running on a Dask cluster needs distributed: pip install 'mile-bnn[dask]'.") from error
        if isinstance(self.client, distributed.Client):
            return self.client
        if self.client is None:
            try:
                return distributed.default_client()
            except ValueError:
                raise ValueError(
                    "backend 'dask' needs the address of a scheduler, such as address='tcp://scheduler:8786', or a "
                    "distributed.Client made before."
                ) from None
        if not isinstance(self.client, str):
            raise ValueError(f"client must be a distributed.Client, an address or None; got {self.client!r}.")
        try:
            return distributed.Client(self.client, set_as_default=False, timeout=_CONNECT_SECONDS)
        except (OSError, ValueError, TimeoutError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ClusterError(
                f"No Dask scheduler answers at {self.client} ({reason}). Start one with `dask scheduler`, or check the "
                "address and whether this machine can reach it."
            ) from None


class DaskWorkerPool:
    """The workers of a cluster that compute the same bits; see `DaskBackend`."""

    is_local = False
    growth = 16

    def __init__(self, backend: DaskBackend, client: Any) -> None:
        self.block_seconds, self.is_statistical = backend.block_seconds, backend.statistical
        self.verify = 0.0 if backend.statistical else backend.verify
        self._backend, self.client = backend, client
        self._address = client.scheduler.address if client.scheduler else "?"
        self.name = f"mile-{uuid.uuid4().hex[:12]}"  # of the resource that our tasks ask for
        self._width = 1
        self._identify: Identify | None = None
        self._expected: dict[str, Any] = {}
        self.slots: dict[str, int] = {}  # threads of each worker that takes part
        self.hosts: dict[str, str] = {}  # of all workers
        self.distrusted: set[str] = set()  # workers that have returned a wrong result
        self._n_flows = 0
        self.slow: set[str] = set()  # workers whose last task had to be done elsewhere: others are asked first
        self._known: set[str] = set()  # workers that were looked at
        self._glanced = self._alive = time.monotonic()
        self.latest = "nothing"  # name of the task that was given away last, for messages
        self._shared: tuple[Any, str] | None = None
        self.echoes: dict[str, tuple[Any, str]] = {}  # copies that came second, and what they should return
        self._plugins: list[str] = []

    # -- who takes part

    @property
    def program(self) -> InProcess:
        """What each worker runs."""
        return InProcess(n_threads=1, lanes=self._width)

    @property
    def n_workers(self) -> int:
        """Tasks that run at the same time."""
        return sum(self.slots.values())

    def agree(self, identify: Identify, known: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask the workers what they compute with, and let those take part that agree with the run, or with most."""
        from mile.execution import _worker_side

        try:
            self.client.wait_for_workers(1, timeout=self._backend.patience)
        except TimeoutError:
            raise ClusterError(
                f"No worker has joined the scheduler at {self._address} within {self._backend.patience:g} s. Start "
                f"some, such as `dask worker {self._address} --nthreads 1` for each core of each machine."
            ) from None
        answers = self.client.run(_worker_side.identify_here, identify, on_error="return")
        usable = {address: found for address, found in answers.items() if isinstance(found, dict)}
        if not usable:
            address, reason = next(iter(answers.items()))
            raise ClusterError(
                f"No worker can be used. {address}: {type(reason).__name__}: {reason}. Install this version of "
                "mile-bnn there."
            )
        wanted = _plain(known) if known is not None else None
        counts = collections.Counter(map(_frozen, usable.values()))
        most = next(found for found in usable.values() if _frozen(found) == counts.most_common(1)[0][0])
        self._expected = wanted if wanted in usable.values() and wanted is not None else most
        self._identify, self._width = identify, int(self._expected["width"])
        expected = None if self._backend.statistical else self._expected
        self._register(_worker_side.Admission(identify, expected, self.name))
        self._glance(answers)
        return self._expected | ({"statistical": True} if self._backend.statistical else {})

    def _register(self, plugin: Any) -> None:
        self.client.register_plugin(plugin)
        self._plugins.append(plugin.name)

    def _glance(self, answers: dict[str, Any] | None = None) -> None:
        """Look who is there; say who is not used, and why."""
        self._glanced = time.monotonic()
        workers = self.client.scheduler_info(n_workers=-1).get("workers")
        if workers is None:  # the client has given the scheduler up, and knows nothing any more
            raise OSError("the client is closed")
        self.slots = {
            address: int(worker["nthreads"])
            for address, worker in workers.items()
            if worker.get("resources", {}).get(self.name) and address not in self.distrusted
        }
        self.hosts |= {address: worker.get("host", "?") for address, worker in workers.items()}
        if self.slots:
            self._alive = time.monotonic()
        new = [address for address in workers if address not in self._known]
        others = [address for address in new if address not in self.slots]
        if others and answers is None:
            from mile.execution import _worker_side

            answers = self.client.run(_worker_side.identify_here, self._identify, workers=others, on_error="return")
        for address in others:
            difference = self._difference((answers or {}).get(address))
            if difference:
                host = workers[address].get("host", "?")
                warnings.warn(
                    f"The worker {address} on host {host} is not used: {difference}. DaskBackend(..., "
                    "statistical=True) allows such workers, and the draws can then not be repeated bit for bit.",
                    FitWarning,
                    stacklevel=2,
                )
                self._known.add(address)
        self._known |= set(self.slots)

    def _difference(self, answer: Any) -> str:
        """Say in what a worker differs; nothing if it does not, and is only about to join."""
        if not isinstance(answer, dict):
            return f"it says {type(answer).__name__}: {answer}" if answer is not None else ""
        names = [name for name in self._expected if answer.get(name) != self._expected[name]]
        return ", ".join(f"its {name} is {answer.get(name)!r}, the run's {self._expected[name]!r}" for name in names)

    def _check_workers(self) -> None:
        """Look who is there from time to time, and give up when nobody has been for long."""
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
        """Cut a block so that all workers come to the end of a phase at about the same time."""
        share = n_left // (_SHARES * max(1, self.n_workers))
        return max(n_steps // _SHORTEST_SHARE, min(n_steps, share))

    def rounds(self, n_groups: int) -> float:
        """Return how many groups share one worker."""
        return max(1.0, n_groups / max(1, self.n_workers))

    # -- tasks

    def flow(
        self,
        function: Callable[..., Any],
        next_task: Callable[[], Task | None],
        shared: Any,
        report: Report,
        *,
        together: bool = False,
    ) -> Iterator[list[Done]]:
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
        """Throw away what came second, after making sure that it is the same."""
        for key, (future, digest) in list(self.echoes.items()):
            if not future.done():
                continue
            del self.echoes[key]
            outcome = future.result() if future.status == "finished" and not self.is_statistical else None
            if outcome is not None and outcome.failure is None and outcome.digest != digest:
                warnings.warn(
                    f"The worker {outcome.address} on host {outcome.host} computed other bits than another worker for "
                    "the same block: this cluster repeats results statistically only.",
                    FitWarning,
                    stacklevel=2,
                )

    def distrust(self, address: str) -> bool:
        """Give a worker no more tasks, unless there is no other; say whether it is so."""
        if len(self.slots) > 1 and self.slots.pop(address, None) is not None:
            self.distrusted.add(address)
        return address in self.distrusted

    def perform_here(self, function: Callable[..., Any], task: Task) -> Any:
        """Do a task in this process, if it computes the same bits as the workers; else return None."""
        from mile.execution import _worker_side

        is_like_them = self._identify is not None and self._identify() == self._expected
        if self._shared is None or self.is_statistical or not is_like_them:
            return None
        return _worker_side.perform_here(function, task.arguments, self._shared[0], HERE)

    def _share(self, value: Any) -> str:
        """Bring to all workers what tasks share, in the place of what they shared before; return its name."""
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
        """Take away what was set up on the workers."""
        for future, _ in self.echoes.values():
            future.release()
        for name in list(self._plugins):
            self._unregister(name)

    def lost_scheduler(self) -> ClusterError:
        """Say that the scheduler is gone, and what it had been given."""
        return ClusterError(
            f"The Dask scheduler at {self._address} was lost; the last that it was given was {self.latest}."
        )


def _plain(fingerprint: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fingerprint.items() if name != "statistical"}


def _frozen(fingerprint: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(sorted((name, str(value)) for name, value in fingerprint.items()))
