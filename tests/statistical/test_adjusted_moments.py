"""Draws of the exact sampler from normal targets (RELIABILITY A3, A4, A6).

Seeds are fixed, so a test that passes keeps passing on one platform. The probabilities in the docstrings are those of
a failure with another seed.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from targets import LARGEST_Z, IllConditioned, squared_bias, standard_errors

from mile import Status
from mile._types import Target
from mile.samplers.adjusted import Adjusted
from mile.sampling.chains import run_chains

PUBLISHED_GRADIENTS = 3_376  # MAMS, normal in 100 dimensions, condition number 1000, preconditioned (SCIENCE 3.3)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Gaussian(Target):
    """N(0, C); the precision is data, so that all targets of one dimension share their programs."""

    precision: Any

    def logdensity(self, x):
        return -0.5 * x @ self.precision @ x

    def value_and_grad(self, x):
        return jax.value_and_grad(self.logdensity)(x)


def draw(covariance, *, n_chains=4, warmup_steps=6_000, sampling_steps=6_000, thinning=2, seed=1):
    """Return chains that start in the target, twice as wide."""
    dimension = len(covariance)
    start = 2.0 * np.random.default_rng(seed).multivariate_normal(np.zeros(dimension), covariance, n_chains)
    sampler = Adjusted(
        warmup_steps=warmup_steps, sampling_steps=sampling_steps, n_draws=sampling_steps // thinning, step_size=1.0
    )
    precision = jnp.asarray(np.linalg.inv(covariance), jnp.float32)
    chains = run_chains(sampler, Gaussian(precision), start.astype(np.float32), seed=seed)
    assert chains.status == (Status.OK,) * n_chains
    return chains


def check_standard_normal(dimension, **budgets):
    chains = draw(np.eye(dimension), **budgets)
    np.testing.assert_allclose(chains.info["sampling"]["acceptance"], 0.9, atol=0.05)
    for moment, truth in ((chains.draws, 0.0), (np.square(chains.draws), 1.0)):
        error = moment.mean(axis=(0, 1), dtype=np.float64) - truth
        assert np.all(np.abs(error) < LARGEST_Z * standard_errors(moment))


@pytest.mark.parametrize("dimension", [10, *(pytest.param(size, marks=pytest.mark.slow) for size in (2, 100))])
def test_moments_of_a_standard_normal_are_exact(dimension):
    """A3. False failure: 4e-8 per coordinate and moment."""
    check_standard_normal(dimension)


@pytest.mark.slow
def test_moments_of_a_standard_normal_are_exact_in_1000_dimensions():
    """A3. False failure: 8e-5."""
    check_standard_normal(1_000, warmup_steps=10_000)


def covariance_of(condition, rotated):
    variances = np.geomspace(1.0, condition, 100)
    return IllConditioned(100, condition).covariance if rotated else np.diag(variances)


@pytest.mark.parametrize(
    ("condition", "rotated"),
    [
        (100.0, False),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((1000.0, False), (100.0, True), (1000.0, True))),
    ],
)
def test_second_moments_of_an_ill_conditioned_normal_are_right(condition, rotated):
    """A4. Measured with three seeds: at most 0.0025. False failure: below 1e-3."""
    covariance = covariance_of(condition, rotated)
    chains = draw(covariance, sampling_steps=20_000 if rotated else 6_000)
    assert squared_bias(chains.draws, np.diag(covariance)).max() <= 0.02


@pytest.mark.slow
def test_gradients_until_second_moments_are_known_are_as_few_as_published():
    """A6: the median of 8 chains is at most twice the published number. Measured with three seeds: 0.7 to 0.8 of it."""
    variances = np.geomspace(1.0, 1000.0, 100)
    chains = draw(np.diag(variances), n_chains=8, warmup_steps=10_000, sampling_steps=5_000, thinning=1)
    means = np.cumsum(np.square(chains.draws.astype(np.float64)) / variances, axis=1)
    means /= np.arange(1, means.shape[1] + 1)[:, None]
    bias = (0.5 * np.square(means - 1.0)).max(axis=2)  # Var(x^2) is twice the squared variance
    steps = np.array([np.flatnonzero(of_chain >= 0.01)[-1] + 2 for of_chain in bias])  # from here on below
    assert np.median(2 * steps) <= 2 * PUBLISHED_GRADIENTS
