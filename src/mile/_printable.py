"""Names, labels and paths of users as people may see them: nothing in them can command a terminal or break a line."""

import re
from collections.abc import Sequence
from html import escape

# Control characters but line ends and tabs, marks that turn the direction of writing, and halves of characters.
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def without_commands(text: str) -> str:
    """Return text in which control characters are replaced by their escape codes; line breaks stay."""
    return _COMMANDS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(text: object, longest: int | None = None) -> str:
    """Return a name on one line, without unprintable characters, shortened if it is too long."""
    plain = " ".join("".join(letter if letter.isprintable() else " " for letter in str(text)).split())
    return plain if longest is None or len(plain) <= longest else f"{plain[: longest - 1]}…"


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return lines whose cells stand below each other: the first to the left, the others to the right."""
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def html_table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table as HTML."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
