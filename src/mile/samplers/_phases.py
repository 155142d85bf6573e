"""The phases of MILE: tune the step size, tune L, sample; each for one chain, with what it carries and records.

With a diagonal metric (`Tuned.inverse_mass`) a chain's state is in units of its own along each coordinate, in which all
variances are about one; draws leave in the target's.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from mile._errors import Status
from mile._types import Key, Number, Position, Scalar, Target
from mile.posterior import RescaledTarget
from mile.samplers import _mclmc, _step_size, _virial
from mile.samplers._decoherence import (
    Moments,
    early_length,
    init_moments,
    length_from_autocorrelation,
    length_from_moments,
    update_moments,
)
from mile.samplers._step_size import EnergySchedule, StepSize
from mile.samplers._virial import Virial
from mile.samplers.base import (
    HISTORY,
    LARGEST_BAD_SHARE,
    LARGEST_FALL_PER_DIMENSION,
    SMALLEST_TRAVEL,
    Draw,
    Finished,
    Health,
    Tuned,
    inverse_mass_from,
)


class MileTuning(NamedTuple):
    """Carry of phases I and II."""

    state: _mclmc.State
    step_size: StepSize
    moments: Moments
    index: Int[Array, ""]  # steps done in both phases together; the schedule needs it
    health: Health
    inverse_mass: Position | None = None  # squares of the units


class MileMeasuring(NamedTuple):
    """Carry of phase III; the first `samples` are the chosen coordinates at every thinned step, the rest is unused."""

    state: _mclmc.State
    tuned: Tuned
    coordinates: Int[Array, " coordinate"]
    samples: Float[Array, "capacity coordinate"]
    index: Int[Array, ""]
    health: Health


class MileSampling(NamedTuple):
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
    data_fields=["n_steps", "first_steps", "total_steps", "schedule", "step_size", "memory", "trust", "energy_limit"],
    meta_fields=["sets_metric"],
)
@dataclass(frozen=True, kw_only=True)
class MileStepSizePhase:
    """Phases I and II: adapt the step size; the variances seen since the phase began give L at its end."""

    record: ClassVar[type] = TuningRecord
    name: str = ""
    n_steps: int
    first_steps: int
    total_steps: int
    schedule: EnergySchedule
    step_size: float
    memory: float
    trust: float
    energy_limit: float | None = None  # see `_guarded`
    sets_metric: bool = False  # whether it begins by taking the variances seen so far as the metric

    @property
    def n_records(self) -> int:
        """A short history for plots."""
        return min(self.n_steps, HISTORY)

    def init(self, key: Key, carry: Position | MileTuning, target: Target) -> MileTuning:
        """Start from a position (phase I), or continue and estimate the variances anew (phase II)."""
        if isinstance(carry, MileTuning):
            carry = _change_units(carry) if self.sets_metric else carry
            return carry._replace(moments=init_moments(carry.state.position), health=_renew(carry.health))
        state = _mclmc.init(key, carry, target)
        step_size = _step_size.init(jnp.asarray(self.step_size, state.position.dtype))
        count = jnp.zeros((), jnp.int32)
        health = Health(state.logdensity, count, jnp.zeros_like(state.logdensity), count)
        return MileTuning(state, step_size, init_moments(state.position), count, health)

    def step(self, key: Key, carry: MileTuning, target: Target) -> tuple[MileTuning, TuningRecord]:
        """Make one step, then learn from its energy change."""
        state, step_size, moments, index, health, inverse_mass = carry
        dimension = state.position.shape[0]
        level = self.schedule.value(index.astype(state.position.dtype), self.first_steps, self.total_steps)
        used = step_size.value
        target = in_units(target, inverse_mass)
        state, info, health = _guarded(
            key, state, target, used, early_length(dimension), health, self.energy_limit, level
        )
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
        return MileTuning(state, step_size, moments, index + 1, health, inverse_mass), record

    def finish(self, carry: MileTuning) -> Finished:
        """Report the step size and the length that the variances suggest."""
        length = length_from_moments(carry.moments, carry.step_size.value)
        report = _report(self, carry, Tuned(carry.step_size.value, length, carry.inverse_mass))
        return Finished(carry, _status(self, carry), report)


@partial(
    _register_phase,
    data_fields=["n_steps", "thinning", "factor", "energy_limit", "level"],
    meta_fields=["n_coordinates", "capacity"],
)
@dataclass(frozen=True, kw_only=True)
class MileLengthPhase:
    """Phase III: record a few coordinates and set L by their autocorrelation time."""

    record: ClassVar[type] = LengthRecord
    name: str = ""
    n_steps: int
    thinning: int  # steps between two samples
    factor: float
    n_coordinates: int
    capacity: int  # room for samples, at least as many as there will be
    energy_limit: float | None = None
    level: float = 1.0  # of the energy variance, to which the limit is relative

    @property
    def n_records(self) -> int:
        """A short history for plots."""
        return min(self.n_steps, HISTORY)

    def init(self, key: Key, carry: MileTuning, target: Target) -> MileMeasuring:
        """Choose the coordinates before the first step, so that nothing else is stored."""
        position = carry.state.position
        dimension = position.shape[0]
        coordinates = jnp.arange(dimension)
        if dimension > self.n_coordinates:
            coordinates = jnp.sort(jax.random.permutation(key, dimension)[: self.n_coordinates])
        step_size = carry.step_size.value
        return MileMeasuring(
            state=carry.state,
            tuned=Tuned(step_size, length_from_moments(carry.moments, step_size), carry.inverse_mass),
            coordinates=coordinates,
            samples=jnp.zeros((self.capacity, coordinates.shape[0]), position.dtype),
            index=jnp.zeros((), jnp.int32),
            health=_renew(carry.health),
        )

    def step(self, key: Key, carry: MileMeasuring, target: Target) -> tuple[MileMeasuring, "LengthRecord"]:
        """Make one step with the tuned step size and remember the chosen coordinates."""
        state, info, health = _fixed_step(self, key, carry, target)
        # Each step overwrites its slot, so the last step of every window stays; an incomplete window is not used.
        samples = carry.samples.at[carry.index // self.thinning].set(state.position[carry.coordinates], mode="drop")
        carry = carry._replace(state=state, samples=samples, index=carry.index + 1, health=health)
        return carry, LengthRecord(state.logdensity, info.energy_change)

    def finish(self, carry: MileMeasuring) -> Finished:
        """Set L from the autocorrelation time, or keep phase II's if it cannot be measured."""
        step_size, previous = carry.tuned.step_size, carry.tuned.L
        length, measured = length_from_autocorrelation(
            carry.samples, self.n_steps // self.thinning, self.thinning, step_size, previous, self.factor
        )
        tuned = carry.tuned._replace(L=length)
        report = _report(self, carry, tuned) | {"L_measured": measured.astype(length.dtype)}
        after = MileSampling(carry.state, tuned, carry.health, _virial.init(carry.state.position))
        return Finished(after, _status(self, carry), report)


