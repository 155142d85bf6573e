"""What the figures of the experiments share: colors, and a grid with a panel for each data set."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Distinguishable with any color vision (Okabe and Ito 2008), as in the library's own figures.
COLORS = {
    "MILE": "#0072b2",
    "stochastic": "#0072b2",
    "single chain": "#56b4e9",
    "DE": "#e69f00",
    "DE-0.01": "#b06f00",
    "single DNN": "#b06f00",
    "NUTS": "#009e73",
    "NUTS-20": "#009e73",
}
PAPER = "#555555"
_OTHER = "#cc79a7"
_COLUMNS, _PANEL, _RESOLUTION = 3, (3.3, 2.4), 130  # panels side by side, inches of one, dots per inch


def color_of(method: str) -> str:
    """Return the color of a method, the same in all figures."""
    return COLORS.get(method, _OTHER)


def error_bar(error: float) -> float | None:
    """Return the length of an error bar; none where there is no error."""
    return None if math.isnan(error) else error


@contextmanager
def panels(
    names: Sequence[str],
    path: Path,
    x_label: str,
    y_label: str = "",
    size: tuple[float, float] = _PANEL,
    columns: int = _COLUMNS,
) -> Iterator[dict[str, Any]]:
    """Give axes for each name, then add one legend for all and write the file."""
    from matplotlib.figure import Figure

    columns = min(columns, len(names))
    lines = -(-len(names) // columns)
    figure = Figure(figsize=(columns * size[0], lines * size[1] + 0.4), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False).ravel()
    axes = dict(zip(names, grid, strict=False))
    yield axes
    entries: dict[str, Any] = {}
    for name, ax in axes.items():
        ax.set_title(name, loc="left", fontsize="medium")
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize="small")
        entries |= dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    for ax in grid[len(names) :]:
        ax.set_axis_off()
    figure.supxlabel(x_label, fontsize="medium")
    figure.supylabel(y_label, fontsize="medium")
    figure.legend(entries.values(), entries, loc="outside upper center", ncols=len(entries), frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=_RESOLUTION, metadata={"Software": None})
