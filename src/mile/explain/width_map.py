"""Where the model is unsure: how wide its predictions are over two columns."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from mile.explain._columns import Column, ColumnTable
from mile.explain._thinned import ThinnedFit
from mile.explain.effects import grid

_POINTS = 8  # along each column
_BACKGROUND = 12  # rows that each cell is averaged over


@dataclass(frozen=True, kw_only=True, eq=False)
class WidthMap:
    """The standard deviation of the response over the values of two columns.

    Attributes
    ----------
    names, labels
        Of the columns, and their values in words.
    width
        Root of the mean variance, noise and ignorance together, of rows whose two columns are set to the values.
    rows
        How many rows are nearest to each pair of values.
    quantity
        What is predicted, such as "mean".
    """

    names: tuple[str, str]
    labels: tuple[tuple[str, ...], tuple[str, ...]]
    width: Float[np.ndarray, "first second"]
    rows: Int[np.ndarray, "first second"]
    quantity: str


def width_map(
    model: ThinnedFit, table: ColumnTable, first: int, second: int, quantity: str, rng: np.random.Generator
) -> WidthMap:
    """Return the map of two columns, by their places."""
    places = first, second
    columns = tuple(table.columns[place] for place in places)
    points = tuple(grid(column, _POINTS) for column in columns)
    background = rng.permutation(len(table))[:_BACKGROUND]
    sizes = len(points[0]), len(points[1]), len(background)
    at = np.indices(sizes).reshape(3, -1)
    changed = table.x[background[at[2]]].copy()
    for column, donors, place in zip(columns, points, at, strict=False):
        changed[:, column.features] = table.x[np.ix_(donors[place], column.features)]
    value, noise = model.per_draw(changed)
    weights = model.weights(changed)
    variance = (weights.variance(value) + weights.mean(np.square(noise))).reshape(sizes)
    rows = np.zeros(sizes[:2], int)
    cells = [_nearest(column, donors) for column, donors in zip(columns, points, strict=True)]
    known = (cells[0] >= 0) & (cells[1] >= 0)
    np.add.at(rows, (cells[0][known], cells[1][known]), 1)
    spelled = [
        tuple(column.spelled(float(value)) for value in column.values[donors])
        for column, donors in zip(columns, points, strict=True)
    ]
    names = columns[0].name, columns[1].name
    return WidthMap(
        names=names, labels=(spelled[0], spelled[1]), width=np.sqrt(variance.mean(axis=2)), rows=rows, quantity=quantity
    )


def _nearest(column: Column, points: Int[np.ndarray, " point"]) -> Int[np.ndarray, " row"]:
    """Return which of the points each row is nearest to; -1 if it has none."""
    at, values = column.values[points], column.values
    missing = np.isnan(values)
    distance = np.abs(np.where(missing, 0.0, values)[:, None] - at)
    found = np.argmin(np.where(np.isnan(distance), np.inf, distance), axis=1)
    is_there = ~missing & (~column.is_category | (distance[np.arange(len(values)), found] == 0.0))
    return np.where(is_there, found, -1)
