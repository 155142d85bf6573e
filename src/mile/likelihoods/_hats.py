"""Overlapping bins of a smooth histogram: densities that rise to a knot and fall again, in JAX and in numpy alike."""

import math
from dataclasses import dataclass
from types import ModuleType

import numpy as np
from jaxtyping import Float

from mile.likelihoods._links import Values
from mile.likelihoods.base import PerRow

PerBin = Float[np.ndarray, " bin"]
PerBinAndRow = Float[np.ndarray, "bin row"]
_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class Hats:
    """One density for each knot: a straight line up from the knot before it and down to the next, of area one.

    The first and the last have an exponential tail instead of a side, with these mean distances from the knot.
    """

    knots: PerBin
    tails: tuple[float, float]

    @property
    def peaks(self) -> PerBin:
        """Largest density of each bin, at its knot."""
        below, above = self._widths
        below[0], above[-1] = 2.0 * below[0], 2.0 * above[-1]  # the area under an exponential, not a line
        return 2.0 / (below + above)

    def log_density(self, numbers: ModuleType, y: Values) -> Values:
        """Return the log density of each bin at each y, shape (bin, row)."""
        knots, (below, above) = self.knots[:, None], (width[:, None] for width in self._widths)
        away = y - numbers.asarray(knots, y.dtype)
        line = 1.0 - numbers.where(away < 0, -away / below, away / above)
        # Where the other branch is taken, the logarithm must not have an infinite derivative.
        logarithm = numbers.where(line > 0, numbers.log(numbers.where(line > 0, line, 1.0)), -math.inf)
        first, last = away[:1] / self.tails[0], -away[-1:] / self.tails[1]
        log_shape = numbers.concatenate(
            [
                numbers.where(first < 0, first, logarithm[:1]),
                logarithm[1:-1],
                numbers.where(last < 0, last, logarithm[-1:]),
            ]
        )
        return log_shape + numbers.asarray(np.log(self.peaks)[:, None], y.dtype)

    def cdf(self, y: PerRow) -> PerBinAndRow:
        """Return P(Y <= y) of each bin."""
        knots, (below, above) = self.knots[:, None], (width[:, None] for width in self._widths)
        peaks, away = self.peaks[:, None], y - self.knots[:, None]
        left = 0.5 * below * np.square(np.clip(1.0 + away / below, 0.0, 1.0))
        right = 0.5 * above * np.square(np.clip(1.0 - away / above, 0.0, 1.0))
        left[0] = self.tails[0] * np.exp(np.minimum(y - knots[0], 0.0) / self.tails[0])
        right[-1] = self.tails[1] * np.exp(np.minimum(knots[-1] - y, 0.0) / self.tails[1])
        return np.where(away < 0, peaks * left, 1.0 - peaks * right)

    def moments(self) -> tuple[PerBin, PerBin]:
        """Return mean and mean square of each bin."""
        below, above = self._widths
        first = np.stack([below / 3.0, above / 3.0])  # mean distance to the knot on each side, and its square
        second = np.stack([np.square(below) / 6.0, np.square(above) / 6.0])
        area = 0.5 * self.peaks * np.stack([below, above])
        for side, place in ((0, 0), (1, -1)):
            first[side, place], second[side, place] = self.tails[side], 2.0 * self.tails[side] ** 2
            area[side, place] *= 2.0
        shift = area[1] * first[1] - area[0] * first[0]
        spread = (area * second).sum(axis=0)
        return self.knots + shift, np.square(self.knots) + 2.0 * self.knots * shift + spread

    def quantile(self, weight: Float[np.ndarray, "bin *rest"], level: np.ndarray) -> np.ndarray:
        """Return where histograms with these weights have distribution functions of these levels."""
        height = weight * self.peaks.reshape(-1, *[1] * (weight.ndim - 1))
        gaps = np.diff(self.knots).reshape(-1, *[1] * (weight.ndim - 1))
        first = self.tails[0] * height[:1]
        steps = np.concatenate([first, 0.5 * (height[1:] + height[:-1]) * gaps])
        cumulative = np.cumsum(steps, axis=0)
        level = np.broadcast_to(level, weight.shape[1:])
        segment = np.clip((cumulative <= level).sum(axis=0) - 1, 0, len(self.knots) - 2)

        def at(array: np.ndarray, offset: int = 0) -> np.ndarray:
            return np.take_along_axis(array, (segment + offset)[None], axis=0)[0]

        low, high, rest = at(height), at(height, 1), np.maximum(level - at(cumulative), 0.0)
        slope = (high - low) / np.diff(self.knots)[segment]
        root = np.sqrt(np.maximum(np.square(low) + 2.0 * slope * rest, 0.0))
        inside = self.knots[segment] + 2.0 * rest / np.maximum(low + root, _TINY)
        with np.errstate(divide="ignore"):  # of the branch that is not taken
            below = self.knots[0] + self.tails[0] * np.log(level / np.maximum(first[0], _TINY))
            above = self.knots[-1] - self.tails[1] * np.log(
                (1.0 - level) / np.maximum(self.tails[1] * height[-1], _TINY)
            )
        found = np.where(level < cumulative[0], below, inside)
        return np.where(1.0 - level < self.tails[1] * height[-1], above, found)

    @property
    def _widths(self) -> tuple[PerBin, PerBin]:
        """Distances to the knots before and after; in place of those that do not exist, of the tails."""
        gaps = np.diff(self.knots)
        return np.concatenate([self.tails[:1], gaps]), np.concatenate([gaps, self.tails[1:]])


def knots_of(y: PerRow, n_knots: int, gap: float) -> tuple[tuple[float, ...], tuple[float, float]]:
    """Return quantiles of y that lie at least a gap apart, and the mean distances of y beyond the first and the last.

    Where quantiles are too close together, as those of repeated values, the widest gaps get a knot in their middle.
    """
    knots: list[float] = []
    for found in np.quantile(y, (np.arange(n_knots) + 0.5) / n_knots).tolist():
        if not knots or found >= knots[-1] + gap:
            knots.append(found)
    if len(knots) == 1:
        knots = [knots[0] - gap, knots[0] + gap]
    while len(knots) < n_knots:
        widest = int(np.argmax(np.diff(knots)))
        knots.insert(widest + 1, 0.5 * (knots[widest] + knots[widest + 1]))
    ends = (knots[0] - y[y < knots[0]], y[y > knots[-1]] - knots[-1])
    # By the median, as that of an exponential distribution, so that outliers do not count.
    tails = [max(float(np.median(beyond)) / math.log(2.0), gap) if len(beyond) else gap for beyond in ends]
    return tuple(knots), (tails[0], tails[1])
