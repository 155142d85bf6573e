"""A mixture of normal distributions for each draw: a number whose distribution may have several modes."""

import math
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.special import log_softmax, logsumexp, ndtr, ndtri

from mile import _registry
from mile._checks import check_count
from mile._types import Outputs
from mile.likelihoods._links import bounded
from mile.likelihoods._quantiles import half_mean_difference, mixture_quantile
from mile.likelihoods._scaled import AbstractScaledNumber, outlier_remarks
from mile.likelihoods.base import Evaluate, Mixture, NativeHead, OutputsOfDraws, PerDraw, PerRow
from mile.likelihoods.components import AbstractComponents
from mile.likelihoods.gaussian import normal_distance
from mile.likelihoods.weights import EQUAL, DrawWeights

_LOG_SQRT_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_TAIL = 8.3  # scales beyond which a part has nothing that double precision sees
MOST_PARTS = 8
_MOST_PAIRED = 150  # parts of all draws

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

    @cached_property
    def weight(self) -> PerPart:
        """Share of each part in its mixture."""
        return np.exp(self.log_weight)

    def parameters(self) -> tuple[PerPart, ...]:
        """Return log weights, locations and scales."""
        return self.log_weight, self.location, self.scale

    @cached_property
    def mean(self) -> PerDraw:
        """Means."""
        return (self.weight * self.location).sum(axis=0)

    @property
    def std(self) -> PerDraw:
        """Standard deviations."""
        squares = np.square(self.location - self.mean) + np.square(self.scale)
        return np.sqrt((self.weight * squares).sum(axis=0))

    @property
    def spread(self) -> PerDraw:
        """Scale of the normal distribution whose density is as high as that of the parts together can be."""
        return 1.0 / (self.weight / self.scale).sum(axis=0)

    def log_prob(self, y: PerRow) -> PerDraw:
        """Return the log density of one value per row."""
        terms = self.log_weight - np.log(self.scale) - 0.5 * np.square((y - self.location) / self.scale)
        return np.asarray(logsumexp(terms, axis=0)) - _LOG_SQRT_TWO_PI

    def density(self, y: PerRow) -> PerDraw:
        """Return the density of one value per row."""
        heights = np.exp(-0.5 * np.square((y - self.location) / self.scale) - _LOG_SQRT_TWO_PI) / self.scale
        return (self.weight * heights).sum(axis=0)

    def cdf(self, y: PerRow) -> PerDraw:
        """Return P(Y <= y) of one value per row."""
        return (self.weight * ndtr((y - self.location) / self.scale)).sum(axis=0)

    def quantile(self, level: float) -> PerDraw:
        """Return the quantiles at one level."""

        def evaluate(y: PerDraw) -> tuple[PerDraw, PerDraw]:
            return self.cdf(y), self.density(y)

        parts = self.location + self.scale * ndtri(level)
        guess = self.mean, self.std
        return mixture_quantile(evaluate, parts, self.scale, guess, level, stops_at_rounding=True)

    def solve(self, evaluate: Evaluate, spread: PerDraw, guess: tuple[PerRow, PerRow], level: float) -> PerRow:
        """Return the quantile of each row's mixture."""
        return mixture_quantile(evaluate, self.brackets(level), spread, guess, level, stops_at_rounding=True)

    def brackets(self, level: float) -> np.ndarray:
        """Return the quantiles of the parts, of which none is beyond all of a row."""
        return flat(self.location + self.scale * ndtri(level))

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Draw one value from each distribution."""
        edges = np.cumsum(self.weight, axis=0)[:-1]
        part = (rng.uniform(size=edges.shape[1:]) >= edges).sum(axis=0)[None]
        location, scale = (np.take_along_axis(array, part, axis=0)[0] for array in (self.location, self.scale))
        return location + scale * rng.standard_normal(location.shape)

    def take(self, draws: Int[np.ndarray, "sample row"]) -> "MixtureComponents":
        """Return one mixture for each sample and row: that of the draw with the given number."""
        return MixtureComponents(*(np.take_along_axis(array, draws[None], axis=1) for array in self.parameters()))

    def crps(self, evaluate: Evaluate, y: PerRow, weights: DrawWeights = EQUAL) -> PerRow:
        """Return the score in closed form but for the distance between two predictions, as for normal distributions.

        Few parts, whose distribution function may have steps, are paired; of many that takes longer than an integral.
        """
        weight, location, scale = self._all_parts(weights)
        distance = (weight * normal_distance(location, scale, y)).sum(axis=0)
        if len(weight) <= _MOST_PAIRED:
            pairs = np.zeros(len(y))
            for one_weight, one_location, one_scale in zip(weight, location, scale, strict=True):
                apart = normal_distance(location, np.hypot(scale, one_scale), one_location)
                pairs += one_weight * (weight * apart).sum(axis=0)
            return distance - 0.5 * pairs
        center = weights.median(self.mean)
        spread = weights.median(self.spread) + weights.median(np.abs(self.mean - center))
        reach = np.max(np.abs(location - center) + _TAIL * scale, axis=0)
        return distance - half_mean_difference(evaluate, center, spread, reach)

    def evaluator(self, mixture: Mixture) -> Evaluate:
        """Return distribution function and density, by the native kernel where it is in use."""
        weight, location, scale = self._all_parts(mixture.weights)
        return mixture.native_normals(location, scale, weight) or super().evaluator(mixture)

    def _all_parts(self, weights: DrawWeights) -> tuple[PerDraw, PerDraw, PerDraw]:
        """Return weights, locations and scales of the parts of all draws: mixed over draws, they are one mixture."""
        weight = self.weight * weights.shares(self.location.shape[1])[:, None]
        return flat(weight), flat(self.location), flat(self.scale)


def flat(parts: PerPart) -> PerDraw:
    """Return the parts of all draws below one another."""
    return parts.reshape(-1, parts.shape[-1])
