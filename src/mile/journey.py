"""The way of all chains through a sampler's phases, block by block, and its checkpoints."""

import dataclasses
import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from mile import blocks
from mile._errors import ClusterError, CorruptFileError, FitFailedError, FitWarning, Status, StorageError
from mile._progress import Progress
from mile._random import Stage
from mile._types import Target
from mile._watch import Stopped, Watch
from mile.execution import Crew, Done, Task
from mile.forecast import Forecaster
from mile.itinerary import Itinerary
from mile.samplers import Sampler
from mile.samplers.base import Phase
from mile.storage import Record, Run, Unsaved

_BUFFERS = 64  # of records that a block on another machine may fill: there blocks are long
_FEWEST_DRAWS = 10  # of each chain; a time limit does not cut deeper


Monitor = Callable[[np.ndarray], str]  # is shown the newest draw of each chain, says something about them


class Loop(NamedTuple):
    """What stays the same from phase to phase."""

    backend: Crew
    progress: Progress
    target: Target
    block_steps: int | None
    run: Run | Unsaved
    watch: Watch
    monitor: Monitor | None = None


@dataclass
class Journey:
    """Where all chains are: they go through the phases together, and within a phase block by block.

    This is what a checkpoint holds: phase, steps, the carries, and what the phases so far have left.
    """

    sampler: Sampler
    loop: Loop
    seed: int
    ids: np.ndarray
    groups: list[list[int]]
    draws: Any
    carries: list[Any]
    index: int = 0  # of the phase under way
    begun: bool = False  # whether the phase under way has been initialized
    steps: list[int] = field(init=False)  # to which each group has come
    status: np.ndarray = field(init=False)
    info: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    history: dict[str, Any] = field(default_factory=dict)
    parts: list[list[Any]] = field(init=False)  # per group, records of a tuning phase under way

    def __post_init__(self) -> None:
        self.status = np.full(len(self.ids), Status.OK)
        self._lock = threading.Lock()
        self._open_phase()

    def _open_phase(self) -> None:
        self.steps, self.begun = [0] * len(self.groups), False
        self.parts = [[] for _ in self.groups]
        self._shown = [0] * len(self.groups)  # steps that progress has been told of
        self._newest: dict[int, np.ndarray] = {}  # draws that the monitor has not seen

    @property
    def finished(self) -> bool:
        """Whether all phases are over."""
        return self.index == len(self.sampler.phases)

    @property
    def last(self) -> bool:
        """Whether this is the phase whose records are the draws."""
        return self.index == len(self.sampler.phases) - 1

    def run_phase(self, forecast: Forecaster) -> None:
        """Run one phase on all groups, from wherever they are in it to its end."""
        loop, phase = self.loop, self.sampler.phases[self.index]
        loop.progress.start(phase.name, phase.n_steps * len(self.groups), n_chains=len(self.ids))
        if not self.begun:
            self._begin(phase)
            if self.last:
                loop.run.save(self._records("start") | self._records("state"))
        for group, step in enumerate(self.steps):
            self._show(group, step)
        self._finish(self._advance(phase, forecast))
        loop.progress.finish()

    def _advance(self, phase: Any, forecast: Forecaster) -> Phase:
        """Make all steps of a phase; return it as it came out, shorter if a time limit cut it."""
        loop, crew = self.loop, self.loop.backend
        capacity = self._capacity()
        most_records = capacity * (1 if crew.is_local else _BUFFERS)
        itinerary = Itinerary(phase.n_steps, phase.n_records, self.steps, crew, loop.block_steps, most_records)
        tasks = self._tasks(phase, itinerary, capacity)
        for done in self._flow(blocks.advance_group, tasks):
            seconds = 0.0
            for one in done:
                if one.lost:
                    self._lose(one)
                    self._fill(one.group, itinerary.leave(one.group))
                    continue
                n_steps = itinerary.arrive(one.group)
                self._show(one.group, self.steps[one.group])
                self.carries[one.group] = one.result.carries
                self._keep(one.group, one.result.records)
                seconds = self._seconds(one, n_steps)
                if one is done[-1] or not crew.is_local:  # tasks in step with each other are timed together
                    forecast.note(self.index, self.steps[one.group], n_steps, self._round(seconds), loop.progress)
                    itinerary.learn(n_steps, seconds)
            self._look_around()
            if self.last and loop.watch.passed(within=seconds):  # another block would take as long again
                n_draws = itinerary.cut(_FEWEST_DRAWS)
                if n_draws is not None:
                    phase = dataclasses.replace(phase, n_steps=itinerary.n_steps, n_records=n_draws)
                    self.draws.cut(n_draws)
        return phase

    def rehearse(self, forecast: Forecaster) -> None:
        """Make the first steps, in blocks that double, until one has lasted long enough to be timed."""
        crew, phase, length = self.loop.backend, self.sampler.phases[0], 1  # a step may take seconds
        self._begin(phase)
        while forecast.seconds_per_step is None:
            itinerary = Itinerary(self.steps[0] + length, 0, self.steps, crew, length, 1)
            tasks = self._tasks(phase, itinerary, self._capacity())
            for done in self._flow(blocks.advance_group, tasks):
                for one in done:
                    if one.lost:
                        self._lose(one)
                        itinerary.leave(one.group)
                        continue
                    itinerary.arrive(one.group)
                    self.carries[one.group] = one.result.carries
                    if one is done[-1]:
                        forecast.note(0, 0, length, self._round(self._seconds(one, length)), None)
            length *= 2

    def _capacity(self) -> int:
        """Return how many records compiled code holds at a time."""
        return blocks.buffer_capacity(self._record_shape(self.carries[0]))

    def _tasks(self, phase: Phase, itinerary: Itinerary, capacity: int) -> Callable[[], Task | None]:
        """Return what gives the next block as a task."""
        crew, streams = self.loop.backend, self._streams()

        def next_task() -> Task | None:
            found = itinerary.next()
            if found is None:
                return None
            group, block = found
            arguments = (crew.program, capacity, block, not crew.is_local, streams[group], self.carries[group])
            name = self._name(group, f"steps {block.start:,} to {block.stop:,}")
            return Task(group, (phase, *arguments), name, block.stop - block.start)

        return next_task

    def _flow(self, function: Callable[..., Any], next_task: Callable[[], Task | None]) -> Iterator[list[Done]]:
        """Let the crew work; when it is lost, save what is there."""
        loop = self.loop
        try:
            yield from loop.backend.flow(function, next_task, loop.target, self._show, together=True)
        except ClusterError:
            if self.begun:
                loop.run.save(self._records("state"))
            loop.run.settle()
            raise

    def _seconds(self, done: Done, n_steps: int) -> float:
        """Return how long a block took; elsewhere programs are compiled once for each worker, which does not count."""
        return done.seconds if self.loop.backend.is_local else n_steps * done.result.seconds_per_step

    def _round(self, seconds: float) -> float:
        """Return how long all groups take for what one of them did in so many seconds."""
        return seconds * self.loop.backend.rounds(len(self.groups))

    def _begin(self, phase: Phase) -> None:
        """Turn what the phase before has left into the carries of this one."""
        program, streams = self.loop.backend.program, self._streams()
        arguments = [(phase, program, stream, carry) for stream, carry in zip(streams, self.carries, strict=True)]
        self.carries = self._each(blocks.begin_group, arguments, "begin")
        for group in self._lost:
            self._fill(group, phase.n_records)
            self.steps[group] = phase.n_steps
        self.begun = True

    def _each(self, function: Callable[..., Any], arguments: list[tuple], what: str) -> list[Any]:
        """Do one task of each group; where a group is lost, nothing but numbers that are not one is the result."""
        lost = self._lost
        waiting = (Task(group, given, self._name(group, what)) for group, given in enumerate(arguments))
        tasks = iter([task for task in waiting if task.group not in lost])
        found: dict[int, Any] = {}
        for done in self._flow(function, lambda: next(tasks, None)):
            for one in done:
                if one.lost:
                    self._lose(one)
                else:
                    found[one.group] = one.result
        blank = jax.tree.map(lambda leaf: _blank(leaf.shape, leaf.dtype), next(iter(found.values())))
        return [found.get(group, blank) for group in range(len(self.groups))]

    @property
    def _lost(self) -> list[int]:
        """Groups that nobody could compute."""
        return [group for group in range(len(self.groups)) if self.status[self._real(group)[0]] == Status.LOST]

    def _lose(self, done: Done) -> None:
        """Go on without a group."""
        warnings.warn(done.lost, FitWarning, stacklevel=2)
        self.status[self._real(done.group)] = Status.LOST
        if len(self._lost) == len(self.groups):
            raise FitFailedError(f"No chain could be computed. {done.lost}")

    def _fill(self, group: int, n_records: int) -> None:
        """Keep numbers that are not one for the records that a group will never make."""
        shape = self._record_shape(self.carries[0])
        self._keep(group, jax.tree.map(lambda leaf: _blank((len(leaf), n_records, *leaf.shape[1:]), leaf.dtype), shape))

    def _keep(self, group: int, records: Any) -> None:
        """Keep the records of a block."""
        if not self.last:
            self.parts[group].append(records)
            return
        for row, chain in enumerate(self._real(group)):
            self.draws.write(chain, [leaf[row] for leaf in records])
        if self.loop.monitor and records.position.shape[1]:
            self._newest[group] = records.position[:, -1]
            if len(self._newest) == len(self.groups):
                newest = np.concatenate([self._newest[number] for number in range(len(self.groups))])
                self.loop.progress.note(self.loop.monitor(newest[: len(self.ids)]))
                self._newest = {group: self._newest[group] for group in self._lost}

    def _show(self, group: int, step: int) -> None:
        """Tell progress how far a group has come; a block that is made twice counts once. Called by any thread."""
        with self._lock:
            amount, self._shown[group] = step - self._shown[group], max(step, self._shown[group])
        if amount > 0:
            self.loop.progress.advance(amount)

    def _look_around(self) -> None:
        """Between blocks: save if it is time, and stop if somebody asked for it."""
        run, watch = self.loop.run, self.loop.watch
        try:
            run.check()
            if watch.stopping or run.due(self.ids.tolist()):
                run.save(self._records("state"))
            if watch.stopping:
                run.settle()
        except StorageError as error:
            raise self._located(error) from error
        if watch.stopping:
            raise Stopped

    def _located(self, error: StorageError) -> StorageError:
        """Say of a disk's failure when and where it came, and how to go on."""
        behind = int(np.argmin(self.steps))
        block = self._name(behind, f"step {self.steps[behind]:,}")
        return StorageError(
            error.errno,
            f"{error.strerror or error} It came up on host {socket.gethostname()} when all chains were at least at "
            f"{block}. What was saved before is whole: when the disk is back, `mile resume` goes on from there.",
        )

    def _finish(self, phase: Phase) -> None:
        """Draw the phase's conclusions and go to the next one."""
        n_chains = len(self.ids)
        ends = self._each(
            blocks.finish_group, [(phase, self.loop.backend.program, carry) for carry in self.carries], "finish"
        )
        self.carries = [end.carry for end in ends]
        self.status = np.where(self.status == Status.OK, _join([end.status for end in ends], n_chains), self.status)
        self.info[phase.name] = _join([end.report for end in ends], n_chains)
        if not self.last:
            joined = [jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *part) for part in self.parts]
            self.history[phase.name] = _join(joined, n_chains)
        self.index += 1
        self._open_phase()
        if self.finished:
            self.loop.run.save(self._records("final"))

    def _name(self, group: int, what: str) -> str:
        """Return what people call a block of work."""
        chains = [int(self.ids[chain]) for chain in self._real(group)]
        who = f"chain {chains[0]}" if len(chains) == 1 else f"chains {chains[0]} to {chains[-1]}"
        return f"{who}, {self.sampler.phases[self.index].name}, {what}"

    def _streams(self) -> list[blocks.Streams]:
        stage = np.uint32(Stage.SAMPLE + self.index)
        return [blocks.Streams(np.uint32(self.seed), stage, self.ids[group]) for group in self.groups]

    def _real(self, group: int) -> list[int]:
        """Return the chains of a group without its padding."""
        width = len(self.groups[group])
        return list(range(group * width, min((group + 1) * width, len(self.ids))))

    # -- to and from checkpoints

    def _records(self, kind: str) -> dict[tuple[int, str], Record]:
        """Return what each chain needs to go on; arrays are copied, because the programs reuse their memory."""
        if isinstance(self.loop.run, Unsaved):
            return {}
        stage = "finished" if self.finished else self.sampler.phases[self.index].name
        found = {}
        for group, step in enumerate(self.steps):
            leaves = [] if self.finished else [np.asarray(leaf) for leaf in jax.tree.leaves(self.carries[group])]
            partial_records = [
                np.concatenate(parts, axis=1)
                for parts in zip(*(jax.tree.leaves(part) for part in self.parts[group]), strict=True)
            ]
            for row, chain in enumerate(self._real(group)):
                arrays = {"status": np.asarray(self.status[chain], np.int32)}
                arrays |= {f"carry.{name}": _trimmed(leaf[row]) for name, leaf in enumerate(leaves)}
                arrays |= {f"record.{name}": leaf[row] for name, leaf in enumerate(partial_records)}
                if self.last:
                    arrays |= {f"draw.{name}": leaf for name, leaf in enumerate(self.draws.pending(chain))}
                for phase, report in self.info.items():
                    arrays |= {f"info.{phase}.{name}": np.asarray(value[chain]) for name, value in report.items()}
                for phase, history in self.history.items():
                    fields = zip(history._fields, history, strict=True)
                    arrays |= {f"history.{phase}.{name}": leaf[chain] for name, leaf in fields}
                found[int(self.ids[chain]), kind] = Record(stage, step, arrays, self.draws.count(chain))
        return found

    def restore(self) -> None:
        """Go to where the last checkpoint was, if there is one."""
        run, ids = self.loop.run, self.ids.tolist()
        records = [run.load(chain, "final") or run.load(chain, "state") for chain in ids]
        names = [phase.name for phase in self.sampler.phases]
        if any(record is None or record.stage not in [*names, "finished"] for record in records):
            return
        kept: list[Record] = [record for record in records if record is not None]
        stages = {record.stage for record in kept}
        if len(stages) > 1:
            raise CorruptFileError(f"The chains of this run were not saved together: {sorted(stages)}.")
        stage = stages.pop()
        target_index = len(names) if stage == "finished" else names.index(stage)
        while self.index < target_index:
            self._recall_phase(kept)
        self.steps = [kept[group * len(chains)].step for group, chains in enumerate(self.groups)]
        self.status = np.array([int(record.arrays["status"]) for record in kept])
        if not self.finished:
            self._recall_state(kept)

    def _recall_phase(self, records: list[Record]) -> None:
        """Take what a phase that had ended left behind, and the shape of its last carry."""
        phase, carry = self.sampler.phases[self.index], self._carry_shape()
        end = jax.eval_shape(partial(blocks.finish, program=self.loop.backend.program), phase, carries=carry)
        self.info[phase.name] = {
            name: np.stack([record.arrays[f"info.{phase.name}.{name}"] for record in records]) for name in end.report
        }
        if not self.last:
            shape = self._record_shape(carry)
            self.history[phase.name] = _recall(
                records, [f"history.{phase.name}.{name}" for name in shape._fields], shape
            )
        self.carries = [end.carry for _ in self.groups]
        self.index += 1

    def _recall_state(self, records: list[Record]) -> None:
        """Take the carries and unfinished records of the phase under way."""
        carry = self._carry_shape()
        for number, group in enumerate(self.groups):
            members = [records[chain] for chain in group]
            self.carries[number] = _recall(members, _numbered("carry", carry), carry)
            if self.last:
                for chain in self._real(number):
                    pending = [records[chain].arrays[f"draw.{name}"] for name in range(3)]
                    self.draws.restore(chain, records[chain].n_draws, pending)
            elif self.steps[number]:
                shape = self._record_shape(carry)
                self.parts[number] = [_recall(members, _numbered("record", shape), shape)]
        self.begun = True

    def _carry_shape(self) -> Any:
        phase, target = self.sampler.phases[self.index], self.loop.target
        begin = partial(blocks.begin, program=self.loop.backend.program)
        return jax.eval_shape(begin, phase, streams=self._streams()[0], carries=self.carries[0], target=target)

    def _record_shape(self, carry: Any) -> Any:
        phase, program = self.sampler.phases[self.index], self.loop.backend.program
        return blocks.record_shapes(phase, self._streams()[0], carry, program, self.loop.target)


