"""Predictions of counts against what was observed."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from mile.likelihoods.counts import CountPredictive
from mile.plot._style import FAILED, MILE, WANTED, count, finish, new_axes, one_per_row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_COUNTS = 25  # that have a bar of their own
_BAND = 2.0  # standard errors


def rootogram(predictive: CountPredictive, y: Float[np.ndarray, " row"], *, ax: "Axes | None" = None) -> "Axes":
    """Draw how often each count was observed, hanging from how often it was expected, both as roots.

    Where bars do not reach the line there are fewer rows than expected, where they cross it more (Kleiber and Zeileis
    2016). The band is what chance leaves.
    """
    y, ax = one_per_row(predictive, y), new_axes(ax)
    largest = int(min(np.max(y), _MOST_COUNTS))
    counts = np.arange(largest + 1)
    chances = predictive.probabilities(counts)
    expected, error = chances.sum(axis=0), np.sqrt((chances * (1.0 - chances)).sum(axis=0))
    observed = np.array([np.sum(y == value) for value in counts])
    root = np.sqrt(expected)
    reach = _BAND * error / np.maximum(2.0 * root, 0.5)
    ax.fill_between(counts, -reach, reach, step="mid", color=FAILED, alpha=0.2, linewidth=0, label="95 % by chance")
    ax.bar(
        counts, np.sqrt(observed), bottom=root - np.sqrt(observed), color=WANTED, alpha=0.5, width=0.8, label="observed"
    )
    ax.plot(counts, root, "o-", color=MILE, markersize=3.5, linewidth=1.4, label="expected")
    ax.axhline(0.0, color=FAILED, linewidth=1.0)
    beyond = int(np.sum(np.abs(root - np.sqrt(observed)) > reach))
    ax.locator_params(axis="x", integer=True)
    zeros = f"{observed[0]:,} are zero, {expected[0]:.0f} expected"
    title = f"Of {count(len(y), 'row')} {zeros}; {beyond} of {len(counts)} bars are beyond chance"
    return finish(ax, title, "count", "root of the number of rows", "upper right")
