"""The sampling loop: all chains run through a sampler's phases, block by block."""

import dataclasses
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

import jax
import numpy as np

from mile._deadline import Deadline, Stopped
from mile._errors import ClusterError, FitFailedError, Status, StorageError, warn
from mile._progress import Progress
from mile._types import PyTree
from mile.execution import Done, Flaw, Task, WorkerPool, result_checks
from mile.samplers.base import Phase
from mile.sampling import programs
from mile.sampling.block_schedule import BlockSchedule
from mile.sampling.chain_state import ChainState
from mile.sampling.timing import Forecaster
from mile.storage import Run, Unsaved

_BUFFERS = 64  # of records that a block on another machine may fill: there blocks are long
_FEWEST_DRAWS = 10  # of each chain; a time limit does not cut deeper


Result = TypeVar("Result")
Check = Callable[..., Flaw | None]  # of a result of a task
Monitor = Callable[[np.ndarray], str]  # takes the newest draw of each chain, returns a note about them


class StopRule(Protocol):
    """Decides, whenever all chains have a certain number of draws, whether these are enough."""

    def decisions(self, n_draws: int) -> list[int]:
        """Return after how many draws of `n_draws` to decide."""
        ...

    def is_over(self, n_draws: int, read: Callable[[int, int, int], np.ndarray]) -> bool:
        """Decide; `read` gives the draws of a chain from one number up to another."""
        ...


class LoopContext(NamedTuple):
    """What stays the same from phase to phase."""

    backend: WorkerPool
    progress: Progress
    block_steps: int | None
    run: Run | Unsaved
    deadline: Deadline
    monitor: Monitor | None = None
    stop: StopRule | None = None


