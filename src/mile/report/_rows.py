"""The rows that a page judges predictions by."""

from typing import Any, NamedTuple

import numpy as np

from mile.likelihoods import Categorical
from mile.results import Fit

_MOST_CELLS = 12_000_000  # draws x rows; more would take longer than a page may
_MOST_ROWS = 5_000


class Rows(NamedTuple):
    """Features and observed values that can be used, with their places in the table they come from."""

    x: np.ndarray
    y: np.ndarray | None
    numbers: np.ndarray
    n_given: int
    n_unusable: int  # without a finite value, or with a label that training never saw


def choose_rows(fit: Fit, x: Any, y: Any) -> Rows | None:
    """Return the rows to use, an even selection of very many; None if there are none.

    Raises
    ------
    ValueError
        If x and y do not fit together or x does not fit the network.
    """
    if x is None:
        return None
    x = np.asarray(x, float)
    if x.ndim != 2 or x.shape[1] != fit.network.n_inputs:
        raise ValueError(f"x must have shape (rows, {fit.network.n_inputs}); got {x.shape}.")
    y = None if y is None else np.asarray(y)
    if y is not None and y.shape != (len(x),):
        raise ValueError(f"y must have one entry for each of the {len(x)} rows of x; got shape {y.shape}.")
    usable = np.flatnonzero(_usable(fit, y)) if y is not None else np.arange(len(x))
    if not usable.size:
        return None
    n_draws = int(fit.ok.sum()) * fit.chains.logdensity.shape[1]
    most = int(np.clip(_MOST_CELLS // n_draws, 1, _MOST_ROWS))
    chosen = usable[np.linspace(0, len(usable) - 1, min(len(usable), most)).round().astype(int)]
    return Rows(x[chosen], None if y is None else y[chosen], chosen, len(x), len(x) - len(usable))


def _usable(fit: Fit, y: np.ndarray) -> np.ndarray:
    if isinstance(fit.likelihood, Categorical):
        return np.isin(y, np.arange(fit.likelihood.n_classes) if fit.classes is None else fit.classes)
    return np.isfinite(y.astype(float))
