"""NUTS from trained starts: the paper's baseline BDE (Sommer et al. 2024), by BlackJAX's kernel and adaptation."""

from dataclasses import dataclass
from functools import cache, partial
from types import SimpleNamespace
from typing import ClassVar, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from mile import _registry
from mile._checks import check_count, check_number
from mile._errors import Status
from mile._types import Key, Position, PyTree, Scalar, Target
from mile.samplers.base import HISTORY, LARGEST_FALL_PER_DIMENSION, Draw, Finished, SamplerDefaults, check_budgets


@_registry.sampler("nuts")
@dataclass(frozen=True, kw_only=True)
class Nuts(SamplerDefaults):
    """NUTS with Stan's adaptation, by BlackJAX; the defaults are those of the paper's BDE."""

    title: ClassVar[str] = "NUTS"

    warmup_steps: int = 100  # paper, appendix on baselines: burn-in
    sampling_steps: int = 1_000
    n_draws: int = 1_000
    target_acceptance: float = 0.8  # Stan's and BlackJAX's default
    max_depth: int = 10  # doublings of a trajectory; the same
    step_size: float = 1.0  # the first that is tried; the same

    def __post_init__(self) -> None:
        check_budgets(self)
        check_count("max_depth", self.max_depth)
        check_number("target_acceptance", self.target_acceptance, positive=True, largest=0.999)
        check_number("step_size", self.step_size, positive=True)

    @property
    def name(self) -> str:
        """Its name in the registry."""
        return "nuts"

    @property
    def phases(self) -> tuple["NutsAdaptationPhase", "NutsSamplingPhase"]:
        """Adaptation of step size and mass matrix, then sampling."""
        adapt = NutsAdaptationPhase(
            n_steps=self.warmup_steps,
            target_acceptance=self.target_acceptance,
            max_depth=self.max_depth,
            step_size=self.step_size,
        )
        return adapt, NutsSamplingPhase(n_steps=self.sampling_steps, n_records=self.n_draws, max_depth=self.max_depth)

    def gradient_evaluations(self) -> int:
        """Return the most that one chain can cost; how many it took is counted."""
        return (2**self.max_depth - 1) * (self.warmup_steps + self.sampling_steps) + 1

    def with_start(self, step_size: float) -> "Nuts":
        """Return this; an optimizer's learning rate says nothing about trajectories."""
        return self

    @classmethod
    def presets(cls) -> dict[str, "Nuts"]:
        """Return configurations by name; "paper" is what its paper used."""
        return {
            "paper": Nuts(),
            "quick": Nuts(warmup_steps=50, sampling_steps=200, n_draws=200),
            "accurate": Nuts(warmup_steps=1_000, sampling_steps=4_000),
        }


Tree = TypeVar("Tree")


class NutsTally(NamedTuple):
    """What is counted in a phase."""

    start_logdensity: Scalar
    gradients: Scalar  # a float, because an int32 may overflow
    divergences: Scalar
    acceptance: Scalar  # sums over steps
    squared_energy: Scalar


class NutsAdapting(NamedTuple):
    """Carry of the adaptation."""

    state: PyTree  # BlackJAX's, as the next two
    averaging: PyTree
    matrix: PyTree
    step_size: Scalar
    inverse_mass: Float[Array, " d"]
    index: Int[Array, ""]
    tally: NutsTally


class NutsSampling(NamedTuple):
    """Carry of the sampling phase."""

    state: PyTree  # BlackJAX's
    step_size: Scalar
    inverse_mass: Float[Array, " d"]
    tally: NutsTally


class AdaptationRecord(NamedTuple):
    """History of the adaptation."""

    step_size: Scalar
    acceptance: Scalar
    logdensity: Scalar


@cache
def _blackjax() -> SimpleNamespace:
    """Return the parts of BlackJAX that are used here; half a second to import, so only for those who need it."""
    from blackjax import nuts
    from blackjax.adaptation.mass_matrix import mass_matrix_adaptation
    from blackjax.adaptation.step_size import dual_averaging_adaptation
    from blackjax.adaptation.window_adaptation import build_schedule
    from blackjax.mcmc.metrics import default_metric

    matrix_init, matrix_update, matrix_final = mass_matrix_adaptation(is_diagonal_matrix=True)
    return SimpleNamespace(
        init=nuts.init,
        kernel=nuts.build_kernel(),
        metric=default_metric,
        schedule=build_schedule,
        averaging=dual_averaging_adaptation,
        matrix_init=matrix_init,
        matrix_update=matrix_update,
        matrix_final=matrix_final,
    )


