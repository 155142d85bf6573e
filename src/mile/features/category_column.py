"""A column of categories: a row of features for each level, learned once and looked up from then on."""

import json
from dataclasses import dataclass
from typing import Self

import numpy as np
from jaxtyping import Float, Int

from mile._errors import UntrustedFileError
from mile._json import Json
from mile.features.base import ColumnFacts, Tensors
from mile.features.columns import (
    LARGEST,
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
    texts_in,
)
from mile.features.number_column import MISSING
from mile.features.numbers import Standardizer
from mile.features.target_means import cross_fitted_means, shrunken_means
from mile.features.values import AbstractValues, Texts

_SHOWN = 5  # levels in a description
_MOST_KEPT = 100_000  # levels: the most frequent ones of a column that has more
_LONGEST_JSON = 1 << 26  # bytes
_LARGEST_FEATURE = 1.001 * LARGEST  # float32 rounds
_OTHER, _NEW = " (other)", " (new)"
_N_OTHER = 3  # rows of the table that are no levels: rare texts, new ones, missing values


@dataclass(frozen=True, kw_only=True, eq=False)
class CategoryColumn(AbstractColumn):
    """Levels with their features.

    Attributes
    ----------
    levels
        The texts that have features of their own, in alphabetical order.
    rare
        The texts that are pooled, as far as they are kept.
    table
        The features of each level, of rare texts, of new ones, and of a missing value: three rows more than levels.
    features
        What to add to the column's name to name each feature.
    missing
        Share of the training rows without a value.
    is_boolean
        Whether the texts are yes and no in any spelling.
    has_means
        Whether the features are means of the response and a frequency, not indicators.
    """

    kind = "category"

    levels: tuple[str, ...]
    rare: tuple[str, ...]
    table: Float[np.ndarray, "level feature"]
    features: tuple[str, ...]
    missing: float = 0.0
    is_boolean: bool = False
    has_means: bool = False

    @classmethod
    def learn(cls, values: AbstractValues, learning: Learning, *, is_boolean: bool = False) -> Self | None:
        """Learn from training rows; None if none of them has a value.

        Rare levels are pooled. Up to a bound there is an indicator for each level, for the pooled ones and for a
        missing value; for two of these there is one feature. Above it there are a mean of each target, shrunken to
        that of all rows, and a frequency; without targets the most frequent levels have indicators, all others are
        pooled.
        """
        texts = values.flags() if is_boolean else values.texts()
        if texts.missing().all():
            return None
        fewest_rows = 0 if is_boolean else learning.fewest_rows
        levels, rare = _split(texts, learning.weight, fewest_rows, _MOST_KEPT)
        by_target = len(levels) > learning.most_levels and learning.targets is not None
        if len(levels) > learning.most_levels and not by_target:
            levels, rare = _split(texts, learning.weight, fewest_rows, learning.most_levels)
        groups = _codes(texts, levels, rare) % (len(levels) + _N_OTHER)  # the last for -1
        counts = np.bincount(groups, learning.weight, len(levels) + _N_OTHER)
        table, features = (_by_target if by_target else _by_indicators)(groups, counts, levels, learning)
        return cls(
            levels=levels,
            rare=rare[:_MOST_KEPT],
            table=table.astype(np.float32),
            features=features,
            missing=float(counts[-1] / counts.sum()),
            is_boolean=is_boolean,
            has_means=by_target,
        )

    @property
    def is_by_target(self) -> bool:
        """Whether the features are means."""
        return self.has_means

    @property
    def labels(self) -> tuple[str, ...]:
        """Levels, or means and a frequency."""
        return self.features

    def read(self, values: AbstractValues) -> Texts:
        """Return values as texts with the levels of the column, one more for rare texts and one for new ones."""
        texts = values.flags() if self.is_boolean else values.texts()
        return Texts(codes=_codes(texts, self.levels, self.rare), levels=(*self.levels, _OTHER, _NEW))

    def write_into(self, values: AbstractValues, out: Float[np.ndarray, "row feature"], rows: slice) -> Counts:
        """Write each row's features."""
        codes = values.texts().codes[rows]
        out[...] = self.table[codes]  # -1, a missing value, is the last row
        filled = int(np.count_nonzero(codes < 0)) if self.missing == 0 else 0
        return Counts(filled=filled, unseen=int(np.count_nonzero(codes == len(self.levels) + 1)))

    def write_training(self, values: AbstractValues, out: Float[np.ndarray, "row feature"], learning: Learning) -> None:
        """Write means of other rows' responses where the features are such means."""
        if not self.has_means or learning.targets is None:
            return super().write_training(values, out, learning)
        groups = values.texts().codes % len(self.table)
        counts = np.bincount(groups, learning.weight, len(self.table))
        raw = _means_and_frequency(groups, counts, learning)
        means = cross_fitted_means(groups, learning.targets, learning.weight, len(counts))
        out[...] = _scaled(np.column_stack([means, raw[groups, -1]]), raw, counts)
        return None

    def describe(self, name: str) -> ColumnReport:
        """Say what the levels are and how they were encoded."""
        kind = "boolean" if self.is_boolean else self.kind
        shown = ", ".join(level[:40] for level in self.levels[:_SHOWN])
        more = ", …" if len(self.levels) > _SHOWN else ""
        has_other = _OTHER in self.features
        values = f"{len(self.levels)} levels: {shown}{more}" + ("; rare ones pooled" if has_other else "")
        how = "indicators" if len(self.features) > 1 else "one indicator"
        treatment = "cross-fitted means of the response, and frequency" if self.has_means else how
        return ColumnReport(name, kind, values, self.missing, treatment)

    def facts(self, name: str) -> ColumnFacts:
        """Return the levels; and their shares, which indicators are centered by."""
        kind, shares = "boolean" if self.is_boolean else self.kind, self._shares()
        found = ColumnFacts(name, kind, levels=self.levels, shares=shares, rare=self.rare, missing=self.missing)
        if not self.levels:
            return found
        often = np.argmax(shares or self.table[: len(self.levels), -1])  # the last mean is a frequency
        return found._replace(usual=self.levels[int(often)])

    def _shares(self) -> tuple[float, ...]:
        """Return the share of each level; empty where features are means, which do not say.

        An indicator is (1 - share) / scale in the rows of its level, and -share / scale in all others.
        """
        if self.has_means or len(self.levels) < 2:
            return () if self.has_means else (1.0 - self.missing,) * len(self.levels)
        found = []
        for place, level in enumerate(self.levels):
            if f" = {level}" not in self.features:  # of two groups the second alone has a feature
                found.append(None)
                continue
            feature = self.table[:, self.features.index(f" = {level}")].astype(np.float64)
            other = float(feature[(place + 1) % len(self.levels)])
            found.append(-other / (float(feature[place]) - other))
        rest = max(0.0, 1.0 - self.missing - sum(share for share in found if share is not None))
        return tuple(rest if share is None else share for share in found)

    def fields(self) -> dict[str, Json]:
        """Return all but levels and table."""
        flags: dict[str, Json] = {"is_boolean": self.is_boolean, "has_means": self.has_means}
        return flags | {"features": list(self.features), "missing": self.missing}

    def tensors(self) -> dict[str, np.ndarray]:
        """Return the table, and the texts as JSON in UTF-8."""
        texts = {"levels": self.levels, "rare": self.rare}
        return {"table": self.table} | {
            name: np.frombuffer(json.dumps(found).encode(), np.uint8) for name, found in texts.items()
        }

    @classmethod
    def restore(cls, fields: Fields, tensors: Tensors) -> Self:
        """Return the column that a file has kept."""
        names = {"is_boolean", "has_means", "features", "missing"}
        expect(fields, tensors, names, frozenset({"levels", "rare", "table"}))
        levels, rare, table = _read_texts(tensors["levels"]), _read_texts(tensors["rare"]), tensors["table"]
        features = texts_in(fields, "features")
        if len({*levels, *rare}) != len(levels) + len(rare):
            raise UntrustedFileError("the levels of a category must all be different.")
        if table.dtype != np.float32 or table.shape != (len(levels) + _N_OTHER, len(features)):
            raise UntrustedFileError("the table of a category must have a row of features in float32 for each level.")
        if not (np.abs(table) <= _LARGEST_FEATURE).all():  # NaN is not
            raise UntrustedFileError(f"the features of a category must be between ±{_LARGEST_FEATURE}.")
        return cls(
            levels=levels,
            rare=rare,
            table=table,
            features=features,
            missing=number_in(fields, "missing", 0.0, 1.0),
            is_boolean=flag_in(fields, "is_boolean"),
            has_means=flag_in(fields, "has_means"),
        )


