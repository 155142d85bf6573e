"""Which rows an explanation is of, and which draws may judge them: those that have not seen them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from mile.explain._columns import ColumnTable
from mile.explain._thinned import ThinnedFit
from mile.explain.importance import JudgedRows
from mile.fitting.known_rows import are_training_rows, left_out
from mile.fitting.result import Fit
from mile.plot._style import even_choice


class RowsToExplain(NamedTuple):
    """Rows, what was observed, and how they came to be chosen."""

    table: ColumnTable
    y: np.ndarray | None
    weight: Float[np.ndarray, " row"] | None
    fold: Int[np.ndarray, " row"] | None  # None: the rows are new to all draws
    words: str


def choose_rows(
    fit: Fit, table: ColumnTable, y: np.ndarray | None, n_rows: int, out_of_fold: bool | None
) -> RowsToExplain:
    """Return at most `n_rows` rows, evenly chosen.

    Parameters
    ----------
    fit
        To explain.
    table, y
        The user's rows, and what was observed.
    n_rows
        Most rows to use.
    out_of_fold
        Whether these are the rows that the fit was trained on, so that each is judged by chains that left it out. None
        finds out: the fit keeps the log densities of its training rows under those chains.

    Raises
    ------
    ValueError
        If they cannot be the training rows, and must be.
    """
    unseen = fit.out_of_fold
    is_known = are_training_rows(fit, table.x, y)
    if out_of_fold and not is_known:
        raise ValueError(
            "out_of_fold=True asks for the rows that the model was fitted on, with their y and in their order, of a "
            "model that was fitted with folds; these are not."
        )
    if is_known and unseen is not None and out_of_fold is not False:
        chosen = even_choice(len(unseen), n_rows)
        rows = unseen.number[chosen]
        found = None if y is None else y[rows]
        weight = np.asarray(unseen.weight[chosen], np.float64)
        return RowsToExplain(table.take(rows), found, weight, unseen.fold[chosen], "out-of-fold rows")
    usable = np.arange(len(table)) if y is None else np.flatnonzero(fit.response.usable(y))
    if not len(usable):
        raise ValueError("no row has an outcome that the model can score.")
    rows = usable[even_choice(len(usable), n_rows)]
    return RowsToExplain(table.take(rows), None if y is None else y[rows], None, None, "rows given")


def judges(fit: Fit, rows: RowsToExplain, n_draws: int, label: object) -> Sequence[JudgedRows]:
    """Return the parts of the rows, each with draws that have not seen it."""
    if rows.fold is None or fit.out_of_fold is None:
        return [JudgedRows(ThinnedFit.of(fit, n_draws, label), np.arange(len(rows.table)))]
    n_folds = fit.out_of_fold.n_folds
    return [
        JudgedRows(ThinnedFit.of(left_out(fit, fold, n_folds), n_draws, label), np.flatnonzero(rows.fold == fold))
        for fold in np.unique(rows.fold).tolist()
    ]


def as_outcomes(y: np.ndarray | None, n_rows: int) -> np.ndarray | None:
    """Return one outcome per row as an array.

    Raises
    ------
    ValueError
        If there is not one for each row.
    """
    if y is None:
        return None
    found = np.asarray(y)
    if found.shape[:1] != (n_rows,):
        raise ValueError(f"y must have one entry for each of the {n_rows} rows of X; got shape {found.shape}.")
    return found


def imagined(fit: ThinnedFit, table: ColumnTable, seed: int) -> np.ndarray:
    """Return outcomes that the model itself predicts, where none were observed."""
    return fit.fit.predictive(table.x).sample(1, seed)[0]
