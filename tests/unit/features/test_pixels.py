"""The common scale of pixels."""

import numpy as np

from mile import PixelScale


def test_images_of_one_gray_have_a_scale_that_is_no_division_by_zero():
    gray = np.full((2, 4), 3.0)
    learned = PixelScale().fit(gray)
    assert (learned.low, learned.high) == (3.0, 4.0)
    np.testing.assert_array_equal(learned.transform(gray), 0.0)
