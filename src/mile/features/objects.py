"""Columns of Python objects, such as lists and object arrays: the only ones whose cells are looked at in a loop."""

import numbers
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, time, timedelta

import numpy as np

from mile.features import parsing
from mile.features.values import AbstractValues, Dates, Numbers, Texts

_NO_VALUE = frozenset({"NAType", "NaTType", "NoneType"})  # of pandas and Python, by name: pandas may not be installed


def values_of(cells: Iterable[object]) -> AbstractValues:
    """Return cells as what all of them are: numbers, yes and no, dates, lengths of time in seconds, else texts."""
    found = [None if _is_missing(cell) else cell for cell in cells]
    groups = {_group(kind) for kind in {type(cell) for cell in found if cell is not None}}
    for readers, make in _MAKERS:
        if groups <= set(readers):
            return make([None if cell is None else readers[_group(type(cell))](cell) for cell in found])
    return _texts([None if cell is None else text_of(cell) for cell in found])


def _is_missing(cell: object) -> bool:
    if type(cell).__name__ in _NO_VALUE:
        return True
    try:
        return bool(cell != cell)
    except (TypeError, ValueError):  # an array, which is no missing value
        return False


def _group(kind: type) -> str:
    """Return what a class of cells is; a class of none of these groups is read as text."""
    for group, kinds in _GROUPS:
        if issubclass(kind, kinds):
            return group
    return "other"


_GROUPS: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("flag", (bool, np.bool_)),
    ("length", (timedelta, np.timedelta64)),  # before numbers: numpy counts it among the integers
    ("number", (numbers.Real, np.floating)),
    ("decimal", (numbers.Number,)),
    ("time", (datetime,)),
    ("instant", (np.datetime64,)),
    ("day", (date,)),
    ("bytes", (bytes,)),
)


def _float(cell: object) -> float:
    try:
        return float(cell)  # pyright: ignore[reportArgumentType]: its class says that it is a number
    except OverflowError:  # a whole number beyond the largest float
        return np.inf
    except (TypeError, ValueError):  # a complex number, a signaling NaN
        return np.nan


def _seconds(cell: object) -> float:
    return float(np.timedelta64(cell, "us") / np.timedelta64(1, "s"))  # pyright: ignore[reportArgumentType, reportCallIssue]


def _instant(cell: object) -> object:
    return np.asarray(cell, "M8[us]").item()


def _midnight(cell: object) -> datetime:
    return datetime.combine(cell, time())  # pyright: ignore[reportArgumentType]


def _itself(cell: object) -> object:
    return cell


def _flag(cell: object) -> str:
    return parsing.YES if cell else parsing.NO


def text_of(cell: object) -> str:
    """Return one cell as text: numbers as everywhere, bytes as UTF-8, the rest as Python writes it."""
    group = _group(type(cell))
    if group == "number":
        number = _float(cell)
        return parsing.spelled(number) if np.isfinite(number) else str(number)
    if group == "bytes":
        return bytes(cell).decode("utf-8", "replace")  # pyright: ignore[reportArgumentType]
    return _flag(cell) if group == "flag" else str(cell)


def _texts(cells: Sequence[object]) -> Texts:
    places: dict[str, int] = {}
    codes = [-1 if cell is None else places.setdefault(str(cell), len(places)) for cell in cells]
    return Texts.of(np.array(codes, np.int32), list(places))


def _numbers(cells: Sequence[object]) -> Numbers:
    return Numbers(values=np.array([np.nan if cell is None else cell for cell in cells], np.float64))


def _dates(cells: Sequence[object]) -> Dates:
    when, clock = parsing.time_and_clock(cell if isinstance(cell, datetime) else None for cell in cells)
    return Dates(time=when, clock=clock)


_Readers = dict[str, Callable[[object], object]]
_MAKERS: tuple[tuple[_Readers, Callable[[Sequence[object]], AbstractValues]], ...] = (
    ({"flag": _flag}, _texts),
    ({"number": _float, "decimal": _float, "flag": _float}, _numbers),
    ({"length": _seconds}, _numbers),
    ({"time": _itself, "instant": _instant, "day": _midnight}, _dates),
)
