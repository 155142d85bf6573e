"""Which columns matter, and what the model believes about the foremost of them: figures for a page."""

from mile.explain.explanation import Explanation
from mile.explain.figures import effect, importance
from mile.report._svg import Drawing, draw

MOST_EFFECTS = 5  # curves on a page; each is as large as any other figure

_IMPORTANCE = (
    "How much worse these rows are predicted when a column is shuffled among them, with 90 % intervals over rows and "
    "draws. Columns that say the same share their importance."
)
_EFFECT = "Dark: how sure the model is of the curve. Light: the noise around it. Ticks: where there are rows."
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


def in_words(found: Explanation) -> str:
    """Say which columns matter."""
    names, n_columns = found.important, len(found.columns)
    judged = f"{found.importance.n_rows:,} {found.rows}"
    if not names:
        return f"None of the {n_columns} columns matters beyond chance on {judged}."
    return (
        f"{len(names)} of {n_columns} columns {'matters' if len(names) == 1 else 'matter'} beyond chance on {judged}."
    )
