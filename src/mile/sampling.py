"""The one sampling loop: all chains advance through a sampler's phases in compiled blocks driven from the host."""

import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from mile._compilation import use_compilation_cache
from mile._errors import FitFailedError, FitWarning, Status
from mile._progress import Bars, Progress, Silent
from mile._random import Stage, draw_seed, stream
from mile._types import Target
from mile.execution import InProcess
from mile.posterior import FunctionTarget
from mile.samplers import Finished, Sampler, Tuned, configure
from mile.samplers.base import Phase, spacing

# A block should last long enough to make its overhead vanish and short enough to watch and to interrupt.
_BLOCK_SECONDS = 1.0
_FIRST_BLOCK_STEPS = 64
_BUFFER_RECORDS = 128
_BUFFER_FLOATS = 1 << 21


class Chains(NamedTuple):
    """What a run of K chains gives. Draws of a chain are finite if it started so; use them if its `status` is OK.

    Attributes
    ----------
    draws, logdensity, energy_change
        Kept positions (K, S, d), and the log density and the energy change of their steps (K, S).
    status
        One `Status` per chain.
    tuned
        Step size and L per chain.
    info
        Named numbers per phase and chain, such as the realized energy variance.
    history
        Records of the tuning phases: per phase a NamedTuple of arrays (K, record).
    gradient_evaluations
        Per chain.
    seed
        Reproduces the run.
    """

    draws: Float[np.ndarray, "chain draw d"]
    logdensity: Float[np.ndarray, "chain draw"]
    energy_change: Float[np.ndarray, "chain draw"]
    status: tuple[Status, ...]
    tuned: Tuned
    info: dict[str, dict[str, Float[np.ndarray, " chain"]]]
    history: dict[str, Any]
    gradient_evaluations: Int[np.ndarray, " chain"]
    seed: int

    @property
    def ok(self) -> np.ndarray:
        """Mask of the chains that finished without trouble."""
        return np.array([status == Status.OK for status in self.status])


def sample(
    logdensity: Callable[[Array], Array],
    positions: Float[Array, "chain d"] | np.ndarray,
    sampler: str | Sampler = "mile",
    preset: str = "paper",
    random_state: int | None = None,
    *,
    warmup_steps: int | None = None,
    sampling_steps: int | None = None,
    n_draws: int | None = None,
    step_size: float | None = None,
    verbose: int = 0,
) -> Chains:
    """Sample any JAX log density with one chain from each starting point.

    Parameters
    ----------
    logdensity
        Pure JAX function from a vector (d,) to an unnormalized log density.
    positions
        Starting points, array (K, d) with d of at least 2.
    sampler, preset, warmup_steps, sampling_steps, n_draws
        The method and its budgets per chain; None takes the preset's.
    random_state
        Seed; None draws one and keeps it in the result.
    step_size
        First step size to try; None means a quarter of the root of d.
    verbose
        Above zero shows progress bars.

    Returns
    -------
    Chains

    Raises
    ------
    ValueError
        If an argument is impossible.
    FitFailedError
        If every chain failed.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, mile
    >>> result = mile.sample(lambda x: -0.5 * x @ x, np.zeros((2, 3)), preset="quick", random_state=0)
    >>> result.draws.shape
    (2, 200, 3)
    """
    positions = np.asarray(positions)
    if positions.ndim != 2 or positions.shape[0] < 1 or positions.shape[1] < 2:
        raise ValueError(f"positions must be an array (K, d) with K >= 1 and d >= 2; got shape {positions.shape}.")
    if not jnp.issubdtype(positions.dtype, jnp.floating):
        raise ValueError(f"positions must be floating-point numbers; got dtype {positions.dtype}.")
    if not callable(logdensity):
        raise ValueError(f"logdensity must be a function of one vector; got {logdensity!r}.")
    positions = positions.astype(jax.dtypes.canonicalize_dtype(positions.dtype), copy=False)
    value = jax.eval_shape(logdensity, jax.ShapeDtypeStruct(positions.shape[1:], positions.dtype))
    if getattr(value, "shape", None) != ():
        raise ValueError(f"logdensity must return one number; it returns {value}.")
    configured = configure(
        sampler, preset, warmup_steps=warmup_steps, sampling_steps=sampling_steps, n_draws=n_draws
    ).with_start(step_size if step_size is not None else 0.25 * float(np.sqrt(positions.shape[1])))
    seed = draw_seed(random_state)
    use_compilation_cache()
    target = FunctionTarget(logdensity)
    if verbose > 0:
        with Bars() as bars:
            chains = run_chains(configured, target, positions, seed=seed, progress=bars)
    else:
        chains = run_chains(configured, target, positions, seed=seed)
    failed = describe_failures(chains.status, range(len(chains.status)))
    if not chains.ok.any():
        raise FitFailedError(f"All chains failed. {failed}")
    if failed:
        warnings.warn(failed, FitWarning, stacklevel=2)
    return chains


