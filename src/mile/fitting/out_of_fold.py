"""Honest scores without rows set aside: each row is predicted by the chains that left it out."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from mile.data import Dataset
from mile.fitting.result import Fit
from mile.fitting.rotation import Rotation


class Estimate(NamedTuple):
    """A score, and its standard error over rows."""

    value: float
    standard_error: float


@dataclass(frozen=True, eq=False)
class OutOfFold:
    """What chains that never saw a row say of it, for every row.

    Attributes
    ----------
    number
        Position of each row in the table that the user passed.
    weight
        How many times each row counts.
    row_scores
        Scores of single rows by name; of the mixture of the chains that left the row out.
    log_density
        Log density of each row under each chain alone, NaN where the chain has seen the row. Stacking takes it.
    """

    number: Int[np.ndarray, " row"]
    weight: Float[np.ndarray, " row"]
    row_scores: dict[str, Float[np.ndarray, " row"]]
    log_density: Float[np.ndarray, "chain row"]

    @property
    def scores(self) -> dict[str, Estimate]:
        """Mean of each score over the rows."""
        return {name: _mean(values, self.weight) for name, values in self.row_scores.items()}


def predict_out_of_fold(fit: Fit, dataset: Dataset) -> OutOfFold:
    """Predict every training row by the good chains that left it out.

    Parameters
    ----------
    fit
        Of this data set.
    dataset
        With rotating folds.

    Raises
    ------
    ValueError
        If the data set has no folds, or no good chain has left one of them out.
    """
    if dataset.folds is None:
        raise ValueError("dataset has no folds, so every chain has seen every row: prepare it with n_folds=4, say.")
    rotation, rows, encoded = Rotation.of(dataset.folds), dataset.train, fit.for_encoded
    y = fit.response.decode(rows.y)
    log_density = np.full((len(fit.status), len(rows)), np.nan)
    row_scores: dict[str, np.ndarray] = {}
    for fold in range(rotation.n_folds):
        unseen = np.flatnonzero(dataset.folds == fold)
        places = [place for place in np.flatnonzero(fit.ok).tolist() if rotation.left_out(place) == fold]
        if not places:
            raise ValueError(f"no good chain has left out fold {fold}, so its rows have no honest prediction.")
        for place in places:
            log_density[place, unseen] = encoded.predictive(rows.x[unseen], chains=[place]).log_prob(y[unseen])
        for name, values in encoded.predictive(rows.x[unseen], chains=places).row_scores(y[unseen]).items():
            row_scores.setdefault(name, np.empty(len(rows)))[unseen] = values
    return OutOfFold(rows.number, rows.weight, row_scores, log_density)


def _mean(values: Float[np.ndarray, " row"], weight: Float[np.ndarray, " row"]) -> Estimate:
    """Return the weighted mean, and its standard error if the rows are independent."""
    share = weight / weight.sum()
    mean = float(share @ values)
    return Estimate(mean, float(np.sqrt(np.square(share) @ np.square(values - mean) * len(values) / (len(values) - 1))))
