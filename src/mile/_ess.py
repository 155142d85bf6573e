"""Effective sample size of single chains, by Geyer's initial monotone sequence on an FFT autocovariance."""

import jax.numpy as jnp
from jax.lax import cummin
from jaxtyping import Array, Bool, Float

from mile._types import Count


def effective_sample_size(draws: Float[Array, "draw *rest"], n_draws: Count | None = None) -> Float[Array, "*rest"]:
    """Return the effective number of draws along the first axis; NaN for a constant coordinate.

    Only the first `n_draws` count (default: all), a number that compiled code need not know.

    Written by hand because the tuner needs it inside compiled code, for one chain, without
    splitting or pooling; BlackJAX is its oracle in the tests. The estimator is Stan's.
    """
    n_draws = draws.shape[0] if n_draws is None else n_draws
    correlation = _autocorrelation(draws, n_draws)[: draws.shape[0] // 2 * 2]
    even, odd = correlation[0::2], correlation[1::2]
    exists = _first(even, n_draws // 2)
    # Geyer (1992): sums of neighboring pairs are kept up to the first negative one and forced to
    # decrease; of that first negative pair, a positive even term is still used.
    pairs = even + odd
    positive = jnp.cumprod((pairs >= 0.0) & exists, axis=0)
    first_negative = (jnp.concatenate([jnp.ones_like(positive[:1]), positive[:-1]]) - positive) * exists
    decreasing = cummin(pairs, axis=0) * positive
    last = jnp.maximum(even * first_negative, 0.0)
    autocorrelation_time = 2.0 * decreasing.sum(axis=0) - 1.0 + last.sum(axis=0)
    floor = 1.0 / jnp.log10(1.0 * n_draws)  # Stan's bound for antithetic chains
    return n_draws / jnp.maximum(autocorrelation_time, floor)


def _autocorrelation(draws: Float[Array, "draw *rest"], n_draws: Count) -> Float[Array, "draw *rest"]:
    exists = _first(draws, n_draws)
    mean = jnp.sum(draws, axis=0, where=exists) / n_draws
    centered = jnp.where(exists, draws - mean, 0.0)
    padded_length = 1 << (2 * len(draws) - 1).bit_length()  # zero padding keeps the ends apart
    spectrum = jnp.fft.rfft(centered, n=padded_length, axis=0)
    covariance = jnp.fft.irfft(jnp.abs(spectrum) ** 2, n=padded_length, axis=0)[: len(draws)]
    # One chain's "between" term is absent, which leaves this shift in Stan's formula.
    shifted = covariance / covariance[0] - 1.0 / jnp.maximum(n_draws - 1, 1)
    # Rounding of the mean leaves a constant coordinate with a tiny variance, so it is recognized by its values.
    constant = jnp.all((draws == draws[0]) | ~exists, axis=0)
    return jnp.where(constant, jnp.nan, shifted.at[0].set(1.0))


def _first(array: Float[Array, "draw *rest"], count: Count) -> Bool[Array, "draw *one"]:
    """Mask the first entries of an array along its first axis."""
    return (jnp.arange(len(array)) < count).reshape(-1, *[1] * (array.ndim - 1))
