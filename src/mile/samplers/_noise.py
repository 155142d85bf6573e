"""The noise of mini-batch gradients: how large it is along each coordinate, and what that means for a chain.

The velocity of microcanonical dynamics takes noise that is the same in all directions as its own refreshment, so it
does no harm; noise that differs between directions biases the draws. Units in which it is the same everywhere are
the remedy (Sommer et al. 2026).
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from mile._types import Number, Position, Scalar

_FEWEST = 100  # differences before an estimate is used; the smallest of many estimates from few would be near zero
# Weights that the data say nothing about have no noise, and would be moved without bound.
_SMALLEST_UNIT = 0.1


class Noise(NamedTuple):
    """Estimated variance of the gradient's noise along each coordinate, their mean, and the differences in them."""

    variance: Position
    mean: Scalar  # kept along, because a sum takes longer than a product of vectors
    count: Int[Array, ""]


def init(like: Position) -> Noise:
    """Start with nothing seen."""
    return Noise(jnp.zeros_like(like), jnp.zeros((), like.dtype), jnp.zeros((), jnp.int32))


def update(noise: Noise, difference: Position) -> Noise:
    """Take in the difference of two independent mini-batches' gradients at the same position.

    Half its square has the variance as expectation, wherever the mean gradient is and goes. The weight of a difference
    grows linearly, so that the start of a chain is forgotten while the estimate gets better and better.
    """
    mean = 0.5 * (difference @ difference) / len(difference)
    finite = jnp.isfinite(mean)
    share = jnp.where(finite, 2.0 / (noise.count + 2.0), 0.0).astype(mean.dtype)
    difference, mean = jnp.where(finite, difference, 0.0), jnp.where(finite, mean, 0.0)
    return Noise(
        variance=noise.variance + share * (0.5 * jnp.square(difference) - noise.variance),
        mean=noise.mean + share * (mean - noise.mean),
        count=noise.count + finite,
    )


def units(noise: Noise) -> Position:
    """Return the noise's standard deviations relative to their root mean square; all 1 while too little is known.

    Multiplied by them, a position is in units where every coordinate has the noise `level`, except the quietest.
    """
    relative = jnp.sqrt(noise.variance) / jnp.maximum(level(noise), jnp.finfo(noise.variance.dtype).tiny)
    return jnp.where(_is_known(noise), jnp.maximum(relative, _SMALLEST_UNIT), 1.0)


def missing(noise: Noise, units: Position) -> Position:
    """Return the standard deviation of the noise that each coordinate needs to reach `level` in these units.

    Without it, quiet coordinates would be too cold and all others too hot.
    """
    lacking = jnp.square(level(noise) * units) - noise.variance
    return jnp.where(_is_known(noise), jnp.sqrt(jnp.maximum(lacking, 0.0)), 0.0)


def level(noise: Noise) -> Scalar:
    """Return the root mean square of the noise."""
    return jnp.sqrt(noise.mean)


def largest_step(level: Scalar, dimension: int, turn: Number) -> Scalar:
    """Return the step in which noise turns the velocity by the angle `turn`; infinite without noise."""
    return turn * (dimension - 1) / (jnp.sqrt(dimension) * level)


def length(level: Scalar, dimension: int, step_size: Scalar) -> Scalar:
    """Return the length over which noise alone makes the velocity forget its direction; infinite without noise."""
    return 2.0 * (dimension - 1) ** 2 / (dimension * step_size * jnp.square(level))


def missing_length(wanted: Scalar | float, supplied: Scalar) -> Scalar:
    """Return the L of a refreshment that adds to the noise what is missing; infinite if nothing is."""
    return wanted / jnp.maximum(1.0 - wanted / supplied, 0.0)  # exactly `wanted` without noise


def _is_known(noise: Noise) -> Bool[Array, ""]:
    return (noise.count >= _FEWEST) & (noise.mean > 0.0)
