"""Many chains from their starting points to the end: all advance through a sampler's phases in compiled blocks."""

import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, cast

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from mile._deadline import Deadline, Stopped, stop_on_signals
from mile._errors import ClusterError, Interrupted, Status, UntrustedFileError
from mile._progress import Progress, Silent, logger
from mile._random import RandomState, draw_seed
from mile._types import Target
from mile.ensemble.members import replaced
from mile.execution import InProcess, Program, WorkerPool
from mile.samplers import Sampler, Tuned
from mile.sampling.chain_state import ChainState, DrawStore
from mile.sampling.loop import LoopContext, Monitor, SamplingLoop, StopRule
from mile.sampling.timing import Forecaster, expected_memory
from mile.storage import (
    Run,
    StoredDraws,
    Unsaved,
    has_run,
    read_manifest,
)


class Chains(NamedTuple):
    """The result of K chains. Use the draws of a chain if its `status` is OK.

    Attributes
    ----------
    draws, logdensity, energy_change
        Kept positions (K, S, d), and the log density and the energy change of their steps (K, S).
    status
        One `Status` per chain.
    tuned
        Step size and L per chain, and the diagonal of the inverse mass matrix where there is one, else None.
    info
        Named numbers per phase and chain, such as the realized energy variance; of the sampling phase also `virial`,
        one number per chain and coordinate.
    history
        Records of the tuning phases: per phase a NamedTuple of arrays (K, record).
    gradient_evaluations
        Per chain.
    seed
        Reproduces the run.
    """

    draws: Float[np.ndarray, "chain draw d"] | StoredDraws
    logdensity: Float[np.ndarray, "chain draw"]
    energy_change: Float[np.ndarray, "chain draw"]
    status: tuple[Status, ...]
    tuned: Tuned[np.ndarray]
    info: dict[str, dict[str, Float[np.ndarray, "chain *d"]]]
    history: dict[str, NamedTuple]
    gradient_evaluations: Int[np.ndarray, " chain"]
    seed: int

    @property
    def ok(self) -> np.ndarray:
        """Mask of the chains that finished without trouble."""
        return np.array([status == Status.OK for status in self.status])

    @property
    def virial(self) -> Float[np.ndarray, "chain d"] | None:
        """Return -Cov(position, gradient of the log density) of each coordinate over the sampling phase.

        It is 1 in equilibrium, less where a chain has not explored its surroundings, more where large steps inflate
        them. None where a sampler does not report it.
        """
        return list(self.info.values())[-1].get("virial") if self.info else None

    def joined(self, others: "Chains") -> "Chains":
        """Return these chains and others of the same sampler after them."""

        def join(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
            return np.concatenate([ours, theirs])

        draws, more = self.draws, others.draws
        return self._replace(
            draws=draws.joined(more)
            if isinstance(draws, StoredDraws) and isinstance(more, StoredDraws)
            else join(np.asarray(draws), np.asarray(more)),
            logdensity=join(self.logdensity, others.logdensity),
            energy_change=join(self.energy_change, others.energy_change),
            status=self.status + others.status,
            tuned=jax.tree.map(join, self.tuned, others.tuned),
            info=jax.tree.map(join, self.info, others.info),
            history=jax.tree.map(join, self.history, others.history),
            gradient_evaluations=join(self.gradient_evaluations, others.gradient_evaluations),
        )

    def replace(self, slots: np.ndarray, others: "Chains") -> "Chains":
        """Put other chains in some places; arrays in memory are changed, because a copy may be too large."""

        def put(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
            ours[slots] = theirs
            return ours

        draws = self.draws
        return self._replace(
            draws=draws.replace(slots, cast(StoredDraws, others.draws))
            if isinstance(draws, StoredDraws)
            else put(draws, np.asarray(others.draws)),
            logdensity=put(self.logdensity, others.logdensity),
            energy_change=put(self.energy_change, others.energy_change),
            status=replaced(self.status, slots, others.status),
            tuned=jax.tree.map(put, self.tuned, others.tuned),
            info={
                phase: {name: put(values, others.info[phase][name]) for name, values in report.items()}
                for phase, report in self.info.items()
            },
            history={phase: jax.tree.map(put, record, others.history[phase]) for phase, record in self.history.items()},
            gradient_evaluations=put(self.gradient_evaluations, others.gradient_evaluations),
        )


def describe_failures(status: Iterable[Status], names: Iterable[int]) -> str:
    """Return one sentence per chain that failed, or nothing."""
    failures = [(name, code) for name, code in zip(names, status, strict=True) if code != Status.OK]
    return " ".join(f"Chain {name}: {code.sentence}." for name, code in failures)


def seed_for(run_dir: str | Path | None, random_state: RandomState) -> int:
    """Return the seed of a run; without a `random_state`, that of the run in the folder or a fresh one."""
    if random_state is None and run_dir is not None and has_run(Path(run_dir)):
        return read_manifest(Path(run_dir)).seed
    return draw_seed(random_state)


@contextmanager
def saved_when_stopped(folder: Path, deadline: Deadline, *, advice: str) -> Iterator[None]:
    """Let a signal stop a run after a last checkpoint, with advice how to resume it.

    Raises
    ------
    ClusterError
        If the cluster was lost, which stops a run too.
    UntrustedFileError
        If a checkpoint has impossible contents.
    Interrupted
        After Ctrl-C.
    SystemExit
        After SIGTERM, with the code that shells give it.
    """
    with stop_on_signals(deadline):
        try:
            yield
            if deadline.stopping:  # it came when nothing was left to stop; it must not be lost
                raise Stopped
        except Stopped:
            sentence = f"The run in {folder} was stopped and is saved. {advice}"
            logger.warning(sentence)
            if deadline.signal == signal.SIGTERM:
                raise SystemExit(128 + signal.SIGTERM) from None
            raise Interrupted(sentence) from None
        except UntrustedFileError as error:
            name = str(error).removeprefix(f"{folder}/").partition(": ")[0]
            raise UntrustedFileError(
                f"{error} `mile repair {folder}` goes back to the checkpoint before it; if the file is refused again, "
                f"`mile repair {folder} --without {name}` does."
            ) from error
        except ClusterError as error:
            raise ClusterError(f"{error} The run in {folder} is saved up to the blocks before. {advice}") from error


def time_step(
    sampler: Sampler,
    target: Target,
    positions: np.ndarray,
    *,
    seed: int,
    deadline: Deadline,
    backend: WorkerPool | None = None,
) -> Forecaster:
    """Time the sampler's first steps from each position and throw them away; the programs stay compiled."""
    forecast = Forecaster(sampler, len(positions), deadline)
    ids = np.arange(len(positions), dtype=np.uint32)
    context = LoopContext(backend or InProcess(), Silent(), None, Unsaved(), deadline)
    nothing = Unsaved().draws(ids.tolist(), 0, positions.shape[1], positions.dtype)
    state = _start(sampler, target, context.backend.program, positions, seed, ids, nothing)
    SamplingLoop(state, context).rehearse(forecast)
    return forecast


def run_chains(
    sampler: Sampler,
    target: Target,
    positions: Float[Array, "chain d"] | np.ndarray,
    *,
    seed: int,
    chain_ids: Sequence[int] | None = None,
    backend: WorkerPool | None = None,
    progress: Progress | None = None,
    block_steps: int | None = None,
    run: Run | Unsaved | None = None,
    deadline: Deadline | None = None,
    monitor: Monitor | None = None,
    stop: StopRule | None = None,
) -> Chains:
    """Run a sampler's phases from each position.

    `chain_ids` name the random streams (default 0..K-1). Neither the other chains, nor the backend's
    threads, nor `block_steps` (default: about a second's worth), nor having been stopped and resumed (`run`)
    changes a bit of a chain's draws. A chain that fails runs on to the end, because the budget is fixed; its status
    says what happened first. When `deadline` says that time is over, the last phase ends with the draws it has.
    `stop` may end the last phase early, at fixed numbers of draws.
    `monitor` is shown the newest draw of each chain between blocks of the last phase; progress notes what it says.

    Raises
    ------
    Stopped
        If `deadline` was asked to stop; everything is saved then.
    """
    positions = np.asarray(positions)  # indexing a JAX array would compile
    ids = np.asarray(range(len(positions)) if chain_ids is None else chain_ids, np.uint32)
    context = LoopContext(
        backend or InProcess(),
        progress or Silent(),
        block_steps,
        run or Unsaved(),
        deadline or Deadline(),
        monitor,
        stop,
    )
    draws = context.run.draws(ids.tolist(), sampler.phases[-1].n_records, positions.shape[1], positions.dtype)
    state = _start(sampler, target, context.backend.program, positions, seed, ids, draws)
    state.restore(context.run)
    sampling_loop = SamplingLoop(state, context)
    forecast = Forecaster(sampler, len(positions), context.deadline, _sizes(draws))
    while not state.finished:
        sampling_loop.run_phase(forecast)
    recorded, logdensity, energy_change = draws.result()
    last = state.info[sampler.phases[-1].name]
    return Chains(
        draws=recorded,
        logdensity=logdensity,
        energy_change=energy_change,
        status=tuple(Status(code) for code in state.status),
        tuned=Tuned(last["step_size"], last["L"], last.get("inverse_mass")),
        info=state.info,
        history=state.history,
        gradient_evaluations=count_gradients(sampler, state.info, len(positions)),
        seed=seed,
    )


def _start(
    sampler: Sampler,
    target: Target,
    program: Program,
    positions: np.ndarray,
    seed: int,
    ids: np.ndarray,
    draws: DrawStore,
) -> ChainState:
    """Return chains that have not made a step, in groups as wide as the backend's programs."""
    groups = program.groups(range(len(positions)))
    carries = [positions[group] for group in groups]
    return ChainState(sampler, target, program, seed, ids, groups, draws, carries)


def count_gradients(sampler: Sampler, info: dict[str, dict[str, np.ndarray]], n_chains: int) -> np.ndarray:
    """Return the gradient evaluations of each chain: those counted by its phases, or the fixed budget."""
    counted = [report["gradient_evaluations"] for report in info.values() if "gradient_evaluations" in report]
    if counted:
        return np.sum(counted, axis=0).round().astype(np.int64)
    return np.full(n_chains, min(sampler.gradient_evaluations(), np.iinfo(np.int64).max), np.int64)


def _sizes(draws: DrawStore) -> str:
    """Describe the memory and disk space that the draws will take."""
    in_memory, on_disk = draws.n_bytes
    memory = expected_memory(in_memory)
    parts = [f"{memory / 1e6:,.0f} MB of memory"] if memory is not None else []
    parts += [f"{on_disk / 1e6:,.0f} MB on disk"] if on_disk else []
    return "".join(f", {part}" for part in parts)
