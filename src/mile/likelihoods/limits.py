"""Responses of which some values are known by limits only: survival times with an event or without, and intervals.

Inside the library such a response is a structured array with the fields `lower` and `upper`. Both are the same where
the value was observed. `upper` is infinite where the value is only known to be larger, `lower` where it is smaller.
"""

from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple, TypeGuard

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from mile.likelihoods._links import Values

LIMITS = np.dtype([("lower", np.float64), ("upper", np.float64)])
UNKNOWN = float(np.finfo(np.float32).max)  # stands for infinity where compiled code needs finite numbers
_WORDS = ("none", "right", "left")
_SHAPE = "(boolean event, time), as scikit-survival has it, or (lower, upper)"
_NARROW = 1e-3  # of the log probability; below, the density at the middle is exact to float32

Limit = Float[np.ndarray, " row"]


class Limits(NamedTuple):
    """The two ends that each row's value lies between."""

    lower: Limit
    upper: Limit

    @property
    def is_exact(self) -> np.ndarray:
        """Which rows were observed."""
        return self.lower == self.upper

    @property
    def points(self) -> Limit:
        """One finite number for each row: the value, the middle of its interval, or its only limit."""
        lower = np.where(np.isfinite(self.lower), self.lower, self.upper)
        upper = np.where(np.isfinite(self.upper), self.upper, self.lower)
        return 0.5 * lower + 0.5 * upper


def has_limits(y: object) -> TypeGuard[np.ndarray]:
    """Say whether y is an array with a pair of fields in each row."""
    return isinstance(y, np.ndarray) and y.dtype.names is not None


def censored(y: ArrayLike, how: ArrayLike) -> np.ndarray:
    """Return a response of which some values are known by limits only, as `fit` and all scores take it.

    Parameters
    ----------
    y
        One number for each row.
    how
        For each row a word: "none" (y was observed), "right" (the value is larger than y) or "left" (it is smaller).
        Or a number for each row: the value lies between y and it; the same number where y was observed, infinity
        where there is no upper end.

    Returns
    -------
    numpy.ndarray
        Structured, with the fields `lower` and `upper`.

    Raises
    ------
    ValueError
        If a row is impossible; the message names it.

    Examples
    --------
    >>> import mile
    >>> mile.censored([3.0, 5.0], ["none", "right"]).tolist()
    [(3.0, 3.0), (5.0, inf)]
    """
    given, kinds = np.asarray(y), np.asarray(how)
    if given.ndim != 1 or given.dtype.kind not in "iuf":
        raise ValueError(f"y must be one number for each row; got {given.dtype} of shape {given.shape}.")
    if kinds.shape != given.shape:
        raise ValueError(f"censored must have one entry for each of the {len(given)} rows; got shape {kinds.shape}.")
    numbers = given.astype(np.float64)
    _refuse(np.isnan(numbers), numbers, "y is NaN in row {row}")
    if kinds.dtype.kind == "b":
        raise ValueError(
            'censored must not be True or False, which could mean either: give the words "none" and "right", or pass '
            "y as a structured array of (event, time)."
        )
    if kinds.dtype.kind in "iuf":
        return _join(numbers, kinds.astype(np.float64))
    words = np.array([str(word) for word in kinds.tolist()])
    _refuse(~np.isin(words, _WORDS), words, f"censored must be one of {list(_WORDS)} or a number, but row {{row}} is")
    lower = np.where(words == "left", -np.inf, numbers)
    return _join(lower, np.where(words == "right", np.inf, numbers))


def survival_times(event: np.ndarray, time: np.ndarray, name: str = "event") -> np.ndarray:
    """Return the response of times that end with an event, or before one; `name` is that of the event's column.

    Raises
    ------
    ValueError
        If an event is not True or False, or a time is NaN, infinite or negative; the message names the row.
    """
    if event.dtype.kind != "b":
        row = _first_not_boolean(event)
        raise ValueError(
            f"the event column must be boolean, True where the event was observed, but {name!r} has "
            f"{event[row]!s:.40} in row {row} ({event.dtype}): convert it, as in y[{name!r}] == 1."
        )
    times = np.asarray(time, np.float64)
    for wrong, reason in (
        (np.isnan(times), "is NaN"),
        (np.isinf(times), "is infinite"),
        (times < 0.0, "is negative"),
    ):
        _refuse(wrong, times, f"a time must be a finite number of at least zero, but that of row {{row}} {reason}")
    return _join(times, np.where(event, times, np.inf))


