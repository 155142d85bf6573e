"""Explanations of Friedman's first function and of pure noise, whose answers are known."""

import numpy as np
import pytest
from sklearn.datasets import make_friedman1

from mile import MileRegressor

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def friedman():
    X, y = make_friedman1(n_samples=600, n_features=10, noise=1.0, random_state=0)
    return X, MileRegressor(preset="quick", random_state=0).fit(X, y).explain(X, y)


def truth(column, at, X):
    """Return the mean of the function over rows in which a column has some value; the others do not matter."""
    pair = [10.0 * np.sin(np.pi * value * X[:, 1 - column]).mean() for value in at] if column < 2 else None
    rest = {2: 20.0 * np.square(at - 0.5), 3: 10.0 * at, 4: 5.0 * at}
    return np.array(pair) if pair is not None else rest.get(column, np.zeros(len(at)))


def test_intervals_of_importance_separate_the_columns_that_matter(friedman):
    """They are 130 standard errors apart."""
    found = friedman[1].importance
    assert found.important.tolist() == [True] * 5 + [False] * 5
    assert found.interval[:5, 0].min() > found.interval[5:, 1].max()


def test_effects_are_within_two_bands_of_the_truth_at_most_points(friedman):
    X, found = friedman
    inside = []
    for place, name in enumerate(found.columns):
        curve = found.effects[name]
        share = curve.rows / curve.rows.sum()
        expected = truth(place, curve.value, X)
        away = (curve.accumulated.mean - share @ curve.accumulated.mean) - (expected - share @ expected)
        inside += (np.abs(away) <= 2.0 * curve.accumulated.epistemic).tolist()
    assert np.mean(inside) >= 0.95


def test_the_pair_that_interacts_is_found(friedman):
    best, *others = friedman[1].interactions
    assert {best.first, best.second} == {"x0", "x1"}
    assert best.interval[0] > 0.5
    assert all(pair.strength < 0.3 * best.strength for pair in others)


def test_no_column_of_noise_is_important():
    """Each table has an alarm with a probability of 5 % at most; the seeds are fixed."""
    for seed in (0, 1):
        rng = np.random.default_rng(seed)
        X, y = rng.standard_normal((300, 6)), rng.standard_normal(300)
        model = MileRegressor(preset="quick", n_chains=4, n_folds=4, random_state=0).fit(X, y)
        assert model.explain(X, y, columns=[], pairs=False).important == []
