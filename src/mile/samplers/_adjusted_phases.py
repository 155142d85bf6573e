"""The phases of adjusted MCLMC: learn the metric, the length of trajectories and the step size, then sample.

A step of a phase is one of the integrator, not a whole proposal; see `_trajectories.py`.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from mile._errors import Status
from mile._types import Key, Position, Scalar, Target
from mile.samplers import _mclmc, _trajectories, _virial
from mile.samplers._decoherence import Moments, init_moments, length_from_autocorrelation, update_moments
from mile.samplers._phases import MileTuning
from mile.samplers._virial import Virial
from mile.samplers.base import HISTORY, LARGEST_FALL_PER_DIMENSION, Draw, Finished, inverse_mass_from

_SMALLEST_MOVING_SHARE = 0.01  # of the proposals; a chain that moves more rarely has failed
_CAUTION = 0.3  # first step size to try, relative to MILE's, whose energy error is far larger


class AdjustedAdapting(NamedTuple):
    """Carry of the adaptation; moments and samples are of the draws since the phase began."""

    walk: _trajectories.Walk
    averaging: _trajectories.Averaging
    L: Scalar
    moments: Moments
    gradients: Moments
    coordinates: Int[Array, " coordinate"]
    samples: Float[Array, "capacity coordinate"]  # as many as there were proposals, the rest is unused


class AdjustedSampling(NamedTuple):
    """Carry of the sampling phase."""

    walk: _trajectories.Walk
    step_size: Scalar
    L: Scalar
    virial: Virial


class AdjustmentRecord(NamedTuple):
    """History of the adaptation."""

    step_size: Scalar
    acceptance: Scalar  # mean over the phase so far
    logdensity: Scalar


_register_phase = partial(jax.tree_util.register_dataclass, drop_fields=["name"])


@partial(
    _register_phase,
    data_fields=["n_steps", "longest", "target_acceptance", "length_factor", "sets_metric", "sets_length"],
    meta_fields=["n_coordinates", "capacity"],
)
@dataclass(frozen=True, kw_only=True)
class AdjustedAdaptationPhase:
    """Adapt the step size by dual averaging, and collect statistics for the metric and the length."""

    record: ClassVar[type] = AdjustmentRecord
    name: str = ""
    n_steps: int
    longest: int  # mean number of steps of a trajectory that its length may ask for
    target_acceptance: float
    length_factor: float
    sets_metric: bool  # whether it begins with a metric from the draws of the phase before
    sets_length: bool  # whether it ends with a length from the autocorrelation of its own
    n_coordinates: int
    capacity: int  # room for samples; later ones are not used

    @property
    def n_records(self) -> int:
        """A short history for plots."""
        return min(self.n_steps, HISTORY)

    def init(self, key: Key, carry: MileTuning | AdjustedAdapting, target: Target) -> AdjustedAdapting:
        """Begin with MILE's chain, or continue with the chain of the phase before."""
        key_walk, key_choice = jax.random.split(key)
        known = self._from_mile(key_choice, carry) if isinstance(carry, MileTuning) else carry
        adapting = jax.tree.map(lambda new, old: jnp.where(self.sets_metric, new, old), _set_metric(known), known)
        step_size = jnp.exp(adapting.averaging.log_average)
        nothing = init_moments(adapting.walk.draw.position)
        return adapting._replace(
            walk=_trajectories.start(
                key_walk,
                _trajectories.renew(adapting.walk),
                _trajectories.expected_steps(step_size, adapting.L, self.longest),
            ),
            averaging=_trajectories.start_averaging(step_size),
            moments=nothing,
            gradients=nothing,
            samples=jnp.zeros_like(adapting.samples),
        )

    def step(self, key: Key, carry: AdjustedAdapting, target: Target) -> tuple[AdjustedAdapting, AdjustmentRecord]:
        """Make one step of a trajectory, and learn where it ends."""
        step_size = jnp.exp(carry.averaging.log_step_size)
        mean_steps = _trajectories.expected_steps(step_size, carry.L, self.longest)
        slot = carry.walk.tally.proposals
        walk, ended, probability = _trajectories.advance(key, carry.walk, target, step_size, mean_steps)
        # Every step writes to its proposal's slot; the last one stays.
        samples = carry.samples.at[slot].set(walk.draw.position[carry.coordinates], mode="drop")
        averaging = _trajectories.average(carry.averaging, self.target_acceptance - probability)
        averaging = jax.tree.map(lambda new, old: jnp.where(ended, new, old), averaging, carry.averaging)
        moments, gradients = jax.lax.cond(
            ended, _gather, lambda *known: known[:2], carry.moments, carry.gradients, walk.draw
        )
        carry = AdjustedAdapting(walk, averaging, carry.L, moments, gradients, carry.coordinates, samples)
        record = AdjustmentRecord(
            jnp.exp(averaging.log_step_size), _trajectories.acceptance(walk.tally), walk.draw.logdensity
        )
        return carry, record

    def finish(self, carry: AdjustedAdapting) -> Finished:
        """Hand on the averaged step size, and the length if it is to be set and can be measured."""
        count = jnp.minimum(carry.walk.tally.proposals, self.capacity)
        length, measured = length_from_autocorrelation(carry.samples, count, 1, carry.L, carry.L, self.length_factor)
        measured = measured & self.sets_length
        carry = carry._replace(L=jnp.where(measured, length, carry.L))
        report = _report(carry.walk, jnp.exp(carry.averaging.log_average), carry.L)
        return Finished(carry, _status(carry.walk), report | {"L_measured": measured.astype(length.dtype)})

    def _from_mile(self, key: Key, carry: MileTuning) -> AdjustedAdapting:
        """Turn MILE's chain at the end of phase II into one to be adapted, in the target's units."""
        position, zero = carry.state.position, jnp.zeros_like(carry.state.logdensity)
        dimension = position.shape[0]
        coordinates, count = jnp.arange(dimension), jnp.zeros((), jnp.int32)
        if dimension > self.n_coordinates:
            coordinates = jnp.sort(jax.random.permutation(key, dimension)[: self.n_coordinates])
        walk = _trajectories.Walk(
            draw=carry.state,
            moving=carry.state,
            energy_change=zero,
            finite=jnp.ones((), bool),
            steps_left=jnp.ones((), jnp.int32),
            last_energy_change=zero,
            unit=jnp.ones_like(position),
            start_logdensity=carry.health.start_logdensity,
            tally=_trajectories.ProposalTally(count, count, count, zero, zero),
        )
        return AdjustedAdapting(
            walk=walk,
            averaging=_trajectories.start_averaging(_CAUTION * carry.step_size.value),
            L=jnp.full_like(zero, math.sqrt(dimension)),
            moments=carry.moments,
            gradients=init_moments(position),
            coordinates=coordinates,
            samples=jnp.zeros((self.capacity, coordinates.shape[0]), position.dtype),
        )


