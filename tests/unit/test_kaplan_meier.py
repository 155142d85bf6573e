"""Curves of Kaplan and Meier, and the scores of survival that stand on them, by hand."""

import numpy as np
import pytest

from mile import metrics
from mile.kaplan_meier import censoring_curve, kaplan_meier

TIME = np.array([1.0, 2.0, 2.0, 3.0, 4.0, 5.0])
EVENT = np.array([True, True, False, False, True, False])


class Known:
    """A prediction with given survival and medians."""

    def __init__(self, median, survival=None):
        self.median, self._survival = np.asarray(median, float), survival

    def limits(self, y):
        return y[0], np.where(y[1], y[0], np.inf)

    def survival(self, times):
        return self._survival(np.asarray(times)) * np.ones((len(self.median), 1))


def test_the_curve_steps_at_events():
    curve = kaplan_meier(TIME, EVENT)
    np.testing.assert_allclose(curve.share, [5 / 6, 5 / 6 * 4 / 5, 2 / 3, 2 / 3 * 1 / 2, 1 / 3])
    np.testing.assert_allclose(curve.at(np.array([0.5, 1.0, 4.5, 9.0])), [1.0, 5 / 6, 1 / 3, 1 / 3])
    np.testing.assert_allclose(curve.before(np.array([1.0, 4.0])), [1.0, 2 / 3])
    # Greenwood's formula at the second step: 1 / (6 * 5) + 1 / (5 * 4).
    assert curve.error[1] == pytest.approx(np.sqrt(1 / 30 + 1 / 20))
    lower, upper = curve.band()
    assert np.all((lower < curve.share) & (curve.share <= upper) & (upper <= 1.0))


def test_the_curve_of_censoring_takes_events_first():
    # At 2 there are five rows left, one has its event, and one of the other four is lost.
    np.testing.assert_allclose(censoring_curve(TIME, EVENT).share, [1.0, 3 / 4, 3 / 4 * 2 / 3, 1 / 2, 0.0])


def test_concordance_counts_pairs_of_known_order():
    y = (TIME, EVENT)
    assert metrics.concordance(Known(TIME), y) == 9.5 / 10  # two of the same median, one of which was lost at an event
    median = TIME + np.array([0.0, 0.0, 0.5, 0.0, 0.0, 0.0])
    assert metrics.concordance(Known(median), y) == 1.0
    assert metrics.concordance(Known(-median), y) == 0.0
    assert metrics.concordance(Known(np.ones(6)), y) == 0.5
    # Events at 1 (5 later rows), at 2 (4 later: the other row of 2 was lost after it) and at 4 (1): 10 pairs.
    wrong = median.copy()
    wrong[5] = 3.5  # after the event at 4
    assert metrics.concordance(Known(wrong), y) == pytest.approx(9 / 10)
    assert metrics.concordance(Known(wrong), y, np.array([1.0, 1, 1, 1, 0, 1])) == 1.0
    assert np.isnan(metrics.concordance(Known(TIME), (TIME, np.zeros(6, bool))))


def test_the_brier_score_weighs_rows_by_censoring():
    y, times = (TIME, EVENT), np.array([1.5, 2.5])
    predicted = Known(TIME, lambda times: np.where(times < 2.0, 0.8, 0.6))
    # At 1.5: one event before, the others live. At 2.5 two events before, three live with weight 1 / (3/4); the event
    # at 2 has the weight of its own time, 1 / (3/4).
    first = (0.8**2 + 5 * 0.2**2) / 6
    second = (0.6**2 + 0.6**2 / 0.75 + 3 * 0.4**2 / 0.75) / 6
    found = metrics.integrated_brier(predicted, y, times)
    assert found == pytest.approx(0.5 * (first + second))
    assert metrics.integrated_brier(predicted, y, times, train=y) == found
    assert np.isfinite(metrics.integrated_brier(predicted, y))


def test_calibration_compares_groups_with_their_curves():
    time = np.arange(1.0, 41.0)
    survival = np.linspace(0.0, 1.0, 40)
    predicted = Known(time)
    predicted.survival = lambda times: survival[:, None]
    predicted_share, observed, rows = metrics.survival_calibration(predicted, (time, np.ones(40, bool)), 20.0, 4)
    np.testing.assert_allclose(observed, [0.0, 0.0, 1.0, 1.0])
    np.testing.assert_allclose(predicted_share, survival.reshape(4, 10).mean(axis=1))
    assert rows.tolist() == [10, 10, 10, 10]
    error = metrics.survival_calibration_error(predicted, (time, np.ones(40, bool)))
    assert 0.0 < error < 0.5
