"""The contracts of execution: what the loops ask of a worker pool, and the values they exchange with it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

Result = TypeVar("Result")

Fingerprint = Mapping[str, object]  # versions and kind of machine that the bits depend on; see `storage.fingerprint`
Identify = Callable[[], Fingerprint]  # returns the fingerprint of the process that calls it
Report = Callable[[int, int], None]  # takes a group and the step that it has reached


class Flaw(NamedTuple):
    """What is wrong with a result that came from another process."""

    sentence: str  # completes "it returned a wrong result: "
    is_malformed: bool = False  # not a result at all; otherwise a chain that has failed may return the same


@dataclass(frozen=True)
class Task(Generic[Result]):
    """One block of one group of chains: the arguments of a pure function, so any worker can repeat it."""

    group: int
    arguments: tuple[object, ...]
    name: str  # for messages: "chain 3, sampling, steps 100 to 200"
    size: int = 1  # amount of work, relative to other tasks of its kind
    seed: int = 0  # of the run
    check: Callable[[Result], Flaw | None] | None = None  # looks at a result from another process before it is used


@dataclass(frozen=True)
class Done(Generic[Result]):
    """The outcome of a task: a result, or the reason why there is none."""

    group: int
    found: Result | None
    seconds: float  # duration; for tasks that run in step, that of all of them together
    lost: str = ""  # why no worker could compute it

    @property
    def result(self) -> Result:
        """The result of a task that is not lost.

        Raises
        ------
        LookupError
            If it is.
        """
        if self.lost:
            raise LookupError(self.lost)
        return cast(Result, self.found)


@runtime_checkable
class Program(Protocol):
    """How compiled code holds several chains; hashable, because it decides what is compiled."""

    @property
    def width(self) -> int:
        """Chains of one device."""
        ...

    @property
    def alone(self) -> "Program":
        """The program of one device."""
        ...

    def groups(self, chains: Sequence[int]) -> list[list[int]]:
        """Cut chains into groups of one fixed size; the last is padded with its first chain."""
        ...

    def over_group(self, function: Callable[..., Result]) -> Callable[..., Result]:
        """Turn a pure function of one chain into one of a group, whose arguments have a leading axis."""
        ...


@runtime_checkable
class WorkerPool(Protocol):
    """Runs tasks, as many at a time as it has workers."""

    @property
    def program(self) -> Program:
        """What its workers run."""
        ...

    @property
    def n_workers(self) -> int:
        """Tasks that run at the same time."""
        ...

    @property
    def is_local(self) -> bool:
        """Whether tasks run in this process and share its memory."""
        ...

    @property
    def block_seconds(self) -> float:
        """How long a block should last."""
        ...

    @property
    def growth(self) -> int:
        """Largest factor from the length of one block to the next."""
        ...

    def agree(self, identify: Identify, known: Fingerprint | None = None) -> Fingerprint:
        """Return the fingerprint that all workers share; `known` is that of the run to resume."""
        ...

    def bounded(self, n_steps: int, n_left: int) -> int:
        """Return how long a block of `n_steps` may be when all groups together have `n_left` steps left."""
        ...

    def rounds(self, n_groups: int) -> float:
        """Return how many tasks one worker does in turn while each group does one."""
        ...

    def flow(
        self,
        function: Callable[..., Result],
        next_task: Callable[[], Task[Result] | None],
        shared: object,
        report: Report,
        *,
        together: bool = False,
    ) -> Iterator[list[Done[Result]]]:
        """Do tasks until there are none; yield those that are done, or nothing after a short wait.

        A worker calls `function(*task.arguments, shared, report)`, which returns when its result is ready and
        calls `report` with the step that it has reached. `next_task` returns None while no task can start before
        a running one is done. With `together`, a local pool starts new tasks only after all earlier ones are done.
        """
        ...


@runtime_checkable
class Backend(Protocol):
    """A place where chains can run."""

    def open_pool(self) -> AbstractContextManager[WorkerPool]:
        """Return a context that opens a worker pool and closes it."""
        ...
