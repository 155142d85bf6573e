"""The rows that a page judges predictions by."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mile.fitting.result import Fit

_MOST_CELLS = 12_000_000  # draws x rows; more would take longer than a page may
_MOST_ROWS = 5_000


class ObservedRows(NamedTuple):
    """Encoded features and observed values that can be used, with their places in the table that they come from."""

    x: np.ndarray
    y: np.ndarray | None
    numbers: np.ndarray
    n_given: int
    n_unusable: int  # without a finite value, or with a label that training never saw


def choose_rows(
    fit: Fit, x: np.ndarray | None, y: ArrayLike | None, numbers: np.ndarray | None = None
) -> ObservedRows | None:
    """Return the rows to use, an even selection of very many; None if there are none.

    `x` is encoded; `numbers` say where each row was in the user's table, by default at its own place.

    Raises
    ------
    ValueError
        If x and y do not fit together or x does not fit the network.
    """
    if x is None:
        return None
    if x.ndim != 2 or x.shape[1] != fit.network.n_inputs:
        raise ValueError(f"x must have shape (rows, {fit.network.n_inputs}); got {x.shape}.")
    y = None if y is None else np.asarray(y)
    if y is not None and y.shape[:1] != (len(x),):
        raise ValueError(f"y must have one entry for each of the {len(x)} rows of x; got shape {y.shape}.")
    usable = np.flatnonzero(fit.response.usable(y)) if y is not None else np.arange(len(x))
    if not usable.size:
        return None
    n_draws = int(fit.ok.sum()) * fit.chains.logdensity.shape[1]
    most = int(np.clip(_MOST_CELLS // n_draws, 1, _MOST_ROWS))
    chosen = usable[np.linspace(0, len(usable) - 1, min(len(usable), most)).round().astype(int)]
    numbers = np.arange(len(x)) if numbers is None else numbers
    observed = None if y is None else y[chosen]
    return ObservedRows(x[chosen], observed, numbers[chosen], len(x), len(x) - len(usable))
