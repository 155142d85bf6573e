"""Mini-batch MCLMC with gradient-noise preconditioning, after SMILE (Sommer et al. 2026) as derived, not as released.

Each step moves on the posterior of one mini-batch, evaluated anew at the old position: the energy change is then the
error of the integrator, and MILE's tuner applies as it is. Mini-batches of successive steps are independent, because
only white noise leaves the posterior as it is: going through all rows in turn cancels the noise over an epoch,
and on a normal target halves the variances.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from mile import _registry
from mile._checks import check_count, check_flag, check_number
from mile._errors import Status
from mile._types import Key, Position, Scalar, Target
from mile.samplers import _minibatches, _noise, _step_size
from mile.samplers._decoherence import Moments, early_length, init_moments, length_from_moments, update_moments
from mile.samplers._minibatches import GRADIENTS_PER_STEP, Fixed, MinibatchChain
from mile.samplers._noise import Noise
from mile.samplers._phases import TuningRecord
from mile.samplers._step_size import EnergySchedule, Geometric, Linear, StepSize, check_schedule
from mile.samplers.base import HISTORY, SMALLEST_TRAVEL, Draw, Finished, SamplerDefaults, check_budgets

_SHORTEST = 0.1  # steps; with such an L each step already has a direction of its own


@_registry.sampler("stochastic")
@dataclass(frozen=True, kw_only=True)
class Stochastic(SamplerDefaults):
    """MILE on mini-batches; experimental.

    Examples
    --------
    >>> from mile.samplers.stochastic import Stochastic
    >>> Stochastic(warmup_steps=5_000, sampling_steps=1_000).gradient_evaluations()
    18001
    """

    title: ClassVar[str] = "stochastic MILE"
    batch_size: int = 256  # SMILE's configuration for tables
    warmup_steps: int = 50_000  # the same
    sampling_steps: int = 10_000  # the same
    n_draws: int = 100  # SMILE for images: thinning 100; each draw costs its log density on all rows
    precondition: bool = True  # pSMILE: units in which all coordinates have the same gradient noise
    schedule: EnergySchedule = Linear()  # wanted energy variance per dimension, as MILE
    step_size: float | None = None  # as MILE: the optimizer's learning rate; None leaves it to the caller
    step_size_memory: float = 100.0  # as MILE
    trust: float = 1.5  # as MILE
    largest_turn: float = 0.25  # radians a step by noise; measured: variances come out too large by 0.16 turn^2
    # Share of the forgetting of direction that is left to noise. Noise that is correlated between coordinates distorts
    # the draws by as much, in units of its own spread; relaxation takes n / (2 batch_size noise_share) steps.
    noise_share: float = 0.3

    def __post_init__(self) -> None:
        check_count("batch_size", self.batch_size)
        check_budgets(self)
        check_flag("precondition", self.precondition)
        check_schedule(self.schedule)
        check_number("step_size_memory", self.step_size_memory, smallest=1.0)
        check_number("trust", self.trust, positive=True)
        check_number("largest_turn", self.largest_turn, positive=True)
        check_number("noise_share", self.noise_share, positive=True, largest=1.0)
        if self.step_size is not None:
            check_number("step_size", self.step_size, positive=True)

    @property
    def name(self) -> str:
        """Its name in the registry."""
        return "stochastic"

    @property
    def phases(self) -> tuple["StochasticWarmUpPhase", "StochasticSamplingPhase"]:
        """One phase that tunes everything, then sampling."""
        if self.step_size is None:
            raise ValueError("step_size is open: call with_start(step_size) before running the sampler.")
        warm_up = StochasticWarmUpPhase(
            n_steps=self.warmup_steps,
            schedule=self.schedule,
            step_size=self.step_size,
            memory=self.step_size_memory,
            trust=self.trust,
            largest_turn=self.largest_turn,
            noise_share=self.noise_share,
            batch_size=self.batch_size,
            precondition=self.precondition,
        )
        sample = StochasticSamplingPhase(
            n_steps=self.sampling_steps,
            n_records=self.n_draws,
            energy_variance=self.schedule.end,
            batch_size=self.batch_size,
            precondition=self.precondition,
        )
        return warm_up, sample

    def gradient_evaluations(self) -> int:
        """Mini-batch gradients of one chain: three a step, and one on all rows at the start.

        A batch that holds all rows needs two a step, and that is what is counted then.
        """
        return GRADIENTS_PER_STEP * (self.warmup_steps + self.sampling_steps) + 1

    @property
    def needs_rows(self) -> bool:
        """Whether it works with single rows: yes, with mini-batches of them."""
        return True

    @property
    def energy_schedule(self) -> EnergySchedule:
        """What tuning wants of the energy change."""
        return self.schedule

    def with_start(self, step_size: float) -> "Stochastic":
        """Return this configuration with `step_size` where none was given."""
        return self if self.step_size is not None else replace(self, step_size=step_size)

    @classmethod
    def presets(cls) -> dict[str, "Stochastic"]:
        """Return configurations by name; "paper" is what its paper used."""
        return {
            "paper": Stochastic(),
            # A tenth of the steps: for a first look, not for a result.
            "quick": Stochastic(warmup_steps=5_000, sampling_steps=1_000),
            # Both kinds of bias, of the integrator and of the noise, shrink with the step.
            "accurate": Stochastic(
                warmup_steps=200_000,
                sampling_steps=40_000,
                n_draws=400,
                schedule=Geometric(),
                largest_turn=0.1,
                noise_share=0.1,
            ),
        }


class StochasticTuning(NamedTuple):
    """Carry of the warm-up."""

    chain: MinibatchChain
    noise: Noise
    step_size: StepSize
    moments: Moments


class StochasticSampling(NamedTuple):
    """Carry of the sampling phase."""

    chain: MinibatchChain
    fixed: Fixed


# In compiled code the numbers of a phase are arguments; see `Phase`.
_register_phase = partial(
    jax.tree_util.register_dataclass, drop_fields=["name"], meta_fields=["batch_size", "precondition"]
)


@partial(
    _register_phase, data_fields=["n_steps", "schedule", "step_size", "memory", "trust", "largest_turn", "noise_share"]
)
@dataclass(frozen=True, kw_only=True)
class StochasticWarmUpPhase:
    """Measure the noise, adapt units and step size to it, and set L by the region visited lately."""

    record: ClassVar[type] = TuningRecord
    name: str = "warm-up"
    n_steps: int
    schedule: EnergySchedule
    step_size: float
    memory: float
    trust: float
    largest_turn: float
    noise_share: float
    batch_size: int
    precondition: bool

    @property
    def n_records(self) -> int:
        """A short history for plots."""
        return min(self.n_steps, HISTORY)

    def init(self, key: Key, carry: Position, target: Target) -> StochasticTuning:
        """Start at a trained network, with the gradient on all rows."""
        chain = _minibatches.init(key, carry, target, self.batch_size)
        step_size = _step_size.init(jnp.asarray(self.step_size, carry.dtype))
        return StochasticTuning(chain, _noise.init(carry), step_size, init_moments(carry))

    def step(self, key: Key, carry: StochasticTuning, target: Target) -> tuple[StochasticTuning, TuningRecord]:
        """Make one step, then learn from its energy change and from the noise."""
        chain, noise, step_size, moments = carry
        dimension, dtype = chain.state.position.shape[0], chain.state.position.dtype
        index = chain.index.astype(dtype)
        level = self.schedule.value(index, self.n_steps, self.n_steps)
        step_size, fixed = self._settle(carry, early_length(dimension))
        chain, moved = _minibatches.advance(key, chain, target, fixed, level, self.batch_size, self.precondition)
        used = step_size.value
        step_size = _step_size.update(
            step_size,
            energy_change=moved.energy_change,
            finite=moved.finite,
            dimension=dimension,
            target=level,
            memory=self.memory,
            trust=self.trust,
        )
        # A position counts by the step that led to it, and later ones for more: the start is forgotten.
        weight = jnp.where(moved.finite, used * (index + 1.0), 0.0)
        moments = update_moments(moments, chain.state.position, weight)
        variance = level * step_size.estimate / jnp.where(step_size.weight > 0.0, step_size.weight, 1.0)
        record = TuningRecord(step_size.value, variance, chain.state.logdensity)
        return StochasticTuning(chain, _noise.update(noise, moved.difference), step_size, moments), record

    def _settle(self, carry: StochasticTuning, length: Scalar | float) -> tuple[StepSize, Fixed]:
        """Return the step size as far as the noise admits it, and what goes with it."""
        dimension = carry.chain.state.position.shape[0]
        units = _noise.units(carry.noise) if self.precondition else jnp.ones_like(carry.noise.variance)
        missing, noise = _noise.missing(carry.noise, units), _noise.level(carry.noise)
        wanted = carry.step_size
        value = jnp.minimum(wanted.value, _noise.largest_step(noise, dimension, self.largest_turn))
        step_size = wanted._replace(value=value, estimate=wanted.estimate * (value / wanted.value) ** 6)
        supplied = _noise.length(noise, dimension, value)
        length = jnp.minimum(jnp.asarray(length, value.dtype), self.noise_share * supplied)
        length = jnp.maximum(length, _SHORTEST * value)
        return step_size, Fixed(value, length, supplied, noise, units, missing)

    def finish(self, carry: StochasticTuning) -> Finished:
        """Fix everything."""
        step_size, fixed = self._settle(carry, jnp.inf)
        deviation = carry.moments.deviation * jnp.square(fixed.units)
        visited = length_from_moments(carry.moments._replace(deviation=deviation), step_size.value)
        fixed = fixed._replace(L=jnp.minimum(visited, fixed.L))
        report = _minibatches.report(self.n_steps, carry.chain, fixed)
        report["gradient_evaluations"] += 1.0  # the start
        return Finished(StochasticSampling(carry.chain, fixed), _minibatches.status(self.n_steps, carry.chain), report)


@partial(_register_phase, data_fields=["n_steps", "n_records", "energy_variance"])
@dataclass(frozen=True, kw_only=True)
class StochasticSamplingPhase:
    """Sampling with everything fixed."""

    name: str = "sampling"
    n_steps: int
    n_records: int
    energy_variance: float  # wanted per dimension
    batch_size: int
    precondition: bool

    def init(self, key: Key, carry: StochasticSampling, target: Target) -> StochasticSampling:
        """Continue where the warm-up stopped, velocity included."""
        return carry._replace(chain=_minibatches.renew(carry.chain, target))

    def step(self, key: Key, carry: StochasticSampling, target: Target) -> tuple[StochasticSampling, Draw]:
        """Make one step; where a draw is recorded, compute its log density on all rows."""
        chain, moved = _minibatches.advance(
            key, carry.chain, target, carry.fixed, self.energy_variance, self.batch_size, self.precondition
        )
        position = chain.state.position
        logdensity = jax.lax.cond(
            self._is_recorded(carry.chain.index), target.logdensity, lambda _: chain.logdensity, position
        )
        # Rows outside a step's mini-batch may make a draw impossible; its chain has failed then, and stays so.
        known = jnp.where(jnp.isfinite(chain.logdensity), logdensity, chain.logdensity)
        draw = Draw(position, logdensity, moved.energy_change)
        return carry._replace(chain=chain._replace(logdensity=known)), draw

    def _is_recorded(self, index: Int[Array, ""]) -> Bool[Array, ""]:
        thinning = jnp.maximum(self.n_steps // jnp.maximum(self.n_records, 1), 1)
        since = index - (self.n_steps - thinning * self.n_records)
        return (since >= 0) & (since % thinning == thinning - 1)

    def finish(self, carry: StochasticSampling) -> Finished:
        """Judge the chain."""
        travel = carry.fixed.step_size * self.n_steps / carry.fixed.L
        status = _minibatches.status(self.n_steps, carry.chain)
        status = jnp.where((status == Status.OK) & (travel < SMALLEST_TRAVEL), Status.FROZEN, status)
        return Finished(carry, status, _minibatches.report(self.n_steps, *carry) | {"travel": travel})
