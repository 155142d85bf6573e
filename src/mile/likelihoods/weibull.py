"""The Weibull distribution of positive numbers."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import special

from mile import _registry
from mile._types import Outputs
from mile.likelihoods.base import OutputsOfDraws, PerDraw, PerRow
from mile.likelihoods.censorable import AbstractCensorablePositive, AbstractTailedComponents

_SMALLEST_EXPONENT = -10.0  # below, ln(1 - exp(-e^z)) is z - e^z / 2 to nine digits
_LARGEST_EXPONENT = 30.0  # beyond, a density is zero in any arithmetic; exp becomes a line, so that slopes are finite


@_registry.likelihood("weibull")
@dataclass(frozen=True)
class Weibull(AbstractCensorablePositive):
    """Positive response with a Weibull distribution, such as lifetimes: outputs for log scale and log noise of ln y.

    ln y is the log scale plus noise times a standard Gumbel variable; the shape is one divided by the noise.
    """

    def log_prob(self, outputs: Outputs, y: Float[Array, " row"]) -> Float[Array, " row"]:
        """Return the log density of each row."""
        log_noise, log_y = self.log_noise(jnp, outputs[1]), jnp.log(y)
        z = (log_y - self.log_location(jnp, outputs[0])) * jnp.exp(-log_noise)
        small = jnp.minimum(z, _LARGEST_EXPONENT)
        return z - jnp.exp(small) * (1.0 + z - small) - log_noise - log_y

    def log_cdf(self, outputs: Outputs, y: Float[Array, " row"]) -> Float[Array, " row"]:
        """Return ln P(Y <= y) of each row."""
        z = self._standardize(outputs, y)
        hazard = jnp.exp(jnp.clip(z, _SMALLEST_EXPONENT, _LARGEST_EXPONENT))
        small = jnp.minimum(z, _SMALLEST_EXPONENT)
        below = small - 0.5 * jnp.exp(small)
        return jnp.where(z < _SMALLEST_EXPONENT, below, jnp.log(-jnp.expm1(-hazard)))

    def log_survival(self, outputs: Outputs, y: Float[Array, " row"]) -> Float[Array, " row"]:
        """Return ln P(Y > y) of each row."""
        z = self._standardize(outputs, y)
        small = jnp.minimum(z, _LARGEST_EXPONENT)
        return -jnp.exp(small) * (1.0 + z - small)

    def _standardize(self, outputs: Outputs, y: Float[Array, " row"]) -> Float[Array, " row"]:
        noise = jnp.exp(self.log_noise(jnp, outputs[1]))
        return (jnp.log(y) - self.log_location(jnp, outputs[0])) / noise

    def components(self, outputs: OutputsOfDraws) -> "WeibullComponents":
        """Return the Weibull distributions of outputs."""
        return WeibullComponents(*self.links(outputs))


@dataclass(frozen=True, eq=False)
class WeibullComponents(AbstractTailedComponents):
    """Weibull distributions of each row under each draw."""

    location: PerDraw  # logarithm of the scale
    noise: PerDraw  # one divided by the shape

    @property
    def mean(self) -> PerDraw:
        """Means."""
        return np.exp(self.location + special.gammaln(1.0 + self.noise))

    @property
    def std(self) -> PerDraw:
        """Standard deviations."""
        excess = special.gammaln(1.0 + 2.0 * self.noise) - 2.0 * special.gammaln(1.0 + self.noise)
        return self.mean * np.sqrt(np.expm1(excess))

    @property
    def spread(self) -> PerDraw:
        """Noise of ln y times the scale."""
        return self.noise * np.exp(self.location)

    def log_prob(self, y: PerRow) -> PerDraw:
        """Return the log density of one value per row."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            z = (np.log(y) - self.location) / self.noise
            found = z - np.exp(z) - np.log(self.noise) - np.log(y)
        return np.where(y > 0.0, found, -np.inf)

    def cdf(self, y: PerRow) -> PerDraw:
        """Return P(Y <= y) of one value per row."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            found = -np.expm1(-np.exp((np.log(y) - self.location) / self.noise))
        return np.where(y > 0.0, found, 0.0 * self.noise)

    def log_cdf(self, y: PerRow) -> PerDraw:
        """Return ln P(Y <= y) of one value per row."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            z = (np.log(y) - self.location) / self.noise
            found = np.where(z < _SMALLEST_EXPONENT, z - 0.5 * np.exp(z), np.log(-np.expm1(-np.exp(z))))
        return np.where(y > 0.0, found, -np.inf)

    def log_survival(self, y: PerRow) -> PerDraw:
        """Return ln P(Y > y) of one value per row."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            found = -np.exp((np.log(y) - self.location) / self.noise)
        return np.where(y > 0.0, found, 0.0 * self.noise)

    def mean_below(self, limit: float) -> PerDraw:
        """Return E min(Y, limit), by the incomplete gamma function."""
        if limit <= 0.0:
            return np.full(self.noise.shape, min(limit, 0.0))
        with np.errstate(over="ignore"):
            hazard = np.exp((np.log(limit) - self.location) / self.noise)
        return self.mean * special.gammainc(self.noise, hazard)

    def quantile(self, level: float) -> PerDraw:
        """Return the quantiles at one level."""
        return np.exp(self.location + self.noise * np.log(-np.log1p(-level)))

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Draw one value from each distribution."""
        return np.exp(self.location + self.noise * np.log(rng.standard_exponential(self.location.shape)))
