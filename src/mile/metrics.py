"""Scores of predictive distributions against what happened; each takes a predictive and the observed y."""

from collections.abc import Sequence

import numpy as np

from mile.predict import ClassPredictive, Predictive

CALIBRATION_LEVELS = (0.5, 0.75, 0.9, 0.95)  # paper, definition of the calibration error


def lppd(predictive: Predictive | ClassPredictive, y: np.ndarray) -> float:
    """Return the log pointwise predictive density, the mean over rows of the log predictive density."""
    return float(np.mean(predictive.log_prob(y)))


def rmse(predictive: Predictive, y: np.ndarray) -> float:
    """Return the root mean squared error of the predictive means."""
    return float(np.sqrt(np.mean(np.square(predictive.mean - _one_per_row(predictive, y)))))


def accuracy(predictive: ClassPredictive, y: np.ndarray) -> float:
    """Return the share of rows whose most probable class is the right one."""
    return float(np.mean(predictive.labels == _one_per_row(predictive, y)))


def coverage(predictive: Predictive, y: np.ndarray, levels: Sequence[float] = CALIBRATION_LEVELS) -> np.ndarray:
    """Return the share of rows inside the central interval of each level.

    A row lies inside exactly when its cdf value lies inside, so no quantile is needed.
    """
    distance = np.abs(predictive.cdf(np.asarray(y)) - 0.5)
    return np.array([np.mean(distance <= level / 2) for level in levels])


def calibration_error(predictive: Predictive, y: np.ndarray, levels: Sequence[float] = CALIBRATION_LEVELS) -> float:
    """Return the root mean square, over levels, of coverage minus level."""
    return float(np.sqrt(np.mean(np.square(coverage(predictive, y, levels) - np.asarray(levels)))))


def _one_per_row(predictive: Predictive | ClassPredictive, y: np.ndarray) -> np.ndarray:
    y = np.asarray(y)
    if y.shape != (len(predictive),):
        raise ValueError(f"y must have one entry per row, shape {(len(predictive),)}; got shape {y.shape}.")
    return y
