"""Means of the response for each level of a category, shrunken to the mean of all rows.

Written by hand because scikit-learn's `TargetEncoder` takes no weights of rows and, with its own choice of smoothing,
believes a level of a single row entirely: the variance that it takes from that row is zero. Here the variances within
and between levels come from all levels together. For a given smoothing the means are those of `TargetEncoder`.
"""

import numpy as np
from jaxtyping import Float, Int

_N_FOLDS = 5  # as TargetEncoder
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
    counts = np.bincount(groups, weight, n_groups)
    total = counts.sum()
    overall = weight @ targets / total
    centered = targets - overall
    sums = np.stack([np.bincount(groups, weight * column, n_groups) for column in centered.T], axis=1)
    means = sums / np.maximum(counts, np.finfo(np.float64).tiny)[:, None]
    among = counts @ np.square(means)
    all_squares = weight @ np.square(centered)
    n_used = np.count_nonzero(counts)
    within = np.maximum(all_squares - among, 0.0) / max(total - n_used, 1.0)
    spread = max(total - np.sum(np.square(counts)) / total, 1.0)
    between = np.maximum(among - (n_used - 1) * within, 0.0) / spread
    # m is at most the number of rows: where levels do not differ, the means nearly vanish and need not be exact.
    smoothing = within / np.maximum(between, np.maximum(within, np.finfo(np.float64).tiny) / total)
    return overall + sums / (counts[:, None] + smoothing + np.finfo(np.float64).tiny)


def cross_fitted_means(
    groups: Int[np.ndarray, " row"],
    targets: Float[np.ndarray, "row target"],
    weight: Float[np.ndarray, " row"],
    n_groups: int,
) -> Float[np.ndarray, "row target"]:
    """Return for each row the mean of its group among the rows of other folds, so that no row sees its own response."""
    found = np.empty_like(targets)
    fold = np.arange(len(groups)) % _N_FOLDS
    for number in range(_N_FOLDS):
        inside = fold == number
        outside = ~inside
        if outside.any() and weight[outside].sum() > 0:
            means = shrunken_means(groups[outside], targets[outside], weight[outside], n_groups)
        else:
            means = np.zeros((n_groups, targets.shape[1]))
        found[inside] = means[groups[inside]]
    return found
