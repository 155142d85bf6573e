"""Benchmark tables for the experiments: from a folder of CSV files, or from OpenML for users who are online."""

import csv
import gzip
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np


class Source(NamedTuple):
    """Where a table comes from and what it must look like."""

    openml_id: int
    n_rows: int
    n_features: int


REGRESSION = {
    "airfoil": Source(44957, 1503, 5),
    "concrete": Source(44959, 1030, 8),
    "energy": Source(44960, 768, 8),
    "yacht": Source(42370, 308, 6),
}


def load(name: str, data_dir: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return features and target of a table; `data_dir` (or MILE_DATA) holds NAME.csv.gz, target last."""
    source = REGRESSION[name]
    folder = data_dir or os.environ.get("MILE_DATA")
    table = _read(Path(folder) / f"{name}.csv.gz") if folder else _download(source)
    if table.shape != (source.n_rows, source.n_features + 1):
        raise ValueError(
            f"{name} should have {source.n_rows} rows and {source.n_features + 1} columns; found {table.shape}."
        )
    return table[:, :-1], table[:, -1]


def _read(path: Path) -> np.ndarray:
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: give the folder with --data-dir or MILE_DATA.")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return np.genfromtxt(file, delimiter=",", skip_header=1)


def _download(source: Source) -> np.ndarray:
    from sklearn.datasets import fetch_openml

    x, y = fetch_openml(data_id=source.openml_id, return_X_y=True, as_frame=False)
    return np.column_stack([x, y]).astype(np.float64)


# Rows and features of the tables whose last column is a class code. OpenML's copies are coded otherwise, so these
# are read from the folder only.
CLASSIFICATION = {"covertype8000": (8_000, 54), "glass": (214, 9), "heart": (303, 13), "sonar": (208, 60)}


def load_classes(name: str, data_dir: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return features and class codes of a table in `data_dir` (or MILE_DATA)."""
    table, (n_rows, n_features) = _read(_folder(data_dir) / f"{name}.csv.gz"), CLASSIFICATION[name]
    if table.shape != (n_rows, n_features + 1):
        raise ValueError(f"{name} should have {n_rows} rows and {n_features + 1} columns; found {table.shape}.")
    return table[:, :-1], table[:, -1].astype(np.int32)


def load_images(name: str, data_dir: str | None = None) -> dict[str, np.ndarray]:
    """Return x_train, y_train, x_test, y_test of `mnist` or `fashion_mnist`: images (n, 28, 28) from 0 to 255."""
    path = _folder(data_dir) / f"{name}.npz"
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: give the folder with --data-dir or MILE_DATA.")
    with np.load(path) as arrays:
        return {key: arrays[key] for key in ("x_train", "y_train", "x_test", "y_test")}


def _folder(data_dir: str | None) -> Path:
    folder = data_dir or os.environ.get("MILE_DATA")
    if not folder:
        raise FileNotFoundError("give the folder with the data by --data-dir or MILE_DATA.")
    return Path(folder)


class Summary:
    """The file that holds the rows of an experiment; a row is added as it finishes and is not computed again."""

    COLUMNS = (
        "dataset", "method", "protocol", "split", "lppd", "rmse", "accuracy", "calibration_error",
        "gradient_evaluations", "seconds", "chains", "draws",
    )  # fmt: skip

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def rows(self) -> list[dict[str, str]]:
        """What is there."""
        if not self.path.exists():
            return []
        with self.path.open(newline="") as file:
            return list(csv.DictReader(file))

    def has(self, **wanted: object) -> bool:
        """Say whether there is a row with these values."""
        return any(all(row[name] == str(value) for name, value in wanted.items()) for row in self.rows)

    def add(self, **values: object) -> None:
        """Write one row; columns not named stay empty."""
        new = not self.path.exists()
        with self.path.open("a", newline="") as file:
            writer = csv.DictWriter(file, self.COLUMNS, restval="")
            if new:
                writer.writeheader()
            writer.writerow(values)

    def mean(self, column: str, **wanted: object) -> tuple[float, float, int]:
        """Return mean, its standard error and the number of rows with these values."""
        rows = [row for row in self.rows if all(row[name] == str(value) for name, value in wanted.items())]
        values = np.array([float(row[column]) for row in rows])
        if len(values) < 2:
            return (float(values[0]) if len(values) else np.nan), np.nan, len(values)
        return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))), len(values)
