"""The four kinds of prediction that the compared methods give, and their scores.

Imports only numpy and scipy, because it is used in the peers' environment and in ours.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import logsumexp, ndtr, ndtri

LEVEL = 0.9  # of the central intervals
LEVELS = np.arange(1, 100) / 100  # of the quantiles that methods without a density are asked for
KNOTS = np.array([1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99]) / 100  # of those that their density is made of

_LOG_SQRT_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_MEDIAN = len(LEVELS) // 2
_KNOT_PLACES = np.searchsorted(LEVELS, KNOTS)
_BOUNDS = [int(np.argmin(np.abs(LEVELS - 0.5 * (1.0 + side * LEVEL)))) for side in (-1, 1)]
_GRID = np.linspace(-1.0, 1.0, 257)  # points of the integral in a mixture's CRPS
_REACH = 8.0  # standard deviations beyond which a component has nothing left
_BLOCK = 2_000_000  # numbers that one block of rows of a mixture may take
_HALVINGS = 30


class Prediction(Protocol):
    """One distribution per row."""

    @property
    def mean(self) -> np.ndarray: ...

    @property
    def std(self) -> np.ndarray | None:
        """Standard deviation of each row, or None where only an interval is known."""
        ...

    def interval(self) -> tuple[np.ndarray, np.ndarray]:
        """Return both ends of the central interval of probability `LEVEL`."""
        ...

    def log_density(self, y: np.ndarray) -> np.ndarray | None:
        """Return the log density of one response per row, or None where there is no density."""
        ...

    def crps(self, y: np.ndarray) -> np.ndarray | None:
        """Return the continuous ranked probability score of each row, or None where only an interval is known."""
        ...


def score(prediction: Prediction, y: np.ndarray, unit: float) -> dict[str, float | None]:
    """Return the scores as they are when the target is counted in `unit`, a standard deviation."""
    lower, upper = prediction.interval()
    density, crps = prediction.log_density(y), prediction.crps(y)
    return {
        "lppd": None if density is None else float(density.mean()) + math.log(unit),
        "crps": None if crps is None else float(crps.mean()) / unit,
        "rmse": float(np.sqrt(np.mean(np.square(prediction.mean - y)))) / unit,
        "coverage": float(np.mean((lower <= y) & (y <= upper))),
        "interval_score": float(interval_score(lower, upper, y).mean()) / unit,
    }


def interval_score(lower: np.ndarray, upper: np.ndarray, y: np.ndarray, level: float = LEVEL) -> np.ndarray:
    """Return width plus 2 / (1 - level) times what the interval misses y by (Gneiting and Raftery 2007)."""
    missed = np.maximum(lower - y, 0.0) + np.maximum(y - upper, 0.0)
    return upper - lower + 2.0 / (1.0 - level) * missed


def resolution(y: np.ndarray) -> float:
    """Return the typical distance of neighboring values of a target: the median gap between distinct ones."""
    return float(np.median(np.diff(np.unique(y))))


@dataclass(frozen=True, kw_only=True)
class Normal:
    """A normal distribution for each row."""

    mean: np.ndarray
    std: np.ndarray

    def take(self, rows: slice) -> "Normal":
        """Return the predictions of some rows."""
        return Normal(mean=self.mean[rows], std=self.std[rows])

    def interval(self) -> tuple[np.ndarray, np.ndarray]:
        reach = self.std * ndtri(0.5 * (1.0 + LEVEL))
        return self.mean - reach, self.mean + reach

    def log_density(self, y: np.ndarray) -> np.ndarray:
        return -0.5 * np.square((y - self.mean) / self.std) - np.log(self.std) - _LOG_SQRT_TWO_PI

    def crps(self, y: np.ndarray) -> np.ndarray:
        z = (y - self.mean) / self.std
        return _mean_distance(z) * self.std - self.std / math.sqrt(math.pi)


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """An equal mixture of normal distributions for each row; arrays are (draw, row)."""

    location: np.ndarray
    scale: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        return self.location.mean(axis=0)

    @property
    def std(self) -> np.ndarray:
        return np.sqrt(self.location.var(axis=0) + np.square(self.scale).mean(axis=0))

    def interval(self) -> tuple[np.ndarray, np.ndarray]:
        ends = [self._quantile(0.5 * (1.0 + side * LEVEL)) for side in (-1, 1)]
        return ends[0], ends[1]

    def log_density(self, y: np.ndarray) -> np.ndarray:
        found = np.empty(len(y))
        for rows, part in self._blocks():
            found[rows] = logsumexp(Normal(mean=part.location, std=part.scale).log_density(y[rows]), axis=0)
        return found - math.log(len(self.location))

    def crps(self, y: np.ndarray) -> np.ndarray:
        # E|Y - y| less half of E|Y - Y'|, which is the integral of F (1 - F).
        found = np.empty(len(y))
        for rows, part in self._blocks():
            distance = np.mean(part.scale * _mean_distance((y[rows] - part.location) / part.scale), axis=0)
            found[rows] = distance - part._half_mean_difference()
        return found

    def _half_mean_difference(self) -> np.ndarray:
        """Integrate F (1 - F) by the trapezoidal rule in t with y = center + spread sinh(t)."""
        center = np.median(self.location, axis=0)
        spread = np.median(self.scale, axis=0) + np.median(np.abs(self.location - center), axis=0)
        reach = np.arcsinh(np.max(np.abs(self.location - center) + _REACH * self.scale, axis=0) / spread)
        total = np.zeros(len(center))
        for point in _GRID:
            cdf = self._cdf(center + spread * np.sinh(point * reach))
            total += cdf * (1.0 - cdf) * np.cosh(point * reach)
        return total * spread * reach * (_GRID[1] - _GRID[0])

    def _quantile(self, level: float) -> np.ndarray:
        """Halve the range between the smallest and the largest quantile of any component."""
        found = np.empty(self.location.shape[1])
        for rows, part in self._blocks():
            ends = part.location + part.scale * ndtri(level)
            lower, upper = ends.min(axis=0), ends.max(axis=0)
            for _ in range(_HALVINGS):
                middle = 0.5 * (lower + upper)
                below = part._cdf(middle) < level
                lower, upper = np.where(below, middle, lower), np.where(below, upper, middle)
            found[rows] = 0.5 * (lower + upper)
        return found

    def _cdf(self, y: np.ndarray) -> np.ndarray:
        return ndtr((y - self.location) / self.scale).mean(axis=0)

    def _blocks(self):
        n_draws, n_rows = self.location.shape
        width = max(1, _BLOCK // n_draws)
        for start in range(0, n_rows, width):
            rows = slice(start, start + width)
            yield rows, Mixture(location=self.location[:, rows], scale=self.scale[:, rows])


@dataclass(frozen=True, kw_only=True)
class Quantiles:
    """The quantiles of each row at `LEVELS`, array (row, level); crossing ones are put in order.

    For the density, the distribution function is linear between the quantiles at `KNOTS`: between all 99 of them a
    density would be noise, which costs up to 0.8 in LPPD. Where several coincide, it goes through the middle of their
    levels, so that a forest, which knows steps only, gets a density between them. Beyond the outer ones it has
    exponential tails, whose scale is the mean distance of all quantiles from the median, as that of a Laplace
    distribution is, and no less than the `resolution` r of the target. The density is taken over a window as wide as
    that, (F(y + r/2) - F(y - r/2)) / r, so that nobody gains by quantiles that nearly coincide.
    """

    values: np.ndarray
    resolution: float
    mean: np.ndarray

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", np.sort(np.asarray(self.values, np.float64), axis=1))

    @property
    def std(self) -> np.ndarray:
        """That of the quantiles, so without the tails beyond the outer ones."""
        return self.values.std(axis=1)

    def take(self, rows: slice) -> "Quantiles":
        """Return the predictions of some rows."""
        return Quantiles(values=self.values[rows], resolution=self.resolution, mean=self.mean[rows])

    def interval(self) -> tuple[np.ndarray, np.ndarray]:
        return self.values[:, _BOUNDS[0]], self.values[:, _BOUNDS[1]]

    def log_density(self, y: np.ndarray) -> np.ndarray:
        half, scale, knots = 0.5 * self.resolution, self._tail_scale(), self.values[:, _KNOT_PLACES]
        levels = _shared_levels(knots)
        first, last = knots[:, 0], knots[:, -1]

        def cdf(y: np.ndarray) -> np.ndarray:
            below = np.sum(knots <= y[:, None], axis=1)
            under = levels[:, 0] * np.exp(np.minimum(y - first, 0.0) / scale)
            over = 1.0 - (1.0 - levels[:, -1]) * np.exp(np.minimum(last - y, 0.0) / scale)
            between = _interpolated(y, below, knots, levels)
            return np.where(below == 0, under, np.where(below == knots.shape[1], over, between))

        def tail(mass: np.ndarray, distance: np.ndarray) -> np.ndarray:
            return np.log(mass) - distance / scale + np.log(2.0 * np.sinh(half / scale))

        with np.errstate(divide="ignore"):  # far out, where the tails are taken instead
            window = np.log(cdf(y + half) - cdf(y - half))
        # Inside a tail both numbers are nearly equal, so their difference is taken analytically.
        window = np.where(y + half <= first, tail(levels[:, 0], first - y), window)
        window = np.where(y - half >= last, tail(1.0 - levels[:, -1], y - last), window)
        return window - math.log(self.resolution)

    def crps(self, y: np.ndarray) -> np.ndarray:
        """Return twice the mean pinball loss over the levels, of which the CRPS is the limit."""
        away = y[:, None] - self.values
        return 2.0 * np.mean(np.maximum(LEVELS * away, (LEVELS - 1.0) * away), axis=1)

    def _tail_scale(self) -> np.ndarray:
        away = np.abs(self.values - self.values[:, [_MEDIAN]])
        return np.maximum(away.mean(axis=1), self.resolution)


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Central intervals of probability `LEVEL` and a point for each row, and nothing else."""

    lower: np.ndarray
    upper: np.ndarray
    mean: np.ndarray
    std: None = None

    def interval(self) -> tuple[np.ndarray, np.ndarray]:
        return self.lower, self.upper

    def log_density(self, y: np.ndarray) -> None:
        return None

    def crps(self, y: np.ndarray) -> None:
        return None


