"""The phases of MCLMC as published: tune the step size, tune L, sample; the status says whether a chain was lost."""

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from mile._errors import Status
from mile._ess import effective_sample_size
from mile._types import Key, Position, Scalar, Target
from mile.samplers import _mclmc, _published
from mile.samplers._phases import LengthRecord, TuningRecord
from mile.samplers._published import Average, Guarded, PublishedMoments, PublishedMove, Unguarded
from mile.samplers.base import HISTORY, LARGEST_BAD_SHARE, LARGEST_FALL_PER_DIMENSION, SMALLEST_TRAVEL, Draw, Finished

_COLUMNS = 32  # coordinates whose autocorrelation is computed at a time


class Journal(NamedTuple):
    """Record of one chain: where it began, whether it is lost, and the counters of the current phase."""

    start_logdensity: Scalar
    lost: Bool[Array, ""]
    gradients: Scalar
    steps: Int[Array, ""]
    bad_steps: Int[Array, ""]
    first_bad_step: Int[Array, ""]  # -1: none
    squared_energy: Scalar  # of the steps that were finite


class NaiveTuning(NamedTuple):
    """Carry of the phases that tune the step size."""

    state: _mclmc.State
    scale: Position  # units of the coordinates
    step_size: Scalar
    average: Average
    moments: PublishedMoments
    journal: Journal


class NaiveChain(NamedTuple):
    """Carry of the sampling phase."""

    state: _mclmc.State
    scale: Position
    step_size: Scalar
    L: Scalar
    journal: Journal


class NaiveMeasuring(NamedTuple):
    """Carry of phase III: the chain, and what was seen of the chosen coordinates."""

    chain: NaiveChain
    coordinates: Int[Array, " coordinate"]
    samples: Float[Array, "capacity coordinate"]


_register_phase = partial(jax.tree_util.register_dataclass, drop_fields=["name"])


@partial(
    _register_phase,
    data_fields=["n_steps", "step_size", "start_factor", "shortest_length", "energy_variance", "memory", "trust"],
    meta_fields=["rule", "new_units"],
)
@dataclass(frozen=True, kw_only=True)
class NaiveStepSizePhase:
    """Phases I and II: adapt the step size; the variances seen since the phase began give L or the new units."""

    record: ClassVar[type] = TuningRecord
    name: str = ""
    n_steps: int
    step_size: float | None  # None: `start_factor` times the root of the dimension
    start_factor: float
    shortest_length: float
    energy_variance: float
    memory: float
    trust: float
    rule: Guarded | Unguarded
    new_units: bool = False  # whether it begins anew in the units that the phase before it has found

    @property
    def n_records(self) -> int:
        """A short history for plots."""
        return min(self.n_steps, HISTORY)

    def init(self, key: Key, carry: Position | NaiveTuning, target: Target) -> NaiveTuning:
        """Start from a position (phase I), or continue and estimate the variances anew."""
        if not isinstance(carry, NaiveTuning):
            return self._start(key, carry, target)
        if self.new_units:
            average = _published.init_average(carry.step_size)
            carry = carry._replace(scale=jnp.sqrt(carry.moments.variance), average=average)
        moments = _published.init_moments(carry.state.position)
        return carry._replace(moments=moments, journal=_turn_page(carry.journal))

    def _start(self, key: Key, position: Position, target: Target) -> NaiveTuning:
        state = _mclmc.init(key, position, target)
        step_size = self.start_factor * math.sqrt(len(position)) if self.step_size is None else self.step_size
        step_size = jnp.asarray(step_size, position.dtype)
        return NaiveTuning(
            state=state,
            scale=jnp.ones_like(position),
            step_size=step_size,
            average=_published.init_average(step_size),
            moments=_published.init_moments(position),
            journal=_open_journal(state.logdensity),
        )

    def step(self, key: Key, carry: NaiveTuning, target: Target) -> tuple[NaiveTuning, TuningRecord]:
        """Make one step, then learn from its energy change; with a step size of zero the chain never moves."""
        move = lambda carry: self._move(key, carry, target)  # noqa: E731
        carry = jax.lax.cond(carry.step_size > 0.0, move, lambda carry: carry, carry)
        average = carry.average
        variance = self.energy_variance * average.estimate / average.weight * carry.step_size**6
        return carry, TuningRecord(carry.step_size, variance, carry.state.logdensity)

    def _move(self, key: Key, carry: NaiveTuning, target: Target) -> NaiveTuning:
        length = _early_length(carry.scale, self.shortest_length)
        moved = self.rule.tune(key, carry.state, target, carry.scale, carry.step_size, length)
        step_size, average = _published.update_step_size(
            carry.average,
            carry.step_size,
            energy_change=moved.energy_change,
            kept=moved.kept,
            dimension=len(carry.scale),
            target=self.energy_variance,
            memory=self.memory,
            trust=self.trust,
        )
        # A position counts by the step that will lead on from it, as published.
        weight = jnp.where(moved.kept, step_size, 0.0)
        moments = self.rule.update_moments(carry.moments, moved.state.position, weight)
        return NaiveTuning(moved.state, carry.scale, step_size, average, moments, _note(carry.journal, moved))

    def finish(self, carry: NaiveTuning) -> Finished:
        """Report the step size and the length that the variances suggest."""
        length = _length_from_moments(carry)
        chain = NaiveChain(carry.state, carry.scale, carry.step_size, length, carry.journal)
        return Finished(carry, _status(chain.journal), _report(chain))


