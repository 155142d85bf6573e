"""Images in an NPZ file: which arrays they are, and what is known of each image."""

import numpy as np

from mile.cli._data import LearningInput, fitted
from mile.cli._reading import DataFile
from mile.cli._target import LIKELIHOODS
from mile.estimators.loading import Model
from mile.features.pixels import PixelScale, check_images

# Names under which images and what is known of them are looked for; the second pair of each is what Keras writes.
_TO_FIT = (("X", "y"), ("x_train", "y_train"), ("images", "labels"))
_TO_TEST = (("X", "y"), ("x_test", "y_test"), ("images", "labels"))


def is_image_file(data: DataFile) -> bool:
    """Say whether a file is an NPZ file with an array of more axes than a table has."""
    if not data.name.lower().endswith(".npz") or not data.path.is_file():
        return False
    return any(array.ndim > 2 for array in data.arrays.values())


def read_image_problem(data: DataFile, target: str | None, drop: list[str], task: str) -> LearningInput:
    """Read images and what is to be predicted of them."""
    if drop:
        raise ValueError(f"--drop leaves out columns of a table, but {data} holds images.")
    images, response, name = _read(data, _TO_FIT, target)
    if response is None:
        raise ValueError(f"{data} has images but no array {name!r} with one number or label for each of them.")
    whole = response.dtype.kind in "biuU" or bool(np.all(response == np.round(response)))
    found = task if task != "auto" else "classification" if whole else "regression"
    reason = "as asked for" if task != "auto" else f"{name!r} has {'classes' if whole else 'fractions'}"
    y = LIKELIHOODS[found].parse(response, f"{data}: {name!r}")
    return LearningInput(check_images(images), y, (), found, reason, name)


def read_images(model: Model, data: DataFile, target: str | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Read images of the shape that a model knows, as a table, and what is known of them, if anything is."""
    images, response, name = _read(data, _TO_TEST, target)
    fit = fitted(model)
    encoder = fit.encoder
    images = check_images(images, fit.network.input_shape, encoder if isinstance(encoder, PixelScale) else None)
    if response is not None:
        response = fit.response.cast(fit.likelihood.parse(response, f"{data}: {name!r}"))
    return images.reshape(len(images), fit.network.n_inputs), response


def _read(
    data: DataFile, pairs: tuple[tuple[str, str], ...], target: str | None
) -> tuple[np.ndarray, np.ndarray | None, str]:
    arrays = data.arrays
    for images, response in pairs:
        if images in arrays:
            name = target or response
            known = arrays.get(name)
            if target is not None and known is None:
                raise ValueError(f"{data} has no array {target!r}; it has {', '.join(map(repr, sorted(arrays)))}.")
            if known is not None and known.shape != arrays[images].shape[:1]:
                raise ValueError(
                    f"{data}: {name!r} must have one entry for each of the {len(arrays[images])} images; it has shape "
                    f"{known.shape}."
                )
            return arrays[images], known, name
    wanted = ", ".join(repr(images) for images, _ in pairs)
    raise ValueError(f"{data} must have images in an array named {wanted}; it has {', '.join(sorted(arrays))}.")
