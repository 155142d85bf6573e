"""Ordered grades: probabilities, quantiles on the grades, scores, what is learned of y, what is refused."""

import families
import numpy as np
import pytest
from scipy.special import expit

from mile import MileClassifier, MileRegressor, OrderedClasses, Ordinal
from mile.likelihoods.weights import EQUAL

GRADES = (0.0, 1.0, 2.0, 3.0, 4.0)
CUTS = (-2.0, -0.5, 0.5, 3.0)


class Mixture:
    n_draws = 3
    weights = EQUAL


@pytest.fixture(scope="module")
def likelihood():
    return Ordinal(grades=GRADES, cuts=CUTS)


@pytest.fixture(scope="module")
def components(likelihood):
    return likelihood.components(families.random_outputs(likelihood))


def test_probabilities_samples_and_gradients_agree(likelihood, components):
    y = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 0.0, 4.0])
    outputs = families.random_outputs(likelihood)
    families.check_samples_have_the_moments(components, 10_000)
    families.check_compiled_density(likelihood, outputs, y)
    families.check_gradients(likelihood, outputs, y)
    families.check_finite_far_out(likelihood, y)
    np.testing.assert_allclose(np.exp(components.log_probs).sum(axis=0), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(components.log_prob(y + 0.5), -np.inf)


def test_one_output_moves_all_thresholds_and_others_stretch_them(likelihood):
    outputs = np.zeros((1, 4, 3))
    outputs[0, 0] = [-1.0, 0.0, 2.0]
    reached = np.cumsum(np.exp(likelihood.components(outputs).log_probs[:, 0]), axis=0)
    np.testing.assert_allclose(reached[:-1], expit(np.array(CUTS)[:, None] - outputs[0, 0]), rtol=1e-3)
    outputs[0, 3] = [-50.0, 0.0, 50.0]
    last = likelihood.components(outputs).log_probs[:, 0]
    assert last[3, 0] < np.log(0.01) < last[3, 1] < last[3, 2]


def test_quantiles_are_the_smallest_grades_that_reach_their_level(components):
    evaluate = components.evaluator(Mixture())
    for level in (1e-6, 0.1, 0.5, 0.9, 1.0 - 1e-9):
        found = components.solve(evaluate, components.spread, (components.mean[0], components.std[0]), level)
        assert np.isin(found, GRADES).all()
        assert np.all(components.cdf(found).mean(axis=0) >= level - 1e-12)
        assert np.all(components.cdf_below(found).mean(axis=0) < level)
        alone = components.quantile(level)
        assert np.all(families.cdf_of_each(components, alone) >= level - 1e-12)
        assert np.all(families.cdf_of_each(components, alone - 1.0) < level)


def test_the_score_is_the_sum_of_squares_over_gaps():
    likelihood = Ordinal(grades=(1.0, 1.5, 4.0))
    components = likelihood.components(families.random_outputs(likelihood, 5, 3))
    y = np.array([1.0, 1.5, 4.0, 7.0, 3.0])  # the last two are no grades
    cdf = [components.cdf(np.full(5, grade)).mean(axis=0) for grade in (1.0, 1.5)]
    every = np.linspace(1.0, 7.0, 6_001)[:-1] + 5e-4
    whole = np.array([np.where(x < 1.5, cdf[0], np.where(x < 4.0, cdf[1], 1.0)) for x in every])
    expected = np.square(whole - (every[:, None] >= y)).sum(axis=0) * 1e-3
    np.testing.assert_allclose(components.crps(components.evaluator(Mixture()), y), expected, atol=1e-3)


def test_parameters_of_simulated_grades_are_recovered(likelihood):
    """Within 4.5 standard errors; a correct program fails once in ten thousand runs with other seeds."""
    families.check_parameters_are_recovered(likelihood, np.array([0.3, 0.2, -0.3, 0.4]))


def test_thresholds_begin_at_the_shares_of_the_grades():
    codes = np.repeat([0, 1, 3], [100, 300, 600]).astype(np.float32)
    fitted = Ordinal(grades=(1.0, 2.0, 3.0, 5.0)).fitted(codes)
    probs = np.exp(fitted.components(np.zeros((1, 3, 1))).log_probs[:, 0, 0])
    np.testing.assert_allclose(probs, [0.1, 0.3, 0.0, 0.6], atol=5e-3)
    assert fitted.fitted(codes[:500]) is fitted


def test_grades_are_encoded_by_their_order():
    response = Ordinal(grades=(-1.0, 0.1, 8.0)).learn(np.array([8.0, 0.1]), np.arange(2))
    np.testing.assert_array_equal(response.encode(np.array([8.0, -1.0, 0.1])), [2.0, 0.0, 1.0])
    np.testing.assert_array_equal(response.decode(np.array([2.0, 0.0, 1.0], np.float32)), [8.0, -1.0, 0.1])
    np.testing.assert_array_equal(response.usable([0.1, 7.0, np.nan]), [True, False, False])


def test_other_grades_are_refused_with_row():
    x, y = np.arange(10.0).reshape(5, 2), np.array([1.0, 2.0, 6.0, 1.0, 3.0])
    with pytest.raises(ValueError, match=r"y has 6 in row 2 \(1 such rows\), which is none of the grades 1, 2, 3"):
        MileRegressor(likelihood=Ordinal(grades=(1.0, 2.0, 3.0))).fit(x, y)
    with pytest.raises(ValueError, match="y has only the value 3, in all rows"):
        MileRegressor(likelihood="ordinal").fit(x, np.full(5, 3.0))
    with pytest.raises(ValueError, match=r"y has 101 different values.*at most 100 grades"):
        Ordinal.check(np.arange(101.0))
    with pytest.raises(ValueError, match="y_train has 3 in row 1; with 3 grades the codes are 0 to 2"):
        Ordinal(grades=(1.0, 2.0, 3.0)).check_encoded(np.array([0.0, 3.0], np.float32), "y_train")


def test_settings_are_checked():
    for wrong in ((1.0,), (2.0, 1.0), (1.0, np.nan), 3):
        with pytest.raises(ValueError, match="grades"):
            Ordinal(grades=wrong)
    for wrong in ((0.0,), (1.0, 0.0), (0.0, 1.0, 2.0)):
        with pytest.raises(ValueError, match="cuts must be 2 numbers in ascending order"):
            Ordinal(grades=(1.0, 2.0, 3.0), cuts=wrong)
    with pytest.raises(ValueError, match="cuts must be 1 numbers"):
        OrderedClasses(2, cuts=(0.0, 1.0))
    with pytest.raises(ValueError, match="likelihood must be for classification"):
        MileClassifier(likelihood="ordinal").fit(np.zeros((4, 1)), [0, 1, 0, 1])


def test_classes_in_order_have_the_probabilities_of_grades(likelihood):
    outputs = families.random_outputs(likelihood)
    classes = OrderedClasses(5, cuts=CUTS)
    expected = np.moveaxis(likelihood.components(outputs).log_probs, 0, 1)
    np.testing.assert_array_equal(classes.log_probs(outputs), expected)
    codes = np.array([0, 1, 2, 3, 4, 0, 4])
    found = [classes.log_prob(one.astype(np.float32), codes) for one in outputs]
    np.testing.assert_allclose(found, expected[:, codes, np.arange(7)], rtol=1e-4)
    assert classes.native_head() is None
    assert OrderedClasses(2).log_probs(np.zeros((1, 1, 3))).shape == (1, 2, 3)
    assert OrderedClasses(3).fitted(np.array([0, 0, 1, 2])).cuts is not None
    with pytest.raises(ValueError, match="without an order"):
        classes.with_softmax_twice()