def describe_failures(status: Iterable[Status], names: Iterable[int]) -> str:
    """Return one sentence per chain that failed, or nothing."""
    failures = [(name, code) for name, code in zip(names, status, strict=True) if code != Status.OK]
    return " ".join(f"Chain {name}: {code.sentence}." for name, code in failures)


def run_chains(
    sampler: Sampler,
    target: Target,
    positions: Float[Array, "chain d"] | np.ndarray,
    *,
    seed: int,
    chain_ids: Sequence[int] | None = None,
    backend: InProcess | None = None,
    progress: Progress | None = None,
    block_steps: int | None = None,
) -> Chains:
    """Run a sampler's phases from each position.

    `chain_ids` name the random streams (default 0..K-1). Neither the other chains, nor the backend's
    threads, nor `block_steps` (default: about a second's worth) changes a bit of a chain's draws. A chain
    that fails runs on to the end, because the budget is fixed; its status says what happened first.
    """
    positions = np.asarray(positions)  # indexing a JAX array would compile
    n_chains = len(positions)
    loop = _Loop(backend or InProcess(), progress or Silent(), target, block_steps)
    ids = np.asarray(range(n_chains) if chain_ids is None else chain_ids, np.uint32)
    groups = loop.backend.groups(range(n_chains))
    carries: list[Any] = [positions[group] for group in groups]
    status = np.full(n_chains, Status.OK)
    info, history = {}, {}
    for index, phase in enumerate(sampler.phases):
        streams = [_Streams(np.uint32(seed), np.uint32(Stage.SAMPLE + index), ids[group]) for group in groups]
        finished, records = _run_phase(phase, loop, streams, carries)
        carries = [end.carry for end in finished]
        status = np.where(status == Status.OK, _join([end.status for end in finished], n_chains), status)
        info[phase.name] = _join([end.report for end in finished], n_chains)
        history[phase.name] = _join(records, n_chains)
    draws = history.pop(sampler.phases[-1].name)
    last = info[sampler.phases[-1].name]
    return Chains(
        draws=draws.position,
        logdensity=draws.logdensity,
        energy_change=draws.energy_change,
        status=tuple(Status(code) for code in status),
        tuned=Tuned(last["step_size"], last["L"]),
        info=info,
        history=history,
        gradient_evaluations=np.full(n_chains, sampler.gradient_evaluations()),
        seed=seed,
    )


class _Loop(NamedTuple):
    """What stays the same from phase to phase."""

    backend: InProcess
    progress: Progress
    target: Target
    block_steps: int | None


class _Streams(NamedTuple):
    """Names of the random streams of a group in one phase; compiled code turns them into keys."""

    seed: Any
    stage: Any
    chains: Int[np.ndarray, " chain"]


class _Block(NamedTuple):
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


def _run_phase(
    phase: Phase, loop: _Loop, streams: list[_Streams], carries: list[Any]
) -> tuple[list[Finished], list[Any]]:
    """Run one phase on all groups; return how each finished and the records each kept."""
    backend = loop.backend
    loop.progress.start(phase.name, phase.n_steps * len(streams))
    carries = backend.map(
        lambda group: _begin(phase, backend, *group, loop.target), list(zip(streams, carries, strict=True))
    )
    capacity = _capacity(phase, streams[0], carries[0], loop)
    parts: list[list[Any]] = [[] for _ in streams]
    thinning = spacing(phase.n_steps, phase.n_records)
    first = phase.n_steps - thinning * phase.n_records  # the steps before it are not recorded
    stop, length = 0, loop.block_steps or _FIRST_BLOCK_STEPS
    while stop < phase.n_steps:
        block = _Block(stop, min(stop + length, phase.n_steps), first, thinning)
        block = block._replace(stop=min(block.stop, first + (block.base + capacity) * thinning))
        began = time.perf_counter()

        def advance(group: tuple[_Streams, Any], block: _Block = block) -> tuple[Any, Any]:
            carry, records = _advance(phase, capacity, backend, (*block, block.base), *group, loop.target)
            records = jax.tree.map(lambda leaf: np.array(np.asarray(leaf)[:, : block.n_complete]), records)
            loop.progress.advance(block.stop - block.start)
            return carry, records

        carries, records = map(list, zip(*backend.map(advance, list(zip(streams, carries, strict=True))), strict=True))
        for part, record in zip(parts, records, strict=True):
            part.append(record)
        if loop.block_steps is None:
            length = _next_length(length, time.perf_counter() - began)
        stop = block.stop
    finished = backend.map(lambda carry: _finish(phase, backend, carry), carries)
    loop.progress.finish()
    return finished, [jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *part) for part in parts]


