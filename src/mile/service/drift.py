"""How rows that arrive differ from those of training, and how predictions did once outcomes are known."""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple, cast

import numpy as np

from mile._json import Json
from mile.features.base import ColumnFacts
from mile.service.rows import Cells

WINDOW = 10_000  # rows, or outcomes; figures are of the last one to two windows
PIT_BINS = 20
_FAR = 4.0  # standard deviations from the mean, where the range of training is not known
_LEAST_SHARE = 1e-3  # of a bin, in the stability index: an empty one would make it infinite
_EPOCH = np.datetime64(0, "D")


class Bins(NamedTuple):
    """How the cells of one column are counted: number of bins, which of them are outside, the shares in training."""

    names: tuple[str, ...]
    outside: frozenset[int]
    shares: tuple[float, ...] | None


class ColumnBins:
    """Puts the cells of one column into bins."""

    def __init__(self, facts: ColumnFacts) -> None:
        self.facts = facts
        self._edges: list[float] = []
        if facts.kind in ("category", "boolean"):
            levels = facts.levels
            self._places = {level: place for place, level in enumerate(levels)}
            self._places |= dict.fromkeys(facts.rare, len(levels))
            names = (*levels, "(rare)", "(new)", "(missing)")
            self.bins = Bins(names, frozenset({len(levels) + 1}), self._category_shares())
        else:
            self._edges, inner = _edges(facts)
            n_inner = max(1, len(self._edges) - 1)
            names = ("(below)", *(f"piece {place}" for place in range(n_inner)), "(above)", "(missing)")
            self.bins = Bins(names, frozenset({0, n_inner + 1}), self._number_shares(inner))

    def _category_shares(self) -> tuple[float, ...] | None:
        if not self.facts.shares:
            return None
        missing = self.facts.missing or 0.0
        rare = max(0.0, 1.0 - missing - sum(self.facts.shares))
        return (*self.facts.shares, rare, 0.0, missing)

    def _number_shares(self, inner: Sequence[float] | None) -> tuple[float, ...] | None:
        if inner is None:
            return None
        missing = self.facts.missing or 0.0
        return (0.0, *(share * (1.0 - missing) for share in inner), 0.0, missing)

    def place(self, cell: object) -> int:
        """Return the bin of a cell."""
        n_bins = len(self.bins.names)
        if cell is None:
            return n_bins - 1
        if not self._edges:
            text = _text(cell, self.facts.kind)
            return self._places.get(text, len(self.facts.levels) + 1) if self.facts.levels else 0
        number = _days(cell) if type(cell) is str else float(cast(float, cell))
        if number > self._edges[-1]:
            return n_bins - 2
        if number < self._edges[0]:
            return 0
        return max(1, min(bisect_left(self._edges, number), n_bins - 3))


