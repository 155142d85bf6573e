"""The values of one column: numbers, texts or dates, each of which can be read as the others.

Which kind a column is gets decided once, on training rows. At prediction the same column may arrive in another type
(whole numbers as floats, dates as texts), so every class here answers the questions of every kind of column.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from jaxtyping import Bool, Float, Int

from mile.features import parsing

Selection = slice | Int[np.ndarray, " chosen"]
_SECONDS_PER_DAY = 86_400.0


class AbstractValues(ABC):
    """What all values can do. A cell that cannot be read as what is asked for is missing in the answer."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def take(self, rows: Selection) -> "AbstractValues":
        """Return the values of some rows."""

    def chosen(self, rows: Int[np.ndarray, " chosen"] | None) -> "AbstractValues":
        """Return the values of some rows; None takes all of them."""
        return self if rows is None else self.take(rows)

    @abstractmethod
    def missing(self) -> Bool[np.ndarray, " row"]:
        """Say which cells are empty."""

    def infinite(self) -> Int[np.ndarray, " infinite"]:
        """Return the rows whose number is infinite."""
        return np.zeros(0, np.int64)

    @abstractmethod
    def numbers(self) -> "Numbers":
        """Return the values as numbers."""

    @abstractmethod
    def texts(self) -> "Texts":
        """Return the values as texts."""

    @abstractmethod
    def dates(self, format: str) -> "Dates":
        """Return the values as dates; `format` is that of texts."""

    def flags(self) -> "Texts":
        """Return the values as the texts no and yes."""
        texts = self.texts()
        return Texts.of(texts.codes, parsing.read_flags(texts.levels))


@dataclass(frozen=True, kw_only=True, eq=False)
class Numbers(AbstractValues):
    """Numbers in float32 or float64; NaN is missing, and so is infinity, which is kept to be counted."""

    values: Float[np.ndarray, " row"]

    @classmethod
    def of(cls, values: np.ndarray) -> Self:
        """Return real numbers of any type; those that float32 cannot hold exactly become float64."""
        narrow = np.can_cast(values.dtype, np.float32, "safe")
        with np.errstate(over="ignore"):  # long double: too large is infinite
            return cls(values=values.astype(np.float32 if narrow else np.float64, copy=False))

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: Selection) -> "Numbers":
        """Return the numbers of some rows."""
        return Numbers(values=self.values[rows])

    def missing(self) -> Bool[np.ndarray, " row"]:
        """Say which numbers are NaN or infinite."""
        return ~np.isfinite(self.values)

    def infinite(self) -> Int[np.ndarray, " infinite"]:
        """Return the rows whose number is infinite."""
        return np.flatnonzero(np.isinf(self.values))

    def numbers(self) -> "Numbers":
        """Return these."""
        return self

    def texts(self) -> "Texts":
        """Return each number spelled, 3.0 as "3"; infinite ones are missing."""
        finite = np.isfinite(self.values)
        distinct, places = np.unique(self.values[finite], return_inverse=True)
        codes = np.full(len(self), -1, np.int32)
        codes[finite] = places
        return Texts.of(codes, [parsing.spelled(number) for number in distinct])

    def dates(self, format: str) -> "Dates":
        """Return the dates that the digits spell."""
        return self.texts().dates(format)


@dataclass(frozen=True, kw_only=True, eq=False)
class SparseNumbers(AbstractValues):
    """Numbers of which only those that are not zero are held, each once; they are spread out when asked for."""

    rows: Int[np.ndarray, " entry"]
    entries: Float[np.ndarray, " entry"]
    length: int

    def __len__(self) -> int:
        return self.length

    def take(self, rows: Selection) -> "Numbers":
        """Return the numbers of some rows."""
        return self.numbers().take(rows)

    def missing(self) -> Bool[np.ndarray, " row"]:
        """Say which numbers are NaN or infinite."""
        return self.numbers().missing()

    def infinite(self) -> Int[np.ndarray, " infinite"]:
        """Return the rows whose number is infinite."""
        return np.sort(self.rows[np.isinf(self.entries)])

    def numbers(self) -> "Numbers":
        """Return all numbers."""
        values = np.zeros(self.length, self.entries.dtype)
        values[self.rows] = self.entries
        return Numbers(values=values)

    def texts(self) -> "Texts":
        """Return each number spelled."""
        return self.numbers().texts()

    def dates(self, format: str) -> "Dates":
        """Return the dates that the digits spell."""
        return self.numbers().dates(format)


