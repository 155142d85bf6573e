"""What predictions need besides draws, as arrays that a file can hold: scales, labels, fixed arrays, attachments."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from mile._errors import UntrustedFileError
from mile.configuration import fixed_arrays
from mile.data import Standardizer
from mile.labels import NAMES as LABELS
from mile.labels import read_labels, write_labels
from mile.networks import FixedArray

Attachments = Mapping[str, np.ndarray]  # bytes that an estimator needs to prepare rows, by name; such as a vocabulary
_FIXED, _ATTACHED = "fixed.", "attached."
_LARGEST_ATTACHMENT = 1 << 26  # bytes
_SCALES = ("x_shift", "x_scale", "y_shift", "y_scale")


def kept_tensors(
    network: Any,
    x_scale: Standardizer,
    y_scale: Standardizer,
    classes: np.ndarray | None,
    attachments: Attachments,
) -> dict[str, np.ndarray]:
    """Return all of it by name.

    Raises
    ------
    ValueError
        If an attachment is not bytes, or too large.
    """
    found = dict(zip(_SCALES, (x_scale.shift, x_scale.scale, y_scale.shift, y_scale.scale), strict=True))
    for name, array in attachments.items():
        if array.dtype != np.uint8 or array.ndim != 1 or len(array) > _LARGEST_ATTACHMENT:
            raise ValueError(f"attachment {name!r} must be at most {_LARGEST_ATTACHMENT:,} bytes, an array of uint8.")
    found |= {_FIXED + name: array.values for name, array in fixed_arrays(network).items()}
    found |= {_ATTACHED + name: array for name, array in attachments.items()}
    return found | ({} if classes is None else write_labels(classes))


def is_kept(name: str) -> bool:
    """Say whether an array of this name is one of them."""
    return name in (*_SCALES, *LABELS) or name.startswith((_FIXED, _ATTACHED))


def read_kept(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return scales, labels and attachments again.

    Raises
    ------
    UntrustedFileError
        If anything is missing or impossible.
    """
    scales = {
        name: Standardizer(shift=_numbers(arrays, f"{name[0]}_shift"), scale=_numbers(arrays, name))
        for name in ("x_scale", "y_scale")
    }
    for name, scale in scales.items():
        if not (scale.scale > 0).all():
            raise UntrustedFileError(f"{name} must be positive.")
    attachments = {name.removeprefix(_ATTACHED): array for name, array in arrays.items() if name.startswith(_ATTACHED)}
    for name, array in attachments.items():
        if array.dtype != np.uint8 or array.ndim != 1 or len(array) > _LARGEST_ATTACHMENT:
            raise UntrustedFileError(f"{name[:80]!r} must be bytes.")
    return scales | {"classes": read_labels(arrays), "attachments": attachments}


def read_fixed(arrays: Mapping[str, np.ndarray]) -> dict[str, FixedArray]:
    """Return the fixed arrays by hash.

    Raises
    ------
    UntrustedFileError
        If one is not what its name says.
    """
    found = {}
    for name, array in arrays.items():
        if not name.startswith(_FIXED):
            continue
        wanted = name.removeprefix(_FIXED)
        if array.dtype != np.float32 or not np.isfinite(array).all():
            raise UntrustedFileError(f"{name[:80]} must be finite numbers in float32.")
        found[wanted] = FixedArray(array)
        if found[wanted].sha256 != wanted:
            raise UntrustedFileError(f"{name[:80]} is not the array that its name says.")
    return found


def _numbers(arrays: Mapping[str, Any], name: str) -> np.ndarray:
    if name not in arrays:
        raise UntrustedFileError(f"there is no {name}.")
    values = arrays[name]
    if values.dtype != np.float64 or not np.isfinite(values).all():
        raise UntrustedFileError(f"{name} must be finite numbers in float64.")
    return values