def _next_length(length: int, seconds: float) -> int:
    if seconds < 0.5 * _BLOCK_SECONDS:
        return 2 * length
    return max(1, length // 2) if seconds > 2.0 * _BLOCK_SECONDS else length


def _capacity(phase: Phase, streams: _Streams, carries: Any, loop: _Loop) -> int:
    """Return how many records fit the buffer of one block; budgets do not matter, so that they share a program."""

    def records(phase: Phase, streams: _Streams, carries: Any, target: Target) -> Any:
        return _over_group(lambda key, carry: _step(phase, key, carry, target)[1], loop.backend, streams, carries)

    shapes = jax.eval_shape(records, phase, streams, carries, loop.target)
    floats = sum(leaf.size for leaf in jax.tree.leaves(shapes))
    return max(1, min(_BUFFER_RECORDS, _BUFFER_FLOATS // floats))


def _join(parts: list[Any], n_chains: int) -> Any:
    """Put groups together along the chain axis, without the padding at the end."""
    return jax.tree.map(lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves])[:n_chains], *parts)


# Everything that a phase holds as numbers is an argument of these programs: budgets, step sizes, seeds, ids.


def _over_group(function: Callable[..., Any], backend: InProcess, streams: _Streams, carries: Any) -> Any:
    """Apply a function of one chain's key and carry to a group."""
    return backend.over_group(lambda chain, carry: function(stream(streams.seed, streams.stage, chain), carry))(
        streams.chains, carries
    )


@partial(jax.jit, inline=True)
def _step(phase: Phase, key: Array, carry: Any, target: Target) -> tuple[Any, Any]:
    # Inlined, so it leaves no trace in the programs; but its own tracing, the slow part, happens only once.
    return phase.step(key, carry, target)


@partial(jax.jit, static_argnames="backend")
def _begin(phase: Phase, backend: InProcess, streams: _Streams, carries: Any, target: Target) -> Any:
    # Steps use the numbers 0..n-1 of the phase's stream; the start takes one that no step can have.
    return _over_group(
        lambda key, carry: phase.init(jax.random.fold_in(key, 2**32 - 1), carry, target), backend, streams, carries
    )


@partial(jax.jit, static_argnames=("capacity", "backend"), donate_argnames="carries")
def _advance(
    phase: Phase, capacity: int, backend: InProcess, bounds: tuple, streams: _Streams, carries: Any, target: Target
) -> tuple[Any, Any]:
    """Make the steps of one block.

    Bounds are arguments, so one program serves blocks of any length, and a loop of unknown length is never
    unrolled: that is why the length cannot change a bit.
    """
    start, stop, first, thinning, base = bounds

    def one_chain(key: Array, carry: Any) -> tuple[Any, Any]:
        record = jax.eval_shape(_step, phase, key, carry, target)[1]
        buffer = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), record)

        def body(index: Array, loop_carry: tuple[Any, Any]) -> tuple[Any, Any]:
            carry, buffer = loop_carry
            carry, record = _step(phase, jax.random.fold_in(key, index), carry, target)
            # Every step writes to its record's slot; the last one of a window stays.
            slot = jnp.where(index < first, capacity, (index - first) // thinning - base)
            buffer = jax.tree.map(lambda old, new: old.at[slot].set(new, mode="drop"), buffer, record)
            return carry, buffer

        return jax.lax.fori_loop(start, stop, body, (carry, buffer))

    return _over_group(one_chain, backend, streams, carries)


@partial(jax.jit, static_argnames="backend")
def _finish(phase: Phase, backend: InProcess, carries: Any) -> Finished:
    return backend.over_group(phase.finish)(carries)