def _mean_distance(z: np.ndarray) -> np.ndarray:
    """Return E|Z - z| of a standard normal Z."""
    return z * (2.0 * ndtr(z) - 1.0) + 2.0 * np.exp(-0.5 * z * z - _LOG_SQRT_TWO_PI)


def _shared_levels(knots: np.ndarray) -> np.ndarray:
    """Return the level of each knot; equal ones share the middle of theirs."""
    rises, index = np.diff(knots, axis=1) > 0.0, np.arange(knots.shape[1])
    edge = np.ones((len(knots), 1), bool)
    first = np.maximum.accumulate(np.where(np.hstack([edge, rises]), index, 0), axis=1)
    last = np.where(np.hstack([rises, edge]), index, len(index))
    last = np.minimum.accumulate(last[:, ::-1], axis=1)[:, ::-1]
    return 0.5 * (KNOTS[first] + KNOTS[last])


def _interpolated(y: np.ndarray, below: np.ndarray, knots: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return the level of y between the last knot below it and the one above."""
    rows, right = np.arange(len(y)), np.clip(below, 1, knots.shape[1] - 1)
    start, end = knots[rows, right - 1], knots[rows, right]
    gap = np.where(end > start, end - start, 1.0)
    return levels[rows, right - 1] + (levels[rows, right] - levels[rows, right - 1]) * (y - start) / gap
