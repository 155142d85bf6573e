"""Tables as users keep them: files of many formats become named columns."""

import contextlib
import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from mile.features.parsing import MISSING
from mile.storage._cells import Cells
from mile.storage._several_files import combined, files_of
from mile.storage._table import Table
from mile.storage._table_arrow import read_feather, read_parquet
from mile.storage._table_npz import read_npz
from mile.storage._table_records import read_excel, read_json_lines
from mile.storage._table_text import read_text
from mile.storage._unpacking import DEFAULT, PACKED, ReadOptions, without_packing

_Reader = Callable[[Path, Sequence[str] | None, ReadOptions], Table]


def read_table(path: Path, columns: Sequence[str] | None = None, options: ReadOptions = DEFAULT) -> Table:
    """Read a file by its suffix, or several of one kind.

    Parameters
    ----------
    path
        A text file (.csv, .tsv, .txt) with a header, JSON lines (.jsonl, .ndjson), each perhaps packed (.gz, .zst); a
        Parquet or Feather file, which needs pyarrow; the first sheet of an Excel file, which needs openpyxl; an NPZ
        file of one-dimensional arrays of one length, and perhaps a matrix `X` with `feature_names`. A pattern such as
        data/*.csv or a folder of Parquet files stands for several files with the same columns.
    columns
        The columns to return, in this order; all of them by default.
    options
        What is known of the files.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is not such a table, or the columns of several files differ; the message says where.
    """
    with _explained(path):
        files = files_of(path)
    tables = [_read_file(file, columns, options) for file in files]
    if len({file.name for file in files}) < len(files):
        tables = [replace(table, source=str(file)) for table, file in zip(tables, files, strict=True)]
    return combined(tables, str(path))


def _read_file(path: Path, columns: Sequence[str] | None, options: ReadOptions) -> Table:
    with _explained(path):
        table = _reader(path)(path, columns, options)
    if not len(table):
        raise ValueError(f"{path} has column names but no rows.")
    return _with_missing(table, Cells.of(".", options.missing)) if options.missing else table


def _reader(path: Path) -> _Reader:
    name = without_packing(path)
    readers = _TEXTS if name != path.name.lower() else _TEXTS | _OTHERS
    for suffix, reader in readers.items():
        if name.endswith(suffix):
            return reader
    raise ValueError(
        f"{path} cannot be read: the name of a table must end in {', '.join(_OTHERS)}, {', '.join(_TEXTS)}, or in one "
        f"of the last {len(_TEXTS)} and {' or '.join(PACKED)}, such as .csv.gz."
    )


def _with_missing(table: Table, cells: Cells) -> Table:
    """Empty the cells that hold one of the user's words; a text file has none left."""
    return replace(table, arrays=tuple(_emptied(array, cells) for array in table.arrays))


def _emptied(array: np.ndarray, cells: Cells) -> np.ndarray:
    if array.dtype != object:
        return cells.without_missing(array)
    words = cells.missing - MISSING
    if not any(cell is not None and cell.strip() in words for cell in array):
        return array
    return cells.column([None if cell is None or cell.strip() in words else cell for cell in array])


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Say in one sentence why a file cannot be read."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is damaged: it is not a whole gzip file.") from error
    except OSError as error:
        if error.errno is None:  # our own
            raise
        raise type(error)(f"Could not read {path}: {error.strerror}.") from error


_TEXTS: dict[str, _Reader] = {
    **dict.fromkeys([".csv", ".tsv", ".txt"], read_text),
    **dict.fromkeys([".jsonl", ".ndjson"], read_json_lines),
}
_OTHERS: dict[str, _Reader] = {
    ".parquet": read_parquet,
    **dict.fromkeys([".feather", ".arrow"], read_feather),
    ".xlsx": read_excel,
    ".npz": read_npz,
}
