"""The log-logistic distribution of positive numbers: the logarithm of y is logistic."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import special

from mile import _registry
from mile._types import Outputs
from mile.likelihoods.base import AbstractResponse, Mixture, OutputsOfDraws, PerDraw, PerRow
from mile.likelihoods.censorable import AbstractCensorablePositive, AbstractTailedComponents
from mile.likelihoods.medians import PositiveMedianPredictive

_LARGEST_EXPONENT = 600.0  # exp of it is a number, with room to multiply
_NEARLY_ONE = 1e-6


@_registry.likelihood("log_logistic")
@dataclass(frozen=True)
class LogLogistic(AbstractCensorablePositive):
    """Positive response whose logarithm is logistic, such as survival times: outputs for log median and log noise.

    The hazard rises and then falls, or only falls where the noise is one or more. There the mean is infinite, so rows
    are predicted by their medians.
    """

    def log_prob(self, outputs: Outputs, y: Float[Array, " row"]) -> Float[Array, " row"]:
        """Return the log density of each row."""
        z, log_noise = self._standardize(outputs, y)
        return -jax.nn.softplus(z) - jax.nn.softplus(-z) - log_noise - jnp.log(y)

    def log_cdf(self, outputs: Outputs, y: Float[Array, " row"]) -> Float[Array, " row"]:
        """Return ln P(Y <= y) of each row."""
        return -jax.nn.softplus(-self._standardize(outputs, y)[0])

    def log_survival(self, outputs: Outputs, y: Float[Array, " row"]) -> Float[Array, " row"]:
        """Return ln P(Y > y) of each row."""
        return -jax.nn.softplus(self._standardize(outputs, y)[0])

    def components(self, outputs: OutputsOfDraws) -> "LogLogisticComponents":
        """Return the log-logistic distributions of outputs."""
        return LogLogisticComponents(*self.links(outputs))

    def predictive(self, mixture: Mixture, response: AbstractResponse) -> PositiveMedianPredictive:
        """Return the predictive distribution of a positive number that may have no mean."""
        return PositiveMedianPredictive(mixture, self, response)

    def _standardize(
        self, outputs: Outputs, y: Float[Array, " row"]
    ) -> tuple[Float[Array, " row"], Float[Array, " row"]]:
        log_noise = self.log_noise(jnp, outputs[1])
        return (jnp.log(y) - self.log_location(jnp, outputs[0])) * jnp.exp(-log_noise), log_noise


@dataclass(frozen=True, eq=False)
class LogLogisticComponents(AbstractTailedComponents):
    """Log-logistic distributions of each row under each draw."""

    location: PerDraw  # logarithm of the median
    noise: PerDraw  # one divided by the shape

    @property
    def mean(self) -> PerDraw:
        """Means, infinite where the noise is one or more."""
        return np.exp(self.location) * _reflected(self.noise)

    @property
    def std(self) -> PerDraw:
        """Standard deviations, infinite where the noise is one half or more."""
        first = _reflected(self.noise)
        with np.errstate(invalid="ignore"):
            ratio = np.where(self.noise < 0.5, _reflected(2.0 * self.noise) / np.square(first) - 1.0, np.inf)
        return np.exp(self.location) * np.where(self.noise < 0.5, first * np.sqrt(np.maximum(ratio, 0.0)), np.inf)

    @property
    def spread(self) -> PerDraw:
        """Noise of ln y times the median."""
        return self.noise * np.exp(self.location)

    def log_prob(self, y: PerRow) -> PerDraw:
        """Return the log density of one value per row."""
        with np.errstate(divide="ignore", invalid="ignore"):
            z = self._standardize(y)
            found = special.log_expit(z) + special.log_expit(-z) - np.log(self.noise) - np.log(y)
        return np.where(y > 0.0, found, -np.inf)

    def cdf(self, y: PerRow) -> PerDraw:
        """Return P(Y <= y) of one value per row."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(y > 0.0, special.expit(self._standardize(y)), 0.0 * self.noise)

    def log_cdf(self, y: PerRow) -> PerDraw:
        """Return ln P(Y <= y) of one value per row."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(y > 0.0, special.log_expit(self._standardize(y)), -np.inf)

    def log_survival(self, y: PerRow) -> PerDraw:
        """Return ln P(Y > y) of one value per row."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(y > 0.0, special.log_expit(-self._standardize(y)), 0.0 * self.noise)

    def mean_below(self, limit: float) -> PerDraw:
        """Return E min(Y, limit): the limit times the hypergeometric function F(1, b; 1 + b; -w), b the noise."""
        if limit <= 0.0:
            return np.full(self.noise.shape, min(limit, 0.0))
        odds = np.exp(np.minimum((np.log(limit) - self.location) / self.noise, _LARGEST_EXPONENT))
        nearly_one = np.abs(self.noise - 1.0) < _NEARLY_ONE  # where the general formula is a limit
        noise = np.where(nearly_one, 0.5, self.noise)
        general = special.hyp2f1(1.0, noise, 1.0 + noise, -odds)
        return limit * np.where(nearly_one, np.log1p(odds) / np.maximum(odds, 1e-300), general)

    def quantile(self, level: float) -> PerDraw:
        """Return the quantiles at one level."""
        return np.exp(self.location + self.noise * special.logit(level))

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Draw one value from each distribution."""
        return np.exp(self.location + self.noise * rng.logistic(size=self.location.shape))

    def _standardize(self, y: PerRow) -> PerDraw:
        return (np.log(y) - self.location) / self.noise


def _reflected(noise: PerDraw) -> PerDraw:
    """Return pi b / sin(pi b), the mean over the median; infinite from one on."""
    angle = np.pi * np.minimum(noise, 0.5)
    near = angle / np.sin(angle)
    rest = np.pi * (1.0 - np.clip(noise, 0.5, 1.0))  # the sine near pi
    with np.errstate(divide="ignore", invalid="ignore"):
        far = np.where(noise < 1.0, np.pi * noise / np.sin(rest), np.inf)
    return np.where(noise <= 0.5, near, far)
