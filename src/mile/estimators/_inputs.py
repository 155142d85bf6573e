"""Checks of X and y before any training; each message names the row and the column."""

import datetime
import math
from collections.abc import Iterator
from typing import Any, SupportsFloat, cast

import numpy as np
from sklearn.utils.validation import check_consistent_length, column_or_1d, validate_data

from mile.estimators._arguments import AbstractArguments
from mile.estimators._responses import has_several_columns, is_missing
from mile.features.accepted import Frame, InputLike, ResponseLike
from mile.features.pixels import check_images
from mile.likelihoods import refuse_extreme, refuse_rounded

# Other numbers become the first; float32 stays as it is, because a copy in float64 would be the largest array of a fit.
_DTYPES = [np.float64, np.float32]


def check_training_data(
    estimator: AbstractArguments, X: InputLike, y: ResponseLike, *, numeric: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return finite features in float64 or float32 and a response without gaps; `numeric` asks for numbers in y too.

    Raises
    ------
    ValueError
        If anything cannot be used.
    """
    _refuse_non_numeric(X)
    refuse_bad_response(y, numeric)
    # Finiteness of X is checked afterwards, because scikit-learn's check does not name the cell.
    x, response = validate_data(
        estimator,
        X,  # pyright: ignore[reportArgumentType]  its default is a text, which pyright takes for its type
        y,  # pyright: ignore[reportArgumentType]
        dtype=_DTYPES,
        ensure_all_finite=False,
        ensure_min_samples=2,
        y_numeric=numeric,
        multi_output=numeric and has_several_columns(y),
    )
    features = np.asarray(x)
    _refuse_non_finite(estimator, features)
    return features, np.asarray(response)


def check_training_images(
    estimator: AbstractArguments, X: InputLike, y: ResponseLike, *, numeric: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return finite images of shape (images, height, width[, channels]) and a response without gaps.

    Raises
    ------
    ValueError
        If anything cannot be used.
    """
    refuse_bad_response(y, numeric)
    response = response_of(y, numeric)
    images = check_images(X)
    check_consistent_length(images, response)
    if len(images) < 2:
        raise ValueError(f"at least 2 images are needed to fit; got {len(images)}.")
    if hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
    estimator.n_features_in_ = int(np.prod(images.shape[1:]))
    return images, response


def response_of(y: ResponseLike, numeric: bool) -> np.ndarray:
    """Return y as one number or label for each row, or where it may be several numbers, as these."""
    if numeric and has_several_columns(y):
        return np.asarray(y, np.float64)
    return np.asarray(column_or_1d(y, warn=True))


def check_features(estimator: AbstractArguments, X: InputLike) -> np.ndarray:
    """Return features in float64 or float32 with the columns of the training data; no rows and NaN are fine.

    Raises
    ------
    ValueError
        If anything cannot be used.
    """
    _refuse_non_numeric(X)
    checked = validate_data(
        estimator,
        X,  # pyright: ignore[reportArgumentType]
        reset=False,
        dtype=_DTYPES,
        ensure_all_finite=False,
        ensure_min_samples=0,
    )
    return refuse_infinite(estimator, np.asarray(checked))


def _refuse_non_numeric(X: InputLike) -> None:
    """Name the first cell that is a text, a date or a time."""
    for name, column in frame_columns(X):
        if column.dtype.kind in "biufc":
            continue
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


def frame_columns(X: InputLike) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the columns of a frame, or of an array of any type, each with its name."""
    if hasattr(X, "columns"):
        by_place: Any = getattr(X, "iloc", X)  # pandas, polars: each has its own type for this
        for place, name in enumerate(cast(Frame, X).columns):
            yield repr(name), np.asarray(by_place[:, place])
        return
    table = np.asarray(X)
    if table.ndim == 2 and table.dtype.kind in "OUSMm":
        for place in range(table.shape[1]):
            yield str(place), table[:, place]


def refuse_infinite(estimator: AbstractArguments, X: np.ndarray) -> np.ndarray:
    """Return rows without infinite numbers, or name the first.

    Raises
    ------
    ValueError
        If there is one.
    """
    infinite = np.isinf(X)
    if infinite.any():
        _refuse_cells(estimator, X, infinite)
    return X


def _refuse_non_finite(estimator: AbstractArguments, X: np.ndarray) -> None:
    finite = np.isfinite(X)
    if not finite.all():
        _refuse_cells(estimator, X, ~finite)


def _refuse_cells(estimator: AbstractArguments, X: np.ndarray, wrong: np.ndarray) -> None:
    bad = np.argwhere(wrong)
    row, column = bad[0]
    names = getattr(estimator, "feature_names_in_", None)
    name = f"{names[column]!r}" if names is not None else column
    value = _name_value(float(X[row, column]))
    raise ValueError(
        f"Input X contains {value} in row {row}, column {name} ({len(bad)} such cells in all). "
        "Remove these rows or impute them, for example with scikit-learn's SimpleImputer."
    )


def refuse_bad_response(y: ResponseLike, numeric: bool) -> None:
    """Name the first entry of y that is missing, infinite or, where y must be numeric, not a number."""
    y = np.asarray(y)
    if y.dtype.kind == "f":
        bad = np.argwhere(~np.isfinite(y))
        if len(bad):
            value = _name_value(float(y[tuple(bad[0])]))
            raise ValueError(f"Input y contains {value} in row {bad[0][0]} ({len(bad)} such rows). Remove these rows.")
    elif y.dtype.kind in "OUS" and y.ndim == 1:
        for row, value in enumerate(y):
            if is_missing(value):
                raise ValueError(f"Input y contains NaN or a missing value, {value}, in row {row}. Remove such rows.")
            if numeric and not _is_finite_number(value):
                raise ValueError(f"y must be a finite number in every row, but row {row} has {str(value)[:40]!r}.")
    if numeric:
        refuse_rounded(y)
        refuse_extreme(y)


def _is_finite_number(value: object) -> bool:
    try:
        return math.isfinite(float(cast(SupportsFloat, value)))
    except (TypeError, ValueError, OverflowError):
        return False


def _name_value(value: float) -> str:
    return "NaN" if math.isnan(value) else "infinity (inf)" if value > 0 else "-infinity (-inf)"
