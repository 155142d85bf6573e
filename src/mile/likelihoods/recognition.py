"""What kind of numbers a response is, and which families may suit it: the written rule of `likelihood="auto"`."""

import math
from typing import NamedTuple

import numpy as np

from mile.likelihoods._resolution import few_values
from mile.likelihoods.base import PerRow
from mile.likelihoods.counts import are_counts
from mile.likelihoods.numbers import Predictive

FEWEST_ROWS = 50  # fewer do not tell families apart
_MOST_GRADES = 12
_ROWS_OF_AN_END = 5  # of the lowest and of the highest grade: else new rows are likely to have another
_LARGEST_COUNT = 10_000  # above it one more or less does not matter, and y is an amount
_MUCH_SKEWNESS = 0.5
_FEWEST_ZEROS, _LEAST_ZEROS = 5, 0.02  # rows, and share of them
_LEAST_WIDTH_OF_SHARES = 0.25  # numbers that fill less of the unit interval need not be shares
_FAR = 5.0  # robust standard deviations
_MANY_FAR = 0.002  # of a normal distribution less than a millionth is there
_NORMAL_QUARTILES = 1.349  # standard deviations between the quartiles of a normal distribution
_TINY = 1e-10  # a difference of distribution functions that has lost its digits

_ANY_NUMBERS = ("student_t", "skew", "mixture")


class Cells(NamedTuple):
    """Where the probability of a cell is compared instead of a density, because some families have no density there.

    Attributes
    ----------
    width
        Of the cell around each value; None: densities are compared.
    lowest, highest
        Values whose cells have no lower, or no upper, end, so that no family loses by what y cannot be.
    zero
        Only zeros are compared by a cell, all that is below this number; other values by their density.
    """

    width: float | None = None
    lowest: float = -math.inf
    highest: float = math.inf
    zero: float | None = None

    def log_scores(self, predictive: Predictive, y: PerRow) -> PerRow:
        """Return the log density of each row, or the log probability of its cell; of all families they compare."""
        if self.zero is not None:
            is_zero = y == 0.0
            density = predictive.log_prob(y)
            return np.where(is_zero, _log(predictive.cdf(np.where(is_zero, self.zero, y)), density), density)
        if self.width is None:
            return predictive.log_prob(y)
        below = np.where(y <= self.lowest, 0.0, predictive.cdf(y - 0.5 * self.width))
        up_to = np.where(y >= self.highest, 1.0, predictive.cdf(y + 0.5 * self.width))
        return _log(up_to - below, predictive.log_prob(y) + math.log(self.width))


class Recognized(NamedTuple):
    """What y is, in words; the families that may suit it besides the usual one; and how they are compared."""

    kind: str
    families: tuple[str, ...] = ()
    cells: Cells = Cells()


def recognize(y: PerRow) -> Recognized:
    """Return what kind of numbers a checked response is: grades, counts, amounts, shares, or any numbers.

    Only the response of training rows is looked at. docs/likelihoods.md has the rule in words.
    """
    values, counts = np.unique(y, return_counts=True)
    if len(y) < FEWEST_ROWS or len(values) < 2:
        few = f"{len(y):,} rows" if len(y) < FEWEST_ROWS else "one value"
        return Recognized(f"{few}, too few to compare families")
    is_whole = bool(np.all(y == np.round(y)))
    if is_whole and _are_grades(values, counts, len(y)):
        names = ("ordinal", *(_families_of_counts(y) if are_counts(y).all() and len(values) > 2 else ()))
        return Recognized(f"{len(values)} different whole numbers", names, Cells(1.0, values[0], values[-1]))
    zeros = float(np.mean(y == 0.0))
    if is_whole and values[0] >= 0.0 and values[-1] <= _LARGEST_COUNT:
        kind = "whole numbers from zero on" + (f", {zeros:.0%} of them zero" if zeros else "")
        others = _ANY_NUMBERS if few_values(y) is None else ()
        return Recognized(kind, _families_of_counts(y) + others, Cells(1.0, lowest=0.0))
    if values[0] == 0.0 and counts[0] >= _FEWEST_ZEROS and _LEAST_ZEROS <= zeros <= 1.0 - _LEAST_ZEROS:
        kind = f"zero in {zeros:.0%} of the rows and positive in the others"
        return Recognized(kind, ("hurdle_lognormal", "hurdle_gamma"), Cells(zero=0.5 * float(values[1])))
    cells = Cells() if few_values(y) is None else Cells(float(np.median(np.diff(values))))
    if values[0] > 0.0 and values[-1] < 1.0 and values[-1] - values[0] >= _LEAST_WIDTH_OF_SHARES:
        return Recognized("between 0 and 1", ("beta", *_ANY_NUMBERS), cells)
    skewness = float(np.mean(((y - np.mean(y)) / np.std(y)) ** 3))
    if values[0] > 0.0 and skewness > _MUCH_SKEWNESS:
        kind = f"positive and skewed to the right (skewness {skewness:.1f})"
        return Recognized(kind, ("lognormal", "gamma", *_ANY_NUMBERS), cells)
    far = _share_far_out(y)
    tails = f"numbers with heavy tails ({far:.1%} lie far out)" if far > _MANY_FAR else "numbers"
    return Recognized(tails, _ANY_NUMBERS, cells)


def _are_grades(values: np.ndarray, counts: np.ndarray, n_rows: int) -> bool:
    """Say whether whole numbers look like grades: few of them, and new rows will hardly have others.

    Of counts from zero on, three or more, new rows may well have a larger one.
    """
    is_few = len(values) <= min(_MOST_GRADES, n_rows // 10)
    is_known = min(counts[0], counts[-1]) >= _ROWS_OF_AN_END
    return is_few and bool(is_known) and (len(values) == 2 or values[0] != 0.0)


def _families_of_counts(y: PerRow) -> tuple[str, ...]:
    """Return the families of counts, with more zeros than a Poisson distribution has only where y has them."""
    has_more_zeros = np.mean(y == 0.0) > math.exp(-float(np.mean(y)))
    plain = ("poisson", "negative_binomial")
    return (*plain, *(f"zero_inflated_{name}" for name in plain)) if has_more_zeros else plain


def _share_far_out(y: PerRow) -> float:
    low, middle, high = np.quantile(y, [0.25, 0.5, 0.75])
    spread = (high - low) / _NORMAL_QUARTILES
    return float(np.mean(np.abs(y - middle) > _FAR * spread)) if spread > 0.0 else 0.0


def _log(mass: PerRow, otherwise: PerRow) -> PerRow:
    """Return logarithms; where rounding has left no digits, the log density times the width."""
    return np.where(mass > _TINY, np.log(np.maximum(mass, _TINY)), otherwise)
