"""What families of real numbers with a bounded scale share: the floor of scales, and what to do about outliers."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from jaxtyping import Int
from scipy.special import ndtri

from mile._checks import check_number
from mile.features.numbers import Standardizer
from mile.likelihoods._links import SCALE_LIMIT, SMALLEST_SCALE
from mile.likelihoods._resolution import resolution_of
from mile.likelihoods.base import AbstractResponse, Encoded, PerRow
from mile.likelihoods.numbers import AbstractNumberLikelihood, ScaledResponse

_CENTRAL = (0.5, 0.8, 0.98)  # shares of the rows whose width says how wide the middle is; the first that is positive
_REACH = 5.0  # standard deviations of the middle, beyond which a value counts as if it were there
_FAR = 20.0  # standard deviations of the middle that make a row an outlier
_DISTORTED = 0.1  # of the standard deviation is left without outliers: then they make the scale
_NAMED = 5  # rows of a sentence


@dataclass(frozen=True)
class AbstractScaledNumber(AbstractNumberLikelihood):
    """A family whose scales come through the bounded link; `floor` is as that of `Gaussian`."""

    floor: float | None = None

    smallest_floor: ClassVar[float] = SMALLEST_SCALE

    def __post_init__(self) -> None:
        if self.floor is not None:
            check_number("floor", self.floor, smallest=SMALLEST_SCALE, largest=SCALE_LIMIT)

    def fitted(self, y: Encoded) -> "AbstractScaledNumber":
        """Return this likelihood with a floor that suits the response."""
        if self.floor is not None:
            return self
        return replace(self, floor=max(resolution_of(y) or 0.0, self.smallest_floor))

    @property
    def _floor(self) -> float:
        return self.smallest_floor if self.floor is None else float(self.floor)


def robust_response(y: np.ndarray, rows: Int[np.ndarray, " chosen"], weight: PerRow | None) -> AbstractResponse:
    """Return the scale of the training rows' middle, which a few values far out do not move.

    It is mean and standard deviation where values farther from the median than five standard deviations, as the
    distance between the quartiles gives them, count as if they were there. Without such values nothing is different.
    """
    known, own = (rows, None) if weight is None else (rows[weight[rows] > 0], weight[rows][weight[rows] > 0])
    found = _middle(y[known], own)
    if found is None:
        return ScaledResponse(Standardizer.learn(y, rows, weight))
    center, width = found
    return ScaledResponse(
        Standardizer.learn(np.clip(y, center - _REACH * width, center + _REACH * width), rows, weight)
    )


def outlier_remarks(y: PerRow, number: Int[np.ndarray, " row"]) -> list[str]:
    """Return a sentence that names the rows which alone make the standard deviation of y, if there are any."""
    found = _middle(y)
    if found is None:
        return []
    center, width = found
    inner = np.clip(y, center - _REACH * width, center + _REACH * width).std()
    distance = np.abs(y - center)
    far = np.flatnonzero(distance > _FAR * width)
    if not far.size or inner >= _DISTORTED * y.std():
        return []
    far = far[np.argsort(-distance[far], kind="stable")]
    named = ", ".join(f"row {number[place]} ({y[place]:.6g})" for place in far[:_NAMED])
    more = f" and {len(far) - _NAMED:,} more" if len(far) > _NAMED else ""
    return [
        f"y has values so far from all others that they alone make its standard deviation: {named}{more}. A normal "
        'distribution is stretched to reach them. Correct these rows, or use likelihood="student_t".'
    ]


def _middle(y: PerRow, weight: PerRow | None = None) -> tuple[float, float] | None:
    """Return median and standard deviation of the middle of y; None if nearly all values are the same."""
    for share in _CENTRAL:
        levels = [0.5 - 0.5 * share, 0.5, 0.5 + 0.5 * share]
        lower, center, upper = np.quantile(y, levels, weights=weight, method="inverted_cdf")
        if upper > lower:
            return float(center), float(upper - lower) / (2.0 * float(ndtri(levels[2])))
    return None
