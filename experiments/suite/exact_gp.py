"""Gaussian process regression with a length for each feature and noise, fitted by its marginal likelihood.

scikit-learn's takes as much memory as features times squared rows and minutes at 2,000 rows; here the gradient for all
lengths comes from one product of matrices. Imports numpy and scipy only.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.linalg.lapack import dpotri
from scipy.optimize import minimize

MOST_TO_LEARN = 1_000  # rows that signal, lengths and noise are learned from: a step grows with their third power
_JITTER = 1e-8
_TRIAL_STEPS, _STEPS = 10, 100  # of L-BFGS from each start, and from the better one on
_NOISE = 0.1  # variance at the start, of a standardized target
_SMALLEST, _LARGEST = 1e-3, 1e3  # lengths and signal; the noise variance may fall to 1e-6


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactGP:
    """A fitted process: rows and targets are standardized by the caller."""

    x: np.ndarray
    signal: float  # variance
    length: np.ndarray  # of each feature
    noise: float  # variance
    alpha: np.ndarray
    factor: np.ndarray

    def predict(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation of new targets, with noise."""
        across = self.signal * np.exp(-0.5 * _squared(x / self.length, self.x / self.length))
        half = solve_triangular(self.factor, across.T, lower=True)
        variance = self.signal + self.noise - np.sum(np.square(half), axis=0)
        return across @ self.alpha, np.sqrt(np.maximum(variance, self.noise))


def fit(x: np.ndarray, y: np.ndarray) -> ExactGP:
    """Maximize the marginal likelihood of the first rows, then condition on all of them.

    From two starts: lengths of one, and of the typical distance of rows.
    """
    d, few = x.shape[1], slice(0, MOST_TO_LEARN)
    bounds = [(math.log(_SMALLEST), math.log(_LARGEST))] * (d + 1) + [(math.log(1e-6), math.log(10.0))]
    starts = [np.array([0.0, *[math.log(length)] * d, math.log(_NOISE)]) for length in (1.0, math.sqrt(d))]

    def steps(start: np.ndarray, number: int):
        return minimize(
            _loss, start, (x[few], y[few]), jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": number}
        )

    trial = min((steps(start, _TRIAL_STEPS) for start in starts), key=lambda found: found.fun)
    best = steps(trial.x, _STEPS).x
    signal, length, noise = math.exp(best[0]), np.exp(best[1:-1]), math.exp(best[-1])
    kernel = signal * np.exp(-0.5 * _squared(x / length, x / length))
    factor = _factor(kernel, noise)
    alpha = cho_solve((factor, True), y)
    return ExactGP(x=x, signal=signal, length=length, noise=noise, alpha=alpha, factor=factor)


def _loss(parameters: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the negative log marginal likelihood and its gradient by the logs of signal, lengths and noise."""
    signal, length, noise = math.exp(parameters[0]), np.exp(parameters[1:-1]), math.exp(parameters[-1])
    scaled = x / length
    kernel = signal * np.exp(-0.5 * _squared(scaled, scaled))
    try:
        factor = _factor(kernel, noise)
    except np.linalg.LinAlgError:
        return 1e25, np.zeros_like(parameters)
    alpha = cho_solve((factor, True), y)
    loss = 0.5 * y @ alpha + np.log(np.diag(factor)).sum() + 0.5 * len(y) * math.log(2.0 * math.pi)
    # The derivative of the loss by an entry of the covariance.
    slope = 0.5 * (_inverse(factor) - np.outer(alpha, alpha))
    by_noise = noise * np.trace(slope)
    slope *= kernel
    # Sum over pairs of slope times (scaled difference)², for each feature.
    by_length = 2.0 * (slope.sum(axis=1) @ np.square(scaled) - np.sum(scaled * (slope @ scaled), axis=0))
    return float(loss), np.concatenate([[slope.sum()], by_length, [by_noise]])


def _factor(kernel: np.ndarray, noise: float) -> np.ndarray:
    return cholesky(kernel + (noise + _JITTER) * np.eye(len(kernel)), lower=True)


def _inverse(factor: np.ndarray) -> np.ndarray:
    """Return the inverse of the matrix that has this lower factor."""
    lower = np.tril(dpotri(factor, lower=1)[0])
    return lower + np.tril(lower, -1).T


def _squared(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    found = np.square(a).sum(axis=1)[:, None] + np.square(b).sum(axis=1) - 2.0 * a @ b.T
    return np.maximum(found, 0.0)
