"""A mixture of normal distributions for each draw: a number whose distribution may have several modes."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.special import log_softmax, logsumexp, ndtr, ndtri

from mile import _registry
from mile._checks import check_count
from mile._types import Outputs
from mile.likelihoods._links import bounded
from mile.likelihoods._quantiles import crps_by_distance, mixture_quantile
from mile.likelihoods._scaled import AbstractScaledNumber, outlier_remarks
from mile.likelihoods.base import Evaluate, NativeHead, OutputsOfDraws, PerDraw, PerRow
from mile.likelihoods.components import AbstractComponents
from mile.likelihoods.weights import EQUAL, DrawWeights

_LOG_SQRT_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_TAIL = 1e-15  # probability beyond the ends of an integral
MOST_PARTS = 8

PerPart = Float[np.ndarray, "part draw row"]


@_registry.likelihood("mixture")
@dataclass(frozen=True)
class NormalMixture(AbstractScaledNumber):
    """Several normal distributions for each row: network outputs for their log weights, locations and log scales.

    Locations are the outputs plus quantiles of a normal distribution, so that the parts begin side by side and need not
    find out which is which.

    Parameters
    ----------
    floor
        Smallest scale, as that of `Gaussian(link="bounded")`. None: decided when the model is fitted, but at least
        0.001: a part could else be a spike on a single value.
    n_parts
        Normal distributions in the mixture, 2 to 8.
    """

    n_parts: int = 3

    smallest_floor = 1e-3
    head = "mixture"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("n_parts", self.n_parts, smallest=2, largest=MOST_PARTS)

    @property
    def n_outputs(self) -> int:
        """Log weight, location and log scale of each part."""
        return 3 * self.n_parts

    def native_head(self) -> NativeHead | None:
        """Return the head with the floor and the offsets."""
        return None if self.head is None else NativeHead(self.head, self._floor, self.offsets)

    @property
    def offsets(self) -> tuple[float, ...]:
        """Locations where the outputs are zero."""
        return tuple(float(ndtri((part + 0.5) / self.n_parts)) for part in range(self.n_parts))

    def cautions(self, y: PerRow, number: Int[np.ndarray, " row"]) -> list[str]:
        """Name rows whose y is so far out that it makes the scale."""
        return outlier_remarks(y, number)

    def log_prob(self, outputs: Outputs, y: Float[Array, " row"]) -> Float[Array, " row"]:
        """Return the log density of each row."""
        logits, location, raw = jnp.split(outputs, 3)
        log_scale = bounded(jnp, raw, self._floor)
        z = (y - location - jnp.asarray(self.offsets, outputs.dtype)[:, None]) * jnp.exp(-log_scale)
        terms = logits - log_scale - 0.5 * jnp.square(z)
        return jax.nn.logsumexp(terms, axis=0) - jax.nn.logsumexp(logits, axis=0) - _LOG_SQRT_TWO_PI

    def components(self, outputs: OutputsOfDraws) -> "MixtureComponents":
        """Return the mixtures of outputs."""
        parts = np.moveaxis(outputs.astype(np.float64), 1, 0)
        logits, location, raw = parts.reshape(3, self.n_parts, *parts.shape[1:])
        with np.errstate(invalid="ignore"):  # NaN stays NaN
            location = location + np.asarray(self.offsets)[:, None, None]
            return MixtureComponents(log_softmax(logits, axis=0), location, np.exp(bounded(np, raw, self._floor)))


@dataclass(frozen=True, eq=False)
class MixtureComponents(AbstractComponents):
    """Mixtures of normal distributions of each row under each draw."""

    log_weight: PerPart
    location: PerPart
    scale: PerPart

    @property
    def mean(self) -> PerDraw:
        """Means."""
        return (self._weight * self.location).sum(axis=0)

    @property
    def std(self) -> PerDraw:
        """Standard deviations."""
        squares = np.square(self.location - self.mean) + np.square(self.scale)
        return np.sqrt((self._weight * squares).sum(axis=0))

    @property
    def spread(self) -> PerDraw:
        """Scale of the normal distribution whose density is as high as that of the parts together can be."""
        return 1.0 / (self._weight / self.scale).sum(axis=0)

    def log_prob(self, y: PerRow) -> PerDraw:
        """Return the log density of one value per row."""
        terms = self.log_weight - np.log(self.scale) - 0.5 * np.square((y - self.location) / self.scale)
        return np.asarray(logsumexp(terms, axis=0)) - _LOG_SQRT_TWO_PI

    def density(self, y: PerRow) -> PerDraw:
        """Return the density of one value per row."""
        heights = np.exp(-0.5 * np.square((y - self.location) / self.scale) - _LOG_SQRT_TWO_PI) / self.scale
        return (self._weight * heights).sum(axis=0)

    def cdf(self, y: PerRow) -> PerDraw:
        """Return P(Y <= y) of one value per row."""
        return (self._weight * ndtr((y - self.location) / self.scale)).sum(axis=0)

    def quantile(self, level: float) -> PerDraw:
        """Return the quantiles at one level."""

        def evaluate(y: PerDraw) -> tuple[PerDraw, PerDraw]:
            return self.cdf(y), self.density(y)

        parts = self.location + self.scale * ndtri(level)
        return mixture_quantile(evaluate, parts, self.scale, (self.mean, self.std), level)

    def brackets(self, level: float) -> np.ndarray:
        """Return the quantiles of the parts, of which none is beyond all of a row."""
        parts = self.location + self.scale * ndtri(level)
        return parts.reshape(-1, parts.shape[-1])

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Draw one value from each distribution."""
        edges = np.cumsum(self._weight, axis=0)[:-1]
        part = (rng.uniform(size=edges.shape[1:]) >= edges).sum(axis=0)[None]
        location, scale = (np.take_along_axis(array, part, axis=0)[0] for array in (self.location, self.scale))
        return location + scale * rng.standard_normal(location.shape)

    def take(self, draws: Int[np.ndarray, "sample row"]) -> "MixtureComponents":
        """Return one mixture for each sample and row: that of the draw with the given number."""
        return MixtureComponents(*(np.take_along_axis(array, draws[None], axis=1) for array in self.parameters()))

    def crps(self, evaluate: Evaluate, y: PerRow, weights: DrawWeights = EQUAL) -> PerRow:
        """Return the score, in closed form but for the distance between two predictions."""
        z = (y - self.location) / self.scale
        away = z * (2.0 * ndtr(z) - 1.0) + 2.0 * np.exp(-0.5 * z * z - _LOG_SQRT_TWO_PI)
        return crps_by_distance(self, (self._weight * self.scale * away).sum(axis=0), evaluate, _TAIL, weights)

    @property
    def _weight(self) -> PerPart:
        return np.exp(self.log_weight)
