"""The normal distribution with a network output for its location and one for its log standard deviation."""

import math
from dataclasses import dataclass, field, replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.special import log_ndtr, ndtr, ndtri

from mile import _registry
from mile._checks import check_choice, check_number
from mile._types import Outputs
from mile.likelihoods._links import LINKS, SCALE_LIMIT, SMALLEST_SCALE
from mile.likelihoods._quantiles import half_mean_difference
from mile.likelihoods._resolution import resolution_of
from mile.likelihoods._scaled import outlier_remarks
from mile.likelihoods._special import log_normal_cdf
from mile.likelihoods.base import Encoded, Evaluate, Mixture, NativeHead, OutputsOfDraws, PerDraw, PerRow
from mile.likelihoods.censorable import AbstractCensorable, AbstractTailedComponents
from mile.likelihoods.limits import Limits
from mile.likelihoods.weights import EQUAL, DrawWeights

_LOG_SQRT_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_SQRT_TWO_PI = math.sqrt(2.0 * math.pi)
_TAIL = 8.3  # standard deviations beyond which a normal distribution has nothing that double precision sees
_MOST_PAIRED = 500  # components; their pairs are as many as points of an integral


@_registry.likelihood("gaussian")
@dataclass(frozen=True)
class Gaussian(AbstractCensorable):
    """Normal response with a network output for its location and one for its log standard deviation.

    Parameters
    ----------
    link
        From the second output z to the standard deviation, in standard deviations of the response. "exponential":
        exp(z), cut off at 1e-6 and 1e6, as in the paper. "bounded": smooth, between `floor` and about 10, so that noise
        stays within sight of the data on every row: the root of floor^2 + s^2 with 1 / s = exp(-z) + 1 / 10.
    floor
        Smallest standard deviation of the bounded link. None: decided when the model is fitted, as half the median gap
        between distinct values if the response has few of them, else 1e-6; see `resolution_of`.
    """

    link: str = field(default="exponential", metadata={_registry.ABSENT: "exponential"})
    floor: float | None = field(default=None, metadata={_registry.ABSENT: None})

    head = "gaussian"

    def __post_init__(self) -> None:
        check_choice("link", self.link, LINKS)
        if self.floor is not None:
            check_number("floor", self.floor, smallest=SMALLEST_SCALE, largest=SCALE_LIMIT)
            if self.link != "bounded":
                raise ValueError(f"floor must be None with link={self.link!r}; got {self.floor!r}.")

    @property
    def n_outputs(self) -> int:
        """Location and log standard deviation."""
        return 2

    def native_head(self) -> NativeHead | None:
        """Return the head of this link; a class derived from this one may compute something else."""
        if self.head is None or self.link != "bounded":
            return super().native_head()
        return NativeHead("bounded_gaussian", self._floor)

    def fitted(self, y: Encoded) -> "Gaussian":
        """Return this likelihood with a floor that suits the response."""
        if self.link != "bounded" or self.floor is not None:
            return self
        return replace(self, floor=max(resolution_of(y) or 0.0, SMALLEST_SCALE))

    def fitted_to_limits(self, limits: Limits) -> "Gaussian":
        """Return this likelihood with a floor that suits the observed rows."""
        return self.fitted(limits.lower[limits.is_exact].astype(np.float32))

    def cautions(self, y: PerRow, number: Int[np.ndarray, " row"]) -> list[str]:
        """Name rows whose y is so far out that it makes the scale."""
        return outlier_remarks(y, number)

    def log_prob(self, outputs: Outputs, y: Float[Array, " row"]) -> Float[Array, " row"]:
        """Return the log density of each row."""
        log_scale = LINKS[self.link](jnp, outputs[1], self._floor)
        standardized = (y - outputs[0]) * jnp.exp(-log_scale)
        return -log_scale - 0.5 * jnp.square(standardized) - _LOG_SQRT_TWO_PI

    def log_cdf(self, outputs: Outputs, y: Float[Array, " row"]) -> Float[Array, " row"]:
        """Return ln P(Y <= y) of each row."""
        return log_normal_cdf((y - outputs[0]) * jnp.exp(-LINKS[self.link](jnp, outputs[1], self._floor)))

    def log_survival(self, outputs: Outputs, y: Float[Array, " row"]) -> Float[Array, " row"]:
        """Return ln P(Y > y) of each row."""
        return log_normal_cdf((outputs[0] - y) * jnp.exp(-LINKS[self.link](jnp, outputs[1], self._floor)))

    def components(self, outputs: OutputsOfDraws) -> "NormalComponents":
        """Return the normal distributions of outputs."""
        location, raw = np.moveaxis(outputs.astype(np.float64), 1, 0)
        with np.errstate(invalid="ignore"):  # NaN stays NaN
            return NormalComponents(location, np.exp(LINKS[self.link](np, raw, self._floor)))

    @property
    def _floor(self) -> float:
        return SMALLEST_SCALE if self.floor is None else float(self.floor)


@dataclass(frozen=True, eq=False)
class NormalComponents(AbstractTailedComponents):
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

    def log_cdf(self, y: PerRow) -> PerDraw:
        """Return ln P(Y <= y) of one value per row."""
        return log_ndtr((y - self.location) / self.scale)

    def log_survival(self, y: PerRow) -> PerDraw:
        """Return ln P(Y > y) of one value per row."""
        return log_ndtr((self.location - y) / self.scale)

    def mean_below(self, limit: float) -> PerDraw:
        """Return E min(Y, limit)."""
        z = (limit - self.location) / self.scale
        density = np.exp(-0.5 * np.square(z) - _LOG_SQRT_TWO_PI)
        return self.location * ndtr(z) + limit * ndtr(-z) - self.scale * density

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
    return weights.mean(normal_distance(location, scale, y))


def normal_distance(location: PerDraw, scale: PerDraw, y: PerRow) -> PerDraw:
    """Return E|Y - y| of normal distributions."""
    z = (y - location) / scale
    return scale * (z * (2.0 * ndtr(z) - 1.0) + 2.0 * np.exp(-0.5 * z * z) / _SQRT_TWO_PI)
