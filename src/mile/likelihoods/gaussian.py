"""The normal distribution with a network output for its location and one for its log standard deviation."""

import math
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtr, ndtri

from mile import _registry
from mile._types import Outputs
from mile.likelihoods._quantiles import half_mean_difference
from mile.likelihoods.base import Evaluate, Mixture, OutputsOfDraws, PerDraw, PerRow
from mile.likelihoods.numbers import AbstractComponents, AbstractNumberLikelihood
from mile.likelihoods.weights import EQUAL, DrawWeights

# Standard deviations stay in [1e-6, 1e6] with zero gradient outside, as in the reference.
LOG_SCALE_LIMIT = math.log(1e6)
_LOG_SQRT_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_SQRT_TWO_PI = math.sqrt(2.0 * math.pi)
_TAIL = 8.3  # standard deviations beyond which a normal distribution has nothing that double precision sees
_MOST_PAIRED = 500  # components; their pairs are as many as points of an integral


@_registry.likelihood("gaussian")
@dataclass(frozen=True)
class Gaussian(AbstractNumberLikelihood):
    """Normal response with a network output for its location and one for its log standard deviation."""

    head = "gaussian"

    @property
    def n_outputs(self) -> int:
        """Location and log standard deviation."""
        return 2

    def log_prob(self, outputs: Outputs, y: Float[Array, " row"]) -> Float[Array, " row"]:
        """Return the log density of each row."""
        log_scale = jnp.clip(outputs[1], -LOG_SCALE_LIMIT, LOG_SCALE_LIMIT)
        standardized = (y - outputs[0]) * jnp.exp(-log_scale)
        return -log_scale - 0.5 * jnp.square(standardized) - _LOG_SQRT_TWO_PI

    def components(self, outputs: OutputsOfDraws) -> "NormalComponents":
        """Return the normal distributions of outputs."""
        location, log_scale = np.moveaxis(outputs.astype(np.float64), 1, 0)
        return NormalComponents(location, np.exp(np.clip(log_scale, -LOG_SCALE_LIMIT, LOG_SCALE_LIMIT)))


@dataclass(frozen=True, eq=False)
class NormalComponents(AbstractComponents):
    """Normal distributions of each row under each draw."""

    location: PerDraw
    scale: PerDraw

    @property
    def mean(self) -> PerDraw:
        """Locations."""
        return self.location

    @property
    def std(self) -> PerDraw:
        """Scales."""
        return self.scale

    @property
    def spread(self) -> PerDraw:
        """Scales."""
        return self.scale

    def log_prob(self, y: PerRow) -> PerDraw:
        """Return the log density of one value per row."""
        return -np.log(self.scale) - 0.5 * np.square((y - self.location) / self.scale) - _LOG_SQRT_TWO_PI

    def density(self, y: PerRow) -> PerDraw:
        """Return the density of one value per row."""
        return np.exp(-0.5 * np.square((y - self.location) / self.scale) - _LOG_SQRT_TWO_PI) / self.scale

    def cdf(self, y: PerRow) -> PerDraw:
        """Return P(Y <= y) of one value per row."""
        return ndtr((y - self.location) / self.scale)

    def quantile(self, level: float) -> PerDraw:
        """Return the quantiles at one level."""
        return self.location + self.scale * ndtri(level)

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Draw one value from each distribution."""
        return self.location + self.scale * rng.standard_normal(self.location.shape)

    def evaluator(self, mixture: Mixture) -> Evaluate:
        """Return distribution function and density, by the native kernel where it is in use."""
        return mixture.native_normals(self.location, self.scale) or super().evaluator(mixture)

    def crps(self, evaluate: Evaluate, y: PerRow, weights: DrawWeights = EQUAL) -> PerRow:
        """Return the score in closed form but for the distance between two predictions.

        Of that only the sum over all pairs of components has a closed form, so with many it is an integral.
        """
        location, scale = self.location, self.scale
        distance = _mean_distance(location, scale, y, weights)
        if len(location) <= _MOST_PAIRED:
            pairs = [
                _mean_distance(location, np.sqrt(np.square(scale) + np.square(one_scale)), one_location, weights)
                for one_location, one_scale in zip(location, scale, strict=True)
            ]
            return distance - 0.5 * weights.mean(np.stack(pairs))
        center = weights.median(location)
        spread = weights.median(scale) + weights.median(np.abs(location - center))
        reach = np.max(np.abs(location - center) + _TAIL * scale, axis=0)
        return distance - half_mean_difference(evaluate, center, spread, reach)


def _mean_distance(location: PerDraw, scale: PerDraw, y: PerRow, weights: DrawWeights) -> PerRow:
    """Return E|Y - y| of each row's mixture of normals."""
    z = (y - location) / scale
    return weights.mean(scale * (z * (2.0 * ndtr(z) - 1.0) + 2.0 * np.exp(-0.5 * z * z) / _SQRT_TWO_PI))
