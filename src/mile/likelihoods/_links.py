"""Links from an output of the network to the logarithm of a standard deviation, in JAX and in numpy alike."""

import math
from types import ModuleType
from typing import Protocol, TypeVar

import jax
import numpy as np

Values = TypeVar("Values", jax.Array, np.ndarray)
SCALE_LIMIT = 10.0  # of the bounded link, in standard deviations of the response
SMALLEST_SCALE = 1e-6
# The exponential link keeps standard deviations in [1e-6, 1e6] with zero gradient outside, as in the reference.
LOG_SCALE_LIMIT = math.log(1e6)


class Link(Protocol):
    """A link: of the module `jax.numpy` or `numpy`, an output of the network, and the smallest standard deviation."""

    def __call__(self, numbers: ModuleType, raw: Values, floor: float, /) -> Values:
        """Return log standard deviations."""
        ...


def exponential(numbers: ModuleType, raw: Values, floor: float) -> Values:
    """Use the output unchanged, within limits that do not depend on the data."""
    return numbers.clip(raw, -LOG_SCALE_LIMIT, LOG_SCALE_LIMIT)


def bounded(numbers: ModuleType, raw: Values, floor: float) -> Values:
    """Bend the output z smoothly below ln 10, and let variances begin at that of the floor.

    First ln s = c - softplus(c - z) with c = ln 10, which is -ln(exp(-z) + 1 / 10), then
    ln sigma = 1/2 ln(s^2 + floor^2).
    """
    below_limit = -numbers.logaddexp(-raw, -math.log(SCALE_LIMIT))
    return 0.5 * numbers.logaddexp(2.0 * below_limit, 2.0 * math.log(floor))


LINKS: dict[str, Link] = {"exponential": exponential, "bounded": bounded}
