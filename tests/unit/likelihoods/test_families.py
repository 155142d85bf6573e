"""Every registered family of numbers: density, quantiles, samples and gradients agree, and settings are checked."""

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
from mile.likelihoods import AbstractNumberLikelihood
from mile.likelihoods.weights import DrawWeights

Y = np.array([-2.5, -0.7, -0.1, 0.05, 0.4, 1.3, 4.0])


def cases():
    """Each registered family with its defaults; a family that needs more than that adds a case of its own here."""
    found = {
        name: kind()
        for name, kind in _registry.likelihood.classes.items()
        if kind.__module__.startswith("mile.") and issubclass(kind, AbstractNumberLikelihood)
    }
    return found | {"gaussian, bounded": mile.Gaussian(link="bounded")}


class OneDraw:
    """What a score needs to know of a mixture."""

    n_draws = 1
    weights = DrawWeights()

    def native_normals(self, location, scale):
        return None


def test_density_cdf_and_quantiles_agree():
    for name, likelihood in cases().items():
        print(name)
        components = likelihood.components(random_outputs(likelihood, scale=0.5))
        check_density_is_the_slope_of_the_cdf(components)
        check_quantiles_invert_the_cdf(components)
        assert np.all(components.spread > 0)


def test_samples_have_the_moments():
    for name, likelihood in cases().items():
        print(name)
        check_samples_have_the_moments(likelihood.components(random_outputs(likelihood, 5, 2, scale=0.5)), 10_000)


def test_compiled_density_and_gradients():
    for name, likelihood in cases().items():
        print(name)
        outputs = random_outputs(likelihood, len(Y), 2)
        check_compiled_density(likelihood, outputs, Y)
        check_gradients(likelihood, outputs, Y)
        check_finite_far_out(likelihood, Y)


def test_the_score_of_one_distribution_is_that_of_its_samples():
    rng = np.random.default_rng(0)
    for name, likelihood in cases().items():
        print(name)
        components = likelihood.components(random_outputs(likelihood, len(Y), 1, scale=0.5))
        found = components.crps(components.evaluator(OneDraw()), Y)
        first, second = (np.stack([components.sample(rng)[0] for _ in range(10_000)]) for _ in range(2))
        away, apart = np.abs(first - Y), 0.5 * np.abs(first - second)
        error = np.sqrt((away.var(axis=0) + apart.var(axis=0)) / len(first))
        assert np.all(np.abs(found - away.mean(axis=0) + apart.mean(axis=0)) <= 5.0 * error), name


@pytest.mark.parametrize("floor", [0.0, -1.0, 11.0, np.nan, True, "1"])
def test_a_floor_that_is_no_small_positive_number_is_refused(floor):
    for kind in (mile.StudentTNoise, mile.LaplaceNoise, mile.TwoPieceNormal):
        with pytest.raises(ValueError, match="floor must be a number between 1e-06 and 10"):
            kind(floor=floor)
