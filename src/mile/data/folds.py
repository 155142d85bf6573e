"""Which rows are for training and which are set aside."""

import numpy as np
from jaxtyping import Bool, Int

# Rows needed before some are set aside to decide when to stop training.
_SMALLEST_SPLIT = 20


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
