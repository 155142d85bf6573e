"""The contract of a column: it has learned from training rows how to write its values as a few features."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import numpy as np
from jaxtyping import Float, Int

from mile._errors import UntrustedFileError
from mile._json import Json
from mile.features.base import ColumnFacts, ColumnReport, Tensors
from mile.features.values import AbstractValues

Fields = Mapping[str, Json]
# Where the smooth clip of numbers levels off: Holzmüller et al., "Better by default" (RealMLP), 2024, section 3.
LARGEST = 3.0
_BLOCK_ROWS = 1 << 12  # rows that are worked on at a time
_GROUP_COLUMNS = 16  # columns that are worked on together: a cache line holds as many features in float32
_LARGEST_BEFORE_CLIP = 1e6  # keeps squares finite


@dataclass(frozen=True, kw_only=True)
class Learning:
    """What a column learns from besides its values.

    Attributes
    ----------
    weight
        How many times each training row counts.
    targets
        The response in one or more columns of numbers; None if there is none to learn from.
    squash
        Whether numbers are scaled by quantiles and clipped smoothly, or only standardized.
    most_levels
        Categories of more levels than that are encoded by the response.
    fewest_rows
        Levels of fewer rows than that are pooled.
    pieces
        How many pieces with a feature each the range of a number is cut into; zero: none.
    """

    weight: Float[np.ndarray, " row"]
    targets: Float[np.ndarray, "row target"] | None = None
    squash: bool = True
    most_levels: int = 30
    fewest_rows: int = 5
    pieces: int = 0


class Counts(NamedTuple):
    """How many cells of a column were not as in training: see `Findings`."""

    filled: int = 0
    infinite: int = 0
    unreadable: int = 0
    unseen: int = 0

    def plus(self, other: "Counts") -> "Counts":
        """Return the sums."""
        return Counts(*map(sum, zip(self, other, strict=True)))


class AbstractColumn(ABC):
    """What all kinds of columns can do. A column is an immutable value made by the `learn` of its class."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """What to add to the column's name to name each feature."""

    @abstractmethod
    def read(self, values: AbstractValues) -> AbstractValues:
        """Return values in the form that `write_into` takes."""

    @abstractmethod
    def write_into(self, values: AbstractValues, out: Float[np.ndarray, "row feature"], rows: slice) -> Counts:
        """Write the features of some rows of values that `read` has returned, and count what was not as in training."""

    @abstractmethod
    def describe(self, name: str) -> ColumnReport:
        """Say what became of the column."""

    def facts(self, name: str) -> ColumnFacts:
        """Return what the column had in training."""
        return ColumnFacts(name, self.kind)

    @abstractmethod
    def fields(self) -> dict[str, Json]:
        """Return what a file must keep, as JSON."""

    @classmethod
    @abstractmethod
    def restore(cls, fields: Fields, tensors: Tensors) -> Self:
        """Return the column that a file has kept.

        Raises
        ------
        UntrustedFileError
            If anything is missing, unknown or impossible.
        """

    def tensors(self) -> dict[str, np.ndarray]:
        """Return the arrays that a file must keep."""
        return {}

    @property
    def is_by_target(self) -> bool:
        """Whether training rows must be written by `write_training`, because the column has learned from y."""
        return False

    def write_training(self, values: AbstractValues, out: Float[np.ndarray, "row feature"], learning: Learning) -> None:
        """Write the features of the training rows; a column that has learned from y leaves out each row's own y."""
        self.write_into(values, out, slice(None))

    @property
    def n_features(self) -> int:
        """How many features the column has."""
        return len(self.labels)


@dataclass(frozen=True, kw_only=True)
class IgnoredColumn(AbstractColumn):
    """A column that the network does not see.

    Attributes
    ----------
    reason
        Why, as a clause.
    missing
        Share of the training rows without a value.
    """

    kind = "ignored"

    reason: str
    missing: float = 0.0

    @property
    def labels(self) -> tuple[str, ...]:
        """Nothing."""
        return ()

    def read(self, values: AbstractValues) -> AbstractValues:
        """Return the values as they are."""
        return values

    def write_into(self, values: AbstractValues, out: Float[np.ndarray, "row feature"], rows: slice) -> Counts:
        """Write nothing."""
        return Counts()

    def describe(self, name: str) -> ColumnReport:
        """Say why it was left out."""
        return ColumnReport(name, self.kind, missing=self.missing, treatment="left out", reason=self.reason)

    def facts(self, name: str) -> ColumnFacts:
        """Return why it was left out."""
        return ColumnFacts(name, self.kind, self.reason)

    def fields(self) -> dict[str, Json]:
        """Return the reason."""
        return {"reason": self.reason, "missing": self.missing}

    @classmethod
    def restore(cls, fields: Fields, tensors: Tensors) -> Self:
        """Return the column that a file has kept."""
        expect(fields, tensors, {"reason", "missing"})
        return cls(reason=text_in(fields, "reason"), missing=number_in(fields, "missing", 0.0, 1.0))


