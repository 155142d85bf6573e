"""How a table becomes training, validation and test rows: the paper's protocol, and the same without its leak.

Both cut the same random order 70/10/20, so that a split has the same rows under both. Scores are on the scale of the
standardized target: the paper's standardization knows all rows, the corrected one the training rows only.
"""

from typing import Any, NamedTuple

import numpy as np
from benchmark_data import load

from mile import Dataset


class Split(NamedTuple):
    """Rows to fit, validation rows among them, and rows to score."""

    dataset: Dataset
    x_test: np.ndarray
    y_test: np.ndarray


def row_order(n_rows: int, split: int) -> list[np.ndarray]:
    """Return the row numbers of training, validation and test: 70/10/20 by whole numbers, in a random order."""
    order = np.random.default_rng(split).permutation(n_rows)
    return np.split(order, [n_rows * 7 // 10, n_rows * 8 // 10])


def paper_split(x: np.ndarray, y: np.ndarray, split: int) -> Split:
    """Standardize with all rows, test rows too, as the reference does, then cut."""
    return _cut(standardized(x, slice(None)), standardized(y, slice(None)), split)


def corrected_split(x: np.ndarray, y: np.ndarray, split: int) -> Split:
    """Cut, then standardize with the training rows only."""
    train = row_order(len(x), split)[0]
    return _cut(standardized(x, train), standardized(y, train), split)


PROTOCOLS = {"paper": paper_split, "corrected": corrected_split}


def split_of(name: str, split: int, protocol: str, data_dir: str | None = None) -> Split:
    """Return one split of a table by the protocol of that name."""
    return PROTOCOLS[protocol](*load(name, data_dir), split)


def standardized(values: np.ndarray, rows: Any) -> np.ndarray:
    """Shift and scale columns by the mean and standard deviation of some rows; classes stay what they are."""
    if np.issubdtype(values.dtype, np.integer):
        return values
    scale = values[rows].std(axis=0)
    return (values - values[rows].mean(axis=0)) / np.where(scale > 0.0, scale, 1.0)  # a constant column has scale 1


def _cut(x: np.ndarray, y: np.ndarray, split: int) -> Split:
    train, valid, test = row_order(len(x), split)
    return Split(Dataset.from_arrays(x[train], y[train], x[valid], y[valid]), x[test], y[test])
