"""Probabilities of ordered grades from thresholds on a latent scale, in JAX and in numpy alike."""

import math
from collections.abc import Sequence
from types import ModuleType

import numpy as np
from jaxtyping import Int

from mile._checks import check_number, check_tuple
from mile.likelihoods._links import Values
from mile.likelihoods._special import within

_STRETCH = math.log(100.0)  # of the distance between thresholds, in both directions
_ADDED = 0.5  # rows of each grade, so that one without rows has a place


def thresholds_of(codes: Int[np.ndarray, " row"], n_grades: int) -> tuple[float, ...]:
    """Return thresholds that give each grade its share of the rows, kept to two decimals."""
    counts = np.bincount(codes, minlength=n_grades) + _ADDED
    shares = np.cumsum(counts)[:-1] / counts.sum()
    found = [round(float(np.log(share) - np.log1p(-share)), 2) for share in shares]
    for place in range(1, len(found)):
        found[place] = max(found[place], round(found[place - 1] + 0.01, 2))
    return tuple(found)


def even_thresholds(n_grades: int) -> tuple[float, ...]:
    """Return thresholds that give all grades the same probability."""
    return tuple(math.log((grade + 1) / (n_grades - grade - 1)) for grade in range(n_grades - 1))


def check_thresholds(cuts: object, n_grades: int) -> None:
    """Check thresholds that a user or a file gives.

    Raises
    ------
    ValueError
        If they are not ascending numbers, one less than there are grades.
    """
    numbers = [check_number("each of cuts", cut) for cut in check_tuple("cuts", cuts, "numbers")]
    if len(numbers) != n_grades - 1 or not np.all(np.diff(numbers) > 0):
        raise ValueError(f"cuts must be {n_grades - 1} numbers in ascending order; got {cuts!r}.")


def log_probabilities(numbers: ModuleType, outputs: Values, cuts: Sequence[float]) -> Values:
    """Return the log probability of each grade, the grade in the first axis, as that of outputs.

    The first output moves all thresholds down, each other one stretches the distance between two of them. With
    s(x) = 1 / (1 + exp(-x)), a grade between thresholds a and b has the probability

        s(b) - s(a) = s(b) s(-a) (1 - exp(a - b)),

    of whose factors none is a difference of nearly equal numbers.
    """
    location, nothing = outputs[:1], numbers.zeros_like(outputs[:1])
    shape = (-1, *[1] * (outputs.ndim - 1))
    gaps = np.log(np.diff(np.asarray(cuts, np.float64))).reshape(shape).astype(outputs.dtype)
    distance = numbers.exp(gaps + within(numbers, outputs[1:], -_STRETCH, _STRETCH))
    above = numbers.concatenate([nothing, numbers.cumsum(distance, axis=0)])
    middle = (len(cuts) - 1) // 2
    thresholds = above - above[middle : middle + 1] + (cuts[middle] - location)
    up_to = numbers.concatenate([-numbers.logaddexp(0.0, -thresholds), nothing])
    beyond = numbers.concatenate([nothing, -numbers.logaddexp(0.0, thresholds)])
    between = numbers.concatenate([nothing, numbers.log(-numbers.expm1(-distance)), nothing])
    return up_to + beyond + between
