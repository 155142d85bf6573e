"""Student's t distribution: a number whose noise may have heavy tails, so that outliers do not pull the location."""

import math
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.special import stdtr, stdtrit

from mile import _registry
from mile._types import Outputs
from mile.likelihoods._links import bounded
from mile.likelihoods._quantiles import crps_by_distance
from mile.likelihoods._scaled import AbstractScaledNumber, robust_response
from mile.likelihoods._tails import degrees_of_freedom, log_gamma_half_step
from mile.likelihoods.base import AbstractResponse, Evaluate, NativeHead, OutputsOfDraws, PerDraw, PerRow
from mile.likelihoods.components import AbstractComponents
from mile.likelihoods.weights import EQUAL, DrawWeights

_HALF_LOG_PI = 0.5 * math.log(math.pi)
_TAIL = 1e-12  # probability beyond the ends of an integral


@_registry.likelihood("student_t")
@dataclass(frozen=True)
class StudentTNoise(AbstractScaledNumber):
    """Student's t response: network outputs for its location, its scale and its degrees of freedom.

    Degrees of freedom are learned for each row and lie between 2.1 and 102.1, so that the standard deviation exists.
    The scale of y is learned so that outliers do not move it.

    Parameters
    ----------
    floor
        Smallest scale, as that of `Gaussian(link="bounded")`. None: decided when the model is fitted.
    """

    head = "student_t"

    @property
    def n_outputs(self) -> int:
        """Location, log scale, log of the degrees of freedom above the smallest."""
        return 3

    def native_head(self) -> NativeHead | None:
        """Return the head with the floor."""
        return None if self.head is None else NativeHead(self.head, self._floor)

    def learn(self, y: np.ndarray, rows: Int[np.ndarray, " chosen"], weight: PerRow | None = None) -> AbstractResponse:
        """Learn the scale of the middle of y."""
        return robust_response(y, rows, weight)

    def log_prob(self, outputs: Outputs, y: Float[Array, " row"]) -> Float[Array, " row"]:
        """Return the log density of each row."""
        log_scale, degrees = bounded(jnp, outputs[1], self._floor), degrees_of_freedom(jnp, outputs[2])
        square = jnp.square((y - outputs[0]) * jnp.exp(-log_scale))
        constant = log_gamma_half_step(0.5 * degrees, jnp) - 0.5 * jnp.log(degrees) - _HALF_LOG_PI
        return constant - log_scale - 0.5 * (degrees + 1.0) * jnp.log1p(square / degrees)

    def components(self, outputs: OutputsOfDraws) -> "StudentTComponents":
        """Return the t distributions of outputs."""
        location, raw, tail = np.moveaxis(outputs.astype(np.float64), 1, 0)
        with np.errstate(invalid="ignore"):  # NaN stays NaN
            return StudentTComponents(location, np.exp(bounded(np, raw, self._floor)), degrees_of_freedom(np, tail))


@dataclass(frozen=True, eq=False)
class StudentTComponents(AbstractComponents):
    """Student's t distributions of each row under each draw."""

    location: PerDraw
    scale: PerDraw
    degrees: PerDraw

    @property
    def mean(self) -> PerDraw:
        """Locations."""
        return self.location

    @property
    def std(self) -> PerDraw:
        """Standard deviations, which are larger than scales."""
        return self.scale * np.sqrt(self.degrees / (self.degrees - 2.0))

    @property
    def spread(self) -> PerDraw:
        """Scales."""
        return self.scale

    def log_prob(self, y: PerRow) -> PerDraw:
        """Return the log density of one value per row."""
        square = np.square((y - self.location) / self.scale)
        constant = log_gamma_half_step(0.5 * self.degrees, np) - 0.5 * np.log(self.degrees) - _HALF_LOG_PI
        return constant - np.log(self.scale) - 0.5 * (self.degrees + 1.0) * np.log1p(square / self.degrees)

    def cdf(self, y: PerRow) -> PerDraw:
        """Return P(Y <= y) of one value per row."""
        return stdtr(self.degrees, (y - self.location) / self.scale)

    def quantile(self, level: float) -> PerDraw:
        """Return the quantiles at one level."""
        return self.location + self.scale * stdtrit(self.degrees, level)

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Draw one value from each distribution."""
        return self.location + self.scale * rng.standard_t(self.degrees)

    def crps(self, evaluate: Evaluate, y: PerRow, weights: DrawWeights = EQUAL) -> PerRow:
        """Return the score, in closed form but for the distance between two predictions."""
        z = (y - self.location) / self.scale
        height = self.scale * np.exp(self.log_prob(y))
        tail = 2.0 * height * (self.degrees + z * z) / (self.degrees - 1.0)
        distance = self.scale * (z * (2.0 * stdtr(self.degrees, z) - 1.0) + tail)
        return crps_by_distance(self, distance, evaluate, _TAIL, weights)
