"""Quantiles of a mixture of distributions, and the integrals for its CRPS."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from mile.likelihoods.base import Evaluate, PerDraw, PerRow
from mile.likelihoods.weights import DrawWeights

if TYPE_CHECKING:
    from mile.likelihoods.components import AbstractComponents

_QUANTILE_TOLERANCE = 1e-10  # in spreads of the narrowest component, which bounds the error of the cdf
_QUANTILE_ITERATIONS = 200
_CRPS_INTERVALS, _CRPS_HALVINGS, _CRPS_TOLERANCE = 32, 5, 1e-5  # the error squares when points double
_PANEL_POINTS = np.polynomial.legendre.leggauss(16)
_FEWEST_PANELS, _PANEL_DOUBLINGS, _PANEL_TOLERANCE = 4, 5, 1e-7


def mixture_quantile(
    evaluate: Evaluate,
    quantiles: np.ndarray,
    spread: PerDraw,
    guess: tuple[PerRow, PerRow],
    level: float,
    *,
    stops_at_rounding: bool = False,
) -> PerRow:
    """Solve cdf(y) = level for each row by Newton's method inside a bracket that only shrinks.

    Parameters
    ----------
    evaluate
        Distribution function and density of the mixtures.
    quantiles
        Of each component at this level: the smallest and the largest of a row always hold its solution.
    spread
        Of each component; the narrowest decides how exact a solution must be.
    guess
        Mean and standard deviation of each mixture: where to begin.
    level
        Between 0 and 1.
    stops_at_rounding
        Whether a Newton step that rounding swallows ends the search of a row. Else its bracket is halved until it is
        short, which takes several times as long and changes less than the tolerance; older families keep their bits.

    Where a Newton step leaves the bracket or is not half as long as the step before, bisection takes over.
    """
    lower, upper = quantiles.min(axis=0), quantiles.max(axis=0)
    center, width = guess
    with np.errstate(invalid="ignore"):
        y = np.clip(center + width * ndtri(level), lower, upper)
    y = np.where(np.isfinite(y), y, 0.5 * (lower + upper))
    step, tolerance = upper - lower, _QUANTILE_TOLERANCE * spread.min(axis=0)
    done = np.zeros(y.shape, bool)
    for _ in range(_QUANTILE_ITERATIONS):
        cdf, slope = evaluate(y)
        error = cdf - level
        lower, upper = np.where(error < 0, y, lower), np.where(error > 0, y, upper)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            newton = y - error / slope
        if stops_at_rounding:
            done |= newton == y
        trusted = (newton > lower) & (newton < upper) & (np.abs(newton - y) < 0.5 * step)
        following = np.where(trusted, newton, 0.5 * (lower + upper))
        following = np.where(done | (error == 0.0), y, following)
        step = np.abs(following - y)
        done |= step <= np.maximum(tolerance, np.spacing(np.abs(y)))
        y = following
        if done.all():
            break
    return y


def half_mean_difference(evaluate: Evaluate, center: PerRow, spread: PerRow, reach: PerRow) -> PerRow:
    """Return half of E|Y - Y'| of each row's mixture, the integral of F (1 - F).

    It is taken by the trapezoidal rule in t with y = center + spread sinh(t), which gets from the middle to the tails
    of the widest component, `reach` away, with few points. Their distance is halved until that changes nothing.
    """
    farthest = np.arcsinh(reach / spread)

    def total(points: np.ndarray) -> np.ndarray:
        found = np.zeros(len(center))
        for point in points:
            t = point * farthest
            cdf, _ = evaluate(center + spread * np.sinh(t))
            found += cdf * (1.0 - cdf) * spread * np.cosh(t) * farthest
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


def crps_by_distance(
    components: "AbstractComponents", distance: PerDraw, evaluate: Evaluate, tail: float, weights: DrawWeights
) -> PerRow:
    """Return the CRPS of each row's mixture from E|Y - y| of its components; `tail` is left out at both ends."""
    middle = components.mean
    center = weights.median(middle)
    spread = weights.median(components.spread) + weights.median(np.abs(middle - center))
    lower, upper = components.quantile(tail).min(axis=0), components.quantile(1.0 - tail).max(axis=0)
    reach = np.maximum(upper - center, center - lower)
    return weights.mean(distance) - half_mean_difference(evaluate, center, spread, reach)


def crps_by_integral(evaluate: Evaluate, y: PerRow, spread: PerRow, lower: PerRow, upper: PerRow) -> PerRow:
    """Return the CRPS of each row's mixture: the integral of F squared below y and of (1 - F) squared above it.

    Any distribution will do. Each side is integrated in t with distance from y = spread sinh(t), by Gauss's rule on
    panels that are halved until that changes nothing.
    """
    inside = np.clip(y, lower, upper)
    left = _panels(lambda distance: np.square(evaluate(inside - distance)[0]), spread, inside - lower)
    right = _panels(lambda distance: np.square(1.0 - evaluate(inside + distance)[0]), spread, upper - inside)
    # Beyond its tails a distribution is certain, and every unit of distance to y counts in full.
    return left + right + np.abs(y - inside)


def _panels(integrand: Callable[[PerRow], PerRow], spread: PerRow, reach: PerRow) -> PerRow:
    farthest = np.arcsinh(reach / spread)
    points, weights = _PANEL_POINTS

    def total(n_panels: int) -> np.ndarray:
        found = np.zeros(len(spread))
        for panel in range(n_panels):
            for point, weight in zip(points, weights, strict=True):
                t = farthest * (panel + 0.5 * (point + 1.0)) / n_panels
                found += 0.5 * weight / n_panels * integrand(spread * np.sinh(t)) * spread * np.cosh(t) * farthest
        return found

    n_panels = _FEWEST_PANELS
    value = total(n_panels)
    for _ in range(_PANEL_DOUBLINGS):
        before, n_panels = value, 2 * n_panels
        value = total(n_panels)
        if np.all(np.abs(value - before) <= _PANEL_TOLERANCE * np.maximum(value, 1e-300)):
            break
    return value
