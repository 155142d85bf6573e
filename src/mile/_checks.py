"""Checks of single arguments: each returns the value in its plain type, or raises a ValueError that names it."""

import math
import operator
from collections.abc import Iterable
from pathlib import Path
from typing import Generic, NamedTuple, SupportsIndex, TypeVar, cast

import numpy as np

from mile._registry import Registry

Part = TypeVar("Part")
_MOST_CHAINS = 100_000  # of one fit: each is a network to train and a file; more draws come from longer chains
_SMALLEST_SCALE, _LARGEST_SCALE = 1e-18, 1e18


class Chosen(NamedTuple, Generic[Part]):
    """The part that an argument asks for, by name or as an object."""

    family: type[Part]
    given: Part | None  # the object; None if it was named


def choose_part(registry: Registry, given: object, contract: type[Part]) -> Chosen[Part]:
    """Return the registered class of a name, or an object that fulfills the contract with its class."""
    if isinstance(given, str) and given in registry:
        return Chosen(registry[given], None)
    if isinstance(given, str | type) or not isinstance(given, contract):
        kind = registry.kind
        raise ValueError(f"{kind} must be one of {list(registry)} or a {kind} object; got {given!r}.")
    return Chosen(type(given), given)


def check_count(name: str, value: object, smallest: int = 1, largest: int | None = None) -> int:
    """Return an integer between two bounds, both included."""
    if type(value) is bool or not isinstance(value, int | np.integer) or value < smallest:
        raise ValueError(f"{name} must be an integer of at least {smallest}; got {value!r}.")
    if largest is not None and value > largest:
        raise ValueError(f"{name} must be at most {largest:,}; got {value:,}.")
    return int(value)


def check_chains(value: object) -> int:
    """Return a number of chains."""
    return check_count("n_chains", value, largest=_MOST_CHAINS)


def check_scale(name: str, value: object) -> float:
    """Return a positive number whose square float32 can hold, such as a standard deviation of weights."""
    number = check_number(name, value, positive=True)
    if not _SMALLEST_SCALE <= number <= _LARGEST_SCALE:
        wanted = f"between {_SMALLEST_SCALE:g} and {_LARGEST_SCALE:g}, whose squares float32 can hold"
        raise ValueError(f"{name} must be {wanted}; got {value!r}.")
    return number


def check_integer(name: str, value: object) -> int:
    """Return an integer of any sign; True and False are 1 and 0."""
    try:
        return operator.index(cast(SupportsIndex, value))
    except TypeError:
        raise ValueError(f"{name} must be an integer; got {value!r}.") from None


def check_path(name: str, value: object, meaning: str = "a path") -> Path:
    """Return a path; `meaning` says of what."""
    try:
        return Path(cast(str, value))  # which refuses what is neither a text nor a path
    except TypeError:
        raise ValueError(f"{name} must be {meaning}; got {value!r}.") from None


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
    if type(value) not in (bool, np.bool_):
        raise ValueError(f"{name} must be True or False; got {value!r}.")
    return bool(value)


def check_tuple(name: str, value: object, meaning: str) -> tuple[object, ...]:
    """Return a tuple; `meaning` says of what."""
    if not isinstance(value, tuple):
        raise ValueError(f"{name} must be a tuple of {meaning}; got {value!r}.")
    return value


def check_widths(name: str, widths: object) -> tuple[int, ...]:
    """Return the widths of layers."""
    entries = check_tuple(name, widths, "widths, such as (16, 16)")
    return tuple(check_count(f"each entry of {name}", width) for width in entries)


def check_choice(name: str, value: object, choices: Iterable[str], others: str = "") -> str:
    """Return one of the known words; `others` says in the message what else is accepted, as in " or an Attention"."""
    known = sorted(choices)
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name} must be one of {known}{others}; got {value!r}.")
    return value
