"""Calibration error and coverage at many levels on the UCI tables, from the fits of the experiment uci.

Usage: python experiments/calibration/run.py --dataset airfoil --data-dir FOLDER

A fit that is in the folder of runs is loaded; one that is not is made there, and the experiment uci will find it.
"""

import sys
from pathlib import Path

import numpy as np

from mile import metrics

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmark_data import load
from campaign import Work, main
from catalog import Cell
from drawing import color_of, panels
from regression import UCI, is_fitted, predict
from workbench import Workbench

LEVELS = tuple(round(0.05 * step, 2) for step in range(1, 20))
COLUMNS = (*Cell._fields, "calibration_error", "n_test", *(f"coverage_{level:.2f}" for level in LEVELS))
_METHODS = ("DE-0.01", "NUTS", "MILE")  # drawn: those of the paper's figure
_TITLES = {"DE-0.01": "deep ensemble (DE-0.01)"}


def measure(cell: Cell, bench: Workbench) -> dict[str, object]:
    """Fit one row, or load its fit, and count the test rows inside each interval."""
    prediction = predict(cell, bench)
    covered = metrics.coverage(prediction.predictive, prediction.y_test, LEVELS)
    error = metrics.calibration_error(prediction.predictive, prediction.y_test)
    shares = {f"coverage_{level:.2f}": round(float(share), 4) for level, share in zip(LEVELS, covered, strict=True)}
    return {"calibration_error": round(error, 4), "n_test": len(prediction.y_test), **shares}


def draw(rows: list[dict[str, str]], path: Path) -> None:
    """Show coverage against level: mean over splits of the paper's protocol, and what chance does to one split."""
    levels = np.array(LEVELS)
    with panels(UCI.datasets, path, "level of the interval", "share of test rows inside", (3.1, 2.8)) as axes:
        for name, ax in axes.items():
            chosen = [row for row in rows if (row["dataset"], row["protocol"]) == (name, "paper")]
            ax.plot([0, 1], [0, 1], color="#999999", lw=0.8, ls="--")
            if chosen:
                spread = 1.64 * np.sqrt(levels * (1 - levels) / int(chosen[0]["n_test"]))  # 90 % of a binomial's
                label = "calibrated, 90 % of splits"
                ax.fill_between(levels, levels - spread, levels + spread, color="#dddddd", lw=0, label=label)
            for method in _METHODS:
                # Some rows are of uci/summary.csv, which has the calibration error alone.
                lines = [row for row in chosen if row["method"] == method and row[f"coverage_{LEVELS[0]:.2f}"]]
                shares = np.array([[float(row[f"coverage_{level:.2f}"]) for level in LEVELS] for row in lines])
                if len(shares):
                    label = _TITLES.get(method, method)
                    ax.plot(levels, shares.mean(axis=0), color=color_of(method), lw=1.6, label=label)
            ax.set_xlim(0, 1)
            ax.set_ylim(0, 1)


if __name__ == "__main__":
    main(__file__, Work(measure=measure, columns=COLUMNS, load=load, is_fitted=is_fitted, draw=draw))
