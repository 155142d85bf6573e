"""Explanations for people: a table as text, and as HTML with pictures."""

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from mile._printable import aligned, html_table, one_line
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
