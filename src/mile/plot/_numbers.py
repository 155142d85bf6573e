"""Predictions of a number against what was observed."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from mile import metrics
from mile.plot._style import (
    ENSEMBLE,
    FAILED,
    MILE,
    MISS,
    WANTED,
    chance_band,
    count,
    even_choice,
    finish,
    log_axis,
    make_room,
    new_axes,
    one_per_row,
    percent,
    percent_axis,
)
from mile.predict import AbstractPredictive, Predictive

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEVELS = np.arange(5, 100, 5) / 100
_TAILS = 0.1  # of the PIT values, both ends together
_MOST_POINTS = 400
_LARGEST_RATIO = 1e4  # of the ends of a logarithmic axis


def intervals(
    predictive: Predictive,
    y: Float[np.ndarray, " row"],
    level: float = 0.9,
    n_rows: int = 100,
    *,
    target: str = "y",
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw central intervals and observed values, rows in the order of their predicted means.

    Parameters
    ----------
    predictive, y
        A prediction and one observed value per row.
    level
        Probability of the intervals.
    n_rows
        Most rows to draw; of more, an even selection.
    target
        What y is, for the axis.
    ax
        Where to draw; None makes a new figure.
    """
    y, ax = one_per_row(predictive, y), new_axes(ax)
    mean = predictive.mean
    inside = predictive.inside(y, level)
    rows = np.argsort(mean, kind="stable")[even_choice(len(y), n_rows)]
    lower, upper = predictive.interval(level)[rows].T
    places, hit = np.arange(len(rows)), inside[rows]
    ax.vlines(places, lower, upper, color=MILE, alpha=0.35, linewidth=2.0, label=f"{percent(level)} interval")
    ax.plot(places, mean[rows], color=MILE, linewidth=1.2, label="predicted mean")
    ax.plot(places[hit], y[rows][hit], "o", color=WANTED, markersize=3.0, label="observed, inside")
    ax.plot(places[~hit], y[rows][~hit], "D", color=MISS, markersize=3.5, label="observed, outside")
    shown = count(len(y), "row") if len(rows) == len(y) else f"{len(rows)} of {len(y):,} rows"
    title = f"{percent(level)} intervals against truth: {percent(inside.mean())} of {count(len(y), 'row')} inside"
    ax.locator_params(axis="x", integer=True)
    make_room(ax, above=0.25)
    return finish(ax, title, f"{shown}, by predicted mean", target, "upper left", 2)


def coverage(
    predictive: Predictive,
    y: Float[np.ndarray, " row"],
    *,
    name: str = "MILE",
    other: Predictive | None = None,
    other_name: str = "deep ensemble",
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw the share of rows inside central intervals against their level, with what chance would do.

    Parameters
    ----------
    predictive, y
        A prediction and one observed value per row.
    name
        Of the prediction, for the legend.
    other, other_name
        A second prediction of the same rows to compare with, and its name.
    ax
        Where to draw; None makes a new figure.
    """
    y, ax = one_per_row(predictive, y), new_axes(ax)
    ax.fill_between(
        _LEVELS, *chance_band(len(y), _LEVELS), color=FAILED, alpha=0.2, linewidth=0, label="90 % by chance"
    )
    ax.plot([0, 1], [0, 1], color=FAILED, linewidth=1.0, linestyle=":")
    if other is not None:
        observed = metrics.coverage(other, y, _LEVELS.tolist())
        ax.plot(_LEVELS, observed, "s--", color=ENSEMBLE, markersize=3.0, linewidth=1.2, label=other_name)
    observed = metrics.coverage(predictive, y, _LEVELS.tolist())
    ax.plot(_LEVELS, observed, "o-", color=MILE, markersize=3.0, linewidth=1.6, label=name)
    for axis in (ax.xaxis, ax.yaxis):
        percent_axis(axis)
    ax.set(xlim=(0, 1), ylim=(0, 1.02))
    at_90 = float(observed[_LEVELS == 0.9][0])
    error = metrics.calibration_error(predictive, y)
    title = f"Coverage: 90 % intervals hold {percent(at_90)} of {count(len(y), 'row')}; calibration error {error:.3f}"
    return finish(ax, title, "level of the interval", "rows inside", "upper left")


def pit(predictive: Predictive, y: Float[np.ndarray, " row"], *, ax: "Axes | None" = None) -> "Axes":
    """Draw the histogram of the predicted probabilities of being below the observed values, flat if all is well."""
    y, ax = one_per_row(predictive, y), new_axes(ax)
    values = predictive.pit(y)
    n_bins = int(np.clip(np.sqrt(len(y)), 4, 20))
    lower, upper = (len(y) * bound for bound in chance_band(len(y), 1.0 / n_bins))
    ax.axhspan(float(lower), float(upper), color=FAILED, alpha=0.2, linewidth=0, label="90 % by chance")
    ax.hist(values, bins=n_bins, range=(0.0, 1.0), color=MILE, alpha=0.75, rwidth=0.92)
    ax.axhline(len(y) / n_bins, color=FAILED, linewidth=1.0, linestyle=":")
    ax.set_xlim(0, 1)
    ax.locator_params(axis="y", integer=True)
    ax.set_ylim(0, 1.25 * max(ax.get_ylim()[1] / 1.05, 1.0))
    outside = float(np.mean(np.abs(values - 0.5) > 0.5 - _TAILS / 2))
    fewest, most = chance_band(len(y), _TAILS)
    verdict = "too narrow" if outside > most else "too wide" if outside < fewest else "about right"
    title = (
        f"PIT: {percent(outside)} of {count(len(y), 'row')} in the outermost {percent(_TAILS)}, "
        f"so intervals are {verdict}"
    )
    return finish(ax, title, "predicted probability of a smaller value", "rows", "upper right")


def uncertainty(predictive: AbstractPredictive, *, target: str = "y", ax: "Axes | None" = None) -> "Axes":
    """Draw ignorance against noise: what more data could and could not remove."""
    ax, found = new_axes(ax), predictive.uncertainty()
    rows = even_choice(len(found.noise), _MOST_POINTS)
    noise, ignorance = found.noise[rows], found.ignorance[rows]
    if log_axis(ax, "x", noise):
        ax.set_xlim(*_ends(noise))
    if log_axis(ax, "y", ignorance):
        ax.set_ylim(*_ends(ignorance))
    ax.plot(noise, ignorance, "o", color=MILE, alpha=0.5, markersize=4.0, markeredgewidth=0)
    ax.axline((1, 1), (2, 2), color=FAILED, linewidth=1.0, linestyle=":", label="as much ignorance as noise")
    title = f"Ignorance makes up {percent(float(np.median(found.share)))} of the {found.whole} of the median row"
    return finish(ax, title, found.noise_label.replace("{target}", target), found.ignorance_label, "lower right")


def _ends(values: np.ndarray) -> tuple[float, float]:
    """Return ends of a logarithmic axis that leave out the farthest few, which can be very far."""
    lower, upper = np.quantile(values[values > 0], [0.01, 0.97])
    return max(float(lower), float(upper) / _LARGEST_RATIO) / 1.2, float(upper) * 1.2
