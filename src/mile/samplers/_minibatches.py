"""One step of mini-batch MCLMC: choose a mini-batch, move on its posterior, take the step back if it went wrong."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt32

from mile._errors import Status
from mile._types import Count, Key, Number, Position, Scalar, Target
from mile.posterior import RescaledTarget
from mile.samplers import _mclmc, _noise
from mile.samplers.base import LARGEST_BAD_SHARE, LARGEST_FALL_PER_DIMENSION

GRADIENTS_PER_STEP = _mclmc.GRADIENTS_PER_STEP + 1  # one more at the old position
_LARGEST_ENERGY_CHANGE = 10.0  # in standard deviations as wanted; beyond, the integrator has lost its way
_ORDER, _CHOICE, _DIRECTION = 1, 2, 3  # what is drawn besides the noise of a move


class MinibatchChain(NamedTuple):
    """Position of a chain, and the counters of the current phase."""

    state: _mclmc.State  # log density and gradient are those of the last mini-batch
    order: Int[Array, " group"]  # of the rows, cut into the mini-batches to choose from
    index: Int[Array, ""]  # steps made in this phase
    start_logdensity: Scalar  # on all rows
    logdensity: Scalar  # on all rows, where it was last computed
    bad_steps: Int[Array, ""]
    refused_steps: Int[Array, ""]
    squared_energy: Scalar
    batch_share: Scalar  # one over the mini-batches of an epoch
    gradients_per_step: Scalar


class Fixed(NamedTuple):
    """Result of the warm-up: units, the level of the noise in them, and the L that it amounts to at this step size."""

    step_size: Scalar
    L: Scalar
    L_eff: Scalar
    noise: Scalar
    units: Position
    missing: Position  # standard deviation of the noise that is added to that of the gradient


class MinibatchMove(NamedTuple):
    """What one step did; `difference` is that of two mini-batches' gradients at the old position."""

    energy_change: Scalar
    finite: Bool[Array, ""]
    difference: Position


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Tilted(Target):
    """A target with noise: a slope is added to its log density."""

    target: Target
    slope: Position

    def logdensity(self, position: Position) -> Scalar:
        """Return the unnormalized log density."""
        return self.target.logdensity(position) + self.slope @ position

    def value_and_grad(self, position: Position) -> tuple[Scalar, Position]:
        """Return the unnormalized log density and its gradient."""
        value, gradient = self.target.value_and_grad(position)
        return value + self.slope @ position, gradient + self.slope


def init(key: Key, position: Position, target: Target, batch_size: int) -> MinibatchChain:
    """Start a chain with the gradient on all rows."""
    state = _mclmc.init(key, position, target)
    order = target.shuffled(jax.random.fold_in(key, _ORDER))
    none = jnp.zeros((), jnp.int32)
    is_whole = target.minibatch(order, none, batch_size) is target
    return MinibatchChain(
        state=state,
        order=order,
        index=none,
        start_logdensity=state.logdensity,
        logdensity=state.logdensity,
        bad_steps=none,
        refused_steps=none,
        squared_energy=jnp.zeros_like(state.logdensity),
        batch_share=jnp.asarray(1.0 / target.n_minibatches(batch_size), position.dtype),
        gradients_per_step=jnp.asarray(GRADIENTS_PER_STEP - is_whole, position.dtype),
    )


def renew(chain: MinibatchChain, target: Target) -> MinibatchChain:
    """Begin another phase: counters are per phase, and the log density on all rows is brought up to date."""
    none = jnp.zeros((), jnp.int32)
    return chain._replace(
        index=none,
        logdensity=target.logdensity(chain.state.position),
        bad_steps=none,
        refused_steps=none,
        squared_energy=jnp.zeros_like(chain.squared_energy),
    )


def advance(
    key: Key,
    chain: MinibatchChain,
    target: Target,
    fixed: Fixed,
    energy_variance: Number,
    batch_size: int,
    precondition: bool,
) -> tuple[MinibatchChain, MinibatchMove]:
    """Make one step on one mini-batch; one that is not finite or changes the energy too much is taken back."""
    bits = _bits(key, chain.state.position, precondition)
    order, batch = _choose(key, bits[0], chain, target, batch_size)
    old, is_whole = chain.state, batch is target
    if not is_whole:
        logdensity, gradient = batch.value_and_grad(old.position)
        old = old._replace(logdensity=logdensity, gradient=gradient)
    L = _noise.missing_length(fixed.L, fixed.L_eff)
    if precondition and not is_whole:
        new, info = _move(bits[1:], old, batch, fixed, L)
    else:
        new, info = _mclmc.step(key, old, batch, fixed.step_size, L)
    refused = jnp.square(info.energy_change) > _LARGEST_ENERGY_CHANGE**2 * energy_variance * old.position.shape[0]
    fresh = jax.lax.cond(
        refused | ~info.finite,
        lambda: _mclmc.random_direction(jax.random.fold_in(key, _DIRECTION), old.position),
        lambda: new.velocity,
    )
    new = jax.tree.map(lambda new, old: jnp.where(refused | ~info.finite, old, new), new, old)._replace(velocity=fresh)
    moved = MinibatchMove(info.energy_change, info.finite, old.gradient - chain.state.gradient)
    chain = chain._replace(
        state=new,
        order=order,
        index=chain.index + 1,
        bad_steps=chain.bad_steps + ~info.finite,
        refused_steps=chain.refused_steps + refused,
        squared_energy=chain.squared_energy + jnp.square(info.energy_change),
    )
    return chain, moved


