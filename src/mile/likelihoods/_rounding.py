"""Whole numbers that differ by less than float64 can tell."""

import numpy as np

_LARGEST_EXACT = 2**53  # whole numbers up to here are exact in float64
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


def _holds_integers(y: np.ndarray) -> bool:
    return y.dtype.kind in "iu" or (y.dtype.kind == "O" and all(type(value) is int for value in y.flat))
