"""The published tuner of MCLMC, number by number, and the two published ways to treat a step that is not finite.

`samplers/_step_size.py`, `_decoherence.py` and `_mclmc.py` are the same ideas made safe; this file keeps what makes
chains fail, so that failures can be counted. It follows BlackJAX 1.7 and the code of the MILE paper (2c6dd8d).
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from mile._types import Key, Number, Position, Scalar, Target
from mile.posterior import RescaledTarget
from mile.samplers import _mclmc
from mile.samplers._mclmc import State

_ENERGY_FLOOR = 1e-8  # keeps the logarithm of a zero error finite
_SHRINK = 0.8  # after a step that is not finite
_SMALLEST_NORM = 1e-13  # a shorter vector is not normalized
# The scheme B A B A B of `_mclmc.integrate`: how far each kick turns, and whether the chain moves after it.
_B1 = 0.1931833275037836
_KICKS = ((_B1, True), (1.0 - 2.0 * _B1, True), (_B1, False))


class Average(NamedTuple):
    """The running average behind the step size; `estimate` / `weight` is the constant in the sixth-power law."""

    weight: Scalar
    estimate: Scalar
    largest: Scalar


def init_average(like: Scalar) -> Average:
    """Start with nothing known."""
    zero = jnp.zeros_like(like)
    return Average(zero, zero, jnp.full_like(like, jnp.inf))


def update_step_size(
    average: Average,
    step_size: Scalar,
    *,
    energy_change: Scalar,
    kept: Bool[Array, ""],
    dimension: int,
    target: Number,
    memory: Number,
    trust: Number,
) -> tuple[Scalar, Average]:
    """Take in one step's energy change; return the next step size.

    Three weaknesses are the original's. A step that was not kept comes with energy change zero and so has weight
    exp(-(ln 1e-8 / 9)^2 / 2) = 0.12. An energy change whose square overflows has weight zero and value infinity,
    which makes the average NaN for good. And a step size equal to the largest one allowed, or NaN, becomes zero.
    """
    relative = jnp.square(energy_change) / (dimension * target) + _ENERGY_FLOOR
    weight = jnp.exp(-0.5 * jnp.square(jnp.log(relative) / (6.0 * trust)))
    decay = (memory - 1.0) / (memory + 1.0)
    estimate = decay * average.estimate + weight * (relative / step_size**6)
    total = decay * average.weight + weight
    largest = jnp.where(kept, average.largest, _SHRINK * step_size)
    wanted = (estimate / total) ** (-1.0 / 6.0)
    # Written as (wanted < largest) * wanted + (wanted > largest) * largest, which XLA turns into this.
    value = jnp.where(wanted < largest, wanted, jnp.where(wanted > largest, largest, 0.0))
    return value, Average(total, estimate, largest)


class PublishedMoments(NamedTuple):
    """Weighted running means of positions and of their squares."""

    weight: Scalar
    mean: Position
    square: Position

    @property
    def variance(self) -> Position:
        """E[x^2] - E[x]^2, which rounding makes negative where the mean dwarfs the spread."""
        return self.square - jnp.square(self.mean)


def init_moments(position: Position) -> PublishedMoments:
    """Start with no observations."""
    return PublishedMoments(jnp.zeros((), position.dtype), jnp.zeros_like(position), jnp.zeros_like(position))


class PublishedMove(NamedTuple):
    """What one step gave.

    Attributes
    ----------
    state
        Where the chain stands now; for a chain that is lost, where it was last finite.
    energy_change
        As the tuner sees it.
    kept
        Whether the rule took the step for a good one.
    finite
        Whether it was one: all numbers finite, and the square of the energy change too.
    lost
        Whether nothing can bring the chain back.
    """

    state: State
    energy_change: Scalar
    kept: Bool[Array, ""]
    finite: Bool[Array, ""]
    lost: Bool[Array, ""]


@jax.tree_util.register_static
@dataclass(frozen=True)
class Guarded:
    """BlackJAX 1.7: in all phases a step that is not finite is reverted and the chain takes a fresh direction."""

    def tune(
        self, key: Key, state: State, target: Target, scale: Position, step_size: Scalar, L: Scalar
    ) -> PublishedMove:
        """Make one step."""
        noise_key, direction_key = jax.random.split(key)
        noise = jax.random.normal(noise_key, (2, *state.position.shape), state.position.dtype)
        scaled = RescaledTarget(target=target, scale=scale)
        proposal, kinetic_change = _mclmc.integrate(noise, _inner(state, scale), scaled, step_size, L)
        proposal = _outer(proposal, scale)
        energy_change = kinetic_change - proposal.logdensity + state.logdensity
        kept = _is_finite(proposal) & jnp.isfinite(energy_change)
        reverted = state._replace(velocity=_mclmc.random_direction(direction_key, state.position))
        new_state = jax.tree.map(lambda new, old: jnp.where(kept, new, old), proposal, reverted)
        finite = kept & jnp.isfinite(jnp.square(energy_change))
        return PublishedMove(new_state, jnp.where(kept, energy_change, 0.0), kept, finite, jnp.zeros_like(kept))

    sample = tune

    def update_moments(self, moments: PublishedMoments, position: Position, weight: Scalar) -> PublishedMoments:
        """Take in one position; nothing with weight zero leaves a zero."""
        return _update_moments(moments, position, weight, jnp.zeros_like(weight))

    def length(self, times: Float[Array, " coordinate"], factor: Scalar, previous: Scalar) -> Scalar:
        """Return `factor` times the mean of the finite autocorrelation times, or what was there before."""
        finite = jnp.isfinite(times)
        return jnp.where(finite.any(), factor * jnp.mean(times, where=finite), previous)


@jax.tree_util.register_static
@dataclass(frozen=True)
class Unguarded:
    """The paper's code: while the step size is tuned only positions are checked, afterwards nothing is."""

    def tune(
        self, key: Key, state: State, target: Target, scale: Position, step_size: Scalar, L: Scalar
    ) -> PublishedMove:
        """Make one step; it is kept if the position is finite, whatever else is NaN then becomes zero."""
        proposal, energy_change, finite = _published_step(key, state, target, scale, step_size, L)
        kept = jnp.all(jnp.isfinite(proposal.position))
        new_state = jax.tree.map(lambda new, old: jnp.where(kept, jnp.nan_to_num(new), old), proposal, state)
        energy_change = jnp.where(kept, jnp.nan_to_num(energy_change), 0.0)
        return PublishedMove(new_state, energy_change, kept, finite, jnp.zeros_like(kept))

    def sample(
        self, key: Key, state: State, target: Target, scale: Position, step_size: Scalar, L: Scalar
    ) -> PublishedMove:
        """Make one step; from a point that is not finite there is no way back."""
        proposal, energy_change, finite = _published_step(key, state, target, scale, step_size, L)
        kept = _is_finite(proposal)
        new_state = jax.tree.map(lambda new, old: jnp.where(kept, new, old), proposal, state)
        # Out of a place of infinite energy, into which tuning may have moved, the change is not a number.
        energy_change = jnp.where(kept & jnp.isfinite(energy_change), energy_change, 0.0)
        return PublishedMove(new_state, energy_change, kept, finite, ~kept)

    def update_moments(self, moments: PublishedMoments, position: Position, weight: Scalar) -> PublishedMoments:
        """Take in one position; if the first has weight zero, the mean is NaN for good."""
        return _update_moments(moments, position, weight, jnp.full_like(weight, jnp.nan))

    def length(self, times: Float[Array, " coordinate"], factor: Scalar, previous: Scalar) -> Scalar:
        """Return `factor` times the mean autocorrelation time; one that is not finite is not left out."""
        return factor * jnp.mean(times)


