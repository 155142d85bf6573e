"""Log likelihoods of responses with limits: closed forms of scipy, gradients, and float32 far out."""

import jax
import numpy as np
import pytest
from families import (
    check_finite_far_out,
    check_gradients,
    check_samples_have_the_moments,
    random_outputs,
    single_precision,
)
from scipy import integrate, stats

import mile
from mile.likelihoods.censorable import normal_of_limits
from mile.likelihoods.limits import UNKNOWN, Limits, limits_of
from mile.likelihoods.log_logistic import LogLogisticComponents

POSITIVE = {"center": 0.2, "spread": 0.8, "below": 4.0, "above": 5.0, "floor": 0.01}
FAMILIES = {
    "lognormal": mile.LogNormal(**POSITIVE),
    "weibull": mile.Weibull(**POSITIVE),
    "log_logistic": mile.LogLogistic(**POSITIVE),
    "gaussian": mile.Gaussian(link="bounded"),
}
# Observed, right, left, interval, an interval far below and one far above, a narrow one.
LOWER = np.array([0.7, 1.3, -UNKNOWN, 0.5, 1e-3, 40.0, 1.0])
UPPER = np.array([0.7, UNKNOWN, 0.9, 2.0, 2e-3, 90.0, 1.0001])
LIMITS = np.stack([LOWER, UPPER], axis=1)


def frozen(components):
    """The same distributions in scipy."""
    name = type(components).__name__
    if name == "NormalComponents":
        return stats.norm(components.location, components.scale)
    scale = np.exp(components.location)
    return {
        "LogNormalComponents": lambda: stats.lognorm(components.noise, scale=scale),
        "WeibullComponents": lambda: stats.weibull_min(1.0 / components.noise, scale=scale),
        "LogLogisticComponents": lambda: stats.fisk(1.0 / components.noise, scale=scale),
    }[name]()


def expected(components):
    """The log likelihood by scipy, of the side on which probabilities are small."""
    law = frozen(components)
    lower, upper = np.where(LOWER > -UNKNOWN, LOWER, -np.inf), np.where(UPPER < UNKNOWN, UPPER, np.inf)
    below, above = law.cdf(upper) - law.cdf(lower), law.sf(lower) - law.sf(upper)
    inside = np.where(law.sf(lower) < 0.5, above, below)
    with np.errstate(divide="ignore"):
        return np.where(LOWER == UPPER, law.logpdf(LOWER), np.log(inside))


def test_the_log_likelihood_is_that_of_scipy():
    for name, family in FAMILIES.items():
        print(name)
        likelihood = mile.Censored(family=family)
        outputs = random_outputs(likelihood, len(LOWER), 3, scale=0.5)
        components = likelihood.components(outputs)
        found = components.log_prob_of_limits(LOWER, UPPER, family.lowest)
        known = expected(components)
        possible = np.isfinite(known)
        assert possible.mean() > 0.8
        np.testing.assert_allclose(found[possible], known[possible], rtol=1e-6, atol=1e-6)
        with jax.enable_x64(True):
            compiled = np.stack([likelihood.log_prob(one.astype(np.float64), LIMITS) for one in outputs])
        np.testing.assert_allclose(compiled, found, rtol=1e-7, atol=1e-7)
        single = single_precision(likelihood, LIMITS)(outputs.astype(np.float32))[0]
        np.testing.assert_allclose(single, found, rtol=2e-4, atol=2e-4)


def test_gradients_are_right_and_finite_far_out():
    for name, family in FAMILIES.items():
        print(name)
        likelihood = mile.Censored(family=family)
        check_gradients(likelihood, random_outputs(likelihood, len(LOWER), 2, scale=0.5), LIMITS, rtol=2e-6)
        check_finite_far_out(likelihood, LIMITS)


def test_observed_rows_have_the_density_of_the_family():
    for family in FAMILIES.values():
        likelihood, y = mile.Censored(family=family), np.array([0.3, 1.0, 5.0])
        outputs = random_outputs(likelihood, 3, 1)[0]
        with jax.enable_x64(True):
            found = likelihood.log_prob(outputs, np.stack([y, y], axis=1))
            np.testing.assert_array_equal(found, family.log_prob(outputs, y))


def test_restricted_means_are_integrals_of_survival():
    for family in FAMILIES.values():
        components = family.components(random_outputs(family, 2, 2, scale=0.7))
        law = frozen(components)
        for limit in (0.05, 1.0, 30.0):
            lowest = min(0.0, float(law.ppf(1e-12).min()))
            found, _ = integrate.quad_vec(law.cdf, lowest, limit, epsrel=1e-9, limit=2000)
            np.testing.assert_allclose(components.mean_below(limit), limit - found, rtol=2e-6, atol=1e-7)
    noise_of_one = LogLogisticComponents(np.zeros((1, 1)), np.ones((1, 1)))
    np.testing.assert_allclose(noise_of_one.mean_below(3.0), np.log(4.0), rtol=1e-12)


def test_log_logistic_moments_exist_where_they_should():
    narrow = mile.LogLogistic(center=0.0, spread=0.12, below=3.0, above=3.0)
    check_samples_have_the_moments(narrow.components(random_outputs(narrow, 5, 2, scale=0.3)))
    components = LogLogisticComponents(np.zeros((1, 4)), np.array([[0.3, 0.49, 0.7, 1.2]]))
    law = frozen(components)
    np.testing.assert_allclose(components.mean[0, :3], law.mean()[0, :3], rtol=1e-10)
    np.testing.assert_allclose(components.std[0, :2], law.std()[0, :2], rtol=1e-8)
    assert components.mean[0, 3] == np.inf
    assert np.all(components.std[0, 2:] == np.inf)


def test_the_normal_distribution_of_limits_is_the_most_likely_one():
    rng = np.random.default_rng(0)
    values, seen = rng.normal(3.0, 2.0, 20_000), rng.normal(4.0, 2.0, 20_000)
    limits = Limits(np.minimum(values, seen), np.where(values <= seen, values, np.inf))
    center, spread = normal_of_limits(limits, np.arange(20_000), None)
    assert (center, spread) == (pytest.approx(3.0, abs=0.08), pytest.approx(2.0, abs=0.08))
    doubled = normal_of_limits(limits, np.arange(20_000), np.full(20_000, 2.0))
    assert doubled == pytest.approx((center, spread))
    assert normal_of_limits(Limits(np.full(5, 2.0), np.full(5, 2.0)), np.arange(5), None) == (2.0, 1.0)


def test_a_family_is_fitted_with_reach_beyond_limits():
    rng = np.random.default_rng(0)
    y = np.exp(rng.normal(1.0, 0.5, 500)).astype(np.float32)
    observed = mile.Censored().fitted(np.stack([y, y], axis=1)).family
    upper = np.where(y > 3.0, UNKNOWN, y).astype(np.float32)
    limited = (
        mile.Censored().fitted(np.stack([np.minimum(y, 3.0), np.maximum(upper, np.minimum(y, 3.0))], axis=1)).family
    )
    assert observed.center == pytest.approx(limited.center, abs=0.1)
    assert observed.spread == pytest.approx(limited.spread, abs=0.05)
    assert limited.above >= 4  # although no limit lies a spread above the center
    assert limited.fitted_to_limits(Limits(y, y)) is limited
    plain = mile.LogLogistic().fitted(y)
    assert plain.spread == pytest.approx(0.5, abs=0.05)
    assert limits_of(np.array([1.0]))["upper"][0] == 1.0
