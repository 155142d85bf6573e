"""Responses as users have them: rows without one are left out, and dates are refused with advice."""

import datetime
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from mile._errors import warn
from mile.features.accepted import ResponseLike

Values = TypeVar("Values")
_DATES = (datetime.date, datetime.timedelta, np.datetime64, np.timedelta64)


def split_missing(y: ResponseLike) -> tuple[ResponseLike, np.ndarray | None]:
    """Return y with a stand-in for each missing entry, and the rows that have a value; None if all rows do.

    Warns of missing entries with their number.

    Raises
    ------
    ValueError
        If no row has a value, or y is made of dates.
    """
    y = unmasked(y)
    values = np.asarray(y)
    if values.dtype.kind in "Uf" and isinstance(y, Sequence):
        values = np.array(y, object)  # numpy has made texts of None and NaN, or with NaN rounded whole numbers
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    missing = _missing(values)
    known = np.flatnonzero(~missing)
    if len(missing) and not known.size:
        raise ValueError(f"Input y contains NaN or a missing value in each of the {len(values)} rows.")
    _refuse_dates(values[known[:1]] if len(missing) else values)
    if len(known) == len(missing):
        return y, None
    gaps = "no value" if values.ndim == 1 else "an output without a value"
    warn(f"y has {gaps} in {len(missing) - len(known):,} of {len(missing):,} rows, which are left out.")
    filled = values.copy()
    filled[missing] = values[known[0]]
    narrow = np.array(filled.tolist()) if filled.dtype.kind == "O" else filled
    is_one_kind = narrow.dtype.kind in "biuf" or all(isinstance(value, str) for value in filled.flat)
    return narrow if is_one_kind else filled, known


def unmasked(values: Values) -> Values | np.ndarray:
    """Return an array with NaN or None where numpy's mask hides a number; anything else as it is."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    if not np.ma.getmaskarray(values).any():
        return values.data
    found = np.array(values.data, values.dtype if values.dtype.kind == "f" else object)
    found[np.ma.getmaskarray(values)] = np.nan if values.dtype.kind == "f" else None
    return found


def refuse_masked(name: str, values: object) -> None:
    """Refuse an array of which numpy's mask hides a part, where there is nothing that could stand for it.

    Raises
    ------
    ValueError
        If it does; the message names the first row.
    """
    hidden = np.argwhere(np.ma.getmaskarray(values)) if isinstance(values, np.ma.MaskedArray) else np.empty((0, 1), int)
    if len(hidden):
        raise ValueError(
            f"{name} is masked in row {hidden[0][0]} ({len(hidden)} such rows): remove these rows, or fill them with "
            "numpy.ma.filled."
        )


def is_missing(value: object) -> bool:
    """Say whether an entry is None, NaN or one of pandas' missing values."""
    try:
        return value is None or bool(value != value)
    except TypeError:  # the missing value of pandas does not compare
        return True
    except ValueError:  # an array
        return False


def has_several_columns(y: object) -> bool:
    """Say whether y has several numbers for each row."""
    shape = np.shape(np.asarray(y))
    return len(shape) == 2 and shape[1] > 1


def _missing(values: np.ndarray) -> np.ndarray:
    """Return which rows have no value, or lack one of several; nothing where rows are neither."""
    if values.ndim == 2 and values.dtype.kind in "Of" and values.size:
        return np.any([_missing(column) for column in values.T], axis=0)
    if values.ndim != 1:
        return np.zeros(0, bool)
    if values.dtype.kind == "O":
        return np.array([is_missing(value) for value in values], bool)
    return np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)


def _refuse_dates(values: np.ndarray) -> None:
    first = values.flat[0] if values.size else None
    if values.dtype.kind in "Mm" or isinstance(first, _DATES):
        raise ValueError(
            f"y holds dates or times, such as {first}, which cannot be predicted as they are. Predict a number, such "
            "as the days since a fixed date."
        )
