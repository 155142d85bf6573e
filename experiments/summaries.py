"""The file that holds an experiment's rows: one for each data set, method, protocol and split."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np


class Summary:
    """Rows of an experiment; a row is written as it finishes and is not computed again."""

    COLUMNS = (
        "dataset", "method", "protocol", "split", "lppd", "rmse", "accuracy", "calibration_error",
        "gradient_evaluations", "seconds", "chains", "draws",
    )  # fmt: skip

    def __init__(self, path: Path, columns: Sequence[str] = COLUMNS) -> None:
        self.path = path
        self.columns = tuple(columns)

    @property
    def rows(self) -> list[dict[str, str]]:
        """What is there."""
        if not self.path.exists():
            return []
        with self.path.open(newline="") as file:
            return list(csv.DictReader(file))

    def has(self, **wanted: object) -> bool:
        """Say whether there is a row with these values."""
        return bool(self.find(**wanted))

    def find(self, **wanted: object) -> list[dict[str, str]]:
        """Return the rows with these values."""
        return [row for row in self.rows if all(row[name] == str(value) for name, value in wanted.items())]

    def add(self, **values: object) -> None:
        """Write one row; columns not named stay empty."""
        new = not self.path.exists()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", newline="") as file:
            writer = csv.DictWriter(file, self.columns, restval="")
            if new:
                writer.writeheader()
            writer.writerow(values)

    def drop(self, **wanted: object) -> None:
        """Remove the rows with these values."""
        dropped, rows = self.find(**wanted), self.rows
        if not dropped:
            return
        temporary = self.path.with_suffix(".part")
        with temporary.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(row for row in rows if row not in dropped)
        temporary.replace(self.path)

    def mean(self, column: str, **wanted: object) -> tuple[float, float, int]:
        """Return mean, its standard error and the number of rows with these values."""
        return mean_of([float(row[column]) for row in self.find(**wanted)])


def mean_of(numbers: Sequence[float]) -> tuple[float, float, int]:
    """Return mean, its standard error (NaN for fewer than two) and how many numbers there are."""
    values = np.array(numbers, float)
    if len(values) < 2:
        return (float(values[0]) if len(values) else np.nan), np.nan, len(values)
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))), len(values)
