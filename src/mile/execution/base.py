"""What the loops ask of whoever runs chains, and the words in which they ask."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, runtime_checkable

Identify = Callable[[], dict[str, Any]]  # says what computes where it is called; see `storage.fingerprint`
Report = Callable[[int, int], None]  # is told which group has come to which step


class Flaw(NamedTuple):
    """What is wrong with a result that came from elsewhere."""

    sentence: str  # how it goes on after "it returned a wrong result: "
    is_malformed: bool = False  # not a result at all; otherwise the result of a chain that has failed may look like it


class Task(NamedTuple):
    """One block of work of one group of chains: a pure function's arguments, so it can be done again anywhere."""

    group: int
    arguments: tuple[Any, ...]
    name: str  # what people call it: "chain 3, sampling, steps 100 to 200"
    size: int = 1  # how much work it is, compared with others of its kind
    seed: int = 0  # of the run
    check: Callable[[Any], Flaw | None] | None = None  # looks at a result from another process before it is used


class Done(NamedTuple):
    """What became of a task."""

    group: int
    result: Any
    seconds: float  # that it took; of tasks that ran in step with each other, all of them together
    lost: str = ""  # why there is no result and never will be


@runtime_checkable
class Program(Protocol):
    """How compiled code holds several chains; hashable, because it decides what is compiled."""

    @property
    def width(self) -> int:
        """Chains of one device."""
        ...

    @property
    def alone(self) -> "Program":
        """The same for one device."""
        ...

    def groups(self, chains: Sequence[int]) -> list[list[int]]:
        """Cut chains into groups of one fixed size; the last is filled up with its first chain."""
        ...

    def over_group(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Turn a pure function of one chain into one of a group, whose arguments have a leading axis."""
        ...


@runtime_checkable
class WorkerPool(Protocol):
    """Runs tasks, as many at a time as it has workers."""

    @property
    def program(self) -> Any:
        """The `Program` that its workers use."""
        ...

    @property
    def n_workers(self) -> int:
        """Tasks that run at the same time."""
        ...

    @property
    def is_local(self) -> bool:
        """Whether tasks run in this process, so that what they share stays where it is."""
        ...

    @property
    def block_seconds(self) -> float:
        """How long a block should last."""
        ...

    @property
    def growth(self) -> int:
        """By how much a block may be longer than the one before."""
        ...

    def agree(self, identify: Identify, known: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the fingerprint of all that will compute; `known` is that of a run that is gone on with."""
        ...

    def bounded(self, n_steps: int, n_left: int) -> int:
        """Return how long a block of `n_steps` may be when `n_left` steps are left of all groups together."""
        ...

    def rounds(self, n_groups: int) -> float:
        """Return how many times the duration of a task passes while each group does one."""
        ...

    def flow(
        self,
        function: Callable[..., Any],
        next_task: Callable[[], Task | None],
        shared: Any,
        report: Report,
        *,
        together: bool = False,
    ) -> Iterator[list[Done]]:
        """Do tasks until there are none, and yield those that are done, also none when some time has passed.

        A task is done by `function(*task.arguments, shared, report)`; it must return when its result is ready, and
        tells `report` the step it has come to. `next_task` gives the next one, or None if there is none until one
        that is under way is done. With `together`, a pool of one process begins new tasks when all before are done.
        """
        ...


@runtime_checkable
class Backend(Protocol):
    """A place where chains can run."""

    def open_pool(self) -> AbstractContextManager[Any]:
        """Return a context that gives a `WorkerPool`."""
        ...
