"""What a column to predict is: numbers, classes, or neither, which is refused with advice."""

import shlex
from collections import Counter
from collections.abc import Sequence

import numpy as np

from mile._errors import warn
from mile.features import parsing
from mile.likelihoods import AbstractLikelihood, Categorical, Gaussian
from mile.likelihoods.outputs import split_names
from mile.storage import Table

# How a response is read where no model says it; a task without one is decided by what the column holds.
LIKELIHOODS: dict[str, type[AbstractLikelihood]] = {kind.task: kind for kind in (Gaussian, Categorical)}
TASKS = ("auto", *LIKELIHOODS)
_MOST_CODES = 10  # different whole numbers that are taken for classes
_LARGEST_TEXT_SHARE = 0.5  # different texts per row, above which a column is not taken for classes
_MOSTLY = 0.5  # a text column with this share of numbers is taken for a numeric one with mistakes
_LONGEST_CELL = 40  # characters of a cell quoted in a message


def names_in(text: str, table: Table) -> list[str]:
    """Return the names of columns in an option: one, or several with commas."""
    return [text] if text in table.columns else split_names(text)


def read_outputs(table: Table, targets: Sequence[str]) -> np.ndarray:
    """Return several columns to predict together, with NaN in rows that lack one of them."""
    known = known_rows(table, ",".join(targets))
    y = np.full((len(table), len(targets)), np.nan)
    y[known] = table.take(known).matrix(targets)
    return y


def known_rows(table: Table, target: str) -> np.ndarray:
    """Return the rows that have a target, or all of several.

    Raises
    ------
    ValueError
        If there is none.
    """
    rows = zip(*(table.column(name).tolist() for name in names_in(target, table)), strict=True)
    known = np.array(
        [row for row, cells in enumerate(rows) if all(cell is not None and cell == cell for cell in cells)], int
    )
    if not known.size:
        raise ValueError(f"The target {target!r} is empty in all {len(table):,} rows of {table.source}.")
    return known


def with_gaps(values: np.ndarray, known: np.ndarray, n_rows: int) -> np.ndarray:
    """Return values of some rows at their places among all rows; the others are missing, and estimators count them."""
    if len(known) == n_rows:
        return values
    spread = np.full(n_rows, None, object)
    spread[known] = values.tolist()
    return spread.astype(np.float64) if values.dtype.kind == "f" else spread


def drop_unknown(table: Table, target: str) -> Table:
    """Return the rows of a table whose target is known, and warn of others."""
    known = known_rows(table, target)
    if len(known) < len(table):
        left_out = len(table) - len(known)
        warn(f"{target!r} has no value in {left_out:,} of {len(table):,} rows, which are left out.")
    return table.take(known)


def decide(table: Table, target: str, task: str) -> tuple[str, str]:
    """Return the task of a table whose target is known in all rows, and why.

    Raises
    ------
    ValueError
        If the target is made of dates, is numbers with texts among them, or is a text of its own in most rows.
    """
    response = table.column(target)
    if response.dtype == object and (task == "auto" or LIKELIHOODS[task].is_numeric):
        _refuse_dates(table, target)
    if task != "auto":
        return task, "as asked for"
    n_values = len(set(response.tolist()))
    if response.dtype != object:
        if _are_codes(response):
            return "classification", f"{target!r} has only {n_values} different whole numbers"
        return "regression", f"{target!r} is a number"
    _refuse_strays(table, target)
    if n_values <= _LARGEST_TEXT_SHARE * len(response):
        return "classification", f"{target!r} is text with {n_values} different values"
    LIKELIHOODS["regression"].read(table, target)  # names the first cell that is not a number
    raise AssertionError("unreachable: a column of texts that are all numbers would have been read as numbers")


def _are_codes(numbers: np.ndarray) -> bool:
    """Say whether numbers alone look like classes: few, whole, and repeated."""
    finite = numbers[np.isfinite(numbers)]
    n_values = len(set(numbers.tolist()))
    return n_values <= _MOST_CODES and n_values < len(numbers) and bool(np.all(finite == np.round(finite)))


def _refuse_dates(table: Table, target: str) -> None:
    cells = table.column(target)
    if parsing.date_format(list(dict.fromkeys(cells.tolist()))) is not None:
        raise ValueError(
            f"The target {target!r} holds dates, such as {_excerpt(cells[0])} in {table.place(0)}, which cannot be "
            "predicted as they are. Predict a number, such as the days since a fixed date, or give "
            "--task classification if the dates are labels."
        )


def _refuse_strays(table: Table, target: str) -> None:
    """Refuse a column of numbers with some texts among them, unless the numbers look like labels too."""
    cells = table.column(target)
    rows_of = Counter(cells.tolist())
    numbers = {text for text in rows_of if parsing.are_numbers([text.strip()])}
    strays = {text: count for text, count in rows_of.items() if text not in numbers and not parsing.is_code(text)}
    is_number = np.array([cell in numbers for cell in cells], bool)
    if not strays or is_number.mean() < _MOSTLY:
        return
    # Labels such as 0, 1, 2 and "3 or more", none of which stands alone.
    if _are_codes(np.array([float(cell) for cell in cells[is_number]])) and min(strays.values()) > 1:
        return
    row = next(row for row, cell in enumerate(cells) if cell in strays)
    n_strays = sum(strays.values())
    count = "the only cell" if n_strays == 1 else f"the first of {n_strays:,} cells"
    raise ValueError(
        f"The target {target!r} has {_excerpt(cells[row])} in {table.place(row)}, {count} that is no number. Correct "
        f"or empty it, or give --missing {shlex.quote(cells[row][:_LONGEST_CELL])} to leave such rows out; if the "
        "target holds labels, give --task classification."
    )


def _excerpt(cell: str) -> str:
    return repr(cell if len(cell) <= _LONGEST_CELL else f"{cell[:_LONGEST_CELL]}...")
