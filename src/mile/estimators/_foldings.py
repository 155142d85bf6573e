"""How rows are cut into folds: groups that stay together, an order in time, and what to do if there are too few."""

import datetime
from collections.abc import Iterable
from typing import NamedTuple, cast

import numpy as np
from jaxtyping import Int
from numpy.typing import ArrayLike

from mile._errors import warn
from mile.data.folds import FEWEST_FOLDS, FEWEST_ROWS_OF_A_FOLD
from mile.estimators._responses import is_missing
from mile.features import parsing
from mile.features.frame import Frame

Labels = ArrayLike | Iterable[object]  # one entry per row: an array, a list or a column


class Folding(NamedTuple):
    """What the user says of how rows belong together; one entry per row each."""

    groups: Int[np.ndarray, " row"] | None = None
    order: np.ndarray | None = None

    def take(self, rows: np.ndarray) -> "Folding":
        """Return the same for some of the rows."""
        return Folding(*(None if values is None else values[rows] for values in self))

    @property
    def is_given(self) -> bool:
        """Whether the user says anything."""
        return self.groups is not None or self.order is not None

    @property
    def n_groups(self) -> int | None:
        """Different groups; None if rows have none."""
        return None if self.groups is None else len(np.unique(self.groups))


def check_folding(groups: Labels | None, order: Labels | None, n_rows: int, *, may_rotate: bool) -> Folding:
    """Return groups and order as numbers.

    Parameters
    ----------
    groups
        Labels of any kind; rows with the same one belong together.
    order
        Numbers or dates.
    n_rows
        Rows of X.
    may_rotate
        Whether there are folds at all.

    Raises
    ------
    ValueError
        If there is not one entry for each row, one is missing, or both or none of the folds are there.
    """
    if groups is None and order is None:
        return Folding()
    name = "groups" if order is None else "order"
    if groups is not None and order is not None:
        raise ValueError(
            "groups and order cannot be given together: folds keep groups whole, or are stretches of time."
        )
    if not may_rotate:
        raise ValueError(
            f"{name} says how rows are cut into folds, but there are none here: give n_folds of at least "
            f"{FEWEST_FOLDS}, and as many chains."
        )
    if groups is not None:
        return Folding(groups=_codes(_entries("groups", groups, n_rows)))
    return Folding(order=_positions(_entries("order", cast(Labels, order), n_rows)))


def choose_folds(n_folds: int, n_rows: int, folding: Folding, *, is_asked: bool) -> int:
    """Return into how many folds to cut the rows; 0 if they are too few, with a warning where the user asked for them.

    Raises
    ------
    ValueError
        If there are too few groups.
    """
    n_groups = folding.n_groups
    if n_groups is not None and n_groups < (n_folds if is_asked else FEWEST_FOLDS):
        raise ValueError(
            f"groups must have at least as many different labels as there are folds, "
            f"{n_folds if is_asked else FEWEST_FOLDS}; got {n_groups}. Leave groups out, or give fewer folds."
        )
    n_folds = n_folds if n_groups is None else min(n_folds, n_groups)
    if n_folds and n_rows < FEWEST_ROWS_OF_A_FOLD * n_folds:
        if is_asked or folding.is_given:
            held = "no rows are set aside" if folding.is_given else "some rows are set aside for validation instead"
            warn(
                f"{n_rows} rows are too few for {n_folds} folds, which need {FEWEST_ROWS_OF_A_FOLD} each, so {held}, "
                "and there are no out-of-fold scores."
            )
        return 0
    return n_folds


def _entries(name: str, given: Labels, n_rows: int) -> np.ndarray:
    """Return one entry per row as an array; texts and numbers that are mixed in a list stay what they are."""
    values = np.asarray(given)
    if values.dtype.kind in "US" and not hasattr(given, "dtype"):
        values = np.array(list(cast(Iterable[object], given)), object)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.shape != (n_rows,):
        raise ValueError(f"{name} must have one entry for each of the {n_rows} rows; got shape {values.shape}.")
    for row, value in enumerate(values.tolist() if values.dtype.kind != "M" else values):
        if is_missing(value):
            raise ValueError(f"{name} must have an entry in every row, but row {row} has none.")
    return values


def _codes(values: np.ndarray) -> Int[np.ndarray, " row"]:
    """Return a number for each label, in the order in which they appear."""
    known: dict[object, int] = {}
    return np.array([known.setdefault(value, len(known)) for value in values.tolist()], np.int64)


def _positions(values: np.ndarray) -> np.ndarray:
    """Return numbers by which rows follow each other."""
    if values.dtype.kind == "M":
        return values.astype("datetime64[ns]").astype(np.int64)
    if values.dtype.kind in "biuf":
        finite = np.isfinite(values)
        if not finite.all():
            row = int(np.argmin(finite))
            raise ValueError(f"order must be finite in every row, but row {row} has {values[row]}.")
        return values
    texts = [value for value in values.tolist() if isinstance(value, str)]
    if len(texts) == len(values) > 0:
        return _dates_of(values)
    for row, value in enumerate(values.tolist()):
        if not isinstance(value, int | float | datetime.date):
            raise ValueError(f"order must be numbers or dates, but row {row} has {str(value)[:40]!r}.")
    dated = isinstance(values.flat[0], datetime.date)
    return _positions(values.astype("datetime64[us]" if dated else np.float64))


def _dates_of(values: np.ndarray) -> np.ndarray:
    """Return the days of texts that are dates."""
    texts = [str(value).strip() for value in values.tolist()]
    distinct = list(dict.fromkeys(texts))
    form = parsing.date_format(distinct)
    if form is None:
        wrong = next((text for text in distinct if parsing.date_format([text]) is None), distinct[0])
        raise ValueError(
            f"order must be numbers or dates in one format, but row {texts.index(wrong)} has {wrong[:40]!r}."
        )
    return Frame.of({"order": np.array(texts, object)})["order"].dates(form).numbers().values
