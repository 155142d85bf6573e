"""Proposals of adjusted MCLMC: microcanonical trajectories of random length, each accepted or not at its end.

A step is one of the integrator, and where a trajectory ends the next begins: the cost is fixed, and chains that share a
program never wait for each other's trajectories. The last draw accepted is a fair one at any step, because how long
trajectories are depends only on their own random numbers.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from mile._types import Count, Key, Position, Scalar, Target
from mile.posterior import RescaledTarget
from mile.samplers import _mclmc

# Dual averaging: Hoffman and Gelman (2014) but for the gain, a quarter of theirs, because MILE's step size is a good
# start and a step size far too small is expensive: trajectories then take their largest number of steps.
_GAIN, _DELAY, _FORGETTING = 5.0, 10.0, 0.75


class ProposalTally(NamedTuple):
    """What is counted in a phase."""

    proposals: Int[Array, ""]
    moves: Int[Array, ""]  # proposals that led to another point
    bad: Int[Array, ""]  # proposals that were not finite
    acceptance: Scalar  # sum of probabilities
    squared_energy: Scalar


class Walk(NamedTuple):
    """One chain in units of its own: the last draw, and the current trajectory from it."""

    draw: _mclmc.State
    moving: _mclmc.State
    energy_change: Scalar  # of the trajectory so far
    finite: Bool[Array, ""]  # whether it was so far
    steps_left: Int[Array, ""]
    last_energy_change: Scalar  # of the last proposal
    unit: Position
    start_logdensity: Scalar
    tally: ProposalTally


class Averaging(NamedTuple):
    """Dual averaging of the logarithm of the step size."""

    log_step_size: Scalar
    log_average: Scalar
    error: Scalar  # sum of wanted minus found acceptance
    count: Scalar
    center: Scalar


def expected_steps(step_size: Scalar, length: Scalar, longest: Count) -> Scalar:
    """Return the mean number of steps of trajectories of a length, at least one and at most `longest`."""
    return jnp.clip(length / step_size, 1.0, longest)


def _number_of_steps(uniform: Scalar, mean: Scalar) -> Int[Array, ""]:
    """Return a random number of steps, uniform except for the largest, with expectation `mean`."""
    largest = jnp.floor(2.0 * mean - 1.0)
    width = largest + largest * (mean - 0.5 * (largest + 1.0)) / (largest + 1.0 - mean)
    return jnp.maximum(jnp.ceil(uniform * width), 1.0).astype(jnp.int32)


def start(key: Key, walk: Walk, mean_steps: Scalar) -> Walk:
    """Start a trajectory from the current draw in a fresh direction."""
    key_direction, key_length = jax.random.split(key)
    velocity = _mclmc.random_direction(key_direction, walk.draw.position)
    uniform = jax.random.uniform(key_length, (), mean_steps.dtype)
    return walk._replace(
        moving=walk.draw._replace(velocity=velocity),
        energy_change=jnp.zeros_like(walk.energy_change),
        finite=jnp.ones((), bool),
        steps_left=_number_of_steps(uniform, mean_steps),
    )


def advance(
    key: Key, walk: Walk, target: Target, step_size: Scalar, mean_steps: Scalar
) -> tuple[Walk, Bool[Array, ""], Scalar]:
    """Make one step of the integrator; return also whether the trajectory ended, and its acceptance probability."""
    new, kinetic_change = _mclmc.minimal_norm(walk.moving, RescaledTarget(target=target, scale=walk.unit), step_size)
    energy_change = walk.energy_change + kinetic_change - new.logdensity + walk.moving.logdensity
    finite = (
        walk.finite
        & jnp.isfinite(jnp.square(energy_change))
        & jnp.isfinite(jnp.sum(new.position) + jnp.sum(new.velocity) + jnp.sum(new.gradient))
    )
    energy_change = jnp.where(finite, energy_change, 0.0)
    probability = jnp.where(finite, jnp.exp(-jnp.maximum(energy_change, 0.0)), 0.0)
    walk = walk._replace(
        # If not finite it stays where it was: ending it would make its length depend on where it began.
        moving=jax.tree.map(lambda new, old: jnp.where(finite, new, old), new, walk.moving),
        energy_change=energy_change,
        finite=finite,
        steps_left=walk.steps_left - 1,
    )
    ended = walk.steps_left == 0
    walk = jax.lax.cond(ended, partial(_decide, key), lambda walk, *_: walk, walk, probability, mean_steps)
    return walk, ended, probability


def _decide(key: Key, walk: Walk, probability: Scalar, mean_steps: Scalar) -> Walk:
    """Accept or reject the end of a trajectory, and start the next."""
    key_accept, key_start = jax.random.split(key)
    accepted = jax.random.uniform(key_accept, (), probability.dtype) < probability
    draw = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), walk.moving, walk.draw)
    tally = walk.tally
    tally = ProposalTally(
        proposals=tally.proposals + 1,
        moves=tally.moves + jnp.any(draw.position != walk.draw.position),
        bad=tally.bad + ~walk.finite,
        acceptance=tally.acceptance + probability,
        squared_energy=tally.squared_energy + jnp.square(walk.energy_change),
    )
    return start(key_start, walk._replace(draw=draw, last_energy_change=walk.energy_change, tally=tally), mean_steps)


def renew(walk: Walk) -> Walk:
    """Reset the counters."""
    return walk._replace(tally=jax.tree.map(jnp.zeros_like, walk.tally))


def acceptance(tally: ProposalTally) -> Scalar:
    """Return the mean probability of acceptance."""
    return tally.acceptance / jnp.maximum(tally.proposals, 1)


def start_averaging(step_size: Scalar) -> Averaging:
    """Begin with a step size; it is also what the average is drawn to."""
    log, zero = jnp.log(step_size), jnp.zeros_like(step_size)
    return Averaging(log, log, zero, zero, log)


def average(averaging: Averaging, error: Scalar) -> Averaging:
    """Take in one error; dual averaging as in Hoffman and Gelman (2014), equation 6."""
    count = averaging.count + 1.0
    error = averaging.error + error
    log_step_size = averaging.center - _GAIN * jnp.sqrt(count) / (count + _DELAY) * error
    log_step_size = jnp.maximum(log_step_size, jnp.log(jnp.finfo(error.dtype).tiny))  # zero would be for good
    share = count**-_FORGETTING
    log_average = share * log_step_size + (1.0 - share) * averaging.log_average
    return Averaging(log_step_size, log_average, error, count, averaging.center)
