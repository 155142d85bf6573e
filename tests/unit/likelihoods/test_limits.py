"""Responses with limits: every form in which users have them, and the rows that are refused."""

import numpy as np
import pytest

import mile
from mile.likelihoods.censored import CensoredResponse
from mile.likelihoods.limits import LIMITS, limits_of, split

SKSURV = [("cens", "?"), ("time", "<f8")]  # the type of scikit-survival's arrays


def survival(*rows):
    return np.array(list(rows), SKSURV)


def test_every_form_gives_both_ends():
    assert limits_of(survival((True, 3.0), (False, 5.0))).tolist() == [(3.0, 3.0), (5.0, np.inf)]
    assert limits_of(np.array([3.0, -1.0])).tolist() == [(3.0, 3.0), (-1.0, -1.0)]
    words = mile.censored([1, 2, 3], ["none", "right", "left"])
    assert words.tolist() == [(1.0, 1.0), (2.0, np.inf), (-np.inf, 3.0)]
    assert words.dtype == LIMITS
    ends = mile.censored([1.0, 2.0, -np.inf], [1.5, np.inf, 4.0])
    assert ends.tolist() == [(1.0, 1.5), (2.0, np.inf), (-np.inf, 4.0)]
    assert limits_of(ends).tolist() == ends.tolist()
    assert split(ends).points.tolist() == [1.25, 2.0, 4.0]


def test_impossible_rows_are_refused_by_row_and_reason():
    counted = np.array([(1, 3.0), (0, 4.0)], [("status", "i8"), ("time", "f8")])
    numbers = np.array([(1.0, 3.0, 2.0)], [("a", "f8"), ("b", "f8"), ("c", "f8")])
    cases = [
        (lambda: limits_of(counted), r"boolean.*'status' has 1 in row 0.*y\['status'\] == 1"),
        (lambda: limits_of(survival((True, 3.0), (True, -2.0))), r"row 1 is negative: -2"),
        (lambda: limits_of(survival((True, np.nan), (True, 2.0))), r"row 0 is NaN"),
        (lambda: limits_of(survival((True, 1.0), (False, np.inf))), r"row 1 is infinite"),
        (lambda: limits_of(numbers), r"fields \(boolean event, time\).*'a', 'b', 'c'"),
        (lambda: limits_of(np.array([1.0, np.nan])), r"row 1 has: nan"),
        (lambda: mile.censored([1.0, 3.0], [2.0, 2.5]), r"row 1 has 3 and 2.5 \(1 such rows\)"),
        (lambda: mile.censored([1.0, np.nan], ["none", "none"]), r"NaN in row 1"),
        (lambda: mile.censored([1.0, 2.0], [2.0, np.nan]), r"an end of row 1 is NaN"),
        (lambda: mile.censored([1.0, -np.inf], [2.0, np.inf]), r"row 1 has no finite end"),
        (lambda: mile.censored([1.0], ["upper"]), r"one of \['none', 'right', 'left'\].*row 0 is: upper"),
        (lambda: mile.censored([1.0, 2.0], [True, False]), r"must not be True or False"),
        (lambda: mile.censored([1.0, 2.0], ["none"]), r"one entry for each of the 2 rows"),
        (lambda: mile.censored(["a"], ["none"]), r"one number for each row"),
    ]
    for refused, message in cases:
        with pytest.raises(ValueError, match=message):
            refused()


def test_values_that_a_family_cannot_have_are_refused_by_row():
    everything = np.arange(3)
    zero = survival((True, 1.0), (False, 0.0), (True, 0.0))
    with pytest.raises(ValueError, match=r"at 0 in row 2 .*a Weibull is of numbers above zero.*half the unit"):
        mile.Censored(family=mile.Weibull()).learn(limits_of(zero), everything)
    below = mile.censored([2.0, -3.0, 1.0], ["none", "left", "none"])
    with pytest.raises(ValueError, match=r"at -3 in row 1"):
        mile.Censored().learn(below, everything)
    with pytest.raises(ValueError, match="at least one event"):
        mile.Censored().learn(mile.censored([2.0, 3.0, 1.0], ["right"] * 3), everything)
    with pytest.raises(ValueError, match=r"family must be one of \['gaussian', 'log_logistic', 'lognormal', 'weibull'"):
        mile.Censored(family=mile.Gamma())


def test_encoding_keeps_limits_up_to_float32():
    y = mile.censored([30.0, 20.0, 0.0, 8.0, 0.0], [30.0, np.inf, 25.0, 16.0, np.inf])
    likelihood = mile.Censored(family=mile.LogNormal())
    response = likelihood.learn(y, np.arange(5))
    encoded = response.encode(y)
    assert encoded.dtype == np.float32
    assert np.isfinite(encoded).all()
    likelihood.check_encoded(encoded, "y_train")
    decoded = response.decode(encoded)
    # A lower end of zero says nothing of a positive number.
    np.testing.assert_allclose(decoded["lower"], [30.0, 20.0, -np.inf, 8.0, -np.inf], rtol=1e-6)
    np.testing.assert_allclose(decoded["upper"], [30.0, np.inf, 25.0, 16.0, np.inf], rtol=1e-6)
    again = likelihood.restore_response(response.tensors())
    assert isinstance(again, CensoredResponse)
    np.testing.assert_array_equal(again.encode(y), encoded)
    assert response.usable(survival((True, 3.0), (True, -1.0))).tolist() == [True, False]
    with pytest.raises(ValueError, match="two limits for each row"):
        likelihood.check_encoded(encoded[:, 0], "y_train")
    with pytest.raises(ValueError, match=r"impossible limits.* in row 1"):
        likelihood.check_encoded(np.array([[1.0, 2.0], [3.0, 1.0]], np.float32), "y_train")
