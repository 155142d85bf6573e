"""The readers of files whose cells have types of their own: JSON lines and Excel."""

import datetime
import json
import math
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mile.features.parsing import spelled
from mile.storage._cells import Cells
from mile.storage._table import Table, choose
from mile.storage._text_format import open_text
from mile.storage._unpacking import ReadOptions

if TYPE_CHECKING:
    from mile._json import Json

# What openpyxl and its parsers raise for files that are damaged, or no Excel files.
_NO_SHEET = (
    OSError,
    KeyError,
    IndexError,
    TypeError,
    ValueError,
    SyntaxError,
    EOFError,
    zlib.error,
    zipfile.BadZipFile,
)
_MANY_NAMES = 10_000  # columns of a file of JSON lines, where every line may add some


def read_json_lines(path: Path, columns: Sequence[str] | None, options: ReadOptions) -> Table:
    """Read a file with one JSON object on each line; a name that a line does not have is an empty cell there."""
    cells: dict[str, list[str | None]] = {}
    lines: list[int] = []
    try:
        with open_text(path, options.encoding or "utf-8-sig", options) as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    _append(cells, _record(line, number, path), len(lines))
                    lines.append(number)
                if len(cells) > _MANY_NAMES:
                    raise ValueError(f"{path} has more than {_MANY_NAMES:,} names: all lines must have the same ones.")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not text in UTF-8; JSON lines must be.") from None
    for found in cells.values():
        found += [None] * (len(lines) - len(found))
    chosen = choose(list(cells), columns, path)
    read = Cells.of(".", options.missing)
    return Table(tuple(chosen), tuple(read.column(cells[name]) for name in chosen), path.name, np.array(lines, int))


def _record(line: str, number: int, path: Path) -> "dict[str, Json]":
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise ValueError(f'{path}: line {number} must be a JSON object, such as {{"size": 3, "city": "Oslo"}}.')
    for name, value in record.items():
        if isinstance(value, list | dict):
            raise ValueError(f"{path}: {name!r} in line {number} holds a list or an object, not one value.")
    return record


def _append(cells: dict[str, list[str | None]], record: "dict[str, Json]", n_rows: int) -> None:
    """Add a row; cells that earlier rows did not have are empty there."""
    for name, value in record.items():
        found = cells.setdefault(name, [])
        found += [None] * (n_rows - len(found))
        found.append(_text(value))


def read_excel(path: Path, columns: Sequence[str] | None, options: ReadOptions) -> Table:
    """Read the first sheet of an Excel file; its first row has the names."""
    try:
        import openpyxl  # pyright: ignore[reportMissingModuleSource, reportMissingImports]
    except ImportError:
        raise ValueError(
            f"Reading {path} needs openpyxl: pip install 'mile-bnn[excel]', or save the sheet as CSV."
        ) from None
    try:
        with zipfile.ZipFile(path) as archive:
            n_bytes = sum(member.file_size for member in archive.infolist())
        rows = []
        if n_bytes <= options.limit(path):
            with path.open("rb") as file:
                book = openpyxl.load_workbook(file, read_only=True, data_only=True)
                rows = [list(row) for row in book.worksheets[0].iter_rows(values_only=True)]
    except _NO_SHEET as error:
        raise ValueError(f"{path} is not a whole Excel file.") from error
    options.refuse_large(path, n_bytes)
    return _from_sheet(rows, columns, path, options)


def _from_sheet(
    rows: Sequence[Sequence[object]], columns: Sequence[str] | None, path: Path, options: ReadOptions
) -> Table:
    filled = [(number, row) for number, row in enumerate(rows, 1) if any(cell is not None for cell in row)]
    if not filled:
        raise ValueError(f"{path} is empty.")
    width = max(place + 1 for _, row in filled for place, cell in enumerate(row) if cell is not None)
    names = [(_text(cell) or "").strip() for cell in _padded(filled[0][1], width)]
    chosen = choose(names, columns, path)
    read = Cells.of(".", options.missing)
    by_name = dict(zip(names, zip(*(_padded(row, width) for _, row in filled[1:]), strict=True), strict=False))
    arrays = tuple(read.column([_text(cell) for cell in by_name.get(name, ())]) for name in chosen)
    return Table(tuple(chosen), arrays, path.name, np.array([number for number, _ in filled[1:]], int))


def _padded(row: Sequence[object], width: int) -> Iterator[object]:
    return iter([*row, *[None] * width][:width])


def _text(value: object) -> str | None:
    """Return a cell as a text file would have it."""
    if isinstance(value, float):
        return spelled(value) if math.isfinite(value) else str(value)
    if isinstance(value, datetime.datetime):
        return value.isoformat().removesuffix("T00:00:00")
    return None if value is None else str(value)
