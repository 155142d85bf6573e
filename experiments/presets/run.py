"""Candidates for a preset that is better than the paper's, scored on validation rows.

Usage: python experiments/presets/run.py --data-dir FOLDER
"""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import scoring
from benchmark_data import load
from campaign import Work, main
from catalog import Cell, find
from gains import draw
from protocols import Split, row_order, standardized
from settings import FACTORS, columns_of, network_of, prior_of, sampler_of, settings_of, training_of
from workbench import Workbench

from mile import Categorical, Dataset, Gaussian, fit, metrics
from mile.predict import ClassPredictive

EXPERIMENT = find("presets")
COLUMNS = (
    *Cell._fields, "lppd", "rmse", "crps", "coverage", "ensemble_lppd", "processor_seconds", "seconds", *FACTORS,
    "rows", "accuracy",
)  # fmt: skip
_MOST_ROWS = 6_000  # of training; of the larger tables the first so many, which are in random order
_LEVEL = 0.9  # of the interval whose coverage is counted


def validation_split(name: str, split: int, data_dir: str | None = None) -> Split:
    """Return 65 % of the rows to train with, 5 % to stop early by, and 10 % to score.

    They are the training and validation rows of `protocols`, in the same order; the test rows are never looked at.
    Standardized with the rows to train with.
    """
    x, y = load(name, data_dir)
    train, valid, _ = row_order(len(x), split)
    fitted, stopping = np.split(train, [len(x) * 65 // 100])
    fitted = fitted[:_MOST_ROWS]
    x, y = standardized(x, fitted), standardized(y, fitted)
    return Split(Dataset.from_arrays(x[fitted], y[fitted], x[stopping], y[stopping]), x[valid], y[valid])


def measure(cell: Cell, bench: Workbench) -> dict[str, object]:
    """Fit a candidate and score it. Keeps no run directory: most fits take less than a minute."""
    settings = settings_of(EXPERIMENT, cell.method)
    dataset, x, y = validation_split(cell.dataset, cell.split, bench.data_dir)
    likelihood = Categorical(int(dataset.y_train.max()) + 1) if dataset.y_train.dtype.kind == "i" else Gaussian()
    wall, processor = time.perf_counter(), time.process_time()
    model = fit(
        dataset,
        network_of(settings, dataset.n_features, likelihood.n_outputs),
        likelihood,
        prior_of(settings),
        bench.scaled(sampler_of(settings)),
        training=training_of(settings),
        n_chains=settings["chains"],
        random_state=cell.split,
    )
    processor, wall = time.process_time() - processor, time.perf_counter() - wall
    return {
        **scores(model.predictive(x), y),
        "ensemble_lppd": round(metrics.lppd(model.ensemble_predictive(x), y), 4),
        "processor_seconds": round(processor, 1),
        "seconds": round(wall, 1),
        **columns_of(settings),
        "rows": len(dataset.y_train),
    }


def scores(predictive: Any, y: np.ndarray) -> dict[str, float]:
    """Return the scores that the summary has columns for, of numbers or of classes."""
    found = {name: value for name, value in scoring.scores(predictive, y).items() if name in COLUMNS}
    if isinstance(predictive, ClassPredictive):
        return found
    coverage = float(metrics.coverage(predictive, y, [_LEVEL])[0])
    return found | {"crps": round(metrics.crps(predictive, y), 5), "coverage": round(coverage, 4)}


WORK = Work(measure=measure, columns=COLUMNS, load=load, draw=draw)

if __name__ == "__main__":
    main(__file__, WORK)
