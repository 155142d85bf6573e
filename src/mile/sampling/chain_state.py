"""The state of all chains between two blocks: what a checkpoint holds, and how to restore one."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

import jax
import numpy as np

from mile._errors import CorruptFileError, Status
from mile._random import Stage as RandomStage
from mile._schema import quote, require
from mile._types import PyTree, Target
from mile.execution import Program
from mile.samplers import Finished, Sampler
from mile.samplers.base import Phase
from mile.sampling import programs
from mile.sampling.record_checks import Stage, check_progress, check_records
from mile.storage import FINISHED, TRAINING, Record, Run, Unsaved

Tree = TypeVar("Tree")


class DrawStore(Protocol):
    """Takes the draws of all chains, in memory or in files."""

    @property
    def n_bytes(self) -> tuple[int, int]:
        """What they take in memory and on disk."""
        ...

    def write(self, index: int, draws: Sequence[np.ndarray]) -> None:
        """Append draws of one chain: positions, log densities, energy changes."""
        ...

    def count(self, index: int) -> int:
        """Return how many draws of a chain need not be in a checkpoint, because they are stored already."""
        ...

    def pending(self, index: int) -> list[np.ndarray]:
        """Return the draws of a chain that a checkpoint must hold."""
        ...

    def restore(self, index: int, count: int, pending: Sequence[np.ndarray]) -> None:
        """Restore what a checkpoint holds of a chain."""
        ...

    def positions(self, index: int, start: int, stop: int) -> np.ndarray:
        """Return positions of some of the draws of a chain that there are."""
        ...

    def cut(self, n_draws: int) -> None:
        """Expect at most this number of draws of each chain."""
        ...

    def result(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return positions, log densities and energy changes of all draws."""
        ...


