"""Weights of the draws of a mixture: every average over draws is taken here."""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import logsumexp


class EqualDraws(NamedTuple):
    """Neighbors among the draws that have the same weight."""

    draws: slice
    share: float  # of the mixture that they have together

    @property
    def count(self) -> int:
        """How many they are."""
        return self.draws.stop - self.draws.start


@dataclass(frozen=True, eq=False)
class DrawWeights:
    """How much each draw counts in a mixture: positive numbers that sum to one; None if all count the same.

    Arrays have the draw for their first axis.
    """

    values: Float[np.ndarray, " draw"] | None = None

    @classmethod
    def of(cls, values: Float[np.ndarray, " draw"]) -> "DrawWeights":
        """Return these weights; equal ones give the same bits as no weights."""
        return cls(None if (values == values[0]).all() else values)

    def shares(self, n_draws: int) -> Float[np.ndarray, " draw"]:
        """Return the weight of each draw as a number."""
        return np.full(n_draws, 1.0 / n_draws) if self.values is None else self.values

    def mean(self, of_draws: Float[np.ndarray, "draw ..."]) -> Float[np.ndarray, "..."]:
        """Return the mean over draws."""
        if self.values is None:
            return of_draws.mean(axis=0)
        # A matrix product would be faster, but the bits of a row would depend on its neighbors.
        return (self._beside(of_draws) * of_draws).sum(axis=0)

    def variance(self, of_draws: Float[np.ndarray, "draw ..."]) -> Float[np.ndarray, "..."]:
        """Return the variance over draws."""
        if self.values is None:
            return of_draws.var(axis=0)
        return self.mean(np.square(of_draws - self.mean(of_draws)))

    def log_mean_exp(self, of_draws: Float[np.ndarray, "draw ..."]) -> Float[np.ndarray, "..."]:
        """Return the logarithm of the mean of exponentials."""
        if self.values is None:
            return logsumexp(of_draws, axis=0) - np.log(len(of_draws))
        return np.asarray(logsumexp(of_draws + np.log(self._beside(of_draws)), axis=0))

    def median(self, of_draws: Float[np.ndarray, "draw ..."]) -> Float[np.ndarray, "..."]:
        """Return the median over draws."""
        if self.values is None:
            return np.median(of_draws, axis=0)
        return np.quantile(of_draws, 0.5, axis=0, weights=self.values, method="inverted_cdf")

    def quantile(self, of_draws: Float[np.ndarray, "draw ..."], level: float) -> Float[np.ndarray, "..."]:
        """Return a quantile over draws."""
        if self.values is None:
            return np.quantile(of_draws, level, axis=0)
        return np.quantile(of_draws, level, axis=0, weights=self.values, method="inverted_cdf")

    def choose(self, rng: np.random.Generator, n_draws: int, size: tuple[int, ...]) -> Int[np.ndarray, "..."]:
        """Choose draws at random, each as often as its weight says."""
        if self.values is None:
            return rng.integers(n_draws, size=size)
        edges = np.cumsum(self.values)
        return np.searchsorted(edges[:-1], rng.uniform(high=edges[-1], size=size), side="right")

    def groups(self, n_draws: int) -> list[EqualDraws]:
        """Return the draws in groups of neighbors with equal weight, in order."""
        if self.values is None:
            return [EqualDraws(slice(0, n_draws), 1.0)]
        edges = [0, *(1 + np.flatnonzero(np.diff(self.values))).tolist(), n_draws]
        return [
            EqualDraws(slice(start, end), float(self.values[start] * (end - start))) for start, end in pairwise(edges)
        ]

    def _beside(self, of_draws: np.ndarray) -> np.ndarray:
        assert self.values is not None
        return self.values.reshape(-1, *[1] * (of_draws.ndim - 1))


EQUAL = DrawWeights()
