"""Predictions as files that other programs read."""

import io
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from mile.features.parsing import are_numbers
from mile.storage._durable import sync_folders, write_file
from mile.storage._table_arrow import import_arrow

_QUOTED = frozenset(',;\t|"\r\n')  # any delimiter that a reader may look for
_FORMULA = frozenset("=+-@\t\r")  # with which a spreadsheet begins a formula


def write_table(path: Path, columns: Mapping[str, np.ndarray], *, keep_formulas: bool = False) -> None:
    """Write a file by its suffix, .csv, .csv.gz or .parquet; it appears whole or not at all.

    Raises
    ------
    ValueError
        If the suffix is another one, or the columns differ in length.
    StorageError
        If the system refuses.
    """
    for suffix, parts in _WRITERS.items():
        if path.name.lower().endswith(suffix):
            write_file(path, parts(path, columns, keep_formulas))
            break
    else:
        raise ValueError(f"{path} cannot be written: the name of a table must end in {', '.join(_WRITERS)}.")
    sync_folders([path], path.parent)


def csv_lines(columns: Mapping[str, np.ndarray], *, keep_formulas: bool = False) -> Iterator[str]:
    """Yield the header and the rows as CSV, without line ends; floats keep all their digits, missing cells are empty.

    A spreadsheet takes a text that begins with = + - @, a tab or a return for a formula, which may read files and send
    what it finds. Such a text gets an apostrophe before it, unless `keep_formulas` is set or it is a plain number.

    Raises
    ------
    ValueError
        If the columns differ in length.
    """
    arrays = _aligned(columns)
    safe = str if keep_formulas else _neutral
    yield ",".join(_quoted(safe(name)) for name in arrays)
    for row in zip(*(_cells(array, safe) for array in arrays.values()), strict=True):
        yield ",".join(row) or '""'  # a blank line would be no row


def _aligned(columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    arrays = {name: np.asarray(values) for name, values in columns.items()}
    shapes = {name: array.shape for name, array in arrays.items()}
    if len(set(shapes.values())) != 1 or any(len(shape) != 1 for shape in shapes.values()):
        raise ValueError(f"The columns of a table must be one-dimensional and of one length; they have {shapes}.")
    return arrays


def _cells(array: np.ndarray, safe: Callable[[str], str]) -> list[str]:
    """Return the cells of a column as they stand in a CSV file."""
    if array.dtype.kind == "f":
        return ["" if value != value else repr(value) for value in array.astype(np.float64).tolist()]
    if array.dtype.kind in "biu":
        return [str(int(value)) for value in array.tolist()]
    return ["" if text is None else _quoted(safe(text)) for text in _texts(array)]


def _neutral(text: str) -> str:
    return f"'{text}" if text[:1] in _FORMULA and text and not are_numbers([text]) else text


def _texts(array: np.ndarray) -> list[str | None]:
    return [None if value is None or value != value else str(value) for value in array.tolist()]


def _quoted(text: str) -> str:
    return text if _QUOTED.isdisjoint(text) else '"' + text.replace('"', '""') + '"'


def _csv_parts(path: Path, columns: Mapping[str, np.ndarray], keep_formulas: bool) -> Iterator[bytes]:
    return (f"{line}\n".encode() for line in csv_lines(columns, keep_formulas=keep_formulas))


def _gzip_parts(path: Path, columns: Mapping[str, np.ndarray], keep_formulas: bool) -> Iterator[bytes]:
    packer = zlib.compressobj(wbits=31)  # with the header and trailer of gzip, and no time in them
    for part in _csv_parts(path, columns, keep_formulas):
        yield packer.compress(part)
    yield packer.flush()


def _parquet_parts(path: Path, columns: Mapping[str, np.ndarray], keep_formulas: bool) -> Iterator[bytes]:
    pyarrow = import_arrow(path, "Writing")
    arrays = {
        name: pyarrow.array(array) if array.dtype.kind in "biuf" else pyarrow.array(_texts(array), pyarrow.string())
        for name, array in _aligned(columns).items()
    }
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(arrays), sink)
    yield sink.getvalue()


_WRITERS = {".csv": _csv_parts, ".csv.gz": _gzip_parts, ".parquet": _parquet_parts}
