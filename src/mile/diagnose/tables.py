"""What may mislead in a table before it is fitted: columns that give the target away, repeated rows, order in time."""

import shlex
import warnings
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from mile.features.columns import AbstractColumn
from mile.features.frame import Frame
from mile.features.table import TableEncoder

_FEWEST_ROWS = 30  # fewer say too little
_MOST_ROWS = 2_000  # looked at to find columns that give the target away
_FOLDS = 3
_DEPTH = 8  # of a tree on one column: up to 256 steps
# Columns that are merely good stay below: carat explains 93 % of the ranks of the prices of diamonds.
_LEAKING_R2 = 0.99
_LEAKING_ACCURACY = 0.995
_LEAKING_GAIN = 0.9  # share of the mistakes of the most frequent class that are gone
_MORE_THAN_CHANCE = 2.0  # repeated rows, as a multiple of those in a table with the cells of each column shuffled
_ORDERED = 0.98  # rank correlation with the number of the row
_BLOCKS = 10  # of rows, compared to see whether the target changes
_CHANCE = 1e-4  # probability of a change as large by chance


class TableWarning(NamedTuple):
    """What was found, in which column if it is one, and what to do."""

    kind: str
    column: str | None
    sentence: str


def table_warnings(encoder: TableEncoder, frame: Frame, y: np.ndarray) -> list[TableWarning]:
    """Look for anything that makes scores look better than predictions will be.

    Parameters
    ----------
    encoder
        Fitted to the table: what its columns are.
    frame
        The rows whose target is known, in the order of the file.
    y
        The target of each: numbers in floating point, or codes of classes as integers.
    """
    if len(frame) < _FEWEST_ROWS:
        return []
    used = [(name, column) for name, column in zip(encoder.names_in, encoder.columns, strict=True) if column.n_features]
    columns = {name: _numbers(column, frame, name) for name, column in used}
    running = {report.name for report in encoder.describe() if report.is_running or report.kind == "date"}
    return [
        *_leaks(columns, y),
        *_repeats({name: values for name, values in columns.items() if name not in running}, y),
        *_order({name: values for name, values in columns.items() if name in running}, y),
    ]


def _numbers(column: AbstractColumn, frame: Frame, name: str) -> Float[np.ndarray, " row"]:
    """Return the values of a column as numbers, with a code for each text; NaN is missing."""
    if column.kind == "category":
        return frame[name].texts().codes.astype(np.float64)
    return column.read(frame[name]).numbers().values.astype(np.float64)


def _leaks(columns: dict[str, np.ndarray], y: np.ndarray) -> Iterator[TableWarning]:
    """Yield the columns from which a small tree reads the target of rows that it was not fitted to."""
    rows = np.random.default_rng(0).permutation(len(y))[:_MOST_ROWS]
    targets = _targets(y[rows])
    if targets is None:
        return
    for name, values in columns.items():
        score = _cross_fitted(values[rows], targets)
        if score is not None:
            yield TableWarning(
                "leakage",
                name,
                f"{name!r} alone predicts the target almost perfectly ({score}, on rows that were held out). If it is "
                f"not known before the target is, leave it out with --drop {shlex.quote(name)}.",
            )


def _targets(y: np.ndarray) -> Float[np.ndarray, "row target"] | None:
    """Return ranks of numbers, which outliers do not govern, or an indicator for each class; None if all are alike."""
    if y.dtype.kind == "f":
        ranks = stats.rankdata(y) / len(y)
        return None if np.ptp(ranks) == 0 else ranks[:, None]
    classes = np.unique(y)
    return None if len(classes) < 2 else (y[:, None] == classes).astype(np.float64)


def _cross_fitted(values: np.ndarray, targets: Float[np.ndarray, "row target"]) -> str | None:
    """Return the score of a column that gives the target away, in words; None for other columns."""
    from sklearn.model_selection import KFold  # heavy, and of use to one command only
    from sklearn.tree import DecisionTreeRegressor

    x = np.clip(values, -1e30, 1e30)[:, None]  # a tree computes in float32
    if (x == x[0]).all():
        return None
    found = np.empty_like(targets)
    for train, test in KFold(_FOLDS, shuffle=True, random_state=0).split(x):
        tree = DecisionTreeRegressor(max_depth=_DEPTH, min_samples_leaf=2, random_state=0)
        found[test] = tree.fit(x[train], targets[train]).predict(x[test]).reshape(len(test), -1)
    if targets.shape[1] == 1:
        r2 = 1.0 - float(np.sum(np.square(found - targets)) / np.sum(np.square(targets - targets.mean())))
        return f"R² {r2:.3f} of the ranks" if r2 > _LEAKING_R2 else None
    accuracy = float(np.mean(found.argmax(axis=1) == targets.argmax(axis=1)))
    majority = float(targets.mean(axis=0).max())
    is_leak = accuracy > _LEAKING_ACCURACY and accuracy - majority > _LEAKING_GAIN * (1.0 - majority)
    return f"accuracy {accuracy:.1%}" if is_leak else None


def _repeats(columns: dict[str, np.ndarray], y: np.ndarray) -> Iterator[TableWarning]:
    """Yield a warning if more rows repeat an earlier one, target included, than a coarse table would have by chance."""
    n_repeats = _n_repeats([y, *columns.values()]) if columns else 0
    if not n_repeats:
        return
    rng = np.random.default_rng(0)
    by_chance = _n_repeats([y, *map(rng.permutation, columns.values())])
    if n_repeats > _MORE_THAN_CHANCE * by_chance:
        yield TableWarning(
            "duplicates",
            None,
            f"{n_repeats:,} of {len(y):,} rows repeat an earlier one in every column that is used. If they are the "
            "same observation twice, remove them: copies among training and test rows make scores too good.",
        )


def _n_repeats(columns: list[np.ndarray]) -> int:
    groups = np.zeros(len(columns[0]), np.int64)
    for values in columns:
        codes = _codes(values)
        groups = _codes(groups * (int(codes.max()) + 1) + codes)
        if groups.max() == len(groups) - 1:
            return 0  # all rows are different already
    return len(groups) - int(groups.max()) - 1


def _codes(values: np.ndarray) -> Int[np.ndarray, " row"]:
    """Return a number from 0 on for each different value; NaN is one value."""
    return np.unique(values, return_inverse=True)[1].reshape(-1)


def _order(columns: dict[str, np.ndarray], y: np.ndarray) -> Iterator[TableWarning]:
    """Yield a warning for the first date or running number along which the target changes, if rows are in its order."""
    drift = _drift(y)
    for name, values in columns.items() if drift < _CHANCE else ():
        known = np.isfinite(values)
        if known.sum() < _FEWEST_ROWS or np.ptp(values[known]) == 0:
            continue
        correlation = np.corrcoef(np.arange(known.sum()), stats.rankdata(values[known]))[0, 1]
        if abs(correlation) > _ORDERED:
            yield TableWarning(
                "time order",
                name,
                f"The rows are in the order of {name!r}, and the target changes along it. Rows drawn at random are "
                "then easier to predict than later ones: fit the earlier rows, and evaluate on the later ones.",
            )
            return


def _drift(y: np.ndarray) -> float:
    """Return the probability that blocks of rows differ as much by chance."""
    targets = _targets(y)
    if targets is None:
        return 1.0
    blocks = np.array_split(targets, _BLOCKS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.ConstantInputWarning)  # blocks of one class: the change is certain
        chances = stats.f_oneway(*blocks).pvalue
    known = chances[np.isfinite(chances)]
    return float(np.min(known, initial=1.0) * len(known))
