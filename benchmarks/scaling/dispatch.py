"""The dispatcher's rules: which chain has a task next, and how many steps it makes."""

import heapq
import statistics
from collections import deque
from typing import Protocol

from scaling.setting import Setting, Stage

# All as in the library, which a test makes sure of.
_FIRST_STEPS = 8
_GROWTH = 16  # of a block over one that was too short
_SHARES = 2  # a block is at most what is left of a phase over so many blocks of each slot
_SHORTEST_SHARE = 10  # but not cut below this part of its length
_FIRST_EPOCHS = 25
_BLOCK_SHARE = 0.2  # of a block's time that a block of epochs takes
_REMEMBERED, _FEWEST_TIMED = 50, 3  # tasks from which the usual time is taken
_SLOW, _SHORTEST_DELAY = 3.0, 5.0  # a task is a straggler: times the usual, seconds


class Task:
    """Something for a slot to do; a duplicate is the same task once more."""

    __slots__ = ("chain", "copies", "done", "n_bytes", "n_steps", "seconds")

    def __init__(self, chain: int, n_steps: int, seconds: float, n_bytes: float) -> None:
        self.chain, self.n_steps, self.seconds, self.n_bytes = chain, n_steps, seconds, n_bytes
        self.copies, self.done = 0, False


class Work(Protocol):
    """What a cluster does before it goes on to something else."""

    @property
    def prepare_seconds(self) -> float:
        """What the client does before."""
        ...

    @property
    def finished(self) -> bool:
        """Whether all results are there."""
        ...

    def next_task(self) -> Task | None:
        """Return a task that can begin now."""
        ...

    def take(self, task: Task, seconds: float) -> None:
        """Take a result in, and the time it took."""
        ...

    def tolerated(self, task: Task) -> float | None:
        """Return how long a task may take until it counts as a straggler, if anything is known."""
        ...


def works(setting: Setting, stage: Stage) -> tuple[Work, ...]:
    """Return what a stage consists of."""
    if stage.is_training:
        return (Training(setting, stage),)
    if stage.is_bare:
        return (Blocks(setting, stage),)
    return Short(setting, stage), Blocks(setting, stage), Short(setting, stage)


class Paces:
    """The usual time of the tasks of one kind."""

    def __init__(self) -> None:
        self._seen: deque[float] = deque(maxlen=_REMEMBERED)  # seconds per step
        self._usual: float | None = None

    def note(self, task: Task, seconds: float) -> None:
        """Take in the time of a task."""
        self._seen.append(seconds / task.n_steps)
        self._usual = None

    def tolerated(self, task: Task) -> float | None:
        """Return how long a task may take, if anything is known."""
        if len(self._seen) < _FEWEST_TIMED:
            return None
        if self._usual is None:
            self._usual = statistics.median(self._seen)
        return max(_SHORTEST_DELAY, _SLOW * task.n_steps * self._usual)


class Short:
    """One short task for each chain."""

    prepare_seconds = 0.0

    def __init__(self, setting: Setting, stage: Stage) -> None:
        self._waiting = self._left = setting.n_chains
        self._seconds, self._n_bytes = setting.short_seconds, 2 * stage.checkpoint_bytes
        self._paces = Paces()
        self.tolerated = self._paces.tolerated

    @property
    def finished(self) -> bool:
        return not self._left

    def next_task(self) -> Task | None:
        if not self._waiting:
            return None
        self._waiting -= 1
        return Task(self._waiting, 1, self._seconds, self._n_bytes)

    def take(self, task: Task, seconds: float) -> None:
        self._paces.note(task, seconds)
        self._left -= 1


class _Steps:
    """Steps of all chains."""

    prepare_seconds = 0.0

    def __init__(self, setting: Setting, stage: Stage) -> None:
        self._setting, self._stage = setting, stage
        self._done = [0] * setting.n_chains
        self._left = setting.n_chains * stage.n_steps
        self._paces = Paces()
        self.tolerated = self._paces.tolerated

    @property
    def finished(self) -> bool:
        return not self._left

    def _task(self, chain: int, length: int) -> Task:
        stage = self._stage
        n_steps = max(1, min(length, stage.n_steps - self._done[chain]))
        seconds = n_steps * stage.step_seconds * self._setting.sharing
        return Task(chain, n_steps, seconds, 2 * stage.checkpoint_bytes + n_steps * stage.record_bytes)

    def _note(self, task: Task, seconds: float) -> bool:
        """Take a result in and say whether its chain goes on."""
        self._paces.note(task, seconds)
        self._left -= task.n_steps
        self._done[task.chain] += task.n_steps
        return self._done[task.chain] < self._stage.n_steps


class Blocks(_Steps):
    """The steps of a phase: the least advanced chain is next; blocks of one length for all, until few are left."""

    def __init__(self, setting: Setting, stage: Stage) -> None:
        super().__init__(setting, stage)
        self._idle = [(0, chain) for chain in range(setting.n_chains)] if stage.n_steps else []
        self._length = _FIRST_STEPS
        self.prepare_seconds = setting.prepare_seconds

    def next_task(self) -> Task | None:
        if not self._idle:
            return None
        _, chain = heapq.heappop(self._idle)
        share = self._left // (_SHARES * self._setting.n_slots)  # nobody waits long at the end
        return self._task(chain, max(self._length // _SHORTEST_SHARE, min(self._length, share)))

    def take(self, task: Task, seconds: float) -> None:
        if self._note(task, seconds):
            heapq.heappush(self._idle, (self._done[task.chain], task.chain))
        target = self._setting.block_seconds
        if seconds < 0.5 * target:
            self._length = max(self._length, task.n_steps * _growth(seconds, target))
        elif seconds > 2.0 * target:
            self._length = max(1, task.n_steps // 2)


class Training(_Steps):
    """The epochs of the members: what has begun goes on first, each with blocks of its own length."""

    def __init__(self, setting: Setting, stage: Stage) -> None:
        super().__init__(setting, stage)
        self._waiting = deque(range(setting.n_chains)) if stage.n_steps else deque()
        self._lengths = [_FIRST_EPOCHS] * setting.n_chains

    def next_task(self) -> Task | None:
        if not self._waiting:
            return None
        chain = self._waiting.popleft()
        return self._task(chain, self._lengths[chain])

    def take(self, task: Task, seconds: float) -> None:
        if not self._note(task, seconds):
            return
        target = _BLOCK_SHARE * self._setting.block_seconds
        if seconds < 0.5 * target:
            self._lengths[task.chain] *= _growth(seconds, target)
        self._waiting.appendleft(task.chain)


def _growth(seconds: float, target: float) -> int:
    return int(min(_GROWTH, target / max(seconds, 1e-9)))
