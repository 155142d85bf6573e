"""The two-piece normal distribution: a number whose noise may reach farther to one side than to the other."""

import math
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.special import ndtr, ndtri

from mile import _registry
from mile._types import Outputs
from mile.likelihoods._links import bounded
from mile.likelihoods._quantiles import crps_by_distance
from mile.likelihoods._scaled import AbstractScaledNumber, outlier_remarks
from mile.likelihoods.base import Evaluate, OutputsOfDraws, PerDraw, PerRow
from mile.likelihoods.components import AbstractComponents
from mile.likelihoods.weights import EQUAL, DrawWeights

_HALF_LOG_TWO_OVER_PI = 0.5 * math.log(2.0 / math.pi)
_SQRT_TWO_OVER_PI = math.sqrt(2.0 / math.pi)
_TAIL = 1e-15  # probability beyond the ends of an integral


@_registry.likelihood("skew")
@dataclass(frozen=True)
class TwoPieceNormal(AbstractScaledNumber):
    """Two halves of normal distributions that meet at the mode: network outputs for the mode and both log scales.

    Parameters
    ----------
    floor
        Smallest scale, as that of `Gaussian(link="bounded")`. None: decided when the model is fitted.
    """

    @property
    def n_outputs(self) -> int:
        """Mode, log scale below it, log scale above it."""
        return 3

    def cautions(self, y: PerRow, number: Int[np.ndarray, " row"]) -> list[str]:
        """Name rows whose y is so far out that it makes the scale."""
        return outlier_remarks(y, number)

    def log_prob(self, outputs: Outputs, y: Float[Array, " row"]) -> Float[Array, " row"]:
        """Return the log density of each row."""
        below, above = (bounded(jnp, outputs[side], self._floor) for side in (1, 2))
        away = y - outputs[0]
        z = away * jnp.exp(-jnp.where(away < 0, below, above))
        return _HALF_LOG_TWO_OVER_PI - jnp.logaddexp(below, above) - 0.5 * jnp.square(z)

    def components(self, outputs: OutputsOfDraws) -> "TwoPieceComponents":
        """Return the two-piece normal distributions of outputs."""
        mode, below, above = np.moveaxis(outputs.astype(np.float64), 1, 0)
        with np.errstate(invalid="ignore"):  # NaN stays NaN
            return TwoPieceComponents(mode, *(np.exp(bounded(np, raw, self._floor)) for raw in (below, above)))


@dataclass(frozen=True, eq=False)
class TwoPieceComponents(AbstractComponents):
    """Two-piece normal distributions of each row under each draw."""

    mode: PerDraw
    below: PerDraw  # scales on both sides of the mode
    above: PerDraw

    @property
    def mean(self) -> PerDraw:
        """Means."""
        return self.mode + _SQRT_TWO_OVER_PI * (self.above - self.below)

    @property
    def std(self) -> PerDraw:
        """Standard deviations."""
        return np.sqrt((1.0 - 2.0 / math.pi) * np.square(self.above - self.below) + self.above * self.below)

    @property
    def spread(self) -> PerDraw:
        """Mean of both scales."""
        return 0.5 * (self.below + self.above)

    def log_prob(self, y: PerRow) -> PerDraw:
        """Return the log density of one value per row."""
        return _HALF_LOG_TWO_OVER_PI - np.log(self.below + self.above) - 0.5 * np.square(self._scaled(y))

    def cdf(self, y: PerRow) -> PerDraw:
        """Return P(Y <= y) of one value per row."""
        z, share = self._scaled(y), self._share_below
        outer = 2.0 * ndtr(-np.abs(z))
        return np.where(z < 0, share * outer, 1.0 - (1.0 - share) * outer)

    def quantile(self, level: float) -> PerDraw:
        """Return the quantiles at one level."""
        share = self._share_below
        lower = self.below * ndtri(np.minimum(0.5 * level / share, 0.5))
        upper = self.above * ndtri(np.minimum(0.5 * (1.0 - level) / (1.0 - share), 0.5))
        return self.mode + np.where(level < share, lower, -upper)

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Draw one value from each distribution."""
        size = np.abs(rng.standard_normal(self.mode.shape))
        is_below = rng.uniform(size=self.mode.shape) < self._share_below
        return self.mode + np.where(is_below, -self.below, self.above) * size

    def crps(self, evaluate: Evaluate, y: PerRow, weights: DrawWeights = EQUAL) -> PerRow:
        """Return the score, in closed form but for the distance between two predictions."""
        # E|Y - y| is the distance of the mean and twice the integral of the tail beyond y.
        z, share = np.abs(self._scaled(y)), self._share_below
        beyond = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi) - z * ndtr(-z)
        is_below = y < self.mode
        tail = np.where(is_below, share * self.below, (1.0 - share) * self.above) * beyond
        distance = np.where(is_below, self.mean - y, y - self.mean) + 4.0 * tail
        return crps_by_distance(self, distance, evaluate, _TAIL, weights)

    @property
    def _share_below(self) -> PerDraw:
        return self.below / (self.below + self.above)

    def _scaled(self, y: PerRow) -> PerDraw:
        away = y - self.mode
        return away / np.where(away < 0, self.below, self.above)
