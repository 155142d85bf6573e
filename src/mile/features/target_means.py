"""Means of the response for each level of a category, shrunken to the mean of all rows.

Written by hand because scikit-learn's `TargetEncoder` takes no weights of rows and, with its own choice of smoothing,
believes a level of a single row entirely: the variance that it takes from that row is zero. Here the variances within
and between levels come from all levels together. For a given smoothing the means are those of `TargetEncoder`.
"""

import numpy as np
from jaxtyping import Float, Int

_N_FOLDS = 5  # as TargetEncoder
_TINY = np.finfo(np.float64).tiny  # keeps quotients of zeros defined
_MOST_CLASSES = 10  # beyond, means of each class would be more features than indicators


def targets_of(y: np.ndarray | None) -> Float[np.ndarray, "row target"] | None:
    """Return the response as columns to take means of.

    Numbers are one column, or as many as they have, divided by the largest. Codes of classes are an indicator for each
    class, a single one for two classes. None where there is no response, or too many classes.
    """
    if y is None:
        return None
    if y.dtype.kind == "f":
        columns = y.reshape(len(y), -1).astype(np.float64)
        size = np.max(np.abs(columns), axis=0, initial=0.0)  # squares of huge numbers would not be finite
        return columns / np.where(size > 0, size, 1.0)
    classes = np.unique(y)
    if y.ndim != 1 or not 2 <= len(classes) <= _MOST_CLASSES:
        return None
    chosen = classes[1:] if len(classes) == 2 else classes
    return (y[:, None] == chosen).astype(np.float64)


def shrunken_means(
    groups: Int[np.ndarray, " row"],
    targets: Float[np.ndarray, "row target"],
    weight: Float[np.ndarray, " row"],
    n_groups: int,
) -> Float[np.ndarray, "group target"]:
    """Return for each group n / (n + m) of its mean and the rest of the overall mean.

    The smoothing m is the variance within groups over that between groups, the posterior mean of a group under normal
    distributions, with both variances estimated by the moments of a one-way random-effects model.
    """
    center = weight @ targets / weight.sum()
    counts, sums = _sums(groups, targets - center, weight, n_groups)
    return center + _shrunken(counts, sums, weight @ np.square(targets - center))


def cross_fitted_means(
    groups: Int[np.ndarray, " row"],
    targets: Float[np.ndarray, "row target"],
    weight: Float[np.ndarray, " row"],
    n_groups: int,
) -> Float[np.ndarray, "row target"]:
    """Return for each row the mean of its group among the rows of other folds, so that no row sees its own response.

    Sums over other folds are those over all rows without those over the fold, so the rows are gone through once.
    """
    center = weight @ targets / weight.sum()
    centered = targets - center
    fold = np.arange(len(groups)) % _N_FOLDS
    place = fold * n_groups + groups
    counts, sums = _sums(place, centered, weight, _N_FOLDS * n_groups)
    counts, sums = counts.reshape(_N_FOLDS, n_groups), sums.reshape(_N_FOLDS, n_groups, -1)
    squares = _sums(fold, np.square(centered), weight, _N_FOLDS)[1]
    outside = [
        _shrunken(*(np.maximum(counts.sum(0) - counts[k], 0.0), sums.sum(0) - sums[k], squares.sum(0) - squares[k]))
        for k in range(_N_FOLDS)
    ]
    return center + np.concatenate(outside)[place]


def _sums(
    groups: Int[np.ndarray, " row"],
    targets: Float[np.ndarray, "row target"],
    weight: Float[np.ndarray, " row"],
    n_groups: int,
) -> tuple[Float[np.ndarray, " group"], Float[np.ndarray, "group target"]]:
    """Return the number of rows and the sum of the targets in each group, counted by weight."""
    sums = [np.bincount(groups, weight * column, n_groups) for column in targets.T]
    return np.bincount(groups, weight, n_groups), np.stack(sums, axis=1)


def _shrunken(
    counts: Float[np.ndarray, " group"], sums: Float[np.ndarray, "group target"], squares: Float[np.ndarray, " target"]
) -> Float[np.ndarray, "group target"]:
    """Return the means of groups from sums over rows; a group without rows gets the overall mean."""
    total = counts.sum()
    if total <= 0:
        return np.zeros_like(sums)
    overall = sums.sum(axis=0) / total
    deviations = sums - counts[:, None] * overall
    among = np.sum(np.square(deviations) / np.maximum(counts, _TINY)[:, None], axis=0, where=counts[:, None] > 0)
    n_used = np.count_nonzero(counts)
    within = np.maximum(squares - total * np.square(overall) - among, 0.0) / max(total - n_used, 1.0)
    spread = max(total - np.sum(np.square(counts)) / total, 1.0)
    between = np.maximum(among - (n_used - 1) * within, 0.0) / spread
    # m is at most the number of rows: where levels do not differ, the means nearly vanish and need not be exact.
    smoothing = within / np.maximum(between, np.maximum(within, _TINY) / total)
    return overall + np.where(counts[:, None] > 0, deviations, 0.0) / (counts[:, None] + smoothing + _TINY)
