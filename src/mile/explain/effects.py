"""What the model believes about one column: curves of partial dependence and of accumulated local effects."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from mile.explain._columns import Column, ColumnTable
from mile.explain._thinned import ThinnedFit
from mile.likelihoods.base import PerDraw
from mile.likelihoods.weights import DrawWeights

_POINTS = 20  # of a curve
_MOST_LEVELS = 12  # of a category
_BACKGROUND = 200  # rows that partial dependence averages over


class Band(NamedTuple):
    """A curve with two kinds of uncertainty."""

    mean: Float[np.ndarray, " point"]
    epistemic: Float[np.ndarray, " point"]  # standard deviation over draws: how sure the model is of the curve
    aleatoric: Float[np.ndarray, " point"]  # standard deviation of y around it, which more data would not remove

    def epistemic_band(self, width: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
        """Return mean less and plus `width` standard deviations over draws."""
        return self.mean - width * self.epistemic, self.mean + width * self.epistemic


@dataclass(frozen=True, kw_only=True, eq=False)
class Effect:
    """How the prediction changes with one column.

    Attributes
    ----------
    name, kind
        Of the column.
    value
        Where the curves are: numbers, days since 1970, or places of levels.
    label
        The same as people write them.
    dependence
        Partial dependence: the prediction, averaged over rows in which the column is set to the value.
    accumulated
        Accumulated local effects: differences of predictions of rows near each value, added up; their mean is zero.
        They ask nothing of rows that do not occur. None for categories, which have no neighbors.
    rows
        How many rows are nearest to each value.
    quantity
        What is predicted, such as "mean".
    """

    name: str
    kind: str
    value: Float[np.ndarray, " point"]
    label: tuple[str, ...]
    dependence: Band
    accumulated: Band | None
    rows: Int[np.ndarray, " point"]
    quantity: str

    def frame(self) -> dict[str, np.ndarray]:
        """Return a table with a row for each point."""
        written = np.array(self.label, object)
        is_number = self.kind in ("number", "date")
        found = {"column": np.full(len(written), self.name, object), "value": self.value if is_number else written}
        found |= {f"dependence_{name}": values for name, values in self.dependence._asdict().items()}
        if self.accumulated is not None:
            found |= {f"accumulated_{name}": values for name, values in self.accumulated._asdict().items()}
        return found | {"rows": self.rows}


def effect(fit: ThinnedFit, table: ColumnTable, place: int, quantity: str, rng: np.random.Generator) -> Effect:
    """Return the effect of one column.

    Parameters
    ----------
    fit
        To ask.
    table
        Rows to average over, and to take values from.
    place
        Of the column.
    quantity
        What is predicted.
    rng
        Chooses the rows of partial dependence.
    """
    column = table.columns[place]
    points = grid(column)
    background = rng.permutation(len(table))[:_BACKGROUND]
    stacked = np.concatenate([_set(table, background, place, donor) for donor in points])
    value, noise = fit.per_draw(stacked)
    weights = fit.weights(table.x)
    shape = (len(value), len(points), len(background))
    dependence = _band(value.reshape(shape).mean(axis=2), np.square(noise).reshape(shape).mean(axis=2), weights)
    is_curve = not column.is_category and len(points) > 1
    return Effect(
        name=column.name,
        kind=column.kind,
        value=column.values[points],
        label=tuple(column.spelled(value) for value in column.values[points]),
        dependence=dependence,
        accumulated=_accumulated(fit, table, place, points, weights) if is_curve else None,
        rows=_nearest_counts(column, points),
        quantity=quantity,
    )


def grid(column: Column, n_points: int = _POINTS) -> Int[np.ndarray, " point"]:
    """Return rows whose values are at even quantiles, or have the most frequent levels, in order of the values."""
    known = np.flatnonzero(~np.isnan(column.values))
    if not len(known):
        return np.zeros(1, int)
    distinct, first, count = np.unique(column.values[known], return_index=True, return_counts=True)
    if column.is_category:
        frequent = np.sort(np.argsort(-count, kind="stable")[:_MOST_LEVELS])
        return known[first[frequent]]
    if len(distinct) > n_points:
        ordered = known[np.argsort(column.values[known], kind="stable")]
        chosen = ordered[np.linspace(0, len(ordered) - 1, n_points).round().astype(int)]
        return chosen[np.unique(column.values[chosen], return_index=True)[1]]
    return known[first]


def _set(table: ColumnTable, rows: Int[np.ndarray, " chosen"], place: int, donor: int) -> np.ndarray:
    """Return rows whose column has the value of another row."""
    changed, features = table.x[rows].copy(), table.columns[place].features
    changed[:, features] = table.x[donor, features]
    return changed


def _accumulated(
    fit: ThinnedFit, table: ColumnTable, place: int, points: Int[np.ndarray, " point"], weights: DrawWeights
) -> Band:
    """Return accumulated local effects at the points (Apley and Zhu 2020)."""
    column = table.columns[place]
    known = np.flatnonzero(~np.isnan(column.values))
    edges = column.values[points]
    # Each row lies between two neighboring points; those at the lowest belong to the first interval.
    interval = np.clip(np.searchsorted(edges, column.values[known], side="left") - 1, 0, len(points) - 2)
    features = column.features
    lower, upper = table.x[known].copy(), table.x[known].copy()
    lower[:, features] = table.x[np.ix_(points[interval], features)]
    upper[:, features] = table.x[np.ix_(points[interval + 1], features)]
    (low, low_noise), (high, high_noise) = fit.per_draw(lower), fit.per_draw(upper)
    count = np.bincount(interval, minlength=len(points) - 1)
    slopes = _means_by(interval, high - low, count)
    curve = np.concatenate([np.zeros((len(low), 1)), np.cumsum(slopes, axis=1)], axis=1)
    curve -= ((0.5 * (curve[:, 1:] + curve[:, :-1])) @ (count / count.sum()))[:, None]
    at = np.concatenate([interval, interval + 1])
    noise = np.square(np.concatenate([low_noise, high_noise], axis=1))
    return _band(curve, _means_by(at, noise, np.bincount(at, minlength=len(points))), weights)


def _means_by(group: Int[np.ndarray, " row"], values: PerDraw, count: np.ndarray) -> Float[np.ndarray, "draw group"]:
    """Return means over the rows of each group."""
    member = np.zeros((len(group), len(count)))
    member[np.arange(len(group)), group] = 1.0 / np.maximum(count[group], 1)
    return values @ member


def _band(curve: PerDraw, noise: PerDraw, weights: DrawWeights) -> Band:
    return Band(weights.mean(curve), np.sqrt(weights.variance(curve)), np.sqrt(weights.mean(noise)))


def _nearest_counts(column: Column, points: Int[np.ndarray, " point"]) -> Int[np.ndarray, " point"]:
    at, values = column.values[points], column.values[~np.isnan(column.values)]
    if column.is_category:
        return (values[:, None] == at).sum(axis=0)
    nearest = np.searchsorted(0.5 * (at[1:] + at[:-1]), values)
    return np.bincount(nearest, minlength=len(points))