@partial(_register_phase, data_fields=["n_steps", "n_records", "longest"], meta_fields=[])
@dataclass(frozen=True, kw_only=True)
class AdjustedSamplingPhase:
    """Sampling with everything fixed."""

    name: str = ""
    n_steps: int
    n_records: int
    longest: int

    def init(self, key: Key, carry: AdjustedAdapting, target: Target) -> AdjustedSampling:
        """Begin a trajectory from where the adaptation stopped."""
        step_size = jnp.exp(carry.averaging.log_average)
        walk = _trajectories.start(
            key, _trajectories.renew(carry.walk), _trajectories.expected_steps(step_size, carry.L, self.longest)
        )
        return AdjustedSampling(walk, step_size, carry.L, _virial.init(walk.unit))

    def step(self, key: Key, carry: AdjustedSampling, target: Target) -> tuple[AdjustedSampling, Draw]:
        """Make one step of a trajectory; the draw is the last one accepted."""
        mean_steps = _trajectories.expected_steps(carry.step_size, carry.L, self.longest)
        walk, _, _ = _trajectories.advance(key, carry.walk, target, carry.step_size, mean_steps)
        draw = Draw(walk.unit * walk.draw.position, walk.draw.logdensity, walk.last_energy_change)
        virial = _virial.update(carry.virial, walk.draw, self.n_steps, self.n_records)
        return carry._replace(walk=walk, virial=virial), draw

    def finish(self, carry: AdjustedSampling) -> Finished:
        """Judge the chain."""
        virial = _virial.ratio(carry.virial, self.n_steps, self.n_records)
        tally, status = carry.walk.tally, _status(carry.walk)
        frozen = tally.moves <= _SMALLEST_MOVING_SHARE * tally.proposals
        status = jnp.where((status == Status.OK) & frozen, Status.FROZEN, status)
        return Finished(carry, status, _report(carry.walk, carry.step_size, carry.L) | {"virial": virial})


