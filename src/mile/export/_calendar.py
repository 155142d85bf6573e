"""Places on the circles of year, week and day as graphs of whole numbers, as `features/date_column.py` has them."""

from collections.abc import Callable

from mile.export._graph import INT64, Value

DAY = 86_400_000_000  # microseconds
_MONDAY = 3 * DAY  # 1970 began on a Thursday
# Days in 400, 100 and 4 years and in one, of the calendar whose years begin in March, so that leap days come last.
_DAYS_400, _DAYS_100, _DAYS_4, _DAYS_1 = 146_097, 36_524, 1_461, 365
_FROM_MARCH = 719_468  # days from March 1 of the year 0 to the beginning of 1970
_FROM_JANUARY = 719_162  # days from January 1 of the year 1 to the beginning of 1970
_TO_JANUARY = 306  # days from March 1 to January 1


def _floor_divided(value: Value, divisor: int) -> Value:
    """Return the quotient rounded down; ONNX's division of whole numbers rounds toward zero."""
    graph = value.graph
    by = graph.integers(divisor)
    rest = graph.op("Mod", value, by)
    return graph.op("Div", value - rest, by)


def _times(value: Value, factor: int) -> Value:
    return value * value.graph.integers(factor)


def _plus(value: Value, summand: int) -> Value:
    return value + value.graph.integers(summand)


def _remainder(value: Value, divisor: int) -> Value:
    return value.graph.op("Mod", value, value.graph.integers(divisor))


def _year(days: Value) -> Value:
    """Return the year of a day that is counted from the beginning of 1970."""
    since = _plus(days, _FROM_MARCH)
    cycle = _floor_divided(since, _DAYS_400)
    day = since - _times(cycle, _DAYS_400)
    # Leap days are taken away, so that all years have 365 days.
    leap_days = _floor_divided(day, _DAYS_4 - 1) - _floor_divided(day, _DAYS_100)
    leap_days = leap_days + _floor_divided(day, _DAYS_400 - 1)
    year = _floor_divided(day - leap_days, _DAYS_1)
    before = _times(year, _DAYS_1) + _floor_divided(year, 4) - _floor_divided(year, 100)
    graph = days.graph
    is_past_december = graph.op("GreaterOrEqual", day - before, graph.integers(_TO_JANUARY))
    return year + _times(cycle, 400) + graph.op("Cast", is_past_december, to=INT64)


def _first_day(year: Value) -> Value:
    before = _plus(year, -1)
    leap_days = _floor_divided(before, 4) - _floor_divided(before, 100) + _floor_divided(before, 400)
    return _plus(_times(before, _DAYS_1) + leap_days, -_FROM_JANUARY)


def in_year(clock: Value) -> Value:
    """Return the part of the year that has passed."""
    year = _year(_floor_divided(clock, DAY))
    first, following = _times(_first_day(year), DAY), _times(_first_day(_plus(year, 1)), DAY)
    return (clock - first).double / (following - first).double


def in_week(clock: Value) -> Value:
    """Return the part of the week that has passed."""
    return _remainder(_plus(_remainder(clock, 7 * DAY), _MONDAY), 7 * DAY).double / (7.0 * DAY)


def in_day(clock: Value) -> Value:
    """Return the part of the day that has passed."""
    return _remainder(clock, DAY).double / float(DAY)


CIRCLES: dict[str, Callable[[Value], Value]] = {"year": in_year, "week": in_week, "day": in_day}
