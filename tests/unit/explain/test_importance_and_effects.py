"""Importance and effects against closed forms, of models that are known exactly."""

import numpy as np
import pytest

from mile.explain._columns import encoded_table
from mile.explain.contributions import explain_one
from mile.explain.effects import effect, grid
from mile.explain.importance import Importance, JudgedRows, permutation_importance
from mile.explain.interactions import interactions
from mile.likelihoods.weights import DrawWeights

RNG = np.random.default_rng(0)
N_ROWS = 4_000
X = RNG.uniform(-1.0, 1.0, (N_ROWS, 3))
TABLE = encoded_table(X, np.arange(3), ["steep", "curved", "idle"])


class KnownModel:
    """Draws of y ~ N(f(x), noise): each draw is a function and a noise."""

    draws_of_chain = 2

    def __init__(self, *functions, noise=1.0, weights=None):
        self.functions, self.noise, self.values = functions, noise, weights

    def per_draw(self, x):
        value = np.stack([function(x) for function in self.functions])
        return value, np.full_like(value, self.noise)

    def log_prob_per_draw(self, x, y):
        return -0.5 * np.square((y - self.per_draw(x)[0]) / self.noise) - np.log(self.noise * np.sqrt(2 * np.pi))

    def weights(self, x):
        return DrawWeights(self.values)

    def row_quantities(self, x):
        return {"mean": self.weights(x).mean(self.per_draw(x)[0])}


def importance_of(model, y, **options) -> Importance:
    parts = [JudgedRows(model, np.arange(0, N_ROWS, 2)), JudgedRows(model, np.arange(1, N_ROWS, 2))]
    return permutation_importance(parts, TABLE, y, rng=np.random.default_rng(1), **options)


def test_importance_is_the_loss_in_log_density_that_theory_says():
    y = 2.0 * X[:, 0] + RNG.standard_normal(N_ROWS)
    found = importance_of(KnownModel(*[lambda x: 2.0 * x[:, 0]] * 2), y)
    # The error of a shuffled row is 2 (a - b) more, whose mean square is 4 * 2 * var = 8 / 3; half of that is lost.
    assert abs(found.loss[0] - 4.0 / 3.0) < 5 * found.standard_error[0]
    assert 0.01 < found.standard_error[0] < 0.05
    np.testing.assert_array_equal(found.loss[1:], 0.0)
    assert found.important.tolist() == [True, False, False]
    assert found.frame()["column"][0] == "steep"


def test_draws_that_disagree_widen_the_interval():
    y = X[:, 0] + RNG.standard_normal(N_ROWS)
    agree, differ = (
        importance_of(KnownModel(*[lambda x, b=b: b * x[:, 0] for b in slopes]), y)
        for slopes in ([1.0] * 4, [0.0, 0.1, 1.9, 2.0])
    )
    assert differ.standard_error[0] > 1.5 * agree.standard_error[0]


def test_a_row_of_weight_zero_does_not_count():
    y = X[:, 0] + 0.1 * RNG.standard_normal(N_ROWS)
    broken = np.where(np.arange(N_ROWS) < 100, y + 50.0, y)
    weight = np.where(np.arange(N_ROWS) < 100, 0.0, 1.0)
    model = KnownModel(*[lambda x: x[:, 0]] * 2)
    same = [importance_of(model, outcome, weight=weight).loss for outcome in (y, broken)]
    np.testing.assert_allclose(*same)


def test_noise_is_seldom_called_important():
    """Fails by chance once in 10^5: 40 tables, of which at most one in twenty is expected to have an alarm."""
    rng, alarms = np.random.default_rng(5), 0
    table = encoded_table(rng.standard_normal((200, 6)), np.arange(6), list("abcdef"))
    for _ in range(40):
        slopes = 0.3 * rng.standard_normal(6)
        model = KnownModel(*[lambda x, slopes=slopes: x @ slopes] * 2)
        parts = [JudgedRows(model, np.arange(200))]
        y = rng.standard_normal(200)
        alarms += permutation_importance(parts, table, y, n_repeats=3, rng=rng).important.any()
    assert alarms <= 9


