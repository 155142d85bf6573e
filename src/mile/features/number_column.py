"""A column of numbers: a feature on a common scale, those of pieces of its range if asked for, one for missing."""

from dataclasses import asdict, dataclass
from typing import Self

import numpy as np
from jaxtyping import Float

from mile._errors import UntrustedFileError
from mile._json import Json
from mile.features.base import ColumnFacts, Tensors
from mile.features.columns import (
    AbstractColumn,
    ColumnReport,
    Counts,
    Fields,
    Learning,
    expect,
    flag_in,
    indicators,
    number_in,
    smooth_clip,
    weighted_share,
)
from mile.features.numbers import Standardizer
from mile.features.pieces import Edges, are_edges, learn_edges, n_pieces_of, piece_labels, write_pieces
from mile.features.values import AbstractValues, Numbers

_QUARTILES = (0.25, 0.5, 0.75)
# A running number is told from other whole numbers by this many rows at least.
_FEWEST_RUNNING = 20
_LARGEST_INPUT = 1e6  # as in `numbers.py`
MISSING = " (missing)"


@dataclass(frozen=True, kw_only=True)
class NumberColumn(AbstractColumn):
    """Numbers shifted and scaled, then clipped smoothly if so learned.

    Attributes
    ----------
    center, scale
        The median and the distance between the quartiles of the training rows, or their standard deviation where the
        quartiles are one number. Without the clip their mean and standard deviation. A scale of zero: they were all
        alike, and no number is a feature.
    fill
        The training median, for cells without a number.
    low, high
        Range in the training rows.
    missing
        Share of the training rows without a number; where there are any, an indicator is a feature.
    squash
        Whether the clip is applied.
    is_running
        Whether the numbers look like those of rows: whole, all different, and rising or without large gaps.
    edges
        Ends of the pieces of the range that have a feature each; none: there are no pieces.
    """

    kind = "number"

    center: float
    scale: float
    fill: float
    low: float
    high: float
    missing: float = 0.0
    squash: bool = True
    is_running: bool = False
    edges: Edges = ()

    @classmethod
    def learn(cls, values: AbstractValues, learning: Learning) -> Self | None:
        """Learn from training rows; None if none of them has a finite number."""
        x = values.numbers().values
        finite = np.isfinite(x)
        if not finite.any():
            return None
        known, weight = x[finite].astype(np.float64), learning.weight[finite]
        first, median, third = _quartiles(known, weight)
        low, high = float(known.min()), float(known.max())
        if learning.squash and third > first:
            # Half of each side, because a difference of two finite numbers may be infinite.
            center, scale = median, float(min(2 * (third / 2 - first / 2), np.finfo(np.float64).max))
        else:
            # Also where the quartiles are one number, such as a gain that few rows have: half the range, as RealMLP has
            # it (LARGEST in columns.py), would make all but the largest gains nothing (experiments/mixed_tables).
            plain = Standardizer.learn(known, None, weight)
            center = median if learning.squash else float(plain.shift)
            scale = float(plain.scale) if high > low else 0.0
        missing = weighted_share(~finite, learning.weight)
        running = _is_running(known, low, high)
        return cls(
            center=center,
            scale=scale,
            fill=median,
            low=low,
            high=high,
            missing=missing,
            squash=learning.squash,
            is_running=running,
            edges=learn_edges(known, weight, learning.pieces) if scale > 0 else (),
        )

    @property
    def labels(self) -> tuple[str, ...]:
        """The number itself, the pieces of its range, and whether it is missing."""
        return ("",) * (self.scale > 0) + piece_labels(self.edges) + (MISSING,) * (self.missing > 0)

    def read(self, values: AbstractValues) -> Numbers:
        """Return values as numbers."""
        return values.numbers()

    def write_into(self, values: AbstractValues, out: Float[np.ndarray, "row feature"], rows: slice) -> Counts:
        """Write scaled numbers, their places in the pieces, and the indicator."""
        x = values.numbers().values[rows].astype(np.float64)
        infinite = np.isinf(x)
        empty = np.isnan(x) | infinite
        x[empty] = self.fill
        if self.edges:
            write_pieces(x, self.edges, out[:, 1 : 1 + n_pieces_of(self.edges)])
        if self.scale > 0:
            with np.errstate(over="ignore"):  # infinity is cut
                x = (x - self.center) / self.scale
            out[:, 0] = smooth_clip(x) if self.squash else np.clip(x, -_LARGEST_INPUT, _LARGEST_INPUT)
        n_infinite = int(infinite.sum())
        if self.missing > 0:
            out[:, -1] = indicator(self.missing)[empty.astype(np.intp)]
            return Counts(infinite=n_infinite)
        return Counts(filled=int(empty.sum()) - n_infinite, infinite=n_infinite)

    def describe(self, name: str) -> ColumnReport:
        """Say what the range is and how it was scaled."""
        how = "scaled by quartiles, smoothly clipped" if self.squash else "standardized"
        treatment = how if self.scale > 0 else "one value: only whether it is missing"
        if self.edges:
            treatment += f", and {n_pieces_of(self.edges)} pieces"
        if self.missing > 0 and self.scale > 0:
            treatment += "; missing: median and an indicator"
        if self.is_running:  # kept, because it may be a time; only the user knows
            treatment = f"running number: {treatment}"
        span = f"{self.low:g} to {self.high:g}"
        return ColumnReport(name, self.kind, span, self.missing, treatment, is_running=self.is_running)

    def facts(self, name: str) -> ColumnFacts:
        """Return range and median, and the pieces."""
        found = ColumnFacts(name, self.kind, low=self.low, high=self.high, missing=self.missing)
        return found._replace(center=self.fill, spread=self.scale, has_median=True, edges=self.edges)

    def fields(self) -> dict[str, Json]:
        """Return all numbers; edges only where there are any, as files were before there were pieces."""
        fields: dict[str, Json] = {name: value for name, value in asdict(self).items() if name != "edges"}
        edges: Json = list(self.edges)
        return {**fields, "edges": edges} if self.edges else fields

    @classmethod
    def restore(cls, fields: Fields, tensors: Tensors) -> Self:
        """Return the column that a file has kept."""
        expect({"edges": [], **fields}, tensors, set(cls.__dataclass_fields__))
        edges = _edges_in(fields)
        scale = number_in(fields, "scale", low=0.0)
        if edges and scale == 0.0:
            raise UntrustedFileError("a column of one number has no pieces.")
        return cls(
            **{name: number_in(fields, name) for name in ("center", "fill", "low", "high")},
            scale=scale,
            missing=number_in(fields, "missing", 0.0, 1.0),
            squash=flag_in(fields, "squash"),
            is_running=flag_in(fields, "is_running"),
            edges=edges,
        )


