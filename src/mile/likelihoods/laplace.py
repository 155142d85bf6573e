"""The Laplace distribution: a number with a peak in the middle and tails of exponentials; its location is a median."""

import math
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from mile import _registry
from mile._types import Outputs
from mile.likelihoods._links import bounded
from mile.likelihoods._quantiles import crps_by_distance
from mile.likelihoods._scaled import AbstractScaledNumber, robust_response
from mile.likelihoods.base import AbstractResponse, Evaluate, OutputsOfDraws, PerDraw, PerRow
from mile.likelihoods.components import AbstractComponents
from mile.likelihoods.weights import EQUAL, DrawWeights

_SQRT_TWO, _HALF_LOG_TWO = math.sqrt(2.0), 0.5 * math.log(2.0)
_TAIL = 1e-15  # probability beyond the ends of an integral


@_registry.likelihood("laplace")
@dataclass(frozen=True)
class LaplaceNoise(AbstractScaledNumber):
    """Laplace response: a network output for its median and one for its log standard deviation.

    The scale of y is learned so that outliers do not move it.

    Parameters
    ----------
    floor
        Smallest standard deviation, as that of `Gaussian(link="bounded")`. None: decided when the model is fitted.
    """

    @property
    def n_outputs(self) -> int:
        """Median and log standard deviation."""
        return 2

    def learn(self, y: np.ndarray, rows: Int[np.ndarray, " chosen"], weight: PerRow | None = None) -> AbstractResponse:
        """Learn the scale of the middle of y."""
        return robust_response(y, rows, weight)

    def log_prob(self, outputs: Outputs, y: Float[Array, " row"]) -> Float[Array, " row"]:
        """Return the log density of each row."""
        log_std = bounded(jnp, outputs[1], self._floor)
        return -_SQRT_TWO * jnp.abs(y - outputs[0]) * jnp.exp(-log_std) - log_std - _HALF_LOG_TWO

    def components(self, outputs: OutputsOfDraws) -> "LaplaceComponents":
        """Return the Laplace distributions of outputs."""
        location, raw = np.moveaxis(outputs.astype(np.float64), 1, 0)
        with np.errstate(invalid="ignore"):  # NaN stays NaN
            return LaplaceComponents(location, np.exp(bounded(np, raw, self._floor)))


@dataclass(frozen=True, eq=False)
class LaplaceComponents(AbstractComponents):
    """Laplace distributions of each row under each draw."""

    location: PerDraw
    deviation: PerDraw  # standard

    @property
    def mean(self) -> PerDraw:
        """Medians, which are means."""
        return self.location

    @property
    def std(self) -> PerDraw:
        """Standard deviations."""
        return self.deviation

    @property
    def spread(self) -> PerDraw:
        """Standard deviations."""
        return self.deviation

    def log_prob(self, y: PerRow) -> PerDraw:
        """Return the log density of one value per row."""
        return -np.abs(self._scaled(y)) - np.log(self.deviation) - _HALF_LOG_TWO

    def cdf(self, y: PerRow) -> PerDraw:
        """Return P(Y <= y) of one value per row."""
        z = self._scaled(y)
        outer = 0.5 * np.exp(-np.abs(z))
        return np.where(z < 0, outer, 1.0 - outer)

    def quantile(self, level: float) -> PerDraw:
        """Return the quantiles at one level."""
        away = -math.log(2.0 * min(level, 1.0 - level)) / _SQRT_TWO
        return self.location + math.copysign(away, level - 0.5) * self.deviation

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Draw one value from each distribution."""
        return rng.laplace(self.location, self.deviation / _SQRT_TWO)

    def crps(self, evaluate: Evaluate, y: PerRow, weights: DrawWeights = EQUAL) -> PerRow:
        """Return the score, in closed form but for the distance between two predictions."""
        size = np.abs(self._scaled(y))
        distance = self.deviation / _SQRT_TWO * (size + np.exp(-size))
        return crps_by_distance(self, distance, evaluate, _TAIL, weights)

    def _scaled(self, y: PerRow) -> PerDraw:
        return _SQRT_TWO * (y - self.location) / self.deviation
