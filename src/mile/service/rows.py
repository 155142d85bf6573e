"""From the body of a request to checked columns of cells and options; messages name row and column."""

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, NoReturn, cast

from mile.features.base import ColumnFacts
from mile.service.limits import MOST_POINTS, MOST_QUANTILES, MOST_TIMES, Limits, Refused, bad, wrong

Cells = list[object]
Payload = Mapping[str, object]
_EMPTY = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
_POINTS = 128
_LONGEST_ID = 128
_ROW_KEYS, _SHOWN = ("row", "rows", "columns"), 60
_OPTIONS = ("interval", "quantiles", "density", "times", "ids", "follow", "count")


class Rows(NamedTuple):
    """Checked cells by column, only those that the model uses; and what is worth saying about the others."""

    cells: dict[str, Cells]
    n_rows: int
    remarks: tuple[str, ...] = ()


class Options(NamedTuple):
    """What is asked of all rows; requests with the same ones are answered together."""

    interval: float = 0.9
    quantiles: tuple[float, ...] = ()
    times: tuple[float, ...] = ()


class Extras(NamedTuple):
    """What is asked besides."""

    points: int = 0  # of the density of each row
    ids: tuple[str, ...] | None = None
    follow: bool = False  # whether the service shall make ids
    counts: bool = True  # whether the drift monitor counts the rows


class RowReader:
    """Reads rows for the columns of one model."""

    def __init__(self, facts: Sequence[ColumnFacts], limits: Limits) -> None:
        self.used = [one for one in facts if not one.reason]
        self.names = [one.name for one in self.used]
        self._known = {one.name for one in facts}
        self._checks: list[Callable[[object], object]] = [
            _number if one.kind == "number" else _date if one.kind == "date" else _text for one in self.used
        ]
        self._limits = limits

    def of_payload(self, payload: Payload, *, others: Sequence[str] = ()) -> Rows:
        """Return the rows of a JSON object with "row", "rows" or "columns"."""
        given = [key for key in _ROW_KEYS if key in payload]
        if len(given) != 1:
            raise wrong('give the rows once: "row" (an object), "rows" (a list of objects) or "columns" (an object).')
        unknown = [key for key in payload if key not in (*_ROW_KEYS, *_OPTIONS, *others)]
        if unknown:
            raise wrong(f"unknown key {_shown(unknown[0])}; known ones are {', '.join((*_ROW_KEYS, *_OPTIONS))}.")
        found = payload[given[0]]
        if given[0] == "columns":
            return self._of_columns(found)
        rows = [found] if given[0] == "row" else found
        if type(rows) is not list:
            raise wrong('"rows" must be a list of objects.')
        return self._of_records(rows)

    def _of_records(self, rows: list[object]) -> Rows:
        self._check_count(len(rows))
        cells: dict[str, Cells] = {name: [] for name in self.names}
        strangers: set[str] = set()
        for place, row in enumerate(rows):
            if type(row) is list and len(row) == len(self.names):
                row = dict(zip(self.names, row, strict=True))
            if type(row) is not dict:
                n = len(self.names)
                raise wrong(f"row {place} must be an object with a value for each column, or a list of {n} values.")
            strangers |= row.keys() - self._known
            for name, check in zip(self.names, self._checks, strict=True):
                try:
                    cells[name].append(check(row[name]))
                except KeyError:
                    _refuse_absent(name, place)
                except ValueError as error:
                    raise wrong(f"row {place}, column {_shown(name)}: {error}") from None
        return Rows(cells, len(rows), _about(strangers))

    def _of_columns(self, columns: object) -> Rows:
        if type(columns) is not dict or any(type(cells) is not list for cells in columns.values()):
            raise wrong('"columns" must be an object with a list of values for each column.')
        lengths = {name: len(cells) for name, cells in columns.items()}
        for name in self.names:
            if name not in columns:
                _refuse_absent(name)
        n_rows = lengths[self.names[0]]
        self._check_count(n_rows)
        for name, length in lengths.items():
            if length != n_rows:
                raise wrong(f"column {_shown(name)} has {length} values, and {_shown(self.names[0])} has {n_rows}.")
        cells = {name: self._checked(name, check, columns[name]) for name, check in self._pairs()}
        return Rows(cells, n_rows, _about(columns.keys() - self._known))

    def of_csv(self, text: str) -> tuple[Rows, dict[str, list[str]]]:
        """Return the rows of a CSV text with a header, and all its cells as they are."""
        header, lines = read_csv(text)
        self._check_count(len(lines))
        table = {name: [line[place] for line in lines] for place, name in enumerate(header)}
        for name in self.names:
            if name not in table:
                _refuse_absent(name, "header")
        cells: dict[str, Cells] = {}
        for (name, check), one in zip(self._pairs(), self.used, strict=True):
            values = [_from_text(cell, one.kind) for cell in table[name]]
            cells[name] = self._checked(name, check, values)
        return Rows(cells, len(lines), _about(table.keys() - self._known)), table

    def _pairs(self) -> list[tuple[str, Callable[[object], object]]]:
        return list(zip(self.names, self._checks, strict=True))

    def _checked(self, name: str, check: Callable[[object], object], values: Cells) -> Cells:
        found = []
        for place, value in enumerate(values):
            try:
                found.append(check(value))
            except ValueError as error:
                raise wrong(f"row {place}, column {_shown(name)}: {error}") from None
        return found

    def _check_count(self, n_rows: int) -> None:
        if n_rows == 0:
            raise wrong("there are no rows.")
        if n_rows > self._limits.rows:
            raise Refused(413, f"at most {self._limits.rows:,} rows are taken at once; got {n_rows:,}.")


