"""Figures of images."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from mile.plot._style import MISS, count, cut, new_axes, nothing, one_per_row, set_title
from mile.predict import ClassPredictive

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMNS, _ROWS = 6, 2
_GAP, _CAPTION = 0.12, 0.34  # of an image's size
_LONGEST_LABEL = 9  # characters


def surprises(
    predictive: ClassPredictive, y: ArrayLike, images: Float[np.ndarray, "row ..."], *, ax: "Axes | None" = None
) -> "Axes":
    """Draw the images whose label had the lowest predicted probability.

    Parameters
    ----------
    predictive
        Of the same rows.
    y
        Observed labels.
    images
        Shape (rows, height, width) or (rows, height, width, channels); of more than three channels the mean is shown.
    """
    ax, y, images = new_axes(ax), one_per_row(predictive, y), np.asarray(images, float)
    if images.ndim not in (3, 4) or len(images) != len(y):
        raise ValueError(f"images must have shape ({len(y)}, height, width[, channels]); got {images.shape}.")
    n_wrong = int(np.sum(predictive.labels != y))
    if not n_wrong:
        return nothing(ax, f"All {count(len(y), 'image')} are labeled right")
    order = np.argsort(predictive.log_prob(y), kind="stable")[: min(_COLUMNS * _ROWS, n_wrong)]
    low, high = float(images.min()), float(images.max())
    for place, row in enumerate(order):
        left, top = place % _COLUMNS * (1.0 + _GAP), place // _COLUMNS * (1.0 + _GAP + _CAPTION)
        shown = _displayed(images[row], low, high)
        ax.imshow(shown, cmap="gray_r", vmin=0.0, vmax=1.0, extent=(left, left + 1.0, top + 1.0, top))
        words = f"{cut(str(predictive.labels[row]), _LONGEST_LABEL)} for {cut(str(y[row]), _LONGEST_LABEL)}"
        color = MISS if predictive.labels[row] != y[row] else None
        ax.text(left + 0.5, top + 1.06, words, ha="center", va="top", fontsize=9.0, parse_math=False, color=color)
    n_rows = -(-len(order) // _COLUMNS)
    ax.set_xlim(-0.02, _COLUMNS * (1.0 + _GAP) - _GAP + 0.02)
    ax.set_ylim(n_rows * (1.0 + _GAP + _CAPTION), -0.02)
    ax.set(xticks=[], yticks=[], aspect="equal")
    ax.spines[:].set_visible(False)
    set_title(ax, f"{n_wrong:,} of {count(len(y), 'image')} labeled wrong; these were the most surprising")
    return ax


def _displayed(image: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return an image from 0 to 1, gray or with three channels."""
    image = (image - low) / (high - low if high > low else 1.0)
    if image.ndim == 2:
        return image
    return image if image.shape[2] == 3 else image.mean(axis=2)
