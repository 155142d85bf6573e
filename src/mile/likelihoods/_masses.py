"""Log probabilities of counts, and of zeros beside them, that float32 can compute; in JAX and in numpy alike."""

from types import ModuleType

from mile.likelihoods._links import Values
from mile.likelihoods._special import LOG_SQRT_TWO_PI, stirling_remainder


def poisson_log_mass(numbers: ModuleType, y: Values, log_rate: Values) -> Values:
    """Return the log probability of whole numbers under Poisson distributions.

    With ln y! in Stirling's form nothing large is subtracted from something large.
    """
    positive = numbers.maximum(y, 1.0)
    above = log_rate - numbers.log(positive)
    constant = -0.5 * numbers.log(positive) - LOG_SQRT_TWO_PI - stirling_remainder(numbers, positive)
    return numbers.where(y > 0, positive * (above - numbers.expm1(above)) + constant, -numbers.exp(log_rate))


def negative_binomial_log_mass(numbers: ModuleType, y: Values, log_mean: Values, log_dispersion: Values) -> Values:
    """Return the log probability of whole numbers with variance mean + dispersion * mean^2.

    With size r = 1 / dispersion and all gamma functions in Stirling's form, for y > 0 it is

        -y ln(y (mean + r) / (mean (y + r))) - r ln((mean + r) / (y + r)) - 1/2 ln(2 pi y (1 + y / r))
        + d(y + r) - d(r) - d(y),

    where d is the remainder of the formula. Both logarithms are taken of one plus what they are away from it.
    """
    size = numbers.exp(-log_dispersion)
    positive = numbers.maximum(y, 1.0)
    above, total = log_mean - numbers.log(positive), positive + size
    far = positive * numbers.log1p(numbers.expm1(-above) * (size / total))
    far = -far - size * numbers.log1p(numbers.expm1(above) * (positive / total))
    width = 0.5 * (numbers.log(positive) + numbers.log1p(positive / size)) + LOG_SQRT_TWO_PI
    remainder = stirling_remainder(numbers, total) - stirling_remainder(numbers, size)
    likely = far - width + remainder - stirling_remainder(numbers, positive)
    return numbers.where(y > 0, likely, -size * numbers.log1p(numbers.exp(log_mean + log_dispersion)))


def with_zeros(numbers: ModuleType, logit: Values, y: Values, log_prob: Values) -> Values:
    """Return the log probability, or density, of a number that is zero with a chance and else as `log_prob` says.

    Where zero is impossible otherwise, `log_prob` is minus infinity for it.
    """
    log_chance, log_rest = -numbers.logaddexp(0.0, -logit), -numbers.logaddexp(0.0, logit)
    return numbers.where(y == 0, numbers.logaddexp(log_chance, log_rest + log_prob), log_rest + log_prob)
