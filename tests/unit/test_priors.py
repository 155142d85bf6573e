"""The prior's scale is a standard deviation, and the constant it leaves out is only a constant."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from mile import Normal


@pytest.mark.parametrize("scale", [0.1, 1.0, 7.0])
def test_scale_is_a_standard_deviation_in_the_density(scale):
    positions = np.random.default_rng(0).normal(size=(2, 30))
    ours = [float(Normal(scale=scale).log_prob(jnp.asarray(position))) for position in positions]
    exact = stats.norm.logpdf(positions, scale=scale).sum(axis=1)
    assert ours[0] - ours[1] == pytest.approx(exact[0] - exact[1], rel=1e-4)


def test_gradient_pulls_back_by_the_variance():
    gradient = jax.grad(Normal(scale=2.0).log_prob)(jnp.array([1.0, -3.0]))
    np.testing.assert_allclose(gradient, [-0.25, 0.75], rtol=1e-6)


@pytest.mark.parametrize("scale", [0.1, 3.0])
def test_scale_is_a_standard_deviation_in_the_draws(scale):
    draws = np.asarray(Normal(scale=scale).sample(jax.random.key(0), 100_000))
    assert draws.shape == (100_000,)
    assert abs(draws.std() / scale - 1.0) < 5 / np.sqrt(2e5)
    assert abs(draws.mean()) < 5 * scale / np.sqrt(1e5)


def test_default_is_the_standard_normal():
    assert Normal().scale == 1.0


def test_non_finite_position_has_no_finite_density():
    assert np.isnan(Normal().log_prob(jnp.array([0.0, jnp.nan])))


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf])
def test_impossible_scale_is_refused(scale):
    with pytest.raises(ValueError, match="scale must be a positive number"):
        Normal(scale=scale)