@dataclass
class ChainState:
    """Phase, steps and carries of all chains, and the results of earlier phases. A group of chains moves together."""

    sampler: Sampler
    target: Target
    program: Program
    seed: int
    ids: np.ndarray
    groups: list[list[int]]
    draws: DrawStore
    carries: list[PyTree]
    index: int = 0  # of the current phase
    begun: bool = False  # whether the current phase has been initialized
    steps: list[int] = field(init=False)  # that each group has made
    status: np.ndarray = field(init=False)
    non_finite: np.ndarray = field(init=False)  # whether a chain has a draw that is not finite
    info: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    history: dict[str, NamedTuple] = field(default_factory=dict)
    parts: list[list[PyTree]] = field(init=False)  # per group, records of the current tuning phase

    def __post_init__(self) -> None:
        self.status = np.full(len(self.ids), Status.OK)
        self.non_finite = np.zeros(len(self.ids), bool)
        self.open_phase()

    def open_phase(self) -> None:
        """Set everything to the first step of a phase."""
        self.steps, self.begun = [0] * len(self.groups), False
        self.parts = [[] for _ in self.groups]

    @property
    def phase(self) -> Phase:
        """The current phase."""
        return self.sampler.phases[self.index]

    @property
    def finished(self) -> bool:
        """Whether all phases are over."""
        return self.index == len(self.sampler.phases)

    @property
    def last(self) -> bool:
        """Whether this is the phase whose records are the draws."""
        return self.index == len(self.sampler.phases) - 1

    @property
    def lost(self) -> list[int]:
        """Groups that no worker could compute."""
        return [group for group in range(len(self.groups)) if self.status[self.real(group)[0]] == Status.LOST]

    def real(self, group: int) -> list[int]:
        """Return the chains of a group without its padding."""
        width = len(self.groups[group])
        return list(range(group * width, min((group + 1) * width, len(self.ids))))

    def streams(self) -> list[programs.Streams]:
        """Return the random streams of each group in this phase."""
        stage = np.uint32(RandomStage.SAMPLE + self.index)
        return [programs.Streams(np.uint32(self.seed), stage, self.ids[group]) for group in self.groups]

    def name(self, group: int, what: str) -> str:
        """Return the name of a block in messages."""
        chains = [int(self.ids[chain]) for chain in self.real(group)]
        who = f"chain {chains[0]}" if len(chains) == 1 else f"chains {chains[0]} to {chains[-1]}"
        return f"{who}, {self.phase.name}, {what}"

    def record_shape(self, carry: PyTree) -> PyTree:
        """Return shapes of what a group records at a time."""
        return programs.record_shapes(self.phase, self.streams()[0], carry, self.program, self.target)

    def carry_shape(self) -> PyTree:
        """Return the shapes of the current phase's carry, given the carry of the phase before."""
        begin = partial(programs.begin, program=self.program)
        streams = self.streams()[0]
        return jax.eval_shape(begin, self.phase, streams=streams, carries=self.carries[0], target=self.target)

    def end_shape(self, carry: PyTree) -> PyTree:
        """Return the shapes of the current phase's results."""
        return jax.eval_shape(partial(programs.finish, program=self.program), self.phase, carries=carry)

    def close_phase(self, phase: Phase, ends: list[Finished]) -> None:
        """Keep the results of a phase in each group, and begin the next phase."""
        n_chains = len(self.ids)
        self.carries = [end.carry for end in ends]
        found = _join([end.status for end in ends], n_chains)
        found = np.where((found == Status.OK) & self.non_finite, Status.NON_FINITE, found)
        self.status = np.where(self.status == Status.OK, found, self.status)
        self.info[phase.name] = _join([end.report for end in ends], n_chains)
        if not self.last:
            joined = [jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *part) for part in self.parts]
            self.history[phase.name] = _join(joined, n_chains)
        self.index += 1
        self.open_phase()

    # -- to and from checkpoints

    def records(self, kind: str) -> dict[tuple[int, str], Record]:
        """Return a checkpoint of each chain. Arrays are copied, because programs reuse their memory."""
        stage = FINISHED if self.finished else self.phase.name
        found = {}
        for group, step in enumerate(self.steps):
            leaves = [] if self.finished else [np.asarray(leaf) for leaf in jax.tree.leaves(self.carries[group])]
            partial_records = [
                np.concatenate(parts, axis=1)
                for parts in zip(*(jax.tree.leaves(part) for part in self.parts[group]), strict=True)
            ]
            for row, chain in enumerate(self.real(group)):
                arrays = {"status": np.asarray(self.status[chain], np.int32)}
                arrays |= {"non_finite": np.asarray(True)} if self.non_finite[chain] else {}
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

    def restore(self, run: Run | Unsaved) -> None:
        """Restore the last checkpoint of a run, if there is one.

        Raises
        ------
        CorruptFileError
            If its chains are in different phases.
        UntrustedFileError
            If a field of a record is not what this sampler writes.
        """
        records = [run.load(chain, "final") or run.load(chain, "state") for chain in self.ids.tolist()]
        names = [phase.name for phase in self.sampler.phases]
        for record in (record for record in records if record is not None):
            is_known = record.stage in (TRAINING, FINISHED, *names)
            require(is_known, f"stage must be one of {names}; got {quote(record.stage)}.", record.source)
        kept = [record for record in records if record is not None and record.stage != TRAINING]
        if not kept:
            return
        stage = kept[0].stage
        for chain, record in zip(self.ids.tolist(), records, strict=True):
            found = TRAINING if record is None else record.stage
            if found != stage:
                where = f"chain {chain}" if record is None else record.source
                raise CorruptFileError(
                    "The chains of this run were not saved together: "
                    f"stage is {stage!r} in {kept[0].source}, but {found!r} in {where}."
                )
        check_progress(kept, self.sampler.phases, run.layout)
        target_index = len(names) if stage == FINISHED else names.index(stage)
        shapes = self._stages_to(target_index)
        check_records(kept, shapes, run.layout)
        for group, chains in enumerate(self.groups):
            steps = {kept[chain].step for chain in self.real(group)}
            require(len(steps) == 1, "the chains of one group must have made the same steps.", kept[chains[0]].source)
        while self.index < target_index:
            self._recall_phase(kept, shapes[self.index])
        self.steps = [kept[group * len(chains)].step for group, chains in enumerate(self.groups)]
        self.status = np.array([int(record.arrays["status"]) for record in kept])
        self.non_finite = np.array(["non_finite" in record.arrays for record in kept])
        if not self.finished:
            self._recall_state(kept, shapes[-1])

    def _stages_to(self, index: int) -> list[Stage]:
        """Return the shapes of the phases before the one at `index`, which have ended, and of that one if any."""
        found: list[Stage] = []
        while len(found) < index:
            carry = self.carry_shape()
            end, record = self.end_shape(carry), None if self.last else self.record_shape(carry)
            found.append(Stage(self.phase, carry, record, end.report))
            self.carries, self.index = [end.carry for _ in self.groups], self.index + 1
        if not self.finished:
            carry = self.carry_shape()
            found.append(Stage(self.phase, carry, None if self.last else self.record_shape(carry), None))
        self.index = 0
        return found

    def _recall_phase(self, records: list[Record], stage: Stage) -> None:
        """Restore the results of a finished phase."""
        phase = stage.phase
        self.info[phase.name] = {
            name: np.stack([record.arrays[f"info.{phase.name}.{name}"] for record in records])
            for name in stage.report or {}
        }
        if stage.record is not None:
            names = [f"history.{phase.name}.{name}" for name in stage.record._fields]
            self.history[phase.name] = _recall(records, names, stage.record)
        self.index += 1

    def _recall_state(self, records: list[Record], stage: Stage) -> None:
        """Restore the carries and unfinished records of the current phase."""
        for number, group in enumerate(self.groups):
            members = [records[chain] for chain in group]
            self.carries[number] = _recall(members, _numbered("carry", stage.carry), stage.carry)
            if stage.record is None:
                for chain in self.real(number):
                    pending = [records[chain].arrays[f"draw.{name}"] for name in range(3)]
                    self.draws.restore(chain, records[chain].n_draws, pending)
            elif self.steps[number]:
                self.parts[number] = [_recall(members, _numbered("record", stage.record), stage.record)]
        self.begun = True


def _numbered(name: str, tree: PyTree) -> list[str]:
    return [f"{name}.{number}" for number in range(len(jax.tree.leaves(tree)))]


def _recall(records: list[Record], names: list[str], shapes: Tree) -> Tree:
    """Rebuild a tree from its stored leaves, chains along the first axis."""
    leaves, structure = jax.tree.flatten(shapes)
    found = []
    for name, shape in zip(names, leaves, strict=True):
        stored = [record.arrays[name] for record in records]
        is_carry = name.startswith("carry.")  # its buffers were trimmed; records are as long as the run came
        found.append(np.stack([_filled(leaf, shape.shape[1:]) for leaf in stored] if is_carry else stored))
    return jax.tree.unflatten(structure, found)


def _trimmed(leaf: np.ndarray) -> np.ndarray:
    """Leave out the zeros at the end of a buffer that is not full yet. They would be most of a checkpoint."""
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


def _join(parts: Sequence[PyTree], n_chains: int) -> PyTree:
    """Put groups together along the chain axis, without the padding at the end."""
    return jax.tree.map(lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves])[:n_chains], *parts)
