"""Distributions of whole numbers from zero on: quantiles and scores of their mixtures over draws."""

import math
from abc import abstractmethod
from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float

from mile.likelihoods._quantiles import crps_by_integral
from mile.likelihoods.base import Evaluate, Mixture, PerDraw, PerRow
from mile.likelihoods.components import AbstractComponents
from mile.likelihoods.weights import EQUAL, DrawWeights

_LONGEST = 1024  # numbers that are taken one by one; beyond them, sums are integrals
_TAIL = 1e-6  # probability beyond a table


class AbstractCountComponents(AbstractComponents):
    """Distributions of a whole number that is not negative."""

    @abstractmethod
    def masses(self) -> Iterator[PerDraw]:
        """Yield P(Y = 0), P(Y = 1) and so on without end."""

    @property
    @abstractmethod
    def countable(self) -> Bool[np.ndarray, " row"]:
        """Rows of which no distribution has a P(Y = 0) too small for a float64."""

    @abstractmethod
    def smooth_cdf(self, y: PerRow) -> PerDraw:
        """Return a smooth function of y > -1 that is P(Y <= y) where y is a whole number."""

    @property
    @abstractmethod
    def reach(self) -> PerRow:
        """A number above which no distribution of a row has more than about 1e-15 of its probability."""

    @property
    def spread(self) -> PerDraw:
        """Standard deviations."""
        return self.std

    def cdf(self, y: PerRow) -> PerDraw:
        """Return P(Y <= y) of one value per row."""
        return np.where(np.asarray(y) >= 0.0, self.smooth_cdf(np.maximum(np.floor(y), 0.0)), 0.0)

    def cdf_below(self, y: PerRow) -> PerDraw:
        """Return P(Y < y) of one value per row."""
        return self.cdf(np.ceil(y) - 1.0)

    def quantile(self, level: float) -> PerDraw:
        """Return the smallest whole numbers whose P(Y <= y) is at least the level."""
        mean, std = self.mean, self.std
        lower, upper = mean - math.sqrt((1.0 - level) / level) * std, mean + math.sqrt(level / (1.0 - level)) * std
        return _smallest(lambda y: (self.cdf(y), y), lower, upper, level)

    def brackets(self, level: float) -> np.ndarray:
        """Return ends that hold the quantiles."""
        return self.cantelli(level)

    def solve(self, evaluate: Evaluate, spread: PerDraw, guess: tuple[PerRow, PerRow], level: float) -> PerRow:
        """Return the smallest whole number whose P(Y <= y) is at least the level."""
        lower, upper = self.brackets(level)
        return _smallest(evaluate, lower, upper, level)

    def evaluator(self, mixture: Mixture) -> Evaluate:
        """Return a function that gives the mixtures' P(Y <= y), from a table where there is one, and no density."""
        weights = mixture.weights
        table, length = self._table(weights)
        rows = np.arange(table.shape[1])

        def evaluate(y: PerRow) -> tuple[PerRow, PerRow]:
            whole = np.floor(y)
            place = np.clip(np.nan_to_num(whole), 0, len(table) - 1).astype(int)
            found = np.where(whole < 0, 0.0, table[place, rows])
            outside = ~(whole < length)
            if outside.any():
                found = np.where(outside, weights.mean(self.cdf(y)), found)
            return found, np.zeros_like(found)

        return evaluate

    def crps(self, evaluate: Evaluate, y: PerRow, weights: DrawWeights = EQUAL) -> PerRow:
        """Return the score: over all whole numbers the square of P(Y <= k) below y, and of P(Y > k) from y on.

        Beyond the first few hundred the sum is the integral of a smooth function, with an error of about its curvature
        by 24.
        """
        total, length, is_open = np.zeros(len(y)), np.zeros(len(y)), self.countable
        for number in range(_LONGEST):
            cdf = evaluate(np.where(is_open, float(number), -1.0))[0]
            total += np.where(is_open, np.square(cdf - (number >= y)), 0.0)
            length += is_open
            is_open = is_open & ~(cdf >= 1.0 - _TAIL)
            if not is_open.any():
                break
        certain = total + np.maximum(y - length, 0.0)
        goes_on = ~self.countable | is_open
        if not goes_on.any():
            return certain

        def smooth(x: PerRow) -> tuple[PerRow, PerRow]:
            found = weights.mean(self.smooth_cdf(x - 0.5))
            return found, found

        # Rows that do not need it get an integral over nothing, which is exact at once.
        after, far = (np.where(goes_on, np.maximum(ends, length), length) for ends in (y, self.reach))
        rest = crps_by_integral(smooth, after, weights.median(self.spread), length, far)
        return np.where(goes_on, total + rest, certain)

    def _table(self, weights: DrawWeights) -> tuple[Float[np.ndarray, "number row"], PerRow]:
        """Return P(Y <= k) of the mixtures for k from 0 on, and for how many numbers it holds, row by row."""
        is_open = self.countable
        total, length, table = np.zeros(len(is_open)), np.zeros(len(is_open)), [np.zeros(len(is_open))]
        for number, mass in zip(range(_LONGEST), self.masses(), strict=False):
            if not is_open.any():
                break
            total = total + weights.mean(mass)
            table[number:] = [total]
            length += is_open
            is_open = is_open & ~(total >= 1.0 - _TAIL)
        return np.minimum(np.stack(table), 1.0), length


def _smallest(evaluate: Evaluate, lower: np.ndarray, upper: np.ndarray, level: float) -> np.ndarray:
    """Return the smallest whole numbers between ends, of which the first is too small, where the cdf is the level."""
    low, high = np.maximum(np.floor(lower) - 1.0, -1.0), np.maximum(np.ceil(upper) + 1.0, 0.0)
    while np.any(high - low > 1.0):
        middle = np.where(high - low > 1.0, np.floor(0.5 * (low + high)), high)
        reached = evaluate(middle)[0] >= level
        low, high = np.where(reached, low, middle), np.where(reached, middle, high)
    return high
