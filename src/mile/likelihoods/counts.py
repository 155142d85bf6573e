"""Counts: whole numbers from zero on, as they are, with a network output for the log of the mean.

A family derives from `AbstractCount` and says the log probability and the distributions that outputs stand for.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType

import numpy as np
from jaxtyping import Int

from mile import _registry
from mile._checks import check_number
from mile.likelihoods._links import Values
from mile.likelihoods._special import within
from mile.likelihoods.atoms import AtomPredictive
from mile.likelihoods.base import AbstractResponse, Encoded, Mixture, NativeHead, OutputsOfDraws, PerRow, Tensors
from mile.likelihoods.numbers import AbstractNumberLikelihood

LARGEST_COUNT = 2**24  # whole numbers up to here are exact in float32
_MOST_SPREAD, _LEAST_SPREAD = 1.0, 1e-3
_MARGIN = 1.0  # spreads that means may lie beyond the smallest and the largest count
_RARE, _RAREST = 1e-3, 0.01  # where there are zeros, means may be this share of that of y, and this small in any case
_UNKNOWN_REACH = 10.0  # before the response has been seen
_MOST_NATIVE_REACH = 60.0  # farther ones are bent in logarithms, which the kernel does not do


@dataclass(frozen=True)
class CountResponse(AbstractResponse):
    """Counts, which are not scaled: their probabilities are those of whole numbers."""

    def encode(self, y: np.ndarray) -> Encoded:
        """Return counts in float32."""
        return np.asarray(y, np.float32)

    def decode(self, encoded: np.ndarray) -> np.ndarray:
        """Return counts in float64."""
        return np.asarray(encoded, np.float64)

    def usable(self, y: np.ndarray) -> np.ndarray:
        """Return which entries are counts."""
        return are_counts(np.asarray(y, float))

    def tensors(self) -> dict[str, np.ndarray]:
        """Return nothing: there is nothing to learn."""
        return {}


def are_counts(y: np.ndarray) -> np.ndarray:
    """Return which numbers are whole, finite and not negative."""
    return np.isfinite(y) & (y >= 0.0) & (y == np.floor(y))


@dataclass(frozen=True)
class AbstractCount(AbstractNumberLikelihood):
    """A count with a network output for the log of its mean.

    Means stay within sight of the data: below the largest count, and above the smallest one or, where there are zeros,
    a thousandth of the mean of y, each with a margin of one spread.

    Parameters
    ----------
    center, spread
        Logarithm of the mean of y, and the standard deviation that the log of the mean would have if all variation of y
        came from it, at most one. None: learned when the model is fitted.
    below, above
        How many spreads the log of the mean may lie from the center. None: learned.
    has_exposure
        Whether means are proportional to an exposure; then they and all above are those at the mean exposure, and the
        network has one more output, the log of the exposure over its mean. Estimators set it.
    """

    center: float | None = None
    spread: float | None = None
    below: float | None = None
    above: float | None = None
    has_exposure: bool = field(default=False, kw_only=True, metadata={_registry.ABSENT: False})

    def __post_init__(self) -> None:
        if self.center is not None:
            check_number("center", self.center)
        for name in ("spread", "below", "above"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), positive=True)

    @property
    def n_outputs(self) -> int:
        """Log mean."""
        return 1 + self.n_offsets

    @property
    def n_offsets(self) -> int:
        """One, the log of the exposure, if there is one."""
        return int(self.has_exposure)

    def with_exposure(self) -> "AbstractCount":
        """Return this family with means that are proportional to an exposure."""
        return replace(self, has_exposure=True)

    @classmethod
    def check(cls, y: np.ndarray) -> np.ndarray:
        """Return the response in float64, or name the first row that is not a count."""
        y = super().check(y)
        wrong = np.flatnonzero(~are_counts(y) | (y > LARGEST_COUNT))
        if wrong.size:
            value = float(y[wrong[0]])
            if value < 0.0:
                reason = 'numbers of both signs need a likelihood such as "gaussian"'
            elif value > LARGEST_COUNT:
                reason = (
                    f'it must be at most {LARGEST_COUNT:,}; take a likelihood of positive numbers such as "gamma", or '
                    "count in larger units"
                )
            else:
                reason = 'amounts that are not whole need a likelihood such as "gamma" or "hurdle_gamma"'
            raise ValueError(
                f"y has {value:.10g} in row {wrong[0]} ({wrong.size:,} such rows), and a {cls.__name__} is of counts, "
                f"whole numbers from zero on: {reason}."
            )
        return y

    def learn(self, y: np.ndarray, rows: Int[np.ndarray, " chosen"], weight: PerRow | None = None) -> AbstractResponse:
        """Learn nothing: counts stay as they are."""
        return CountResponse()

    def plain_response(self) -> AbstractResponse:
        """Return the encoding that changes nothing."""
        return CountResponse()

    def restore_response(self, tensors: Tensors) -> AbstractResponse:
        """Return the encoding that changes nothing."""
        return CountResponse()

    def check_encoded(self, y: Encoded, name: str) -> None:
        """Refuse what is not a count."""
        super().check_encoded(y, name)
        wrong = np.flatnonzero(~are_counts(y))
        if wrong.size:
            raise ValueError(
                f"{name} has {y[wrong[0]]:g} in row {wrong[0]}; a {type(self).__name__} needs counts, whole numbers "
                "from zero on."
            )

    def fitted(self, y: Encoded) -> "AbstractCount":
        """Return this likelihood with center, spread and reach of the response, kept to two digits."""
        if self.center is not None:
            return self
        counts = np.asarray(y, np.float64) if len(y) else np.ones(1)
        mean = max(float(np.mean(counts)), 0.5 / len(counts))  # there may be zeros only
        spread = math.sqrt(math.log1p(float(np.var(counts)) / mean**2))
        spread = float(f"{min(max(spread, _LEAST_SPREAD), _MOST_SPREAD):.2g}")
        center = round(math.log(mean) / spread, 1) * spread
        lowest = max(float(np.min(counts)), min(_RARE * mean, _RAREST))
        highest = max(float(np.max(counts)), mean)
        return replace(
            self,
            center=center,
            spread=spread,
            below=float(math.ceil(max((center - math.log(lowest)) / spread, 1.0) + _MARGIN)),
            above=float(math.ceil(max((math.log(highest) - center) / spread, 1.0) + _MARGIN)),
        )

    def log_mean(self, numbers: ModuleType, raw: Values, last: Values) -> Values:
        """Return the log of the mean that the first output stands for; the last is that of an exposure, if any."""
        center, spread, below, above = self._link
        found = center + spread * within(numbers, raw, -below, above)
        return found + last if self.has_exposure else found

    def native_head(self) -> NativeHead | None:
        """Return the head with the link of the mean, if the exponentials of its limits are numbers of float32."""
        center, spread, below, above = self._link
        if self.head is None or self.has_exposure or max(below, above) > _MOST_NATIVE_REACH:
            return None
        return NativeHead(self.head, numbers=(center, spread, math.exp(-below), math.exp(-above)))

    @property
    def _link(self) -> tuple[float, float, float, float]:
        """Center and spread of the log mean, and how many spreads it may lie below and above."""
        center, spread = self.center or 0.0, self.spread or 1.0
        return center, spread, self.below or _UNKNOWN_REACH, self.above or _UNKNOWN_REACH

    def remarks(self, outputs: Callable[[], OutputsOfDraws], y: Encoded) -> list[str]:
        """Return nothing: probabilities of few values have a limit, which densities do not."""
        return []

    def predictive(self, mixture: Mixture, response: AbstractResponse) -> "CountPredictive":
        """Return the predictive distribution of a count."""
        return CountPredictive(mixture, self, response)

    def aim(self, target: str) -> str:
        """Say that a distribution over counts is predicted."""
        return f"{target}, a count,"


class CountPredictive(AtomPredictive):
    """Predictive distribution of a count for each row: a mixture over draws of distributions of whole numbers.

    Log scores are those of probabilities. A quantile is the smallest count that is not exceeded with its level, so that
    an interval holds y with at least the probability that it says.
    """

    figure_names = ("intervals", "rootogram", "coverage", "pit", "uncertainty")
    log_prob_label = "log probability"

    def probabilities(self, counts: Sequence[int] | Int[np.ndarray, " count"]) -> np.ndarray:
        """Return the probability of each of some counts, shape (row, count)."""
        columns = [np.exp(self.log_prob(np.full(len(self), float(count)))) for count in counts]
        return np.stack(columns, axis=1)

    def points(self, y: np.ndarray) -> np.ndarray:
        """Return counts."""
        return np.unique(np.maximum(np.round(y), 0.0))

    def possible(self, ends: np.ndarray) -> np.ndarray:
        """Return ends of intervals, moved inward to counts: that loses none."""
        lower, upper = ends.T
        return np.stack([np.maximum(np.ceil(lower), 0.0), np.maximum(np.floor(upper), 0.0)], axis=1)

    def columns(self, interval: float = 0.9, quantiles: Sequence[float] = ()) -> dict[str, np.ndarray]:
        """Return mean, standard deviation, ends of an interval, quantiles, and the probability of zero."""
        return super().columns(interval, quantiles) | {"p_0": self.probabilities([0])[:, 0]}
