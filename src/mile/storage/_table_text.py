"""The reader of text files, CSV and its kin: columns of numbers or text, and the line at which each row begins."""

import csv
import gzip
import io
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO, cast

import numpy as np

from mile.storage._table import LARGEST_EXACT, MISSING, Table, as_floats, as_integers, choose, is_number

_HEAD = 1 << 16  # characters looked at to tell text from other files and to find the delimiter
_BLOCK = 10_000  # rows held as text at a time


def read_text(path: Path, columns: Sequence[str] | None) -> Table:
    with _opened(path) as file:
        delimiter = _find_delimiter(file, path)
        first = next(_records(file, delimiter, path), None)
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
        plain = _read_plain(file, delimiter, len(names), indices, end + 1)
        arrays, lines = plain or _read_cells(file, delimiter, indices, path)
    return Table(tuple(chosen), tuple(arrays), path.name, lines)


def _opened(path: Path) -> TextIO:
    if path.name.lower().endswith(".gz"):
        return cast("TextIO", gzip.open(path, "rt", encoding="utf-8-sig", newline=""))
    return path.open("rt", encoding="utf-8-sig", newline="")


def _find_delimiter(file: TextIO, path: Path) -> str:
    """Return the delimiter that splits the header into most names."""
    head = file.read(_HEAD)
    if "\0" in head:
        raise ValueError(f"{path} is not a text file.")
    header = next((line for line in io.StringIO(head, newline="") if line.strip()), "")
    candidates = ",;\t" if ".csv" in path.name.lower() else "\t,;"
    return max(candidates, key=lambda delimiter: len(next(csv.reader([header], delimiter=delimiter))))


def _records(file: TextIO, delimiter: str, path: Path) -> Iterator[tuple[int, int, list[str]]]:
    """Yield first line, last line and cells of the header and of each row, blank lines left out."""
    file.seek(0)
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
    file: TextIO, delimiter: str, width: int, indices: list[int], start: int
) -> tuple[list[np.ndarray], np.ndarray] | None:
    """Read the rest of a file in which these columns hold numbers only, quickly; None if it is not so simple."""
    blank: list[int] = []
    edge = re.escape(delimiter)
    code = re.compile(rf"(?:^|{edge}) *0[0-9]+ *(?:$|[\r\n{edge}])")

    def plain() -> Iterator[str]:
        for number, line in enumerate(file, start):
            if not line.strip("\r\n"):
                blank.append(number)
            elif line.count(delimiter) == width - 1 and '"' not in line and not code.search(line):
                yield line
            else:
                raise ValueError

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
    return list(values.T.copy()), np.setdiff1d(lines, blank) if blank else lines


def _read_cells(file: TextIO, delimiter: str, indices: list[int], path: Path) -> tuple[list[np.ndarray], np.ndarray]:
    """Read a file of any columns: once for numbers, and once more for the columns that turn out to be text."""

    def blocks() -> Iterator[list[tuple[int, int, list[str]]]]:
        records = itertools.islice(_records(file, delimiter, path), 1, None)
        while block := list(itertools.islice(records, _BLOCK)):
            yield block

    lines: list[int] = []
    numbers: dict[int, list[np.ndarray]] = {index: [np.empty(0)] for index in indices}
    for block in blocks():
        lines += [line for line, _, _ in block]
        for index in list(numbers):
            floats = as_floats([cells[index] for _, _, cells in block])
            if floats is None:
                del numbers[index]
            else:
                numbers[index].append(floats)
    texts: dict[int, list[str | None]] = {index: [] for index in indices if index not in numbers}
    for block in blocks() if texts else ():
        for index, found in texts.items():
            cells = (record[2][index] for record in block)
            found += [None if cell.strip() in MISSING else cell for cell in cells]
    arrays = [np.concatenate(numbers[index]) if index in numbers else _exact(texts[index]) for index in indices]
    return arrays, np.array(lines, int)


def _exact(cells: list[str | None]) -> np.ndarray:
    """Return cells that are no floats as integers, or else as text."""
    integers = as_integers(cells)
    return np.array(cells, object) if integers is None else integers
