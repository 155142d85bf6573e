"""The beta distribution of numbers between two bounds, such as shares."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import ModuleType

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy import special

from mile import _registry
from mile._checks import check_number
from mile._types import Outputs
from mile.features.numbers import Standardizer
from mile.likelihoods._links import Values
from mile.likelihoods._resolution import resolution_of
from mile.likelihoods._special import LOG_SQRT_TWO_PI, stirling_remainder, within
from mile.likelihoods.base import AbstractResponse, Encoded, Mixture, OutputsOfDraws, PerDraw, PerRow, Tensors
from mile.likelihoods.components import AbstractComponents
from mile.likelihoods.numbers import AbstractNumberLikelihood, Predictive, ScaledResponse

_MARGIN = 1.0  # spreads that means may lie beyond the smallest and the largest y, on the scale of log odds
_UNKNOWN_REACH = 5.0  # before the response has been seen
_LEAST_SPREAD = 1e-3
_UNKNOWN_PRECISION = 20.0
_LEAST_PRECISION = 0.1  # times that of y itself
_SMALLEST_PRECISION = 0.1  # of y itself
_MOST_PRECISION = 1e6  # beyond it float32 has no digits for a density


@_registry.likelihood("beta")
@dataclass(frozen=True)
class Beta(AbstractNumberLikelihood):
    """Response between two bounds with a beta distribution, such as shares: log odds of the mean, log precision.

    With mean m and precision p on the unit interval, the variance is m (1 - m) / (1 + p). Bounds themselves are not
    among the values.

    Parameters
    ----------
    lower, upper
        The bounds.
    center, spread
        Mean and standard deviation of the log odds of y. None: learned when the model is fitted.
    below, above
        How many spreads the log odds of means may lie from the center. None: learned.
    precision
        Where the second output is zero. None: learned, as that of y itself.
    most
        Largest precision. None: learned, as that whose standard deviation y can resolve, at most a million.
    """

    lower: float = 0.0
    upper: float = 1.0
    center: float | None = None
    spread: float | None = None
    below: float | None = None
    above: float | None = None
    precision: float | None = None
    most: float | None = None

    def __post_init__(self) -> None:
        lower, upper = check_number("lower", self.lower), check_number("upper", self.upper)
        if not lower < upper:
            raise ValueError(f"lower must be below upper; got {lower:g} and {upper:g}.")
        if self.center is not None:
            check_number("center", self.center)
        for name in ("spread", "below", "above", "precision", "most"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), positive=True)

    @property
    def n_outputs(self) -> int:
        """Log odds of the mean, log precision."""
        return 2

    def learn(self, y: np.ndarray, rows: Int[np.ndarray, " chosen"], weight: PerRow | None = None) -> AbstractResponse:
        """Take the scale from the bounds, and refuse what is not between them."""
        wrong = np.flatnonzero(~((y > self.lower) & (y < self.upper)))
        if wrong.size:
            value = float(y[wrong[0]])
            advice = (
                "a bound has no density: move such values inside, such as by half of the smallest step"
                if value in (self.lower, self.upper)
                else "give the bounds, such as likelihood=Beta(lower=0, upper=100)"
            )
            raise ValueError(
                f"y has {value:.10g} in row {wrong[0]} ({wrong.size:,} such rows), and this Beta is of numbers between "
                f"{self.lower:g} and {self.upper:g}: {advice}."
            )
        return self._response()

    def restore_response(self, tensors: Tensors) -> AbstractResponse:
        """Return the scale of the bounds."""
        return self._response()

    def _response(self) -> "BoundedResponse":
        scale = Standardizer(shift=np.asarray(float(self.lower)), scale=np.asarray(float(self.upper - self.lower)))
        return BoundedResponse(scale)

    def check_encoded(self, y: Encoded, name: str) -> None:
        """Refuse what is not between the bounds, also by rounding to float32."""
        super().check_encoded(y, name)
        wrong = np.flatnonzero(~((y > 0.0) & (y < 1.0)))
        if wrong.size:
            raise ValueError(
                f"{name} has {y[wrong[0]]:g} in row {wrong[0]}, as a share of the way between the bounds; a Beta needs "
                "numbers between 0 and 1 that float32 does not round to either."
            )

    def fitted(self, y: Encoded) -> "Beta":
        """Return this likelihood with what it takes from the response, kept to two digits."""
        if self.center is not None or not len(y):
            return self
        shares = np.asarray(y, np.float64)
        odds = np.log(shares) - np.log1p(-shares)
        spread = max(float(f"{np.std(odds):.2g}"), _LEAST_SPREAD)
        center = round(float(np.mean(odds)) / spread, 1) * spread
        mean, variance = float(np.mean(shares)), max(float(np.var(shares)), 1e-12)
        precision = min(max(mean * (1.0 - mean) / variance - 1.0, _SMALLEST_PRECISION), _MOST_PRECISION)
        floor = resolution_of(((shares - mean) / math.sqrt(variance)).astype(np.float32))
        most = _MOST_PRECISION if floor is None else min(0.25 / (floor**2 * variance), _MOST_PRECISION)
        return replace(
            self,
            center=center,
            spread=spread,
            below=float(math.ceil(max((center - odds.min()) / spread, 1.0) + _MARGIN)),
            above=float(math.ceil(max((odds.max() - center) / spread, 1.0) + _MARGIN)),
            precision=float(f"{precision:.2g}"),
            most=float(f"{max(most, 2.0 * precision):.2g}"),
        )

    def log_odds(self, numbers: ModuleType, raw: Values) -> Values:
        """Return the log odds of the mean that the first output stands for."""
        center, spread = self.center or 0.0, self.spread or 1.0
        return center + spread * within(numbers, raw, -(self.below or _UNKNOWN_REACH), self.above or _UNKNOWN_REACH)

    def log_precision(self, numbers: ModuleType, raw: Values) -> Values:
        """Return the log of the precision that the second output stands for."""
        start, most = self.precision or _UNKNOWN_PRECISION, self.most or _MOST_PRECISION
        return math.log(start) + within(numbers, raw, math.log(_LEAST_PRECISION), math.log(most / start))

    def log_prob(self, outputs: Outputs, y: Float[Array, " row"]) -> Float[Array, " row"]:
        """Return the log density of each row."""
        return _log_density(jnp, y, self.log_odds(jnp, outputs[0]), self.log_precision(jnp, outputs[1]))

    def components(self, outputs: OutputsOfDraws) -> "BetaComponents":
        """Return the beta distributions of outputs."""
        outputs = outputs.astype(np.float64)
        return BetaComponents(self.log_odds(np, outputs[:, 0]), self.log_precision(np, outputs[:, 1]))

    def predictive(self, mixture: Mixture, response: AbstractResponse) -> "BoundedPredictive":
        """Return the predictive distribution of a number between bounds."""
        return BoundedPredictive(mixture, self, response)


class BoundedResponse(ScaledResponse):
    """Numbers between two bounds, as shares of the way from one to the other."""

    def usable(self, y: np.ndarray) -> np.ndarray:
        """Return which entries lie between the bounds."""
        shares = (np.asarray(y, float) - self.scale.shift) / self.scale.scale
        return (shares > 0.0) & (shares < 1.0)

    def tensors(self) -> dict[str, np.ndarray]:
        """Return nothing: the likelihood has the bounds."""
        return {}


class BoundedPredictive(Predictive):
    """Predictive distribution of a number between bounds."""

    def possible(self, ends: np.ndarray) -> np.ndarray:
        """Return ends of intervals, those beyond a bound moved to it."""
        return np.clip(ends, self._shift, self._shift + self._scale)


@dataclass(frozen=True, eq=False)
class BetaComponents(AbstractComponents):
    """Beta distributions of each row under each draw, on the unit interval."""

    odds: PerDraw  # log odds of means
    log_precision: PerDraw

    @property
    def mean(self) -> PerDraw:
        """Means."""
        return special.expit(self.odds)

    @property
    def std(self) -> PerDraw:
        """Standard deviations."""
        return np.sqrt(special.expit(self.odds) * special.expit(-self.odds) / (1.0 + np.exp(self.log_precision)))

    @property
    def spread(self) -> PerDraw:
        """Standard deviations."""
        return self.std

    def log_prob(self, y: PerRow) -> PerDraw:
        """Return the log density of one value per row."""
        inside = (np.asarray(y) > 0.0) & (np.asarray(y) < 1.0)
        found = _log_density(np, np.where(inside, y, 0.5) + 0.0 * self.odds, self.odds, self.log_precision)
        return np.where(inside, found, -np.inf)

    def cdf(self, y: PerRow) -> PerDraw:
        """Return P(Y <= y) of one value per row."""
        return special.betainc(*self._shapes, np.clip(y, 0.0, 1.0))

    def quantile(self, level: float) -> PerDraw:
        """Return the quantiles at one level."""
        return special.betaincinv(*self._shapes, level)

    def brackets(self, level: float) -> np.ndarray:
        """Return ends that hold the quantiles, by Cantelli's inequality: it takes far less time than quantiles."""
        return np.clip(self.cantelli(level), 0.0, 1.0)

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Draw one value from each distribution."""
        return rng.beta(*self._shapes)

    @property
    def _shapes(self) -> Sequence[PerDraw]:
        precision = np.exp(self.log_precision)
        return special.expit(self.odds) * precision, special.expit(-self.odds) * precision


def _log_density(numbers: ModuleType, y: Values, odds: Values, log_precision: Values) -> Values:
    """Return the log density of beta distributions; with ln Gamma in Stirling's form no large numbers cancel."""
    log_mean, log_rest = -numbers.logaddexp(0.0, -odds), -numbers.logaddexp(0.0, odds)
    precision = numbers.exp(log_precision)
    first, second = numbers.exp(log_mean + log_precision), numbers.exp(log_rest + log_precision)
    log_y, log_left = numbers.log(y), numbers.log1p(-y)
    far = first * (log_y - log_mean) + second * (log_left - log_rest) - log_y - log_left
    constant = 0.5 * (log_mean + log_rest + log_precision) - LOG_SQRT_TWO_PI + stirling_remainder(numbers, precision)
    return far + constant - stirling_remainder(numbers, first) - stirling_remainder(numbers, second)