def _numbered(name: str, tree: Any) -> list[str]:
    return [f"{name}.{number}" for number in range(len(jax.tree.leaves(tree)))]


def _recall(records: list[Record], names: list[str], shapes: Any) -> Any:
    """Put the leaves of a tree together again, chains along the first axis."""
    leaves, structure = jax.tree.flatten(shapes)
    found = []
    for name, shape in zip(names, leaves, strict=True):
        stored = [record.arrays[name] for record in records]
        is_carry = name.startswith("carry.")  # its buffers were trimmed; records are as long as the run came
        found.append(np.stack([_filled(leaf, shape.shape[1:]) for leaf in stored] if is_carry else stored))
    return jax.tree.unflatten(structure, found)


def _trimmed(leaf: np.ndarray) -> np.ndarray:
    """Leave out the zeros at the end of a buffer that is not full yet: most of a checkpoint of phase III."""
    if leaf.ndim < 2:
        return leaf.copy()
    rows = np.ascontiguousarray(leaf).view(np.uint8)  # bits: a negative zero is a number like others
    used = np.flatnonzero(rows.any(axis=tuple(range(1, leaf.ndim))))
    return leaf[: used[-1] + 1 if len(used) else 0].copy()


def _filled(stored: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Undo `_trimmed`."""
    if stored.shape == shape:
        return stored
    full = np.zeros(shape, stored.dtype)
    full[: len(stored)] = stored
    return full


def _blank(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return numbers that say nothing: NaN, and zero where there is none."""
    return np.full(shape, np.nan if np.issubdtype(dtype, np.floating) else 0, dtype)


def _join(parts: list[Any], n_chains: int) -> Any:
    """Put groups together along the chain axis, without the padding at the end."""
    return jax.tree.map(lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves])[:n_chains], *parts)