@jax.tree_util.register_static
@dataclass(frozen=True, kw_only=True)
class NutsAdaptationPhase:
    """Stan's windows: step size by dual averaging throughout, variances of the weights in the slow windows."""

    record: ClassVar[type] = AdaptationRecord
    name: str = "adaptation"
    n_steps: int
    target_acceptance: float
    max_depth: int
    step_size: float

    @property
    def n_records(self) -> int:
        """A short history for plots."""
        return min(self.n_steps, HISTORY)

    def init(self, key: Key, carry: Position, target: Target) -> NutsAdapting:
        """Start at a trained network."""
        library = _blackjax()
        state = library.init(carry, target.logdensity)
        step_size = jnp.asarray(self.step_size, carry.dtype)
        matrix = library.matrix_init(carry.shape[0])
        averaging_init, _, _ = library.averaging(self.target_acceptance)
        zero = jnp.zeros((), carry.dtype)
        tally = NutsTally(state.logdensity, zero + 1.0, zero, zero, zero)
        adapting = NutsAdapting(
            state=state,
            averaging=averaging_init(step_size),
            matrix=matrix,
            step_size=step_size,
            inverse_mass=matrix.inverse_mass_matrix,
            index=jnp.zeros((), jnp.int32),
            tally=tally,
        )
        return jax.tree.map(jnp.asarray, adapting)

    def step(self, key: Key, carry: NutsAdapting, target: Target) -> tuple[NutsAdapting, AdaptationRecord]:
        """Make one transition, then learn from its acceptance and its position."""
        library = _blackjax()
        averaging_init, averaging_update, averaging_final = library.averaging(self.target_acceptance)
        state, info, energy_change = _transition(
            key, carry.state, target, carry.step_size, carry.inverse_mass, self.max_depth
        )
        schedule = jnp.asarray(library.schedule(self.n_steps))
        is_slow, ends_window = schedule[carry.index, 0] == 1, schedule[carry.index, 1] == 1
        averaging = averaging_update(carry.averaging, info.acceptance_rate)
        matrix = _choose(is_slow, library.matrix_update(carry.matrix, state.position), carry.matrix)
        # A window's end turns what it has seen into a mass matrix and begins both estimates anew.
        averaging = _choose(ends_window, averaging_init(averaging_final(averaging)), averaging)
        matrix = _choose(ends_window, library.matrix_final(matrix), matrix)
        step_size = jnp.exp(averaging.log_step_size).astype(carry.step_size.dtype)
        adapted = NutsAdapting(
            state=state,
            averaging=averaging,
            matrix=matrix,
            step_size=step_size,
            inverse_mass=jnp.where(ends_window, matrix.inverse_mass_matrix, carry.inverse_mass),
            index=carry.index + 1,
            tally=_count(carry.tally, info, energy_change),
        )
        adapted = jax.tree.map(lambda new, old: new.astype(old.dtype), adapted, carry)
        return adapted, AdaptationRecord(step_size, info.acceptance_rate, state.logdensity)

    def finish(self, carry: NutsAdapting) -> Finished:
        """Hand on the averaged step size and the last mass matrix."""
        step_size = jnp.exp(carry.averaging.log_step_size_avg).astype(carry.step_size.dtype)
        after = NutsSampling(carry.state, step_size, carry.inverse_mass, carry.tally)
        report = _report(self.n_steps, after)
        zero = jnp.zeros_like(step_size)
        fresh = after.tally._replace(gradients=zero, divergences=zero, acceptance=zero, squared_energy=zero)
        return Finished(after._replace(tally=fresh), _status(after), report)


@partial(
    jax.tree_util.register_dataclass,
    drop_fields=["name"],
    data_fields=["n_steps", "n_records"],
    meta_fields=["max_depth"],
)
@dataclass(frozen=True, kw_only=True)
class NutsSamplingPhase:
    """Sampling with everything fixed."""

    name: str = "sampling"
    n_steps: int
    n_records: int
    max_depth: int

    def init(self, key: Key, carry: NutsSampling, target: Target) -> NutsSampling:
        """Continue where the adaptation stopped."""
        return carry

    def step(self, key: Key, carry: NutsSampling, target: Target) -> tuple[NutsSampling, Draw]:
        """Make one transition."""
        state, info, energy_change = _transition(
            key, carry.state, target, carry.step_size, carry.inverse_mass, self.max_depth
        )
        draw = Draw(state.position, state.logdensity, energy_change)
        return carry._replace(state=state, tally=_count(carry.tally, info, energy_change)), draw

    def finish(self, carry: NutsSampling) -> Finished:
        """Judge the chain."""
        return Finished(carry, _status(carry), _report(self.n_steps, carry))


def _transition(
    key: Key, state: PyTree, target: Target, step_size: Scalar, inverse_mass: Array, max_depth: int
) -> tuple[PyTree, PyTree, Scalar]:
    """Make one NUTS transition; return also the energy difference between its ends."""
    library = _blackjax()
    new, info = library.kernel(key, state, target.logdensity, step_size, inverse_mass, max_depth)
    kinetic = library.metric(inverse_mass).kinetic_energy(info.momentum)
    energy_change = info.energy - (kinetic - state.logdensity)
    return new, info, jnp.where(jnp.isfinite(energy_change), energy_change, 0.0).astype(state.logdensity.dtype)


def _count(tally: NutsTally, info: PyTree, energy_change: Scalar) -> NutsTally:
    return tally._replace(
        gradients=tally.gradients + info.num_integration_steps,
        divergences=tally.divergences + info.is_divergent,
        acceptance=tally.acceptance + info.acceptance_rate,
        squared_energy=tally.squared_energy + jnp.square(energy_change),
    )


def _choose(condition: Array, new: Tree, old: Tree) -> Tree:
    return jax.tree.map(lambda one, other: jnp.where(condition, one, other), new, old)


def _status(carry: NutsSampling) -> Int[Array, ""]:
    fall = carry.tally.start_logdensity - carry.state.logdensity
    return jnp.select(
        [
            ~jnp.isfinite(carry.tally.start_logdensity),
            fall > LARGEST_FALL_PER_DIMENSION * carry.state.position.shape[0],
        ],
        [Status.NON_FINITE_START, Status.DIVERGED],
        Status.OK,
    )


def _report(n_steps: Int[Array, ""] | int, carry: NutsSampling) -> dict[str, Array]:
    tally = carry.tally
    return {
        "step_size": carry.step_size,
        "L": jnp.full_like(carry.step_size, jnp.nan),  # trajectories end where they turn back
        "inverse_mass": carry.inverse_mass,
        "gradient_evaluations": tally.gradients,
        "divergences": tally.divergences,
        "acceptance": tally.acceptance / n_steps,
        "energy_variance": tally.squared_energy / (n_steps * carry.state.position.shape[0]),
        "logdensity": carry.state.logdensity,
    }
