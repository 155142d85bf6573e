"""The form of a text file: its encoding, what separates cells, and what separates the fraction of a number."""

import codecs
import csv
import io
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

from mile.storage._unpacking import ReadOptions, open_unpacked, without_packing

_HEAD = 1 << 16  # characters looked at to tell text from other files and to find the delimiter
_ROWS = 200  # looked at to find the delimiter and the decimal mark
_UTF_8, _WINDOWS, _LATIN = "utf-8-sig", "cp1252", "latin-1"
_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_ENCODINGS = {_WINDOWS: "Windows-1252", _LATIN: "Latin-1", "utf-16": "UTF-16"}
_WITH_COMMA = re.compile(r"[+-]?[0-9]*,[0-9]+(?:e[+-]?[0-9]+)?", re.IGNORECASE)
_WITH_POINT = re.compile(r"[+-]?[0-9]*\.[0-9]+(?:e[+-]?[0-9]+)?", re.IGNORECASE)
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}[.,][0-9]{3}")  # such as 1,234, which may be either


class TextFormat(NamedTuple):
    """How a text file is read."""

    encoding: str
    delimiter: str
    decimal: str

    def remark(self, path: Path, options: ReadOptions) -> str:
        """Say what was assumed, unless it is ordinary or the user's own choice; else return nothing."""
        usual = "\t" if without_packing(path).endswith(".tsv") else ","
        parts = []
        if options.delimiter is None and self.delimiter != usual:
            parts.append(f"{_DELIMITERS[self.delimiter]} between cells")
        if options.decimal is None and self.decimal != ".":
            parts.append("decimal commas")
        if options.encoding is None and self.encoding != _UTF_8:
            parts.append(f"the encoding {_ENCODINGS[self.encoding]}")
        listed = " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
        advice = "--delimiter, --decimal and --encoding say otherwise"
        return f"{path.name} is read with {listed}; {advice}." if parts else ""


def open_text(path: Path, encoding: str, options: ReadOptions) -> TextIO:
    """Open a text file, which may be packed; line ends stay as they are."""
    return io.TextIOWrapper(open_unpacked(path, options), encoding=encoding, newline="")


def encodings(path: Path, options: ReadOptions) -> Sequence[str]:
    """Return the encodings to try, in this order.

    Raises
    ------
    ValueError
        If the user names one that there is not.
    """
    if options.encoding is not None:
        try:
            name = codecs.lookup(options.encoding).name
        except LookupError:
            raise ValueError(f"There is no encoding {options.encoding!r}: name one such as utf-8 or cp1252.") from None
        return [_UTF_8 if name == "utf-8" else name]
    with open_unpacked(path, options) as file:
        start = file.read(2)
    if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return ["utf-16"]
    return [_UTF_8, _WINDOWS, _LATIN]


def find_format(path: Path, encoding: str, options: ReadOptions) -> TextFormat:
    """Find out the form of a file from its first rows.

    Raises
    ------
    ValueError
        If it is not a text file.
    """
    with open_text(path, encoding, options) as file:
        head = file.read(_HEAD)
    if "\0" in head:
        raise ValueError(f"{path} is not a text file.")
    is_comma_first = ".csv" in path.name.lower()
    candidates = [",", ";", "\t", "|"] if is_comma_first else ["\t", ",", ";", "|"]
    delimiter = options.delimiter or max(candidates, key=lambda candidate: _regularity(head, candidate))
    return TextFormat(encoding, delimiter, options.decimal or _find_decimal(head, delimiter))


def _regularity(head: str, delimiter: str) -> tuple[bool, int]:
    """Return whether the first rows are split into equally many cells, and into how many the header is."""
    widths = [len(row) for row in _rows(head, delimiter)]
    width = widths[0] if widths else 0
    return width > 1 and len(set(widths)) == 1, width


def _find_decimal(head: str, delimiter: str) -> str:
    """Return a comma if numbers in the first rows have decimal commas, and none has a decimal point."""
    if delimiter == ",":
        return "."
    cells = [cell.strip() for row in itertools.islice(_rows(head, delimiter), 1, None) for cell in row]
    clear = [cell for cell in cells if not _THOUSANDS.fullmatch(cell)]
    return "," if any(map(_WITH_COMMA.fullmatch, clear)) and not any(map(_WITH_POINT.fullmatch, clear)) else "."


def _rows(head: str, delimiter: str) -> Iterator[list[str]]:
    """Yield the first rows that are not blank, as far as they can be read; the last may have been cut."""
    lines = list(io.StringIO(head, newline=""))
    reader = csv.reader(lines[:-1] if len(head) == _HEAD else lines, delimiter=delimiter)
    try:
        found = list(itertools.islice((row for row in reader if any(cell.strip() for cell in row)), _ROWS))
    except csv.Error:
        found = []
    return iter(found)
