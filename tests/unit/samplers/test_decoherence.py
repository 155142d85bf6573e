"""The decoherence length: running moments, and L from them and from autocorrelation times."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.signal import lfilter

from mile.samplers._decoherence import (
    Moments,
    early_length,
    init_moments,
    length_from_autocorrelation,
    length_from_moments,
    update_moments,
)


def accumulate(positions, weights):
    """Take in all rows of `positions`, as the compiled loop of a phase does."""
    start = init_moments(jnp.asarray(positions[0]))
    steps = (jnp.asarray(positions), jnp.asarray(weights, positions.dtype))
    return jax.lax.scan(lambda moments, step: (update_moments(moments, *step), None), start, steps)[0]


def autoregressive(coefficient, n_draws, n_coordinates, seed=0):
    """Return stationary AR(1) chains (draw, coordinate) of variance 1; autocorrelation time (1 + c) / (1 - c)."""
    noise = np.random.default_rng(seed).standard_normal((n_draws + 500, n_coordinates))
    chains = lfilter([np.sqrt(1 - coefficient**2)], [1.0, -coefficient], noise, axis=0)
    return jnp.asarray(chains[500:], jnp.float32)


class TestMoments:
    @pytest.mark.parametrize("offset", [0.0, 1.0, 1e6])
    def test_equal_the_weighted_mean_and_variance(self, offset):
        """The spread is 1: squares summed in float32 would lose it entirely at an offset of 1e6."""
        rng = np.random.default_rng(0)
        positions = (offset + rng.standard_normal((2_000, 4))).astype(np.float32)
        weights = rng.uniform(0.1, 3.0, 2_000).astype(np.float32)
        moments = accumulate(positions, weights)
        exact = positions.astype(float)
        mean = np.average(exact, axis=0, weights=weights)
        variance = np.average(np.square(exact - mean), axis=0, weights=weights)
        assert float(moments.weight) == pytest.approx(weights.sum(dtype=float), rel=1e-5)
        # One unit of float32 at 1e6 is 1/16 of the spread; a running mean stands still half a spread away at worst.
        np.testing.assert_allclose(moments.mean, mean, atol=1e-4 + 8.0 * np.spacing(np.float32(offset)))
        np.testing.assert_allclose(moments.deviation / moments.weight, variance, rtol=1e-4 if offset < 1e6 else 0.2)

    def test_are_exact_in_float64(self):
        rng = np.random.default_rng(1)
        positions, weights = 1e6 + rng.standard_normal((500, 3)), rng.uniform(0.0, 2.0, 500)
        with jax.enable_x64(True):
            moments = accumulate(positions, weights)
            mean = np.average(positions, axis=0, weights=weights)
            variance = np.average(np.square(positions - mean), axis=0, weights=weights)
            np.testing.assert_allclose(moments.mean, mean, rtol=1e-14)
            np.testing.assert_allclose(moments.deviation / moments.weight, variance, rtol=1e-9)

    def test_weight_zero_changes_nothing(self):
        rng = np.random.default_rng(2)
        moments = accumulate(rng.standard_normal((10, 3)).astype(np.float32), np.ones(10))
        after = update_moments(moments, jnp.array([1e3, -1e3, 7.0]), jnp.float32(0.0))
        for old, new in zip(moments, after, strict=True):
            np.testing.assert_array_equal(old, new)

    def test_weight_zero_at_the_very_start_changes_nothing(self):
        start = init_moments(jnp.zeros(3))
        after = update_moments(start, jnp.array([5.0, 6.0, 7.0]), jnp.float32(0.0))
        for old, new in zip(start, after, strict=True):
            np.testing.assert_array_equal(old, new)

    def test_one_position_has_its_mean_and_no_variance(self):
        moments = update_moments(init_moments(jnp.zeros(2)), jnp.array([3.0, -4.0]), jnp.float32(0.7))
        np.testing.assert_array_equal(moments.mean, [3.0, -4.0])
        np.testing.assert_array_equal(moments.deviation, [0.0, 0.0])


class TestLengthFromMoments:
    def test_is_the_root_of_the_summed_variances(self):
        moments = Moments(jnp.float32(4.0), jnp.zeros(3), jnp.array([4.0, 12.0, 20.0]))
        assert length_from_moments(moments, jnp.float32(0.1)) == pytest.approx(3.0)

    def test_is_at_least_one_step(self):
        moments = Moments(jnp.float32(4.0), jnp.zeros(3), jnp.full(3, 1e-6))
        assert length_from_moments(moments, jnp.float32(0.1)) == pytest.approx(0.1)

    @pytest.mark.parametrize(
        "moments",
        [
            Moments(jnp.float32(0.0), jnp.zeros(2), jnp.zeros(2)),
            Moments(jnp.float32(1.0), jnp.zeros(2), jnp.array([jnp.inf, 1.0])),
            Moments(jnp.float32(1.0), jnp.zeros(2), jnp.array([jnp.nan, 1.0])),
        ],
        ids=["no observations", "infinite variance", "NaN"],
    )
    def test_falls_back_to_one_step_when_there_is_nothing_to_go_by(self, moments):
        assert length_from_moments(moments, jnp.float32(0.1)) == pytest.approx(0.1)


compiled_length = jax.jit(length_from_autocorrelation)


def measure(draws, thinning=1, step_size=0.1, previous=1e3, factor=0.4, n_draws=None):
    n_draws = len(draws) if n_draws is None else n_draws
    length, measured = compiled_length(draws, n_draws, thinning, jnp.float32(step_size), jnp.float32(previous), factor)
    return float(length), bool(measured)


class TestLengthFromAutocorrelation:
    @pytest.mark.parametrize(("coefficient", "thinning"), [(0.0, 1), (0.5, 3), (0.9, 1)])
    def test_is_proportional_to_the_known_autocorrelation_time(self, coefficient, thinning):
        """False failure: below 1e-4, by Student's distribution of the mean over 10 groups of 4 coordinates."""
        draws = autoregressive(coefficient, 5_000, 40)
        lengths = np.array([measure(draws[:, start : start + 4], thinning)[0] for start in range(0, 40, 4)])
        known = 0.4 * 0.1 * thinning * (1 + coefficient) / (1 - coefficient)
        # Geyer's estimate stops at noise that happens to be positive, so it is too large by a percent or two.
        standard_error = lengths.std(ddof=1) / np.sqrt(10)
        assert abs(lengths.mean() - known) < 0.02 * known + 7.0 * standard_error

    def test_is_the_mean_of_the_times_not_of_their_inverses(self):
        fast, slow = autoregressive(0.0, 5_000, 4), autoregressive(0.9, 5_000, 4)
        both = jnp.concatenate([fast[:, :2], slow[:, :2]], axis=1)
        other = jnp.concatenate([fast[:, 2:], slow[:, 2:]], axis=1)
        mean = 0.5 * (measure(fast)[0] + measure(slow)[0])
        assert 0.5 * (measure(both)[0] + measure(other)[0]) == pytest.approx(mean, rel=1e-5)

    @pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -2.7, 1e3 + 0.1])
    def test_a_frozen_coordinate_is_left_out(self, value):
        moving = autoregressive(0.5, 1_000, 2)
        frozen = jnp.full((1_000, 2), value, jnp.float32)
        length, measured = measure(jnp.concatenate([frozen, moving], axis=1))
        assert measured
        assert length == pytest.approx(measure(jnp.tile(moving, 2))[0], rel=1e-5)

    @pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -2.7, 1e3 + 0.1])
    def test_a_frozen_chain_keeps_the_previous_length(self, value):
        length, measured = measure(jnp.full((1_000, 4), value, jnp.float32), previous=2.5)
        assert not measured
        assert length == 2.5

    @pytest.mark.parametrize("n_draws", [1, 2, 3])
    def test_too_few_draws_keep_the_previous_length(self, n_draws):
        assert measure(autoregressive(0.5, 1_000, 4)[:n_draws], previous=2.5) == (2.5, False)

    @pytest.mark.parametrize("n_draws", [4, 61, 600])
    def test_room_that_is_not_used_does_not_count(self, n_draws):
        draws = autoregressive(0.5, n_draws, 4)
        padded = jnp.concatenate([draws, jnp.full((n_draws // 2, 4), 7.0)])
        assert measure(padded, n_draws=n_draws)[0] == pytest.approx(measure(draws)[0], rel=1e-5)

    def test_a_coordinate_with_nan_is_left_out(self):
        moving = jnp.tile(autoregressive(0.5, 1_000, 2), 2)
        broken = moving.at[10, :2].set(jnp.nan)
        assert measure(broken)[0] == pytest.approx(measure(moving)[0], rel=1e-5)

    def test_is_at_least_a_tenth_of_a_step(self):
        alternating = jnp.asarray((-1.0) ** np.arange(1_000), jnp.float32)[:, None]
        draws = alternating + 0.01 * autoregressive(0.0, 1_000, 4)
        length, measured = measure(draws, factor=0.1)
        assert measured
        assert length == pytest.approx(0.01)

    def test_is_at_most_ten_times_the_previous_length(self):
        draws = autoregressive(0.9, 1_000, 4)
        assert measure(draws)[0] > 0.6
        assert measure(draws, previous=0.05)[0] == pytest.approx(0.5)

    def test_may_be_one_step_even_if_the_previous_length_is_tiny(self):
        draws = autoregressive(0.9, 1_000, 4)
        assert measure(draws, previous=1e-6)[0] == pytest.approx(0.1)


def test_length_until_it_is_known_is_the_size_of_a_standard_normal_but_not_below_fifteen():
    """As the reference has it."""
    assert [early_length(dimension) for dimension in (2, 225, 10_000)] == [15.0, 15.0, 100.0]
