"""Predictions of numbers of which some have a probability of their own: counts, grades, amounts that may be zero."""

from typing import cast

import numpy as np
from jaxtyping import Bool

from mile.likelihoods.base import PerRow
from mile.likelihoods.numbers import Predictive

_SEED = 0  # of the randomized values: the same rows get the same ones


class AtomPredictive(Predictive):
    """Predictive distribution of a number that may be a certain value with positive probability."""

    caution_names = ("coverage",)  # an interval may be a single value, whose width says nothing of the spread

    def cdf_below(self, y: PerRow) -> PerRow:
        """Return P(Y < y) for one value per row."""

        def probability(outputs: np.ndarray, y: np.ndarray) -> np.ndarray:
            return self._weights.mean(self._likelihood.components(outputs).cdf_below(y))

        return self._over_blocks(probability, self._standardize(y))

    def pit(self, y: PerRow) -> PerRow:
        """Return a number at random between P(Y < y) and P(Y <= y): uniform over rows if the prediction is right.

        The random part is the same whenever it is asked for.
        """
        below, share = self.cdf_below(y), np.random.default_rng(_SEED).uniform(size=len(self))
        return below + share * (self.cdf(y) - below)

    def inside(self, y: PerRow, level: float = 0.9) -> Bool[np.ndarray, " row"]:
        """Return whether the central interval holds y, its ends among it."""
        tail = 0.5 - level / 2
        return cast(np.ndarray, (self.cdf(y) >= tail) & (self.cdf_below(y) < 1.0 - tail))
