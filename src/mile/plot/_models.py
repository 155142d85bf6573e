"""Pictures that compare models."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from mile.plot._style import FAILED, MILE, MISS, cut, finish, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST = 20
_NAME = 24  # characters


def differences(found: Mapping[str, tuple[float, float]], *, ax: "Axes | None" = None) -> "Axes":
    """Draw how far models are from the best one, at the top, with bars of two standard errors.

    Parameters
    ----------
    found
        By the name of each model, the best first: its LPPD less that of the best, and the standard error of that
        difference. Of more than twenty models the first are shown.
    ax
        Where to draw; None makes a new figure.
    """
    ax = new_axes(ax)
    names = list(found)[:_MOST]
    value, error = np.array([found[name] for name in names]).T
    places, is_level = -np.arange(len(names)), -value <= 2.0 * error
    for chosen, color, words in ((is_level, MILE, "level"), (~is_level, MISS, "behind")):
        ends = value[chosen] - 2.0 * error[chosen], value[chosen] + 2.0 * error[chosen]
        ax.hlines(places[chosen], *ends, color=color, linewidth=2.0, alpha=0.5)
        ax.plot(value[chosen], places[chosen], "o", color=color, markersize=5.0, label=words if chosen.any() else None)
    ax.axvline(0.0, color=FAILED, linewidth=1.0, linestyle=":")
    ax.set_yticks(places, [cut(name, _NAME) for name in names], parse_math=False)
    ax.set_ylim(places[-1] - 0.7, 0.7)
    n_level = int(is_level.sum())
    verb = "is" if n_level == 1 else "are"
    title = f"{n_level} of {len(names)} models {verb} within two standard errors of the best"
    return finish(ax, title, "LPPD less that of the best model", "")
