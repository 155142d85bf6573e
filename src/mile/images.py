"""Images as users pass them: checked before any training, and put on one scale that all pixels share."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int
from sklearn.utils.validation import check_consistent_length, column_or_1d

from mile.data import Standardizer
from mile.inputs import refuse_bad_response

_BYTE = 255.0  # the largest value of uint8


def is_images(X: Any) -> bool:
    """Say whether an array, or what can be made one, has more axes than a table."""
    if hasattr(X, "columns"):
        return False
    try:
        return np.asarray(X).ndim > 2
    except ValueError:  # rows of different lengths
        return False


def check_training_images(estimator: Any, X: Any, y: Any, *, numeric: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return finite images of shape (images, height, width[, channels]) and a response without gaps.

    Raises
    ------
    ValueError
        If anything cannot be used.
    """
    refuse_bad_response(y, numeric)
    y = column_or_1d(y, warn=True)
    images = check_images(X)
    check_consistent_length(images, y)
    if len(images) < 2:
        raise ValueError(f"at least 2 images are needed to fit; got {len(images)}.")
    if hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
    estimator.n_features_in_ = int(np.prod(images.shape[1:]))
    return images, y


def check_images(
    X: Any, wanted: tuple[int, ...] | None = None, scale: Standardizer | None = None
) -> Float[np.ndarray, "row ..."]:
    """Return finite images; no images are fine.

    Parameters
    ----------
    X
        Images of shape (images, height, width) or (images, height, width, channels), numbers of any kind.
    wanted
        Shape of the images at fit.
    scale
        Scale of their pixels at fit.

    Raises
    ------
    ValueError
        If the shape, the kind of numbers or their range is another one.
    """
    images = np.asarray(X)
    if images.ndim not in (3, 4) or 0 in images.shape[1:]:
        raise ValueError(
            "images must be an array of shape (images, height, width) or (images, height, width, channels); got shape "
            f"{images.shape}."
        )
    if images.dtype.kind not in "biuf":
        raise ValueError(f"the pixels of images must be numbers; got dtype {images.dtype}.")
    if wanted is not None and _with_channels(images.shape[1:]) != _with_channels(wanted):
        raise ValueError(
            f"the model was fitted to images of shape {wanted}, but these have shape {images.shape[1:]}. Resize or "
            "crop them to the shape at fit."
        )
    if images.dtype.kind == "f" and not np.isfinite(images).all():
        place = np.argwhere(~np.isfinite(images))[0]
        raise ValueError(
            f"image {place[0]} has the value {images[tuple(place)]} at {tuple(place[1:].tolist())}; every pixel must "
            "be finite."
        )
    if scale is not None and images.size:
        _refuse_other_scale(images, scale)
    return images


def learn_pixel_scale(
    values: Float[np.ndarray, "row pixel"], rows: Int[np.ndarray, " chosen"] | None = None
) -> Standardizer:
    """Return the scale that maps pixels to [0, 1], the same for all: 0 to 255 for bytes, else the range of the rows."""
    low, high = 0.0, _BYTE
    if values.dtype != np.uint8:
        chosen = values if rows is None else values[rows]
        low, high = float(chosen.min()), float(chosen.max())
    n_pixels = values.shape[1]
    return Standardizer(shift=np.full(n_pixels, low), scale=np.full(n_pixels, high - low if high > low else 1.0))


def _with_channels(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape, 1)[:3]


def _refuse_other_scale(images: np.ndarray, scale: Standardizer) -> None:
    """Notice pixels from 0 to 1 where the model knows 0 to 255, and the reverse."""
    highest_at_fit, highest = float(np.max(scale.shift + scale.scale)), float(images.max())
    fractions = images.dtype.kind == "f" and 0.0 < highest <= 1.0 and bool((images != np.round(images)).any())
    if highest_at_fit >= _BYTE / 2 and fractions:
        raise ValueError(
            f"the model was fitted to pixels up to {highest_at_fit:g}, but these go up to {highest:g}: multiply them "
            "by 255, or fit to images on the same scale."
        )
    if highest_at_fit <= 1.0 and images.dtype.kind in "iu" and highest > 1.0:
        raise ValueError(
            f"the model was fitted to pixels up to {highest_at_fit:g}, but these are whole numbers up to {highest:g}: "
            "scale them as at fit."
        )
