"""Class labels as arrays that a file can hold."""

import json
from collections.abc import Mapping

import numpy as np

from mile._errors import UntrustedFileError

NAMES = _NUMBERS, _TEXT = "labels", "labels_text"  # of the arrays
_LONGEST_TEXT = 1 << 20  # bytes of JSON, which takes up to thirty times as many when it is read
_LARGEST_TABLE = 1 << 26  # bytes of the array of words
_WIDE = {"b": np.bool_, "i": np.int64, "u": np.uint32, "f": np.float64}


def write_labels(labels: np.ndarray) -> dict[str, np.ndarray]:
    """Return labels as numbers, or their text in UTF-8.

    Raises
    ------
    TypeError
        If a label is neither a number nor a string.
    ValueError
        If they are longer than a file can keep.
    """
    if labels.dtype.kind in _WIDE:
        wide = labels.astype(_WIDE[labels.dtype.kind])
        if (wide == labels).all():
            return {_NUMBERS: wide}
    words = labels.tolist()
    if not _are_words(words):
        raise TypeError(f"labels must be numbers or strings to be kept in a file; got {labels.dtype}.")
    text = np.frombuffer(json.dumps(words).encode(), np.uint8)
    if len(text) > _LONGEST_TEXT or _words(words) is None:
        raise ValueError(f"the labels are too long for a file, or end in a NUL: {len(text):,} bytes of text.")
    return {_TEXT: text}


def labels_of(column: np.ndarray, name: str) -> np.ndarray:
    """Return a column of a table as labels: texts, or whole numbers as such.

    Raises
    ------
    ValueError
        If a cell is empty; the message begins with `name`.
    """
    missing = np.array([value is None or value != value for value in column.tolist()], bool)
    if missing.any():
        row, n_rows = int(np.argmax(missing)) + 1, int(missing.sum())
        raise ValueError(f"{name} is empty in row {row} ({n_rows} such rows).")
    if column.dtype.kind in "OU":
        return column.astype(str)
    return column.astype(np.int64) if np.all(column == np.round(column)) else column.astype(str)


def read_labels(arrays: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """Undo `write_labels`; None if there are no labels.

    Raises
    ------
    UntrustedFileError
        If they are not a list of different labels.
    """
    if _TEXT in arrays and _NUMBERS in arrays:
        raise UntrustedFileError("the labels must be numbers or words, not both.")
    if _TEXT in arrays:
        labels = _read_text(arrays[_TEXT])
    elif _NUMBERS in arrays:
        labels = arrays[_NUMBERS]
    else:
        return None
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise UntrustedFileError("the labels must be finite.")
    if labels.ndim != 1 or len(np.unique(labels)) != len(labels):
        raise UntrustedFileError("the labels must all be different.")
    return labels


def _read_text(text: np.ndarray) -> np.ndarray:
    if text.dtype != np.uint8 or text.ndim != 1 or len(text) > _LONGEST_TEXT:
        raise UntrustedFileError(f"the labels must be at most {_LONGEST_TEXT:,} bytes of text.")
    try:
        words = json.loads(text.tobytes())
    except (ValueError, RecursionError) as error:
        raise UntrustedFileError("the labels are not readable.") from error
    if not _are_words(words):
        raise UntrustedFileError("the labels must be a list of words.")
    labels = _words(words)
    if labels is None:
        raise UntrustedFileError("the labels are longer than labels can be, or end in a NUL.")
    return labels


def _are_words(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _words(words: list[str]) -> np.ndarray | None:
    """Return words as an array, unless it would be too large or change them."""
    # numpy gives every word the room of the longest, and takes NULs at the end for padding.
    if 4 * len(words) * max(map(len, words), default=0) > _LARGEST_TABLE:
        return None
    table = np.array(words, str)
    return table if table.tolist() == words else None
