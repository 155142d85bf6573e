"""The figure of most tables: each method's score on each data set, by both protocols, beside the paper's."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from catalog import Experiment
from comparison import METRICS, paper_number
from drawing import PAPER, color_of, error_bar, panels
from summaries import mean_of

# Protocol -> marker, and how far below the middle of a method's line it stands; the paper's stands above.
_MARKS = {"paper": ("o", 0.0), "corrected": ("s", -0.22)}
_ABOVE = 0.22


def draw_beside_paper(
    experiment: Experiment, rows: Sequence[Mapping[str, str]], path: Path, methods: Sequence[str], score: str = "lppd"
) -> None:
    """Draw a panel for each data set that has rows; `methods` from below, if we or the paper have a number."""
    metric = METRICS[score]
    rows = [row for row in rows if row.get(metric.column)]
    datasets = [name for name in experiment.datasets if any(row["dataset"] == name for row in rows)]
    direction = "higher" if metric.better > 0 else "lower"
    with panels(datasets, path, f"{metric.title}, {direction} is better") as axes:
        for dataset, ax in axes.items():
            found = {row["method"] for row in rows if row["dataset"] == dataset}
            shown = [
                name for name in methods if name in found or _is_papers_alone(experiment, dataset, name, found, score)
            ]
            for height, method in enumerate(shown):
                style = {"ls": "", "capsize": 2}
                for protocol, (marker, shift) in _MARKS.items():
                    key = (dataset, method, protocol)
                    chosen = [row for row in rows if (row["dataset"], row["method"], row["protocol"]) == key]
                    mean, error, n_rows = mean_of([metric.factor * float(row[metric.column]) for row in chosen])
                    if n_rows:
                        own = {"marker": marker, "color": color_of(method), "label": f"ours, {protocol} protocol"}
                        ax.errorbar(mean, height + shift, xerr=error_bar(error), **own, **style)
                known = {"dataset": dataset, "method": method, "protocol": "paper"}
                paper = paper_number(experiment, known, score)
                if not np.isnan(paper.value):
                    own = {"marker": "D", "mfc": "none", "color": PAPER, "label": "the paper"}
                    ax.errorbar(paper.value, height + _ABOVE, xerr=error_bar(paper.error), **own, **style)
            ax.set_yticks(range(len(shown)), shown)
            ax.locator_params(axis="x", nbins=5)
            ax.set_ylim(-0.5, len(shown) - 0.5)


def _is_papers_alone(experiment: Experiment, dataset: str, method: str, found: set[str], score: str) -> bool:
    """Say whether the paper has a number where none of ours is of that method."""
    theirs = experiment.paper["methods"]
    known = {"dataset": dataset, "method": method, "protocol": "paper"}
    is_new = theirs.get(method) not in {theirs.get(name) for name in found}
    return is_new and not np.isnan(paper_number(experiment, known, score).value)
