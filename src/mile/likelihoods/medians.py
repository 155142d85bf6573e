"""Predictive distributions of numbers that may have neither mean nor variance: rows are predicted by medians."""

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from mile.likelihoods.base import Explained, PerDraw, PerRow, Uncertainty
from mile.likelihoods.components import AbstractComponents
from mile.likelihoods.numbers import Predictive
from mile.likelihoods.positive import PositivePredictive


class MedianPredictive(Predictive):
    """Predictive distribution of a number that may have no mean: a mixture over draws, on the scale of y.

    What other numbers have of means and standard deviations, this has of medians and spreads.
    """

    score_names: ClassVar[tuple[str, ...]] = tuple(name for name in Predictive.score_names if name != "rmse")
    caution_names = ("coverage",)

    @property
    def point(self) -> PerRow:
        """Median of each row."""
        return self.median

    @property
    def median(self) -> PerRow:
        """Median of each row."""
        return self._median

    @cached_property
    def _median(self) -> PerRow:
        return self.quantile(0.5)

    @property
    def mean(self) -> PerRow:
        """Mean of each row; infinite where there is none."""
        return self._shift + self._scale * self._true_moments[0]

    @property
    def std(self) -> PerRow:
        """Standard deviation of each row; infinite where there is none."""
        return self._scale * self._true_moments[1]

    @cached_property
    def _true_moments(self) -> tuple[PerRow, PerRow]:
        def moments(outputs: np.ndarray) -> tuple[PerRow, PerRow]:
            components = self._likelihood.components(outputs)
            with np.errstate(invalid="ignore", over="ignore"):
                mean, std = components.mean, components.std
                center = self._weights.mean(mean)
                variance = self._weights.mean(np.square(std)) + self._weights.mean(np.square(mean - center))
            return center, np.where(np.isnan(variance), np.inf, np.sqrt(variance))

        return self._mixture.over_blocks(moments)

    def _moments_of_mixture(self, components: AbstractComponents) -> tuple[PerRow, PerRow, PerRow]:
        """Return the mean of medians, the mean square of spreads, and the variance of medians."""
        middle, weights = components.quantile(0.5), self._weights
        return weights.mean(middle), weights.mean(np.square(components.spread)), weights.variance(middle)

    def medians_per_draw(self) -> tuple[PerDraw, PerDraw]:
        """Return median and spread of each row under each draw alone."""

        def found(outputs: np.ndarray) -> tuple[PerDraw, PerDraw]:
            components = self._likelihood.components(outputs)
            return components.quantile(0.5), components.spread

        median, spread = self._mixture.over_blocks(found)
        return self._shift + self._scale * median, self._scale * spread

    def followed(self) -> dict[str, PerDraw]:
        """Return median and log spread of each row under each draw."""
        median, spread = self.medians_per_draw()
        return {"median": median, "log spread": np.log(spread)}

    def explained(self, label: object = None) -> Explained:
        """Return median and spread under each draw."""
        return Explained(*self.medians_per_draw(), "median")

    def row_quantities(self, label: object = None) -> dict[str, PerRow]:
        """Return the median, and how much draws and noise spread."""
        parts = self.uncertainty()
        return {"median": self.median, "noise": parts.noise, "ignorance": parts.ignorance}

    def row_scores(self, y: np.ndarray, thinned: "Predictive | None" = None) -> dict[str, PerRow]:
        """Return log density, CRPS, and 1 where the 90 % interval holds y."""
        found = super().row_scores(y, thinned)
        return {name: values for name, values in found.items() if name != "squared_error"}

    def row_values(self, y: np.ndarray) -> dict[str, PerRow]:
        """Return nothing: conformal intervals need means and standard deviations."""
        return {}

    def columns(self, interval: float = 0.9, quantiles: Sequence[float] = ()) -> dict[str, np.ndarray]:
        """Return median, ends of an interval, and quantiles."""
        lower, upper = self.interval(interval).T
        name = f"{100 * interval:g}"
        found = {"median": self.median, f"lower_{name}": lower, f"upper_{name}": upper}
        if len(quantiles):
            of_levels = self.quantile(quantiles).T
            found |= {f"q{level:g}": column for level, column in zip(quantiles, of_levels, strict=True)}
        return found

    def brief(self, rows: Int[np.ndarray, " chosen"]) -> dict[str, np.ndarray]:
        """Return median and interval."""
        return {"median": self.median[rows], "90 % interval": self.interval(0.9)[rows]}

    def uncertainty(self) -> Uncertainty:
        """Return the spread of the noise and the standard deviation of the draws' medians."""
        noise, ignorance = self.aleatoric_std, self.epistemic_std
        share = np.square(ignorance) / np.maximum(np.square(noise) + np.square(ignorance), np.finfo(float).tiny)
        labels = ("noise, spread of {target}", "ignorance, standard dev. of medians")
        return Uncertainty(noise, ignorance, share, "squared spread", *labels)


class PositiveMedianPredictive(MedianPredictive, PositivePredictive):
    """Predictive distribution of a positive number that may have no mean."""
