"""Which rows are for training and which are set aside."""

import numpy as np
from jaxtyping import Bool, Int

# Rows needed before some are set aside to decide when to stop training.
_SMALLEST_SPLIT = 20
FEWEST_ROWS_OF_A_FOLD = 2  # of each of the folds that rotate: one of them decides when a member stops
FEWEST_FOLDS = 3  # one to leave out, one to stop by, one to learn from


def split_rows(
    n_rows: int, fraction: float, seed: int, strata: Int[np.ndarray, " row"] | None = None
) -> Bool[np.ndarray, " row"]:
    """Return a mask of the validation rows, each stratum in its share and with at least one training row."""
    validation = np.zeros(n_rows, bool)
    if n_rows < _SMALLEST_SPLIT or fraction == 0.0:
        return validation
    order = np.random.default_rng(seed).permutation(n_rows)
    if strata is not None:
        order = order[np.argsort(strata[order], kind="stable")]
        _, first = np.unique(strata[order], return_index=True)
        order = np.delete(order, first)
    # Every 1/fraction-th row of the order: with rows sorted by stratum, each stratum gives its share.
    n_validation = min(round(fraction * n_rows), len(order), n_rows - 1)
    chosen = np.floor((np.arange(n_validation) + 0.5) * len(order) / max(n_validation, 1)).astype(int)
    validation[order[chosen]] = True
    return validation


def rotating_folds(
    n_rows: int,
    n_folds: int,
    seed: int,
    *,
    strata: Int[np.ndarray, " row"] | None = None,
    groups: Int[np.ndarray, " row"] | None = None,
    order: np.ndarray | None = None,
) -> Int[np.ndarray, " row"]:
    """Return the fold of each row, 0 to n_folds - 1, all of nearly the same size.

    Parameters
    ----------
    n_rows, n_folds, seed
        Rows at random.
    strata
        Kinds of rows of which each fold has its share.
    groups
        Rows of one group stay in one fold: customers, say, when predictions are for new ones.
    order
        Numbers by which rows follow each other, such as times; each fold is then one stretch of them.
    """
    shuffled = np.random.default_rng(seed).permutation(n_rows)
    folds = np.empty(n_rows, np.int32)
    if order is not None:
        folds[np.argsort(order, kind="stable")] = np.arange(n_rows) * n_folds // n_rows
    elif groups is not None:
        folds[:] = _folds_of_groups(groups, n_folds, shuffled)[groups]
    else:
        if strata is not None:
            shuffled = shuffled[np.argsort(strata[shuffled], kind="stable")]
        folds[shuffled] = np.arange(n_rows) % n_folds
    return folds


def check_folds(folds: np.ndarray, n_rows: int, n_validation: int) -> Int[np.ndarray, " row"]:
    """Return folds that can rotate.

    Raises
    ------
    ValueError
        If there is not one for each row, if one of them has no rows, or if rows are set aside besides.
    """
    folds = np.asarray(folds)
    n_folds = int(folds.max()) + 1 if folds.size and folds.dtype.kind in "iu" else 0
    if folds.shape != (n_rows,) or n_folds < FEWEST_FOLDS or not np.array_equal(np.unique(folds), np.arange(n_folds)):
        raise ValueError(
            f"fold_train must have one whole number for each of the {n_rows} rows, of at least {FEWEST_FOLDS} folds "
            "counted from 0 without a gap."
        )
    if n_validation:
        raise ValueError("with fold_train no rows are set aside: leave x_valid and y_valid out.")
    return folds.astype(np.int32)


def _folds_of_groups(
    groups: Int[np.ndarray, " row"], n_folds: int, shuffled: Int[np.ndarray, " row"]
) -> Int[np.ndarray, " group"]:
    """Put each group, the largest first, into the fold that has the fewest rows."""
    names, first = np.unique(groups[shuffled], return_index=True)
    sizes = np.bincount(groups)
    found, filled = np.zeros(len(sizes), np.int32), np.zeros(n_folds, np.int64)
    for group in names[np.lexsort((first, -sizes[names]))]:
        found[group] = np.argmin(filled)
        filled[found[group]] += sizes[group]
    return found
