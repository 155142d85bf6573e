"""A table in memory: named columns, what the text of a cell stands for, and complaints that name the place."""

import difflib
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from mile.features.parsing import is_code
from mile.storage._cells import is_number, is_rounded

_MOSTLY = 0.8  # a text column with this share of numbers is taken for a numeric one with mistakes
_MOST_NAMES = 10  # columns listed in a message
_LONGEST_CELL = 40  # characters of a cell quoted in a message


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of one length: float64 with NaN for a missing number, or text (dtype object) with None for a missing one.

    Whole numbers that float64 would round stay integers of 64 bits where no cell is missing, and text elsewhere.
    Messages number the rows of data from 1 and, for text files, add the line of the file at which the row begins.
    """

    columns: tuple[str, ...]
    arrays: tuple[np.ndarray, ...]
    source: str  # name of the file, for messages
    lines: np.ndarray | None = None  # of a text file: the line at which each row begins
    rows: np.ndarray | None = None  # the place of each row in its file; None: as they are
    files: tuple[str, ...] = ()  # names of several files
    file_of: np.ndarray | None = None  # of several files: which one each row is from
    remark: str = ""  # what was assumed of a file that is not in the usual form

    def __len__(self) -> int:
        return len(self.arrays[0]) if self.arrays else 0

    def column(self, name: str) -> np.ndarray:
        """Return one column.

        Raises
        ------
        ValueError
            If there is none of that name; the message lists those there are.
        """
        place = self._places.get(name)
        if place is None:
            raise _unknown(name, self.columns, self.source)
        return self.arrays[place]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.columns)}

    def take(self, rows: np.ndarray) -> "Table":
        """Return some of the rows; messages still name the lines of the file."""
        return replace(
            self,
            arrays=tuple(array[rows] for array in self.arrays),
            lines=None if self.lines is None else self.lines[rows],
            rows=rows if self.rows is None else self.rows[rows],
            file_of=None if self.file_of is None else self.file_of[rows],
        )

    def is_plain(self, names: Sequence[str]) -> bool:
        """Say whether all cells of some columns are finite numbers."""
        columns = [self.column(name) for name in names]
        return all(column.dtype != object and np.isfinite(column).all() for column in columns)

    def matrix(self, names: Sequence[str], *, with_gaps: bool = False) -> np.ndarray:
        """Return columns side by side, in float64; `with_gaps` lets cells be missing.

        Raises
        ------
        ValueError
            If a column is unknown, holds text, or has a cell that is missing or infinite.
        """
        values = np.empty((len(self), len(names)))
        for index, name in enumerate(names):
            column = self.column(name)
            if column.dtype == object:
                self._refuse_text(name, column)
            values[:, index] = column  # a missing text becomes NaN
            finite = ~np.isinf(values[:, index]) if with_gaps else np.isfinite(values[:, index])
            if not finite.all():
                self._refuse_gap(name, values[:, index], int(np.argmin(finite)))
        return values

    def _refuse_text(self, name: str, cells: np.ndarray) -> None:
        filled = [row for row, cell in enumerate(cells) if cell is not None]
        if not filled:
            return
        wrong = [row for row in filled if not is_number(cells[row])]
        row = wrong[0] if wrong else filled[0]
        if not wrong and any(is_rounded(cells[row]) for row in filled):
            advice = "Whole numbers beyond 2^53 would be rounded: subtract a constant from them"
        elif not wrong:
            advice = "The whole column is stored as text: store it as numbers"
        elif is_code(cells[row]):
            advice = "A zero in front makes it a code, such as a zip code: remove such zeros if it is a number"
        elif is_number(cells[row].replace(",", ".")):
            advice = "Write decimals with a point"
        elif len(filled) - len(wrong) >= _MOSTLY * len(filled):
            advice = f"{len(wrong)} of {len(filled)} cells are not numbers: correct them or remove their rows"
        else:
            advice = "Encode text columns as numbers first"
        raise ValueError(
            f"Column {name!r} has {_excerpt(cells[row])} in {self.place(row)}, where a number is needed. "
            f"{advice}, or leave it out with --drop {shlex.quote(name)}."
        )

    def _refuse_gap(self, name: str, values: np.ndarray, row: int) -> None:
        missing = math.isnan(values[row])
        n_rows = int(np.count_nonzero(np.isnan(values) if missing else np.isinf(values)))
        place = self.place(row) if n_rows == 1 else f"{n_rows} rows, first in {self.place(row)}"
        raise ValueError(
            f"Column {name!r} is {'empty' if missing else 'infinite'} in {place}. Remove such rows or impute the "
            f"values, or leave it out with --drop {shlex.quote(name)}."
        )

    def place(self, row: int) -> str:
        """Say which row of the file a row is, for a message."""
        number = (row if self.rows is None else int(self.rows[row])) + 1
        source = self.source if self.file_of is None else self.files[int(self.file_of[row])]
        return (
            f"row {number} of {source}" if self.lines is None else f"row {number} (line {self.lines[row]} of {source})"
        )


def choose(names: Sequence[str], wanted: Sequence[str] | None, path: Path) -> list[str]:
    """Check the names of all columns and return those wanted."""
    if not names:
        raise ValueError(f"{path} has no columns.")
    if "" in names:
        index = names.index("")
        hint = "" if index else " If pandas wrote the file, save it again with index=False."
        raise ValueError(f"{path}: column {index + 1} has no name.{hint}")
    if len(set(names)) < len(names):
        twice = next(name for index, name in enumerate(names) if name in names[:index])
        raise ValueError(f"{path} has two columns named {twice!r}; rename one.")
    known = set(names)
    for name in wanted or ():
        if name not in known:
            raise _unknown(name, names, path.name)
    return list(names if wanted is None else dict.fromkeys(wanted))


def _unknown(name: str, columns: Sequence[str], source: str) -> ValueError:
    close = [column for column in columns if column.casefold() == name.casefold()]
    close = close or difflib.get_close_matches(name, columns, 3)
    listed = list(dict.fromkeys([*close, *columns]))
    question = f"; did you mean {close[0]!r}?" if close else "."
    more = f" and {len(listed) - _MOST_NAMES} more" if len(listed) > _MOST_NAMES else ""
    return ValueError(
        f"{source} has no column {name!r}{question} Its columns are {', '.join(map(repr, listed[:_MOST_NAMES]))}{more}."
    )


def _excerpt(cell: str) -> str:
    return repr(cell if len(cell) <= _LONGEST_CELL else f"{cell[:_LONGEST_CELL]}...")
