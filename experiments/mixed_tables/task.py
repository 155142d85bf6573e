"""One method on one split, in a process of its own: read the table, fit, predict, write the scores.

Used by `peers.py` and `ours.py`. Imports nothing that only one of the two environments has.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "alternatives"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from job import Options, use_cores
from tables import TABLES, MixedTable, Rows, load, split_rows

_LEAST_PROBABILITY = 1e-15  # so that a log loss is finite

# A method imports its packages when it is called, and gives a function that fits the training rows, predicts the test
# rows and returns a function of the test targets and a unit: their scores.
Scores = Callable[[np.ndarray, float], dict[str, float | None]]
Method = Callable[[Options, MixedTable], Callable[[pd.DataFrame, np.ndarray, pd.DataFrame], Scores]]


def command_line(methods: Mapping[str, Method]) -> None:
    """Run the task that the arguments describe."""
    parser = argparse.ArgumentParser()
    parser.add_argument("method", choices=methods)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("data_dir", help="folder of the tables; empty: MILE_DATA")
    parser.add_argument("most_rows", type=int, help="rows of the table to use; 0: all")
    parser.add_argument("result", type=Path, help="JSON file to write")
    for field in fields(Options):
        parser.add_argument(f"--{field.name}", type=field.type, required=True)
    given = parser.parse_args()
    use_cores(given.threads)
    options = Options(**{field.name: getattr(given, field.name) for field in fields(Options)})
    rows = split_rows(*load(given.table, given.data_dir or None), options.seed, given.most_rows or None)
    found = run(methods[given.method], options, TABLES[given.table], rows)
    given.result.write_text(json.dumps(found))


def run(method: Method, options: Options, table: MixedTable, rows: Rows) -> dict[str, Any]:
    """Return the scores and the seconds of fitting and predicting, wall time and all cores together.

    Scores of numbers are in standard deviations of the training targets, the `unit`; `lppd_raw` is in the target's own.
    """
    fit_and_predict = method(options, table)
    began, busy = time.perf_counter(), time.process_time()
    scores = fit_and_predict(rows.x, rows.y, rows.x_test)
    seconds = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - busy}
    unit = float(rows.y.std()) if table.is_regression else 1.0
    found = scores(rows.y_test, unit)
    lppd = found["lppd"]
    raw = {"lppd_raw": None if lppd is None else lppd - math.log(unit)}
    sizes = {"rows_train": len(rows.y), "rows_test": len(rows.y_test)}
    return found | raw | {"unit": unit if table.is_regression else None} | seconds | sizes


def class_scores(probs: np.ndarray, classes: np.ndarray, y: np.ndarray) -> dict[str, float | None]:
    """Return the scores of class probabilities, one column for each of the classes."""
    loss = -float(log_probability(probs, classes, y).mean())
    return {"lppd": -loss, "log_loss": loss, "accuracy": float(np.mean(np.asarray(classes)[probs.argmax(axis=1)] == y))}


def log_probability(probs: np.ndarray, classes: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the log of the probability that each row gives its own class."""
    place = {label: column for column, label in enumerate(classes.tolist())}
    truth = np.array([place[label] for label in y.tolist()])
    return np.log(np.maximum(probs[np.arange(len(y)), truth], _LEAST_PROBABILITY))