def read_json(body: bytes) -> Payload:
    """Return a JSON object."""
    try:
        found = json.loads(body, parse_constant=_refuse_constant)
    except RecursionError:
        raise bad("the JSON is nested too deeply.") from None
    except UnicodeDecodeError:
        raise bad("the body must be JSON in UTF-8.") from None
    except ValueError as error:
        raise bad(f"the body must be JSON: {str(error)[:200]}") from None
    if type(found) is not dict:
        raise bad('the body must be a JSON object, such as {"rows": [{...}]}.')
    return cast(Payload, found)


def read_text(body: bytes) -> str:
    """Return a text in UTF-8."""
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise bad(f"a CSV body must be UTF-8; byte {error.start} is not.") from None


def read_csv(text: str) -> tuple[list[str], list[list[str]]]:
    """Return the header and the lines of a CSV text, whose cells are separated by what its header has most of."""
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    try:
        lines = [line for line in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True) if line]
    except csv.Error as error:
        raise bad(f"the CSV cannot be read: {error}.") from None
    if not lines:
        raise bad("the CSV is empty; its first line must name the columns.")
    header, rows = [name.strip() for name in lines[0]], lines[1:]
    twice = [name for place, name in enumerate(header) if name in header[:place]]
    if twice:
        raise bad(f"the header names {_shown(twice[0])} twice.")
    for place, row in enumerate(rows):
        if len(row) != len(header):
            raise bad(f"row {place} has {len(row)} cells, and the header {len(header)}.")
    return header, rows


def read_options(given: Mapping[str, object]) -> Options:
    """Return what is asked of all rows."""
    interval = 0.9
    if "interval" in given:
        interval = _level("interval", given["interval"])
    quantiles = tuple(_level("quantiles", level) for level in _listed(given, "quantiles", MOST_QUANTILES))
    times = tuple(_time(time) for time in _listed(given, "times", MOST_TIMES))
    return Options(interval, quantiles, times)


