"""The part of Dask's interface that this package uses, as protocols: `distributed` has no precise types."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypedDict, TypeVar, runtime_checkable

from mile._types import PyTree

Result = TypeVar("Result")
Covariant = TypeVar("Covariant", covariant=True)
Event = tuple[float, Mapping[str, int]]  # when, and what a worker reported


class Outcome(NamedTuple):
    """What a worker returned for a task, with its name."""

    result: PyTree
    failure: Exception | None
    digest: str
    seconds: float
    host: str
    address: str


class WorkerInfo(TypedDict, total=False):
    """What the scheduler knows of a worker."""

    nthreads: int
    host: str
    resources: dict[str, float]


class SchedulerInfo(TypedDict, total=False):
    """What a client knows of its cluster; without `workers` once it is closed."""

    workers: dict[str, WorkerInfo]


class Security(Protocol):
    """Certificates and their keys; a `distributed.security.Security`."""

    def get_connection_args(self, role: str) -> Mapping[str, object]:
        """Return what a connection of a client, worker or scheduler needs."""
        ...


@runtime_checkable
class SchedulerLink(Protocol):
    """The client's connection to its scheduler."""

    @property
    def address(self) -> str:
        """Where the scheduler is."""
        ...


@runtime_checkable
class Future(Protocol[Covariant]):
    """A result that a worker computes; a `distributed.Future`."""

    @property
    def key(self) -> str:
        """Its unique name."""
        ...

    @property
    def status(self) -> str:
        """Such as "pending", "finished" or "error"."""
        ...

    def done(self) -> bool:
        """Say whether it has ended, well or badly."""
        ...

    def result(self) -> Covariant:
        """Wait for the result; raise what the worker raised."""
        ...

    def exception(self) -> BaseException:
        """Return what the worker raised."""
        ...

    def release(self) -> None:
        """Tell the cluster that the result is not needed."""
        ...

    def add_done_callback(self, function: Callable[["Future[Covariant]"], None]) -> None:
        """Call a function when it has ended."""
        ...


@runtime_checkable
class Client(Protocol):
    """A connection to a cluster; a `distributed.Client`."""

    @property
    def scheduler(self) -> SchedulerLink | None:
        """The connection to the scheduler; None before there is one."""
        ...

    @property
    def status(self) -> str:
        """Such as "running" or "closed"."""
        ...

    def submit(self, function: Callable[..., Result], *arguments: object, **options: object) -> Future[Result]:
        """Have a worker call a function."""
        ...

    def map(
        self, function: Callable[..., Result], arguments: Sequence[object], **options: object
    ) -> list[Future[Result]]:
        """Have workers call a function with each argument."""
        ...

    def gather(self, futures: Sequence[Future[Result]]) -> list[Result]:
        """Wait for results."""
        ...

    def scatter(self, data: object, *, broadcast: bool, hash: bool) -> Future[object]:
        """Send data to workers."""
        ...

    def run(self, function: Callable[..., object], *arguments: object, **options: object) -> dict[str, object]:
        """Call a function on workers at once; return what each returned, or raised with on_error="return"."""
        ...

    def processing(self) -> Mapping[str, Sequence[str]]:
        """Return the keys of the tasks that each worker has."""
        ...

    def scheduler_info(self, *, n_workers: int) -> SchedulerInfo:
        """Return what is known of the cluster."""
        ...

    def wait_for_workers(self, n_workers: int, timeout: float) -> None:
        """Wait until this number of workers has joined."""
        ...

    def register_plugin(self, plugin: "WorkerPlugin") -> object:
        """Install a plugin on all workers, also on those that join later."""
        ...

    def unregister_worker_plugin(self, name: str) -> object:
        """Remove a plugin from all workers."""
        ...

    def subscribe_topic(self, topic: str, handler: Callable[[Event], None]) -> object:
        """Call a function with each event of a topic."""
        ...

    def unsubscribe_topic(self, topic: str) -> object:
        """Receive no more events of a topic."""
        ...

    def close(self, *, timeout: float) -> object:
        """Disconnect."""
        ...


@runtime_checkable
class WorkerState(Protocol):
    """The state of a worker's scheduler thread."""

    @property
    def nthreads(self) -> int:
        """Threads that compute."""
        ...


@runtime_checkable
class Worker(Protocol):
    """A worker as its plugins see it; a `distributed.Worker`."""

    status: object

    @property
    def state(self) -> WorkerState:
        """What it can do."""
        ...

    def set_resources(self, **resources: float) -> Awaitable[None]:
        """Tell the scheduler what tasks may ask for."""
        ...


@runtime_checkable
class WorkerPlugin(Protocol):
    """Something installed on workers."""

    name: str
