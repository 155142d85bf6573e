"""The decoherence length L: first the size of the region visited, then its autocorrelation."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from mile._ess import effective_sample_size
from mile._types import Count, Number, Position, Scalar

# L is kept between a tenth of a step, where each step already has a direction of its own, and ten times phase II's.
_SHORTEST = 0.1
_LONGEST = 10.0
_COLUMNS = 32  # coordinates whose autocorrelation is computed at a time
_FEWEST_DRAWS = 4  # two pairs; with fewer there is no autocorrelation to speak of


class Moments(NamedTuple):
    """Weighted running mean and sum of squared deviations (Welford), safe when the mean dwarfs the spread."""

    weight: Scalar
    mean: Position
    deviation: Position


def init_moments(position: Position) -> Moments:
    """Start with no observations."""
    return Moments(jnp.zeros((), position.dtype), jnp.zeros_like(position), jnp.zeros_like(position))


def update_moments(moments: Moments, position: Position, weight: Scalar) -> Moments:
    """Take in one position; weight zero leaves everything as it was."""
    total = moments.weight + weight
    share = jnp.where(total > 0.0, weight / total, 0.0)
    difference = position - moments.mean
    mean = moments.mean + share * difference
    return Moments(total, mean, moments.deviation + weight * difference * (position - mean))


def early_length(dimension: int) -> float:
    """Return L until it is known: the size of a standard normal, but at least 15 (as the reference)."""
    return max(math.sqrt(dimension), 15.0)


def length_from_moments(moments: Moments, step_size: Scalar) -> Scalar:
    """Return the root of the summed variances (end of phase II); at least one step."""
    variance = jnp.sum(moments.deviation) / jnp.where(moments.weight > 0.0, moments.weight, 1.0)
    length = jnp.sqrt(variance)
    return jnp.where(jnp.isfinite(length), jnp.maximum(length, step_size), step_size)


def length_from_autocorrelation(
    draws: Float[Array, "capacity coordinate"],
    n_draws: Count,
    thinning: Count,
    step_size: Scalar,
    previous: Scalar,
    factor: Number,
) -> tuple[Scalar, Bool[Array, ""]]:
    """Return L from the mean autocorrelation time (end of phase III), and whether it could be measured.

    Only the first `n_draws` count, which are `thinning` steps apart. Coordinates without a finite time are left
    out; if none is left, or hardly a draw, L stays at its previous value. The result is kept between a tenth of a
    step and ten times the previous length.
    """
    times = thinning * n_draws / _column_sizes(draws, n_draws)
    usable = jnp.isfinite(times) & (n_draws >= _FEWEST_DRAWS)
    mean_time = jnp.sum(jnp.where(usable, times, 0.0)) / jnp.maximum(usable.sum(), 1)
    length = jnp.clip(
        factor * step_size * mean_time, _SHORTEST * step_size, jnp.maximum(_LONGEST * previous, step_size)
    )
    measured = usable.any()
    return jnp.where(measured, length, previous), measured


def _column_sizes(draws: Float[Array, "capacity coordinate"], n_draws: Count) -> Float[Array, " coordinate"]:
    """Return the effective sample size of each coordinate, a few at a time: their spectra are larger than the draws."""
    n_columns = draws.shape[1]
    width = min(_COLUMNS, n_columns)
    starts = jnp.minimum(jnp.arange(0, n_columns, width), n_columns - width)  # the last ones are done twice

    def some(index: Array, sizes: Array) -> Array:
        columns = jax.lax.dynamic_slice_in_dim(draws, starts[index], width, axis=1)
        found = effective_sample_size(columns, n_draws)
        return jax.lax.dynamic_update_slice_in_dim(sizes, found, starts[index], axis=0)

    return jax.lax.fori_loop(0, len(starts), some, jnp.zeros(n_columns, draws.dtype))