class Drift:
    """Counts of rows and outcomes in windows; everything that it holds is bounded."""

    def __init__(self, facts: Sequence[ColumnFacts]) -> None:
        self._columns = [ColumnBins(one) for one in facts if not one.reason]
        self.rows, self.outcomes = 0, 0
        self._counts, self._old_counts = self._zeros(), self._zeros()
        self._pit, self._old_pit = [0] * PIT_BINS, [0] * PIT_BINS
        self._hits = [0.0, 0.0, 0.0]  # hits, sum of confidence, sum of its variance
        self._old_hits = [0.0, 0.0, 0.0]

    def places(self, cells: Mapping[str, Cells]) -> list[list[int]]:
        """Return for each row the bin of each column."""
        by_column = [[column.place(cell) for cell in cells[column.facts.name]] for column in self._columns]
        return [list(row) for row in zip(*by_column, strict=True)]

    def add(self, places: Sequence[Sequence[int]]) -> None:
        """Count rows."""
        for row in places:
            for counts, place in zip(self._counts, row, strict=True):
                counts[place] += 1
            self.rows += 1
            if self.rows % WINDOW == 0:
                self._old_counts, self._counts = self._counts, self._zeros()

    def judge(self, name: str, value: float, hit: float = 0.0) -> None:
        """Count an outcome: its PIT, or for a class the confidence, and whether it was right."""
        if name == "pit":
            self._pit[min(PIT_BINS - 1, int(PIT_BINS * value))] += 1
        else:
            added = (hit, value, value * (1.0 - value))
            self._hits = [total + one for total, one in zip(self._hits, added, strict=True)]
        self.outcomes += 1
        if self.outcomes % WINDOW == 0:
            self._old_pit, self._pit = self._pit, [0] * PIT_BINS
            self._old_hits, self._hits = self._hits, [0.0, 0.0, 0.0]

    def report(self) -> dict[str, Json]:
        """Return what /drift answers."""
        columns: list[Json] = []
        for column, new, old in zip(self._columns, self._counts, self._old_counts, strict=True):
            columns.append(self._column_report(column, [a + b for a, b in zip(new, old, strict=True)]))
        found: dict[str, Json] = {"rows": self.rows, "window": WINDOW, "columns": columns, "outcomes": self.outcomes}
        pit = [a + b for a, b in zip(self._pit, self._old_pit, strict=True)]
        if sum(pit):
            found["pit"] = _pit_report(pit)
        hits, confidence, variance = (a + b for a, b in zip(self._hits, self._old_hits, strict=True))
        if confidence:
            z = (hits - confidence) / math.sqrt(max(variance, 1e-12))
            found["classes"] = {"hits": hits, "expected_hits": confidence, "p_value": _two_sided(z)}
        return found

    def _column_report(self, column: ColumnBins, counts: list[int]) -> Json:
        facts, bins = column.facts, column.bins
        present, total = sum(counts[:-1]), sum(counts)
        outside = sum(counts[place] for place in bins.outside)
        found: dict[str, Json] = {"column": facts.name, "outside": outside / present if present else None}
        found["missing"] = counts[-1] / total if total else None
        found["stability_index"] = None if bins.shares is None or not total else _stability(counts, bins.shares)
        if facts.kind == "number":
            low, high = _range(facts)
            found |= {"low": low, "high": high, "range": "training" if facts.low is not None else f"mean ± {_FAR:g} sd"}
        return found

    def outside(self) -> dict[str, float]:
        """Return the share of cells outside the training range by column."""
        found = {}
        for column, new, old in zip(self._columns, self._counts, self._old_counts, strict=True):
            counts = [a + b for a, b in zip(new, old, strict=True)]
            present = sum(counts[:-1])
            found[column.facts.name] = sum(counts[at] for at in column.bins.outside) / present if present else 0.0
        return found

    def state(self) -> dict[str, Json]:
        """Return what a file must keep."""
        counts: Json = [list(one) for one in self._counts]
        old: Json = [list(one) for one in self._old_counts]
        pits: Json = [list(self._pit), list(self._old_pit)]
        hits: Json = [list(self._hits), list(self._old_hits)]
        state: dict[str, Json] = {"rows": self.rows, "outcomes": self.outcomes, "counts": counts, "old_counts": old}
        return state | {"pit": pits, "hits": hits}

    def restore(self, state: Mapping[str, Json]) -> None:
        """Take over what a file has kept.

        Raises
        ------
        ValueError, KeyError, TypeError
            If it is of other columns.
        """
        shape = [len(one) for one in self._counts]
        tables = [_counts_of(state[name]) for name in ("counts", "old_counts")]
        pit, hits = (_counts_of(state[name]) for name in ("pit", "hits"))
        rows, outcomes = state["rows"], state["outcomes"]
        fits = all([len(one) for one in table] == shape for table in tables)
        fits = fits and list(map(len, pit)) == [PIT_BINS] * 2 and list(map(len, hits)) == [3, 3]
        if not fits or type(rows) is not int or type(outcomes) is not int:
            raise ValueError("the state is of other columns.")
        self._counts, self._old_counts = ([list(map(int, one)) for one in table] for table in tables)
        self._pit, self._old_pit = (list(map(int, one)) for one in pit)
        self._hits, self._old_hits = hits
        self.rows, self.outcomes = rows, outcomes

    def _zeros(self) -> list[list[int]]:
        return [[0] * len(column.bins.names) for column in self._columns]


