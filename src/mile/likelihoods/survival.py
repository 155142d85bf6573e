"""The predictive distribution of values with limits: survival curves, hazards, medians and restricted means."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, cast, overload

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from mile._checks import check_number
from mile.likelihoods.base import AbstractResponse, Mixture, PerDraw, PerRow
from mile.likelihoods.censorable import AbstractTailedComponents
from mile.likelihoods.limits import Limits, limits_of, split
from mile.likelihoods.medians import MedianPredictive
from mile.likelihoods.numbers import Predictive

if TYPE_CHECKING:
    from mile.likelihoods.censored import Censored

Ends = Float[np.ndarray, "row 2"]
Curves = Float[np.ndarray, "row time"]


class SurvivalPredictive(MedianPredictive):
    """Predictive distribution of survival times, and of other values with limits: a mixture over draws.

    Where a method takes a `level`, it also returns the interval that holds the number with that probability: draws
    disagree about it because there were only so many rows to learn from.
    """

    score_names: ClassVar[tuple[str, ...]] = ("lppd", "concordance", "integrated_brier", "survival_calibration")
    figure_names = ("survival", "survival_calibration", "uncertainty")
    caution_names = ()
    log_prob_label = "log density or probability"

    def __init__(self, mixture: Mixture, likelihood: "Censored", response: AbstractResponse) -> None:
        super().__init__(mixture, likelihood.family, response)
        self._censored = likelihood
        self._known: tuple[bytes, Curves] | None = None

    def head(self, n: int = 5) -> "SurvivalPredictive":
        """Return the distributions of the first rows."""
        return self._censored.predictive(self._mixture.head(n), self._response)  # pyright: ignore

    def limits(self, y: ArrayLike) -> Limits:
        """Return the ends that each observed row lies between."""
        return split(limits_of(y))

    def log_prob(self, y: np.ndarray) -> PerRow:
        """Return the log density of observed rows on the scale of y, and the log probability of the others."""
        return self._of_limits(y, self._weights.log_mean_exp)

    def log_prob_per_draw(self, y: np.ndarray) -> PerDraw:
        """Return the same under each draw alone."""
        return self._of_limits(y, lambda of_draws: of_draws)

    def _of_limits(self, y: np.ndarray, mean: Callable[[PerDraw], np.ndarray]) -> np.ndarray:
        limits = self.limits(y)
        if len(limits.lower) != len(self):
            raise ValueError(f"y must have one entry per row, {len(self)}; got {len(limits.lower)}.")
        lowest = self._censored.family.lowest

        def found(outputs: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
            return mean(self._tailed(outputs).log_prob_of_limits(lower, upper, lowest))

        lower, upper = ((ends - self._shift) / self._scale for ends in limits)
        return self._over_blocks(found, lower, upper) - np.where(limits.is_exact, np.log(self._scale), 0.0)

    @overload
    def survival(self, times: ArrayLike, level: None = None) -> Curves: ...

    @overload
    def survival(self, times: ArrayLike, level: float | None) -> Curves | tuple[Curves, np.ndarray]: ...

    def survival(self, times: ArrayLike, level: float | None = None) -> Curves | tuple[Curves, np.ndarray]:
        """Return the probability of a value above each of the times, shape (row, time).

        Parameters
        ----------
        times
            Any number of them, the same for all rows.
        level
            Such as 0.9: return also the ends of the interval that draws give, shape (row, time, 2).
        """
        wanted = check_times(times)
        at = (wanted - self._shift) / self._scale
        if level is None:
            if self._known is None or self._known[0] != wanted.tobytes():

                def means(outputs: np.ndarray) -> np.ndarray:
                    above = self._tailed(outputs).log_survival
                    return np.stack([self._weights.mean(np.exp(above(_same(one, outputs)))) for one in at])

                self._known = wanted.tobytes(), self._over_blocks(means).T
            return self._known[1]
        levels = _ends_of(level)

        def summaries(outputs: np.ndarray) -> np.ndarray:
            components = self._tailed(outputs)
            return np.stack([self._summary(np.exp(components.log_survival(_same(one, outputs))), levels) for one in at])

        found = np.moveaxis(self._over_blocks(summaries), -1, 0)
        return found[..., 0], found[..., 1:]

    def hazard(self, times: ArrayLike) -> Curves:
        """Return the rate of events at each of the times among those that had none before, shape (row, time)."""
        at = (check_times(times) - self._shift) / self._scale

        def rates(outputs: np.ndarray) -> np.ndarray:
            components, mean = self._tailed(outputs), self._weights.log_mean_exp
            same = [_same(one, outputs) for one in at]
            return np.stack([np.exp(mean(components.log_prob(y)) - mean(components.log_survival(y))) for y in same])

        return self._over_blocks(rates).T / self._scale

    def median_interval(self, level: float = 0.9) -> Ends:
        """Return the ends of the interval that draws give for the median of each row."""
        levels = _ends_of(level)

        def ends(outputs: np.ndarray) -> np.ndarray:
            return self._summary(self._tailed(outputs).quantile(0.5), levels)[1:]

        return self._shift + self._scale * self._over_blocks(ends).T

    def restricted_mean(self, until: float, level: float | None = None) -> "PerRow | tuple[PerRow, Ends]":
        """Return the mean of the smaller of the value and `until`; with `level` also the interval that draws give."""
        limit = (check_number("until", until) - self._shift) / self._scale
        levels = _ends_of(0.5 if level is None else level)

        def found(outputs: np.ndarray) -> np.ndarray:
            return self._summary(self._tailed(outputs).mean_below(limit), levels)

        mean, *ends = self._shift + self._scale * self._over_blocks(found)
        return mean if level is None else (mean, np.stack(ends, axis=1))

    def survival_columns(self, times: Sequence[float]) -> dict[str, np.ndarray]:
        """Return the probability of surviving each of the times, as columns of a table."""
        if not len(times):
            return {}
        found = cast(Curves, self.survival(times))
        return {f"survival_{time:g}": column for time, column in zip(times, found.T, strict=True)}

    def row_scores(self, y: np.ndarray, thinned: "Predictive | None" = None) -> dict[str, PerRow]:
        """Return log density or probability."""
        return {"lppd": self.log_prob(y)}

    def possible(self, ends: np.ndarray) -> np.ndarray:
        """Return ends of intervals, moved to values that y can have."""
        return np.maximum(ends, self._censored.family.lowest)

    def _tailed(self, outputs: np.ndarray) -> AbstractTailedComponents:
        return self._censored.family.components(outputs)

    def _summary(self, of_draws: PerDraw, levels: tuple[float, float]) -> np.ndarray:
        """Return mean and two quantiles over draws, shape (3, row)."""
        weights = self._weights
        return np.stack([weights.mean(of_draws), *(weights.quantile(of_draws, level) for level in levels)])


def check_times(times: ArrayLike) -> Float[np.ndarray, " time"]:
    """Return finite times.

    Raises
    ------
    ValueError
        If there is none, or one is not finite.
    """
    found = np.atleast_1d(np.asarray(times, np.float64))
    if found.ndim != 1 or not found.size or not np.isfinite(found).all():
        raise ValueError(f"times must be one or more finite numbers; got {times!r}.")
    return found


def _ends_of(level: float) -> tuple[float, float]:
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie strictly between 0 and 1; got {level!r}.")
    return 0.5 - level / 2, 0.5 + level / 2


def _same(value: float, outputs: np.ndarray) -> PerRow:
    return np.full(outputs.shape[-1], value)
