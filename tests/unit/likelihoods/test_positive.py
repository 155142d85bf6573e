"""Families of positive numbers: densities, samples, what they learn of y, what they refuse."""

import families
import numpy as np
import pytest
from cases import case
from scipy import stats

from mile import Gamma, LogNormal, MileRegressor, Weibull

POSITIVE = (LogNormal, Gamma, Weibull)


def learned(kind, spread=0.7, n_rows=200):
    """A likelihood that has seen a response, and seven values of it as it is encoded."""
    y = np.exp(2.0 + spread * np.random.default_rng(3).standard_normal(n_rows))
    response = kind().learn(y, np.arange(n_rows))
    encoded = response.encode(y)
    return kind().fitted(encoded), encoded[:7].astype(np.float64)


def test_density_quantiles_samples_and_gradients_agree():
    for kind in POSITIVE:
        with case(kind.__name__):
            likelihood, y = learned(kind)
            outputs = families.random_outputs(likelihood)
            components = likelihood.components(outputs)
            families.check_density_is_the_slope_of_the_cdf(components, rtol=1e-5)
            families.check_quantiles_invert_the_cdf(components)
            families.check_samples_have_the_moments(components)
            families.check_compiled_density(likelihood, outputs, y)
            families.check_gradients(likelihood, outputs, y)
            families.check_finite_far_out(likelihood, y)


def test_densities_are_those_of_scipy():
    for kind, frozen in (
        (LogNormal, lambda c: stats.lognorm(c.noise, scale=np.exp(c.location))),
        (Gamma, lambda c: stats.gamma(c.shape, scale=c.location / c.shape)),
        (Weibull, lambda c: stats.weibull_min(1.0 / c.noise, scale=np.exp(c.location))),
    ):
        with case(kind.__name__):
            likelihood, y = learned(kind)
            components = likelihood.components(families.random_outputs(likelihood))
            known = frozen(components)
            np.testing.assert_allclose(components.log_prob(y), known.logpdf(y), rtol=1e-8)
            np.testing.assert_allclose(components.mean, known.mean(), rtol=1e-10)
            np.testing.assert_allclose(components.std, known.std(), rtol=1e-8)
            np.testing.assert_array_equal(components.cdf(np.full(7, -1.0)), 0.0)
            np.testing.assert_array_equal(components.log_prob(np.zeros(7)), -np.inf)


def test_a_narrow_gamma_density_keeps_its_digits_in_float32():
    """Its shape is 1e6, at which ln Gamma has no digit after the point in float32."""
    likelihood = Gamma(center=0.0, spread=1.0, floor=1e-3)
    outputs = np.array([np.zeros(5), np.full(5, -20.0)])
    y = 1.0 + 1e-3 * np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    exact = likelihood.components(outputs[None]).log_prob(y.astype(np.float32).astype(float))[0]
    found = likelihood.log_prob(outputs.astype(np.float32), y.astype(np.float32))
    np.testing.assert_allclose(found, exact, atol=2e-3)


def test_no_draw_leaves_sight_of_the_data():
    """Whatever the outputs, locations stay near the values of y, and the noise of ln y below two spreads."""
    for kind in POSITIVE:
        likelihood, _ = learned(kind)
        y = learned(kind)[1]
        outputs = np.array([[[-1e3, 1e3, 0.0, 0.0], [0.0, 0.0, -1e3, 1e3]]])
        components = likelihood.components(outputs)
        width = components.quantile(0.975) / components.quantile(0.025)
        with case(kind.__name__):
            assert np.all(components.quantile(0.5) > 0.02 * y.min())
            assert np.all(components.quantile(0.5) < 50.0 * y.max())
            assert np.all(width > 1.0)
            assert np.all(np.isfinite(components.std))
            assert np.all(components.std < 2e3 * y.max())


def test_what_is_not_positive_is_refused_with_row_and_advice():
    for value, advice in ((0.0, "hurdle_lognormal"), (-2.5, "both signs")):
        y = np.array([3.0, 1.0, value, 2.0, value])
        with pytest.raises(ValueError, match=rf"y has {value:g} in row 2 \(2 such rows\).*{advice}"):
            MileRegressor(likelihood="lognormal").fit(np.arange(10.0).reshape(5, 2), y)
    with pytest.raises(ValueError, match="y_train has 0 in row 1"):
        Gamma().check_encoded(np.array([1.0, 0.0], np.float32), "y_train")


def test_scale_is_learned_without_a_shift():
    y = np.array([1.0, 2.0, 4.0, 9.0])
    response = LogNormal().learn(y, np.arange(4))
    np.testing.assert_allclose(response.encode(y), y / y.std(), rtol=1e-6)
    assert response.unit == pytest.approx(y.std())
    again = LogNormal().restore_response(response.tensors())
    np.testing.assert_array_equal(again.decode(response.encode(y)), response.decode(response.encode(y)))


def test_fitted_keeps_what_was_given_and_learns_the_rest():
    y = np.exp(np.random.default_rng(0).standard_normal(500)).astype(np.float32)
    found = LogNormal().fitted(y)
    assert found.fitted(2.0 * y) is found
    assert found.spread == pytest.approx(np.log(y).std(), rel=0.05)
    assert found.floor == 1e-3
    few = LogNormal().fitted(np.tile(np.array([1.0, 2.0, 4.0], np.float32), 100))
    assert few.floor == pytest.approx(0.5 * np.log(2.0) / np.log([1.0, 2.0, 4.0]).std(), rel=0.05)
    with pytest.raises(ValueError, match="spread must be a positive number"):
        LogNormal(spread=0.0)
