"""Every registered family of numbers: density, quantiles, samples and gradients agree, and settings are checked."""

import json
from itertools import pairwise

import numpy as np
import pytest
from families import (
    check_compiled_density,
    check_density_is_the_slope_of_the_cdf,
    check_finite_far_out,
    check_gradients,
    check_quantiles_invert_the_cdf,
    check_samples_have_the_moments,
    random_outputs,
)

import mile
from mile import _registry
from mile.configuration import build, describe
from mile.likelihoods import AbstractNumberLikelihood
from mile.likelihoods.counts import AbstractCount
from mile.likelihoods.weights import DrawWeights

LEVELS = np.array([0.001, 0.1, 0.3, 0.45, 0.6, 0.8, 0.999])
KINKED = {"histogram": 5e-3}  # what Gauss's rule reaches where the density has corners


# Families whose values have probabilities of their own: test_counts.py, test_hurdle.py and test_ordinal.py have these.
WITH_ATOMS = (AbstractCount, mile.HurdleLogNormal, mile.HurdleGamma, mile.Ordinal)


def cases():
    """Each registered family with its defaults; a family that needs more than that adds a case of its own here."""
    found = {
        name: kind()
        for name, kind in _registry.likelihood.classes.items()
        if kind.__module__.startswith("mile.")
        and issubclass(kind, AbstractNumberLikelihood)
        and not issubclass(kind, WITH_ATOMS)
    }
    # Wide log-logistic distributions have no moments.
    narrow = {"log_logistic": mile.LogLogistic(center=0.0, spread=0.08, below=5.0, above=5.0)}
    return found | narrow | {"gaussian, bounded": mile.Gaussian(link="bounded")}


def likely_values(components):
    """A value of each row that the first draw finds possible, from one tail to the other."""
    return np.array([components.quantile(level)[0, row] for row, level in enumerate(LEVELS)])


class OneDraw:
    """What a score needs to know of a mixture."""

    n_draws = 1
    weights = DrawWeights()

    def native_normals(self, location, scale, weight=None):
        return None


def test_density_cdf_and_quantiles_agree():
    for name, likelihood in cases().items():
        print(name)
        components = likelihood.components(random_outputs(likelihood, scale=0.5))
        check_density_is_the_slope_of_the_cdf(components, rtol=KINKED.get(name, 1e-5))
        check_quantiles_invert_the_cdf(components)
        assert np.all(components.spread > 0)


def test_samples_have_the_moments():
    for name, likelihood in cases().items():
        print(name)
        check_samples_have_the_moments(likelihood.components(random_outputs(likelihood, 5, 2, scale=0.5)), 10_000)


def test_compiled_density_and_gradients():
    for name, likelihood in cases().items():
        print(name)
        outputs = random_outputs(likelihood, len(LEVELS), 2, scale=0.5)
        y = likely_values(likelihood.components(outputs))
        check_compiled_density(likelihood, outputs, y)
        check_gradients(likelihood, outputs, y)
        check_finite_far_out(likelihood, y)


def test_the_score_of_one_distribution_is_that_of_its_samples():
    rng = np.random.default_rng(0)
    for name, likelihood in cases().items():
        print(name)
        outputs = random_outputs(likelihood, len(LEVELS), 1, scale=0.5)
        components, many = likelihood.components(outputs), likelihood.components(np.tile(outputs, 10_000))
        y = likely_values(components)
        found = components.crps(components.evaluator(OneDraw()), y)
        first, second = (many.sample(rng).reshape(10_000, len(y)) for _ in range(2))
        away, apart = np.abs(first - y), 0.5 * np.abs(first - second)
        error = np.sqrt((away.var(axis=0) + apart.var(axis=0)) / len(first))
        assert np.all(np.abs(found - away.mean(axis=0) + apart.mean(axis=0)) <= 5.0 * error), name


@pytest.mark.parametrize("floor", [0.0, -1.0, 11.0, np.nan, True, "1"])
def test_a_floor_that_is_no_small_positive_number_is_refused(floor):
    for kind in (mile.StudentTNoise, mile.LaplaceNoise, mile.TwoPieceNormal):
        with pytest.raises(ValueError, match="floor must be a number between 1e-06 and 10"):
            kind(floor=floor)


def test_parts_of_a_mixture_and_bins_are_counted():
    with pytest.raises(ValueError, match="n_parts must be at most 8"):
        mile.NormalMixture(n_parts=9)
    with pytest.raises(ValueError, match="n_bins must be an integer of at least 4"):
        mile.Histogram(n_bins=3)
    for wrong in ({"knots": (0.0, 1.0, 1.0, 2.0)}, {"knots": (0.0, 1.0)}, {"tails": (1.0, -1.0)}, {"tails": None}):
        with pytest.raises(ValueError, match=r"knots|tails"):
            mile.Histogram(**{"n_bins": 4, "knots": (0.0, 1.0, 2.0, 3.0), "tails": (1.0, 1.0), **wrong})


def test_a_fitted_histogram_begins_with_the_distribution_of_y():
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.normal(-1.0, 0.2, 3000), rng.normal(1.0, 0.3, 3000), [1e5]])
    fitted = mile.Histogram.for_response(y).fitted(y)
    components = fitted.components(np.zeros((1, fitted.n_outputs, 1)))
    assert max(fitted.tails) < 1.0
    for level in (0.02, 0.1, 0.5, 0.9, 0.98):
        assert np.mean(y < components.quantile(level)[0, 0]) == pytest.approx(level, abs=0.03)


def test_knots_are_apart_where_values_repeat():
    y = np.repeat([0.0, 1.0], [900, 100])
    fitted = mile.Histogram(n_bins=8).fitted(y)
    assert np.diff(fitted.knots).min() > 0.05
    assert fitted.tails == (0.5, 0.5)  # the resolution
    assert np.all(np.isfinite(fitted.components(np.zeros((1, 8, 2))).log_prob(np.array([0.0, 1.0]))))


def test_the_histogram_between_knots_is_the_integral_of_its_straight_lines():
    likelihood = mile.Histogram(n_bins=6)
    components, knots = likelihood.components(random_outputs(likelihood, 2, 1)), likelihood.hats.knots
    for low, high in pairwise(knots):
        first, last = np.full(2, low), np.full(2, high)
        area = 0.5 * (high - low) * (components.density(first) + components.density(last))
        np.testing.assert_allclose(components.cdf(last) - components.cdf(first), area, rtol=1e-12)


def test_a_description_in_a_file_gives_the_same_family():
    y = np.random.default_rng(0).standard_normal(200)
    for name, likelihood in cases().items():
        fitted = likelihood.fitted(1.0 / (1.0 + np.exp(-y)))  # positive, and between the bounds of shares
        again = build(json.loads(json.dumps(describe(fitted))), _registry.likelihood)
        assert again == fitted, name
        assert hash(again) == hash(fitted)
