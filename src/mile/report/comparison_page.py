"""One page that compares models: a picture of their distances from the best one, and a table."""

import re

from mile._printable import without_commands
from mile.comparison import Comparison
from mile.plot import differences
from mile.report._svg import draw, settings
from mile.report._templates import template


def render_comparison(found: Comparison, *, title: str = "MILE comparison") -> str:
    """Return the whole page as text.

    Parameters
    ----------
    found
        As `mile.compare` returns it.
    title
        Heading of the page.

    Returns
    -------
    str
        HTML, without scripts and without anything from elsewhere.
    """
    with settings():
        picture = draw(
            "differences",
            differences,
            {name: tuple(estimate) for name, estimate in found.differences.items()},
            help="Each dot is a model's LPPD less that of the best one, on the same rows; bars are two standard "
            "errors. A bar that reaches zero is one that these rows cannot tell from the best.",
        )
    header, lines = found.cells()
    page = template("comparison.html.j2").render(
        title=title, summary=found.sentence(), rows=found.rows, picture=picture, header=header, lines=lines
    )
    return without_commands(re.sub(r"(\d) %", "\\1\N{NO-BREAK SPACE}%", page))
