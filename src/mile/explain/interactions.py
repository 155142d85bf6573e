"""Which pairs of columns the model does not simply add: the part of their joint effect that neither has alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float, Int

from mile.explain._columns import ColumnTable
from mile.explain._thinned import ThinnedFit
from mile.likelihoods.base import PerDraw
from mile.likelihoods.weights import DrawWeights

MOST_COLUMNS = 5  # whose pairs are asked: each pair costs as much as a curve of partial dependence
_POINTS = 32  # rows whose values of both columns are asked
_BACKGROUND = 32  # rows that each of them is averaged over
_LEVEL = 0.9


@dataclass(frozen=True, kw_only=True, eq=False)
class Interaction:
    """How far the joint effect of two columns is from the sum of their effects.

    Attributes
    ----------
    first, second
        Names of the columns.
    strength
        Root of the mean square, over rows, of what their joint partial dependence has beyond the sum of both, by the
        mean of all draws; in the unit of the prediction.
    interval
        90 % interval over draws of the strength along the mean: it holds zero if draws do not agree on an interaction.
    share
        The square of the strength over the variance of the joint effect, which is Friedman and Popescu's H squared.
    """

    first: str
    second: str
    strength: float
    interval: tuple[float, float]
    share: float


def interactions(
    model: ThinnedFit,
    table: ColumnTable,
    places: Sequence[int],
    rng: np.random.Generator,
    advance: Callable[[int], None] = lambda amount: None,
) -> list[Interaction]:
    """Return all pairs of some columns, the strongest first (Friedman and Popescu 2008, section 8.1).

    Parameters
    ----------
    model
        To ask.
    table
        Rows to take values from and to average over.
    places
        Of the columns.
    rng
        Chooses the rows.
    advance
        Is told of each pair that is done.
    """
    points, background = (rng.permutation(len(table))[:most] for most in (_POINTS, _BACKGROUND))
    weights = model.weights(table.x)
    alone = {place: _dependence(model, table, [place], points, background) for place in places}
    found = []
    for first, second in combinations(places, 2):
        joint = _dependence(model, table, [first, second], points, background)
        found.append(_interaction(table, (first, second), joint, joint - alone[first] - alone[second], weights))
        advance(1)
    return sorted(found, key=lambda one: -one.strength)


def frame(found: Sequence[Interaction]) -> dict[str, np.ndarray]:
    """Return a table of pairs."""
    lower, upper = np.array([one.interval for one in found]).reshape(-1, 2).T
    return {
        "first": np.array([one.first for one in found], object),
        "second": np.array([one.second for one in found], object),
        "strength": np.array([one.strength for one in found]),
        "lower_90": lower,
        "upper_90": upper,
        "share": np.array([one.share for one in found]),
    }


def _dependence(
    model: ThinnedFit,
    table: ColumnTable,
    places: Sequence[int],
    points: Int[np.ndarray, " point"],
    background: Int[np.ndarray, " row"],
) -> Float[np.ndarray, "draw point"]:
    """Return centered partial dependence on some columns at the values of some rows, under each draw."""
    features = np.concatenate([table.columns[place].features for place in places])
    changed = np.tile(table.x[background], (len(points), 1))
    changed[:, features] = np.repeat(table.x[np.ix_(points, features)], len(background), axis=0)
    value, _ = model.per_draw(changed)
    found = value.reshape(len(value), len(points), len(background)).mean(axis=2)
    return found - found.mean(axis=1, keepdims=True)


def _interaction(
    table: ColumnTable, pair: tuple[int, int], joint: PerDraw, beyond: PerDraw, weights: DrawWeights
) -> Interaction:
    mean = weights.mean(beyond)
    strength = float(np.sqrt(np.mean(np.square(mean))))
    # What each draw has along the mean: its mean is the strength, and noise of single draws is no part of it.
    along = beyond @ mean / (len(mean) * (strength or 1.0))
    lower, upper = (float(weights.quantile(along, 0.5 + side * _LEVEL / 2)) for side in (-1, 1))
    variance = float(np.mean(np.square(weights.mean(joint))))
    first, second = (table.names[place] for place in pair)
    share = strength**2 / variance if variance > 0.0 else 0.0
    return Interaction(first=first, second=second, strength=strength, interval=(lower, upper), share=share)
