"""The gamma distribution of positive numbers."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import special

from mile import _registry
from mile._types import Outputs
from mile.likelihoods._special import LOG_SQRT_TWO_PI, stirling_remainder
from mile.likelihoods.base import OutputsOfDraws, PerDraw, PerRow
from mile.likelihoods.components import AbstractComponents
from mile.likelihoods.positive import AbstractPositive


@_registry.likelihood("gamma")
@dataclass(frozen=True)
class Gamma(AbstractPositive):
    """Positive response with a gamma distribution, such as waiting times: outputs for log mean and log variation.

    The variation is standard deviation divided by mean, which is the noise of ln y where it is small.
    """

    def log_prob(self, outputs: Outputs, y: Float[Array, " row"]) -> Float[Array, " row"]:
        """Return the log density of each row."""
        shape = jnp.exp(-2.0 * self.log_noise(jnp, outputs[1]))
        log_y = jnp.log(y)
        above = log_y - self.log_location(jnp, outputs[0])
        # With ln Gamma in Stirling's form nothing large is subtracted from something large.
        constant = 0.5 * jnp.log(shape) - stirling_remainder(jnp, shape) - LOG_SQRT_TWO_PI
        return shape * (above - jnp.expm1(above)) + constant - log_y

    def components(self, outputs: OutputsOfDraws) -> "GammaComponents":
        """Return the gamma distributions of outputs."""
        log_mean, variation = self.links(outputs)
        return GammaComponents(np.exp(log_mean), variation**-2.0)


@dataclass(frozen=True, eq=False)
class GammaComponents(AbstractComponents):
    """Gamma distributions of each row under each draw."""

    location: PerDraw  # means
    shape: PerDraw

    @property
    def mean(self) -> PerDraw:
        """Means."""
        return self.location

    @property
    def std(self) -> PerDraw:
        """Standard deviations."""
        return self.location / np.sqrt(self.shape)

    @property
    def spread(self) -> PerDraw:
        """Standard deviations."""
        return self.std

    def log_prob(self, y: PerRow) -> PerDraw:
        """Return the log density of one value per row."""
        with np.errstate(divide="ignore", invalid="ignore"):
            log_y = np.log(y)
            above = log_y - np.log(self.location)
            constant = 0.5 * np.log(self.shape) - stirling_remainder(np, self.shape) - LOG_SQRT_TWO_PI
            found = self.shape * (above - np.expm1(above)) + constant - log_y
        return np.where(y > 0.0, found, -np.inf)

    def cdf(self, y: PerRow) -> PerDraw:
        """Return P(Y <= y) of one value per row."""
        return special.gammainc(self.shape, self.shape * np.maximum(y, 0.0) / self.location)

    def quantile(self, level: float | PerDraw) -> PerDraw:
        """Return the quantiles at one level."""
        return self.location * special.gammaincinv(self.shape, level) / self.shape

    def brackets(self, level: float) -> np.ndarray:
        """Return ends that hold the quantiles, by Cantelli's inequality: it takes far less time than quantiles."""
        return self.cantelli(level)

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Draw one value from each distribution."""
        return rng.gamma(self.shape, self.location / self.shape)
