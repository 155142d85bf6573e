"""A smooth histogram: a number whose distribution may have any shape, as weights of fixed overlapping bins."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.special import log_softmax, logsumexp, ndtri

from mile import _registry
from mile._checks import check_count, check_number, check_tuple
from mile._types import Outputs
from mile.likelihoods._hats import Hats, knots_of
from mile.likelihoods._resolution import resolution_of
from mile.likelihoods._scaled import robust_response
from mile.likelihoods.base import (
    AbstractResponse,
    Encoded,
    Evaluate,
    Mixture,
    OutputsOfDraws,
    PerDraw,
    PerRow,
)
from mile.likelihoods.components import AbstractComponents
from mile.likelihoods.numbers import AbstractNumberLikelihood

_FEWEST_BINS, _MOST_BINS = 4, 256
_ROWS_OF_A_BIN = 25  # of training data, where the number of bins is chosen by the rows
_USUAL_BINS = 32
_SMALLEST_GAP = 1e-3  # between knots, in standard deviations of the response
_SMALLEST_LEVEL = 1e-300  # of a sample, which must not be infinite


@_registry.likelihood("histogram")
@dataclass(frozen=True)
class Histogram(AbstractNumberLikelihood):
    """Any distribution as a smooth histogram: a network output for the log weight of each of many overlapping bins.

    The density is a straight line from each knot to the next, with exponential tails. Knots are quantiles of the
    training rows, so that equal weights are about the distribution of y. The scale of y is learned so that outliers do
    not move it.

    Parameters
    ----------
    n_bins
        Bins, one for each knot; `likelihood="histogram"` takes one for every 25 rows, 4 to 32.
    knots
        Where the density bends, in ascending order. None: learned when the model is fitted.
    tails
        Mean distances beyond the first and the last knot. None: learned.
    """

    n_bins: int = _USUAL_BINS
    knots: tuple[float, ...] | None = None
    tails: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        check_count("n_bins", self.n_bins, smallest=_FEWEST_BINS, largest=_MOST_BINS)
        if (self.knots is None) != (self.tails is None):
            raise ValueError("knots and tails must be given together.")
        if self.knots is None or self.tails is None:
            return
        knots = [check_number("each of knots", knot) for knot in check_tuple("knots", self.knots, "numbers")]
        if len(knots) != self.n_bins or not np.all(np.diff(knots) > 0):
            raise ValueError(f"knots must be {self.n_bins} numbers in ascending order; got {self.knots!r}.")
        tails = [check_number("each of tails", tail, positive=True) for tail in check_tuple("tails", self.tails, "two")]
        if len(tails) != 2:
            raise ValueError(f"tails must be two numbers; got {self.tails!r}.")

    @classmethod
    def for_response(cls, y: np.ndarray) -> "Histogram":
        """Return the histogram whose bins have enough rows."""
        return cls(n_bins=int(np.clip(len(y) // _ROWS_OF_A_BIN, _FEWEST_BINS, _USUAL_BINS)))

    @property
    def n_outputs(self) -> int:
        """Log weights of the bins."""
        return self.n_bins

    def learn(self, y: np.ndarray, rows: Int[np.ndarray, " chosen"], weight: PerRow | None = None) -> AbstractResponse:
        """Learn the scale of the middle of y."""
        return robust_response(y, rows, weight)

    def fitted(self, y: Encoded) -> "Histogram":
        """Return this histogram with knots at quantiles of the response."""
        if self.knots is not None:
            return self
        knots, tails = knots_of(y.astype(np.float64), self.n_bins, max(resolution_of(y) or 0.0, _SMALLEST_GAP))
        return replace(self, knots=knots, tails=tails)

    @cached_property
    def hats(self) -> Hats:
        """The densities of the bins."""
        if self.knots is not None and self.tails is not None:
            return Hats(np.asarray(self.knots), self.tails)
        levels = (np.arange(self.n_bins) + 0.5) / self.n_bins
        return Hats(ndtri(levels), (0.5, 0.5))

    def log_prob(self, outputs: Outputs, y: Float[Array, " row"]) -> Float[Array, " row"]:
        """Return the log density of each row."""
        heights = self.hats.log_density(jnp, y).astype(outputs.dtype)
        return jax.nn.logsumexp(outputs + heights, axis=0) - jax.nn.logsumexp(outputs, axis=0)

    def components(self, outputs: OutputsOfDraws) -> "HistogramComponents":
        """Return the histograms of outputs."""
        bins = np.moveaxis(outputs.astype(np.float64), 1, 0)
        return HistogramComponents(log_softmax(bins, axis=0), self.hats)


@dataclass(frozen=True, eq=False)
class HistogramComponents(AbstractComponents):
    """Smooth histograms of each row under each draw."""

    log_weight: Float[np.ndarray, "bin draw row"]
    hats: Hats

    @property
    def mean(self) -> PerDraw:
        """Means."""
        return self._average(self.hats.moments()[0])

    @property
    def std(self) -> PerDraw:
        """Standard deviations."""
        first, second = self.hats.moments()
        return np.sqrt(self._average(second) - np.square(self._average(first)))

    def log_prob(self, y: PerRow) -> PerDraw:
        """Return the log density of one value per row."""
        heights = self.hats.log_density(np, np.asarray(y, np.float64))
        return np.asarray(logsumexp(self.log_weight + heights[:, None], axis=0))

    def cdf(self, y: PerRow) -> PerDraw:
        """Return P(Y <= y) of one value per row."""
        return (np.exp(self.log_weight) * self.hats.cdf(y)[:, None]).sum(axis=0)

    def quantile(self, level: float) -> PerDraw:
        """Return the quantiles at one level."""
        return self.hats.quantile(np.exp(self.log_weight), np.asarray(level))

    def brackets(self, level: float) -> np.ndarray:
        """Return the quantiles of the first and the last bin, of which every histogram is a mixture."""
        n_bins, n_rows = len(self.log_weight), self.log_weight.shape[-1]
        ends = self.hats.quantile(np.eye(n_bins)[:, [0, -1]], np.asarray(level))
        return np.repeat(ends[:, None], n_rows, axis=1)

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Draw one value from each distribution."""
        level = rng.uniform(_SMALLEST_LEVEL, 1.0, self.log_weight.shape[1:])
        return self.hats.quantile(np.exp(self.log_weight), level)

    def parameters(self) -> tuple[np.ndarray, ...]:
        """Return the log weights."""
        return (self.log_weight,)

    def with_parameters(self, arrays: Sequence[np.ndarray]) -> "HistogramComponents":
        """Return histograms with the same bins and other weights."""
        return replace(self, log_weight=arrays[0])

    def take(self, draws: Int[np.ndarray, "sample row"]) -> "HistogramComponents":
        """Return one histogram for each sample and row: that of the draw with the given number."""
        return replace(self, log_weight=np.take_along_axis(self.log_weight, draws[None], axis=1))

    def evaluator(self, mixture: Mixture) -> Evaluate:
        """Return distribution function and density; a mixture of histograms is the histogram of mean weights."""
        weight = mixture.weights.mean(np.moveaxis(np.exp(self.log_weight), 1, 0))

        def evaluate(y: PerRow) -> tuple[PerRow, PerRow]:
            density = np.exp(self.hats.log_density(np, y))
            return (weight * self.hats.cdf(y)).sum(axis=0), (weight * density).sum(axis=0)

        return evaluate

    def _average(self, of_bins: np.ndarray) -> PerDraw:
        return (np.exp(self.log_weight) * of_bins[:, None, None]).sum(axis=0)
