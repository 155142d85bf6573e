"""The reader of CSV and similar text files: columns of numbers or text, and the line at which each row begins."""

import csv
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np

from mile.storage._cells import LARGEST_EXACT, Cells, is_number
from mile.storage._table import Table, choose
from mile.storage._text_format import TextFormat, encodings, find_format, open_text
from mile.storage._unpacking import ReadOptions

_BLOCK = 10_000  # rows held as text at a time


class _TextTable(NamedTuple):
    """A text file and how it is read; each pass reopens it, because a packed file cannot be rewound."""

    path: Path
    format: TextFormat
    options: ReadOptions

    @property
    def cells(self) -> Cells:
        """How its cells are read."""
        return Cells.of(self.format.decimal, self.options.missing)

    def open(self) -> TextIO:
        """Open it at its beginning."""
        return open_text(self.path, self.format.encoding, self.options)


def read_text(path: Path, columns: Sequence[str] | None, options: ReadOptions) -> Table:
    """Read a text table in the first encoding that works."""
    for encoding in encodings(path, options):
        try:
            return _read(_TextTable(path, find_format(path, encoding, options), options), columns)
        except UnicodeDecodeError:
            continue
    raise ValueError(f"{path} is not text in {options.encoding or 'UTF-16'}; save the table as CSV in UTF-8.")


def _read(table: _TextTable, columns: Sequence[str] | None) -> Table:
    path, format = table.path, table.format
    with table.open() as file:
        first = next(_records(file, format.delimiter, path), None)
        if first is None:
            raise ValueError(f"{path} is empty.")
        _, end, header = first
        names = [name.strip() for name in header]
        if all(map(is_number, names)):
            raise ValueError(
                f"{path} has no header row: the first line holds only numbers; add a line with column names."
            )
        chosen = choose(names, columns, path)
        places = {name: index for index, name in enumerate(names)}
        indices = [places[name] for name in chosen]
        plain = _read_plain(file, table, len(names), indices, end + 1)
    arrays, lines = plain or _read_cells(table, indices)
    return Table(tuple(chosen), tuple(arrays), path.name, lines, remark=format.remark(path, table.options))


def _records(file: TextIO, delimiter: str, path: Path) -> Iterator[tuple[int, int, list[str]]]:
    """Yield first line, last line and cells of the header and of each row, blank lines left out."""
    reader = csv.reader(file, delimiter=delimiter, strict=True)
    width = 0
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise ValueError(
                f"{path} cannot be read from line {line} on: {error}. Check the quotation marks there."
            ) from error
        if cells is None:
            return
        if not cells or (len(cells) == 1 != width and not cells[0].strip()):
            continue
        width = width or len(cells)
        if len(cells) != width:
            raise ValueError(
                f"{path}: line {line} has {len(cells)} cells where the header has {width}. Fill in or remove cells, "
                f"and put quotation marks around those that contain {delimiter!r}."
            )
        yield line, reader.line_num, cells


def _read_plain(
    file: TextIO, table: _TextTable, width: int, indices: list[int], start: int
) -> tuple[list[np.ndarray], np.ndarray] | None:
    """Read quickly the rest of a file whose columns hold numbers only; None if there is anything else."""
    blank: list[int] = []
    delimiter, cells = table.format.delimiter, table.cells
    edge = re.escape(delimiter)
    # Digits after a leading zero, which are no number; a pattern that begins with a plain character is found quickly.
    code = rf" *0[0-9]+ *(?:$|[\r\n{edge}])"
    first_code, later_code = re.compile(code), re.compile(edge + code)

    def plain() -> Iterator[str]:
        for number, line in enumerate(file, start):
            if not line.strip("\r\n"):
                blank.append(number)
            elif line.count(delimiter) != width - 1 or '"' in line or first_code.match(line) or later_code.search(line):
                raise ValueError
            else:
                yield cells.pointed(line)

    try:
        rows = plain()
        first = next(rows)
        values = np.loadtxt(
            itertools.chain([first], rows), delimiter=delimiter, comments=None, usecols=indices, ndmin=2
        )
    except (ValueError, StopIteration):
        return None
    if (np.abs(values) >= LARGEST_EXACT).any():
        return None
    lines = np.arange(start, start + len(values) + len(blank))
    return [cells.without_missing(column) for column in values.T.copy()], np.setdiff1d(lines, blank) if blank else lines


def _read_cells(table: _TextTable, indices: list[int]) -> tuple[list[np.ndarray], np.ndarray]:
    """Read a file of any columns: once for numbers, and once more for the columns that turn out to be text."""

    def blocks() -> Iterator[list[tuple[int, int, list[str]]]]:
        with table.open() as file:
            records = itertools.islice(_records(file, table.format.delimiter, table.path), 1, None)
            while block := list(itertools.islice(records, _BLOCK)):
                yield block

    cells = table.cells
    lines: list[int] = []
    numbers: dict[int, list[np.ndarray]] = {index: [np.empty(0)] for index in indices}
    for block in blocks():
        lines += [line for line, _, _ in block]
        for index in list(numbers):
            floats = cells.floats([record[index] for _, _, record in block])
            if floats is None:
                del numbers[index]
            else:
                numbers[index].append(floats)
    texts: dict[int, list[str | None]] = {index: [] for index in indices if index not in numbers}
    for block in blocks() if texts else ():
        for index, found in texts.items():
            found += [record[2][index] for record in block]
    arrays = [np.concatenate(numbers[index]) if index in numbers else cells.texts(texts[index]) for index in indices]
    return arrays, np.array(lines, int)