def _edges_in(fields: Fields) -> Edges:
    given = fields.get("edges", [])
    numbers = [edge for edge in given if type(edge) is float] if isinstance(given, list) else []
    if not isinstance(given, list) or len(numbers) < len(given) or not are_edges(numbers):
        raise UntrustedFileError("the edges of a column must be numbers that rise.")
    return tuple(numbers)


def indicator(share: float) -> Float[np.ndarray, " value"]:
    """Return the feature's values for a cell that is there and one that is missing, from the share of the latter."""
    return indicators(np.array([1.0 - share, share]))[:, 1]


def _quartiles(known: Float[np.ndarray, " row"], weight: Float[np.ndarray, " row"]) -> tuple[float, float, float]:
    """Return training values, so that a weight of two is exactly the row twice, and nothing is interpolated."""
    weights = None if (weight == weight[0]).all() else weight  # weights cost a sort
    first, median, third = np.quantile(known, _QUARTILES, method="inverted_cdf", weights=weights)
    return float(first), float(median), float(third)


def _is_running(known: Float[np.ndarray, " row"], low: float, high: float) -> bool:
    if len(known) < _FEWEST_RUNNING or high - low < len(known) - 1 or (known != np.floor(known)).any():
        return False
    is_rising = bool((np.diff(known) > 0).all())
    # Part of the rows of a table, in any order: all different, and few numbers left out.
    return is_rising or (high - low < 2 * len(known) and len(np.unique(known)) == len(known))
