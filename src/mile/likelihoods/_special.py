"""Functions for log densities that float32 can compute, in JAX and in numpy alike."""

import math
from types import ModuleType

import jax
import jax.numpy as jnp

from mile.likelihoods._links import Values

LOG_SQRT_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_FAR = 10.0  # standard deviations below which the series of the tail is exact to 1e-7
_STEPS = 4  # upward, to where the series is exact to 3e-9


def within(numbers: ModuleType, raw: Values, low: float, high: float) -> Values:
    """Bend an output z smoothly between two limits; far from both it stays what it is.

    In exponentials it is exp(low) + 1 / (exp(-z) + exp(-high)).
    """
    return numbers.logaddexp(-numbers.logaddexp(-raw, -high), low)


def stirling_remainder(numbers: ModuleType, x: Values) -> Values:
    """Return what Stirling's formula lacks: ln Gamma(x) - (x - 1/2) ln x + x - ln sqrt(2 pi), for positive x.

    Differences of ln Gamma lose all digits in float32 where x is large; with this, they need not be taken.
    """
    found = numbers.zeros_like(x)
    for _ in range(_STEPS):
        found = found + (x + 0.5) * numbers.log1p(1.0 / x) - 1.0
        x = x + 1.0
    square = 1.0 / (x * x)
    series = 1.0 / 12.0 - square * (1.0 / 360.0 - square * (1.0 / 1260.0 - square * (1.0 / 1680.0 - square / 1188.0)))
    return found + series / x


def log_normal_cdf(z: jax.Array) -> jax.Array:
    """Return the log of the standard normal distribution function, finite with finite slopes as far as z squared is."""
    outside = 0.5 * jax.scipy.special.erfc(jnp.minimum(jnp.abs(z), _FAR) / math.sqrt(2.0))
    near = jnp.where(z < 0.0, jnp.log(outside), jnp.log1p(-outside))
    far = jnp.minimum(z, -_FAR)
    square = 1.0 / jnp.square(far)
    series = square * (1.0 - square * (3.0 - square * (15.0 - 105.0 * square)))
    tail = -0.5 * jnp.square(far) - jnp.log(-far) - LOG_SQRT_TWO_PI + jnp.log1p(-series)
    return jnp.where(z < -_FAR, tail, near)
