"""The negative binomial distribution of counts that vary more than a Poisson distribution allows, also with zeros."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import ModuleType

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy import special

from mile import _registry
from mile._checks import check_number
from mile._types import Outputs
from mile.likelihoods._inflated import InflatedComponents
from mile.likelihoods._integers import AbstractCountComponents
from mile.likelihoods._links import Values
from mile.likelihoods._masses import negative_binomial_log_mass, with_zeros
from mile.likelihoods._special import within
from mile.likelihoods._zeros import start_of
from mile.likelihoods.base import Encoded, NativeHead, OutputsOfDraws, PerDraw, PerRow
from mile.likelihoods.counts import AbstractCount, are_counts

_MOST = 10.0  # times the dispersion of y itself
_LEAST = 0.01  # of the mean, by which the variance at the largest count exceeds it at least
_SMALLEST = 0.1  # of the mean, by which the variance exceeds it where the output is zero, if that of y does not
_LARGEST_COUNTABLE = 600.0  # exp(-600) is a normal number
_TAIL = 35.0  # -ln 1e-15, rounded up
_FEWEST_NATIVE, _MOST_NATIVE = 1e-12, 1e8  # dispersions for which no number of the kernel leaves float32


@_registry.likelihood("negative_binomial")
@dataclass(frozen=True)
class NegativeBinomial(AbstractCount):
    """Count with variance mean + dispersion * mean^2: outputs for the logs of the mean and of the dispersion.

    Parameters
    ----------
    center, spread, below, above
        As those of `Poisson`.
    dispersion
        Where the second output is zero; it stays below ten times that. None: learned, as that of y itself.
    least
        Smallest dispersion. None: learned, as what adds a hundredth to the variance at the largest count.
    """

    dispersion: float | None = None
    least: float | None = None

    head = "negative_binomial"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("dispersion", "least"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), positive=True)

    @property
    def n_outputs(self) -> int:
        """Log mean, log dispersion."""
        return 2 + self.n_offsets

    def fitted(self, y: Encoded) -> AbstractCount:
        """Return this likelihood with what it takes from the response, kept to two digits."""
        counts = np.asarray(y, np.float64) if len(y) else np.ones(1)
        mean = max(float(np.mean(counts)), 0.5 / len(counts))
        dispersion = max((float(np.var(counts)) - mean) / mean**2, _SMALLEST / mean)
        least = min(_LEAST / max(float(np.max(counts)), 1.0), _LEAST * dispersion)
        learned = replace(
            self,
            dispersion=self.dispersion or float(f"{dispersion:.2g}"),
            least=self.least or float(f"{least:.2g}"),
        )
        return super(NegativeBinomial, learned).fitted(y)

    def log_dispersion(self, numbers: ModuleType, raw: Values) -> Values:
        """Return the log of the dispersion that the second output stands for."""
        start, smallest = self._dispersions
        return math.log(start) + within(numbers, raw, math.log(smallest), math.log(_MOST))

    def native_head(self) -> NativeHead | None:
        """Return the head with the links of mean and dispersion."""
        head, (start, smallest) = super().native_head(), self._dispersions
        if head is None or not _FEWEST_NATIVE <= start * smallest <= start <= _MOST_NATIVE:
            return None
        return head._replace(numbers=(*head.numbers, start, smallest, 1.0 / _MOST))

    @property
    def _dispersions(self) -> tuple[float, float]:
        """Where the second output is zero, and the smallest as a share of that."""
        start = self.dispersion or 1.0
        least = self.least or _LEAST * start
        return start, min(least / start, 1.0 / _MOST)

    def log_prob(self, outputs: Outputs, y: Float[Array, " row"]) -> Float[Array, " row"]:
        """Return the log probability of each row."""
        log_dispersion = self.log_dispersion(jnp, outputs[1])
        return negative_binomial_log_mass(jnp, y, self.log_mean(jnp, outputs[0], outputs[-1]), log_dispersion)

    def components(self, outputs: OutputsOfDraws) -> AbstractCountComponents:
        """Return the distributions of outputs."""
        outputs = outputs.astype(np.float64)
        return NegativeBinomialComponents(
            self.log_mean(np, outputs[:, 0], outputs[:, -1]), self.log_dispersion(np, outputs[:, 1])
        )


@_registry.likelihood("zero_inflated_negative_binomial")
@dataclass(frozen=True)
class ZeroInflatedNegativeBinomial(NegativeBinomial):
    """Count that is zero with a chance of its own, else negative binomial: outputs as there, and log odds of zero.

    Parameters
    ----------
    center, spread, below, above, dispersion, least
        As those of `NegativeBinomial`.
    zeros
        Log odds of the chance where the output is zero. None: learned, as those of half of the zeros in y.
    """

    zeros: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.zeros is not None:
            check_number("zeros", self.zeros)

    @property
    def n_outputs(self) -> int:
        """Log mean, log dispersion, log odds of zero."""
        return 3 + self.n_offsets

    def fitted(self, y: Encoded) -> AbstractCount:
        """Return this likelihood with what it takes from the response."""
        zeros = start_of(0.5 * float(np.mean(y == 0))) if self.zeros is None and len(y) else self.zeros
        return super(ZeroInflatedNegativeBinomial, replace(self, zeros=zeros)).fitted(y)

    def log_prob(self, outputs: Outputs, y: Float[Array, " row"]) -> Float[Array, " row"]:
        """Return the log probability of each row."""
        return with_zeros(jnp, outputs[2] + (self.zeros or 0.0), y, super().log_prob(outputs, y))

    def components(self, outputs: OutputsOfDraws) -> AbstractCountComponents:
        """Return the distributions of outputs."""
        return InflatedComponents(outputs[:, 2].astype(np.float64) + (self.zeros or 0.0), super().components(outputs))


@dataclass(frozen=True, eq=False)
class NegativeBinomialComponents(AbstractCountComponents):
    """Negative binomial distributions of each row under each draw."""

    log_mean: PerDraw
    log_dispersion: PerDraw

    @property
    def mean(self) -> PerDraw:
        """Means."""
        return np.exp(self.log_mean)

    @property
    def std(self) -> PerDraw:
        """Standard deviations."""
        return np.sqrt(self.mean * (1.0 + self._scale))

    @property
    def countable(self) -> Bool[np.ndarray, " row"]:
        """Rows whose zeros have a probability."""
        return np.all(self._size * np.log1p(self._scale) <= _LARGEST_COUNTABLE, axis=0)

    @property
    def reach(self) -> PerRow:
        """By Bernstein's inequality."""
        return (self.mean + np.sqrt(2.0 * _TAIL) * self.std + _TAIL * (1.0 + self._scale)).max(axis=0)

    def log_prob(self, y: PerRow) -> PerDraw:
        """Return the log probability of one number per row."""
        whole = np.where(are_counts(y), y, 0.0) + 0.0 * self.log_mean
        found = negative_binomial_log_mass(np, whole, self.log_mean, self.log_dispersion)
        return np.where(are_counts(y), found, -np.inf)

    def smooth_cdf(self, y: PerRow) -> PerDraw:
        """Return P(Y <= y), between whole numbers too."""
        return special.betainc(self._size, np.asarray(y) + 1.0, 1.0 / (1.0 + self._scale))

    def masses(self) -> Iterator[PerDraw]:
        """Yield the probability of 0, 1 and so on."""
        size, scale = self._size, self._scale
        ratio, number = scale / (1.0 + scale), 0.0
        grows, mass = ratio * size, np.exp(-size * np.log1p(scale))
        while True:
            yield mass
            factor = ratio * (number / (number + 1.0))
            factor += grows / (number + 1.0)
            factor *= mass
            mass, number = factor, number + 1.0

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Draw one count from each distribution."""
        return rng.poisson(rng.gamma(self._size, self._scale)).astype(np.float64)

    @property
    def _size(self) -> PerDraw:
        return np.exp(-self.log_dispersion)

    @property
    def _scale(self) -> PerDraw:
        """Variance by mean, less one."""
        return np.exp(self.log_mean + self.log_dispersion)
