"""The lognormal distribution: the logarithm of y is normal."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import log_ndtr, ndtr, ndtri

from mile import _registry
from mile._types import Outputs
from mile.likelihoods._special import LOG_SQRT_TWO_PI, log_normal_cdf
from mile.likelihoods.base import OutputsOfDraws, PerDraw, PerRow
from mile.likelihoods.censorable import AbstractCensorablePositive, AbstractTailedComponents


@_registry.likelihood("lognormal")
@dataclass(frozen=True)
class LogNormal(AbstractCensorablePositive):
    """Positive response whose logarithm is normal, such as prices: outputs for location and log noise of ln y."""

    def log_prob(self, outputs: Outputs, y: Float[Array, " row"]) -> Float[Array, " row"]:
        """Return the log density of each row."""
        log_noise, log_y = self.log_noise(jnp, outputs[1]), jnp.log(y)
        standardized = (log_y - self.log_location(jnp, outputs[0])) * jnp.exp(-log_noise)
        return -log_noise - log_y - 0.5 * jnp.square(standardized) - LOG_SQRT_TWO_PI

    def log_cdf(self, outputs: Outputs, y: Float[Array, " row"]) -> Float[Array, " row"]:
        """Return ln P(Y <= y) of each row."""
        return log_normal_cdf(self._standardize(outputs, y))

    def log_survival(self, outputs: Outputs, y: Float[Array, " row"]) -> Float[Array, " row"]:
        """Return ln P(Y > y) of each row."""
        return log_normal_cdf(-self._standardize(outputs, y))

    def _standardize(self, outputs: Outputs, y: Float[Array, " row"]) -> Float[Array, " row"]:
        noise = jnp.exp(self.log_noise(jnp, outputs[1]))
        return (jnp.log(y) - self.log_location(jnp, outputs[0])) / noise

    def components(self, outputs: OutputsOfDraws) -> "LogNormalComponents":
        """Return the lognormal distributions of outputs."""
        return LogNormalComponents(*self.links(outputs))


@dataclass(frozen=True, eq=False)
class LogNormalComponents(AbstractTailedComponents):
    """Lognormal distributions of each row under each draw."""

    location: PerDraw  # of ln y
    noise: PerDraw  # standard deviation of ln y

    @property
    def mean(self) -> PerDraw:
        """Means."""
        return np.exp(self.location + 0.5 * np.square(self.noise))

    @property
    def std(self) -> PerDraw:
        """Standard deviations."""
        return self.mean * np.sqrt(np.expm1(np.square(self.noise)))

    @property
    def spread(self) -> PerDraw:
        """Noise of ln y times the median."""
        return self.noise * np.exp(self.location)

    def log_prob(self, y: PerRow) -> PerDraw:
        """Return the log density of one value per row."""
        with np.errstate(divide="ignore", invalid="ignore"):
            log_y = np.log(y)
            found = -np.log(self.noise) - log_y - 0.5 * np.square(self._standardize(y)) - LOG_SQRT_TWO_PI
        return np.where(y > 0.0, found, -np.inf)

    def cdf(self, y: PerRow) -> PerDraw:
        """Return P(Y <= y) of one value per row."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(y > 0.0, ndtr(self._standardize(y)), 0.0 * self.noise)

    def log_cdf(self, y: PerRow) -> PerDraw:
        """Return ln P(Y <= y) of one value per row."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(y > 0.0, log_ndtr(self._standardize(y)), -np.inf)

    def log_survival(self, y: PerRow) -> PerDraw:
        """Return ln P(Y > y) of one value per row."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(y > 0.0, log_ndtr(-self._standardize(y)), 0.0 * self.noise)

    def mean_below(self, limit: float) -> PerDraw:
        """Return E min(Y, limit)."""
        if limit <= 0.0:
            return np.full(self.noise.shape, min(limit, 0.0))
        z = (np.log(limit) - self.location) / self.noise
        return self.mean * ndtr(z - self.noise) + limit * ndtr(-z)

    def quantile(self, level: float | PerDraw) -> PerDraw:
        """Return the quantiles at one level."""
        return np.exp(self.location + self.noise * ndtri(level))

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Draw one value from each distribution."""
        return np.exp(self.location + self.noise * rng.standard_normal(self.location.shape))

    def _standardize(self, y: PerRow) -> PerDraw:
        return (np.log(y) - self.location) / self.noise
