"""Positive numbers: divided by their standard deviation and not shifted, with a network output for the log location.

A family derives from `AbstractPositive` and says the log density and the distributions of location and noise.
"""

import math
from dataclasses import dataclass, replace
from types import ModuleType
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from mile._checks import check_number
from mile.features.numbers import Standardizer
from mile.likelihoods._links import Values
from mile.likelihoods._resolution import resolution_of
from mile.likelihoods._special import within
from mile.likelihoods.base import AbstractResponse, Encoded, Mixture, OutputsOfDraws, PerDraw, PerRow, Tensors
from mile.likelihoods.numbers import AbstractNumberLikelihood, Predictive, ScaledResponse

_MOST_NOISE = 2.0  # in spreads of ln y
LEAST_NOISE = 1e-3  # below it float32 has no digits for a gamma density
LEAST_SPREAD = 1e-3
MARGIN = 1.0  # spreads that locations may lie beyond the smallest and the largest ln y
_UNKNOWN_REACH = 5.0  # before the response has been seen


@dataclass(frozen=True)
class AbstractPositive(AbstractNumberLikelihood):
    """A positive response with two outputs: log location, and log of the noise of ln y.

    Locations stay within one spread of the smallest and the largest ln y, and noise below two spreads, so that no mean
    and no standard deviation leaves sight of the data.

    Parameters
    ----------
    center, spread
        Mean and standard deviation of ln y, of y in standard deviations. None: learned when the model is fitted.
    below, above
        How many spreads locations may lie from the center. None: learned.
    floor
        Smallest noise, in spreads. None: learned, as half the median gap between the values of ln y if they are few,
        else 0.001.
    """

    allows_zero: ClassVar[bool] = False

    center: float | None = None
    spread: float | None = None
    below: float | None = None
    above: float | None = None
    floor: float | None = None

    def __post_init__(self) -> None:
        if self.center is not None:
            check_number("center", self.center)
        for name in ("spread", "below", "above"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), positive=True)
        if self.floor is not None:
            check_number("floor", self.floor, smallest=LEAST_NOISE, largest=1.0)

    @property
    def n_outputs(self) -> int:
        """Log location and log noise."""
        return 2

    @classmethod
    def check(cls, y: np.ndarray) -> np.ndarray:
        """Return the response in float64, or name the first row that is not positive."""
        y = super().check(y)
        wrong = np.flatnonzero(y < 0.0 if cls.allows_zero else y <= 0.0)
        if wrong.size:
            value = y[wrong[0]]
            advice = (
                'likelihood="hurdle_lognormal" and "hurdle_gamma" have a probability of zero of its own'
                if value == 0.0
                else 'numbers of both signs need a likelihood such as "gaussian"'
            )
            kind = "positive numbers and zero" if cls.allows_zero else "positive numbers only"
            raise ValueError(
                f"y has {value:g} in row {wrong[0]} ({wrong.size:,} such rows), and a {cls.__name__} is of {kind}: "
                f"{advice}."
            )
        return y

    def learn(self, y: np.ndarray, rows: Int[np.ndarray, " chosen"], weight: PerRow | None = None) -> AbstractResponse:
        """Learn the standard deviation from the training rows."""
        return unshifted(Standardizer.learn(y, rows, weight))

    def restore_response(self, tensors: Tensors) -> AbstractResponse:
        """Return the scale that a file has kept."""
        return unshifted(Standardizer.read(tensors, ()))

    def check_encoded(self, y: Encoded, name: str) -> None:
        """Refuse what is not positive, also by rounding to float32."""
        super().check_encoded(y, name)
        wrong = np.flatnonzero(~((y >= 0.0) if self.allows_zero else (y > 0.0)))
        if wrong.size:
            raise ValueError(
                f"{name} has {y[wrong[0]]:g} in row {wrong[0]}; a {type(self).__name__} needs positive numbers, no "
                "smaller than 1e-38 standard deviations."
            )

    def fitted(self, y: Encoded) -> "AbstractPositive":
        """Return this likelihood with center, spread, reach and floor of the response, kept to two digits."""
        if self.center is not None:
            return self
        logs = np.log(np.asarray(y, np.float64))
        spread = max(float(f"{np.std(logs):.2g}"), LEAST_SPREAD) if len(logs) else 1.0
        center = round(float(np.mean(logs)) / spread, 1) * spread if len(logs) else 0.0
        standardized = (logs - center) / spread if len(logs) else np.zeros(1)
        floor = self.floor or max(resolution_of(standardized.astype(np.float32)) or 0.0, LEAST_NOISE)
        return replace(
            self,
            center=center,
            spread=spread,
            below=float(math.ceil(max(-standardized.min(), 1.0) + MARGIN)),
            above=float(math.ceil(max(standardized.max(), 1.0) + MARGIN)),
            floor=floor,
        )

    def log_location(self, numbers: ModuleType, raw: Values) -> Values:
        """Return the log location that the first output stands for."""
        center, spread = self.center or 0.0, self.spread or 1.0
        return center + spread * within(numbers, raw, -(self.below or _UNKNOWN_REACH), self.above or _UNKNOWN_REACH)

    def log_noise(self, numbers: ModuleType, raw: Values) -> Values:
        """Return the log of the noise of ln y that the second output stands for."""
        floor = self.floor or LEAST_NOISE
        return math.log(self.spread or 1.0) + within(numbers, raw, math.log(floor), math.log(_MOST_NOISE))

    def links(self, outputs: OutputsOfDraws) -> tuple[PerDraw, PerDraw]:
        """Return log locations and noise of draws, in float64."""
        first, second = np.moveaxis(outputs.astype(np.float64), 1, 0)
        with np.errstate(invalid="ignore"):  # NaN stays NaN
            return self.log_location(np, first), np.exp(self.log_noise(np, second))

    def predictive(self, mixture: Mixture, response: AbstractResponse) -> "PositivePredictive":
        """Return the predictive distribution of a positive number."""
        return PositivePredictive(mixture, self, response)


class PositivePredictive(Predictive):
    """Predictive distribution of a number that is not negative."""

    def possible(self, ends: np.ndarray) -> np.ndarray:
        """Return ends of intervals, those below zero moved to zero."""
        return np.maximum(ends, 0.0)


def unshifted(scale: Standardizer) -> ScaledResponse:
    """Return the response that only divides: zero stays zero."""
    return ScaledResponse(replace(scale, shift=np.zeros_like(scale.shift)))
