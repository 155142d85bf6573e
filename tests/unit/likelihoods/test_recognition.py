"""The written rule of `likelihood="auto"`: what a response is taken for, and how families are compared then."""

import numpy as np
import pytest
from scipy import stats

from mile import _registry
from mile.likelihoods.recognition import Cells, recognize

RNG = np.random.default_rng(0)
N = 400
NORMAL = RNG.normal(size=N)
COUNTS = RNG.poisson(3.0, N).astype(float)
AMOUNTS = np.where(RNG.uniform(size=N) < 0.3, 0.0, np.exp(NORMAL))
REAL = ("student_t", "skew", "mixture")
INFLATED = ("poisson", "negative_binomial", "zero_inflated_poisson", "zero_inflated_negative_binomial")
CASES = [
    ("any numbers", NORMAL, "numbers", REAL),
    ("heavy tails", RNG.standard_t(2, N), "heavy tails", REAL),
    ("prices", np.exp(NORMAL), "positive and skewed", ("lognormal", "gamma", *REAL)),
    ("large whole prices", np.round(np.exp(NORMAL + 12.0)), "positive and skewed", ("lognormal", "gamma", *REAL)),
    ("positive, not skewed", 20.0 + NORMAL, "numbers", REAL),
    ("shares", 1.0 / (1.0 + np.exp(-NORMAL)), "between 0 and 1", ("beta", *REAL)),
    ("a few thousandths", 1e-3 * (2.0 + np.tanh(NORMAL)), "numbers", REAL),
    ("shares with a bound", np.clip(0.9 + 0.1 * NORMAL, 0.0, 1.0), "numbers", REAL),
    ("amounts", AMOUNTS, "zero in", ("hurdle_lognormal", "hurdle_gamma")),
    ("counts", COUNTS, "whole numbers from zero on", INFLATED[:2]),
    ("counts with more zeros", np.where(NORMAL > 0.0, 0.0, COUNTS), "whole numbers from zero on", INFLATED),
    ("counts of many values", RNG.poisson(np.exp(NORMAL + 4.0)).astype(float), "whole", (*INFLATED[:2], *REAL)),
    ("grades", np.clip(np.round(3.0 + NORMAL), 1, 5), "5 different", ("ordinal", *INFLATED[:2])),
    ("signed grades", np.clip(np.round(NORMAL), -2, 2), "5 different", ("ordinal",)),
    ("yes and no", (NORMAL > 0.0).astype(float), "2 different", ("ordinal",)),
    ("a grade that few rows have", np.r_[np.ones(200), np.full(200, 2.0), 3.0], "whole", INFLATED[:2]),
    ("few rows", NORMAL[:49], "too few", ()),
    ("one value", np.ones(N), "too few", ()),
]


def test_the_rule_recognizes_each_kind_of_response():
    for name, y, words, families in CASES:
        found = recognize(y)
        assert words in found.kind, (name, found)
        assert found.families == families, (name, found)


def test_each_family_takes_what_is_recognized():
    for name, y, _, families in CASES:
        for family in families:
            kind = _registry.likelihood[family]
            response = kind.for_response(kind.check(y)).learn(y, np.arange(len(y)))
            assert np.allclose(response.decode(response.encode(y)), y, rtol=1e-5), (name, family)


class Normal:
    """A predictive distribution that is the same in all rows."""

    def __init__(self, scale):
        self.known = stats.norm(2.0, scale)

    def log_prob(self, y):
        return self.known.logpdf(y)

    def cdf(self, y):
        return self.known.cdf(y)


@pytest.mark.filterwarnings("ignore:divide by zero")
def test_cells_compare_probabilities():
    y = np.arange(6.0)
    for scale in (0.5, 3.0):
        found = Cells(1.0, lowest=0.0, highest=5.0).log_scores(Normal(scale), y)
        assert np.exp(found).sum() == pytest.approx(1.0), "the cells are all there is"
        open_ended = np.exp(Cells(1.0, lowest=0.0).log_scores(Normal(scale), np.arange(60.0)))
        assert open_ended.sum() == pytest.approx(1.0)
    assert np.array_equal(Cells().log_scores(Normal(1.0), y), stats.norm(2.0, 1.0).logpdf(y))
    far = Cells(0.1).log_scores(Normal(1.0), y + 50.0)[0]
    assert far == pytest.approx(stats.norm(2.0, 1.0).logpdf(50.0) + np.log(0.1))


def test_zeros_are_compared_by_a_probability_and_other_amounts_by_a_density():
    found = Cells(zero=0.5).log_scores(Normal(1.0), np.array([0.0, 3.0]))
    assert found == pytest.approx([stats.norm(2.0, 1.0).logcdf(0.5), stats.norm(2.0, 1.0).logpdf(3.0)])
