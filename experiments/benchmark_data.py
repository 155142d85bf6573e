"""Benchmark data for the experiments, by way of `mile.datasets`, and the file that holds an experiment's rows."""

import csv
from pathlib import Path

import numpy as np

from mile import datasets

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
