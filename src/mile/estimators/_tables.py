"""Tables as users have them: what is more than an array of numbers becomes a `Frame`, checked for a `TableEncoder`."""

from collections.abc import Mapping

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_consistent_length

from mile.estimators._arguments import AbstractArguments
from mile.estimators._inputs import frame_columns, refuse_bad_response, response_of
from mile.features.accepted import InputLike, ResponseLike
from mile.features.frame import Frame, listed


def table_of(X: InputLike, *, always: bool = False) -> Frame | None:
    """Return X as a table; None if an array of finite numbers, or a frame of them, is as good.

    Parameters
    ----------
    X
        Whatever the user passes.
    always
        Whether a table of finite numbers is wanted as a table, too.
    """
    if not _has_columns(X):
        array = np.asarray(X)
        is_records = array.ndim == 1 and array.size > 0 and isinstance(array[0], Mapping | np.void)
        if (array.ndim != 2 and not is_records) or not array.size or array.dtype.kind == "c":
            return None  # nothing that is a table: scikit-learn says what is wrong
        if array.dtype.kind in "biuf" and not (always or np.ma.is_masked(X) or np.isnan(array.min())):
            return None
        frame = Frame.of(array if array.dtype.kind in "biufV" and not np.ma.is_masked(X) else X)
        return frame if always or is_records or not frame.is_plain else None
    if not _is_frame(X):
        return Frame.of(X)
    kinds = {column.dtype.kind for _, column in frame_columns(X)}
    if "c" in kinds or not kinds or not len(np.asarray(X)):
        return None
    frame = Frame.of(X)
    return frame if always or not frame.is_plain or "m" in kinds else None


def check_training_table(
    estimator: AbstractArguments, table: Frame, y: ResponseLike, *, numeric: bool
) -> tuple[Frame, np.ndarray]:
    """Return a table without infinite numbers and a response without gaps; `numeric` asks for numbers in y.

    Raises
    ------
    ValueError
        If anything cannot be used.
    """
    _refuse_infinite(table)
    refuse_bad_response(y, numeric)
    response = response_of(y, numeric)
    check_consistent_length(table, response)
    if len(table) < 2:
        raise ValueError(f"Found a table with {len(table)} sample(s) while a minimum of 2 is required.")
    if hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
    if table.is_named:
        estimator.feature_names_in_ = np.array(table.names, object)
    estimator.n_features_in_ = len(table.names)
    return table, response.astype(np.float64) if numeric and response.dtype.kind == "O" else response


def check_table(estimator: AbstractArguments, X: InputLike) -> Frame:
    """Return rows to predict as a table; columns without a name must be as many as at fit.

    Raises
    ------
    ValueError
        If they are not, or a number is infinite.
    """
    table = Frame.of(X)
    if not (table.is_named and hasattr(estimator, "feature_names_in_")):
        _check_width(estimator, len(table.names))
    _refuse_infinite(table)
    return table


def plain_rows(estimator: AbstractArguments, X: InputLike) -> np.ndarray | None:
    """Return the numbers of a table that scikit-learn does not read, for a model of numbers; None for other X.

    Raises
    ------
    ValueError
        If a column is missing, or holds anything but numbers.
    """
    if not _has_columns(X) or _is_frame(X):
        return None
    table = Frame.of(X)
    names = getattr(estimator, "feature_names_in_", None)
    if table.is_named and names is not None:
        absent = [str(name) for name in names if str(name) not in table]
        if absent:
            raise ValueError(f"the table has no column {listed(absent)}; it has {listed(table.names)}.")
        columns = [table[str(name)] for name in names]
    else:
        _check_width(estimator, len(table.names))
        columns = list(table.columns)
    return np.stack([column.numbers().values for column in columns], axis=1)


def _has_columns(X: InputLike) -> bool:
    return isinstance(X, Mapping) or sparse.issparse(X) or hasattr(X, "columns")


def _is_frame(X: InputLike) -> bool:
    """Say whether X is a frame that scikit-learn reads by itself, of pandas or polars."""
    return hasattr(X, "columns") and type(X).__module__.split(".")[0] in ("pandas", "polars")


def _check_width(estimator: AbstractArguments, n_columns: int) -> None:
    wanted = estimator.n_features_in_
    if n_columns != wanted:
        name = type(estimator).__name__
        raise ValueError(f"X has {n_columns} features, but {name} is expecting {wanted} features as input.")


def _refuse_infinite(table: Frame) -> None:
    found = [(rows[0], name, len(rows)) for name, rows in table.infinite().items()]
    if found:
        row, name, _ = min(found)
        shown = repr(name) if table.is_named else name.removeprefix("x")
        raise ValueError(
            f"Input X contains infinity (inf or -inf) in row {row}, column {shown} "
            f"({sum(count for _, _, count in found)} such cells in all). Remove these rows, or leave the cells empty."
        )
