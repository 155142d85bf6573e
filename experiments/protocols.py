"""How a table becomes training, validation and test rows: by the paper's protocol, without its leak, on its own splits.

`paper` and `corrected` cut the same random order of ours 70/10/20, so that a split has the same rows under both.
`authors` has the order that the authors' code draws, whose splits 1, 2 and 3 are those of the paper's tables, and is
`paper` otherwise. Scores are on the scale of the standardized target: the paper's standardization knows all rows, the
corrected one the training rows only.
"""

from typing import Any, NamedTuple

import jax
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


def authors_order(
    n_rows: int, split: int, *, limit: int | None = None, shares: tuple[float, float] = (0.7, 0.1)
) -> list[np.ndarray]:
    """Return the row numbers of training, validation and test in the authors' code, `split` being their `rng`.

    It is EmanuelSommer/MILE at 2c6dd8d, src/dataset/tabular.py: the second half of a split key permutes all rows, of
    which `limit` are kept. The bits are those of the JAX of that time, and the cuts those of products in floating
    point, which may be a row below ours.
    """
    with jax.threefry_partitionable(False):
        order = np.asarray(jax.random.permutation(jax.random.split(jax.random.PRNGKey(split))[1], n_rows))[:limit]
    return np.split(order, [int(len(order) * shares[0]), int(len(order) * (shares[0] + shares[1]))])


def paper_split(x: np.ndarray, y: np.ndarray, split: int) -> Split:
    """Standardize with all rows, test rows too, as the reference does, then cut."""
    return _cut(standardized(x, slice(None)), standardized(y, slice(None)), split)


def corrected_split(x: np.ndarray, y: np.ndarray, split: int) -> Split:
    """Cut, then standardize with the training rows only."""
    train = row_order(len(x), split)[0]
    return _cut(standardized(x, train), standardized(y, train), split)


def authors_split(
    x: np.ndarray, y: np.ndarray, split: int, *, limit: int | None = None, shares: tuple[float, float] = (0.7, 0.1)
) -> Split:
    """Standardize with all rows, then cut where the authors' code does."""
    parts = authors_order(len(x), split, limit=limit, shares=shares)
    return _of(standardized(x, slice(None)), standardized(y, slice(None)), parts)


PROTOCOLS = {"paper": paper_split, "corrected": corrected_split, "authors": authors_split}


def split_of(name: str, split: int, protocol: str, data_dir: str | None = None, **options: Any) -> Split:
    """Return one split of a table by the protocol of that name; `options` are those of the authors' code."""
    return PROTOCOLS[protocol](*load(name, data_dir), split, **options)


def standardized(values: np.ndarray, rows: Any) -> np.ndarray:
    """Shift and scale columns by the mean and standard deviation of some rows; classes stay what they are."""
    if np.issubdtype(values.dtype, np.integer):
        return values
    scale = values[rows].std(axis=0)
    return (values - values[rows].mean(axis=0)) / np.where(scale > 0.0, scale, 1.0)  # a constant column has scale 1


def _cut(x: np.ndarray, y: np.ndarray, split: int) -> Split:
    return _of(x, y, row_order(len(x), split))


def _of(x: np.ndarray, y: np.ndarray, parts: list[np.ndarray]) -> Split:
    train, valid, test = parts
    return Split(Dataset.from_arrays(x[train], y[train], x[valid], y[valid]), x[test], y[test])
