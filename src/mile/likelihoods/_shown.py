"""What a terminal and a notebook show of a predictive distribution: its first rows, with small pictures of each."""

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from mile._printable import aligned, one_line

if TYPE_CHECKING:
    from mile.likelihoods.base import AbstractPredictive

N_ROWS = 5
STRIP_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)  # quantiles that a strip shows
_CELL = 30  # characters
_WIDTH, _HEIGHT = 180, 16  # of a strip, in pixels


def as_text(found: "AbstractPredictive") -> str:
    """Return the first rows as a table."""
    header, lines = _cells(found.head(N_ROWS))
    return "\n".join([_heading(found), *aligned([["", *header], *lines])])


def as_html(found: "AbstractPredictive") -> str:
    """Return the same as HTML; numbers get a strip each, on one scale."""
    first = found.head(N_ROWS)
    header, lines = _cells(first)
    quantiles = first.strips()
    if quantiles is not None and len(quantiles):
        header = [*header, "50 % and 90 % of the distribution"]
    head = "".join(f"<th>{escape(cell)}</th>" for cell in ["", *header])
    body = ""
    for place, line in enumerate(lines):
        body += "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line)
        body += "" if quantiles is None else f"<td>{_strip(quantiles, place)}</td>"
        body += "</tr>"
    return f"<p>{escape(_heading(found))}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _heading(found: "AbstractPredictive") -> str:
    kind, rows, draws = type(found).__name__, len(found), found.n_draws
    more = f", the first {N_ROWS}" if rows > N_ROWS else ""
    return f"{kind} of {rows:,} row{'' if rows == 1 else 's'}, {draws:,} draw{'' if draws == 1 else 's'}{more}"


def _cells(first: "AbstractPredictive") -> tuple[list[str], list[list[str]]]:
    columns: Mapping[str, np.ndarray] = first.brief(np.arange(len(first))) if len(first) else {}
    lines = [[str(row), *(_cell(values[row]) for values in columns.values())] for row in range(len(first))]
    return list(columns), lines


def _cell(value: object) -> str:
    """Write a number, a text, or a pair of ends."""
    found = np.asarray(value)
    if found.dtype.kind == "f":
        return " to ".join(f"{number:.4g}" for number in np.atleast_1d(found))
    return one_line(value, _CELL)


def _strip(quantiles: np.ndarray, row: int) -> str:
    """Draw a row's quantiles: a line of 90 %, a bar of 50 %, and a mark at the median."""
    finite = quantiles[np.isfinite(quantiles)]
    if not np.isfinite(quantiles[row]).all() or not finite.size:
        return ""
    lowest, width = finite.min(), max(float(np.ptp(finite)), np.finfo(float).tiny)
    places = 2 + (quantiles[row] - lowest) / width * (_WIDTH - 4)
    start, left, median, right, end = (f"{place:.1f}" for place in places)
    middle = _HEIGHT // 2
    label = " to ".join(f"{quantiles[row][place]:.4g}" for place in (0, -1))
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="90 % between {label}">'
        f'<line x1="{start}" x2="{end}" y1="{middle}" y2="{middle}" stroke="#0072b2" stroke-width="1.5"/>'
        f'<line x1="{left}" x2="{right}" y1="{middle}" y2="{middle}" stroke="#0072b2" stroke-width="7" opacity="0.5"/>'
        f'<line x1="{median}" x2="{median}" y1="2" y2="{_HEIGHT - 2}" stroke="#d55e00" stroke-width="2"/></svg>'
    )
