"""Draws from targets whose moments are known in closed form (RELIABILITY A1, A2, A7, A8).

Seeds are fixed, so a test that passes keeps passing on one platform. The probabilities in the docstrings
are those of a failure with another seed, by the spread over 20 seeds when the test was written.
"""

import numpy as np
import pytest
from targets import LARGEST_Z, StandardNormal, linear_regression, squared_bias, standard_errors

import mile

N_CHAINS = 8


def starts(dimension, scale=2.0):
    """Return starting points spread wider than the target."""
    return scale * np.random.default_rng(0).standard_normal((N_CHAINS, dimension))


def sample_normal(dimension, preset, seed=1, sampling_steps=5_000, **options):
    options = {"sampler": "mile", "warmup_steps": 6_000} | options
    return mile.sample(
        StandardNormal(),
        starts(dimension),
        preset=preset,
        random_state=seed,
        sampling_steps=sampling_steps,
        n_draws=sampling_steps,
        **options,
    )


def check_accurate(dimension, sampling_steps, **options):
    chains = sample_normal(dimension, "accurate", sampling_steps=sampling_steps, **options)
    assert chains.ok.all()
    ratio = np.square(chains.draws.astype(np.float64)).mean()
    assert 0.96 <= ratio <= 1.01
    assert squared_bias(chains.draws).max() <= 5e-3
    assert np.all(np.abs(chains.draws.mean(axis=(0, 1), dtype=np.float64)) < LARGEST_Z * standard_errors(chains.draws))


@pytest.mark.parametrize("dimension", [10, *(pytest.param(size, marks=pytest.mark.slow) for size in (2, 100))])
def test_accurate_preset_gives_the_moments_of_a_standard_normal(dimension):
    """A1. False failure: below 1e-3 (second moments), 4e-8 per coordinate (means)."""
    check_accurate(dimension, sampling_steps=5_000)


@pytest.mark.parametrize("dimension", [2, *(pytest.param(size, marks=pytest.mark.slow) for size in (10, 100))])
def test_nuts_gives_the_moments_of_a_standard_normal(dimension):
    """A1 for NUTS. False failure: below 0.1 in 2 dimensions (the ratio's standard error is 0.006), else below 1e-3."""
    check_accurate(dimension, sampling_steps=5_000, sampler="nuts", warmup_steps=500)


@pytest.mark.slow
def test_accurate_preset_gives_the_moments_of_a_standard_normal_in_1000_dimensions():
    """A1. False failure: below 1e-3 (second moments), 4e-5 (all means together)."""
    check_accurate(1_000, sampling_steps=3_000)


@pytest.mark.parametrize("dimension", [2, *(pytest.param(size, marks=pytest.mark.slow) for size in (10, 100, 1_000))])
def test_bias_of_the_paper_preset_on_a_standard_normal_is_what_it_was(dimension):
    """A2, a characterization: fails if the known bias moves, either way.

    In 100 dimensions the step sizes lie at the edge of stability and chains differ: 64 of them gave 0.94 with a
    standard deviation of 0.07 a chain, so that with another seed the upper limit fails about one time in three.
    """
    chains = sample_normal(dimension, "paper")
    assert chains.ok.all()
    assert 0.86 <= np.square(chains.draws.astype(np.float64)).mean() <= 0.95


def sample_regression(preset, sampling_steps=20_000):
    posterior = linear_regression()
    positions = posterior.mean + 0.1 * starts(len(posterior.mean))
    return mile.sample(
        posterior,
        positions,
        preset=preset,
        random_state=2,
        warmup_steps=6_000,
        sampling_steps=sampling_steps,
        n_draws=sampling_steps // 2,
    )


def test_accurate_preset_gives_the_posterior_of_a_linear_regression():
    """A7. False failure: below 1e-3."""
    posterior, chains = linear_regression(), sample_regression("accurate", sampling_steps=10_000)
    assert chains.ok.all()
    draws = chains.draws.reshape(-1, len(posterior.mean)).astype(np.float64)
    true_std = np.sqrt(np.diag(posterior.covariance))
    # The stated limit of 0.05 sd, and what chance alone may add to it.
    tolerance = 0.05 * true_std + LARGEST_Z * standard_errors(chains.draws)
    assert np.all(np.abs(draws.mean(axis=0) - posterior.mean) <= tolerance)
    ratio = draws.std(axis=0) / true_std
    assert np.all((ratio >= 0.95) & (ratio <= 1.03))
    predicted = (draws @ posterior.x_new.T).std(axis=0)
    true_predicted = np.sqrt(np.einsum("ri,ij,rj->r", posterior.x_new, posterior.covariance, posterior.x_new))
    assert 0.96 <= np.mean(predicted / true_predicted) <= 1.03


@pytest.mark.slow
def test_bias_of_the_paper_preset_on_a_linear_regression_is_what_it_was():
    """A8, a characterization: standard deviations between 0.92 and 1.02 of the true ones."""
    posterior, chains = linear_regression(), sample_regression("paper")
    assert chains.ok.all()
    draws = chains.draws.reshape(-1, len(posterior.mean)).astype(np.float64)
    ratio = draws.std(axis=0) / np.sqrt(np.diag(posterior.covariance))
    assert np.all((ratio >= 0.92) & (ratio <= 1.02))