@partial(_register_phase, data_fields=["n_steps", "n_records", "energy_limit", "level"], meta_fields=[])
@dataclass(frozen=True, kw_only=True)
class MileSamplingPhase:
    """Sampling with everything fixed."""

    name: str = ""
    n_steps: int
    n_records: int
    energy_limit: float | None = None
    level: float = 1.0

    def init(self, key: Key, carry: MileSampling, target: Target) -> MileSampling:
        """Continue where tuning stopped, velocity included."""
        return carry._replace(health=_renew(carry.health))

    def step(self, key: Key, carry: MileSampling, target: Target) -> tuple[MileSampling, Draw]:
        """Make one step."""
        state, info, health = _fixed_step(self, key, carry, target)
        position = to_target(state.position, carry.tuned.inverse_mass)
        virial = _virial.update(carry.virial, state, self.n_steps, self.n_records)
        return MileSampling(state, carry.tuned, health, virial), Draw(position, state.logdensity, info.energy_change)

    def finish(self, carry: MileSampling) -> Finished:
        """Judge the chain."""
        travel = carry.tuned.step_size * self.n_steps / carry.tuned.L
        status = _status(self, carry)
        status = jnp.where((status == Status.OK) & (travel < SMALLEST_TRAVEL), Status.FROZEN, status)
        virial = _virial.ratio(carry.virial, self.n_steps, self.n_records)
        report = _report(self, carry, carry.tuned) | {"travel": travel, "virial": virial}
        return Finished(carry, status, report)


def _renew(health: Health) -> Health:
    # Counters are per phase; the start is the chain's.
    return health._replace(
        bad_steps=jnp.zeros_like(health.bad_steps),
        squared_energy=jnp.zeros_like(health.squared_energy),
        refused_steps=jnp.zeros_like(health.refused_steps),
    )


