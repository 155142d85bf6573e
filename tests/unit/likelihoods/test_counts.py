"""Families of counts: probabilities, quantiles, scores and gradients agree; what they learn of y, what they refuse."""

import families
import numpy as np
import pytest
from cases import case
from scipy import stats

import mile
from mile import MileRegressor
from mile.likelihoods.weights import EQUAL, DrawWeights

COUNTS = (mile.Poisson, mile.ZeroInflatedPoisson, mile.NegativeBinomial, mile.ZeroInflatedNegativeBinomial)
LEVELS = np.array([0.001, 0.1, 0.3, 0.5, 0.7, 0.9, 0.999])


class Mixture:
    """What quantiles and scores need to know of draws."""

    n_draws = 3

    def __init__(self, weights=EQUAL):
        self.weights = weights


def simulated(mean, n_rows=400):
    rng = np.random.default_rng(0)
    return rng.poisson(mean * rng.gamma(0.7, 1.0 / 0.7, n_rows)).astype(np.float32)


def learned(kind, mean=3.0):
    """Components under three draws, the likelihood and its outputs, and a value of each row from tail to tail."""
    likelihood = kind().fitted(simulated(mean))
    outputs = families.random_outputs(likelihood, len(LEVELS))
    components = likelihood.components(outputs)
    return likelihood, outputs, components, np.array([components.quantile(p)[0, row] for row, p in enumerate(LEVELS)])


def test_probabilities_samples_and_gradients_agree():
    for kind in COUNTS:
        with case(kind.__name__):
            likelihood, outputs, components, y = learned(kind)
            families.check_samples_have_the_moments(components, 5_000)
            families.check_compiled_density(likelihood, outputs, y)
            families.check_gradients(likelihood, outputs, y)
            families.check_finite_far_out(likelihood, y)


def test_probabilities_are_those_of_scipy_and_sum_to_one():
    for kind in COUNTS:
        for mean in (0.05, 3.0, 400.0):
            with case((kind.__name__, mean)):
                _, _, components, y = learned(kind, mean)
                base = getattr(components, "base", components)
                chance = components.chance if base is not components else 0.0
                if issubclass(kind, mile.NegativeBinomial):
                    size = np.exp(-base.log_dispersion)
                    known = stats.nbinom(size, size / (size + base.mean))
                else:
                    known = stats.poisson(base.mean)
                expected = (1.0 - chance) * known.pmf(y) + chance * (y == 0)
                np.testing.assert_allclose(components.density(y), expected, rtol=1e-7)
                np.testing.assert_allclose(components.cdf(y + 0.5), chance + (1 - chance) * known.cdf(y), rtol=1e-9)
                np.testing.assert_allclose(components.cdf(y) - components.cdf_below(y), expected, atol=1e-12)
                np.testing.assert_array_equal(components.density(y + 0.5), 0.0)
                np.testing.assert_array_equal(components.cdf(y - y - 1.0), 0.0)
                masses = np.array([mass for _, mass in zip(range(2_000), components.masses(), strict=False)])
                whole = components.countable & (components.reach < 2_000)
                np.testing.assert_allclose(masses.sum(axis=0)[:, whole], 1.0, rtol=1e-10)
                first = np.array([masses[int(count), 0, row] for row, count in enumerate(np.minimum(y, 1_999.0))])
                here = whole & (y < 1_999.0)
                np.testing.assert_allclose(first[here], expected[0, here], rtol=1e-7)


