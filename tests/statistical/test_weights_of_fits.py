"""Whole fits with weights: a row of integer weight w predicts like the row repeated w times, up to Monte Carlo error.

Weights and repeated rows have one posterior, but other mini-batches, so their chains agree in distribution and not in
bits. No rows are set aside: with a validation split, copies of a row could be on both sides, and the training rows of
the two fits would differ. Each chain starts from a member of its own and has random numbers of its own, so chains are
independent replicates, and a Welch test compares their predictions at a few points.
"""

import numpy as np
import pytest
from scipy import stats

from mile import MileClassifier, MileRegressor

# Of one test as a whole: its points and statistics share it (Bonferroni).
FALSE_FAILURE = 1e-6
RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 2))
Y = X[:, 0] - 0.5 * X[:, 1] + (0.2 + 0.3 * (X[:, 0] > 0)) * RNG.standard_normal(60)
LABELS = np.where(X[:, 0] + 0.7 * RNG.standard_normal(60) > 0.0, "up", "down")
# Rows at one side count most, so that a fit without weights is another one.
WEIGHT = np.where(Y - X[:, 0] + 0.5 * X[:, 1] > 0.0, RNG.integers(3, 7, 60), 1)
POINTS = np.array([[-1.5, 0.5], [-0.5, 0.0], [0.0, -1.0], [0.7, 0.7], [1.5, 0.0]])
BUDGET = {"n_folds": 0, "validation_fraction": 0.0, "learning_rate": 0.01, "max_epochs": 60}
FAST = {"hidden_layer_sizes": (), "n_chains": 12, "warmup_steps": 1_000, "sampling_steps": 1_000, "n_draws": 100}
SLOW = {"hidden_layer_sizes": (4,), "n_chains": 32, "warmup_steps": 10_000, "sampling_steps": 10_000, "n_draws": 200}


def per_chain(model, statistics) -> np.ndarray:
    """Return statistics of each chain's own predictions, shape (chain, statistic)."""
    assert model.chain_status_ == ["ok"] * model.n_chains
    return np.array([statistics(model.fit_.predictive(POINTS, chains=[k])) for k in range(model.n_chains)])


def of_numbers(predictive) -> np.ndarray:
    return np.concatenate([predictive.mean, np.log(predictive.std)])


def of_classes(predictive) -> np.ndarray:
    return np.log(predictive.probs[:, 1] / predictive.probs[:, 0])


def p_values(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return stats.ttest_ind(one, other, axis=0, equal_var=False).pvalue


def assert_weights_equal_repetition(estimator, y, statistics, settings) -> None:
    def fitted(repeat: bool, weight=None):
        times = WEIGHT if repeat else np.ones(60, int)
        model = estimator(**BUDGET, **settings, random_state=int(repeat))
        model.fit(np.repeat(X, times, axis=0), np.repeat(y, times), sample_weight=weight)
        return per_chain(model, statistics)

    weighted, repeated, plain = fitted(False, WEIGHT), fitted(True), fitted(False)
    threshold = FALSE_FAILURE / weighted.shape[1]
    assert p_values(weighted, repeated).min() > threshold
    # The test has power: it tells a fit that ignores the weights from one that does not.
    assert p_values(plain, repeated).min() < threshold


def test_a_linear_regression_with_weights_predicts_as_with_repeated_rows():
    assert_weights_equal_repetition(MileRegressor, Y, of_numbers, FAST)


@pytest.mark.slow
def test_a_network_with_weights_predicts_as_with_repeated_rows():
    assert_weights_equal_repetition(MileRegressor, Y, of_numbers, SLOW)


@pytest.mark.slow
def test_a_classifier_with_weights_predicts_as_with_repeated_rows():
    assert_weights_equal_repetition(MileClassifier, LABELS, of_classes, SLOW)
