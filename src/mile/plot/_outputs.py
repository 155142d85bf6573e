"""Several outputs: whether the intervals of each hold what they promise, and how their residuals go together."""

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from mile import metrics
from mile.likelihoods.joint import JointPredictive
from mile.plot._style import (
    FAILED,
    MILE,
    WANTED,
    chance_band,
    count,
    cut,
    finish,
    make_room,
    new_axes,
    percent,
    percent_axis,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEVELS = np.arange(5, 100, 5) / 100
_MOST_LINES, _MOST_PAIRS = 8, 15
_LONGEST = 24  # characters of a name
_NINETY = 1.6448536269514722  # standard errors of a 90 % interval


def several_outputs(
    predictive: JointPredictive, y: Float[np.ndarray, "row output"], *, ax: "Axes | None" = None
) -> "Axes":
    """Draw the share of rows inside central intervals against their level, a line for each output.

    Parameters
    ----------
    predictive, y
        A joint prediction, and what was observed.
    ax
        Where to draw; None makes a new figure.
    """
    ax, y = new_axes(ax), np.asarray(y, np.float64)
    ax.fill_between(
        _LEVELS, *chance_band(len(y), _LEVELS), color=FAILED, alpha=0.2, linewidth=0, label="90 % by chance"
    )
    ax.plot([0, 1], [0, 1], color=FAILED, linewidth=1.0, linestyle=":")
    at_90 = []
    for place, (name, alone) in enumerate(zip(predictive.names, predictive.outputs, strict=True)):
        distance = np.abs(alone.pit(y[:, place]) - 0.5)
        observed = np.array([np.mean(distance <= level / 2) for level in _LEVELS])
        at_90.append(float(observed[_LEVELS == 0.9][0]))
        if place < _MOST_LINES:
            ax.plot(_LEVELS, observed, "o-", markersize=3.0, linewidth=1.4, label=cut(name, _LONGEST))
    for axis in (ax.xaxis, ax.yaxis):
        percent_axis(axis)
    ax.set(xlim=(0, 1), ylim=(0, 1.02))
    lowest, highest = percent(min(at_90)), percent(max(at_90))
    said = lowest if lowest == highest else f"{lowest} to {highest}"
    title = f"Coverage of each output: 90 % intervals hold {said} of {count(len(y), 'row')}"
    return finish(ax, title, "level of the interval", "rows inside", "upper left")


def residual_correlation(
    predictive: JointPredictive, y: Float[np.ndarray, "row output"], *, ax: "Axes | None" = None
) -> "Axes":
    """Draw the correlation of residuals of each pair of outputs, with what chance leaves open, and the predicted one.

    Parameters
    ----------
    predictive, y
        A joint prediction, and what was observed.
    ax
        Where to draw; None makes a new figure.
    """
    ax, y = new_axes(ax), np.asarray(y, np.float64)
    observed = metrics.residual_correlation(predictive, y)
    predicted = predictive.correlation.mean(axis=0)
    pairs = sorted(combinations(range(len(predictive.names)), 2), key=lambda pair: -abs(observed[pair]))
    shown = pairs[:_MOST_PAIRS]
    one, other = np.array(shown).T
    found, places = observed[one, other], np.arange(len(shown))
    error = _NINETY / np.sqrt(max(len(y) - 3, 1))  # Fisher's transformation
    with np.errstate(divide="ignore"):
        transformed = np.arctanh(found)
    ax.hlines(places, np.tanh(transformed - error), np.tanh(transformed + error), color=WANTED, linewidth=2.0)
    ax.plot(found, places, "o", color=WANTED, markersize=5.0, label="observed, with 90 % interval")
    ax.plot(predicted[one, other], places, "D", color=MILE, markersize=5.0, label="predicted, mean of rows")
    ax.axvline(0.0, color=FAILED, linewidth=1.0, linestyle=":")
    names = [cut(name, _LONGEST) for name in predictive.names]
    ax.set_yticks(places, [f"{names[left]}, {names[right]}" for left, right in shown])
    ax.set_xlim(-1.02, 1.02)
    ax.invert_yaxis()
    make_room(ax, below=0.1, above=0.3)
    first = shown[0]
    title = (
        f"Residuals of {names[first[0]]} and {names[first[1]]} correlate by {observed[first]:.2f}; "
        f"{predicted[first]:.2f} is predicted"
    )
    return finish(ax, title, "correlation", "", "upper left", 2)