def _split(
    texts: Texts, weight: Float[np.ndarray, " row"], fewest_rows: int, most: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the most frequent levels, unless they are rare, and all others; both in alphabetical order."""
    counts = np.bincount(texts.codes + 1, weight, len(texts.levels) + 1)[1:].tolist()
    occurring = sorted(zip((-count for count in counts), texts.levels, strict=True))
    n_frequent = sum(count >= fewest_rows and count > 0 for count in counts)
    names = [level for negative, level in occurring if negative < 0]
    cut = min(n_frequent, most)
    return tuple(sorted(names[:cut])), tuple(sorted(names[cut:]))


def _codes(texts: Texts, levels: tuple[str, ...], rare: tuple[str, ...]) -> Int[np.ndarray, " row"]:
    """Return the place of each text among levels, the next number for rare texts, one more for new ones, or -1."""
    places = {level: place for place, level in enumerate(levels)} | dict.fromkeys(rare, len(levels))
    table = [places.get(level, len(levels) + 1) for level in texts.levels]
    return np.array([*table, -1], np.int32)[texts.codes]


def _by_indicators(
    groups: Int[np.ndarray, " row"], counts: Float[np.ndarray, " group"], levels: tuple[str, ...], learning: Learning
) -> tuple[Float[np.ndarray, "group feature"], tuple[str, ...]]:
    """Return a feature for each group that occurs, the second alone for two, none for one."""
    occurs = counts > 0
    names = np.array([*(f" = {level}" for level in levels), _OTHER, _NEW, MISSING], object)[occurs]
    kept = slice(1, None) if len(names) <= 2 else slice(None)
    table = np.zeros((len(counts), len(names[kept])))  # zero, the average of all rows, for what does not occur
    table[occurs] = indicators(counts[occurs] / counts.sum())[:, kept]
    _fill_unknown(table, counts)
    return table, tuple(map(str, names[kept]))


def _by_target(
    groups: Int[np.ndarray, " row"], counts: Float[np.ndarray, " group"], levels: tuple[str, ...], learning: Learning
) -> tuple[Float[np.ndarray, "group feature"], tuple[str, ...]]:
    raw = _means_and_frequency(groups, counts, learning)
    n_means = raw.shape[1] - 1
    means = tuple(f" (mean of y{f' {place}' * (n_means > 1)})" for place in range(n_means))
    table = _scaled(raw, raw, counts)
    _fill_unknown(table, counts)
    return table, (*means, " (frequency)")


def _fill_unknown(table: Float[np.ndarray, "group feature"], counts: Float[np.ndarray, " group"]) -> None:
    """Let new texts, and missing values if training had none, be like rare texts."""
    table[-2] = table[-3]
    if counts[-1] == 0:
        table[-1] = table[-3]


def _means_and_frequency(
    groups: Int[np.ndarray, " row"], counts: Float[np.ndarray, " group"], learning: Learning
) -> Float[np.ndarray, "group feature"]:
    assert learning.targets is not None
    means = shrunken_means(groups, learning.targets, learning.weight, len(counts))
    return np.column_stack([means, np.log1p(counts)])


def _scaled(
    features: Float[np.ndarray, "row feature"],
    of_groups: Float[np.ndarray, "group feature"],
    counts: Float[np.ndarray, " group"],
) -> Float[np.ndarray, "row feature"]:
    """Return features on the scale on which those of the training rows, one per group, have unit variance."""
    plain = Standardizer.learn(of_groups, None, counts)
    return smooth_clip((features - plain.shift) / plain.scale)


def _read_texts(data: np.ndarray) -> tuple[str, ...]:
    if data.dtype != np.uint8 or data.ndim != 1 or len(data) > _LONGEST_JSON:
        raise UntrustedFileError(f"the levels of a category must be at most {_LONGEST_JSON:,} bytes of text.")
    try:
        return texts_in({"levels": json.loads(data.tobytes())}, "levels")
    except (ValueError, RecursionError) as error:
        raise UntrustedFileError("the levels of a category are not readable.") from error
