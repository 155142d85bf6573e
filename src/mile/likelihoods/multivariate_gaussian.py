"""The normal distribution of several outputs with a correlation for each pair of them that depends on the features."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import cast

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from mile import _registry
from mile._checks import check_number
from mile._types import Outputs
from mile.likelihoods._links import SCALE_LIMIT, SMALLEST_SCALE, Values, bounded
from mile.likelihoods._special import LOG_SQRT_TWO_PI
from mile.likelihoods.base import AbstractResponse, Encoded, OutputsOfDraws, PerDraw
from mile.likelihoods.gaussian import Gaussian
from mile.likelihoods.outputs import AbstractSeveral, Marginal, check_names

_STEEPEST = 100.0  # slopes of one output on those before it, so that correlations stay below 0.99995


@_registry.likelihood("multivariate_gaussian")
@dataclass(frozen=True)
class MultivariateGaussian(AbstractSeveral):
    """Several numbers for each row with a normal distribution of any covariance.

    The network has for each of m responses an output for its location and one for its log standard deviation, through
    the link of `Gaussian(link="bounded")`, and for each pair one for their correlation: m (m + 3) / 2 in all. These
    last make rows of a Cholesky factor of the correlation matrix: a row is (a_1, ..., a_j-1, 1) divided by its length,
    with a = 100 tanh(z / 100). Each response alone is therefore what `Gaussian(link="bounded")` makes of it.

    Parameters
    ----------
    n_responses
        Columns of y.
    floors
        Smallest standard deviation of each response, as the `floor` of `Gaussian`. None: decided when the model is
        fitted.
    names
        What the outputs are called; () takes the names of y's columns, or y0, y1 and so on.
    """

    n_responses: int
    floors: tuple[float, ...] | None = None
    names: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        check_names(self.names, self.n_responses)
        if self.floors is not None:
            if len(self.floors) != self.n_responses:
                raise ValueError(f"floors must be one number for each of {self.n_responses}; got {self.floors!r}.")
            for floor in self.floors:
                check_number("floors", floor, smallest=SMALLEST_SCALE, largest=SCALE_LIMIT)

    @classmethod
    def of_size(cls, n_responses: int) -> "MultivariateGaussian":
        """Return the distribution of so many responses."""
        return cls(n_responses)

    def called(self, names: tuple[str, ...]) -> "MultivariateGaussian":
        """Return this likelihood with the names that y came with."""
        return replace(self, names=names) if names and not self.names else self

    @property
    def n_outputs(self) -> int:
        """Locations, log standard deviations, correlations."""
        return self.n_responses * (self.n_responses + 3) // 2

    @property
    def marginals(self) -> tuple[Marginal, ...]:
        """Each response alone, with its location and its log standard deviation."""
        floors = (None,) * self.n_responses if self.floors is None else self.floors
        return tuple(
            Marginal(Gaussian(link="bounded", floor=floor), np.array([place, self.n_responses + place]))
            for place, floor in enumerate(floors)
        )

    def fitted(self, y: Encoded) -> "MultivariateGaussian":
        """Return this likelihood with floors that suit the responses."""
        if self.floors is not None:
            return self
        found = [Gaussian(link="bounded").fitted(column).floor for column in y.T]
        return replace(self, floors=tuple(SMALLEST_SCALE if floor is None else floor for floor in found))

    def log_prob(self, outputs: Outputs, y: Float[Array, "row output"]) -> Float[Array, " row"]:
        """Return the log density of each row."""
        return self._log_density(jnp, list(outputs), list(y.T))

    def joint_log_prob(
        self, outputs: OutputsOfDraws, parts: Sequence[AbstractResponse], y: Float[np.ndarray, "output row"]
    ) -> PerDraw:
        """Return the log density of each row under each draw, on the scale of y."""
        units = [part.unit for part in parts]
        standardized = [(column - _shift(part)) / part.unit for part, column in zip(parts, y, strict=True)]
        with np.errstate(invalid="ignore"):  # NaN stays NaN
            found = self._log_density(np, self._by_output(outputs), standardized)
        return found - math.fsum(map(math.log, units))

    def joint_sample(
        self, outputs: OutputsOfDraws, parts: Sequence[AbstractResponse], rng: np.random.Generator
    ) -> Float[np.ndarray, "output row"]:
        """Draw one response for each row."""
        raw, n = self._by_output(outputs), self.n_responses
        noise = list(rng.standard_normal((n, *raw[0].shape)))
        found = []
        for place, part in enumerate(parts):
            slopes = self._slopes(np, raw, place)
            mixed = noise[place] + sum(slope * one for slope, one in zip(slopes, noise, strict=False))
            scale = np.exp(bounded(np, raw[n + place], self._floor(place)))
            standardized = raw[place] + scale * mixed / np.exp(_log_length(np, slopes, mixed))
            found.append(_shift(part) + part.unit * standardized)
        return np.stack(found)[:, 0]

    def noise_correlation(self, outputs: OutputsOfDraws, one: int, other: int) -> PerDraw:
        """Return the product of two rows of the Cholesky factor."""
        raw, zero = self._by_output(outputs), np.zeros_like(outputs[:, 0], np.float64)
        first, second = self._slopes(np, raw, one), self._slopes(np, raw, other)
        lengths = np.exp(_log_length(np, first, zero) + _log_length(np, second, zero))
        ends = [*first, 1.0 + zero], [*second, 1.0 + zero]
        return sum((a * b for a, b in zip(*ends, strict=False)), start=zero) / lengths

    def _log_density(self, numbers: ModuleType, raw: list[Values], y: list[Values]) -> Values:
        """Return the log density by forward substitution, one response after the other."""
        n, whitened, total = self.n_responses, [], cast(Values, 0.0 * raw[0])
        for place in range(n):
            log_scale = bounded(numbers, raw[n + place], self._floor(place))
            slopes = self._slopes(numbers, raw, place)
            log_length = _log_length(numbers, slopes, total)
            away = (y[place] - raw[place]) * numbers.exp(log_length - log_scale)
            for slope, before in zip(slopes, whitened, strict=True):
                away = away - slope * before
            whitened.append(away)
            terms = log_length - log_scale - 0.5 * numbers.square(away) - LOG_SQRT_TWO_PI
            total = cast(Values, total + terms)
        return total

    def _slopes(self, numbers: ModuleType, raw: list[Values], place: int) -> list[Values]:
        """Return how a response depends on those before it, before its row is divided by its length."""
        start = 2 * self.n_responses + place * (place - 1) // 2
        return [_STEEPEST * numbers.tanh(one / _STEEPEST) for one in raw[start : start + place]]

    def _by_output(self, outputs: OutputsOfDraws) -> list[np.ndarray]:
        return list(np.moveaxis(outputs.astype(np.float64), 1, 0))

    def _floor(self, place: int) -> float:
        return SMALLEST_SCALE if self.floors is None else float(self.floors[place])


def _log_length(numbers: ModuleType, slopes: list[Values], like: Values) -> Values:
    return 0.5 * numbers.log1p(sum((numbers.square(slope) for slope in slopes), start=0.0 * like))


def _shift(part: AbstractResponse) -> float:
    return float(part.decode(np.zeros(1))[0])
