"""What the text of a cell stands for: a number, nothing, or itself."""

import math
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from mile.features.parsing import MISSING, is_code, spelled

LARGEST_EXACT = 2.0**53  # whole numbers up to here are exact in float64
_LONGEST_WHOLE = 40  # digits: 64 bits have at most 20, and Python refuses to read some thousands
_WHOLE = re.compile(rf"[+-]?[0-9]{{1,{_LONGEST_WHOLE}}}")
_CODES = re.compile(r"^[ \t]*0[0-9]+[ \t]*$", re.MULTILINE)  # as `is_code`, in cells on lines of their own
# With a decimal comma a point separates thousands, which is not guessed: such a cell is text.
_COMMA_TO_POINT = str.maketrans({",": ".", ".": "x"})


class Cells(NamedTuple):
    """How cells are read.

    Attributes
    ----------
    decimal
        What stands before the fraction of a number: a point or a comma.
    missing
        Words for an empty cell. One that is a number, such as -999, is an empty cell among numbers too.
    """

    decimal: str = "."
    missing: frozenset[str] = MISSING

    @classmethod
    def of(cls, decimal: str, more_missing: Iterable[str]) -> "Cells":
        """Return a reader that knows more words for an empty cell."""
        return cls(decimal, MISSING | {word.strip() for word in more_missing})

    def pointed(self, text: str) -> str:
        """Return text with points in its numbers."""
        return text if self.decimal == "." else text.translate(_COMMA_TO_POINT)

    def is_empty(self, cell: str) -> bool:
        """Say whether a cell holds nothing."""
        return cell.strip() in self.missing

    def floats(self, cells: Sequence[str]) -> np.ndarray | None:
        """Return the numbers that cells stand for, or None if one of them is text or would not be the same as float."""
        pointed = cells if self.decimal == "." else list(map(self.pointed, cells))
        try:
            try:
                floats = list(map(float, pointed))
            except ValueError:
                pairs = zip(cells, pointed, strict=True)
                floats = [math.nan if self.is_empty(cell) else float(number) for cell, number in pairs]
        except ValueError:
            return None
        values, joined = np.array(floats), "\n".join(cells)
        if "_" in joined or _CODES.search(joined):  # Python reads 1_000 as a number; other programs do not
            return None
        large = np.flatnonzero(np.abs(values) >= LARGEST_EXACT).tolist()
        return None if any(is_rounded(cells[row]) for row in large) else self.without_missing(values)

    def without_missing(self, values: np.ndarray) -> np.ndarray:
        """Return numbers with NaN for those that stand for an empty cell."""
        for word in self.missing - MISSING:
            number = Cells(self.decimal).floats([word])
            if number is not None and (values == number[0]).any():
                values = np.where(values == number[0], np.nan, values)
        return values

    def column(self, cells: Sequence[str | None]) -> np.ndarray:
        """Return cells as numbers if all of them are, else as text; None is an empty cell."""
        numbers = self.floats(["" if cell is None else cell for cell in cells])
        return self.texts(cells) if numbers is None else numbers

    def texts(self, cells: Sequence[str | None]) -> np.ndarray:
        """Return cells that are no floats as integers if all of them are, else as text."""
        known = [None if cell is None or self.is_empty(cell) else cell for cell in cells]
        integers = _integers(known)
        return np.array(known, object) if integers is None else integers


def is_number(cell: str) -> bool:
    """Say whether a cell stands for a number, however large."""
    return cell.strip() not in MISSING and (is_rounded(cell) or Cells().floats([cell]) is not None)


def is_rounded(cell: str) -> bool:
    """Say whether a cell is a whole number that float64 cannot hold."""
    return bool(_WHOLE.fullmatch(cell.strip())) and not is_code(cell) and int(cell) != float(cell)


def spelled_cells(array: np.ndarray) -> list[str | None]:
    """Return a column of any kind as the texts that stand for its cells."""
    cells = array.tolist()
    if array.dtype == object:
        return cells
    return [None if cell != cell else spelled(cell) if math.isfinite(cell) else str(cell) for cell in cells]


def _integers(cells: Sequence[str | None]) -> np.ndarray | None:
    """Return the whole numbers of 64 bits that all cells stand for, or None if one of them is anything else."""
    if not cells or any(cell is None or not _WHOLE.fullmatch(cell.strip()) or is_code(cell) for cell in cells):
        return None
    values = [int(cell or "") for cell in cells]
    for kind in (np.int64, np.uint64):
        if np.iinfo(kind).min <= min(values) and max(values) <= np.iinfo(kind).max:
            return np.array(values, kind)
    return None
