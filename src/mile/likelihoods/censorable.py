"""Families of numbers that take limits: what they add to a likelihood of observed numbers and to its distributions."""

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from jaxtyping import Array, Float, Int
from scipy.optimize import minimize
from scipy.special import log_ndtr

from mile._types import Outputs
from mile.features.numbers import Standardizer
from mile.likelihoods._resolution import resolution_of
from mile.likelihoods._special import LOG_SQRT_TWO_PI
from mile.likelihoods.base import AbstractResponse, OutputsOfDraws, PerDraw, PerRow
from mile.likelihoods.components import AbstractComponents
from mile.likelihoods.limits import Limits, log_probability
from mile.likelihoods.numbers import AbstractNumberLikelihood, ScaledResponse
from mile.likelihoods.positive import LEAST_NOISE, LEAST_SPREAD, MARGIN, AbstractPositive, unshifted

_BEYOND = 2.0  # further spreads that locations may lie beyond limits, where values are known to be


class AbstractTailedComponents(AbstractComponents):
    """Distributions whose tails have log probabilities with all digits."""

    @abstractmethod
    def log_cdf(self, y: PerRow) -> PerDraw:
        """Return ln P(Y <= y) of one value per row."""

    @abstractmethod
    def log_survival(self, y: PerRow) -> PerDraw:
        """Return ln P(Y > y) of one value per row."""

    @abstractmethod
    def mean_below(self, limit: float) -> PerDraw:
        """Return E min(Y, limit), which exists for any distribution without a heavy lower tail."""

    def log_prob_of_limits(self, lower: PerRow, upper: PerRow, lowest: float) -> PerDraw:
        """Return the log density of observed rows and the log probability of the others."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return log_probability(np, (lower, upper), lowest, self.log_prob, self.log_cdf, self.log_survival)


class AbstractCensorable(AbstractNumberLikelihood):
    """A family of numbers that takes limits."""

    lowest: ClassVar[float] = -math.inf  # y is larger
    takes_limits: ClassVar[bool] = True  # a family that derives from one of these may not

    @abstractmethod
    def components(self, outputs: OutputsOfDraws) -> AbstractTailedComponents:
        """Return the distributions of the outputs of draws, in float64."""

    @abstractmethod
    def log_cdf(self, outputs: Outputs, y: Float[Array, " row"]) -> Float[Array, " row"]:
        """Return ln P(Y <= y) of each row. In JAX, differentiable, finite wherever outputs are."""

    @abstractmethod
    def log_survival(self, outputs: Outputs, y: Float[Array, " row"]) -> Float[Array, " row"]:
        """Return ln P(Y > y) of each row."""

    def learn_from_limits(
        self, limits: Limits, rows: Int[np.ndarray, " chosen"], weight: PerRow | None
    ) -> AbstractResponse:
        """Learn the scale of y from training rows of which some are limits."""
        center, spread = normal_of_limits(limits, rows, weight)
        return ScaledResponse(Standardizer(shift=np.asarray(center), scale=np.asarray(spread)))

    @abstractmethod
    def fitted_to_limits(self, limits: Limits) -> "AbstractCensorable":
        """Return this family with what it takes from the encoded training rows."""


@dataclass(frozen=True)
class AbstractCensorablePositive(AbstractPositive, AbstractCensorable):
    """A family of positive numbers that takes limits."""

    lowest: ClassVar[float] = 0.0

    def learn_from_limits(
        self, limits: Limits, rows: Int[np.ndarray, " chosen"], weight: PerRow | None
    ) -> AbstractResponse:
        """Learn the standard deviation of observed values and limits together."""
        return unshifted(Standardizer.learn(limits.points, rows, weight))

    def fitted_to_limits(self, limits: Limits) -> "AbstractCensorablePositive":
        """Return this family with center, spread and reach of ln y, as if it were normal.

        Locations may lie farther out than limits, because the values there do.
        """
        if self.center is not None:
            return self
        with np.errstate(divide="ignore"):
            logs = Limits(np.log(np.maximum(limits.lower, 0.0)), np.log(limits.upper))
        known = np.isfinite(logs.lower) | np.isfinite(logs.upper)
        logs = Limits(logs.lower[known], logs.upper[known])
        center, spread = normal_of_limits(logs, np.arange(len(logs.lower)), None)
        spread = max(float(f"{spread:.2g}"), LEAST_SPREAD)
        center = round(center / spread, 1) * spread
        lower, upper = (logs.lower - center) / spread, (logs.upper - center) / spread
        points = (logs.points - center) / spread
        below = max(-float(points.min()), 1.0) + (_BEYOND if np.isinf(lower).any() else 0.0)
        above = max(float(points.max()), 1.0) + (_BEYOND if np.isinf(upper).any() else 0.0)
        resolution = resolution_of(points[logs.is_exact].astype(np.float32)) or 0.0
        return replace(
            self,
            center=center,
            spread=spread,
            below=float(math.ceil(below + MARGIN)),
            above=float(math.ceil(above + MARGIN)),
            floor=self.floor or max(resolution, LEAST_NOISE),
        )


def normal_of_limits(limits: Limits, rows: Int[np.ndarray, " chosen"], weight: PerRow | None) -> tuple[float, float]:
    """Return mean and standard deviation of the normal distribution under which the rows are most likely."""
    lower, upper = limits.lower[rows], limits.upper[rows]
    counted = np.ones(len(rows)) if weight is None else np.asarray(weight, np.float64)[rows]
    points = Limits(lower, upper).points
    start = float(np.average(points, weights=counted))
    width = math.sqrt(float(np.average(np.square(points - start), weights=counted)))
    if not width > 10 * np.finfo(np.float64).eps * max(abs(start), np.finfo(np.float64).tiny):
        return start, 1.0  # one value repeated
    low, high = (lower - start) / width, (upper - start) / width

    def cost(place: np.ndarray) -> float:
        mean, log_spread = place
        scale = math.exp(-log_spread)

        def density(y: np.ndarray) -> np.ndarray:
            return -log_spread - 0.5 * np.square((y - mean) * scale) - LOG_SQRT_TWO_PI

        def cdf(y: np.ndarray) -> np.ndarray:
            return log_ndtr((y - mean) * scale)

        def survival(y: np.ndarray) -> np.ndarray:
            return log_ndtr((mean - y) * scale)

        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            found = log_probability(np, (low, high), -math.inf, density, cdf, survival)
        return -float(np.average(found, weights=counted))

    found = minimize(cost, np.zeros(2), method="L-BFGS-B", bounds=[(-10.0, 10.0), (-3.0, 3.0)])
    return start + width * float(found.x[0]), width * math.exp(float(found.x[1]))