def _published_step(
    key: Key, state: State, target: Target, scale: Position, step_size: Scalar, L: Scalar
) -> tuple[State, Scalar, Bool[Array, ""]]:
    """Make one step as BlackJAX 1.2.2 did: no guards, and the plain form of the kinetic energy change.

    It differs from `_mclmc.integrate` where numbers overflow. A gradient with an infinite norm leaves a velocity of
    zero, so the position stays finite and the step is taken for a good one, with an infinite energy change.
    """
    noise = jax.random.normal(key, (2, *state.position.shape), state.position.dtype)
    scaled = RescaledTarget(target=target, scale=scale)
    position, velocity, logdensity, gradient = _inner(state, scale)
    velocity, kinetic_change = _refresh(noise[0], velocity, step_size, L), jnp.zeros_like(logdensity)
    for duration, moves in _KICKS:
        velocity, change = _kick(velocity, gradient, duration * step_size)
        kinetic_change += change
        if moves:
            position = position + 0.5 * step_size * velocity
            logdensity, gradient = scaled.value_and_grad(position)
    velocity = _refresh(noise[1], velocity, step_size, L)
    proposal = _outer(State(position, velocity, logdensity, gradient), scale)
    energy_change = kinetic_change - logdensity + state.logdensity
    return proposal, energy_change, _is_finite(proposal) & jnp.isfinite(jnp.square(energy_change))


def _kick(velocity: Position, gradient: Position, duration: Scalar) -> tuple[Position, Scalar]:
    dimension = velocity.shape[0]
    norm = jnp.sqrt(gradient @ gradient)
    direction = jnp.where(norm > _SMALLEST_NORM, gradient / norm, gradient)
    cosine = velocity @ direction
    delta = duration * norm / (dimension - 1)
    zeta = jnp.exp(-delta)
    turned = direction * ((1.0 - zeta) * (1.0 + zeta + cosine * (1.0 - zeta))) + 2.0 * zeta * velocity
    length = jnp.sqrt(turned @ turned)
    change = delta - jnp.log(2.0) + jnp.log(1.0 + cosine + (1.0 - cosine) * jnp.square(zeta))
    return jnp.where(length > _SMALLEST_NORM, turned / length, turned), (dimension - 1) * change


def _refresh(noise: Position, velocity: Position, step_size: Scalar, L: Scalar) -> Position:
    refreshed = velocity + jnp.sqrt(jnp.expm1(step_size / L) / velocity.shape[0]) * noise
    return refreshed / jnp.sqrt(refreshed @ refreshed)


def _inner(state: State, scale: Position) -> State:
    """Change from the target's coordinates, in which chains are kept, to those in which they move."""
    return state._replace(position=state.position / scale, gradient=state.gradient * scale)


def _outer(state: State, scale: Position) -> State:
    return state._replace(position=state.position * scale, gradient=state.gradient / scale)


def _update_moments(moments: PublishedMoments, position: Position, weight: Scalar, nothing: Scalar) -> PublishedMoments:
    total = moments.weight + weight

    def mean(old: Position, new: Position) -> Position:
        return jnp.where(total == 0.0, nothing, (moments.weight * old + weight * new) / total)

    return PublishedMoments(total, mean(moments.mean, position), mean(moments.square, jnp.square(position)))


def _is_finite(state: State) -> Bool[Array, ""]:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in state]))
