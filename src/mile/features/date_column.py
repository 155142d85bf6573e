"""A column of dates: the time that has passed, and places on the circles of year, week and day."""

from dataclasses import asdict, dataclass
from typing import Self

import numpy as np
from jaxtyping import Float

from mile._errors import UntrustedFileError
from mile._json import Json
from mile.features import parsing
from mile.features.base import ColumnFacts, Tensors
from mile.features.columns import (
    AbstractColumn,
    ColumnReport,
    Counts,
    Fields,
    Learning,
    expect,
    number_in,
    smooth_clip,
    text_in,
    texts_in,
    weighted_share,
)
from mile.features.number_column import MISSING, indicator
from mile.features.numbers import Standardizer
from mile.features.values import AbstractValues, Dates

_DAY = 86_400_000_000  # microseconds
_MONDAY = 3 * _DAY  # 1970 began on a Thursday


@dataclass(frozen=True, kw_only=True)
class DateColumn(AbstractColumn):
    """Dates as numbers.

    Attributes
    ----------
    center, scale
        Mean and standard deviation of the training rows in days since 1970; a scale of zero: they were all alike.
    low, high
        Range in the training rows, in the same days.
    circles
        Which of year, week and day vary in the training rows. Each is a sine and a cosine, so that December is beside
        January; an empty cell is at the center of the circle.
    missing
        Share of the training rows without a date; where there are any, an indicator is a feature.
    format
        How texts are read.
    """

    kind = "date"

    center: float
    scale: float
    low: float
    high: float
    circles: tuple[str, ...]
    missing: float = 0.0
    format: str = parsing.ISO

    @classmethod
    def learn(cls, values: AbstractValues, learning: Learning) -> Self | None:
        """Learn from training rows; None if none of them has a date."""
        format = _format(values)
        dates = values.dates(format)
        known = ~dates.missing()
        if not known.any():
            return None
        days, clock = dates.numbers().values[known], dates.clock[known]
        low, high = float(days.min()), float(days.max())
        plain = Standardizer.learn(days, None, learning.weight[known])
        return cls(
            center=float(plain.shift),
            scale=float(plain.scale) if high > low else 0.0,
            low=low,
            high=high,
            circles=tuple(name for name, place in _CIRCLES.items() if np.ptp(place(clock)) > 0),
            missing=weighted_share(~known, learning.weight),
            format=format,
        )

    @property
    def labels(self) -> tuple[str, ...]:
        """The time that has passed, each circle, and whether the date is missing."""
        circles = (f" ({wave} of {circle})" for circle in self.circles for wave in ("sine", "cosine"))
        return (" (time)",) * (self.scale > 0) + tuple(circles) + (MISSING,) * (self.missing > 0)

    def read(self, values: AbstractValues) -> Dates:
        """Return values as dates."""
        return values.dates(self.format)

    def write_into(self, values: AbstractValues, out: Float[np.ndarray, "row feature"], rows: slice) -> Counts:
        """Write all features."""
        dates = self.read(values).take(rows)
        empty = dates.missing()
        features = []
        if self.scale > 0:
            features.append(smooth_clip((dates.numbers().values - self.center) / self.scale))
        for circle in self.circles:
            angle = 2 * np.pi * _CIRCLES[circle](dates.clock)
            features += [np.sin(angle), np.cos(angle)]
        for place, feature in enumerate(features):
            out[:, place] = np.where(empty, 0.0, feature)
        if self.missing > 0:
            out[:, -1] = indicator(self.missing)[empty.astype(np.intp)]
            return Counts()
        return Counts(filled=int(empty.sum()))

    def describe(self, name: str) -> ColumnReport:
        """Say what the range is and which parts of the date are features."""
        low, high = (
            str(np.datetime64(0, "s") + np.timedelta64(round(86_400 * day), "s")) for day in (self.low, self.high)
        )
        parts = ["elapsed time"] * (self.scale > 0) + [f"position in the {circle}" for circle in self.circles]
        treatment = ", ".join(parts) + ("; missing: mean and an indicator" if self.missing > 0 else "")
        span = f"{low.removesuffix('T00:00:00')} to {high.removesuffix('T00:00:00')}"
        return ColumnReport(name, self.kind, span, self.missing, treatment)

    def facts(self, name: str) -> ColumnFacts:
        """Return range and mean in days since 1970."""
        found = ColumnFacts(name, self.kind, low=self.low, high=self.high, missing=self.missing)
        return found._replace(center=self.center, spread=self.scale)

    def fields(self) -> dict[str, Json]:
        """Return all there is."""
        found: dict[str, Json] = asdict(self)
        found["circles"] = [*self.circles]
        return found

    @classmethod
    def restore(cls, fields: Fields, tensors: Tensors) -> Self:
        """Return the column that a file has kept."""
        expect(fields, tensors, set(cls.__dataclass_fields__))
        circles, format = texts_in(fields, "circles"), text_in(fields, "format")
        if circles != tuple(name for name in _CIRCLES if name in circles):
            raise UntrustedFileError(f"the circles of a date must be among {list(_CIRCLES)}.")
        if format not in parsing.ALL_DATE_FORMATS:
            raise UntrustedFileError(f"{format[:80]!r} is not a format of dates.")
        return cls(
            **{name: number_in(fields, name) for name in ("center", "low", "high")},
            scale=number_in(fields, "scale", low=0.0),
            circles=circles,
            missing=number_in(fields, "missing", 0.0, 1.0),
            format=format,
        )


def _format(values: AbstractValues) -> str:
    """Return the format of the dates that texts are; where some are none, that of the first that is one."""
    if isinstance(values, Dates):
        return parsing.ISO
    texts = values.texts().occurring
    of_all = parsing.date_format(texts, is_asked=True)
    return of_all or next(filter(None, (parsing.date_format([text], is_asked=True) for text in texts)), parsing.ISO)


def _in_year(clock: np.ndarray) -> np.ndarray:
    """Return the part of the year that has passed, in a year of 365 or 366 days."""
    year = clock.astype("M8[Y]")
    first, next_first = year.astype("M8[us]"), (year + np.timedelta64(1, "Y")).astype("M8[us]")
    return (clock - first) / (next_first - first)


def _in_week(clock: np.ndarray) -> np.ndarray:
    return _passed(clock, _MONDAY, 7 * _DAY)


def _in_day(clock: np.ndarray) -> np.ndarray:
    return _passed(clock, 0, _DAY)


def _passed(clock: np.ndarray, start: int, length: int) -> np.ndarray:
    """Return the part of a period that has passed; what it is for NaT does not matter."""
    return (clock.astype(np.int64) % length + start) % length / length


_CIRCLES = {"year": _in_year, "week": _in_week, "day": _in_day}
