"""Weights of candidates by stacking: those with which the mixture best predicts rows that its parts have not seen.

A candidate is scored on the rows that it left out. The weights maximize

    sum over rows of u log( sum of w p / sum of w )  +  strength * sum over candidates of log w,

with u the weight of a row and p a candidate's density of it; both inner sums run over the candidates that left the row
out (Yao, Vehtari, Simpson and Gelman 2018, Bayesian Analysis 13; Yao, Vehtari and Gelman 2022, JMLR 23).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize
from scipy.special import logsumexp

from mile._checks import check_number

# The strength pulls weights toward equal. It is that of a Dirichlet(1 + strength) prior on weights, which Yao et al.
# 2022 add to the objective: as if each candidate alone had predicted so many more rows. Tables here have few rows for
# each candidate, and weights that follow their noise cost density on new rows. In a simulation of 24 candidates and 60
# to 1,000 rows (smaller: tests/unit/fitting/test_stacking.py) a fifth of a row lost at most 0.0005 nats against equal
# weights where candidates were much alike (a thousandth: 0.012), and kept about nine tenths of the best gain where not.
STRENGTH = 0.2
_LEAST_SHARE = 0.01  # of an equal weight; a candidate below it changes no prediction and only costs time
_GRADIENT_TOLERANCE = 1e-9  # of the mean over rows, in nats
_MOST_ITERATIONS = 200
_TINY = np.finfo(float).tiny


class Stacking(NamedTuple):
    """Weights of candidates, and which of them have none."""

    weights: Float[np.ndarray, " candidate"]  # sum to one
    without: tuple[int, ...]  # numbers of the candidates that are left out


def stack(
    log_density: Float[np.ndarray, "candidate row"],
    row_weight: Float[np.ndarray, " row"] | None = None,
    *,
    strength: float = STRENGTH,
    prior: Float[np.ndarray, " candidate"] | None = None,
) -> Stacking:
    """Return the weights with which the mixture of candidates best predicts left-out rows.

    Parameters
    ----------
    log_density
        Of each row under each candidate; NaN where the candidate did not leave the row out, or failed. A row under a
        single candidate says nothing about weights. A candidate without any row gets no weight.
    row_weight
        How often each row counts; default once.
    strength
        Of the pull toward the prior weights, in rows for each candidate.
    prior
        The weights toward which the pull is, up to a factor; nothing holds back a candidate with the prior weight 0.
        Default: equal.

    Returns
    -------
    Stacking

    Raises
    ------
    ValueError
        If shapes do not agree, a weight of a row or the strength is negative or not finite, a log density is plus
        infinity, prior weights are negative or all zero, or no candidate has a row.

    Examples
    --------
    >>> import numpy as np
    >>> from mile.fitting.stacking import stack
    >>> good, bad = np.log([0.9, 0.8, 0.9]), np.log([0.1, 0.1, 0.2])
    >>> stack(np.stack([good, bad]), strength=0.0).weights.round(3).tolist()
    [1.0, 0.0]
    """
    log_density, row_weight = _checked(log_density, row_weight)
    strength = check_number("strength", strength)
    if strength < 0.0:
        raise ValueError(f"strength must not be negative; got {strength!r}.")
    scored = ~np.isnan(log_density).all(axis=1)
    if not scored.any():
        raise ValueError("stacking needs a candidate with the log density of a row that it left out; all are NaN.")
    found = _solve(log_density[scored], row_weight, strength, _checked_prior(prior, len(log_density))[scored])
    found = np.where(found * len(found) < _LEAST_SHARE, 0.0, found)
    weights = np.zeros(len(log_density))
    weights[scored] = found / found.sum()
    return Stacking(weights, tuple(np.flatnonzero(weights == 0.0).tolist()))


def stacked_log_density(
    log_density: Float[np.ndarray, "candidate row"], weights: Float[np.ndarray, " candidate"]
) -> Float[np.ndarray, " row"]:
    """Return the log density of each row under those candidates that left it out, with their weights renormalized.

    NaN where no candidate with a weight has left the row out.
    """
    known = ~np.isnan(log_density) & (weights > 0.0)[:, None]
    counted = np.where(known, weights[:, None], 0.0)
    total = counted.sum(axis=0)
    with np.errstate(divide="ignore"):
        found = logsumexp(np.where(known, log_density, -np.inf), axis=0, b=counted)
    return np.where(total > 0.0, found - np.log(np.where(total > 0.0, total, 1.0)), np.nan)


def _checked(
    log_density: Float[np.ndarray, "candidate row"], row_weight: Float[np.ndarray, " row"] | None
) -> tuple[np.ndarray, np.ndarray]:
    log_density = np.asarray(log_density, np.float64)
    if log_density.ndim != 2:
        raise ValueError(f"log_density must have shape (candidate, row); got shape {log_density.shape}.")
    if np.isposinf(log_density).any():
        raise ValueError("log_density must not be plus infinity.")
    n_rows = log_density.shape[1]
    row_weight = np.ones(n_rows) if row_weight is None else np.asarray(row_weight, np.float64)
    if row_weight.shape != (n_rows,):
        raise ValueError(f"row_weight must have one entry per row, shape {(n_rows,)}; got shape {row_weight.shape}.")
    if not (np.isfinite(row_weight).all() and (row_weight >= 0.0).all()):
        raise ValueError("row_weight must be finite and not negative.")
    return log_density, row_weight


def _checked_prior(prior: Float[np.ndarray, " candidate"] | None, n_candidates: int) -> np.ndarray:
    prior = np.ones(n_candidates) if prior is None else np.asarray(prior, np.float64)
    if prior.shape != (n_candidates,):
        raise ValueError(f"prior must have one entry per candidate, shape {(n_candidates,)}; got shape {prior.shape}.")
    if not (np.isfinite(prior).all() and (prior >= 0.0).all() and prior.any()):
        raise ValueError(f"prior must be finite, not negative and not all zero; got {prior.tolist()}.")
    return prior


class _Rows(NamedTuple):
    """Rows that compare candidates: their densities up to a factor, and which candidates each of them has."""

    density: Float[np.ndarray, "row candidate"]  # 0 where there is none
    count: Float[np.ndarray, " row"]
    pattern: Float[np.ndarray, "pattern candidate"]  # 1 for a candidate that rows of this pattern have
    pattern_count: Float[np.ndarray, " pattern"]


def _rows(log_density: np.ndarray, row_weight: np.ndarray) -> _Rows:
    known = ~np.isnan(log_density)
    largest = np.where(known, log_density, -np.inf).max(axis=0, initial=-np.inf)
    # What one candidate knows, or what all find impossible, does not compare them.
    useful = (known.sum(axis=0) > 1) & np.isfinite(largest) & (row_weight > 0.0)
    known, count = known[:, useful], row_weight[useful]
    relative = np.where(known, log_density[:, useful] - largest[useful], -np.inf)
    # Few patterns, one for each fold, stand for many rows.
    _, first, which = np.unique(np.packbits(known.T, axis=1), axis=0, return_index=True, return_inverse=True)
    pattern_count = np.bincount(which.reshape(-1), weights=count, minlength=len(first))
    return _Rows(np.exp(relative).T.copy(), count, known.T[first].astype(np.float64), pattern_count)


def _solve(log_density: np.ndarray, row_weight: np.ndarray, strength: float, toward: np.ndarray) -> np.ndarray:
    """Maximize over log weights, in which there are no constraints, by Newton's method from equal weights on."""
    rows, n_candidates = _rows(log_density, row_weight), len(log_density)
    scale = 1.0 / max(rows.count.sum() + strength * n_candidates, 1.0)
    prior = np.ones((1, n_candidates)), np.full(1, strength * n_candidates)
    pull = prior[1][0] * (toward / toward.sum() if toward.any() else np.full(n_candidates, 1.0 / n_candidates))
    # A common factor of all weights changes nothing; this term makes one of them the best.
    level = np.full(n_candidates, 1.0 / n_candidates)

    def loss(log_weight: np.ndarray) -> tuple[float, np.ndarray]:
        weight = _normalized(log_weight)
        gain, gain_slope = _log_sums(rows.density, rows.count, weight)
        cost, cost_slope = _log_sums(rows.pattern, rows.pattern_count, weight)
        value = gain - cost + pull @ np.log(weight)
        slope = gain_slope - cost_slope + pull - prior[1][0] * weight
        mean = level @ log_weight
        return -scale * value + 0.5 * mean**2, -scale * slope + mean * level

    def curvature(log_weight: np.ndarray) -> np.ndarray:
        weight = _normalized(log_weight)
        parts = [
            _curvature(*part, weight)
            for part in ((rows.density, rows.count), (rows.pattern, rows.pattern_count), prior)
        ]
        return -scale * (parts[0] - parts[1] - parts[2]) + np.outer(level, level)

    options = {"gtol": _GRADIENT_TOLERANCE, "maxiter": _MOST_ITERATIONS}
    start = np.zeros(n_candidates)
    return _normalized(minimize(loss, start, jac=True, hess=curvature, method="trust-exact", options=options).x)


def _log_sums(values: np.ndarray, count: np.ndarray, weight: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the sum over rows of log(values @ weight), and its slope in the log weights."""
    mixed = np.maximum(values @ weight, _TINY)
    return float(count @ np.log(mixed)), weight * (values.T @ (count / mixed))


def _curvature(values: np.ndarray, count: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the second derivatives of `_log_sums` in the log weights."""
    parts = values * weight * (np.sqrt(count) / np.maximum(values @ weight, _TINY))[:, None]
    return np.diag(np.sqrt(count) @ parts) - parts.T @ parts


def _normalized(log_weight: np.ndarray) -> np.ndarray:
    """Return positive weights that sum to one; none underflows, so that its logarithm is finite."""
    weight = np.exp(np.maximum(log_weight - log_weight.max(), -700.0))
    return weight / weight.sum()
