"""The five tables as their files have them, and the rows of each split.

Imports numpy and pandas only, because it is used in the peers' environment and in ours.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd


@dataclass(frozen=True, kw_only=True)
class MixedTable:
    """Where a table is, and what is to be predicted.

    Attributes
    ----------
    file
        In the folder of the data.
    target
        Name of the column to predict; rows without it are left out.
    is_regression
        Whether the target is a number; else it is a class.
    left_out
        Columns that give the answer away.
    dates
        Columns of time stamps, for methods that do not read these.
    """

    file: str
    target: str
    is_regression: bool
    left_out: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()


TABLES = {
    "titanic": MixedTable(file="mixed/titanic.csv.gz", target="survived", is_regression=False),
    "ames": MixedTable(file="mixed/ames.csv.gz", target="Sale_Price", is_regression=True),
    "flights": MixedTable(
        file="mixed/flights.csv.gz",
        target="arr_delay",
        is_regression=True,
        left_out=("dep_time", "arr_time", "dep_delay", "air_time"),
        dates=("time_hour",),
    ),
    "income_raw": MixedTable(file="income_raw.csv.gz", target="income", is_regression=False),
    # The file is in the order of the price: the number of a row alone explains 82 % of its variance.
    "diamonds": MixedTable(file="mixed/diamonds.csv.gz", target="price", is_regression=True, left_out=("rownames",)),
}


class Rows(NamedTuple):
    """Training and test rows of a split, features as frames."""

    x: pd.DataFrame
    y: np.ndarray
    x_test: pd.DataFrame
    y_test: np.ndarray


def load(name: str | MixedTable, data_dir: str | None = None) -> tuple[pd.DataFrame, np.ndarray]:
    """Return features and target of the rows whose target is known; `data_dir` or MILE_DATA holds the files.

    Raises
    ------
    FileNotFoundError
        If the file is not there.
    """
    table = TABLES[name] if isinstance(name, str) else name
    path = Path(data_dir or os.environ.get("MILE_DATA") or ".").expanduser() / table.file
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no {path}. Name the folder that holds {table.file} with --data-dir or MILE_DATA; the README of "
            "this experiment says where the tables are published."
        )
    frame = pd.read_csv(path).dropna(subset=[table.target], ignore_index=True)
    target = frame.pop(table.target)
    y = target.to_numpy(np.float64) if table.is_regression else target.astype(str).to_numpy(object)
    return frame.drop(columns=list(table.left_out)), y


def split_rows(x: pd.DataFrame, y: np.ndarray, split: int, most_rows: int | None = None) -> Rows:
    """Cut a random order of the rows 80/20, as the other experiments do; `most_rows` takes the first of them only."""
    order = np.random.default_rng(split).permutation(len(y))[:most_rows]
    train, test = np.split(order, [len(order) * 8 // 10])
    return Rows(x.iloc[train].reset_index(drop=True), y[train], x.iloc[test].reset_index(drop=True), y[test])