def status(n_steps: Count, chain: MinibatchChain) -> Int[Array, ""]:
    """Return the status of a phase of `n_steps` steps."""
    fall = chain.start_logdensity - chain.logdensity
    return jnp.select(
        [
            ~jnp.isfinite(chain.start_logdensity),
            chain.bad_steps + chain.refused_steps > LARGEST_BAD_SHARE * n_steps,
            ~jnp.isfinite(chain.logdensity),
            fall > LARGEST_FALL_PER_DIMENSION * chain.state.position.shape[0],
        ],
        [Status.NON_FINITE_START, Status.BAD_STEPS, Status.NON_FINITE, Status.DIVERGED],
        Status.OK,
    )


def report(n_steps: Count, chain: MinibatchChain, fixed: Fixed) -> dict[str, Array]:
    """Return the statistics of a phase by name."""
    dtype = fixed.step_size.dtype
    return {
        "step_size": fixed.step_size,
        "L": fixed.L,
        "L_eff": fixed.L_eff,
        "noise": fixed.noise,
        "inverse_mass": fixed.units**-2,
        "batch_share": chain.batch_share,
        "bad_steps": chain.bad_steps.astype(dtype),
        "refused_steps": chain.refused_steps.astype(dtype),
        "energy_variance": chain.squared_energy / (n_steps * chain.state.position.shape[0]),
        "logdensity": chain.logdensity,
        "gradient_evaluations": chain.gradients_per_step * n_steps,
    }


def _bits(key: Key, like: Position, precondition: bool) -> UInt32[Array, " word"]:
    """Return the random bits of a step, apart from the noise of `_mclmc.step`, in one call: each call costs time."""
    if precondition:
        return jax.random.bits(key, (1 + 2 * like.size,), jnp.uint32)
    return jax.random.bits(jax.random.fold_in(key, _CHOICE), (1,), jnp.uint32)


def _choose(
    key: Key, bits: UInt32[Array, ""], chain: MinibatchChain, target: Target, batch_size: int
) -> tuple[Int[Array, " group"], Target]:
    """Return any of the mini-batches into which the rows are cut, and the order in which they are.

    They are cut anew as often as an epoch would be over: a cut leaves rows over, whose absence is noise that persists.
    """
    n_batches = target.n_minibatches(batch_size)
    order = jax.lax.cond(
        chain.index % n_batches == 0,
        lambda: target.shuffled(jax.random.fold_in(key, _ORDER)),
        lambda: chain.order,
    )
    choice = (bits % n_batches.astype(jnp.uint32)).astype(jnp.int32)
    batch = target.minibatch(order, choice, batch_size)
    return (chain.order if batch is target else order), batch


def _move(
    bits: UInt32[Array, " word"], state: _mclmc.State, batch: Target, fixed: Fixed, L: Scalar
) -> tuple[_mclmc.State, _mclmc.Info]:
    """Make one step of MCLMC in units where the noise is the same everywhere, with the noise that this takes."""
    units, step_size = fixed.units, fixed.step_size
    refreshment, noise = _cheap_noise(bits, state.position)
    tilted = Tilted(target=batch, slope=fixed.missing * noise)
    # One refreshment a step: with another half at its end, there would be two between neighboring steps.
    velocity = state.velocity + jnp.sqrt(jnp.expm1(2.0 * step_size / L) / len(noise)) * refreshment
    inside = _mclmc.State(
        position=state.position * units,
        velocity=velocity / jnp.sqrt(velocity @ velocity),
        logdensity=state.logdensity + tilted.slope @ state.position,
        gradient=(state.gradient + tilted.slope) / units,
    )
    new, kinetic_change = _mclmc.minimal_norm(inside, RescaledTarget(target=tilted, scale=1.0 / units), step_size)
    energy_change = kinetic_change - new.logdensity + inside.logdensity
    # A gradient that is not finite reaches the velocity.
    finite = jnp.isfinite(jnp.square(energy_change) + new.position @ new.position + new.velocity @ new.velocity)
    position = new.position / units
    outside = _mclmc.State(
        position=position,
        velocity=new.velocity,
        logdensity=new.logdensity - tilted.slope @ position,
        gradient=new.gradient * units - tilted.slope,
    )
    return outside, _mclmc.Info(jnp.where(finite, energy_change, 0.0), finite)


def _cheap_noise(bits: UInt32[Array, " word"], like: Position) -> Float[Array, "2 d"]:
    """Return noise of mean 0 and variance 1: the number of ones among 32 random bits, standardized.

    Only its covariance matters here, and for a thousand parameters normal noise would take longer than a gradient.
    """
    ones = jax.lax.population_count(bits).astype(like.dtype)
    return ((ones - 16.0) / math.sqrt(8.0)).reshape(2, *like.shape)
