"""Quantiles of a mixture of normal distributions, and the mean distances of which its CRPS is made."""

import math
from collections.abc import Callable

import numpy as np
from scipy.special import ndtr

_SQRT_TWO_PI = math.sqrt(2.0 * math.pi)
_TAIL = 8.3  # standard deviations beyond which a normal distribution has nothing that double precision sees
_CRPS_INTERVALS, _CRPS_HALVINGS, _CRPS_TOLERANCE = 32, 5, 1e-5  # the error squares when points double
_MOST_PAIRED = 500  # components; their pairs are as many as points of an integral
_QUANTILE_TOLERANCE = 1e-10  # in standard deviations of the narrowest component, which bounds the error of the cdf
_QUANTILE_ITERATIONS = 200


def mixture_quantile(
    evaluate: Callable[[np.ndarray], tuple], location: np.ndarray, scale: np.ndarray, level: float
) -> np.ndarray:
    """Solve cdf(y) = level for each row by Newton's method inside a bracket that only shrinks.

    The bracket starts between the smallest and the largest quantile of any component, which always holds
    the solution; where a Newton step leaves it or is not half as long as the step before, bisection takes over.
    """
    from scipy.special import ndtri

    component_quantiles = location + scale * ndtri(level)
    lower, upper = component_quantiles.min(axis=0), component_quantiles.max(axis=0)
    spread = np.sqrt(np.square(scale).mean(axis=0) + location.var(axis=0))
    y = np.clip(location.mean(axis=0) + spread * ndtri(level), lower, upper)
    step, tolerance = upper - lower, _QUANTILE_TOLERANCE * scale.min(axis=0)
    done = np.zeros(y.shape, bool)
    for _ in range(_QUANTILE_ITERATIONS):
        cdf, slope = evaluate(y)
        error = cdf - level
        lower, upper = np.where(error < 0, y, lower), np.where(error > 0, y, upper)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            newton = y - error / slope
        trusted = (newton > lower) & (newton < upper) & (np.abs(newton - y) < 0.5 * step)
        following = np.where(trusted, newton, 0.5 * (lower + upper))
        following = np.where(done | (error == 0.0), y, following)
        step = np.abs(following - y)
        done |= step <= np.maximum(tolerance, np.spacing(np.abs(y)))
        y = following
        if done.all():
            break
    return y


def mean_distance(location: np.ndarray, scale: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return E|Y - y| of each row's mixture."""
    z = (y - location) / scale
    return np.mean(scale * (z * (2.0 * ndtr(z) - 1.0) + 2.0 * np.exp(-0.5 * z * z) / _SQRT_TWO_PI), axis=0)


def half_mean_difference(
    evaluate: Callable[[np.ndarray], tuple], location: np.ndarray, scale: np.ndarray
) -> np.ndarray:
    """Return half of E|Y - Y'| of each row's mixture: of few components by all pairs, of many by an integral.

    The integral of F (1 - F) is taken by the trapezoidal rule in t with y = center + spread sinh(t), which reaches
    from the middle to the tails of the widest component with few points. Their distance is halved until that changes
    nothing.
    """
    if len(location) <= _MOST_PAIRED:
        pairs = [
            mean_distance(location, np.sqrt(np.square(scale) + np.square(one_scale)), one_location)
            for one_location, one_scale in zip(location, scale, strict=True)
        ]
        return 0.5 * np.mean(pairs, axis=0)
    center = np.median(location, axis=0)
    spread = np.median(scale, axis=0) + np.median(np.abs(location - center), axis=0)
    reach = np.arcsinh(np.max(np.abs(location - center) + _TAIL * scale, axis=0) / spread)

    def total(points: np.ndarray) -> np.ndarray:
        found = np.zeros(len(center))
        for point in points:
            t = point * reach
            cdf, _ = evaluate(center + spread * np.sinh(t))
            found += cdf * (1.0 - cdf) * spread * np.cosh(t) * reach
        return found

    step = 2.0 / _CRPS_INTERVALS
    value = step * total(np.arange(-1.0, 1.0 + 0.5 * step, step))
    for _ in range(_CRPS_HALVINGS):
        before = value
        value = 0.5 * value + 0.5 * step * total(np.arange(-1.0 + 0.5 * step, 1.0, step))
        step *= 0.5
        if np.all(np.abs(value - before) <= _CRPS_TOLERANCE * value):
            break
    return value
