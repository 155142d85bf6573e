"""The way of all chains through a sampler's phases, block by block, and its checkpoints."""

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from mile import blocks
from mile._errors import CorruptFileError, Status
from mile._progress import Progress
from mile._random import Stage
from mile._types import Target
from mile._watch import Stopped, Watch
from mile.execution import InProcess
from mile.forecast import Forecaster
from mile.samplers import Sampler
from mile.samplers.base import Phase, spacing
from mile.storage import Record, Run, Unsaved

# A block should last long enough to make its overhead vanish and short enough to watch and to interrupt.
_BLOCK_SECONDS = 1.0
_FIRST_BLOCK_STEPS = 8
_FEWEST_DRAWS = 10  # of each chain; a time limit does not cut deeper


Monitor = Callable[[np.ndarray], str]  # is shown the newest draw of each chain, says something about them


class Loop(NamedTuple):
    """What stays the same from phase to phase."""

    backend: InProcess
    progress: Progress
    target: Target
    block_steps: int | None
    run: Run | Unsaved
    watch: Watch
    monitor: Monitor | None = None


@dataclass
class Journey:
    """Where all chains are: they go through the phases together, a block at a time.

    This is what a checkpoint holds: phase, step, the carries, and what the phases so far have left.
    """

    sampler: Sampler
    loop: Loop
    seed: int
    ids: np.ndarray
    groups: list[list[int]]
    draws: Any
    carries: list[Any]
    index: int = 0  # of the phase under way
    step: int = 0
    begun: bool = False  # whether the phase under way has been initialized
    status: np.ndarray = field(init=False)
    info: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    history: dict[str, Any] = field(default_factory=dict)
    parts: list[list[Any]] = field(init=False)  # per group, records of a tuning phase under way

    def __post_init__(self) -> None:
        self.status = np.full(len(self.ids), Status.OK)
        self.parts = [[] for _ in self.groups]

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
        loop, phase, streams = self.loop, self.sampler.phases[self.index], self._streams()
        loop.progress.start(phase.name, phase.n_steps * len(streams), n_chains=len(self.ids))
        if not self.begun:
            self._begin(phase, streams)
            if self.last:
                loop.run.save(self._records("start") | self._records("state"))
        loop.progress.advance(self.step * len(streams))
        capacity = blocks.buffer_capacity(self._record_shape(self.carries[0]))
        thinning = spacing(phase.n_steps, phase.n_records)
        first = phase.n_steps - thinning * phase.n_records  # the steps before it are not recorded
        length = loop.block_steps or _FIRST_BLOCK_STEPS
        while self.step < phase.n_steps:
            block = blocks.Block(self.step, min(self.step + length, phase.n_steps), first, thinning)
            block = block._replace(stop=min(block.stop, first + (block.base + capacity) * thinning))
            seconds = self._advance(phase, capacity, block, streams)
            forecast.note(self.index, block.stop, block.stop - block.start, seconds, loop.progress)
            if loop.block_steps is None:
                length = _next_length(length, seconds)
            self._look_around()
            n_draws = max(0, block.stop - first) // thinning
            # Another block would take as long again.
            if self.last and loop.watch.passed(within=seconds) and _FEWEST_DRAWS <= n_draws < phase.n_records:
                phase = dataclasses.replace(phase, n_steps=self.step, n_records=n_draws)
                self.draws.cut(n_draws)
        self._finish(phase)
        loop.progress.finish()

    def rehearse(self, forecast: Forecaster) -> None:
        """Make the first steps, in blocks that double, until one has lasted long enough to be timed."""
        phase, streams = self.sampler.phases[0], self._streams()
        self._begin(phase, streams)
        capacity, length = blocks.buffer_capacity(self._record_shape(self.carries[0])), 1  # a step may take seconds
        while forecast.seconds_per_step is None:
            block = blocks.Block(self.step, self.step + length, self.step + length, 1)  # records nothing
            seconds = self._advance(phase, capacity, block, streams)
            forecast.note(0, 0, length, seconds, None)
            length *= 2

    def _begin(self, phase: Phase, streams: list[blocks.Streams]) -> None:
        backend, target = self.loop.backend, self.loop.target
        tasks = list(zip(streams, self.carries, strict=True))
        self.carries = backend.map(lambda task: blocks.begin(phase, backend, *task, target), tasks)
        self.begun = True

    def _advance(self, phase: Phase, capacity: int, block: blocks.Block, streams: list[blocks.Streams]) -> float:
        """Make the steps of one block in all groups, keep their records, and return the seconds it took."""
        loop, backend, began = self.loop, self.loop.backend, time.perf_counter()

        def advance(task: tuple[blocks.Streams, Any]) -> tuple[Any, Any]:
            carry, records = blocks.advance(phase, capacity, backend, (*block, block.base), *task, loop.target)
            records = jax.tree.map(lambda leaf: np.array(np.asarray(leaf)[:, : block.n_complete]), records)
            loop.progress.advance(block.stop - block.start)
            return carry, records

        advanced = backend.map(advance, list(zip(streams, self.carries, strict=True)))
        seconds = time.perf_counter() - began
        self.carries = [carry for carry, _ in advanced]
        if self.last and loop.monitor and block.n_complete:
            newest = np.concatenate([records.position[:, -1] for _, records in advanced])[: len(self.ids)]
            loop.progress.note(loop.monitor(newest))
        for group, (_, records) in enumerate(advanced):
            if not self.last:
                self.parts[group].append(records)
                continue
            for row, chain in enumerate(self._real(group)):
                self.draws.write(chain, [leaf[row] for leaf in records])
        self.step = block.stop
        return seconds

    def _look_around(self) -> None:
        """Between blocks: save if it is time, and stop if somebody asked for it."""
        run, watch = self.loop.run, self.loop.watch
        run.check()
        if watch.stopping or run.due(self.ids.tolist()):
            run.save(self._records("state"))
        if watch.stopping:
            run.settle()
            raise Stopped

    def _finish(self, phase: Phase) -> None:
        backend, n_chains = self.loop.backend, len(self.ids)
        ends = backend.map(lambda carry: blocks.finish(phase, backend, carry), self.carries)
        self.carries = [end.carry for end in ends]
        self.status = np.where(self.status == Status.OK, _join([end.status for end in ends], n_chains), self.status)
        self.info[phase.name] = _join([end.report for end in ends], n_chains)
        if not self.last:
            joined = [jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *part) for part in self.parts]
            self.history[phase.name] = _join(joined, n_chains)
        self.index, self.step, self.begun = self.index + 1, 0, False
        self.parts = [[] for _ in self.groups]
        if self.finished:
            self.loop.run.save(self._records("final"))

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
        for group in range(len(self.groups)):
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
                found[int(self.ids[chain]), kind] = Record(stage, self.step, arrays, self.draws.count(chain))
        return found

    def restore(self) -> None:
        """Go to where the last checkpoint was, if there is one."""
        run, ids = self.loop.run, self.ids.tolist()
        records = [run.load(chain, "final") or run.load(chain, "state") for chain in ids]
        names = [phase.name for phase in self.sampler.phases]
        if any(record is None or record.stage not in [*names, "finished"] for record in records):
            return
        kept: list[Record] = [record for record in records if record is not None]
        stages = {(record.stage, record.step) for record in kept}
        if len(stages) > 1:
            raise CorruptFileError(f"The chains of this run were not saved together: {sorted(stages)}.")
        stage, step = stages.pop()
        target_index = len(names) if stage == "finished" else names.index(stage)
        while self.index < target_index:
            self._recall_phase(kept)
        self.step = step
        self.status = np.array([int(record.arrays["status"]) for record in kept])
        if not self.finished:
            self._recall_state(kept)

    def _recall_phase(self, records: list[Record]) -> None:
        """Take what a phase that had ended left behind, and the shape of its last carry."""
        phase, carry = self.sampler.phases[self.index], self._carry_shape()
        end = jax.eval_shape(partial(blocks.finish, backend=self.loop.backend), phase, carries=carry)
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
            elif self.step:
                shape = self._record_shape(carry)
                self.parts[number] = [_recall(members, _numbered("record", shape), shape)]
        self.begun = True

    def _carry_shape(self) -> Any:
        phase, backend, target = self.sampler.phases[self.index], self.loop.backend, self.loop.target
        begin = partial(blocks.begin, backend=backend)
        return jax.eval_shape(begin, phase, streams=self._streams()[0], carries=self.carries[0], target=target)

    def _record_shape(self, carry: Any) -> Any:
        phase, backend = self.sampler.phases[self.index], self.loop.backend
        return blocks.record_shapes(phase, self._streams()[0], carry, backend, self.loop.target)


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


def _next_length(length: int, seconds: float) -> int:
    if seconds < 0.5 * _BLOCK_SECONDS:
        return 2 * length
    return max(1, length // 2) if seconds > 2.0 * _BLOCK_SECONDS else length


def _join(parts: list[Any], n_chains: int) -> Any:
    """Put groups together along the chain axis, without the padding at the end."""
    return jax.tree.map(lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves])[:n_chains], *parts)
