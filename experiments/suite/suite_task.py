"""One method on one split, in a process of its own: read the table, fit, predict, write scores and densities of rows.

Used by `suite_peers.py` and `suite_ours.py`. Imports nothing that only one of the two environments has.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "alternatives"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "mixed_tables"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import scores
from job import Options, use_cores
from suite_tables import TABLES, described, load, moved, split_rows
from tables import MixedTable, Rows
from task import class_scores, log_probability

NEAR, FAR = 5.0, 50.0  # standard deviations by which test rows are moved out
Row = dict[str, float | str]


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a method is called with."""

    name: str  # of the table
    method: str
    options: Options
    table: MixedTable
    rows: Rows
    kept: Path  # folder for what later rows need

    @property
    def unit(self) -> float:
        """The standard deviation of the training targets; 1 for classes."""
        return float(self.rows.y.std()) if self.table.is_regression else 1.0


class Scored(NamedTuple):
    """The columns of a row, and the log density of each test row on standardized targets."""

    row: Row
    log_density: np.ndarray


Method = Callable[[Job], Scored]


def command_line(methods: Mapping[str, Method]) -> None:
    """Run the task that the arguments describe."""
    parser = argparse.ArgumentParser()
    parser.add_argument("method", choices=methods)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("data_dir", help="folder of the tables of the paper; empty: MILE_DATA")
    parser.add_argument("exported", type=Path, help="folder of the tables of R")
    parser.add_argument("kept", type=Path, help="folder for densities of rows")
    parser.add_argument("result", type=Path, help="JSON file to write")
    for field in fields(Options):
        parser.add_argument(f"--{field.name}", type=field.type, required=True)
    given = parser.parse_args()
    use_cores(given.threads)
    options = Options(**{field.name: getattr(given, field.name) for field in fields(Options)})
    x, y = load(given.table, given.data_dir or None, given.exported)
    job = Job(
        name=given.table,
        method=given.method,
        options=options,
        table=described(given.table, x),
        rows=split_rows(x, y, options.seed),
        kept=given.kept,
    )
    scored = methods[given.method](job)
    keep(job, scored)
    given.result.write_text(json.dumps(scored.row))


def keep(job: Job, scored: Scored, method: str | None = None) -> None:
    """Write the log densities of rows, from which differences between methods get their standard errors."""
    job.kept.mkdir(parents=True, exist_ok=True)
    np.save(density_file(job.kept, job.name, method or job.method, job.options.seed), scored.log_density)


def density_file(kept: Path, name: str, method: str, split: int) -> Path:
    """Return the file of a method's log densities."""
    return kept / f"{name}-{method}-{split}.npy"


class Stopwatch:
    """Measures wall time, and the seconds of all cores together."""

    def __init__(self) -> None:
        self._began, self._busy = time.perf_counter(), time.process_time()

    def row(self) -> Row:
        """Return the seconds so far."""
        return {"seconds": time.perf_counter() - self._began, "cpu_seconds": time.process_time() - self._busy}


def number_scores(prediction: scores.Prediction, job: Job) -> Scored:
    """Return the scores of a prediction of the test rows, in standard deviations of the training targets."""
    rows, unit = job.rows, job.unit
    row = scores.score(prediction, rows.y_test, unit)
    density = prediction.log_density(rows.y_test) + np.log(unit)
    more = {"lppd_se": standard_error(density), "std_test": float(np.max(prediction.std)) / unit}
    constant = float(constant_crps(rows.y, rows.y_test).mean()) / unit
    return Scored(row | more | {"constant": constant} | _sizes(job) | {"unit": unit}, density)


def classification_scores(probs: np.ndarray, classes: np.ndarray, job: Job) -> Scored:
    """Return the scores of class probabilities of the test rows."""
    rows = job.rows
    density = log_probability(probs, classes, rows.y_test)
    labels, counts = np.unique(rows.y, return_counts=True)
    constant = log_probability(np.tile(counts / counts.sum(), (len(rows.y_test), 1)), labels, rows.y_test)
    row = class_scores(probs, classes, rows.y_test) | {"lppd_se": standard_error(density)}
    return Scored(row | {"constant": -float(constant.mean())} | _sizes(job), density)


def constant_crps(y: np.ndarray, y_test: np.ndarray) -> np.ndarray:
    """Return the CRPS of the training targets' own distribution, the best prediction that knows no feature."""
    ordered, n = np.sort(y), len(y)
    below = np.searchsorted(ordered, y_test)
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    distance = (y_test * (2 * below - n) + sums[-1] - 2.0 * sums[below]) / n
    # Half of E|Y - Y'|, from the order statistics.
    return distance - float(ordered @ (2.0 * np.arange(n) - n + 1)) / n**2


def standard_error(values: np.ndarray) -> float:
    """Return that of the mean over rows."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def outside(job: Job) -> dict[str, pd.DataFrame]:
    """Return the rows of which only the predicted standard deviation is of interest, by column of the summary."""
    x, x_test = job.rows.x, job.rows.x_test
    return {"std_train": x, "std_out": moved(x, x_test, NEAR), "std_far": moved(x, x_test, FAR)}


def _sizes(job: Job) -> Row:
    return {"rows_train": len(job.rows.y), "rows_test": len(job.rows.y_test)}
