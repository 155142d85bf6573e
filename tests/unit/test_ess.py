"""Effective sample size against BlackJAX's, Stan's recipe written as a loop, and the theory of AR(1) chains."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.diagnostics import effective_sample_size as blackjax_ess
from scipy.signal import lfilter

from mile._ess import effective_sample_size

ess = jax.jit(effective_sample_size)


def autoregressive(coefficient, n_draws, n_coordinates, seed=0):
    """Return stationary AR(1) chains (draw, coordinate) of variance 1."""
    noise = np.random.default_rng(seed).standard_normal((n_draws + 500, n_coordinates))
    return lfilter([np.sqrt(1 - coefficient**2)], [1.0, -coefficient], noise, axis=0)[500:]


def stan_ess(chain):
    """Stan's recipe for one chain, with sums instead of an FFT."""
    n = len(chain)
    centered = chain - chain.mean()
    covariance = [centered[: n - lag] @ centered[lag:] / n for lag in range(n)]
    within = covariance[0] * n / (n - 1)  # one chain: no variance between chains
    rho = [1.0] + [1 - (within - covariance[lag]) / covariance[0] for lag in range(1, n)]
    time, smallest, lag = -1.0, np.inf, 0
    while lag + 1 < n and rho[lag] + rho[lag + 1] >= 0:
        smallest = min(smallest, rho[lag] + rho[lag + 1])
        time += 2 * smallest
        lag += 2
    if lag + 1 < n:
        time += max(rho[lag], 0.0)
    return n / max(time, 1 / np.log10(n))


@pytest.mark.parametrize("n_draws", [4, 17, 100, 1_001])
@pytest.mark.parametrize("coefficient", [-0.6, 0.0, 0.7, 0.98])
def test_equals_stans_recipe(coefficient, n_draws):
    chains = autoregressive(coefficient, n_draws, 20)
    expected = [stan_ess(chain) for chain in chains.T]
    with jax.enable_x64(True):
        np.testing.assert_allclose(ess(jnp.asarray(chains)), expected, rtol=1e-9)


@pytest.mark.parametrize("n_draws", [4, 5, 17, 100])
@pytest.mark.parametrize("coefficient", [-0.6, 0.7, 0.98])
def test_counts_the_first_draws_only(coefficient, n_draws):
    chains = autoregressive(coefficient, 2 * n_draws + 1, 20)
    with jax.enable_x64(True):
        np.testing.assert_allclose(ess(jnp.asarray(chains), n_draws), ess(jnp.asarray(chains[:n_draws])), rtol=1e-9)


@pytest.mark.parametrize("n_draws", [100, 1_001])
@pytest.mark.parametrize("coefficient", [-0.6, 0.0, 0.7, 0.98])
def test_equals_blackjax_for_one_chain(coefficient, n_draws):
    """BlackJAX neither splits chains nor uses ranks. At a few chains it differs: there the even term of the first
    negative pair is larger than the pair before, and BlackJAX cuts it, which Stan does not.
    """
    chains = autoregressive(coefficient, n_draws, 20)
    with jax.enable_x64(True):
        ours = np.asarray(ess(jnp.asarray(chains)))
        theirs = np.asarray(blackjax_ess(jnp.asarray(chains)[None]))
    assert np.isclose(ours, theirs, rtol=1e-9).mean() >= 0.9
    np.testing.assert_allclose(ours, theirs, rtol=0.1)


@pytest.mark.parametrize("coefficient", [0.0, 0.5, 0.9])
def test_is_the_known_value_of_an_autoregressive_chain(coefficient):
    """False failure: 4e-8 if the mean over 40 chains is normal."""
    n_draws = 10_000
    time = n_draws / np.asarray(ess(jnp.asarray(autoregressive(coefficient, n_draws, 40))), float)
    known = (1 + coefficient) / (1 - coefficient)
    # Geyer's estimate stops at noise that happens to be positive, so it is too large by a percent or two.
    assert abs(time.mean() - known) < 0.02 * known + 5.5 * time.std(ddof=1) / np.sqrt(40)


@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_float32_is_precise_also_far_from_zero(offset):
    chains = (offset + autoregressive(0.8, 1_001, 20)).astype(np.float32)
    with jax.enable_x64(True):
        expected = np.asarray(ess(jnp.asarray(chains, np.float64)))
    ours = ess(jnp.asarray(chains))
    assert ours.dtype == jnp.float32
    np.testing.assert_allclose(ours, expected, rtol=1e-3)


def test_antithetic_chains_have_at_most_stans_bound():
    chain = jnp.asarray((-1.0) ** np.arange(1_000) + 0.01 * autoregressive(0.0, 1_000, 1)[:, 0])
    assert ess(chain) == pytest.approx(1_000 * 3.0, rel=1e-5)


@pytest.mark.parametrize("n_draws", [10, 100, 10_000])
@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -2.7, 1e3 + 0.1])
def test_a_constant_coordinate_has_none(value, n_draws):
    """Also where the mean of equal numbers is rounded and differs from them."""
    chains = np.c_[np.full(n_draws, value), autoregressive(0.5, n_draws, 1)].astype(np.float32)
    constant, moving = ess(jnp.asarray(chains))
    assert np.isnan(constant)
    assert np.isfinite(moving)


def test_a_chain_with_nan_has_none():
    chains = autoregressive(0.5, 100, 2)
    chains[50, 0] = np.nan
    broken, whole = ess(jnp.asarray(chains))
    assert np.isnan(broken)
    assert np.isfinite(whole)


def test_further_axes_are_kept():
    draws = jnp.asarray(autoregressive(0.5, 200, 6)).reshape(200, 2, 3)
    together = ess(draws)
    assert together.shape == (2, 3)
    np.testing.assert_allclose(together[1, 2], ess(draws[:, 1, 2]), rtol=1e-5)
