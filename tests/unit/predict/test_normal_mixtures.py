"""Predictions of mixtures of normal distributions in each draw, by the native kernel and without it."""

import dataclasses

import numpy as np
import pytest
from scipy import stats
from scipy.special import softmax

from mile import MLP, NormalMixture, native
from mile.features.numbers import Standardizer
from mile.likelihoods import ScaledResponse
from mile.likelihoods.weights import DrawWeights
from mile.predict import Predictive, predict

N_DRAWS, N_ROWS = 41, 30  # no multiples of a vector
LEVELS = [1e-6, 0.01, 0.3, 0.5, 0.9, 1 - 1e-6]
LIKELIHOOD = NormalMixture(floor=0.01)
NETWORK = MLP(n_inputs=3, hidden=(5,), n_outputs=LIKELIHOOD.n_outputs)
RNG = np.random.default_rng(0)
DRAWS = (0.5 * RNG.standard_normal((N_DRAWS, NETWORK.dimension))).astype(np.float32)
X = RNG.standard_normal((N_ROWS, 3)).astype(np.float32)
Y = 2.0 * RNG.standard_normal(N_ROWS)
WITH_KERNEL = pytest.mark.skipif(native.kernel_name() == "xla", reason="the native kernel is not in use")
WEIGHTS = [None, np.repeat([1.0, 3.0, 0.5], [20, 20, 1]) / 80.5]


def predictive(weights, memory=1 << 20):
    response = ScaledResponse(Standardizer.identity())
    found = predict(NETWORK, LIKELIHOOD, DRAWS, X, response, memory, DrawWeights(weights))
    assert isinstance(found, Predictive)
    return found


def parts(weights):
    """Weights, locations and scales of all parts of all draws, one row after another: (row, component)."""
    mixture = predictive(weights)._mixture
    outputs = mixture.over_blocks(lambda outputs: outputs).astype(float)
    found = LIKELIHOOD.components(outputs)
    shares = np.full(N_DRAWS, 1.0 / N_DRAWS) if weights is None else weights
    weight = softmax(outputs[:, :3], axis=1) * shares[:, None, None]
    return tuple(
        np.moveaxis(array, -1, 0).reshape(N_ROWS, -1)
        for array in (np.moveaxis(weight, 1, 0), found.location, found.scale)
    )


def by_numpy(monkeypatch, weights):
    """The same prediction where no kernel is in use for mixtures; the network's outputs have the same bits."""
    found = predictive(weights)
    monkeypatch.setattr(type(found._mixture), "native_normals", lambda *arguments: None)
    return found


@pytest.mark.parametrize("weights", WEIGHTS, ids=["equal", "weighted"])
def test_predictions_are_those_of_one_mixture_of_all_parts(weights):
    weight, location, scale = parts(weights)
    found = predictive(weights)
    quantiles = found.quantile(LEVELS)
    for column, level in enumerate(LEVELS):
        plain = (weight * stats.norm.cdf(quantiles[:, column, None], location, scale)).sum(axis=1)
        np.testing.assert_allclose(plain, level, atol=1e-10)
    # E|Y - y| less half of E|Y - Y'|, of which all pairs of normal distributions have a closed form.
    expected = np.empty(N_ROWS)
    for row, (share, at, width) in enumerate(zip(weight, location, scale, strict=True)):
        away = share @ stats.foldnorm.mean(np.abs(Y[row] - at) / width, scale=width)
        both = np.hypot(width[:, None], width)
        apart = stats.foldnorm.mean(np.abs(at[:, None] - at) / both, scale=both)
        expected[row] = away - 0.5 * share @ apart @ share
    np.testing.assert_allclose(found.crps(Y), expected, rtol=1e-9)


@WITH_KERNEL
@pytest.mark.parametrize("weights", WEIGHTS, ids=["equal", "weighted"])
def test_the_kernel_changes_nothing_but_rounding(monkeypatch, weights):
    found = predictive(weights)
    assert found._mixture.kernel is not None
    quantiles, score, std = found.quantile(LEVELS), found.crps(Y), found.std[:, None]
    plain = by_numpy(monkeypatch, weights)
    np.testing.assert_allclose(quantiles / std, plain.quantile(LEVELS) / std, rtol=0, atol=1e-8)
    np.testing.assert_allclose(score, plain.crps(Y), rtol=1e-9)


def test_the_score_by_an_integral_is_that_by_pairs(monkeypatch):
    found = predictive(WEIGHTS[1])
    pairs = found.crps(Y)
    monkeypatch.setattr("mile.likelihoods.mixture._MOST_PAIRED", 0)
    np.testing.assert_allclose(found.crps(Y), pairs, rtol=1e-5)  # of rough mixtures; of smooth ones it is exact
    np.testing.assert_allclose(by_numpy(monkeypatch, WEIGHTS[1]).crps(Y), found.crps(Y), rtol=1e-9)


def test_blocks_of_rows_change_nothing():
    narrow, wide = predictive(None, memory=200_000), predictive(None)
    assert 8 <= narrow._mixture.block_rows < N_ROWS <= wide._mixture.block_rows
    np.testing.assert_allclose(narrow.quantile(LEVELS), wide.quantile(LEVELS), rtol=1e-9)
    np.testing.assert_allclose(narrow.crps(Y), wide.crps(Y), rtol=1e-6)


@WITH_KERNEL
def test_weighted_sums_of_the_kernel_in_the_tails_and_for_any_number_of_components():
    for n_components in (1, 2, 7, 8, 9, 64, 100):
        location, spread = RNG.standard_normal((2, N_ROWS, n_components))
        precision, weight = np.exp(3.0 * spread), RNG.dirichlet(np.ones(n_components), N_ROWS)
        y = np.linspace(-30.0, 30.0, N_ROWS)
        cdf, density = native.weighted_mixture(location, precision, weight, y)
        z = (y[:, None] - location) * precision
        np.testing.assert_allclose(cdf, (weight * stats.norm.cdf(z)).sum(axis=1), rtol=1e-12, atol=1e-300)
        expected = (weight * precision * stats.norm.pdf(z)).sum(axis=1)
        np.testing.assert_allclose(density, expected, rtol=1e-12, atol=1e-300)


def test_a_quantile_needs_few_evaluations():
    # A Newton step that rounding swallows once sent the search back to halving its bracket: 40 evaluations.
    found = predictive(None)
    components = LIKELIHOOD.components(found._mixture.over_blocks(lambda outputs: outputs))
    evaluate, calls = components.evaluator(found._mixture), []

    def counted(y):
        calls.append(y)
        return evaluate(y)

    for level in LEVELS:
        calls.clear()
        components.solve(counted, components.spread, (found.mean, found.std), level)
        assert 2 <= len(calls) <= 25


def test_rows_of_nan_are_nan_alone():
    draws = DRAWS.copy()
    draws[3] = np.nan
    found = dataclasses.replace(predictive(None)._mixture, draws=draws)
    assert np.isnan(LIKELIHOOD.predictive(found, ScaledResponse(Standardizer.identity())).quantile(0.5)).all()
