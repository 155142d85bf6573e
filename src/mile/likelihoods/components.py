"""The distributions that draws predict for each row, before they are mixed: the contract of a family of numbers."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from mile.likelihoods._quantiles import crps_by_integral, mixture_quantile
from mile.likelihoods.base import Evaluate, Mixture, PerDraw, PerRow
from mile.likelihoods.weights import EQUAL, DrawWeights

_TAIL = 1e-15  # probability beyond the ends of an integral
_QUARTILES_OF_NORMAL = 1.3489795003921634  # distance between them in standard deviations


class AbstractComponents(ABC):
    """The distribution of each row under each draw, on the standardized scale: components of a mixture.

    A frozen dataclass whose fields are arrays (draw, row). What is not abstract has a default that holds for any
    continuous distribution.
    """

    @property
    @abstractmethod
    def mean(self) -> PerDraw:
        """Means."""

    @property
    @abstractmethod
    def std(self) -> PerDraw:
        """Standard deviations."""

    @abstractmethod
    def log_prob(self, y: PerRow) -> PerDraw:
        """Return the log density of one value per row."""

    @abstractmethod
    def cdf(self, y: PerRow) -> PerDraw:
        """Return P(Y <= y) of one value per row."""

    def cdf_below(self, y: PerRow) -> PerDraw:
        """Return P(Y < y) of one value per row."""
        return self.cdf(y)

    @abstractmethod
    def quantile(self, level: float) -> PerDraw:
        """Return the quantiles at one level."""

    @abstractmethod
    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Draw one value from each distribution."""

    @property
    def spread(self) -> PerDraw:
        """Width of the middle of each distribution; it is positive also where there is no standard deviation."""
        return (self.quantile(0.75) - self.quantile(0.25)) / _QUARTILES_OF_NORMAL

    def density(self, y: PerRow) -> PerDraw:
        """Return the density of one value per row."""
        return np.exp(self.log_prob(y))

    def take(self, draws: Int[np.ndarray, "sample row"]) -> "AbstractComponents":
        """Return one distribution for each sample and row: that of the draw with the given number."""
        return type(self)(*(np.take_along_axis(parameter, draws, axis=0) for parameter in self.parameters()))

    def parameters(self) -> tuple[PerDraw, ...]:
        """Return the arrays that these distributions are made of, in the order in which the class takes them."""
        return tuple(vars(self).values())

    def with_parameters(self, arrays: Sequence[np.ndarray]) -> "AbstractComponents":
        """Return distributions of the same kind that are made of other arrays."""
        return type(self)(*arrays)

    def brackets(self, level: float) -> np.ndarray:
        """Return numbers (any, row) whose smallest and largest hold all quantiles of a row between them."""
        return self.quantile(level)

    def cantelli(self, level: float) -> np.ndarray:
        """Return such numbers from means and standard deviations, for any distribution (Cantelli's inequality)."""
        mean, std = self.mean, self.std
        below, above = math.sqrt((1.0 - level) / level), math.sqrt(level / (1.0 - level))
        return np.stack([(mean - below * std).min(axis=0), (mean + above * std).max(axis=0)])

    def solve(self, evaluate: Evaluate, spread: PerDraw, guess: tuple[PerRow, PerRow], level: float) -> PerRow:
        """Return the quantile of each row's mixture; `guess` is its mean and standard deviation."""
        return mixture_quantile(evaluate, self.brackets(level), spread, guess, level)

    def evaluator(self, mixture: Mixture) -> Evaluate:
        """Return a function of y that gives the mixtures' distribution function and density."""
        mean = mixture.weights.mean
        return lambda y: (mean(self.cdf(y)), mean(self.density(y)))

    def crps(self, evaluate: Evaluate, y: PerRow, weights: DrawWeights = EQUAL) -> PerRow:
        """Return the continuous ranked probability score of each row's mixture at y."""
        lower, upper = self.quantile(_TAIL).min(axis=0), self.quantile(1.0 - _TAIL).max(axis=0)
        return crps_by_integral(evaluate, y, weights.median(self.spread), lower, upper)
