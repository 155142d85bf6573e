"""What a regressor predicts of survival times and of other responses with limits."""

from typing import cast

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from mile.estimators._base import AbstractMileEstimator
from mile.features.accepted import InputLike
from mile.likelihoods.survival import SurvivalPredictive

PerRow = Float[np.ndarray, " row"]


class AbstractSurvivalModel(AbstractMileEstimator):
    """The methods for responses with limits; of others they raise an error that says so."""

    def predict_survival(
        self, X: InputLike, times: ArrayLike, level: float | None = None
    ) -> "Float[np.ndarray, 'row time'] | tuple[np.ndarray, np.ndarray]":
        """Return the probability of surviving each of the times, shape (row, time).

        Parameters
        ----------
        X
            Rows as at fit.
        times
            Any number of them, the same for all rows.
        level
            Such as 0.9: return also the ends of the interval that the draws give, shape (row, time, 2).

        Raises
        ------
        ValueError
            If the model was not fitted to a response with limits.
        """
        return self._survival_of(X).survival(times, level)

    def predict_hazard(self, X: InputLike, times: ArrayLike) -> Float[np.ndarray, "row time"]:
        """Return the rate of events at each of the times among those that had none before, shape (row, time)."""
        return self._survival_of(X).hazard(times)

    def predict_median(
        self, X: InputLike, level: float | None = None
    ) -> PerRow | tuple[PerRow, Float[np.ndarray, "row 2"]]:
        """Return the median of each row; with `level` also the ends of the interval that the draws give for it."""
        predictive = self._survival_of(X)
        return predictive.median if level is None else (predictive.median, predictive.median_interval(level))

    def predict_restricted_mean(
        self, X: InputLike, until: float, level: float | None = None
    ) -> PerRow | tuple[PerRow, Float[np.ndarray, "row 2"]]:
        """Return the mean of the smaller of the time and `until`; with `level` also an interval, as for the median."""
        return self._survival_of(X).restricted_mean(until, level)

    def _survival_of(self, X: InputLike) -> SurvivalPredictive:
        found = self.predictive(X)
        found.survival_columns([])  # raises if there is nothing of the kind
        return cast(SurvivalPredictive, found)