def test_effects_are_those_of_the_function_with_the_spread_of_the_draws():
    functions = [lambda x, b=b: b * np.square(x[:, 1]) + x[:, 0] for b in (0.5, 1.0, 1.5)]
    model = KnownModel(*functions, noise=0.3)
    found = effect(model, TABLE, 1, "mean", np.random.default_rng(0))
    square = np.square(found.value)
    # Differences between neighboring points are the same in all rows, so both curves are exact up to a shift.
    for curve in (found.dependence, found.accumulated):
        np.testing.assert_allclose(np.diff(curve.mean), np.diff(square), atol=1e-9)
        np.testing.assert_allclose(curve.aleatoric, 0.3)
    np.testing.assert_allclose(found.dependence.epistemic, square * np.std([0.5, 1.0, 1.5]), atol=1e-9)
    assert abs(found.accumulated.mean @ found.rows / N_ROWS) < 0.02
    assert found.rows.sum() == N_ROWS
    assert len(found.frame()["value"]) == 20


def test_accumulated_effects_ask_only_rows_that_occur():
    """With x1 = x0 the function is 2 x0 where rows are; partial dependence also asks where the product is not zero."""
    x = np.repeat(np.linspace(-1.0, 1.0, 401)[:, None], 2, axis=1)
    table = encoded_table(x, np.arange(2), ["a", "b"])
    model = KnownModel(*[lambda x: 2.0 * x[:, 0] + 1e3 * np.maximum(np.abs(x[:, 0] - x[:, 1]) - 0.2, 0.0)] * 2)
    found = effect(model, table, 0, "mean", np.random.default_rng(0))
    np.testing.assert_allclose(np.diff(found.accumulated.mean), 2.0 * np.diff(found.value), atol=1e-9)
    assert found.dependence.mean.min() > 10.0


def test_weights_of_draws_count_in_curves():
    model = KnownModel(lambda x: x[:, 0], lambda x: -x[:, 0], weights=np.array([0.75, 0.25]))
    found = effect(model, TABLE, 0, "mean", np.random.default_rng(0))
    np.testing.assert_allclose(found.dependence.mean, 0.5 * found.value, atol=1e-12)


@pytest.mark.parametrize(("values", "expected"), [([3, 1, 1, np.nan, 2], [1, 2, 3]), ([np.nan] * 3, [np.nan])])
def test_a_grid_has_the_values_of_columns_with_few(values, expected):
    column = encoded_table(np.array(values)[:, None], np.zeros(1, int), ["few"]).columns[0]
    np.testing.assert_array_equal(column.values[grid(column)], expected)


def test_contributions_are_shapley_values():
    """Of 3 a + 2 b c they are known: all of the first, and half of what the product has beyond its averages."""
    model = KnownModel(*[lambda x, k=k: k * 3.0 * x[:, 0] + 2.0 * x[:, 1] * x[:, 2] for k in (0.5, 1.5)])
    row = encoded_table(np.array([[0.5, -0.4, 0.8]]), np.arange(3), TABLE.names)
    found = explain_one(model, row, TABLE, None, N_ROWS, np.random.default_rng(0))
    a, b, c = X.T
    expected = [
        3.0 * (0.5 - a.mean()),
        np.mean((-0.4 - b) * (0.8 + c)),
        np.mean((0.8 - c) * (-0.4 + b)),
    ]
    np.testing.assert_allclose(found.contributions["mean"], expected, atol=1e-12)
    np.testing.assert_allclose(found.over_draws[0], 1.5 * (0.5 - a.mean()), atol=1e-12)
    np.testing.assert_allclose(found.over_draws[1:], 0.0, atol=1e-12)
    assert abs(found.narrowing.spread[0] - 3.0 / np.sqrt(3.0)) < 0.5  # of few rows; they are uniform on (-1, 1)


def test_only_columns_that_are_not_simply_added_interact():
    functions = [lambda x, k=k: np.exp(x[:, 0]) + k * x[:, 1] * x[:, 2] for k in (0.8, 1.0, 1.2)]
    found = interactions(KnownModel(*functions), TABLE, [0, 1, 2], np.random.default_rng(0))
    best, *others = found
    assert (best.first, best.second) == ("curved", "idle")
    assert 0.15 < best.strength < 0.6  # a product of two uniform columns has a third of a half
    np.testing.assert_allclose(np.array(best.interval), [0.8 * best.strength, 1.2 * best.strength], rtol=0.15)
    assert best.share > 0.5
    for other in others:
        assert other.strength < 1e-9
