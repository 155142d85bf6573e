"""The figure: LPPD and CRPS of each method on each data set, in colors that show the rank."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from summaries import mean_of

_PANELS = {"lppd": ("LPPD, higher is better", -1.0, 2), "crps": ("CRPS, lower is better", 1.0, 3)}
_SIZE, _RESOLUTION = (13.0, 4.6), 130  # inches, dots per inch
_DARK = 0.4  # share of the ranks whose cells are so dark that they need white letters


def draw(rows: Sequence[Mapping[str, str]], path: Path) -> None:
    """Show means over the splits that all methods have, in two tables; the best of a data set is darkest."""
    from matplotlib.figure import Figure

    rows = comparable([row for row in rows if row["lppd"] and row["crps"]])
    if not rows:
        return  # nothing but intervals and methods that took too long
    datasets = sorted({row["dataset"] for row in rows})
    figure = Figure(figsize=_SIZE, layout="constrained")
    order: list[str] = []
    for ax, (column, (title, sign, digits)) in zip(figure.subplots(1, len(_PANELS)), _PANELS.items(), strict=True):
        means = means_of(rows, column)
        methods = list(dict.fromkeys(method for _, method in means))
        values = np.array([[means.get((dataset, method), np.nan) for dataset in datasets] for method in methods])
        ranks = ranks_of(sign * values)
        # Both tables have the order of the first: the mean rank in LPPD.
        order = order or [methods[place] for place in np.argsort(np.nanmean(ranks, axis=1))]
        places = [methods.index(method) for method in order]
        _draw_table(ax, values[places], ranks[places], digits)
        ax.set_title(title, fontsize="medium")
        ax.set_xticks(range(len(datasets)), datasets)
        ax.set_yticks(range(len(order)), order)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=_RESOLUTION, metadata={"Software": None})


def comparable(rows: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """Leave out splits of a data set that not every method there has: means over other splits do not compare."""
    kept = []
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        there = [row for row in rows if row["dataset"] == dataset]
        splits = [{row["split"] for row in there if row["method"] == name} for name in {row["method"] for row in there}]
        common = set.intersection(*splits)
        kept += [row for row in there if row["split"] in common or not common]
    return kept


def means_of(rows: Sequence[Mapping[str, str]], column: str) -> dict[tuple[str, str], float]:
    """Return the mean over splits for each data set and method."""
    groups: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        groups.setdefault((row["dataset"], row["method"]), []).append(float(row[column]))
    return {names: mean_of(values)[0] for names, values in groups.items()}


def ranks_of(values: np.ndarray) -> np.ndarray:
    """Return the place of each method (row) on each data set (column), from 0, the lowest first; NaN stays."""
    places = np.argsort(np.argsort(values, axis=0), axis=0).astype(float)
    return np.where(np.isnan(values), np.nan, places)


def _draw_table(ax: Any, values: np.ndarray, ranks: np.ndarray, digits: int) -> None:
    highest = max(1, len(values) - 1)
    ax.imshow(ranks, cmap="Blues_r", vmin=0, vmax=1.15 * highest, aspect="auto")
    for (line, column), value in np.ndenumerate(values):
        if not np.isnan(value):
            rank = ranks[line, column]
            color = "white" if rank <= _DARK * highest else "black"
            weight = "bold" if rank == 0 else "normal"
            text = f"{value:.{digits}f}".replace("-", "−")
            ax.text(column, line, text, ha="center", va="center", color=color, weight=weight, fontsize="small")
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
