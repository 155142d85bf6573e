"""Likelihoods against scipy, on both sides: compiled JAX and float64 numpy."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import log_softmax

from mile import Categorical, Gaussian
from mile.likelihoods import LOG_SCALE_LIMIT
from mile.likelihoods.gaussian import NormalComponents


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def gaussian_log_prob(location: float, log_scale: float, y: float) -> float:
    return float(Gaussian().log_prob(jnp.array([[location], [log_scale]]), jnp.array([y]))[0])


class TestGaussian:
    def test_second_output_is_the_log_of_a_standard_deviation(self, rng):
        outputs = rng.normal(size=(2, 50)).astype(np.float32)
        y = rng.normal(size=50).astype(np.float32)
        expected = stats.norm.logpdf(y.astype(float), outputs[0].astype(float), np.exp(outputs[1].astype(float)))
        np.testing.assert_allclose(Gaussian().log_prob(jnp.asarray(outputs), jnp.asarray(y)), expected, atol=1e-5)

    def test_numpy_side_equals_scipy(self, rng):
        components = rng.normal(size=(7, 2, 11))
        y = rng.normal(size=11)
        location, scale = components[:, 0], np.exp(components[:, 1])
        normal = Gaussian().components(components)
        np.testing.assert_allclose((normal.mean, normal.std), (location, scale), rtol=1e-15)
        np.testing.assert_allclose(normal.log_prob(y), stats.norm.logpdf(y, location, scale), rtol=1e-12)
        np.testing.assert_allclose(normal.cdf(y), stats.norm.cdf(y, location, scale), rtol=1e-12)
        np.testing.assert_allclose(normal.density(y), stats.norm.pdf(y, location, scale), rtol=1e-12)

    def test_both_sides_agree_also_where_the_scale_is_clamped(self):
        log_scale = np.array([-50.0, -LOG_SCALE_LIMIT, -2.0, 0.0, 2.0, LOG_SCALE_LIMIT, 50.0], np.float32)
        outputs = np.stack([np.zeros_like(log_scale), log_scale])
        y = np.full(7, 1e-6, np.float32)
        compiled = Gaussian().log_prob(jnp.asarray(outputs), jnp.asarray(y))
        np.testing.assert_allclose(compiled, Gaussian().components(outputs[None]).log_prob(y)[0], rtol=1e-4)

    @pytest.mark.parametrize(("log_scale", "limit"), [(-15.0, 1e-6), (-1e30, 1e-6), (15.0, 1e6), (1e30, 1e6)])
    def test_standard_deviation_is_clamped(self, log_scale, limit):
        scale = Gaussian().components(np.array([[[0.0], [log_scale]]])).std
        assert scale[0, 0] == pytest.approx(limit, rel=1e-12)
        expected = stats.norm.logpdf(0.0, 0.0, limit)
        assert gaussian_log_prob(0.0, log_scale, 0.0) == pytest.approx(expected, rel=1e-5)

    @pytest.mark.parametrize("log_scale", [-20.0, -13.9, 13.9, 20.0])
    def test_gradient_of_the_log_scale_is_zero_outside_the_limits(self, log_scale):
        assert jax.grad(gaussian_log_prob_of_scale)(log_scale) == 0.0

    @pytest.mark.parametrize("log_scale", [-13.7, -5.0, 0.0, 5.0, 13.7])
    def test_gradient_of_the_log_scale_is_exact_inside_the_limits(self, log_scale):
        y = math.exp(log_scale)  # one standard deviation away
        gradient = jax.grad(lambda value: gaussian_log_prob_of_scale(value, 2.0 * y))(log_scale)
        assert gradient == pytest.approx(3.0, rel=1e-4)  # z² - 1 at z = 2

    def test_limits_are_a_millionth_and_a_million(self):
        assert pytest.approx(math.log(1e6)) == LOG_SCALE_LIMIT

    @pytest.mark.parametrize(("location", "log_scale", "y"), [(np.nan, 0, 0), (0, np.nan, 0), (0, 0, np.nan)])
    def test_nan_stays_nan(self, location, log_scale, y):
        assert math.isnan(gaussian_log_prob(location, log_scale, y))
        components = np.array([[[location], [log_scale]]], float)
        assert np.isnan(Gaussian().components(components).log_prob(np.array([y]))).all()

    def test_a_response_far_away_has_a_finite_log_density(self):
        assert gaussian_log_prob(0.0, 0.0, 1e4) == pytest.approx(-0.5e8, rel=1e-5)

    def test_samples_have_the_moments_asked_for(self, rng):
        location, scale = np.full(200_000, 3.0), np.full(200_000, 0.5)
        samples = NormalComponents(location, scale).sample(rng)
        assert abs(samples.mean() - 3.0) < 5 * 0.5 / math.sqrt(200_000)
        assert abs(samples.std() / 0.5 - 1.0) < 5 / math.sqrt(400_000)


def gaussian_log_prob_of_scale(log_scale, y=1.0):
    return Gaussian().log_prob(jnp.array([[0.0], [log_scale]]), jnp.array([y]))[0]


class TestCategorical:
    @pytest.mark.parametrize("n_classes", [2, 3, 100])
    def test_log_prob_equals_scipy(self, rng, n_classes):
        logits = (5 * rng.normal(size=(n_classes, 40))).astype(np.float32)
        y = rng.integers(n_classes, size=40)
        expected = log_softmax(logits.astype(float), axis=0)[y, np.arange(40)]
        compiled = Categorical(n_classes).log_prob(jnp.asarray(logits), jnp.asarray(y))
        np.testing.assert_allclose(compiled, expected, atol=1e-5)
        np.testing.assert_allclose(compiled, stats.multinomial.logpmf(np.eye(n_classes)[y], 1, soft(logits)), atol=1e-4)

    def test_numpy_side_normalizes_over_classes_for_each_draw(self, rng):
        components = rng.normal(size=(6, 4, 9))
        log_probs = Categorical(4).log_probs(components)
        assert log_probs.shape == components.shape
        np.testing.assert_allclose(np.exp(log_probs).sum(axis=1), 1.0, rtol=1e-14)
        np.testing.assert_allclose(log_probs, np.log(soft(components, axis=1)), rtol=1e-12)

    def test_huge_logits_do_not_overflow(self):
        logits = np.array([[1e4], [-1e4]], np.float32)
        log_prob = Categorical(2).log_prob(jnp.asarray(logits), jnp.array([1]))
        assert float(log_prob[0]) == pytest.approx(-2e4)
        assert Categorical(2).log_probs(logits[None])[0, 1, 0] == pytest.approx(-2e4)

    def test_nan_stays_nan(self):
        logits = jnp.array([[jnp.nan], [0.0]])
        assert np.isnan(Categorical(2).log_prob(logits, jnp.array([1])))[0]
        assert np.isnan(Categorical(2).log_probs(np.asarray(logits)[None])).all()

    def test_two_classes_have_two_logits(self):
        assert Categorical(2).n_outputs == 2

    @pytest.mark.parametrize("n_classes", [-1, 0, 1])
    def test_fewer_than_two_classes_are_refused(self, n_classes):
        with pytest.raises(ValueError, match="n_classes must be an integer of at least 2"):
            Categorical(n_classes)


def soft(logits, axis=0):
    """Turn logits into probabilities; with classes first the result has classes last, as scipy wants them."""
    probs = np.exp(logits.astype(float) - logits.max(axis=axis, keepdims=True))
    probs /= probs.sum(axis=axis, keepdims=True)
    return probs.T if axis == 0 else probs