@partial(
    _register_phase,
    data_fields=["n_steps", "thinning", "factor", "shortest_length"],
    meta_fields=["capacity", "n_coordinates", "rule", "new_units"],
)
@dataclass(frozen=True, kw_only=True)
class NaiveLengthPhase:
    """Phase III: record coordinates and set L by their autocorrelation time."""

    record: ClassVar[type] = LengthRecord
    name: str = ""
    n_steps: int
    thinning: int  # steps between two samples
    factor: float
    shortest_length: float
    capacity: int  # samples
    n_coordinates: int
    rule: Guarded | Unguarded
    new_units: bool  # in which the length is the root of the dimension

    @property
    def n_records(self) -> int:
        """A short history for plots."""
        return min(self.n_steps, HISTORY)

    def init(self, key: Key, carry: NaiveTuning, target: Target) -> NaiveMeasuring:
        """Choose the coordinates before the first step, so that nothing else is stored."""
        dimension = len(carry.scale)
        coordinates = jnp.arange(dimension)
        if dimension > self.n_coordinates:
            coordinates = jnp.sort(jax.random.permutation(key, dimension)[: self.n_coordinates])
        length = _early_length(carry.scale, self.shortest_length) if self.new_units else _length_from_moments(carry)
        return NaiveMeasuring(
            chain=NaiveChain(carry.state, carry.scale, carry.step_size, length, _turn_page(carry.journal)),
            coordinates=coordinates,
            samples=jnp.zeros((self.capacity, len(coordinates)), carry.scale.dtype),
        )

    def step(self, key: Key, carry: NaiveMeasuring, target: Target) -> tuple[NaiveMeasuring, LengthRecord]:
        """Make one step with the tuned step size and remember the chosen coordinates."""
        slot = carry.chain.journal.steps // self.thinning
        chain, energy_change = _sample(self.rule, key, carry.chain, target)
        samples = carry.samples.at[slot].set(chain.state.position[carry.coordinates], mode="drop")
        return carry._replace(chain=chain, samples=samples), LengthRecord(chain.state.logdensity, energy_change)

    def finish(self, carry: NaiveMeasuring) -> Finished:
        """Set L from the autocorrelation time."""
        chain = carry.chain
        sizes = jax.lax.map(effective_sample_size, carry.samples.T, batch_size=_COLUMNS)
        length = self.rule.length(self.n_steps / sizes, self.factor * chain.step_size, chain.L)
        chain = chain._replace(L=jnp.where(chain.journal.lost, jnp.nan, length))
        return Finished(chain, _status(chain.journal), _report(chain))