def read_extras(given: Mapping[str, object], n_rows: int) -> Extras:
    """Return what is asked besides."""
    points = given.get("density", 0)
    if type(points) is bool:
        points = _POINTS if points else 0
    if type(points) is not int or (points and not 2 <= points <= MOST_POINTS):
        raise wrong(f'"density" must be true, or a number of points between 2 and {MOST_POINTS}.')
    follow, ids, counts = given.get("follow", False), given.get("ids"), given.get("count", True)
    if type(follow) is not bool or type(counts) is not bool:
        raise wrong('"follow" and "count" must be true or false.')
    if ids is None:
        return Extras(points, None, follow, counts)
    if type(ids) is not list or len(ids) != n_rows:
        raise wrong(f'"ids" must be a list with a text for each of the {n_rows} rows.')
    checked = tuple(read_id(one, place) for place, one in enumerate(ids))
    if len(set(checked)) < len(checked):
        raise wrong('"ids" must all be different.')
    return Extras(points, checked, follow, counts)


def read_id(given: object, place: int) -> str:
    """Return the id of a row."""
    if type(given) is not str or not 0 < len(given) <= _LONGEST_ID:
        raise wrong(f"the id of row {place} must be a text of 1 to {_LONGEST_ID} characters.")
    return given


def options_of_query(query: Mapping[str, str]) -> dict[str, object]:
    """Return the options in the address of a request, whose body is a table."""
    found: dict[str, object] = {}
    for key, text in query.items():
        if key == "interval":
            found[key] = _float_of(key, text)
        elif key in ("quantiles", "times"):
            found[key] = [_float_of(key, part) for part in text.split(",")]
        else:
            raise wrong(f"unknown option {_shown(key)}; a table takes interval, quantiles and times.")
    return found


def _float_of(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise wrong(f'"{key}" must be numbers; got {_shown(text)}.') from None


def _level(key: str, level: object) -> float:
    if type(level) is not float or not 0.0 < level < 1.0:
        raise wrong(f'"{key}" must lie strictly between 0 and 1; got {_shown(level)}.')
    return level


def _time(time: object) -> float:
    if type(time) not in (int, float) or not 0.0 <= cast(float, time) <= 1e300:
        raise wrong(f'"times" must be numbers, not negative; got {_shown(time)}.')
    return float(cast(float, time))


def _listed(given: Mapping[str, object], key: str, most: int) -> list[object]:
    found = given.get(key, [])
    if type(found) is not list or len(found) > most:
        raise wrong(f'"{key}" must be a list of at most {most} numbers.')
    return cast(list[object], found)


def _number(cell: object) -> float | None:
    kind = type(cell)
    if kind is float or kind is int:
        try:
            number = float(cast(float, cell))
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
        raise ValueError("a finite number was expected, but this one is too large.")
    if cell is None:
        return None
    raise ValueError(f"a number was expected, but got {_shown(cell)}.")


def _text(cell: object) -> object:
    if cell is None or type(cell) in (str, bool):
        return cell
    if type(cell) in (int, float):
        return _number(cell)
    raise ValueError(f"a text, a number, true or false was expected, but got {_shown(cell)}.")


def _date(cell: object) -> object:
    if cell is None or type(cell) is str:
        return cell
    raise ValueError(f"a date as text was expected, such as 2026-11-20, but got {_shown(cell)}.")


def _from_text(cell: str, kind: str) -> object:
    """Return a cell of a text table as JSON would have it."""
    text = cell.strip()
    if text.lower() in _EMPTY:
        return None
    if kind != "number":
        return text
    try:
        return cell if "_" in text else float(text)
    except ValueError:
        return cell


def _about(strangers: set[str]) -> tuple[str, ...]:
    return tuple(f"The model has no column {_shown(name)}; it was ignored." for name in sorted(strangers)[:5])


def _refuse_absent(name: str, where: int | str | None = None) -> NoReturn:
    place = "" if where is None else "the header: " if where == "header" else f"row {where}: "
    raise wrong(f"{place}column {_shown(name)} is missing.")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number that JSON has; leave the cell null.")


def _shown(value: object) -> str:
    text = repr(value) if type(value) is not list else "a list"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
