"""What a comparison needs of a model: scores of single rows, where these rows stand, and what the model cost."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from mile.fitting.result import Fit

OfRow = Float[np.ndarray, " row"]
_CRPS_DRAWS = 60  # the score takes the square of them; out-of-fold scores have as many


class Cost(NamedTuple):
    """What a model took and what it is made of."""

    seconds: float | None  # of the fit; None if nobody noted it
    gradient_evaluations: int  # on all rows, of all chains
    n_draws: int
    n_weights: int  # of one network


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """One model on some rows.

    Attributes
    ----------
    name
        For tables and pictures.
    number
        Which row each score is of: its position in the user's table.
    weight
        How many times each row counts.
    row_scores
        Scores of single rows by name, as `AbstractPredictive.row_scores` gives them.
    mean, distance
        Predicted means and their distances to what was observed, which tell whether models saw the same; None of
        classes.
    cost
        What the model took.
    """

    name: str
    number: Int[np.ndarray, " row"]
    weight: OfRow
    row_scores: Mapping[str, OfRow]
    cost: Cost
    mean: OfRow | None = None
    distance: OfRow | None = None

    def take(self, number: Int[np.ndarray, " chosen"]) -> "Candidate":
        """Return the same of the rows with these numbers, in their order."""
        order = np.argsort(self.number)
        rows = order[np.searchsorted(self.number, number, sorter=order)]
        return Candidate(
            name=self.name,
            number=number,
            weight=self.weight[rows],
            row_scores={name: values[rows] for name, values in self.row_scores.items()},
            cost=self.cost,
            mean=None if self.mean is None else self.mean[rows],
            distance=None if self.distance is None else self.distance[rows],
        )


def by_left_out_rows(name: str, fit: Fit, seconds: float | None = None) -> Candidate:
    """Return a fit on its training rows, each predicted by chains that left it out.

    Raises
    ------
    ValueError
        If it has no such predictions.
    """
    found = fit.out_of_fold
    if found is None:
        raise ValueError(
            f"{name} has no out-of-fold scores, because no folds rotated when it was fitted: give rows to compare by "
            "(X and y, or --data), or fit it with folds."
        )
    return Candidate(
        name=name,
        number=found.number,
        weight=found.weight,
        row_scores=found.row_scores,
        cost=cost_of(fit, seconds),
        mean=found.values.get("mean"),
        distance=found.values.get("distance"),
    )


def by_rows(
    name: str,
    fit: Fit,
    x: Float[np.ndarray, "row feature"],
    y: np.ndarray,
    weight: OfRow | None = None,
    seconds: float | None = None,
) -> Candidate:
    """Return a fit on rows of encoded features whose outcome is known."""
    encoded = fit.for_encoded
    few = encoded.thinned(max(1, _CRPS_DRAWS // max(1, int(fit.ok.sum()))))
    scores = encoded.predictive(x).row_scores(y, few.predictive(x))
    counted = np.ones(len(y)) if weight is None else np.asarray(weight, np.float64)
    return Candidate(name=name, number=np.arange(len(y)), weight=counted, row_scores=scores, cost=cost_of(fit, seconds))


def cost_of(fit: Fit, seconds: float | None) -> Cost:
    """Return what a fit took."""
    n_draws = int(fit.ok.sum()) * fit.chains.logdensity.shape[1]
    return Cost(seconds, int(fit.chains.gradient_evaluations.sum()), n_draws, fit.network.dimension)
