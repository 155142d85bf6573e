"""Benchmark data for the experiments, by way of `mile.datasets`."""

import numpy as np
from summaries import Summary

from mile import datasets

__all__ = ["REGRESSION", "Summary", "load", "load_classes", "load_images"]

# The four small tables of the regression experiments.
REGRESSION = ("airfoil", "concrete", "energy", "yacht")


def load(name: str, data_dir: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return features and target of a table; `data_dir` (or MILE_DATA) holds NAME.csv.gz, target last."""
    table = datasets.load(name, data_dir)
    return table.x, table.y


def load_classes(name: str, data_dir: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return features and class codes of a table in `data_dir` (or MILE_DATA)."""
    table = datasets.load(name, data_dir)
    return table.x, table.y.astype(np.int32)


def load_images(name: str, data_dir: str | None = None) -> dict[str, np.ndarray]:
    """Return x_train, y_train, x_test, y_test of `mnist` or `fashion_mnist`: images (n, 28, 28) from 0 to 255."""
    return datasets.load(name, data_dir)._asdict()
