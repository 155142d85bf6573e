"""MILE at its defaults on the published train/test splits of nine regression tables, in raw units.

Usage: python experiments/standard_splits/run.py --dataset yacht boston --data-dir FOLDER

FOLDER/standard_splits holds NAME.npz. Rows are added to summary.csv as they finish, and what stands there is not run
again; `--splits 20` runs all splits of the tables of which five are planned. The starting ensemble comes with the fit
of the default, which leaves its row in a file among the runs.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mile import MileRegressor, metrics
from mile.likelihoods import Predictive

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "suite"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "mixed_tables"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from campaign import Work, main
from catalog import Cell
from ours import scaled_steps
from suite_ours import out_of_fold, starting_ensemble
from workbench import Workbench

COLUMNS = (
    "dataset", "method", "protocol", "split", "lppd", "lppd_cells", "rmse", "crps", "coverage", "oof_lppd",
    "oof_lppd_se", "seconds", "cpu_seconds", "rows_train", "rows_test", "unit",
)  # fmt: skip
DEFAULT, ENSEMBLE = "mile-default", "ensemble"
FEW_VALUES = 100  # distinct targets, up to which a density is also averaged over the step between them
_ROUNDING_ERROR = 1e-12  # of a difference of distribution functions
_DIGITS = 6  # significant ones


class Split(NamedTuple):
    """Raw rows of a published split."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def load(name: str, data_dir: str | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, target, and which rows are test rows in each split.

    Raises
    ------
    FileNotFoundError
        If the file is not there.
    """
    path = Path(data_dir or os.environ.get("MILE_DATA") or ".").expanduser() / "standard_splits" / f"{name}.npz"
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no {path}. Name the folder that holds standard_splits/{name}.npz with --data-dir or MILE_DATA; "
            "the README of this experiment says where the splits are published."
        )
    with np.load(path) as file:
        return file["x"], file["y"], np.unpackbits(file["test"], axis=1)[:, : int(file["n_rows"])].astype(bool)


def split_of(name: str, split: int, data_dir: str | None) -> Split:
    """Return the rows of a split, counted from 1.

    Raises
    ------
    ValueError
        If so many have not been published.
    """
    x, y, test = load(name, data_dir)
    if split > len(test):
        raise ValueError(f"{name} has {len(test)} published splits, so there is no split {split}.")
    chosen = test[split - 1]
    return Split(x[~chosen], y[~chosen], x[chosen], y[chosen])


def measure(cell: Cell, bench: Workbench) -> dict[str, object]:
    """Fit the default, or read the row that its fit has left for the ensemble."""
    left = Path(bench.runs or ".") / f"standard_splits{bench.size}" / f"{cell.dataset}-{cell.split}.json"
    if cell.method == DEFAULT or not left.exists():
        rows = fit_both(split_of(cell.dataset, cell.split, bench.data_dir), cell.split, bench)
        left.parent.mkdir(parents=True, exist_ok=True)
        left.write_text(json.dumps(rows[ENSEMBLE]))
    else:
        rows = {ENSEMBLE: json.loads(left.read_text())}
    return rows[cell.method]


def fit_both(rows: Split, seed: int, bench: Workbench) -> dict[str, dict[str, object]]:
    """Return the row of the default and that of its starting ensemble."""
    chains = {} if bench.chains == bench.planned_chains else {"n_chains": bench.chains}
    began, busy = time.perf_counter(), time.process_time()
    model = MileRegressor(random_state=seed, **chains, **scaled_steps(bench.scale, len(rows.y))).fit(rows.x, rows.y)
    seconds = {"seconds": round(time.perf_counter() - began, 1), "cpu_seconds": round(time.process_time() - busy, 1)}
    own = scored(model.predictive(rows.x_test), rows) | seconds | rounded(out_of_fold(model, unit=1.0))
    return {DEFAULT: own, ENSEMBLE: scored(starting_ensemble(model).predictive(rows.x_test), rows)}


def scored(predictive: Predictive, rows: Split) -> dict[str, object]:
    """Return the scores of the test rows in the target's own unit."""
    y = rows.y_test
    found: dict[str, Any] = {
        "lppd": metrics.lppd(predictive, y),
        "rmse": metrics.rmse(predictive, y),
        "crps": metrics.crps(predictive, y),
        "coverage": float(metrics.coverage(predictive, y, (0.9,))[0]),
        "unit": float(rows.y.std()),
    }
    known = np.unique(rows.y)
    if len(known) <= FEW_VALUES:
        found["lppd_cells"] = float(cell_log_density(predictive, y, float(np.median(np.diff(known)))).mean())
    return rounded(found) | {"rows_train": len(rows.y), "rows_test": len(y)}


def cell_log_density(predictive: Predictive, y: np.ndarray, step: float) -> np.ndarray:
    """Return the log of the mean density over a window of the target's step around each value.

    A spike on a value gains nothing by being narrower than the step. Far out, where both ends of the window have the
    same probability in floating-point numbers, the density itself is as good.
    """
    mass = predictive.cdf(y + 0.5 * step) - predictive.cdf(y - 0.5 * step)
    is_known = mass > _ROUNDING_ERROR
    return np.where(is_known, np.log(np.where(is_known, mass, 1.0) / step), predictive.log_prob(y))


def rounded(found: dict[str, Any]) -> dict[str, object]:
    """Return numbers with few digits, whatever the target's unit is."""
    return {name: float(f"{value:.{_DIGITS}g}") for name, value in found.items()}


if __name__ == "__main__":
    main(__file__, Work(measure=measure, columns=COLUMNS, load=load))
