"""Survival times from two columns of a table: the time, and whether it ended with an event."""

import numpy as np

from mile.likelihoods.limits import survival_times
from mile.storage import Table

_EVENT, _CENSORED = ("1", "true", "yes", "event", "dead"), ("0", "false", "no", "censored", "alive")


def read_times(table: Table, target: str, event: str) -> np.ndarray:
    """Return times and events as one response.

    Raises
    ------
    ValueError
        If a column is not there, a time is missing or negative, or a cell of the event says neither yes nor no.
    """
    if event == target:
        raise ValueError(f"--event and --target must be two columns; both are {event!r}.")
    cells = table.column(event)
    words = [_word(cell) for cell in cells.tolist()]
    for row, word in enumerate(words):
        if word not in _EVENT and word not in _CENSORED:
            raise ValueError(
                f"The event {event!r} must be 1 or 0, true or false, yes or no, but has {str(cells[row])[:40]!r} in "
                f"{table.place(row)}."
            )
    times = table.matrix([target])[:, 0]
    negative = np.flatnonzero(times < 0.0)
    if negative.size:
        raise ValueError(
            f"The time {target!r} must not be negative, but is {times[negative[0]]:g} in {table.place(negative[0])}."
        )
    return survival_times(np.array([word in _EVENT for word in words], bool), times)


def _word(cell: object) -> str:
    """Return a cell as one of the words; whole numbers without their fraction."""
    text = str(cell).strip().lower()
    return text.removesuffix(".0")
