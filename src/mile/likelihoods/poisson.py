"""The Poisson distribution of counts, and one with more zeros."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy import special

from mile import _registry
from mile._checks import check_number
from mile._types import Outputs
from mile.likelihoods._inflated import InflatedComponents
from mile.likelihoods._integers import AbstractCountComponents
from mile.likelihoods._masses import poisson_log_mass, with_zeros
from mile.likelihoods._zeros import start_of
from mile.likelihoods.base import Encoded, OutputsOfDraws, PerDraw, PerRow
from mile.likelihoods.counts import AbstractCount, are_counts

_LARGEST_COUNTABLE = 600.0  # exp(-600) is a normal number
_TAIL = 35.0  # -ln 1e-15, rounded up


@_registry.likelihood("poisson")
@dataclass(frozen=True)
class Poisson(AbstractCount):
    """Count with a Poisson distribution, whose variance is its mean: an output for the log of the mean."""

    head = "poisson"

    def log_prob(self, outputs: Outputs, y: Float[Array, " row"]) -> Float[Array, " row"]:
        """Return the log probability of each row."""
        return poisson_log_mass(jnp, y, self.log_mean(jnp, outputs[0], outputs[-1]))

    def components(self, outputs: OutputsOfDraws) -> AbstractCountComponents:
        """Return the Poisson distributions of outputs."""
        outputs = outputs.astype(np.float64)
        return PoissonComponents(self.log_mean(np, outputs[:, 0], outputs[:, -1]))


@_registry.likelihood("zero_inflated_poisson")
@dataclass(frozen=True)
class ZeroInflatedPoisson(Poisson):
    """Count that is zero with a chance of its own, else Poisson: outputs for the log of the mean, log odds of zero.

    Parameters
    ----------
    center, spread, below, above
        As those of `Poisson`.
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
        """Log mean, log odds of zero."""
        return 2 + self.n_offsets

    def fitted(self, y: Encoded) -> AbstractCount:
        """Return this likelihood with what it takes from the response."""
        zeros = start_of(0.5 * float(np.mean(y == 0))) if self.zeros is None and len(y) else self.zeros
        return super(ZeroInflatedPoisson, replace(self, zeros=zeros)).fitted(y)

    def log_prob(self, outputs: Outputs, y: Float[Array, " row"]) -> Float[Array, " row"]:
        """Return the log probability of each row."""
        return with_zeros(jnp, outputs[1] + (self.zeros or 0.0), y, super().log_prob(outputs, y))

    def components(self, outputs: OutputsOfDraws) -> AbstractCountComponents:
        """Return the distributions of outputs."""
        return InflatedComponents(outputs[:, 1].astype(np.float64) + (self.zeros or 0.0), super().components(outputs))


@dataclass(frozen=True, eq=False)
class PoissonComponents(AbstractCountComponents):
    """Poisson distributions of each row under each draw."""

    log_rate: PerDraw

    @property
    def mean(self) -> PerDraw:
        """Means."""
        return np.exp(self.log_rate)

    @property
    def std(self) -> PerDraw:
        """Standard deviations."""
        return np.exp(0.5 * self.log_rate)

    @property
    def countable(self) -> Bool[np.ndarray, " row"]:
        """Rows with small means."""
        return np.all(self.mean <= _LARGEST_COUNTABLE, axis=0)

    @property
    def reach(self) -> PerRow:
        """By Bernstein's inequality."""
        mean = self.mean
        return np.asarray(mean + np.sqrt(2.0 * _TAIL * mean) + _TAIL).max(axis=0)

    def log_prob(self, y: PerRow) -> PerDraw:
        """Return the log probability of one number per row."""
        whole = np.where(are_counts(y), y, 0.0) + 0.0 * self.log_rate
        return np.where(are_counts(y), poisson_log_mass(np, whole, self.log_rate), -np.inf)

    def smooth_cdf(self, y: PerRow) -> PerDraw:
        """Return P(Y <= y), between whole numbers too."""
        return special.gammaincc(np.asarray(y) + 1.0, self.mean)

    def masses(self) -> Iterator[PerDraw]:
        """Yield the probability of 0, 1 and so on."""
        mean, number = self.mean, 0
        mass = np.exp(-mean)
        while True:
            yield mass
            number += 1
            mass = mass * (mean / number)

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Draw one count from each distribution."""
        return rng.poisson(self.mean).astype(np.float64)
