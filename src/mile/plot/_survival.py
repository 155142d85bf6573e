"""Predictions of survival times against what was observed."""

from typing import TYPE_CHECKING, cast

import numpy as np

from mile import metrics
from mile.kaplan_meier import kaplan_meier
from mile.likelihoods.survival import SurvivalPredictive
from mile.plot._style import FAILED, MILE, WANTED, count, finish, new_axes, percent, percent_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_N_TIMES = 30  # of a curve


def survival(
    predictive: SurvivalPredictive, y: np.ndarray, *, target: str = "time", ax: "Axes | None" = None
) -> "Axes":
    """Draw the mean of the predicted survival curves beside the curve of Kaplan and Meier.

    Parameters
    ----------
    predictive, y
        A prediction, and observed times with events or without; lower ends of other limits count as times.
    target
        What y is, for the axis.
    ax
        Where to draw; None makes a new figure.
    """
    ax = new_axes(ax)
    lower, upper = predictive.limits(y)
    known = np.isfinite(lower)
    curve = kaplan_meier(lower[known], (lower == upper)[known])
    start = min(0.0, float(curve.times[0]))
    times = np.linspace(start, float(curve.times[-1]), _N_TIMES)
    mean = cast(np.ndarray, predictive.survival(times)).mean(axis=0)
    low, high = curve.band()
    ax.fill_between(curve.times, low, high, step="post", color=FAILED, alpha=0.2, linewidth=0, label="90 % by chance")
    observed = np.concatenate([[start], curve.times]), np.concatenate([[1.0], curve.share])
    ax.step(*observed, where="post", color=WANTED, linewidth=1.4, label="observed, Kaplan and Meier")
    ax.plot(times, mean, color=MILE, linewidth=1.6, label="predicted, mean of all rows")
    percent_axis(ax.yaxis)
    ax.set_ylim(0, 1.05)
    distance = float(np.max(np.abs(mean - curve.at(times))))
    title = f"Survival of {count(len(lower), 'row')}: predicted and observed differ by at most {percent(distance)}"
    return finish(ax, title, target, "rows without an event", "upper right")


def survival_calibration(
    predictive: SurvivalPredictive,
    y: np.ndarray,
    time: float | None = None,
    n_groups: int = 5,
    *,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw observed survival of a time against predicted, for groups of rows; by default of the median time."""
    ax = new_axes(ax)
    lower, _ = predictive.limits(y)
    time = float(np.median(lower[np.isfinite(lower)])) if time is None else time
    predicted, observed, _ = metrics.survival_calibration(cast(metrics.ScoredTimes, predictive), y, time, n_groups)
    ax.plot([0, 1], [0, 1], color=FAILED, linewidth=1.0, linestyle=":")
    ax.plot(predicted, observed, "o-", color=MILE, markersize=4.0, linewidth=1.4, label=f"{n_groups} groups of rows")
    for axis in (ax.xaxis, ax.yaxis):
        percent_axis(axis)
    ax.set(xlim=(0, 1), ylim=(0, 1.02))
    shares = (percent(float(values.mean())) for values in (observed, predicted))
    title = "Survival of {:.4g}: observed {}, predicted {}".format(time, *shares)
    return finish(ax, title, "predicted survival", "observed survival, Kaplan and Meier", "upper left")
