"""Images: checks of their pixels, and one scale for all of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from jaxtyping import Float, Int

from mile import _registry
from mile._schema import Fields, Number, require
from mile.features.accepted import InputLike
from mile.features.base import AbstractFeatureEncoder, Encoded, Plain, Table, Tensors, as_array
from mile.features.numbers import Standardizer

_BYTE = 255.0  # the largest value of uint8


def is_images(X: InputLike) -> bool:
    """Say whether X has more axes than a table."""
    if hasattr(X, "columns"):
        return False
    try:
        return np.asarray(X).ndim > 2
    except ValueError:  # rows of different lengths
        return False


def check_images(
    X: InputLike, wanted: tuple[int, ...] | None = None, encoder: AbstractFeatureEncoder | None = None
) -> Float[np.ndarray, "row ..."]:
    """Return finite images; no images are fine.

    Parameters
    ----------
    X
        Images of shape (images, height, width) or (images, height, width, channels), numbers of any kind.
    wanted
        Shape of the images at fit.
    encoder
        Encoder of the images at fit.

    Raises
    ------
    ValueError
        If the shape, the dtype or the range of values is wrong.
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
    if encoder is not None:
        encoder.check(images)
    return images


@_registry.encoder("pixels")
@dataclass(frozen=True, kw_only=True, eq=False)
class PixelScale(AbstractFeatureEncoder):
    """Map all pixels to [0, 1]: from 0 to 255 for bytes, else from the range of the training rows."""

    low: float = 0.0
    high: float = _BYTE

    def fit(
        self,
        x: Table,
        rows: Int[np.ndarray, " chosen"] | None = None,
        weight: Float[np.ndarray, " row"] | None = None,
    ) -> Self:
        """Return the scale of these images; weights do not change it."""
        x = as_array(x)
        if x.dtype == np.uint8:
            return type(self)()
        chosen = x if rows is None else x[rows]
        low, high = float(chosen.min()), float(chosen.max())
        return type(self)(low=low, high=high if high > low else low + 1.0)

    def transform(self, x: Table, rows: Int[np.ndarray, " chosen"] | None = None) -> Encoded:
        """Return pixels on that scale, of the given rows (default: all)."""
        x = as_array(x)
        n_pixels = x.shape[1]
        shift, scale = np.full(n_pixels, self.low), np.full(n_pixels, self.high - self.low)
        return Standardizer(shift=shift, scale=scale).apply(x, rows)

    def check(self, x: np.ndarray) -> None:
        """Refuse pixels from 0 to 1 where the training rows have 0 to 255, and the reverse."""
        if not x.size:
            return
        highest = float(x.max())
        fractions = x.dtype.kind == "f" and 0.0 < highest <= 1.0 and bool((x != np.round(x)).any())
        if self.high >= _BYTE / 2 and fractions:
            raise ValueError(
                f"the model was fitted to pixels up to {self.high:g}, but these go up to {highest:g}: multiply them "
                "by 255, or fit to images on the same scale."
            )
        if self.high <= 1.0 and x.dtype.kind in "iu" and highest > 1.0:
            raise ValueError(
                f"the model was fitted to pixels up to {self.high:g}, but these are whole numbers up to {highest:g}: "
                "scale them as at fit."
            )

    def n_columns(self, n_features: int) -> int | None:
        """Return one column for each feature."""
        return n_features

    def tensors(self) -> dict[str, np.ndarray]:
        """Return nothing: the range is kept among the settings."""
        return {}

    def settings(self) -> dict[str, Plain]:
        """Return the range."""
        return {"low": self.low, "high": self.high}

    @classmethod
    def restore(cls, tensors: Tensors, settings: Mapping[str, Plain], n_features: int) -> Self:
        """Return the scale that a file has kept."""
        Fields(dict, {}).read(tensors)
        found = Fields(dict, {"low": Number(), "high": Number()}).read(settings)
        low, high = found["low"], found["high"]
        require(low < high, "the range of pixels must have a low below its high.")
        return cls(low=low, high=high)


def _with_channels(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape, 1)[:3]
