"""The explanation of one prediction for people: tables as text, and as HTML with pictures."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from mile._printable import aligned, html_table, one_line

if TYPE_CHECKING:
    from mile.explain.contributions import RowExplanation

_WIDTH = 40  # characters of a name or value
_MOST_COLUMNS = 12


def contributions_as_text(found: "RowExplanation") -> str:
    """Return the heading, the contributions, rows like this one and advice."""
    header, lines = _cells(found)
    near_header, near = _nearest(found.frames()["nearest"])
    parts = [*_heading(found), *aligned([header, *lines]), "", "nearest rows", *aligned([near_header, *near])]
    return "\n".join([*parts, "", *found.advice()])


def contributions_as_html(found: "RowExplanation", pictures: Sequence[str]) -> str:
    """Return the same as HTML, with pictures."""
    heading = "<br>".join(map(escape, _heading(found)))
    advice = "".join(f"<p>{escape(sentence)}</p>" for sentence in found.advice())
    near = f"<p>Nearest rows</p>{html_table(*_nearest(found.frames()['nearest']))}"
    return f"<p>{heading}</p>{html_table(*_cells(found))}<div>{''.join(pictures)}</div>{near}{advice}"


def _heading(found: "RowExplanation") -> list[str]:
    return [
        f"{name} {found.prediction[name]:.4g}; on average of {found.n_background} rows {found.average[name]:.4g}"
        for name in found.quantities[:2]
    ]


def _cells(found: "RowExplanation") -> tuple[list[str], list[list[str]]]:
    first, second = found.quantities[:2]
    lines = [
        [
            one_line(f"{found.columns[place]} = {found.values[place]}", _WIDTH),
            f"{found.contributions[first][place]:+.3g}",
            f"{found.over_draws[place]:.2g}",
            f"{found.contributions[second][place]:+.3g}",
        ]
        for place in found.order[:_MOST_COLUMNS]
    ]
    rest = found.order[_MOST_COLUMNS:]
    if rest.size:
        sums = [f"{found.contributions[name][rest].sum():+.3g}" for name in (first, second)]
        lines.append([f"{len(rest)} other columns", sums[0], "", sums[1]])
    return ["column", f"adds to {one_line(first, _WIDTH)}", "± over draws", f"adds to {second}"], lines


def _nearest(found: Mapping[str, np.ndarray]) -> tuple[list[str], list[list[str]]]:
    lines = [[str(place), f"{distance:.2f}"] for place, distance in zip(found["row"], found["distance"], strict=True)]
    if "y" in found:
        lines = [[*line, _outcome(y)] for line, y in zip(lines, found["y"], strict=True)]
    return [*found], lines


def _outcome(y: object) -> str:
    try:
        return f"{float(y):.4g}"  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError):  # a label, or a time with its event
        return one_line(y, _WIDTH)