def limits_of(y: ArrayLike) -> np.ndarray:
    """Return any response in the form with the fields `lower` and `upper`; plain numbers were all observed.

    Raises
    ------
    ValueError
        If the fields are others, or a row is impossible; the message names it.
    """
    given = np.asarray(y)
    if given.ndim != 1:
        raise ValueError(f"y must have one entry per row; got shape {given.shape}.")
    names = given.dtype.names
    if names is None:
        numbers = given.astype(np.float64)
        _refuse(~np.isfinite(numbers), numbers, "y must be finite, but row {row} has")
        return _join(numbers, numbers)
    if names == LIMITS.names:
        return _join(given["lower"].astype(np.float64), given["upper"].astype(np.float64))
    kinds = [given[name].dtype.kind for name in names]
    if len(names) != 2 or kinds[1] not in "iuf":
        raise ValueError(f"y must have the fields {_SHAPE}; got {', '.join(map(repr, names))}.")
    return survival_times(given[names[0]], given[names[1]], names[0])


def split(y: np.ndarray) -> Limits:
    """Return both ends of a response with limits."""
    return Limits(y["lower"], y["upper"])


def log_probability(
    numbers: ModuleType,
    limits: tuple[Values, Values],
    lowest: float,
    log_density: Callable[[Values], Values],
    log_cdf: Callable[[Values], Values],
    log_survival: Callable[[Values], Values],
) -> Values:
    """Return the log density of observed rows and the log probability of the others, in JAX and in numpy alike.

    A lower end at or below `lowest` says nothing. Each function is called with finite numbers that y can have, and a
    branch that is not taken is finite and has finite derivatives.
    """
    lower, upper = limits
    has_lower, has_upper = lower > max(lowest, -UNKNOWN), upper < UNKNOWN
    anywhere = numbers.where(has_lower, lower, numbers.where(has_upper, upper, 1.0))
    low, high = numbers.where(has_lower, lower, anywhere), numbers.where(has_upper, upper, anywhere)
    above_low, below_high = log_survival(low), log_cdf(high)
    above_high, below_low = log_survival(high), log_cdf(low)
    # In a tail, its own probabilities have all digits.
    in_upper_tail = above_low < below_high
    whole = numbers.where(in_upper_tail, above_low, below_high)
    ratio = numbers.where(in_upper_tail, above_high - above_low, below_low - below_high)
    narrow = ratio > -_NARROW
    wide = whole + numbers.log1p(-numbers.exp(numbers.where(narrow, -1.0, ratio)))
    width = numbers.where(high > low, high - low, 1.0)
    between = numbers.where(narrow, log_density(0.5 * low + 0.5 * high) + numbers.log(width), wide)
    found = numbers.where(lower == upper, log_density(anywhere), between)
    found = numbers.where(has_lower & ~has_upper, above_low, found)
    found = numbers.where(~has_lower & has_upper, below_high, found)
    return numbers.where(~has_lower & ~has_upper, 0.0 * above_low, found)


def _join(lower: Limit, upper: Limit) -> np.ndarray:
    """Return limits, or name the first row in which they are impossible."""
    _refuse(np.isnan(lower) | np.isnan(upper), lower, "an end of row {row} is NaN; its lower end is")
    wrong = np.flatnonzero(lower > upper)
    if wrong.size:
        row = wrong[0]
        raise ValueError(
            f"the lower end must not lie above the upper one, but row {row} has {lower[row]:g} and {upper[row]:g} "
            f"({wrong.size:,} such rows)."
        )
    _refuse(~np.isfinite(lower) & ~np.isfinite(upper), lower, "row {row} has no finite end; its lower one is")
    found = np.empty(len(lower), LIMITS)
    found["lower"], found["upper"] = lower, upper
    return found


def _refuse(wrong: np.ndarray, values: np.ndarray, sentence: str) -> None:
    """Refuse rows; the sentence has a place for the number of the first, and its value follows."""
    rows = np.flatnonzero(wrong)
    if rows.size:
        more = f" ({rows.size:,} such rows)" if rows.size > 1 else ""
        raise ValueError(f"{sentence.format(row=rows[0])}: {str(values[rows[0]])[:40]}{more}.")


def _first_not_boolean(event: np.ndarray) -> int:
    for row, value in enumerate(event.tolist()):
        if not isinstance(value, bool):
            return row
    return 0
