"""Numbers that float64 cannot tell apart, or whose squares it cannot hold."""

import numpy as np

_LARGEST_EXACT = 2**53  # whole numbers up to here are exact in float64
_LARGEST = 1e150
_LARGEST_LOSS = 0.01  # error of rounding, in standard deviations


def refuse_rounded(y: np.ndarray) -> None:
    """Refuse whole numbers whose differences float64 would lose, such as 2^63 + 1 and 2^63 + 2.

    Raises
    ------
    ValueError
        If there are any; the message names the row and the value.
    """
    if not y.size or not _holds_integers(y) or np.abs(y.astype(np.float64)).max() <= _LARGEST_EXACT:
        return
    values: list[int] = y.ravel().tolist()
    lowest = min(values)
    exact = np.array([float(value - lowest) for value in values])
    error = np.abs(y.ravel().astype(np.float64) - float(lowest) - exact)
    row = int(np.argmax(error))
    if error[row] > _LARGEST_LOSS * exact.std():
        raise ValueError(
            f"y has {values[row]} in row {row}, a whole number that is rounded when it is read as float64, by too much "
            f"for numbers that lie so close together. Subtract a constant first, such as {lowest}."
        )


def refuse_extreme(y: np.ndarray) -> None:
    """Refuse numbers whose squares overflow, and wider floats that float64 would merge.

    Raises
    ------
    ValueError
        If there are any; the message names the row and the value.
    """
    if y.dtype.kind != "f" or not y.size:
        return
    wide = np.abs(y).astype(np.promote_types(y.dtype, np.float64))  # the limit overflows in float32
    large = np.flatnonzero(wide.ravel() > _LARGEST)
    if large.size:
        value = y.ravel()[large[0]]
        raise ValueError(
            f"y has {value:g} in row {large[0]}, beyond {_LARGEST:g}: variances of such numbers cannot be held. "
            "Divide y by a constant."
        )
    if y.dtype.itemsize <= np.dtype(np.float64).itemsize:
        return
    merged = y.astype(np.float64).ravel()
    if len(np.unique(merged)) < len(np.unique(y)):
        order = np.argsort(y, axis=None, kind="stable")
        same = np.flatnonzero((np.diff(merged[order]) == 0) & (np.diff(y.ravel()[order]) != 0))
        row = int(order[same[0] + 1])
        raise ValueError(
            f"y has {y.ravel()[row]!r} in row {row}, which becomes the same number as that of another row when it is "
            "read as float64. Subtract a constant from y first."
        )


def _holds_integers(y: np.ndarray) -> bool:
    return y.dtype.kind in "iu" or (y.dtype.kind == "O" and all(type(value) is int for value in y.flat))
