"""The figure: what each candidate gains over the preset `paper` in its processor time."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from drawing import color_of, panels
from summaries import mean_of

BASE = "paper"
SCREENING = "screen "  # with which the names of candidates at a reduced budget begin
Row = dict[str, str]


def differences(rows: Sequence[Row], dataset: str, method: str) -> list[float]:
    """Return the LPPD of a candidate less the base's, on each split that both have."""
    ours, base = (_by_split(rows, dataset, name, "lppd") for name in (method, BASE))
    return [ours[split] - base[split] for split in ours if split in base]


def draw(rows: list[Row], path: Path) -> None:
    """Show what each candidate of a table gains in LPPD, one panel for each table; small points are splits."""
    datasets = list(dict.fromkeys(row["dataset"] for row in rows if row["method"] == BASE))
    candidates = dict.fromkeys(row["method"] for row in rows if not row["method"].startswith(SCREENING))
    found = {
        dataset: {name: gained for name in candidates if name != BASE and (gained := differences(rows, dataset, name))}
        for dataset in datasets
    }
    # Tables of classes have one candidate, the default; together they make one panel.
    alone = {dataset: gained for dataset, gains in found.items() if len(gains) == 1 for gained in gains.values()}
    found = {dataset: gains for dataset, gains in found.items() if len(gains) > 1}
    found |= {"tables with one candidate": alone} if alone else {}
    if not found:
        return
    x_label = "LPPD less that of the paper's preset in the same processor time"
    height = 0.27 * max(map(len, found.values())) + 0.8
    with panels(list(found), path, x_label, size=(4.6, height)) as axes:
        for dataset, ax in axes.items():
            ax.axvline(0.0, color="0.8", lw=1)
            color = color_of("MILE")
            for place, gained in enumerate(found[dataset].values()):
                ax.plot(gained, np.full(len(gained), place), ".", color=color, ms=4, alpha=0.6, label="one split")
                ax.plot(mean_of(gained)[0], place, "o", color=color, mfc="none", label="mean")
            ax.set_yticks(range(len(found[dataset])), found[dataset])
            ax.set_ylim(len(found[dataset]) - 0.5, -0.5)


def _by_split(rows: Sequence[Row], dataset: str, method: str, column: str) -> dict[str, float]:
    return {row["split"]: float(row[column]) for row in rows if (row["dataset"], row["method"]) == (dataset, method)}
