"""Microcanonical Langevin dynamics: the isokinetic integrator with partial refreshment of the velocity.

One step on a flat vector costs two gradients. BlackJAX's kernel is the oracle in the tests; ours exists
because the library's costs several times the arithmetic at the size of these networks (pytrees, three
key splits, one branch per guard).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from mile._types import Key, Position, Scalar, Target

GRADIENTS_PER_STEP = 2
# Minimal-norm coefficients of the scheme B A B A B (McLachlan 1995; Takaishi and de Forcrand 2006).
_B1 = 0.1931833275037836
_B2 = 1.0 - 2.0 * _B1
_A = 0.5
_SMALLEST_GRADIENT = 1e-13  # below it the direction of the gradient is rounding noise


class State(NamedTuple):
    """One chain: position, velocity, log density and gradient."""

    position: Position
    velocity: Position
    logdensity: Scalar
    gradient: Position


class Info(NamedTuple):
    """What one step did; a step that was not finite is reverted and has no energy change."""

    energy_change: Scalar
    finite: Bool[Array, ""]


def init(key: Key, position: Position, target: Target) -> State:
    """Start a chain at `position` with a uniformly random direction."""
    logdensity, gradient = target.value_and_grad(position)
    return State(position, random_direction(key, position), logdensity, gradient)


def step(key: Key, state: State, target: Target, step_size: Scalar, L: Scalar | float) -> tuple[State, Info]:
    """Advance one chain by one step.

    If position, velocity, log density or the square of the energy change is not finite afterwards, the
    chain stays where it was and continues in a fresh direction.
    """
    native_step = target.native_step(key, state.position)
    if native_step is None:
        return _step(key, state, target, step_size, L)

    def in_one_call(key: Key, state: State, step_size: Scalar, L: Scalar, _: Target) -> tuple[State, Info]:
        *new_state, energy_change, finite = native_step(key, state, step_size, L)
        return State(*new_state), Info(energy_change, finite)

    def by_parts(key: Key, state: State, step_size: Scalar, L: Scalar, target: Target) -> tuple[State, Info]:
        return _step(key, state, target, step_size, L)

    step_size, L = (jnp.asarray(number, state.position.dtype) for number in (step_size, L))
    return jax.lax.platform_dependent(key, state, step_size, L, target, cpu=in_one_call, default=by_parts)


def _step(key: Key, state: State, target: Target, step_size: Scalar, L: Scalar | float) -> tuple[State, Info]:
    dtype = state.position.dtype
    noise = jax.random.normal(key, (2, *state.position.shape), dtype)
    proposal, kinetic_change = integrate(noise, state, target, step_size, L)
    energy_change = kinetic_change - proposal.logdensity + state.logdensity
    # A non-finite entry of position or gradient reaches the velocity, whose norm shows it.
    # Tuning averages squared energy changes, so one whose square overflows is as bad as infinity.
    finite = jnp.isfinite(jnp.square(energy_change)) & jnp.isfinite(
        jnp.sum(proposal.position) + jnp.sum(proposal.velocity) + jnp.sum(proposal.gradient)
    )
    # The second half of the noise comes after the last gradient: whether a step fails does not depend on it.
    reverted = state._replace(velocity=_normalize(noise[1]))
    new_state = jax.tree.map(lambda new, old: jnp.where(finite, new, old), proposal, reverted)
    return new_state, Info(jnp.where(finite, energy_change, 0.0), finite)


def integrate(
    noise: Float[Array, "2 d"], state: State, target: Target, step_size: Scalar, L: Scalar | float
) -> tuple[State, Scalar]:
    """Refresh, move, refresh: one step with given standard normal noise, and its kinetic energy change."""
    state = state._replace(velocity=_refresh(noise[0], state.velocity, step_size, L))
    state, change = minimal_norm(state, target, step_size)
    return state._replace(velocity=_refresh(noise[1], state.velocity, step_size, L)), change


def minimal_norm(state: State, target: Target, step_size: Scalar) -> tuple[State, Scalar]:
    """Move without noise by the scheme B A B A B, with two gradients; return also the kinetic energy change."""
    position, velocity, _, gradient = state
    velocity, change_1 = _kick(velocity, gradient, _B1 * step_size)
    position = position + _A * step_size * velocity
    _, gradient = target.value_and_grad(position)
    velocity, change_2 = _kick(velocity, gradient, _B2 * step_size)
    position = position + _A * step_size * velocity
    logdensity, gradient = target.value_and_grad(position)
    velocity, change_3 = _kick(velocity, gradient, _B1 * step_size)
    return State(position, velocity, logdensity, gradient), change_1 + change_2 + change_3


def random_direction(key: Key, like: Position) -> Position:
    """Draw a unit vector of the shape of `like`."""
    return _normalize(jax.random.normal(key, like.shape, like.dtype))


def _kick(velocity: Position, gradient: Position, duration: Scalar) -> tuple[Position, Scalar]:
    """Turn the velocity toward the gradient; exact for a constant gradient (energy-sampling Hamiltonian)."""
    dimension = velocity.shape[0]
    norm = jnp.sqrt(gradient @ gradient)
    direction = gradient / jnp.maximum(norm, _SMALLEST_GRADIENT)
    cosine = jnp.clip(velocity @ direction, -1.0, 1.0)  # rounding may put it beyond
    delta = duration * norm / (dimension - 1)
    zeta = jnp.exp(-delta)
    turned = direction * ((1.0 - zeta) * (1.0 + zeta + cosine * (1.0 - zeta))) + 2.0 * zeta * velocity
    return _normalize(turned), (dimension - 1) * _kinetic_change(delta, cosine)


def _kinetic_change(delta: Scalar, cosine: Scalar) -> Scalar:
    """Return the kinetic energy change of a kick per dimension, to full precision for any size.

    The plain form, delta - log 2 + log(1 + cosine + (1 - cosine) exp(-2 delta)), cancels for small kicks; the
    log1p form fails when its argument nears -1. In logarithms the exponential cannot underflow.
    """
    shrinkage = -0.5 * (1.0 - cosine) * jnp.expm1(-2.0 * delta)
    plain = delta - jnp.log(2.0) + jnp.logaddexp(jnp.log1p(cosine), jnp.log1p(-cosine) - 2.0 * delta)
    precise = delta + jnp.log1p(-jnp.minimum(shrinkage, 0.5))
    return jnp.where(shrinkage < 0.5, precise, plain)


def _refresh(noise: Position, velocity: Position, step_size: Scalar, L: Scalar | float) -> Position:
    """Refresh the velocity partially for half a step; L is the length over which it is forgotten."""
    scale = jnp.sqrt(jnp.expm1(step_size / L) / velocity.shape[0])
    return _normalize(velocity + scale * noise)


def _normalize(vector: Position) -> Position:
    return vector / jnp.sqrt(vector @ vector)
