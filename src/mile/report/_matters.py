"""Which columns matter, and what the model believes about the foremost of them: figures for a page."""

import numpy as np

from mile.explain.explanation import Explanation
from mile.explain.figures import effect, importance, width_map
from mile.explain.width_map import width_map as find_widths
from mile.report._svg import Drawing, draw

MOST_EFFECTS = 5  # curves on a page; each is as large as any other figure

_IMPORTANCE = (
    "How much worse these rows are predicted when a column is shuffled among them, with 90 % intervals over rows and "
    "draws. Columns that say the same share their importance."
)
_EFFECT = "Dark: how sure the model is of the curve. Light: the noise around it. Ticks: where there are rows."
_WIDTH = "Darker is less sure. Dots: cells that hold some of these rows; elsewhere the model has little to go by."
_LEVELS = "Dark: how sure the model is of the level. Light: the noise around it."


def drawings(found: Explanation, target: str) -> list[Drawing]:
    """Return the figure of importance, then the effects of the columns that matter most."""
    figures = [draw("importance", importance, found.importance, help=_IMPORTANCE)]
    order = [found.columns[place] for place in found.importance.order]
    curves = [found.effects[name] for name in order if name in found.effects]
    for place, curve in enumerate(curves[:MOST_EFFECTS]):
        help = _LEVELS if curve.accumulated is None else _EFFECT
        figures.append(draw(f"effect-{place}", effect, curve, target=target, help=help))
    return figures


def unsure(found: Explanation, target: str) -> list[Drawing]:
    """Return the map of how wide predictions are over the two columns that matter most; none of one column."""
    order = found.importance.order.tolist()
    if len(order) < 2:
        return []
    drawn = find_widths(found.model, found.table, order[0], order[1], found.quantity, np.random.default_rng(0))
    return [draw("width", width_map, drawn, target=target, help=_WIDTH)]


def in_words(found: Explanation) -> str:
    """Say which columns matter."""
    names, n_columns = found.important, len(found.columns)
    judged = f"{found.importance.n_rows:,} {found.rows}"
    if not names:
        return f"None of the {n_columns} columns matters beyond chance on {judged}."
    return (
        f"{len(names)} of {n_columns} columns {'matters' if len(names) == 1 else 'matter'} beyond chance on {judged}."
    )
