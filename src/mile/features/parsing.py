"""How single texts are read: what counts as missing, as a number, as yes or no, and as a date.

Every function takes the distinct texts of a column, not its cells, so a loop over them costs little.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

import numpy as np
from jaxtyping import Float

# What statistics packages, spreadsheets and databases write into an empty cell. Compared without blanks around it.
MISSING = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "<NA>", "NaT", "?"})
NO, YES = "no", "yes"
# A column is boolean if both words of one pair occur and nothing else, in upper or lower case.
_PAIRS = (("no", "yes"), ("n", "y"), ("false", "true"), ("f", "t"))
FLAGS = {word: flag for pair in (*_PAIRS, ("0", "1")) for word, flag in zip(pair, (NO, YES), strict=True)}
# Unlike for Python's float, underscores and other scripts' digits are no numbers.
_NUMBER = re.compile(r"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|inf(inity)?)", re.IGNORECASE)
# Digits after a leading zero are a code, such as a zip code, unless the user says that they are a number.
_CODE = re.compile(r"0[0-9]+")
_DIGITS_OF_YEAR = 4
_TRIED_FIRST = 16  # texts: most columns that are no dates show it there
ISO = "ISO 8601"
_DAYS = ("%Y-%m", "%Y/%m/%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%d-%b-%Y", "%d %b %Y", "%d %B %Y")
_DAYS = (*_DAYS, "%b %d, %Y", "%B %d, %Y")
_TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
# The first format in which all texts can be read counts, so the month stands first unless some day is above 12.
DATE_FORMATS = (ISO, *(day + time for day in _DAYS for time in _TIMES))
# Plain digits are dates only where a user says so.
_DIGITS = ("%Y", "%Y%m%d")
ALL_DATE_FORMATS = (*DATE_FORMATS, *_DIGITS)


def are_numbers(texts: Iterable[str]) -> bool:
    """Say whether every text is a number, such as "3.5", " 7 " or "1e-3"."""
    return all(_NUMBER.fullmatch(text) and not is_code(text) for text in texts)


def is_code(text: str) -> bool:
    """Say whether a text is digits that begin with a zero, such as "01234", which as a number would lose it."""
    return _CODE.fullmatch(text.strip()) is not None


def are_flags(texts: Iterable[str]) -> bool:
    """Say whether the texts are yes and no, y and n, true and false or t and f: both words of one pair."""
    return tuple(sorted({text.lower() for text in texts})) in _PAIRS


def date_format(texts: Sequence[str], *, is_asked: bool = False) -> str | None:
    """Return the first format in which every text is a date; None if there is none.

    Parameters
    ----------
    texts
        Distinct texts.
    is_asked
        Whether the user says that these are dates, so that "2013" is a year and "20130105" a day.
    """
    if not texts or sum(map(str.isdigit, texts[0])) < _DIGITS_OF_YEAR:
        return None
    for name in (*DATE_FORMATS, *(_DIGITS if is_asked else ())):
        if all(_date(text, name) for text in texts[:_TRIED_FIRST]) and all(_date(text, name) for text in texts):
            return name
    return None


def read_numbers(texts: Sequence[str]) -> Float[np.ndarray, " text"]:
    """Return the number that each text is; NaN for other texts, 0 and 1 for the words no and yes."""
    found = np.full(len(texts), np.nan)
    for place, text in enumerate(texts):
        if _NUMBER.fullmatch(text):
            found[place] = float(text)
        elif text.lower() in FLAGS:
            found[place] = FLAGS[text.lower()] == YES
    return found


def read_flags(texts: Iterable[str]) -> list[str]:
    """Return "no" or "yes" for each text, and an empty one for other texts."""
    return [FLAGS.get(text.lower(), "") for text in texts]


def read_dates(texts: Iterable[str], format: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the time in UTC and the local clock of each text in microseconds; NaT for texts in another format."""
    return time_and_clock(_date(text, format) for text in texts)


def time_and_clock(dates: Iterable[datetime | None]) -> tuple[np.ndarray, np.ndarray]:
    """Return dates with or without a time zone in UTC and by the local clock; those without a zone count as UTC."""
    found = list(dates)
    clock = np.array([None if date is None else date.replace(tzinfo=None) for date in found], "M8[us]")
    time = np.array([None if date is None else _in_utc(date) for date in found], "M8[us]")
    return time, clock


def spelled(number: float | np.floating) -> str:
    """Return a finite number as text, with the same text for 3, 3.0 and "3"."""
    return str(int(number)) if number == np.floor(number) else str(number)


def _date(text: str, format: str) -> datetime | None:
    try:
        return _READERS[format](text)
    except (ValueError, OverflowError):
        return None


def _in_utc(date: datetime) -> datetime | None:
    """Return the time without a zone; None where UTC is out of the calendar's years."""
    try:
        return date.astimezone(UTC).replace(tzinfo=None) if date.tzinfo else date
    except OverflowError:
        return None


def _read_iso(text: str) -> datetime | None:
    return datetime.fromisoformat(text) if text[4:5] == "-" else None


def _reader(format: str) -> Callable[[str], datetime | None]:
    return lambda text: datetime.strptime(text, format)


_READERS = {ISO: _read_iso} | {name: _reader(name) for name in ALL_DATE_FORMATS if name != ISO}
