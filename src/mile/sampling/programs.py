"""The compiled programs of a phase: begin, advance by a block of steps, finish; each for one group of chains.

`begin_group`, `advance_group` and `finish_group` are the tasks that workers run, here or on another machine.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from mile._random import stream
from mile._types import Key, PyTree, Target
from mile.execution import Program
from mile.samplers import Finished
from mile.samplers.base import Phase

_BUFFER_RECORDS = 128
_BUFFER_FLOATS = 1 << 21
_FIRST_PART = 8  # steps
_PART_SECONDS = 1.0  # between two reports of one task

Result = TypeVar("Result")


class Streams(NamedTuple):
    """Names of the random streams of a group in one phase; compiled code turns them into keys."""

    seed: np.uint32 | Array
    stage: np.uint32 | Array
    chains: Int[np.ndarray, " chain"]


class Advanced(NamedTuple):
    """The result of a block."""

    carries: PyTree
    records: PyTree  # per chain, those that ended in the block
    seconds_per_step: float  # at the end of the block, where nothing is compiled any more


class Block(NamedTuple):
    """Steps to make, and where their records go: record r ends at step first + (r + 1) * thinning."""

    start: int
    stop: int
    first: int
    thinning: int

    @property
    def base(self) -> int:
        """The first record that may end in this block."""
        return max(0, self.start - self.first) // self.thinning

    @property
    def n_complete(self) -> int:
        """How many records end in this block."""
        return max(0, self.stop - self.first) // self.thinning - self.base


# Everything that a phase holds as numbers is an argument of these programs: budgets, step sizes, seeds, ids.


def _over_group(
    function: Callable[[Key, PyTree, Target], Result],
    program: Program,
    streams: Streams,
    carries: PyTree,
    target: Target,
) -> Result:
    """Apply a function of one chain's key, carry and target to a group."""

    def one_chain(chain: Array, carry: PyTree) -> Result:
        return function(stream(streams.seed, streams.stage, chain), carry, target.for_chain(chain))

    return program.over_group(one_chain)(streams.chains, carries)


@partial(jax.jit, inline=True)
def _step(phase: Phase, key: Array, carry: PyTree, target: Target) -> tuple[PyTree, PyTree]:
    # Inlined, so it leaves no trace in the programs; but its own tracing, the slow part, happens only once.
    return phase.step(key, carry, target)


@partial(jax.jit, static_argnames="program")
def begin(phase: Phase, program: Program, streams: Streams, carries: PyTree, target: Target) -> PyTree:
    """Turn what the previous phase left into this one's carry."""

    # Steps use the numbers 0..n-1 of the phase's stream; the start takes one that no step can have.
    def start(key: Key, carry: PyTree, target: Target) -> PyTree:
        return phase.init(jax.random.fold_in(key, 2**32 - 1), carry, target)

    started = _over_group(start, program, streams, carries, target)
    # Strong types, as numbers read from a file have them: a resumed run uses the same programs.
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype), started)


@partial(jax.jit, static_argnames=("capacity", "program"), donate_argnames="carries")
def advance(
    phase: Phase, capacity: int, program: Program, bounds: tuple, streams: Streams, carries: PyTree, target: Target
) -> tuple[PyTree, PyTree]:
    """Make the steps of one block.

    Bounds are arguments, so one program serves blocks of any length, and a loop of unknown length is never
    unrolled: that is why the length cannot change a bit.
    """
    start, stop, first, thinning, base = bounds

    def one_chain(key: Array, carry: PyTree, target: Target) -> tuple[PyTree, PyTree]:
        record = jax.eval_shape(_step, phase, key, carry, target)[1]
        buffer = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), record)

        def body(index: Array, loop_carry: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
            carry, buffer = loop_carry
            carry, record = _step(phase, jax.random.fold_in(key, index), carry, target)
            # Every step writes to its record's slot; the last one of a window stays.
            slot = jnp.where(index < first, capacity, (index - first) // thinning - base)
            buffer = jax.tree.map(lambda old, new: old.at[slot].set(new, mode="drop"), buffer, record)
            return carry, buffer

        return jax.lax.fori_loop(start, stop, body, (carry, buffer))

    return _over_group(one_chain, program, streams, carries, target)


@partial(jax.jit, static_argnames="program")
def finish(phase: Phase, program: Program, carries: PyTree) -> Finished:
    """Finish a phase."""
    return program.over_group(phase.finish)(carries)


def begin_group(
    phase: Phase, program: Program, streams: Streams, carries: PyTree, target: Target, report: Callable[[int], None]
) -> PyTree:
    """Begin a phase; a task of a worker."""
    return jax.block_until_ready(begin(phase, program, streams, carries, target))


def advance_group(
    phase: Phase,
    program: Program,
    capacity: int,
    block: Block,
    in_parts: bool,
    streams: Streams,
    carries: PyTree,
    target: Target,
    report: Callable[[int], None],
) -> Advanced:
    """Make the steps of a block, as many at a time as records fit the buffer; a task of a worker.

    `in_parts` makes a report every second or so.
    """
    kept, start, length, seconds_per_step = [], block.start, _FIRST_PART, 0.0
    while start < block.stop:
        stop = min(start + length, block.stop) if in_parts else block.stop
        part = block._replace(start=start, stop=stop)
        part = part._replace(stop=min(stop, part.first + (part.base + capacity) * part.thinning))
        began = time.perf_counter()
        carries, records = advance(phase, capacity, program, (*part, part.base), streams, carries, target)
        kept.append(jax.tree.map(lambda leaf, count=part.n_complete: np.array(np.asarray(leaf)[:, :count]), records))
        seconds = time.perf_counter() - began
        seconds_per_step, start = seconds / (part.stop - part.start), part.stop
        if seconds < 0.5 * _PART_SECONDS:
            length *= 2
        report(start)
    records = kept[0] if len(kept) == 1 else jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *kept)
    return Advanced(carries, records, seconds_per_step)


def finish_group(
    phase: Phase, program: Program, carries: PyTree, target: Target, report: Callable[[int], None]
) -> PyTree:
    """Finish a phase; a task of a worker.

    Each device's chains by the program of one device: XLA rounds long sums otherwise when it compiles for several, and
    this is done once.
    """
    alone = program.alone
    if alone is program:
        return jax.block_until_ready(finish(phase, program, carries))
    carries = jax.tree.map(np.asarray, carries)
    ends = [
        finish(phase, alone, jax.tree.map(lambda leaf, row=row: leaf[row : row + alone.width], carries))
        for row in range(0, len(jax.tree.leaves(carries)[0]), alone.width)
    ]
    return jax.tree.map(lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves]), *ends)


def record_shapes(phase: Phase, streams: Streams, carries: PyTree, program: Program, target: Target) -> PyTree:
    """Return the shapes of what one step of a group records."""

    def records(phase: Phase, streams: Streams, carries: PyTree, target: Target) -> PyTree:
        def record(key: Key, carry: PyTree, target: Target) -> PyTree:
            return _step(phase, key, carry, target)[1]

        return _over_group(record, program, streams, carries, target)

    return jax.eval_shape(records, phase, streams, carries, target)


def buffer_capacity(records: PyTree) -> int:
    """Return how many records fit the buffer of one block; budgets do not matter, so that they share a program."""
    floats = sum(leaf.size for leaf in jax.tree.leaves(records))
    return max(1, min(_BUFFER_RECORDS, _BUFFER_FLOATS // floats))