class SamplingLoop:
    """Runs all chains: phase by phase together, and within a phase block by block."""

    def __init__(self, state: ChainState, context: LoopContext) -> None:
        self.state, self.context = state, context
        self._lock = threading.Lock()
        self._open_phase()

    def _open_phase(self) -> None:
        self._shown = [0] * len(self.state.groups)  # steps already reported to progress
        self._newest: dict[int, np.ndarray] = {}  # draws that the monitor has not seen

    def run_phase(self, forecast: Forecaster) -> None:
        """Run one phase on all groups, from their current steps to its end."""
        context, phase = self.context, self.state.phase
        context.progress.start(phase.name, phase.n_steps * len(self.state.groups), n_chains=len(self.state.ids))
        if not self.state.begun:
            self._begin(phase)
            if self.state.last:
                self._save("start", "state")
        for group, step in enumerate(self.state.steps):
            self._show(group, step)
        self._finish(self._advance(phase, forecast))
        context.progress.finish()

    def _advance(self, phase: Phase, forecast: Forecaster) -> Phase:
        """Make all steps of a phase; return the phase, shorter if a time limit cut it."""
        context, pool = self.context, self.context.backend
        capacity = self._capacity()
        most_records = capacity * (1 if pool.is_local else _BUFFERS)
        schedule = BlockSchedule(
            phase.n_steps, phase.n_records, self.state.steps, pool, context.block_steps, most_records
        )
        tasks = self._tasks(phase, schedule, capacity)
        rule = self.context.stop if self.state.last else None
        for n_draws in [] if rule is None else rule.decisions(phase.n_records):
            schedule.pause = schedule.step_of(n_draws)
            phase = self._go(phase, schedule, tasks, forecast)
            if schedule.n_steps <= schedule.pause:
                return phase  # the time limit cut it
            going = [step for group, step in enumerate(self.state.steps) if group not in self.state.lost]
            if rule is not None and max(going) == schedule.pause and rule.is_over(n_draws, self.state.draws.positions):
                self.state.draws.cut(n_draws)
                return dataclasses.replace(phase, n_steps=schedule.pause, n_records=n_draws)
        schedule.pause = schedule.n_steps
        return self._go(phase, schedule, tasks, forecast)

    def _go(
        self,
        phase: Phase,
        schedule: BlockSchedule,
        tasks: Callable[[], Task[programs.Advanced] | None],
        forecast: Forecaster,
    ) -> Phase:
        """Make the steps up to the next pause; return the phase, shorter if a time limit cut it."""
        context, pool = self.context, self.context.backend
        for done in self._flow(programs.advance_group, tasks):
            seconds = 0.0
            for one in done:
                if one.lost:
                    self._lose(one)
                    self._fill(one.group, schedule.leave(one.group))
                    continue
                n_steps = schedule.arrive(one.group)
                self._show(one.group, self.state.steps[one.group])
                self.state.carries[one.group] = one.result.carries
                self._keep(one.group, one.result.records)
                seconds = self._seconds(one, n_steps)
                if one is done[-1] or not pool.is_local:  # tasks in step with each other are timed together
                    forecast.note(
                        self.state.index, self.state.steps[one.group], n_steps, self._round(seconds), context.progress
                    )
                    schedule.learn(n_steps, seconds)
            self._look_around()
            if self.state.last and context.deadline.passed(within=seconds):  # another block would take as long again
                n_draws = schedule.cut(_FEWEST_DRAWS)
                if n_draws is not None:
                    phase = dataclasses.replace(phase, n_steps=schedule.n_steps, n_records=n_draws)
                    self.state.draws.cut(n_draws)
        return phase

    def rehearse(self, forecast: Forecaster) -> None:
        """Make the first steps, in blocks that double, until one lasts long enough to be timed."""
        pool, phase, length = self.context.backend, self.state.sampler.phases[0], 1  # a step may take seconds
        self._begin(phase)
        while forecast.seconds_per_step is None:
            schedule = BlockSchedule(self.state.steps[0] + length, 0, self.state.steps, pool, length, 1)
            tasks = self._tasks(phase, schedule, self._capacity())
            for done in self._flow(programs.advance_group, tasks):
                for one in done:
                    if one.lost:
                        self._lose(one)
                        schedule.leave(one.group)
                        continue
                    schedule.arrive(one.group)
                    self.state.carries[one.group] = one.result.carries
                    if one is done[-1]:
                        forecast.note(0, 0, length, self._round(self._seconds(one, length)), None)
            length *= 2

    def _capacity(self) -> int:
        """Return how many records compiled code holds at a time."""
        return programs.buffer_capacity(self.state.record_shape(self.state.carries[0]))

    def _tasks(
        self, phase: Phase, schedule: BlockSchedule, capacity: int
    ) -> Callable[[], Task[programs.Advanced] | None]:
        """Return the function that gives the next block as a task."""
        pool, streams = self.context.backend, self.state.streams()
        record = None if pool.is_local else self.state.record_shape(self.state.carries[0])

        def next_task() -> Task[programs.Advanced] | None:
            found = schedule.next()
            if found is None:
                return None
            group, block = found
            arguments = (pool.program, capacity, block, not pool.is_local, streams[group], self.state.carries[group])
            name = self.state.name(group, f"steps {block.start:,} to {block.stop:,}")
            size, carry = block.stop - block.start, self.state.carries[group]
            check = partial(result_checks.check_advanced, before=carry, record=record, n_records=block.n_complete)
            return Task(group, (phase, *arguments), name, size, self.state.seed, None if pool.is_local else check)

        return next_task

    def _flow(
        self, function: Callable[..., Result], next_task: Callable[[], Task[Result] | None]
    ) -> Iterator[list[Done[Result]]]:
        """Run tasks on the workers; save a checkpoint if the cluster is lost."""
        context = self.context
        try:
            yield from context.backend.flow(function, next_task, self.state.target, self._show, together=True)
        except ClusterError:
            if self.state.begun:
                self._save("state")
            context.run.settle()
            raise

    def _seconds(self, done: Done[programs.Advanced], n_steps: int) -> float:
        """Return how long a block took, without the compilation that each remote worker does once."""
        return done.seconds if self.context.backend.is_local else n_steps * done.result.seconds_per_step

    def _round(self, seconds: float) -> float:
        """Return how long all groups need for what one group did in the given number of seconds."""
        return seconds * self.context.backend.rounds(len(self.state.groups))

    def _begin(self, phase: Phase) -> None:
        """Turn the carries of the phase before into those of this one."""
        program, streams = self.context.backend.program, self.state.streams()
        arguments = [(phase, program, stream, carry) for stream, carry in zip(streams, self.state.carries, strict=True)]
        check = self._check(result_checks.check_begun, self.state.carry_shape)
        self.state.carries = self._each(programs.begin_group, arguments, "begin", check)
        for group in self.state.lost:
            self._fill(group, phase.n_records)
            self.state.steps[group] = phase.n_steps
        self.state.begun = True

    def _check(self, check: Check, shape: Callable[[], PyTree]) -> Check | None:
        """Return a check of results that come from other processes, with the shapes that they should have."""
        return None if self.context.backend.is_local else partial(check, expected=shape())

    def _each(
        self,
        function: Callable[..., PyTree],
        arguments: Sequence[tuple[object, ...]],
        what: str,
        check: Check | None,
    ) -> list[PyTree]:
        """Do one task of each group; the result of a group that is lost is NaN."""
        lost, seed = self.state.lost, self.state.seed
        checks = [None if check is None else partial(check, before=carry) for carry in self.state.carries]
        tasks = iter(
            [
                Task(group, given, self.state.name(group, what), seed=seed, check=checks[group])
                for group, given in enumerate(arguments)
                if group not in lost
            ]
        )
        found: dict[int, PyTree] = {}
        for done in self._flow(function, lambda: next(tasks, None)):
            for one in done:
                if one.lost:
                    self._lose(one)
                else:
                    found[one.group] = one.result
        blank = jax.tree.map(lambda leaf: _blank(leaf.shape, leaf.dtype), next(iter(found.values())))
        return [found.get(group, blank) for group in range(len(self.state.groups))]

    def _lose(self, done: Done[Result]) -> None:
        """Warn that a group is lost and continue without it."""
        warn(done.lost)
        self.state.status[self.state.real(done.group)] = Status.LOST
        if len(self.state.lost) == len(self.state.groups):
            raise FitFailedError(f"No chain could be computed. {done.lost}")

    def _fill(self, group: int, n_records: int) -> None:
        """Keep NaN for the records that a group will never make."""
        shape = self.state.record_shape(self.state.carries[0])
        self._keep(group, jax.tree.map(lambda leaf: _blank((len(leaf), n_records, *leaf.shape[1:]), leaf.dtype), shape))

    def _keep(self, group: int, records: PyTree) -> None:
        """Keep the records of a block."""
        if not self.state.last:
            self.state.parts[group].append(records)
            return
        for row, chain in enumerate(self.state.real(group)):
            self.state.draws.write(chain, [leaf[row] for leaf in records])
            is_finite = np.isfinite(records.position[row]).all() and np.isfinite(records.logdensity[row]).all()
            self.state.non_finite[chain] |= not is_finite
        if self.context.monitor and records.position.shape[1]:
            self._newest[group] = records.position[:, -1]
            if len(self._newest) == len(self.state.groups):
                newest = np.concatenate([self._newest[number] for number in range(len(self.state.groups))])
                self.context.progress.note(self.context.monitor(newest[: len(self.state.ids)]))
                self._newest = {group: self._newest[group] for group in self.state.lost}

    def _show(self, group: int, step: int) -> None:
        """Report the progress of a group; a block that is made twice counts once. Called by any thread."""
        with self._lock:
            amount, self._shown[group] = step - self._shown[group], max(step, self._shown[group])
        if amount > 0:
            self.context.progress.advance(amount)

    def _look_around(self) -> None:
        """Between blocks: save a checkpoint if one is due, and stop if asked to."""
        run, deadline = self.context.run, self.context.deadline
        try:
            run.check()
            if deadline.stopping or run.due(self.state.ids.tolist()):
                self._save("state")
            if deadline.stopping:
                run.settle()
        except StorageError as error:
            raise self._located(error) from error
        if deadline.stopping:
            raise Stopped

    def _located(self, error: StorageError) -> StorageError:
        """Add to a disk error when and where it happened, and how to resume."""
        behind = int(np.argmin(self.state.steps))
        block = self.state.name(behind, f"step {self.state.steps[behind]:,}")
        return StorageError(
            error.errno,
            f"{error.strerror or error} It happened on host {socket.gethostname()} when all chains were at least at "
            f"{block}. What was saved before is intact: `mile resume` continues from there when the disk is back.",
        )

    def _finish(self, phase: Phase) -> None:
        """Finish the phase and move on to the next one."""
        program = self.context.backend.program
        check = self._check(result_checks.check_finished, lambda: self.state.end_shape(self.state.carries[0]))
        # The state before conclusions are drawn: more draws can be made from it.
        last = self.state.records("last") if self.state.last and self.context.run.is_saved else {}
        ends = self._each(
            programs.finish_group, [(phase, program, carry) for carry in self.state.carries], "finish", check
        )
        self.state.close_phase(phase, ends)
        self._open_phase()
        if last:
            self.context.run.save(last | self.state.records("final"))

    def _save(self, *kinds: str) -> None:
        """Write a checkpoint, if the run has a folder."""
        if self.context.run.is_saved:
            self.context.run.save({key: record for kind in kinds for key, record in self.state.records(kind).items()})


def _blank(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return NaN, and zeros where the type has no NaN."""
    return np.full(shape, np.nan if np.issubdtype(dtype, np.floating) else 0, dtype)