def test_quantiles_are_the_smallest_counts_that_reach_their_level():
    uneven = DrawWeights(np.array([0.2, 0.5, 0.3]))
    for kind in COUNTS:
        for mean in (0.05, 3.0, 20_000.0):
            _, _, components, _ = learned(kind, mean)
            evaluate = components.evaluator(Mixture(uneven))
            for level in (1e-3, 0.05, 0.5, 0.95, 0.999):
                with case((kind.__name__, mean, level)):
                    moments = components.mean.mean(axis=0), components.std.mean(axis=0)
                    found = components.solve(evaluate, components.spread, moments, level)
                    assert np.all(found == np.floor(found))
                    assert np.all(uneven.mean(components.cdf(found)) >= level - 1e-12)
                    assert np.all(uneven.mean(components.cdf(found - 1.0)) < level + 1e-12)
                    alone = components.quantile(level)
                    assert np.all(families.cdf_of_each(components, alone) >= level)
                    assert np.all(families.cdf_of_each(components, alone - 1.0) < level)


def test_the_score_is_the_sum_over_all_counts():
    """Also where a table of the first counts ends, and where there is none."""
    for kind in COUNTS:
        for mean in (0.3, 40.0, 700.0):
            with case((kind.__name__, mean)):
                _, _, components, y = learned(kind, mean)
                found = components.crps(components.evaluator(Mixture()), y)
                every = np.arange(min(components.reach.max(), 20_000.0) + 1.0)
                rows = components.reach < every[-1]
                cdf = np.array([components.cdf(np.full(len(y), count)).mean(axis=0) for count in every])
                exact = np.square(cdf - (every[:, None] >= y)).sum(axis=0)
                np.testing.assert_allclose(found[rows], exact[rows], rtol=1e-5)


def test_parameters_of_simulated_counts_are_recovered():
    """Within 4.5 standard errors; a correct program fails once in ten thousand runs with other seeds."""
    for kind in COUNTS:
        with case(kind.__name__):
            likelihood = kind(**{"center": 1.0, "spread": 0.5, "below": 8.0, "above": 8.0})
            families.check_parameters_are_recovered(likelihood, 0.5 * np.ones(likelihood.n_outputs))


def test_no_draw_leaves_sight_of_the_data():
    for kind in COUNTS:
        y = simulated(3.0)
        likelihood = kind().fitted(y)
        far = 1e3 * np.concatenate([np.eye(likelihood.n_outputs), -np.eye(likelihood.n_outputs)])
        components = likelihood.components(far[:, :, None])
        with case(kind.__name__):
            assert components.mean.max() < 30.0 * y.max()
            assert components.std.max() < 100.0 * y.max()


def test_what_is_no_count_is_refused_with_row_and_advice():
    x = np.arange(10.0).reshape(5, 2)
    for value, advice in ((-1.0, "both signs"), (0.5, "hurdle_gamma"), (2.0**24 + 2, "larger units")):
        y = np.array([3.0, 0.0, value, 2.0, value])
        with pytest.raises(ValueError, match=rf"y has .* in row 2 \(2 such rows\).*NegativeBinomial.*{advice}"):
            MileRegressor(likelihood="negative_binomial").fit(x, y)
    with pytest.raises(ValueError, match=r"y_train has 1\.5 in row 1"):
        mile.Poisson().check_encoded(np.array([1.0, 1.5], np.float32), "y_train")
    np.testing.assert_array_equal(mile.Poisson().plain_response().usable([0, 1.5, -1, np.nan, 7]), [1, 0, 0, 0, 1])


def test_extreme_responses_can_be_learned():
    for y in (np.zeros(9), np.full(9, 5.0), np.array([0.0] * 99 + [1.0]), np.array([2.0**24, 0.0, 3.0])):
        for kind in COUNTS:
            with case((kind.__name__, y[-1])):
                likelihood = kind().fitted(y.astype(np.float32))
                outputs = families.random_outputs(likelihood, len(y), scale=0.3)
                assert np.all(np.isfinite(likelihood.components(outputs).log_prob(y)))
                assert likelihood.fitted(y.astype(np.float32)) == likelihood
    with pytest.raises(ValueError, match="dispersion must be a positive number"):
        mile.NegativeBinomial(dispersion=0.0)
    with pytest.raises(ValueError, match="zeros"):
        mile.ZeroInflatedPoisson(zeros=np.nan)
