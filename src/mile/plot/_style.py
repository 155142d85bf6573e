"""What all figures share: colors, axes, titles, and words for numbers."""

import textwrap
from collections.abc import Sized
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from mile._printable import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.typing import LegendLocType

# Distinguishable with any color vision (Okabe and Ito 2008); each has one meaning in all figures.
MILE = "#0072b2"
ENSEMBLE = "#e69f00"
MISS = "#d55e00"
WANTED = "#009e73"
FAILED = "#8a8a8a"
SIZE = (5.2, 3.5)  # inches
_TITLE_WIDTH, _LABEL_WIDTH = 62, 60  # characters
_CHANCE = 0.9  # probability of the bands that show what chance does


def new_axes(ax: "Axes | None") -> "Axes":
    """Return the given axes, or those of a new pyplot figure."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=SIZE, layout="constrained")[1]


def finish(
    ax: "Axes", title: str, x_label: str, y_label: str, legend: "LegendLocType | None" = None, columns: int = 1
) -> "Axes":
    """Add the sentence to see, the labels, and a legend at a place such as "upper left"."""
    set_title(ax, title)
    # A name of the user's may contain dollars, which are no formula.
    ax.set_xlabel(cut(x_label, _LABEL_WIDTH), parse_math=False)
    ax.set_ylabel(cut(y_label, _LABEL_WIDTH // 2), parse_math=False)
    ax.spines[["top", "right"]].set_visible(False)
    if legend is not None and ax.get_legend_handles_labels()[1]:
        ax.legend(loc=legend, ncols=columns)
    return ax


def nothing(ax: "Axes", sentence: str) -> "Axes":
    """Leave the axes empty and say why."""
    ax.set_axis_off()
    set_title(ax, sentence)
    return ax


def set_title(ax: "Axes", sentence: str) -> None:
    """Set a title of several lines if it is long."""
    ax.set_title(textwrap.fill(one_line(sentence), _TITLE_WIDTH), loc="left", fontsize="medium", parse_math=False)


def make_room(ax: "Axes", below: float = 0.0, above: float = 0.0) -> None:
    """Extend the vertical axis by shares of its length, for a legend."""
    ax.autoscale_view()  # which matplotlib puts off
    scale = ax.transScale + ax.transLimits  # from data to shares of the axes
    (_, lower), (_, upper) = scale.inverted().transform([(0.0, -below), (0.0, 1.0 + above)])
    ax.set_ylim(lower, upper)


def percent_axis(axis: "Axis") -> None:
    """Label an axis of shares in percent."""
    axis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")


def log_axis(ax: "Axes", which: str, values: np.ndarray) -> bool:
    """Make an axis logarithmic, with plain numbers at its ticks, if anything is positive."""
    from matplotlib.ticker import LogLocator, NullFormatter

    known = values[np.isfinite(values) & (values > 0)]
    if not known.size:
        return False
    getattr(ax, f"set_{which}scale")("log", nonpositive="mask")
    axis = getattr(ax, f"{which}axis")
    decades = np.log10(known.max() / known.min()) + 1e-9
    marks = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if decades < 0.8 else (1.0, 2.0, 5.0) if decades < 1.7 else (1.0,)
    axis.set_major_locator(LogLocator(subs=marks, numticks=6))
    axis.set_major_formatter(lambda value, _: f"{value:,.0f}" if 1e2 <= value < 1e6 else f"{value:.3g}")
    axis.set_minor_formatter(NullFormatter())
    return True


def chance_band(n_rows: int | np.ndarray, probability: float | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the shares of `n_rows` between which a binomial variable falls with 90 % probability."""
    from scipy.stats import binom

    lower, upper = binom.interval(_CHANCE, n_rows, probability)
    return np.asarray(lower / n_rows), np.asarray(upper / n_rows)


def cut(text: str, most: int) -> str:
    """Shorten a name that is too long for its place."""
    return one_line(text, most)


def percent(share: float) -> str:
    """Write a share in percent."""
    return f"{100 * share:.0f} %"


def count(number: int, noun: str) -> str:
    """Write a number of things."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def even_choice(size: int, most: int) -> np.ndarray:
    """Return at most `most` indices, evenly spaced, the first and the last among them."""
    return np.linspace(0, size - 1, min(size, most)).round().astype(int)


def one_per_row(predictive: Sized, y: ArrayLike) -> np.ndarray:
    """Return y as an array that fits the predictive.

    Raises
    ------
    ValueError
        If it does not fit, or there are no rows.
    """
    y = np.asarray(y)
    if y.shape != (len(predictive),) or not len(y):
        raise ValueError(f"y must have one entry for each of at least one row, ({len(predictive)},); got {y.shape}.")
    return y
