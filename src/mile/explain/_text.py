"""Explanations for people: a table as text, and as HTML with pictures."""

import io
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from mile._printable import one_line
from mile.explain import figures
from mile.explain.effects import Effect
from mile.explain.importance import Importance

_WIDTH = 40  # characters of a column's name


def as_text(heading: str, importance: Mapping[str, np.ndarray]) -> str:
    """Return the importance of all columns as a table."""
    header, lines = _importance_cells(importance)
    return "\n".join([heading, *aligned([header, *lines])])


def as_html(heading: str, importance: Mapping[str, np.ndarray], drawn: Importance, curves: Sequence[Effect]) -> str:
    """Return the same as HTML, with pictures of importance and of a few effects."""
    header, lines = _importance_cells(importance)
    pictures = [figures.svg(lambda ax: figures.importance(drawn, ax=ax))]
    pictures += [figures.svg(lambda ax, curve=curve: figures.effect(curve, ax=ax)) for curve in curves]
    return f"<p>{escape(heading)}</p>{html_table(header, lines)}<div>{''.join(pictures)}</div>"


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
    out = io.StringIO()
    out.write("<table><thead><tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in header) + "</tr></thead><tbody>")
    for line in lines:
        out.write("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>")
    out.write("</tbody></table>")
    return out.getvalue()


def _importance_cells(found: Mapping[str, np.ndarray]) -> tuple[list[str], list[list[str]]]:
    header = ["column", "loss in LPPD", "90 % interval", ""]
    lines = [
        [one_line(name, _WIDTH), f"{loss:.4f}", f"{lower:.4f} to {upper:.4f}", "important" if important else ""]
        for name, loss, lower, upper, important in zip(
            *(found[key] for key in ("column", "loss", "lower_90", "upper_90", "important")), strict=True
        )
    ]
    if "relevance" in found:
        header.insert(3, "relevance")
        for line, scale in zip(lines, found["relevance"], strict=True):
            line.insert(3, f"{scale:.3g}")
    return header, lines
