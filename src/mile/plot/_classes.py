"""Predictions of a class against what was observed."""

from typing import TYPE_CHECKING

import numpy as np

from mile import metrics
from mile.plot._style import (
    ENSEMBLE,
    FAILED,
    MILE,
    MISS,
    WANTED,
    chance_band,
    count,
    cut,
    finish,
    make_room,
    new_axes,
    nothing,
    one_per_row,
    percent,
    percent_axis,
)
from mile.predict import ClassPredictive

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SURE = 0.9
_MOST_CONFUSED, _MOST_CURVES = 8, 4  # classes that are drawn one by one
_NAME = 14  # characters of a label
_REST = "others"


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


def confusion(predictive: ClassPredictive, y: np.ndarray, *, ax: "Axes | None" = None) -> "Axes":
    """Draw how many rows of each observed class are predicted as each; the rarer of many classes are one."""
    from matplotlib.patches import Rectangle

    y, ax = one_per_row(predictive, y), new_axes(ax)
    predicted, classes = predictive.labels, predictive.classes
    seen = np.array([np.sum(y == label) for label in classes])
    shown = np.sort(np.argsort(-seen, kind="stable")[:_MOST_CONFUSED])
    names = [str(classes[code]) for code in shown]
    of_code = np.full(len(classes), len(shown))
    of_code[shown] = np.arange(len(shown))
    names += [_REST] if len(shown) < len(classes) else []
    codes = (of_code[[np.flatnonzero(classes == label)[0] for label in labels.tolist()]] for labels in (y, predicted))
    counts = np.zeros((len(names), len(names)), int)
    np.add.at(counts, tuple(codes), 1)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    for row, column in np.argwhere(counts > 0).tolist():
        color = MILE if row == column else MISS
        alpha = 0.08 + 0.6 * float(shares[row, column])
        ax.add_patch(Rectangle((column - 0.48, row - 0.48), 0.96, 0.96, facecolor=color, alpha=alpha, linewidth=0))
        ax.text(column, row, f"{counts[row, column]:,}", ha="center", va="center")
    ax.set(xlim=(-0.5, len(names) - 0.5), ylim=(len(names) - 0.5, -0.5))
    written = [cut(name, _NAME) for name in names]
    ax.set_xticks(range(len(names)), [cut(name, max(3, 44 // len(names))) for name in names], parse_math=False)
    ax.set_yticks(range(len(names)), written, parse_math=False)
    wrong = counts - np.diag(np.diag(counts))
    row, column = np.unravel_index(np.argmax(wrong), wrong.shape)
    most = f"; most often {written[row]} is taken for {written[column]}" if wrong.max() else ""
    title = f"{int(np.sum(predicted != y)):,} of {count(len(y), 'row')} are predicted as another class{most}"
    return finish(ax, title, "predicted", "observed")


def roc(predictive: ClassPredictive, y: np.ndarray, *, ax: "Axes | None" = None) -> "Axes":
    """Draw, for each class against all others, how many rows of it are found for how many false alarms.

    Of two classes this is the second; of many the four most frequent.
    """
    y, ax = one_per_row(predictive, y), new_axes(ax)
    classes = predictive.classes
    seen = np.array([np.sum(y == label) for label in classes])
    known = np.flatnonzero((seen > 0) & (seen < len(y)))
    chosen = known[-1:] if len(classes) == 2 else known[np.argsort(-seen[known], kind="stable")][:_MOST_CURVES]
    if not len(chosen):
        return nothing(ax, "A curve of hits and false alarms needs rows of two classes.")
    ax.plot([0, 1], [0, 1], color=FAILED, linewidth=1.0, linestyle=":")
    areas = []
    for code, color in zip(chosen.tolist(), (MILE, ENSEMBLE, WANTED, MISS), strict=False):
        hits, alarms, area = metrics.roc(predictive.probs[:, code], y == classes[code])
        areas.append(area)
        ax.plot(alarms, hits, color=color, linewidth=1.6, label=f"{cut(str(classes[code]), _NAME)}, area {area:.3f}")
    for axis in (ax.xaxis, ax.yaxis):
        percent_axis(axis)
    ax.set(xlim=(-0.01, 1), ylim=(0, 1.02))
    said = f"{cut(str(classes[chosen[0]]), _NAME)}" if len(chosen) == 1 else f"{len(chosen)} classes"
    spread = f"{areas[0]:.3f}" if len(areas) == 1 else f"{min(areas):.3f} to {max(areas):.3f}"
    title = f"Telling {said} from others: area under the curve {spread}"
    return finish(ax, title, "false alarms, of rows of other classes", "found, of its rows", "lower right")
