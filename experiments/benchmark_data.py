"""Benchmark tables for the experiments: from a folder of CSV files, or from OpenML for users who are online."""

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