def _set_metric(carry: AdjustedAdapting) -> AdjustedAdapting:
    """Take the spread of the draws so far as units, and as length the one that suits a normal distribution."""
    walk = carry.walk
    change = _spread(carry.moments, carry.gradients)
    draw = walk.draw._replace(position=walk.draw.position / change, gradient=walk.draw.gradient * change)
    step_size = jnp.exp(carry.averaging.log_average) / jnp.sqrt(jnp.mean(jnp.square(change)))
    return carry._replace(
        walk=walk._replace(draw=draw, unit=walk.unit * change),
        averaging=_trajectories.start_averaging(step_size),
        L=jnp.full_like(step_size, math.sqrt(change.shape[0])),
    )


def _spread(moments: Moments, gradients: Moments) -> Position:
    """Return the scale of each coordinate: the root of its standard deviation over that of its gradient.

    For a normal with independent coordinates that is the standard deviation. Where draws have not gone far, both
    numbers are too small and their ratio is right, which a standard deviation alone is not. Without gradients, or if
    they never changed, the standard deviation is used.
    """
    variance, steepness = (each.deviation / jnp.maximum(each.weight, 1e-30) for each in (moments, gradients))
    both = (steepness > 0.0) & (gradients.weight > 0.0)
    squared = jnp.where(both, jnp.sqrt(variance / jnp.where(both, steepness, 1.0)), variance)
    return jnp.sqrt(inverse_mass_from(squared))


def _gather(moments: Moments, gradients: Moments, draw: _mclmc.State) -> tuple[Moments, Moments]:
    weight = jnp.ones_like(draw.logdensity)
    return update_moments(moments, draw.position, weight), update_moments(gradients, draw.gradient, weight)


def _status(walk: _trajectories.Walk) -> Int[Array, ""]:
    fall = walk.start_logdensity - walk.draw.logdensity
    return jnp.select(
        [
            ~jnp.isfinite(walk.start_logdensity),
            fall > LARGEST_FALL_PER_DIMENSION * walk.draw.position.shape[0],
        ],
        [Status.NON_FINITE_START, Status.DIVERGED],
        Status.OK,
    )


def _report(walk: _trajectories.Walk, step_size: Scalar, length: Scalar) -> dict[str, Array]:
    tally, dtype = walk.tally, step_size.dtype
    return {
        "step_size": step_size,
        "L": length,
        "inverse_mass": jnp.square(walk.unit),
        "proposals": tally.proposals.astype(dtype),
        "bad_proposals": tally.bad.astype(dtype),
        "acceptance": _trajectories.acceptance(tally),
        "energy_variance": tally.squared_energy
        / (jnp.maximum(tally.proposals, 1) * walk.draw.position.shape[0]).astype(dtype),
        "logdensity": walk.draw.logdensity,
    }
