"""X and y as users pass them: checked before any training, and every complaint names the row and the column."""

import datetime
import math
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_consistent_length, column_or_1d, validate_data

from mile.features.pixels import check_images

# Other numbers become the first; float32 stays as it is, because a copy in float64 would be the largest array of a fit.
_DTYPES = [np.float64, np.float32]


def check_training_data(estimator: BaseEstimator, X: Any, y: Any, *, numeric: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return finite features in float64 or float32 and a response without gaps; `numeric` asks for numbers in y too.

    Raises
    ------
    ValueError
        If anything cannot be used.
    """
    _refuse_non_numeric(X)
    refuse_bad_response(y, numeric)
    # Finiteness of X is checked afterwards, because scikit-learn's check does not name the cell.
    X, y = validate_data(
        estimator, X, y, dtype=_DTYPES, ensure_all_finite=False, ensure_min_samples=2, y_numeric=numeric
    )
    _refuse_non_finite(estimator, X)
    return X, y


def check_training_images(estimator: Any, X: Any, y: Any, *, numeric: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return finite images of shape (images, height, width[, channels]) and a response without gaps.

    Raises
    ------
    ValueError
        If anything cannot be used.
    """
    refuse_bad_response(y, numeric)
    y = column_or_1d(y, warn=True)
    images = check_images(X)
    check_consistent_length(images, y)
    if len(images) < 2:
        raise ValueError(f"at least 2 images are needed to fit; got {len(images)}.")
    if hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
    estimator.n_features_in_ = int(np.prod(images.shape[1:]))
    return images, y


def check_features(estimator: BaseEstimator, X: Any) -> np.ndarray:
    """Return finite features in float64 or float32 with the columns of the training data; no rows are fine.

    Raises
    ------
    ValueError
        If anything cannot be used.
    """
    _refuse_non_numeric(X)
    X = validate_data(estimator, X, reset=False, dtype=_DTYPES, ensure_all_finite=False, ensure_min_samples=0)
    _refuse_non_finite(estimator, X)
    return X


def _refuse_non_numeric(X: Any) -> None:
    """Name the first cell that is a text, a date or a time."""
    names = list(X.columns) if hasattr(X, "columns") else None
    table: Any = np.asarray(X) if isinstance(X, list | tuple) else X
    if names is None and not (isinstance(table, np.ndarray) and table.ndim == 2 and table.dtype.kind in "OUSMm"):
        return
    for index in range(table.shape[1]):
        column = np.asarray(getattr(table, "iloc", table)[:, index])
        if column.dtype.kind in "biufc":
            continue
        name = f"{names[index]!r}" if names is not None else index
        for row, cell in enumerate(column):
            if isinstance(cell, np.datetime64 | np.timedelta64 | datetime.date | datetime.timedelta):
                raise ValueError(
                    f"X must be numeric, but column {name} has the date or time {cell} in row {row}. Turn it into "
                    "numbers first, such as days since a fixed date, month and weekday."
                )
            try:
                float(cell)
            except ValueError:
                raise ValueError(
                    f"X must be numeric, but column {name} has {str(cell)!r} in row {row}: could not convert string to "
                    "float. Encode text columns first, for example with scikit-learn's OneHotEncoder."
                ) from None
            except TypeError:
                break  # dictionaries, missing-value objects: scikit-learn says what is wrong


def _refuse_non_finite(estimator: Any, X: np.ndarray) -> None:
    finite = np.isfinite(X)
    if not finite.all():
        bad = np.argwhere(~finite)
        row, column = bad[0]
        names = getattr(estimator, "feature_names_in_", None)
        name = f"{names[column]!r}" if names is not None else column
        value = _name_value(float(X[row, column]))
        raise ValueError(
            f"Input X contains {value} in row {row}, column {name} ({len(bad)} such cells in all). "
            "Remove these rows or impute them, for example with scikit-learn's SimpleImputer."
        )


def refuse_bad_response(y: Any, numeric: bool) -> None:
    """Name the first entry of y that is missing, infinite or, where y must be numeric, not a number."""
    y = np.asarray(y)
    if y.dtype.kind == "f":
        bad = np.argwhere(~np.isfinite(y))
        if len(bad):
            value = _name_value(float(y[tuple(bad[0])]))
            raise ValueError(f"Input y contains {value} in row {bad[0][0]} ({len(bad)} such rows). Remove these rows.")
    elif y.dtype.kind in "OUS" and y.ndim == 1:
        for row, value in enumerate(y):
            if _is_missing(value):
                raise ValueError(f"Input y contains NaN or a missing value, {value}, in row {row}. Remove such rows.")
            if numeric and not _is_finite_number(value):
                raise ValueError(f"y must be a finite number in every row, but row {row} has {str(value)[:40]!r}.")


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except TypeError:  # the missing value of pandas does not compare
        return True


def _is_finite_number(value: Any) -> bool:
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError, OverflowError):
        return False


def _name_value(value: float) -> str:
    return "NaN" if math.isnan(value) else "infinity (inf)" if value > 0 else "-infinity (-inf)"
