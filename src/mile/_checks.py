"""Checks of single arguments: each returns the value in its plain type, or raises a ValueError that names it."""

import math
from collections.abc import Iterable

import numpy as np


def check_count(name: str, value: object, smallest: int = 1) -> int:
    """Return an integer of at least `smallest`."""
    if type(value) is bool or not isinstance(value, int | np.integer) or value < smallest:
        raise ValueError(f"{name} must be an integer of at least {smallest}; got {value!r}.")
    return int(value)


def check_number(
    name: str, value: object, *, positive: bool = False, smallest: float = -math.inf, largest: float = math.inf
) -> float:
    """Return a finite number, positive or between two bounds."""
    if type(value) is not bool and isinstance(value, int | float | np.integer | np.floating):
        number = _float(value)
        if math.isfinite(number) and smallest <= value <= largest and (value > 0 or not positive):
            return number
    if positive:
        wanted = "a positive number" + (f" of at most {largest}" if math.isfinite(largest) else "")
    elif math.isfinite(largest):
        wanted = f"a number between {smallest} and {largest}"
    else:
        wanted = f"a number of at least {smallest}" if math.isfinite(smallest) else "a finite number"
    raise ValueError(f"{name} must be {wanted}; got {value!r}.")


def _float(value: int | float | np.integer | np.floating) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer beyond the largest float
        return math.inf


def check_flag(name: str, value: object) -> bool:
    """Return True or False."""
    if value is not True and value is not False:
        raise ValueError(f"{name} must be True or False; got {value!r}.")
    return value


def check_tuple(name: str, value: object, meaning: str) -> tuple[object, ...]:
    """Return a tuple; `meaning` says of what."""
    if not isinstance(value, tuple):
        raise ValueError(f"{name} must be a tuple of {meaning}; got {value!r}.")
    return value


def check_widths(name: str, widths: object) -> tuple[int, ...]:
    """Return the widths of layers."""
    entries = check_tuple(name, widths, "widths, such as (16, 16)")
    return tuple(check_count(f"each entry of {name}", width) for width in entries)


def check_choice(name: str, value: object, choices: Iterable[str]) -> str:
    """Return one of the known words."""
    known = sorted(choices)
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name} must be one of {known}; got {value!r}.")
    return value
