"""Figures as small SVG texts for a page: real text, colors by the page's names, ids that differ between figures."""

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

from mile.plot import _style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK, _SURFACE = "#010203", "#fdfefd"  # stand for the page's colors of text and paper
_COLORS = {
    _INK: "currentColor",
    _SURFACE: "var(--surface)",
    _style.MILE: "var(--mile)",
    _style.ENSEMBLE: "var(--ensemble)",
    _style.MISS: "var(--miss)",
    _style.WANTED: "var(--wanted)",
    _style.FAILED: "var(--failed)",
}
_SETTINGS: dict[str, str | float | bool] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "mile",
    "savefig.transparent": True,
    "font.size": 12.0,  # on a phone a unit is a little less than a pixel; on wide screens the page makes text smaller
    "legend.fontsize": 11.0,
    "legend.facecolor": _SURFACE,
    "legend.framealpha": 0.85,
    "legend.edgecolor": "none",
    "axes.linewidth": 0.7,
    "axes.facecolor": "none",
    "axes.formatter.useoffset": False,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), _INK),
}
_WIDTH, _HEIGHT = 374.4, 237.6  # units, 72 to the inch
_CHARACTER = 7.7  # units that one character of a label takes at most, on average


class Drawing(NamedTuple):
    """A figure, or the sentence that stands in its place."""

    name: str
    title: str
    svg: Markup | None
    help: str


@contextmanager
def settings() -> Iterator[None]:
    """Draw in the style of the page, not in the user's."""
    import matplotlib.style

    with matplotlib.style.context(["default", _SETTINGS]), warnings.catch_warnings():
        # The reader's browser has other fonts than matplotlib.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        yield


def draw(
    name: str, function: Callable[..., "Axes"], /, *arguments: object, help: str = "", **options: object
) -> Drawing:
    """Call a function of `mile.plot` on new axes and return what it drew; its title becomes the caption."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH / 72, _HEIGHT / 72))
    ax = function(*arguments, ax=figure.add_axes((0.15, 0.18, 0.8, 0.78)), **options)
    title = ax.get_title(loc="left").replace("\n", " ")
    if not ax.axison:
        return Drawing(name, title, None, "")
    ax.set_title("", loc="left")
    _set_margins(ax)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    return Drawing(name, title, Markup(_shrink(buffer.getvalue(), name, title)), help)


def _set_margins(ax: "Axes") -> None:
    """Leave room for labels by their length; matplotlib's own layouts measure text, in three times the time."""
    longest = max((len(label.get_text()) for label in ax.get_yticklabels()), default=0)
    left = 9.0 + _CHARACTER * longest + (18.0 if ax.get_ylabel() else 0.0)
    above = any(text.get_transform() != ax.transData for text in ax.texts)
    right, bottom, top = 20.0, 43.0, 20.0 if above else 8.0
    width, height = _WIDTH - left - right, _HEIGHT - bottom - top
    ax.set_position((left / _WIDTH, bottom / _HEIGHT, width / _WIDTH, height / _HEIGHT))


def _shrink(svg: str, name: str, title: str) -> str:
    """Return an SVG element without what HTML does not need, in the page's colors, with ids of its own."""
    svg = re.sub(
        r"<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.S
    )
    opening = re.search(r"<svg[^>]*?(viewBox=\"[^\"]*\")[^>]*>", svg, flags=re.S)
    assert opening is not None, "matplotlib wrote no SVG element"
    svg = svg[opening.end() :]
    used = set(re.findall(r"(?:href=\"#|url\(#)([^\")]+)", svg))
    svg = re.sub(r" id=\"([^\"]*)\"", lambda found: f' id="{name}-{found[1]}"' if found[1] in used else "", svg)
    svg = re.sub(r"(href=\"#|url\(#)", rf"\g<1>{name}-", svg).replace("xlink:href", "href")
    svg = re.sub(r" (d|points)=\"[^\"]*\"", lambda found: _round(found[0]), svg)
    svg = re.sub(r"'DejaVu Sans'[^;\"]*", "system-ui, sans-serif", svg)
    for color, meaning in _COLORS.items():
        svg = svg.replace(color, meaning)
    svg = re.sub(r">\s+<", "><", svg).strip()
    return f'<svg {opening[1]} role="img" aria-label="{escape(title)}">{svg}'


def _round(path: str) -> str:
    """Keep one decimal, a tenth of a pixel or so, of the coordinates of a path."""
    short = re.sub(r"-?\d+\.\d{2,}", lambda found: f"{float(found[0]):.1f}".replace(".0", ""), path)
    return re.sub(r"\s+", " ", short)
