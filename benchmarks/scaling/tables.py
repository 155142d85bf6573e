"""Tables in Markdown, and the pages that hold them."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from _common import progress


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, ["---"] * len(header), *rows))


def duration(seconds: float) -> str:
    """Return a duration in two or three digits."""
    # 110 s rather than 1.8 min.
    return _scaled(seconds, ((172_000.0, 86_400.0, "d"), (7_000.0, 3_600.0, "h"), (117.0, 60.0, "min")), "s")


def size(n_bytes: float) -> str:
    """Return a number of bytes in two or three digits."""
    return _scaled(n_bytes, ((1e12, 1e12, "TB"), (1e9, 1e9, "GB"), (1e6, 1e6, "MB"), (1e3, 1e3, "kB")), "bytes")


def _scaled(value: float, units: Sequence[tuple[float, float, str]], smallest: str) -> str:
    for least, factor, unit in units:
        if value >= least:
            return f"{_short(value / factor)} {unit}"
    return f"{_short(value)} {smallest}"


def _short(number: float) -> str:
    """Two digits at least."""
    return f"{number:,.1f}" if number < 10 else f"{number:,.0f}"


def fill_in(path: Path, tables: dict[str, str]) -> None:
    """Replace each table between its marks."""
    text = path.read_text()
    for name, table in tables.items():
        begin, end = f"<!-- {name}: written by benchmarks/scaling/study.py -->", f"<!-- end of {name} -->"
        text, found = re.subn(
            f"{re.escape(begin)}.*?{re.escape(end)}", f"{begin}\n\n{table}\n\n{end}".replace("\\", "\\\\"), text,
            flags=re.DOTALL,
        )  # fmt: skip
        if not found:
            progress(f"{path.name} has no place for the table {name!r}: it would need the lines {begin} and {end}")
    path.write_text(text)