@dataclass(frozen=True, kw_only=True, eq=False)
class Texts(AbstractValues):
    """Texts as the numbers of distinct ones.

    Attributes
    ----------
    codes
        For each row the place of its text among the levels; -1 is missing.
    levels
        The distinct texts. Some may not occur.
    is_declared
        Whether the table itself says that this is a category, so that texts like "3" stay texts.
    """

    codes: Int[np.ndarray, " row"]
    levels: tuple[str, ...]
    is_declared: bool = False

    @classmethod
    def of(cls, codes: Int[np.ndarray, " row"], texts: Sequence[str], *, is_declared: bool = False) -> Self:
        """Return texts without the blanks around them; those that stand for an empty cell are missing."""
        places: dict[str, int] = {}
        table = np.full(len(texts) + 1, -1, np.int32)  # the last entry is for code -1
        for code, text in enumerate(map(str.strip, texts)):
            if text not in parsing.MISSING:
                table[code] = places.setdefault(text, len(places))
        same = np.array_equal(table[:-1], np.arange(len(texts)))
        codes = codes.astype(np.int32, copy=False) if same else table[codes]
        return cls(codes=codes, levels=tuple(places), is_declared=is_declared)

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: Selection) -> "Texts":
        """Return the texts of some rows."""
        return Texts(codes=self.codes[rows], levels=self.levels, is_declared=self.is_declared)

    @cached_property
    def occurring(self) -> list[str]:
        """The levels that occur."""
        counts = np.bincount(self.codes + 1, minlength=len(self.levels) + 1)[1:]
        return [self.levels[place] for place in np.flatnonzero(counts)]

    def missing(self) -> Bool[np.ndarray, " row"]:
        """Say which texts are missing."""
        return self.codes < 0

    def numbers(self) -> "Numbers":
        """Return the numbers that the texts spell."""
        return Numbers(values=np.append(parsing.read_numbers(self.levels), np.nan)[self.codes])

    def texts(self) -> "Texts":
        """Return these."""
        return self

    def dates(self, format: str) -> "Dates":
        """Return the dates that the texts spell."""
        time, clock = parsing.read_dates(self.levels, format)
        never = np.datetime64("NaT", "us")
        return Dates(time=np.append(time, never)[self.codes], clock=np.append(clock, never)[self.codes])


@dataclass(frozen=True, kw_only=True, eq=False)
class Dates(AbstractValues):
    """Points in time in microseconds; NaT is missing.

    Attributes
    ----------
    time
        In UTC, for the time that has passed between two rows.
    clock
        What clock and calendar showed at the place, for hours and seasons; the same where no time zone is known.
    """

    time: np.ndarray
    clock: np.ndarray

    def __len__(self) -> int:
        return len(self.time)

    def take(self, rows: Selection) -> "Dates":
        """Return the dates of some rows."""
        return Dates(time=self.time[rows], clock=self.clock[rows])

    def missing(self) -> Bool[np.ndarray, " row"]:
        """Say which dates are missing."""
        return np.isnat(self.time)

    def numbers(self) -> "Numbers":
        """Return days since the beginning of 1970."""
        return Numbers(values=(self.time - np.datetime64(0, "us")) / np.timedelta64(1, "s") / _SECONDS_PER_DAY)

    def texts(self) -> "Texts":
        """Return what the clock showed, by ISO 8601; midnight is left out."""
        distinct, places = np.unique(self.clock, return_inverse=True)
        spelled = [str(time).removesuffix(".000000").removesuffix("T00:00:00") for time in distinct]
        return Texts.of(places, spelled)

    def dates(self, format: str) -> "Dates":
        """Return these."""
        return self
