"""Checks of single arguments: each returns the value in its plain type, or raises a ValueError that names it."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np


def check_count(name: str, value: Any, smallest: int = 1) -> int:
    """Return an integer of at least `smallest`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < smallest:
        raise ValueError(f"{name} must be an integer of at least {smallest}; got {value!r}.")
    return int(value)


def check_number(
    name: str, value: Any, *, positive: bool = False, smallest: float = -math.inf, largest: float = math.inf
) -> float:
    """Return a finite number, positive or between two bounds."""
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if is_number and _is_finite(value) and smallest <= value <= largest and (value > 0 or not positive):
        return float(value)
    if positive:
        wanted = "a positive number" + (f" of at most {largest}" if math.isfinite(largest) else "")
    elif math.isfinite(largest):
        wanted = f"a number between {smallest} and {largest}"
    else:
        wanted = f"a number of at least {smallest}" if math.isfinite(smallest) else "a finite number"
    raise ValueError(f"{name} must be {wanted}; got {value!r}.")


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond the largest float
        return False


def check_choice(name: str, value: Any, choices: Iterable[str]) -> str:
    """Return one of the known words."""
    known = sorted(choices)
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name} must be one of {known}; got {value!r}.")
    return value
