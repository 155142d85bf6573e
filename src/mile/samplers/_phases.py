"""The phases of MILE: tune the step size, tune L, sample; each for one chain, with what it carries and records."""

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

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
