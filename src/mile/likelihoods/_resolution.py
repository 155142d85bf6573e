"""Responses with few distinct values: how they are recognized, and the smallest noise that they can resolve."""

import numpy as np

from mile.likelihoods.base import Encoded

_FEW = 0.1  # distinct values per row, at most
_LARGEST = 1.0  # standard deviations of the response


def few_values(y: Encoded) -> np.ndarray | None:
    """Return the distinct values if there are at least two, and at most one for every ten rows."""
    values = np.unique(y)
    return values if 2 <= len(values) <= _FEW * len(y) else None


def resolution_of(y: Encoded) -> float | None:
    """Return the smallest noise that a standardized response with few distinct values can resolve, else None.

    It is half the median gap between neighboring values, and at most one standard deviation: with few and uneven
    values, such as a rare event, half a gap may be more than all there is to explain. Two digits of it are kept, so
    that similar data share compiled programs.
    """
    values = few_values(y)
    if values is None:
        return None
    return min(float(f"{0.5 * np.median(np.diff(values.astype(np.float64))):.2g}"), _LARGEST)
