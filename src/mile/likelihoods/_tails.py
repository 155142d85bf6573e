"""Degrees of freedom of Student's t distribution from an output of the network, and its normalization."""

import math
from types import ModuleType

from mile.likelihoods._links import Values

# Degrees of freedom: above 2, so that there is a standard deviation, and at most nearly normal.
SMALLEST_DEGREES, LARGEST_DEGREES = 2.1, 102.1
_START = 8.0  # above the smallest, where the output is zero and the bend does not matter
_SHIFT = 8  # by which the argument grows before the series is used
# Of ln(gamma(x + 1/2) / gamma(x)) - ln(x) / 2 in odd powers of 1 / x; the next, 31 / 18432, is below 1e-11 for x >= 9.
_SERIES = (-1.0 / 8.0, 1.0 / 192.0, -1.0 / 640.0, 17.0 / 14336.0)


def degrees_of_freedom(numbers: ModuleType, raw: Values) -> Values:
    """Bend an output smoothly into the range of degrees of freedom; zero gives about 9.5."""
    width = LARGEST_DEGREES - SMALLEST_DEGREES
    return SMALLEST_DEGREES + numbers.exp(-numbers.logaddexp(-raw - math.log(_START), -math.log(width)))


def log_gamma_half_step(x: Values, numbers: ModuleType) -> Values:
    """Return ln(gamma(x + 1/2) / gamma(x)) for x of at least 1, without the loss of a difference of logarithms."""
    above, below = x + 0.5, x
    for step in range(1, _SHIFT):
        above, below = above * (x + (step + 0.5)), below * (x + float(step))
    far = x + float(_SHIFT)
    inverse = 1.0 / far
    square, power, total = inverse * inverse, inverse, 0.0 * inverse
    for coefficient in _SERIES:
        total, power = total + coefficient * power, power * square
    return total + 0.5 * numbers.log(far) - numbers.log(above / below)