def _counts_of(given: Json) -> list[list[float]]:
    if type(given) is not list or any(type(one) is not list for one in given):
        raise ValueError("counts must be lists.")
    found = [list(cast(list[float], one)) for one in given]
    if any(type(number) not in (int, float) or not number >= 0 for one in found for number in one):
        raise ValueError("counts must be numbers.")
    return found


def _range(facts: ColumnFacts) -> tuple[float | None, float | None]:
    """Return the range of training, or where only mean and standard deviation are known, one about the mean."""
    if facts.low is not None:
        return facts.low, facts.high
    if facts.center is None or facts.spread is None:
        return None, None
    return facts.center - _FAR * facts.spread, facts.center + _FAR * facts.spread


def _edges(facts: ColumnFacts) -> tuple[list[float], list[float] | None]:
    """Return numbers that cut a column into pieces, and the share that each piece had in training if it is known."""
    low, high = _range(facts)
    if low is None or high is None:
        return [-math.inf, math.inf], None
    if facts.edges:
        edges = [low, *facts.edges[1:-1], high]
        return edges, [1.0 / (len(edges) - 1)] * (len(edges) - 1)
    if facts.has_median and facts.center is not None and low < facts.center < high:
        return [low, facts.center, high], [0.5, 0.5]
    return [low, high], [1.0] if facts.low is not None else None


def _stability(counts: Sequence[int], shares: Sequence[float]) -> float:
    """Return the population stability index: the sum over bins of (p - q) ln(p / q)."""
    total = sum(counts)
    pairs = [(max(n / total, _LEAST_SHARE), max(q, _LEAST_SHARE)) for n, q in zip(counts, shares, strict=True)]
    return sum((p - q) * math.log(p / q) for p, q in pairs)


def _pit_report(counts: list[int]) -> Json:
    """Return the histogram, and how probable one as uneven is if the predictions are right."""
    total = sum(counts)
    expected = total / len(counts)
    chi = sum((n - expected) ** 2 for n in counts) / expected
    freedom = len(counts) - 1
    # Wilson and Hilferty 1931: the cube root of chi squared over its degrees of freedom is about normal.
    spread = 2.0 / (9.0 * freedom)
    z = ((chi / freedom) ** (1.0 / 3.0) - (1.0 - spread)) / math.sqrt(spread)
    inside = sum(counts[1:-1]) / total  # bins of 0.05
    histogram: Json = list(counts)
    return {"histogram": histogram, "p_value": 1.0 - NormalDist().cdf(z), "inside_90": inside, "outcomes": total}


def _two_sided(z: float) -> float:
    return 2.0 * (1.0 - NormalDist().cdf(abs(z)))


def _text(cell: object, kind: str) -> str:
    """Return a cell of a category as the encoder reads it."""
    if kind == "boolean":
        from mile.features import parsing

        return parsing.FLAGS.get(str(cell).lower(), "") if type(cell) is not bool else ("no", "yes")[cell]
    if type(cell) is bool:
        return "yes" if cell else "no"
    if type(cell) in (int, float):
        number = cast(float, cell)
        return str(int(number)) if number == math.floor(number) else str(number)
    return str(cell)


def _days(text: str) -> float:
    """Return days since 1970; NaN, which is in no bin below or above, for another format."""
    try:
        return float((np.datetime64(text[:10], "D") - _EPOCH) / np.timedelta64(1, "D"))
    except ValueError:
        return math.nan
