"""Which block each group of chains runs next, and how long it is; no choice made here changes the draws."""

from mile.execution import WorkerPool
from mile.samplers.base import spacing
from mile.sampling.programs import Block

_FIRST_STEPS = 8


class BlockSchedule:
    """Hands out the blocks of one phase, one block of a group at a time; the group furthest behind goes first.

    Parameters
    ----------
    n_steps, n_records
        Of the phase.
    steps
        That each group has made; updated here.
    pool
        Who makes the blocks, and how long they should last.
    block_steps
        A fixed length; None starts with short blocks that grow until they last long enough.
    most_records
        That may end in one block: they stay in memory until its end.
    """

    def __init__(
        self,
        n_steps: int,
        n_records: int,
        steps: list[int],
        pool: WorkerPool,
        block_steps: int | None,
        most_records: int,
    ) -> None:
        self.steps = steps
        self.n_steps = n_steps
        self.pause = n_steps  # no block goes beyond this step until it is moved
        self._thinning = spacing(n_steps, n_records)
        self._first = n_steps - self._thinning * n_records  # the steps before it are not recorded
        self._pool = pool
        self._most_records = most_records
        self._fixed = block_steps is not None
        self._length = block_steps or _FIRST_STEPS
        self._under_way: dict[int, int] = {}  # group: the step to which its block goes
        self._gone: set[int] = set()

    def next(self) -> tuple[int, Block] | None:
        """Return a group and its next block, or None if none can start now."""
        end = min(self.pause, self.n_steps)
        waiting = [group for group, step in enumerate(self.steps) if step < end]
        idle = [group for group in waiting if group not in self._under_way]
        if not idle:
            return None
        group = min(idle, key=self.steps.__getitem__)
        n_left = sum(end - self.steps[other] for other in waiting)
        start = self.steps[group]
        length = self._length if self._fixed else self._pool.bounded(self._length, n_left)
        stop = min(start + max(1, length), end)
        block = Block(start, stop, self._first, self._thinning)
        block = block._replace(stop=min(stop, self._first + (block.base + self._most_records) * self._thinning))
        self._under_way[group] = block.stop
        return group, block

    def arrive(self, group: int) -> int:
        """Record that a group has finished its block; return its number of steps."""
        n_steps = self._under_way[group] - self.steps[group]
        self.steps[group] = self._under_way.pop(group)
        return n_steps

    def leave(self, group: int) -> int:
        """Record that a group will never finish its block; return how many records it lacks."""
        self._under_way.pop(group, None)
        self._gone.add(group)
        missing = self.n_records(self.n_steps) - self.n_records(self.steps[group])
        self.steps[group] = self.n_steps
        return missing

    def learn(self, n_steps: int, seconds: float) -> None:
        """Let blocks grow or shrink toward their wanted duration."""
        target = self._pool.block_seconds
        if self._fixed:
            return
        if seconds < 0.5 * target:
            factor = int(min(self._pool.growth, target / max(seconds, 1e-9)))
            self._length = max(self._length, n_steps * factor)
        elif seconds > 2.0 * target:
            self._length = max(1, n_steps // 2)

    def cut(self, fewest: int) -> int | None:
        """End the phase at the step of the group furthest ahead, if that leaves at least `fewest` records.

        Returns the number of records then, or None if the phase continues. The other groups catch up.
        """
        reached = [step for group, step in enumerate(self.steps) if group not in self._gone]
        furthest = max([*reached, *self._under_way.values()])
        n_records = self.n_records(furthest)
        if not fewest <= n_records < self.n_records(self.n_steps):
            return None
        self.n_steps = furthest
        return n_records

    def step_of(self, n_records: int) -> int:
        """Return the step at which a group has so many records."""
        return self._first + n_records * self._thinning

    def n_records(self, step: int) -> int:
        """Return how many records a group has at a step."""
        return max(0, step - self._first) // self._thinning
