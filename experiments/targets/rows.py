"""The tables and the rows of each split. Imports numpy and pandas only, because the peers' environment uses it too."""

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd


class TargetTable(NamedTuple):
    """Where a table is, and what is to be predicted."""

    file: str
    target: str
    left_out: tuple[str, ...] = ()  # numbers of rows


TABLES = {
    "doctor_visits": TargetTable("mixed/doctor_visits.csv.gz", "visits", ("rownames",)),
    "wine_red": TargetTable("wine_red.csv.gz", "quality"),
}
_TRAINING_SHARE = 0.8


class Rows(NamedTuple):
    """Training and test rows of a split, features as frames."""

    x: pd.DataFrame
    y: np.ndarray
    x_test: pd.DataFrame
    y_test: np.ndarray


def load(name: str, data_dir: str | None = None) -> tuple[pd.DataFrame, np.ndarray]:
    """Return features and target of a table in `data_dir` (or MILE_DATA)."""
    known = TABLES[name]
    frame = pd.read_csv(Path(data_dir or os.environ.get("MILE_DATA", ".")) / known.file)
    y = frame.pop(known.target).to_numpy()
    return frame.drop(columns=list(known.left_out)), y


def split_rows(name: str, split: int, data_dir: str | None = None) -> Rows:
    """Return 80 % of the rows to train with and the others, in an order that the number of the split decides."""
    x, y = load(name, data_dir)
    order = np.random.default_rng(split).permutation(len(y))
    train, test = np.split(order, [int(_TRAINING_SHARE * len(y))])
    return Rows(x.iloc[train], y[train], x.iloc[test], y[test])
