"""MILE: MCLMC from a trained start, tuned in three phases with a fixed budget (paper section 3)."""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from mile._checks import check_count, check_number
from mile._errors import Status
from mile._types import Count, Key, Position, Scalar, Target
from mile.samplers import _mclmc, _step_size
from mile.samplers._decoherence import (
    Moments,
    init_moments,
    length_from_autocorrelation,
    length_from_moments,
    update_moments,
)
from mile.samplers._step_size import Geometric, Linear, StepSize
from mile.samplers.base import Draw, Finished, Health, Tuned

# Beyond these limits a chain has failed; they are far outside what healthy chains show.
_LARGEST_BAD_SHARE = 0.05
_SMALLEST_TRAVEL = 0.1
_LARGEST_FALL_PER_DIMENSION = 10.0
_HISTORY = 200  # records kept of each tuning phase, enough for a plot
_SMALLEST_BUFFER = 512  # samples of phase III; below, memory is not worth a program of its own


@dataclass(frozen=True, kw_only=True)
class Mile:
    """Configuration of one MILE chain; the defaults are the paper's.

    Examples
    --------
    >>> from mile import Mile
    >>> Mile(warmup_steps=5_000, sampling_steps=1_000, n_draws=100).gradient_evaluations()
    12001
    """

    warmup_steps: int = 50_000  # section 3.3: 40k + 5k + 5k
    sampling_steps: int = 10_000  # section 3.3
    n_draws: int = 1_000  # section 3.3: thinning 10
    fractions: tuple[float, float, float] = (0.8, 0.1, 0.1)  # section 3.3: share of the three phases
    schedule: Linear | Geometric = Linear()  # section 3.2: 0.5 to 0.1
    step_size: float | None = None  # section 3.2: the optimizer's learning rate; None leaves it to the caller
    step_size_memory: float = 100.0  # section 3.2, "effective sample size": the average remembers about half as many
    trust: float = 1.5  # figure 5d
    length_factor: float = 0.4  # Robnik et al. 2023: L = 0.4 step_size x autocorrelation time
    n_coordinates: int = 2_000  # section 3.2, phase III bottleneck
    n_fft_samples: int = 10_000  # section 3.2, phase III bottleneck

    def __post_init__(self) -> None:
        check_count("warmup_steps", self.warmup_steps, smallest=3)
        check_count("sampling_steps", self.sampling_steps)
        check_count("n_draws", self.n_draws)
        check_count("n_coordinates", self.n_coordinates)
        check_count("n_fft_samples", self.n_fft_samples, smallest=4)
        if self.n_draws > self.sampling_steps:
            raise ValueError(
                f"n_draws ({self.n_draws}) must not exceed sampling_steps ({self.sampling_steps}): "
                "ask for fewer draws or more steps."
            )
        if not isinstance(self.fractions, tuple) or len(self.fractions) != 3:
            raise ValueError(f"fractions must be a tuple of three numbers; got {self.fractions!r}.")
        for fraction in self.fractions:
            check_number("each entry of fractions", fraction, positive=True)
        if abs(sum(self.fractions) - 1.0) > 1e-6:
            raise ValueError(f"fractions must sum to 1; got {self.fractions!r}.")
        if self._phase_steps()[0] < 1:
            raise ValueError(f"warmup_steps ({self.warmup_steps}) leaves no step for phase I.")
        if not isinstance(self.schedule, Linear | Geometric):
            raise ValueError(f"schedule must be a Linear(...) or Geometric(...); got {self.schedule!r}.")
        check_number("step_size_memory", self.step_size_memory, smallest=1.0)
        check_number("trust", self.trust, positive=True)
        check_number("length_factor", self.length_factor, positive=True)
        if self.step_size is not None:
            check_number("step_size", self.step_size, positive=True)

    def _phase_steps(self) -> tuple[int, int, int]:
        second, third = (max(1, round(fraction * self.warmup_steps)) for fraction in self.fractions[1:])
        return self.warmup_steps - second - third, second, third

    @property
    def name(self) -> str:
        """Its row in `SAMPLERS`."""
        return "mile"

    @property
    def phases(self) -> tuple["TuneStepSize", "TuneStepSize", "TuneLength", "Sample"]:
        """Phases I, II, III and sampling."""
        if self.step_size is None:
            raise ValueError("step_size is open: call with_start(step_size) before running the sampler.")
        first, second, third = self._phase_steps()
        thinning = -(-third // self.n_fft_samples)
        tuning = TuneStepSize(
            name="phase I",
            n_steps=first,
            first_steps=first,
            total_steps=first + second,
            schedule=self.schedule,
            step_size=self.step_size,
            memory=self.step_size_memory,
            trust=self.trust,
        )
        return (
            tuning,
            replace(tuning, name="phase II", n_steps=second),
            TuneLength(
                name="phase III",
                n_steps=third,
                thinning=thinning,
                factor=self.length_factor,
                n_coordinates=self.n_coordinates,
                capacity=_buffer_size(third // thinning),
            ),
            Sample(name="sampling", n_steps=self.sampling_steps, n_records=self.n_draws),
        )

    def gradient_evaluations(self) -> int:
        """Gradient evaluations of one chain: two a step, and one at the start."""
        return _mclmc.GRADIENTS_PER_STEP * (self.warmup_steps + self.sampling_steps) + 1

    def with_start(self, step_size: float) -> "Mile":
        """Return this configuration with `step_size` where none was given."""
        return self if self.step_size is not None else replace(self, step_size=step_size)


PRESETS: dict[str, Mile] = {
    "paper": Mile(),
    # A tenth of the steps: for a first look, not for a result.
    "quick": Mile(warmup_steps=5_000, sampling_steps=1_000, n_draws=200),
    # Small discretization error needs small steps, hence more of them.
    "accurate": Mile(warmup_steps=200_000, sampling_steps=40_000, schedule=Geometric()),
}


class Tuning(NamedTuple):
    """Carry of phases I and II."""

    state: _mclmc.State
    step_size: StepSize
    moments: Moments
    index: Int[Array, ""]  # steps done in both phases together; the schedule needs it
    health: Health


class Measuring(NamedTuple):
    """Carry of phase III; the first `samples` are the chosen coordinates at every thinned step, the rest is unused."""

    state: _mclmc.State
    tuned: Tuned
    coordinates: Int[Array, " coordinate"]
    samples: Float[Array, "capacity coordinate"]
    index: Int[Array, ""]
    health: Health


class Virial(NamedTuple):
    """Running means of position and gradient, and the sum of the products of their deviations."""

    steps: Int[Array, ""]  # made so far, of which one in a few is taken in
    position: Position
    gradient: Position
    products: Position


class Sampling(NamedTuple):
    """Carry of the sampling phase, and what tuning hands on."""

    state: _mclmc.State
    tuned: Tuned
    health: Health
    virial: Virial


class TuningRecord(NamedTuple):
    """History of a tuning phase."""

    step_size: Scalar
    energy_variance: Scalar  # running estimate per dimension
    logdensity: Scalar


class LengthRecord(NamedTuple):
    """History of phase III."""

    logdensity: Scalar
    energy_change: Scalar


# In compiled code the numbers of a phase are arguments; see `Phase`.
_register_phase = partial(jax.tree_util.register_dataclass, drop_fields=["name"])


@partial(
    _register_phase,
    data_fields=["n_steps", "first_steps", "total_steps", "schedule", "step_size", "memory", "trust"],
    meta_fields=[],
)
@dataclass(frozen=True, kw_only=True)
class TuneStepSize:
    """Phases I and II: adapt the step size; the variances seen since the phase began give L at its end."""

    name: str = ""
    n_steps: int
    first_steps: int
    total_steps: int
    schedule: Linear | Geometric
    step_size: float
    memory: float
    trust: float

    @property
    def n_records(self) -> int:
        """A short history for plots."""
        return min(self.n_steps, _HISTORY)

    def init(self, key: Key, carry: Position | Tuning, target: Target) -> Tuning:
        """Start from a position (phase I) or go on with a new estimate of the variances (phase II)."""
        if isinstance(carry, Tuning):
            state = carry.state
            return carry._replace(moments=init_moments(state.position), health=_renew(carry.health))
        state = _mclmc.init(key, carry, target)
        step_size = _step_size.init(jnp.asarray(self.step_size, state.position.dtype))
        health = Health(state.logdensity, jnp.zeros((), jnp.int32), jnp.zeros_like(state.logdensity))
        return Tuning(state, step_size, init_moments(state.position), jnp.zeros((), jnp.int32), health)

    def step(self, key: Key, carry: Tuning, target: Target) -> tuple[Tuning, TuningRecord]:
        """Make one step, then learn from its energy change."""
        state, step_size, moments, index, health = carry
        dimension = state.position.shape[0]
        level = self.schedule.value(index.astype(state.position.dtype), self.first_steps, self.total_steps)
        used = step_size.value
        state, info = _mclmc.step(key, state, target, used, _early_length(dimension))
        step_size = _step_size.update(
            step_size,
            energy_change=info.energy_change,
            finite=info.finite,
            dimension=dimension,
            target=level,
            memory=self.memory,
            trust=self.trust,
        )
        # Time is measured in distance, so a position counts by the step that led to it.
        moments = update_moments(moments, state.position, jnp.where(info.finite, used, 0.0))
        variance = level * step_size.estimate / jnp.where(step_size.weight > 0.0, step_size.weight, 1.0)
        record = TuningRecord(step_size.value, variance, state.logdensity)
        return Tuning(state, step_size, moments, index + 1, _watch(health, info)), record

    def finish(self, carry: Tuning) -> Finished:
        """Report the step size and the length that the variances suggest."""
        length = length_from_moments(carry.moments, carry.step_size.value)
        report = _report(self, carry, Tuned(carry.step_size.value, length))
        return Finished(carry, _status(self, carry), report)


@partial(_register_phase, data_fields=["n_steps", "thinning", "factor"], meta_fields=["n_coordinates", "capacity"])
@dataclass(frozen=True, kw_only=True)
class TuneLength:
    """Phase III: record a few coordinates and set L by their autocorrelation time."""

    name: str = ""
    n_steps: int
    thinning: int  # steps between two samples
    factor: float
    n_coordinates: int
    capacity: int  # room for samples, at least as many as there will be

    @property
    def n_records(self) -> int:
        """A short history for plots."""
        return min(self.n_steps, _HISTORY)

    def init(self, key: Key, carry: Tuning, target: Target) -> Measuring:
        """Choose the coordinates before the first step, so that nothing else is stored."""
        position = carry.state.position
        dimension = position.shape[0]
        coordinates = jnp.arange(dimension)
        if dimension > self.n_coordinates:
            coordinates = jnp.sort(jax.random.permutation(key, dimension)[: self.n_coordinates])
        step_size = carry.step_size.value
        return Measuring(
            state=carry.state,
            tuned=Tuned(step_size, length_from_moments(carry.moments, step_size)),
            coordinates=coordinates,
            samples=jnp.zeros((self.capacity, coordinates.shape[0]), position.dtype),
            index=jnp.zeros((), jnp.int32),
            health=_renew(carry.health),
        )

    def step(self, key: Key, carry: Measuring, target: Target) -> tuple[Measuring, "LengthRecord"]:
        """Make one step with the tuned step size and remember the chosen coordinates."""
        state, info = _mclmc.step(key, carry.state, target, carry.tuned.step_size, carry.tuned.L)
        # Each step overwrites its slot, so the last step of every window stays; an incomplete window is not used.
        samples = carry.samples.at[carry.index // self.thinning].set(state.position[carry.coordinates], mode="drop")
        carry = carry._replace(state=state, samples=samples, index=carry.index + 1, health=_watch(carry.health, info))
        return carry, LengthRecord(state.logdensity, info.energy_change)

    def finish(self, carry: Measuring) -> Finished:
        """Set L from the autocorrelation time, or keep phase II's if it cannot be measured."""
        step_size, previous = carry.tuned.step_size, carry.tuned.L
        length, measured = length_from_autocorrelation(
            carry.samples, self.n_steps // self.thinning, self.thinning, step_size, previous, self.factor
        )
        tuned = carry.tuned._replace(L=length)
        report = _report(self, carry, tuned) | {"L_measured": measured.astype(length.dtype)}
        zeros = jnp.zeros_like(carry.state.position)
        virial = Virial(jnp.zeros((), jnp.int32), zeros, zeros, zeros)
        return Finished(Sampling(carry.state, tuned, carry.health, virial), _status(self, carry), report)


@partial(_register_phase, data_fields=["n_steps", "n_records"], meta_fields=[])
@dataclass(frozen=True, kw_only=True)
class Sample:
    """Sampling with everything fixed."""

    name: str = ""
    n_steps: int
    n_records: int

    @property
    def _interval(self) -> Count:
        """Steps between two that the virial takes in; in compiled code the budgets are arguments."""
        return jnp.maximum(self.n_steps // jnp.maximum(self.n_records, 1), 1)

    def init(self, key: Key, carry: Sampling, target: Target) -> Sampling:
        """Go on from where tuning stopped, velocity included."""
        return carry._replace(health=_renew(carry.health))

    def step(self, key: Key, carry: Sampling, target: Target) -> tuple[Sampling, Draw]:
        """Make one step."""
        state, info = _mclmc.step(key, carry.state, target, carry.tuned.step_size, carry.tuned.L)
        draw = Draw(state.position, state.logdensity, info.energy_change)
        virial = _add(carry.virial, state, self._interval)
        return Sampling(state, carry.tuned, _watch(carry.health, info), virial), draw

    def finish(self, carry: Sampling) -> Finished:
        """Judge the chain."""
        travel = carry.tuned.step_size * self.n_steps / carry.tuned.L
        status = _status(self, carry)
        status = jnp.where((status == Status.OK) & (travel < _SMALLEST_TRAVEL), Status.FROZEN, status)
        n_taken = carry.virial.steps // self._interval
        virial = -carry.virial.products / jnp.maximum(n_taken - 1, 1)
        report = _report(self, carry, carry.tuned) | {"travel": travel, "virial": virial}
        return Finished(carry, status, report)


def _buffer_size(n_samples: int) -> int:
    """Round up by less than 512 or a quarter, so that similar budgets share programs."""
    step = max(_SMALLEST_BUFFER, (1 << n_samples.bit_length()) // 8)
    return -(-n_samples // step) * step


def _early_length(dimension: int) -> float:
    # Until L is known: the size of a standard normal, but at least 15 (as the reference).
    return max(math.sqrt(dimension), 15.0)


def _renew(health: Health) -> Health:
    # Counters are per phase; the start is the chain's.
    return health._replace(
        bad_steps=jnp.zeros_like(health.bad_steps), squared_energy=jnp.zeros_like(health.squared_energy)
    )


def _watch(health: Health, info: _mclmc.Info) -> Health:
    return health._replace(
        bad_steps=health.bad_steps + ~info.finite,
        squared_energy=health.squared_energy + jnp.square(info.energy_change),
    )


def _add(virial: Virial, state: _mclmc.State, interval: Count) -> Virial:
    """Take a step in every `interval` into the covariance of position and gradient.

    Welford's update does not cancel. Neighboring steps say nearly the same, and for small networks taking in all of
    them would be felt: 7 % of the time of a step with 402 parameters.
    """
    steps = virial.steps + 1

    def take(virial: Virial, state: _mclmc.State) -> Virial:
        count = steps // interval
        deviation = state.position - virial.position
        gradient = virial.gradient + (state.gradient - virial.gradient) / count
        return Virial(
            steps=steps,
            position=virial.position + deviation / count,
            gradient=gradient,
            products=virial.products + deviation * (state.gradient - gradient),
        )

    return jax.lax.cond(steps % interval == 0, take, lambda virial, _: virial._replace(steps=steps), virial, state)


def _status(phase: TuneStepSize | TuneLength | Sample, carry: Tuning | Measuring | Sampling) -> Int[Array, ""]:
    health, state = carry.health, carry.state
    fall = health.start_logdensity - state.logdensity
    return jnp.select(
        [
            ~jnp.isfinite(health.start_logdensity),
            health.bad_steps > _LARGEST_BAD_SHARE * phase.n_steps,
            fall > _LARGEST_FALL_PER_DIMENSION * state.position.shape[0],
        ],
        [Status.NON_FINITE_START, Status.BAD_STEPS, Status.DIVERGED],
        Status.OK,
    )


def _report(
    phase: TuneStepSize | TuneLength | Sample, carry: Tuning | Measuring | Sampling, tuned: Tuned
) -> dict[str, Scalar]:
    dimension = carry.state.position.shape[0]
    return {
        "step_size": tuned.step_size,
        "L": tuned.L,
        "bad_steps": carry.health.bad_steps.astype(tuned.step_size.dtype),
        "energy_variance": carry.health.squared_energy / (dimension * phase.n_steps),
        "logdensity": carry.state.logdensity,
    }
