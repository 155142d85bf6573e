"""What a student learns from a fit: rows in, around and beyond the table, and what all draws together say of them."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from mile.features.base import Encoded
from mile.fitting._herding import crossed, evenly
from mile.fitting.compression import Source
from mile.fitting.result import Fit
from mile.predict import DEFAULT_MEMORY, DrawMixture, predict

FARTHEST = 6.0  # standard deviations that rows are moved by: rows that are five away then have rows around them
_FEW_VALUES = 10  # a column with no more is a category or a grade: nothing lies beyond it
_LOOKED_AT = 2_000  # rows, to count the values of a column
_DRAWS = 1_024  # whose outputs are sorted for the targets of a row
_VALUES = 8  # of y for each row
_DIRECTIONS = 4  # besides the outputs themselves, for what two of them say together
_SMALLEST_SPREAD = 1e-3  # of that of the median row, below which a row's own does not count
_TINY = 1e-9


class Lessons(NamedTuple):
    """Rows with what a fit says of each.

    Attributes
    ----------
    x, y
        Features, and encoded values that the fit expects there, several for each row.
    near
        Whether the row is like those to predict; others are moved beyond them.
    targets
        What the outputs of so many networks should be, along each direction, from the lowest to the highest.
    spread
        Standard deviation of all outputs along each direction, the unit of a miss.
    """

    x: Float[np.ndarray, "row feature"]
    y: np.ndarray
    near: Bool[np.ndarray, " row"]
    targets: Float[np.ndarray, "row network direction"]
    spread: Float[np.ndarray, "row direction"]


def practice_rows(
    x: Encoded, n_rows: int, rng: np.random.Generator, *, is_table: bool
) -> tuple[Encoded, Bool[np.ndarray, " row"]]:
    """Return about so many rows to learn from, and which of them are like those to predict.

    A third each: rows as they are; rows between two, with each feature from one of them or on the line between them;
    and rows whose columns of numbers, one to all of them, are moved in a random direction. Rows that are no table, such
    as texts, have nothing on a line and nothing beyond.
    """
    part = max(1, n_rows // 3)
    mixed = crossed(x, 2 * part, rng)
    numeric = np.flatnonzero([len(np.unique(column)) > _FEW_VALUES for column in x[:_LOOKED_AT].T])
    if not is_table or not len(numeric):
        return mixed, np.ones(len(mixed), bool)
    on_line = np.arange(len(mixed) - max(1, part // 2), len(mixed))
    first, second = x[rng.integers(len(x), size=(2, len(on_line)))][..., numeric]
    along = rng.random((len(on_line), 1))
    mixed[np.ix_(on_line, numeric)] = along * first + (1.0 - along) * second
    beyond = crossed(x, part, rng)
    share = rng.choice([1.0 / len(numeric), 0.5, 1.0], size=(part, 1))
    step = rng.normal(size=(part, len(numeric))) * (rng.random((part, len(numeric))) < share)
    step /= np.maximum(np.linalg.norm(step, axis=1, keepdims=True), _TINY)
    beyond[:, numeric] += FARTHEST * rng.random((part, 1)) * step * x[:, numeric].std(axis=0)
    return np.concatenate([mixed, beyond]).astype(np.float32), np.arange(len(mixed) + part) < len(mixed)


def directions_of(
    outputs: Float[np.ndarray, "draw output row"], rng: np.random.Generator
) -> Float[np.ndarray, "output direction"]:
    """Return each output, and a few directions through several, each in units of its spread over draws."""
    n_outputs = outputs.shape[1]
    found = np.eye(n_outputs)
    if n_outputs > 1:
        others = rng.normal(size=(n_outputs, min(_DIRECTIONS, n_outputs)))
        found = np.concatenate([found, others / np.linalg.norm(others, axis=0)], axis=1)
    return (found / (outputs.std(axis=0).mean(axis=-1) + _TINY)[:, None]).astype(np.float32)


def lessons(
    fit: Fit, source: Source, x: Encoded, near: Bool[np.ndarray, " row"], n_networks: int, rng: np.random.Generator
) -> tuple[Lessons, Float[np.ndarray, "output direction"]]:
    """Return what the draws of a fit say of rows, and the directions that their outputs are sorted along."""
    draws = source.draws[evenly(source.weights, len(source.draws), _DRAWS)]
    mixture = DrawMixture(fit.network, fit.likelihood, draws, x, DEFAULT_MEMORY)
    directions = directions_of(mixture.head(_LOOKED_AT).over_blocks(np.asarray), rng)

    def sort(outputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        along = np.sort(np.einsum("dor,op->pdr", outputs, directions), axis=1)
        edges = np.linspace(0, len(draws), n_networks + 1).round().astype(int)
        targets = np.add.reduceat(along, edges[:-1], axis=1) / np.diff(edges)[:, None]
        # Means of neighbors vary less than what they are means of: the variance is that of all again.
        center, spread = along.mean(axis=1, keepdims=True), along.std(axis=1, keepdims=True)
        wider = spread / np.maximum(targets.std(axis=1, keepdims=True), _TINY)
        return center + (targets - center) * wider, spread[:, 0]

    targets, spread = mixture.over_blocks(sort)
    least = _SMALLEST_SPREAD * np.median(spread, axis=1, keepdims=True) + _TINY
    predictive = predict(fit.network, fit.likelihood, draws, x, fit.response)
    values = predictive.sample(_VALUES, int(rng.integers(2**31)))
    taught = Lessons(
        x=x,
        y=np.stack([fit.response.encode(one) for one in values], axis=1),
        near=near,
        targets=np.transpose(targets, (2, 1, 0)).astype(np.float32),
        spread=np.maximum(spread, least).T.astype(np.float32),
    )
    return taught, directions
