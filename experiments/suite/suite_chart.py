"""The figure: how far the LPPD of each method is below that of the best one, on each table."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from drawing import COLORS
from summaries import mean_of

# From the back to the front.
_MARKS = {
    "ridge": ("x", "#999999"),
    "gp": ("+", "#999999"),
    "ngboost": ("1", "#999999"),
    "catboost": ("2", "#999999"),
    "xgboost": ("3", "#999999"),
    "quantile-forest": ("4", "#999999"),
    "de": ("s", COLORS["DE-0.01"]),
    "ensemble": ("D", COLORS["DE"]),
    "mile-default": ("o", COLORS["MILE"]),
}
_MOST = 1.0  # of a distance that is shown; what is farther stands at the edge
_SIZE, _LINE, _RESOLUTION = 7.5, 0.2, 130  # inches of the width, of a table, dots per inch


def draw(rows: Sequence[Mapping[str, str]], path: Path) -> None:
    """Draw a line for each table."""
    from matplotlib.figure import Figure

    found = distances(rows)
    tables = list(dict.fromkeys(table for table, _ in found))
    if not tables:
        return
    figure = Figure(figsize=(_SIZE, _LINE * len(tables) + 1.2), layout="constrained")
    ax = figure.subplots()
    for method, (marker, color) in _MARKS.items():
        points = [(found[table, method], line) for line, table in enumerate(tables) if (table, method) in found]
        if points:
            x, y = np.array(points).T
            ax.plot(x, y, ls="", marker=marker, color=color, label=method, ms=5, clip_on=False)
    ax.set_yticks(range(len(tables)), tables, fontsize="x-small")
    ax.set_ylim(len(tables) - 0.5, -0.5)
    ax.set_xlim(-_MOST, 0.0)
    ax.set_xlabel(f"LPPD minus that of the best method; {-_MOST:g} and less at the edge")
    ax.grid(axis="y", lw=0.3)
    ax.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=5, frameon=False, fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=_RESOLUTION, metadata={"Software": None})


def distances(rows: Sequence[Mapping[str, str]]) -> dict[tuple[str, str], float]:
    """Return how far each mean LPPD is below the best of its table, at most `_MOST`; tables by name."""
    groups: dict[tuple[str, str], list[float]] = {}
    for row in sorted(rows, key=lambda row: row["dataset"].lower()):
        if row["lppd"] and row["method"] in _MARKS:
            groups.setdefault((row["dataset"], row["method"]), []).append(float(row["lppd"]))
    means = {names: mean_of(values)[0] for names, values in groups.items()}
    best: dict[str, float] = {}
    for (table, _), value in means.items():
        best[table] = max(best.get(table, -np.inf), value)
    return {(table, method): max(value - best[table], -_MOST) for (table, method), value in means.items()}
