"""One method on one fold, in a process of its own: read the table, fit, predict, write the scores.

Used by `peers.py` and `ours.py`. Imports nothing that only one of the two environments has.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "alternatives"))
from job import Options, use_cores

N_FOLDS = 5
N_TIMES = 50  # at which the Brier score is taken


@dataclass(frozen=True, kw_only=True)
class SurvivalTable:
    """Where a table is, and which of its columns are the time, the event and no features."""

    file: str
    time: str
    event: str
    left_out: tuple[str, ...] = ()


TABLES = {
    "gbsg2": SurvivalTable(file="mixed/gbsg2.csv.gz", time="time", event="cens"),
    "veteran": SurvivalTable(file="mixed/veteran.csv.gz", time="time", event="status", left_out=("rownames",)),
}


class Rows(NamedTuple):
    """Features, times, and whether they ended with an event."""

    x: pd.DataFrame
    time: np.ndarray
    event: np.ndarray

    def take(self, places: np.ndarray) -> "Rows":
        """Return some of the rows."""
        return Rows(self.x.iloc[places].reset_index(drop=True), self.time[places], self.event[places])


class Prediction(NamedTuple):
    """What a method says of the test rows."""

    risk: np.ndarray  # higher: earlier
    survival: np.ndarray  # of each row at each time
    lppd: Callable[[Rows], float] | None = None


# A method imports its packages when it is called, and gives a function of training rows, features to predict and times.
Method = Callable[[Options], Callable[[Rows, pd.DataFrame, np.ndarray], Prediction]]


def load(name: str, data_dir: str | None = None) -> Rows:
    """Return a table; `data_dir` or MILE_DATA holds the files.

    Raises
    ------
    FileNotFoundError
        If the file is not there.
    """
    table = TABLES[name]
    path = Path(data_dir or os.environ.get("MILE_DATA") or ".").expanduser() / table.file
    if not path.is_file():
        raise FileNotFoundError(f"There is no {path}: name the folder that holds {table.file} with --data-dir.")
    frame = pd.read_csv(path)
    time, event = frame.pop(table.time), frame.pop(table.event)
    return Rows(frame.drop(columns=list(table.left_out)), time.to_numpy(np.float64), event.to_numpy() == 1)


def fold_of(rows: Rows) -> np.ndarray:
    """Return the fold of each row: a random order, in which events and others have equal shares."""
    order = np.random.default_rng(0).permutation(len(rows.time))
    order = order[np.argsort(rows.event[order], kind="stable")]
    folds = np.empty(len(order), int)
    folds[order] = np.arange(len(order)) % N_FOLDS
    return folds


def command_line(methods: Mapping[str, Method]) -> None:
    """Run the task that the arguments describe."""
    parser = argparse.ArgumentParser()
    parser.add_argument("method", choices=methods)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("data_dir", help="folder of the tables; empty: MILE_DATA")
    parser.add_argument("result", type=Path, help="JSON file to write")
    for field in fields(Options):
        parser.add_argument(f"--{field.name}", type=field.type, required=True)
    given = parser.parse_args()
    use_cores(given.threads)
    options = Options(**{field.name: getattr(given, field.name) for field in fields(Options)})
    rows = load(given.table, given.data_dir or None)
    found = run(methods[given.method](options), rows, options.seed - 1)
    given.result.write_text(json.dumps(found))


def run(method: Callable[[Rows, pd.DataFrame, np.ndarray], Prediction], rows: Rows, fold: int) -> dict[str, object]:
    """Fit the rows of the other folds, predict those of one, and return scores and seconds."""
    is_test = fold_of(rows) == fold
    train, test = rows.take(np.flatnonzero(~is_test)), rows.take(np.flatnonzero(is_test))
    times = np.linspace(*np.quantile(test.time, [0.1, 0.9]), N_TIMES)
    began, busy = time.perf_counter(), time.process_time()
    prediction = method(train, test.x, times)
    seconds = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - busy}
    return {
        "concordance": concordance(prediction.risk, test),
        "integrated_brier": integrated_brier(prediction.survival, times, train, test),
        "lppd": None if prediction.lppd is None else prediction.lppd(test),
        **seconds,
        "rows_train": len(train.time),
        "rows_test": len(test.time),
    }


def concordance(risk: np.ndarray, test: Rows) -> float:
    """Return Harrell's C; `concordance_index_censored` of scikit-survival gives the same."""
    right = total = 0.0
    for row in np.flatnonzero(test.event):
        later = (test.time > test.time[row]) | ((test.time == test.time[row]) & ~test.event)
        ahead = risk[row] - risk[later]
        right += float(np.sum(np.where(np.abs(ahead) <= 1e-8, 0.5, ahead > 0)))
        total += float(later.sum())
    return right / total


def integrated_brier(survival: np.ndarray, times: np.ndarray, train: Rows, test: Rows) -> float:
    """Return the score of Graf et al. (1999); `integrated_brier_score` of scikit-survival gives the same."""
    of_rows, of_times = censoring(train, test.time), censoring(train, times)
    had = (test.time[:, None] <= times) & test.event[:, None]
    alive = test.time[:, None] > times
    scores = np.square(survival) * had / of_rows[:, None] + np.square(1.0 - survival) * alive / of_times
    return float(np.trapezoid(scores.mean(axis=0), times) / (times[-1] - times[0]))


def censoring(train: Rows, at: np.ndarray) -> np.ndarray:
    """Return the share of rows that are not censored until a time, by Kaplan and Meier; events come first."""
    times, place = np.unique(train.time, return_inverse=True)
    events = np.bincount(place, weights=train.event, minlength=len(times))
    lost = np.bincount(place, minlength=len(times)) - events
    at_risk = len(train.time) - np.concatenate([[0.0], np.cumsum(events + lost)[:-1]]) - events
    share = np.cumprod(1.0 - np.divide(lost, at_risk, out=np.zeros(len(times)), where=at_risk > 0))
    return np.maximum(np.concatenate([[1.0], share])[np.searchsorted(times, at, side="right")], 1e-6)
