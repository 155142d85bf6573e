"""Explanations for people: a table as text, and as HTML with pictures."""

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from mile._printable import aligned, html_table, one_line
from mile.explain import figures
from mile.explain.effects import Effect
from mile.explain.importance import Importance
from mile.explain.interactions import Interaction

_WIDTH = 40  # characters of a column's name
_MOST_PAIRS = 5


def as_text(heading: str, importance: Mapping[str, np.ndarray], pairs: Sequence[Interaction] = ()) -> str:
    """Return the importance of all columns as a table, and the strongest interactions as another."""
    header, lines = _importance_cells(importance)
    below = ["", *aligned(_pair_cells(pairs))] if pairs else []
    return "\n".join([heading, *aligned([header, *lines]), *below])


def as_html(
    heading: str,
    importance: Mapping[str, np.ndarray],
    drawn: Importance,
    curves: Sequence[Effect],
    pairs: Sequence[Interaction] = (),
) -> str:
    """Return the same as HTML, with pictures of importance and of a few effects."""
    header, lines = _importance_cells(importance)
    pictures = [figures.svg(lambda ax: figures.importance(drawn, ax=ax))]
    pictures += [figures.svg(lambda ax, curve=curve: figures.effect(curve, ax=ax)) for curve in curves]
    table = html_table(header, lines) + (html_table(*_split(_pair_cells(pairs))) if pairs else "")
    return f"<p>{escape(heading)}</p>{table}<div>{''.join(pictures)}</div>"


def _split(cells: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    return cells[0], cells[1:]


def _pair_cells(pairs: Sequence[Interaction]) -> list[list[str]]:
    lines = [
        [
            one_line(f"{one.first} × {one.second}", _WIDTH),
            f"{one.strength:.3g}",
            f"{one.interval[0]:.3g} to {one.interval[1]:.3g}",
            f"{100 * one.share:.0f} %",
        ]
        for one in pairs[:_MOST_PAIRS]
    ]
    return [["strongest pairs", "strength", "90 % interval", "of their effect"], *lines]


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