def _fixed_step(
    phase: "MileLengthPhase | MileSamplingPhase", key: Key, carry: MileMeasuring | MileSampling, target: Target
) -> tuple[_mclmc.State, _mclmc.Info, Health]:
    """Make one step with everything fixed."""
    step_size, length, inverse_mass = carry.tuned
    target = in_units(target, inverse_mass)
    return _guarded(key, carry.state, target, step_size, length, carry.health, phase.energy_limit, phase.level)


def _guarded(
    key: Key,
    state: _mclmc.State,
    target: Target,
    step_size: Scalar,
    L: Scalar | float,
    health: Health,
    energy_limit: Number | None,
    level: Number,
) -> tuple[_mclmc.State, _mclmc.Info, Health]:
    """Make one step and keep count of it.

    With an energy limit, a step whose squared energy change exceeds that many times the wanted level is taken back and
    the chain continues in a fresh direction (BlackJAX's high-energy rejection); tuning still learns from its energy.
    """
    new, info = _mclmc.step(key, state, target, step_size, L)
    health = health._replace(
        bad_steps=health.bad_steps + ~info.finite,
        squared_energy=health.squared_energy + jnp.square(info.energy_change),
    )
    if energy_limit is None:
        return new, info, health
    refused = jnp.square(info.energy_change) > energy_limit * level * state.position.shape[0]
    # The step used the key itself; a folded one is a stream of its own.
    back = state._replace(velocity=_mclmc.random_direction(jax.random.fold_in(key, 1), state.position))
    new = jax.tree.map(lambda new, old: jnp.where(refused, old, new), new, back)
    return new, info, health._replace(refused_steps=health.refused_steps + refused)


def in_units(target: Target, inverse_mass: Position | None) -> Target:
    """Return the target in units whose squares are `inverse_mass`."""
    return target if inverse_mass is None else RescaledTarget(target=target, scale=jnp.sqrt(inverse_mass))


def to_target(position: Position, inverse_mass: Position | None) -> Position:
    """Return a position in the target's own units."""
    return position if inverse_mass is None else jnp.sqrt(inverse_mass) * position


def _change_units(carry: MileTuning) -> MileTuning:
    """Take the variances seen so far as the metric, and the step size along.

    What the tuner knew of the energy error belongs to the old units.
    """
    variance = carry.moments.deviation / jnp.where(carry.moments.weight > 0.0, carry.moments.weight, 1.0)
    inverse_mass, state = inverse_mass_from(variance), carry.state
    units = jnp.sqrt(inverse_mass)
    state = state._replace(position=state.position / units, gradient=state.gradient * units)
    step_size = _step_size.init(carry.step_size.value / jnp.sqrt(jnp.mean(inverse_mass)))
    return carry._replace(state=state, step_size=step_size, inverse_mass=inverse_mass)


def _status(
    phase: MileStepSizePhase | MileLengthPhase | MileSamplingPhase, carry: MileTuning | MileMeasuring | MileSampling
) -> Int[Array, ""]:
    health, state = carry.health, carry.state
    fall = health.start_logdensity - state.logdensity
    return jnp.select(
        [
            ~jnp.isfinite(health.start_logdensity),
            health.bad_steps > LARGEST_BAD_SHARE * phase.n_steps,
            fall > LARGEST_FALL_PER_DIMENSION * state.position.shape[0],
        ],
        [Status.NON_FINITE_START, Status.BAD_STEPS, Status.DIVERGED],
        Status.OK,
    )


def _report(
    phase: MileStepSizePhase | MileLengthPhase | MileSamplingPhase,
    carry: MileTuning | MileMeasuring | MileSampling,
    tuned: Tuned,
) -> dict[str, Array]:
    dimension = carry.state.position.shape[0]
    found = {} if tuned.inverse_mass is None else {"inverse_mass": tuned.inverse_mass}
    if phase.energy_limit is not None:
        found["refused_steps"] = carry.health.refused_steps.astype(tuned.step_size.dtype)
    return found | {
        "step_size": tuned.step_size,
        "L": tuned.L,
        "bad_steps": carry.health.bad_steps.astype(tuned.step_size.dtype),
        "energy_variance": carry.health.squared_energy / (dimension * phase.n_steps),
        "logdensity": carry.state.logdensity,
    }
