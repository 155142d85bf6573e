"""Class labels as arrays that a file can hold."""

import json
from collections.abc import Mapping

import numpy as np

from mile._errors import UntrustedFileError
from mile._schema import Several, Tensor, Text, refused, require

NAMES = _NUMBERS, _TEXT = "labels", "labels_text"  # of the arrays
_LONGEST_TEXT = 1 << 20  # bytes of JSON, which takes up to thirty times as many when it is read
_LARGEST_TABLE = 1 << 26  # bytes of the array of words
_WIDE = {"b": (np.bool_,), "i": (np.int64,), "u": (np.uint32, np.int64), "f": (np.float64,)}


def write_labels(labels: np.ndarray) -> dict[str, np.ndarray]:
    """Return labels as numbers, or their text in UTF-8.

    Raises
    ------
    TypeError
        If a label is neither a number nor a string.
    ValueError
        If they are longer than a file can keep.
    """
    for kind in _WIDE.get(labels.dtype.kind, ()):
        wide = labels.astype(kind)
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
    # Numbers beyond those that a file can hold are texts.
    if column.dtype.kind in "OU" or (column.dtype.kind == "u" and column.max() > np.iinfo(np.int64).max):
        return column.astype(str)
    if column.dtype.kind in "iu":
        return column.astype(np.int64)
    return column.astype(np.int64) if np.all(column == np.round(column)) else column.astype(str)


def read_labels(arrays: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """Undo `write_labels`; None if there are no labels.

    Raises
    ------
    UntrustedFileError
        If they are not a list of different labels.
    """
    require(not {_TEXT, _NUMBERS} <= set(arrays), "the labels must be numbers or words, not both.")
    if _TEXT in arrays:
        labels = _read_text(arrays[_TEXT])
    elif _NUMBERS in arrays:
        labels = arrays[_NUMBERS]
        Tensor(labels.dtype.kind, (None,), is_finite=True).read(labels, place=(_NUMBERS,))
    else:
        return None
    require(len(np.unique(labels)) == len(labels), "the labels must all be different.")
    return labels


def _read_text(text: np.ndarray) -> np.ndarray:
    data = Tensor("uint8", (None,), largest=_LONGEST_TEXT).read(text, place=(_TEXT,)).tobytes()
    with refused("the labels are not readable"):
        words = Several(Text()).read(json.loads(data), place=(_TEXT,))
    labels = _words(list(words))
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