@partial(_register_phase, data_fields=["n_steps", "n_records"], meta_fields=["rule"])
@dataclass(frozen=True, kw_only=True)
class NaiveSamplingPhase:
    """Sampling with everything fixed; a chain that is lost keeps recording the last position that was finite."""

    name: str = ""
    n_steps: int
    n_records: int
    rule: Guarded | Unguarded

    def init(self, key: Key, carry: NaiveChain, target: Target) -> NaiveChain:
        """Continue where tuning stopped, velocity included."""
        return carry._replace(journal=_turn_page(carry.journal))

    def step(self, key: Key, carry: NaiveChain, target: Target) -> tuple[NaiveChain, Draw]:
        """Make one step."""
        carry, energy_change = _sample(self.rule, key, carry, target)
        return carry, Draw(carry.state.position, carry.state.logdensity, energy_change)

    def finish(self, carry: NaiveChain) -> Finished:
        """Judge the chain by how it samples; bad tuning alone is no reason to discard it."""
        travel = carry.step_size * self.n_steps / carry.L
        fall = carry.journal.start_logdensity - carry.state.logdensity
        status = jnp.select(
            [
                carry.journal.lost,
                carry.journal.bad_steps > LARGEST_BAD_SHARE * self.n_steps,
                fall > LARGEST_FALL_PER_DIMENSION * len(carry.scale),
                ~(travel >= SMALLEST_TRAVEL),
            ],
            [_status(carry.journal), Status.BAD_STEPS, Status.DIVERGED, Status.FROZEN],
            Status.OK,
        )
        return Finished(carry, status, _report(carry) | {"travel": travel})


def _sample(rule: Guarded | Unguarded, key: Key, chain: NaiveChain, target: Target) -> tuple[NaiveChain, Scalar]:
    """Make one step and return also its energy change; a chain that is lost stays where it is and costs nothing."""

    def move(chain: NaiveChain) -> tuple[NaiveChain, Scalar]:
        moved = rule.sample(key, chain.state, target, chain.scale, chain.step_size, chain.L)
        return chain._replace(state=moved.state, journal=_note(chain.journal, moved)), moved.energy_change

    return jax.lax.cond(chain.journal.lost, lambda chain: (chain, jnp.zeros_like(chain.step_size)), move, chain)


def _early_length(scale: Position, shortest: float) -> Scalar:
    return jnp.maximum(jnp.asarray(math.sqrt(len(scale)), scale.dtype), shortest)


def _length_from_moments(carry: NaiveTuning) -> Scalar:
    """Return the root of the summed variances; NaN if the step size was zero throughout."""
    length = jnp.sqrt(jnp.sum(carry.moments.variance))
    return jnp.where(carry.moments.weight > 0.0, length, jnp.nan)


def _open_journal(logdensity: Scalar) -> Journal:
    zero, none = jnp.zeros((), jnp.int32), jnp.full((), -1, jnp.int32)
    number = jnp.zeros_like(logdensity)
    lost = ~jnp.isfinite(logdensity)
    return Journal(logdensity, lost, number + 1.0, zero, zero, none, number)


def _turn_page(journal: Journal) -> Journal:
    """Begin the counters of a new phase."""
    blank = _open_journal(journal.start_logdensity)
    return blank._replace(lost=journal.lost, gradients=jnp.zeros_like(journal.gradients))


def _note(journal: Journal, moved: PublishedMove) -> Journal:
    is_first = ~moved.finite & (journal.first_bad_step < 0)
    return journal._replace(
        lost=journal.lost | moved.lost,
        gradients=journal.gradients + _mclmc.GRADIENTS_PER_STEP,
        steps=journal.steps + 1,
        bad_steps=journal.bad_steps + ~moved.finite,
        first_bad_step=jnp.where(is_first, journal.steps, journal.first_bad_step),
        squared_energy=journal.squared_energy + jnp.where(moved.finite, jnp.square(moved.energy_change), 0.0),
    )


def _status(journal: Journal) -> Int[Array, ""]:
    failure = jnp.where(jnp.isfinite(journal.start_logdensity), Status.NON_FINITE, Status.NON_FINITE_START)
    return jnp.where(journal.lost, failure, Status.OK)


def _report(chain: NaiveChain) -> dict[str, Scalar]:
    journal, dtype = chain.journal, chain.step_size.dtype
    first_bad_step = journal.first_bad_step.astype(dtype)
    return {
        "step_size": chain.step_size,
        "L": chain.L,
        "bad_steps": journal.bad_steps.astype(dtype),
        "first_bad_step": jnp.where(journal.first_bad_step < 0, jnp.nan, first_bad_step),
        "energy_variance": journal.squared_energy / (len(chain.scale) * jnp.maximum(journal.steps, 1)),
        "logdensity": chain.state.logdensity,
        "gradient_evaluations": journal.gradients,
    }
