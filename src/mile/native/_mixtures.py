"""Distribution function and density of many mixtures of normal distributions at once, without JAX."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from mile.likelihoods.weights import EqualDraws
from mile.native._ops import _run

PerComponent = Float[np.ndarray, "row component"]


def mixture(
    location: PerComponent,
    precision: PerComponent,
    groups: Sequence[EqualDraws],
    y: Float[np.ndarray, " row"],
) -> tuple[Float[np.ndarray, " row"], Float[np.ndarray, " row"]]:
    """Return distribution function and density at y of mixtures of normals; runs as `outputs` does.

    Neighbors in a group have the same weight.
    """
    ends = np.array([group.draws.stop for group in groups], np.int64)
    shares = np.array([group.share for group in groups])
    cdf, density = np.empty_like(y), np.empty_like(y)
    failed = _run("mile_mixture", location, precision, *location.shape, ends, shares, len(groups), y, cdf, density)
    assert not failed  # it asks for no memory
    return cdf, density


def weighted_mixture(
    location: PerComponent, precision: PerComponent, weight: PerComponent, y: Float[np.ndarray, " row"]
) -> tuple[Float[np.ndarray, " row"], Float[np.ndarray, " row"]]:
    """Return the same where each component has a weight, which add up to one in each row."""
    cdf, density = np.empty_like(y), np.empty_like(y)
    failed = _run("mile_weighted_mixture", location, precision, weight, *location.shape, y, cdf, density)
    assert not failed  # as above
    return cdf, density
