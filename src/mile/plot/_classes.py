"""Predictions of a class against what was observed."""

from typing import TYPE_CHECKING

import numpy as np

from mile import metrics
from mile.plot._style import (
    FAILED,
    MILE,
    MISS,
    chance_band,
    count,
    finish,
    make_room,
    new_axes,
    one_per_row,
    percent,
    percent_axis,
)
from mile.predict import ClassPredictive

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SURE = 0.9


def reliability(
    predictive: ClassPredictive, y: np.ndarray, n_bins: int = 10, *, name: str = "MILE", ax: "Axes | None" = None
) -> "Axes":
    """Draw the share of right predictions against the confidence in them, with the number of rows of each bin.

    Parameters
    ----------
    predictive, y
        A prediction and one observed label per row.
    n_bins
        Bins of confidence, the probability of the predicted class.
    name
        Of the prediction, for the legend.
    ax
        Where to draw; None makes a new figure.
    """
    y, ax = one_per_row(predictive, y), new_axes(ax)
    found = metrics.reliability(predictive, y, n_bins)
    stated, right, counts = (values[found[2] > 0] for values in found)
    lower, upper = chance_band(counts, stated)
    ax.plot([0, 1], [0, 1], color=FAILED, linewidth=1.0, linestyle=":")
    ax.vlines(stated, lower, upper, color=FAILED, alpha=0.4, linewidth=5.0, label="90 % by chance")
    ax.plot(stated, right, "o-", color=MILE, markersize=5.0, linewidth=1.2, label=name)
    for place, number in zip(stated, counts, strict=True):
        ax.text(place, -0.01, f"{number:,.0f}", ha="center", va="top", fontsize="small")
    ax.set_yticks(np.linspace(0.0, 1.0, 6))
    for axis in (ax.xaxis, ax.yaxis):
        percent_axis(axis)
    ax.set(xlim=(min(0.5, float(stated.min()) - 0.06), 1.03), ylim=(-0.1, 1.35))
    confidence = float(predictive.probs.max(axis=1).mean())
    title = (
        f"Confidence is {percent(confidence)} on average, "
        f"and {percent(metrics.accuracy(predictive, y))} of {count(len(y), 'row')} are right"
    )
    return finish(ax, title, "confidence (numbers of rows above)", "right predictions", "upper left", 2)


def confidence(predictive: ClassPredictive, y: np.ndarray, *, ax: "Axes | None" = None) -> "Axes":
    """Draw the histogram of confidence, of right and of wrong predictions."""
    y, ax = one_per_row(predictive, y), new_axes(ax)
    stated = predictive.probs.max(axis=1)
    right = predictive.labels == y
    lowest = min(float(np.floor(10 * stated.min())) / 10, 0.9)
    ax.hist(
        [stated[right], stated[~right]],
        bins=20,
        range=(lowest, 1.0),
        stacked=True,
        color=[MILE, MISS],
        alpha=0.8,
        rwidth=0.92,
        label=["right", "wrong"],
    )
    percent_axis(ax.xaxis)
    ax.set_xlim(lowest, 1)
    sure = stated >= _SURE
    title = f"{(~right).sum():,} of {count(len(y), 'row')} wrong"
    if sure.any():
        wrong = percent(float(np.mean(~right[sure])))
        title += f"; of the {sure.sum():,} with at least {percent(_SURE)} confidence, {wrong} are"
    make_room(ax, above=0.15)
    return finish(ax, title, "confidence", "rows", "upper left", 2)
