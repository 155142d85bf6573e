"""Scores of predictive distributions against what happened; each takes a predictive and the observed y.

A score of numbers is on the scale of y. `standardized` turns one into the scale of y divided by its standard deviation,
on which the paper reports.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from mile.predict import ClassPredictive, Predictive

CALIBRATION_LEVELS = (0.5, 0.75, 0.9, 0.95)  # paper, definition of the calibration error


def lppd(predictive: Predictive | ClassPredictive, y: np.ndarray) -> float:
    """Return the log pointwise predictive density, the mean over rows of the log predictive density."""
    return float(np.mean(predictive.log_prob(y)))


def nll(predictive: Predictive | ClassPredictive, y: np.ndarray) -> float:
    """Return the negative log likelihood of a row under the predictive distribution, which is -LPPD."""
    return -lppd(predictive, y)


def mean_draw_nll(predictive: Predictive | ClassPredictive, y: np.ndarray) -> float:
    """Return the negative log likelihood of a row under one draw, on average; what the reference calls NLL.

    It bounds `nll` from above: averaging before the logarithm can only help.
    """
    return -float(np.mean(predictive.log_prob_per_draw(y)))


def rmse(predictive: Predictive, y: np.ndarray) -> float:
    """Return the root mean squared error of the predictive means."""
    return float(np.sqrt(np.mean(np.square(predictive.mean - _one_per_row(predictive, y)))))


def crps(predictive: Predictive, y: np.ndarray) -> float:
    """Return the mean continuous ranked probability score, an error in the unit of y; lower is better."""
    return float(np.mean(predictive.crps(y)))


def coverage(predictive: Predictive, y: np.ndarray, levels: Sequence[float] = CALIBRATION_LEVELS) -> np.ndarray:
    """Return the share of rows inside the central interval of each level.

    A row lies inside exactly when its cdf value lies inside, so no quantile is needed.
    """
    distance = np.abs(predictive.cdf(np.asarray(y)) - 0.5)
    return np.array([np.mean(distance <= level / 2) for level in _check_levels(levels)])


def calibration_error(predictive: Predictive, y: np.ndarray, levels: Sequence[float] = CALIBRATION_LEVELS) -> float:
    """Return the root mean square, over levels, of coverage minus level."""
    return float(np.sqrt(np.mean(np.square(coverage(predictive, y, levels) - np.asarray(levels)))))


def interval_score(predictive: Predictive, y: np.ndarray, level: float = 0.9) -> float:
    """Return the mean width of the central intervals, each widened by 2 / (1 - level) times what it misses y by.

    Proper: nobody gains by intervals other than the ones believed in (Gneiting and Raftery 2007). Lower is better.
    """
    lower, upper = predictive.interval(level).T
    missed = np.maximum(lower - _one_per_row(predictive, y), 0.0) + np.maximum(y - upper, 0.0)
    return float(np.mean(upper - lower + 2.0 / (1.0 - level) * missed))


def sharpness(predictive: Predictive, level: float = 0.9) -> float:
    """Return the mean width of the central intervals: how much the prediction dares to say."""
    return float(np.mean(np.diff(predictive.interval(level), axis=1)))


def accuracy(predictive: ClassPredictive, y: np.ndarray) -> float:
    """Return the share of rows whose most probable class is the right one."""
    return float(np.mean(predictive.labels == _one_per_row(predictive, y)))


def brier(predictive: ClassPredictive, y: np.ndarray) -> float:
    """Return the mean squared distance of the class probabilities to the truth, from 0 (best) to 2."""
    truth = _one_per_row(predictive, y)[:, None] == predictive.classes
    return float(np.mean(np.sum(np.square(predictive.probs - truth), axis=1)))


def expected_calibration_error(predictive: ClassPredictive, y: np.ndarray, n_bins: int = 15) -> float:
    """Return the mean distance between confidence and accuracy, over bins of confidence of equal width.

    The confidence of a row is the probability of its most probable class (Guo et al. 2017).
    """
    confidence, right, counts = reliability(predictive, y, n_bins)
    return float(np.sum(counts * np.abs(confidence - right)) / max(np.sum(counts), 1))


def reliability(
    predictive: ClassPredictive, y: np.ndarray, n_bins: int = 15
) -> tuple[Float[np.ndarray, " bin"], Float[np.ndarray, " bin"], Float[np.ndarray, " bin"]]:
    """Return mean confidence, accuracy and number of rows of each bin of confidence; empty bins are zero."""
    probabilities = predictive.probs.max(axis=1)
    right = predictive.labels == _one_per_row(predictive, y)
    bins = np.minimum((probabilities * n_bins).astype(int), n_bins - 1)
    counts = np.bincount(bins, minlength=n_bins).astype(float)
    sums = [np.bincount(bins, weights=values, minlength=n_bins) for values in (probabilities, right.astype(float))]
    confidence, accurate = (np.divide(total, counts, out=np.zeros(n_bins), where=counts > 0) for total in sums)
    return confidence, accurate, counts


def scores(predictive: Any, y: np.ndarray) -> dict[str, float]:
    """Return all scores of a prediction by name, with coverage at each level."""
    if isinstance(predictive, ClassPredictive):
        return {
            "lppd": lppd(predictive, y),
            "accuracy": accuracy(predictive, y),
            "brier": brier(predictive, y),
            "expected_calibration_error": expected_calibration_error(predictive, y),
        }
    covered = coverage(predictive, y)
    found = {
        "lppd": lppd(predictive, y),
        "rmse": rmse(predictive, y),
        "crps": crps(predictive, y),
        "calibration_error": float(np.sqrt(np.mean(np.square(covered - np.asarray(CALIBRATION_LEVELS))))),
        "interval_score_90": interval_score(predictive, y),
        "sharpness_90": sharpness(predictive),
    }
    levels = zip(CALIBRATION_LEVELS, covered, strict=True)
    return found | {f"coverage_{100 * level:g}": float(share) for level, share in levels}


def standardized(scores: dict[str, float], y_std: float) -> dict[str, float]:
    """Return scores as they would be if y had been divided by `y_std` first."""
    found = dict(scores)
    for name, value in scores.items():
        if name == "lppd":
            found[name] = value + float(np.log(y_std))
        elif name in ("rmse", "crps", "interval_score_90", "sharpness_90"):
            found[name] = value / y_std
    return found


def _check_levels(levels: Sequence[float]) -> Sequence[float]:
    if not len(levels) or not all(0.0 < level < 1.0 for level in levels):
        raise ValueError(f"levels must lie strictly between 0 and 1; got {levels!r}.")
    return levels


def _one_per_row(predictive: Predictive | ClassPredictive, y: np.ndarray) -> np.ndarray:
    y = np.asarray(y)
    if y.shape != (len(predictive),):
        raise ValueError(f"y must have one entry per row, shape {(len(predictive),)}; got shape {y.shape}.")
    return y
