"""Several files as one table: a pattern such as data/*.csv, or a folder of Parquet files."""

import glob
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mile.storage._cells import Cells, spelled_cells
from mile.storage._table import Table

_SIGNS = frozenset("*?[")
_PARQUET = "*.parquet"


def files_of(path: Path) -> list[Path]:
    """Return the files that a path stands for, sorted: itself, those of a folder, or those that match a pattern.

    Raises
    ------
    FileNotFoundError
        If there is none.
    ValueError
        If it is a folder without Parquet files.
    """
    if path.is_dir():
        found = sorted(file for file in path.glob(_PARQUET) if file.is_file())
        if not found:
            raise ValueError(
                f"{path} is a folder without Parquet files, not a table: name a file in it, or several with a pattern "
                f"in quotation marks such as '{path}/*.csv'."
            )
        return found
    if path.is_file() or _SIGNS.isdisjoint(str(path)):
        if not path.is_file():
            raise FileNotFoundError(f"There is no file {path}.")
        return [path]
    found = sorted(Path(name) for name in glob.glob(str(path), recursive=True) if Path(name).is_file())
    if not found:
        raise FileNotFoundError(f"There is no file that matches {path}.")
    return found


def combined(tables: Sequence[Table], source: str) -> Table:
    """Return the rows of all tables, one after the other, with the columns in the order of the first.

    Raises
    ------
    ValueError
        If a table has other columns than the first; the message names both.
    """
    first = tables[0]
    if len(tables) == 1:
        return first
    for table in tables[1:]:
        _refuse_other_columns(first, table)
    lines = [table.lines for table in tables if table.lines is not None]
    return Table(
        first.columns,
        tuple(_stacked([table.column(name) for table in tables]) for name in first.columns),
        source,
        np.concatenate(lines) if len(lines) == len(tables) else None,
        rows=np.concatenate([np.arange(len(table)) for table in tables]),
        files=tuple(table.source for table in tables),
        file_of=np.repeat(np.arange(len(tables)), [len(table) for table in tables]),
        remark=" ".join(dict.fromkeys(table.remark for table in tables if table.remark)),
    )


def _refuse_other_columns(first: Table, other: Table) -> None:
    for one, two in ((first, other), (other, first)):
        absent = next((name for name in one.columns if name not in two.columns), None)
        if absent is not None:
            raise ValueError(
                f"{two.source} has no column {absent!r}, which {one.source} has: files that are read together must "
                "have the same columns."
            )


def _stacked(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Return parts of a column as one; where the parts are of different kinds, all of them are read as text again."""
    if len({array.dtype for array in arrays}) == 1:
        return np.concatenate(arrays)
    return Cells().column([cell for array in arrays for cell in spelled_cells(array)])
