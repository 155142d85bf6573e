"""Amounts that may be zero and numbers between bounds: densities, quantiles, what they learn of y, what they refuse."""

import families
import numpy as np
import pytest
from cases import case
from scipy import stats

import mile
from mile import Beta, HurdleGamma, HurdleLogNormal, MileRegressor
from mile.likelihoods.weights import EQUAL

HURDLES = (HurdleLogNormal, HurdleGamma)
X = np.arange(10.0).reshape(5, 2)


class Mixture:
    n_draws = 3
    weights = EQUAL


def learned(kind):
    """A likelihood that has seen a response with zeros, components under three draws, and seven values."""
    rng = np.random.default_rng(0)
    y = (rng.gamma(2.0, 1.0, 300) * (rng.uniform(size=300) < 0.7)).astype(np.float32)
    likelihood = kind().fitted(y)
    outputs = families.random_outputs(likelihood)
    return likelihood, outputs, likelihood.components(outputs), np.array([0.0, 0.05, 0.5, 0.0, 1.0, 3.0, 9.0])


def test_amounts_have_a_probability_of_zero_and_a_density_beyond():
    for kind in HURDLES:
        with case(kind.__name__):
            likelihood, outputs, components, y = learned(kind)
            families.check_samples_have_the_moments(components, 10_000)
            families.check_compiled_density(likelihood, outputs, y)
            families.check_gradients(likelihood, outputs, y)
            families.check_finite_far_out(likelihood, y)
            chance, positive = components.chance, y > 0
            np.testing.assert_allclose(components.density(y)[:, ~positive], chance[:, ~positive])
            expected = (1.0 - chance) * components.base.density(y)
            np.testing.assert_allclose(components.density(y)[:, positive], expected[:, positive])
            np.testing.assert_allclose(components.cdf(0.0 * y), chance)
            np.testing.assert_array_equal(components.cdf_below(0.0 * y), 0.0)
            np.testing.assert_array_equal(components.cdf(0.0 * y - 1.0), 0.0)
            np.testing.assert_array_equal(components.cdf(y + 1.0), components.cdf_below(y + 1.0))


def test_quantiles_of_amounts_are_zero_up_to_its_probability_and_invert_the_cdf_beyond():
    for kind in HURDLES:
        _, _, components, _ = learned(kind)
        evaluate, at_zero = components.evaluator(Mixture()), components.chance.mean(axis=0)
        for level in (1e-3, 0.2, 0.4, 0.6, 0.95, 0.999):
            with case((kind.__name__, level)):
                moments = components.mean.mean(axis=0), components.std.mean(axis=0)
                found = components.solve(evaluate, components.spread, moments, level)
                np.testing.assert_array_equal(found == 0.0, at_zero >= level)
                reached = components.cdf(found).mean(axis=0)
                np.testing.assert_allclose(reached[found > 0], level, atol=1e-9)
                alone = components.quantile(level)
                reached = families.cdf_of_each(components, alone)
                np.testing.assert_allclose(reached, np.maximum(components.chance, level), rtol=1e-9)


def test_parameters_of_simulated_responses_are_recovered():
    """Within 4.5 standard errors; a correct program fails once in ten thousand runs with other seeds."""
    for likelihood in (HurdleLogNormal(), HurdleGamma(), Beta()):
        with case(likelihood):
            families.check_parameters_are_recovered(likelihood, np.array([0.5, -0.7, 0.4])[: likelihood.n_outputs])


def test_negative_amounts_are_refused_with_row():
    for kind in ("hurdle_lognormal", "hurdle_gamma"):
        with pytest.raises(ValueError, match=r"y has -2 in row 2 \(1 such rows\).*positive numbers and zero"):
            MileRegressor(likelihood=kind).fit(X, np.array([0.0, 1.0, -2.0, 0.0, 3.0]))
    with pytest.raises(ValueError, match="y_train has -1 in row 0"):
        HurdleGamma().check_encoded(np.array([-1.0], np.float32), "y_train")


def test_amounts_that_are_all_zero_or_never_can_be_learned():
    for y in (np.zeros(5), np.ones(5), np.array([0.0, 0.0, 1e-3, 5.0, 1e4])):
        for kind in HURDLES:
            likelihood = kind().fitted(y.astype(np.float32))
            outputs = families.random_outputs(likelihood, 5)
            assert np.all(np.isfinite(likelihood.components(outputs).log_prob(y))), (kind, y)


def test_a_beta_density_is_that_of_scipy_also_where_it_is_narrow():
    likelihood = Beta(precision=1e4)
    components = likelihood.components(families.random_outputs(likelihood))
    precision = np.exp(components.log_precision)
    known = stats.beta(components.mean * precision, (1.0 - components.mean) * precision)
    y = components.quantile(0.3)[0]
    np.testing.assert_allclose(components.log_prob(y), known.logpdf(y), rtol=1e-7)
    np.testing.assert_allclose(components.std, known.std())
    np.testing.assert_array_equal(components.log_prob(np.array([-1.0, 0.0, 1.0, 2.0, 0.0, 1.0, 7.0])), -np.inf)
    y = y.astype(np.float32)
    exact = components.log_prob(y.astype(float))[0]
    outputs = families.random_outputs(likelihood)[0].astype(np.float32)
    np.testing.assert_allclose(likelihood.log_prob(outputs, y), exact, atol=0.05)


def test_what_is_not_between_the_bounds_is_refused_with_row_and_advice():
    for value, advice in (
        (0.0, "move such values"),
        (1.0, "move"),
        (37.5, "upper=100"),
        (-1.0, "give the bounds"),
    ):
        y = np.array([0.3, 0.5, value, 0.2, value])
        with pytest.raises(ValueError, match=rf"y has {value:g} in row 2 \(2 such rows\).*between 0 and 1: .*{advice}"):
            MileRegressor(likelihood="beta").fit(X, y)
    with pytest.raises(ValueError, match="y_valid has 1 in row 1"):
        Beta().check_encoded(np.array([0.5, 1.0], np.float32), "y_valid")
    with pytest.raises(ValueError, match="lower must be below upper"):
        Beta(lower=1.0)
    with pytest.raises(ValueError, match="precision must be a positive number"):
        Beta(precision=-1.0)


def test_bounds_are_those_of_the_object():
    y = np.array([-9.0, -5.0, 1.0, 9.0])
    response = Beta(lower=-10.0, upper=10.0).learn(y, np.arange(4))
    np.testing.assert_allclose(response.encode(y), [0.05, 0.25, 0.55, 0.95], rtol=1e-6)
    np.testing.assert_allclose(response.decode(response.encode(y)), y, rtol=1e-5)
    np.testing.assert_array_equal(response.usable([-10.0, -9.9, np.nan, 10.0]), [False, True, False, False])
    assert response.unit == 20.0


def test_shares_with_few_values_have_a_largest_precision():
    y = np.tile(np.linspace(0.1, 0.9, 9), 20).astype(np.float32)
    found = Beta().fitted(y)
    narrowest = np.sqrt(0.25 / (1.0 + found.most))
    assert narrowest == pytest.approx(0.05, rel=0.1)
    assert mile.Beta().fitted(np.random.default_rng(0).uniform(0.1, 0.9, 200).astype(np.float32)).most == 1e6