class Writing(NamedTuple):
    """A column, values in the form in which the table has them, and where the features go."""

    column: AbstractColumn
    values: AbstractValues
    out: Float[np.ndarray, "row feature"]


def write_rows(writings: Sequence[Writing], rows: Int[np.ndarray, " chosen"] | None = None) -> list[Counts]:
    """Write the given rows (default: all) of some columns and count.

    A feature is one number in each row of a wide array, so a column by itself would fetch the whole array from memory.
    A few columns share a block of rows that stays in the processor's cache; only these are held as they are read.
    """
    found: list[Counts] = []
    for start in range(0, len(writings), _GROUP_COLUMNS):
        group = writings[start : start + _GROUP_COLUMNS]
        found += _write_group([writing._replace(values=writing.values.chosen(rows)) for writing in group])
    return found


def _write_group(writings: Sequence[Writing]) -> list[Counts]:
    readable = [column.read(values) for column, values, _ in writings]
    counts = [Counts()] * len(writings)
    for start in range(0, len(writings[0].out), _BLOCK_ROWS):
        rows = slice(start, start + _BLOCK_ROWS)
        for place, (column, _, out) in enumerate(writings):
            counts[place] = counts[place].plus(column.write_into(readable[place], out[rows], rows))
    return [
        _with_unreadable(count, values, read)
        for count, (_, values, _), read in zip(counts, writings, readable, strict=True)
    ]


def _with_unreadable(counts: Counts, values: AbstractValues, read: AbstractValues) -> Counts:
    """Tell cells that could not be read from those that are empty."""
    lost = 0 if type(read) is type(values) else int(read.missing().sum() - values.missing().sum())
    return counts._replace(unreadable=max(lost, 0), filled=max(counts.filled - max(lost, 0), 0))


def smooth_clip(values: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Return values unchanged near zero and leveling off at ±3."""
    values = np.clip(values, -_LARGEST_BEFORE_CLIP, _LARGEST_BEFORE_CLIP)
    return values / np.sqrt(1.0 + np.square(values / LARGEST))


def indicators(share: Float[np.ndarray, " group"]) -> Float[np.ndarray, "group feature"]:
    """Return a row for each group: one in its own column, zero elsewhere, each column centered and scaled.

    Dividing by the standard deviation would give a group of one row in a million the value 1,000. No scale is below
    1/3, so none is above 3, as with numbers.
    """
    scale = np.maximum(np.sqrt(share * (1.0 - share)), 1.0 / LARGEST)
    return (np.eye(len(share)) - share) / scale


def weighted_share(chosen: np.ndarray, weight: Float[np.ndarray, " row"]) -> float:
    """Return the share of the rows that are chosen, counted by weight."""
    return float(weight[chosen].sum() / weight.sum())


def expect(fields: Fields, tensors: Tensors, names: set[str], arrays: frozenset[str] = frozenset()) -> None:
    """Refuse a column whose parts are not exactly these."""
    if set(fields) != names or set(tensors) != arrays:
        raise UntrustedFileError(f"a column must have {sorted(names | arrays)}, and nothing else.")


def number_in(fields: Fields, name: str, low: float = -math.inf, high: float = math.inf) -> float:
    """Return a finite number between two bounds."""
    value = fields[name]
    if type(value) is not float or not math.isfinite(value) or not low <= value <= high:
        raise UntrustedFileError(f"the {name} of a column must be a number between {low} and {high}.")
    return value


def flag_in(fields: Fields, name: str) -> bool:
    """Return True or False."""
    value = fields[name]
    if type(value) is not bool:
        raise UntrustedFileError(f"{name} of a column must be true or false.")
    return value


def text_in(fields: Fields, name: str) -> str:
    """Return a text."""
    value = fields[name]
    if type(value) is not str:
        raise UntrustedFileError(f"the {name} of a column must be a text.")
    return value


def texts_in(fields: Fields, name: str) -> tuple[str, ...]:
    """Return texts."""
    value = fields[name]
    if type(value) is not list or any(type(text) is not str for text in value):
        raise UntrustedFileError(f"the {name} of a column must be a list of texts.")
    return tuple(map(str, value))
