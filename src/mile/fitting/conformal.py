"""Intervals that hold what they promise for any model: CV+ of Barber, Candes, Ramdas and Tibshirani (2021).

Each training row has a score, the distance of its out-of-fold mean to what was observed, in out-of-fold standard
deviations. At a new x, each training row i proposes an interval with the chains that left i's fold f out,

    mean_f(x) - score_i std_f(x)  to  mean_f(x) + score_i std_f(x),

and the ends are order statistics of what all rows propose. Their intervals are nested in the score, so that the paper's
proof for absolute residuals holds word for word (Gupta, Kuchibhotla and Ramdas 2022, Pattern Recognition 127).
"""

import math
from collections.abc import Sequence
from typing import cast

import numpy as np
from jaxtyping import Float

from mile.fitting.result import Fit
from mile.likelihoods import Predictive
from mile.predict import DEFAULT_MEMORY

_HALVINGS = 60  # of the range in which an end is searched; then it is known to the last digit
_SLACK = 1e-9  # a rank is not rounded up for the last digit of a float


def conformal_interval(
    fit: Fit, x: Float[np.ndarray, "row feature"], level: float = 0.9, memory: int = DEFAULT_MEMORY
) -> Float[np.ndarray, "row 2"]:
    """Return the CV+ interval of each row of raw features; infinite if there are too few training rows for the level.

    Raises
    ------
    ValueError
        If the level is not strictly between 0 and 1, or the fit has no out-of-fold predictions of numbers.
    """
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie strictly between 0 and 1; got {level!r}.")
    found = fit.out_of_fold
    if found is None:
        raise ValueError(
            "conformal intervals need out-of-fold predictions, and this fit has none: fit with rotating folds, such as "
            "n_folds=4 with n_chains=12, and at least five rows for each fold."
        )
    if "distance" not in found.values:
        raise ValueError(
            "conformal intervals need means and standard deviations; this model has classes, medians or several "
            "outputs."
        )
    scores = found.values["distance"] / found.values["std"]
    rank = math.ceil(level * (len(scores) + 1) - _SLACK)
    whole = cast(Predictive, fit.predictive(x, memory))
    if rank > len(scores):
        return whole.possible(np.tile([-np.inf, np.inf], (len(x), 1)))
    mean, std, by_fold = [], [], []
    for fold in range(found.n_folds):
        chains = [place for place in np.flatnonzero(fit.ok).tolist() if place % found.n_folds == fold]
        predictive = cast(Predictive, fit.predictive(x, memory, chains=chains))
        mean.append(predictive.mean)
        std.append(predictive.std)
        by_fold.append(np.sort(scores[found.fold == fold]))
    center, spread = np.stack(mean), np.stack(std)
    lower = -order_statistic(-center, spread, by_fold, rank)
    ends = np.stack([lower, order_statistic(center, spread, by_fold, rank)], axis=1)
    return whole.possible(ends)


def order_statistic(
    center: Float[np.ndarray, "fold row"],
    spread: Float[np.ndarray, "fold row"],
    scores: Sequence[Float[np.ndarray, " score"]],
    rank: int,
) -> Float[np.ndarray, " row"]:
    """Return for each row the value of a rank, from 1, among center + score * spread of all folds and scores.

    Scores are sorted within each fold, so that a value's rank takes a search in each and nothing is as long as all of
    them together for each row.
    """
    parts = [(at, by, sorted_) for at, by, sorted_ in zip(center, spread, scores, strict=True) if len(sorted_)]
    low = np.min([at + (sorted_[0] - 1.0) * by for at, by, sorted_ in parts], axis=0)
    high = np.max([at + sorted_[-1] * by for at, by, sorted_ in parts], axis=0)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        count = sum(np.searchsorted(sorted_, (middle - at) / by, side="right") for at, by, sorted_ in parts)
        enough = count >= rank
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    following = np.full_like(low, np.inf)
    for at, by, sorted_ in parts:  # the smallest value above `low` is the one
        place = np.searchsorted(sorted_, (low - at) / by, side="right")
        value = at + sorted_[np.minimum(place, len(sorted_) - 1)] * by
        following = np.where(place < len(sorted_), np.minimum(following, value), following)
    return following
