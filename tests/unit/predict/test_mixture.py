"""Predictive distributions against a plain float64 mixture, built from networks and draws without any fitting.

Weights and features are small multiples of 1/16, so that float32 computes the networks exactly and every
difference is one of the mixture.
"""

import tracemalloc

import numpy as np
import pytest
from models import class_predictive, number_predictive
from scipy import stats
from scipy.special import logsumexp, softmax

from mile import MLP
from mile.features.numbers import Standardizer

NETWORK = MLP(n_inputs=3, hidden=(5,), n_outputs=2)
CONSTANT = MLP(n_inputs=1, hidden=(), n_outputs=2)  # with zero weights only the bias, location and log scale, is left
LINEAR = MLP(n_inputs=2, hidden=(), n_outputs=3)
SHIFT, SCALE = -3.0, 2.5
N_DRAWS, N_ROWS = 40, 70
MEMORY = 100_000  # bytes; cuts the rows into blocks of about 20, the last one not full
LEVELS = [1e-6, 0.01, 0.2, 0.5, 0.9, 0.999, 1 - 1e-6]
CLASSES = np.array(["cat", "dog", "eel"])
SINGLE = 1e-6  # the native kernel exponentiates in single precision; sums are double


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def sixteenths(rng, *shape, sigma=1.0):
    return (np.round(16 * sigma * rng.standard_normal(shape)) / 16).astype(np.float32)


def scaler(shift=SHIFT, scale=SCALE):
    return Standardizer(shift=np.asarray(shift), scale=np.asarray(scale))


class Case:
    """A predictive of 70 rows and 40 draws, and the normal components of each row by plain numpy."""

    def __init__(self, rng):
        self.draws = sixteenths(rng, N_DRAWS, NETWORK.dimension, sigma=0.5)
        self.x = sixteenths(rng, N_ROWS, 3)
        first, first_bias, second, second_bias = np.split(self.draws.astype(float), [15, 20, 30], axis=1)
        hidden = np.maximum(self.x.astype(float) @ first.reshape(-1, 3, 5) + first_bias[:, None], 0.0)
        outputs = hidden @ second.reshape(-1, 5, 2) + second_bias[:, None]
        self.location = SHIFT + SCALE * outputs[..., 0]
        self.scale = SCALE * np.exp(outputs[..., 1])
        self.y = self.location.mean(axis=0) + self.scale.mean(axis=0) * rng.standard_normal(N_ROWS)

    def predictive(self, x=None, y_scale=None, memory=MEMORY):
        x = self.x if x is None else x
        return number_predictive(NETWORK, self.draws, x, y_scale or scaler(), memory)


@pytest.fixture
def case(rng):
    return Case(rng)


def mixture(locations, scales, n_rows=1, y_scale=None):
    """Give every row the same components."""
    draws = np.zeros((len(locations), CONSTANT.dimension), np.float32)
    draws[:, 2], draws[:, 3] = locations, np.log(scales)
    y_scale = y_scale or Standardizer.identity()
    return number_predictive(CONSTANT, draws, np.zeros((n_rows, 1), np.float32), y_scale)


def everything(predictive, y):
    """All deterministic results, one row each."""
    parts = [predictive.mean, predictive.std, predictive.aleatoric_std, predictive.epistemic_std]
    parts += [predictive.log_prob(y), predictive.cdf(y), *predictive.quantile(LEVELS).T, *predictive.interval(0.8).T]
    return np.stack(parts, axis=1)


class TestRegression:
    def test_moments_are_those_of_the_mixture_on_the_scale_of_y(self, case):
        predictive = case.predictive()
        aleatoric = np.sqrt((case.scale**2).mean(axis=0))
        epistemic = case.location.std(axis=0)
        np.testing.assert_allclose(predictive.mean, case.location.mean(axis=0), rtol=SINGLE)
        np.testing.assert_allclose(predictive.aleatoric_std, aleatoric, rtol=SINGLE)
        np.testing.assert_allclose(predictive.epistemic_std, epistemic, rtol=SINGLE)
        np.testing.assert_allclose(predictive.std, np.hypot(aleatoric, epistemic), rtol=SINGLE)

    def test_variance_is_the_sum_of_noise_and_ignorance(self, case):
        predictive = case.predictive()
        parts = predictive.aleatoric_std**2 + predictive.epistemic_std**2
        np.testing.assert_allclose(predictive.std**2, parts, rtol=1e-12)

    def test_log_density_is_that_of_the_mixture_on_the_scale_of_y(self, case):
        expected = logsumexp(stats.norm.logpdf(case.y, case.location, case.scale), axis=0) - np.log(N_DRAWS)
        np.testing.assert_allclose(case.predictive().log_prob(case.y), expected, rtol=1e-10, atol=1e-10)

    def test_cdf_is_the_mean_over_draws(self, case):
        expected = stats.norm.cdf(case.y, case.location, case.scale).mean(axis=0)
        np.testing.assert_allclose(case.predictive().cdf(case.y), expected, rtol=1e-10)

    def test_density_integrates_to_one_on_the_scale_of_y(self):
        grid = np.linspace(-60, 60, 20_001)
        predictive = mixture([0.0, 2.0], [0.5, 1.0], n_rows=len(grid), y_scale=scaler())
        assert np.trapezoid(np.exp(predictive.log_prob(grid)), grid) == pytest.approx(1.0, abs=1e-9)

    def test_a_network_with_arbitrary_weights_is_evaluated_to_float32(self, rng):
        network = MLP(n_inputs=3, hidden=(6,), n_outputs=2, activation="tanh")
        draws = rng.standard_normal((20, network.dimension)).astype(np.float32)
        x = rng.standard_normal((9, 3)).astype(np.float32)
        first, first_bias, second, second_bias = np.split(draws.astype(float), [18, 24, 36], axis=1)
        hidden = np.tanh(x.astype(float) @ first.reshape(-1, 3, 6) + first_bias[:, None])
        location = (hidden @ second.reshape(-1, 6, 2) + second_bias[:, None])[..., 0]
        predictive = number_predictive(network, draws, x, Standardizer.identity())
        np.testing.assert_allclose(predictive.mean, location.mean(axis=0), atol=1e-5)

    def test_every_result_is_float64_with_one_entry_per_row(self, case):
        predictive = case.predictive()
        assert len(predictive) == N_ROWS
        for result in [predictive.mean, predictive.std, predictive.log_prob(case.y), predictive.cdf(case.y)]:
            assert (result.shape, result.dtype) == ((N_ROWS,), np.float64)
        assert predictive.interval().shape == (N_ROWS, 2)

    def test_twice_the_same_bits_without_random_numbers(self, case):
        state = np.random.get_state()[1].copy()  # noqa: NPY002
        first = everything(case.predictive(), case.y)
        np.testing.assert_array_equal(everything(case.predictive(), case.y), first)
        np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002

    @pytest.mark.parametrize(("shift", "scale"), [(0.0, 1.0), (1e3, 10.0), (-5.0, 1e-6), (0.0, 1e6)])
    def test_results_follow_shift_and_scale_of_y(self, case, shift, scale):
        standard = case.predictive(y_scale=Standardizer.identity())
        moved = case.predictive(y_scale=scaler(shift, scale))
        z = (case.y - SHIFT) / SCALE
        y = shift + scale * z
        close = {"rtol": 1e-9, "atol": 1e-9 * scale}
        np.testing.assert_allclose(moved.mean, shift + scale * standard.mean, **close)
        np.testing.assert_allclose(moved.std, scale * standard.std, **close)
        np.testing.assert_allclose(moved.quantile(LEVELS), shift + scale * standard.quantile(LEVELS), **close)
        np.testing.assert_allclose(moved.sample(3, 0), shift + scale * standard.sample(3, 0), **close)
        np.testing.assert_allclose(moved.cdf(y), standard.cdf(z), atol=1e-8)
        np.testing.assert_allclose(moved.log_prob(y), standard.log_prob(z) - np.log(scale), rtol=1e-7, atol=1e-7)


class TestBlocks:
    @pytest.mark.parametrize("batch", [1, 17])
    def test_predictions_do_not_depend_on_the_batch(self, rng, batch):
        network = MLP(n_inputs=3, hidden=(8,), n_outputs=2, activation="tanh")
        draws = 0.5 * rng.standard_normal((30, network.dimension)).astype(np.float32)
        x = rng.standard_normal((100, 3)).astype(np.float32)

        def mean_and_std(rows):
            predictive = number_predictive(network, draws, x[rows], Standardizer.identity(), MEMORY)
            return np.stack([predictive.mean, predictive.std], axis=1)

        batches = [mean_and_std(slice(start, start + batch)) for start in range(0, 100, batch)]
        np.testing.assert_allclose(np.concatenate(batches), mean_and_std(slice(None)), atol=1e-5)

    def test_neighbors_change_no_bit_of_a_row(self, rng):
        network = MLP(n_inputs=3, hidden=(8,), n_outputs=2, activation="tanh")
        draws = rng.standard_normal((30, network.dimension)).astype(np.float32)
        x = rng.standard_normal((100, 3)).astype(np.float32)
        others = rng.standard_normal((100, 3)).astype(np.float32)
        others[::7] = x[::7]
        one, two = (number_predictive(network, draws, rows, Standardizer.identity(), MEMORY) for rows in (x, others))
        np.testing.assert_array_equal(one.mean[::7], two.mean[::7])
        np.testing.assert_array_equal(one.quantile(0.1)[::7], two.quantile(0.1)[::7])

    def test_row_order_and_subsets_only_reorder_the_results(self, rng, case):
        order = rng.permutation(N_ROWS)[:50]
        subset = everything(case.predictive(case.x[order]), case.y[order])
        np.testing.assert_allclose(subset, everything(case.predictive(), case.y)[order], rtol=1e-12)

    @pytest.mark.parametrize("memory", [0, 1, 50_000, 1 << 40])
    def test_memory_changes_no_number(self, case, memory):
        tight = everything(case.predictive(memory=memory), case.y)
        np.testing.assert_allclose(tight, everything(case.predictive(), case.y), rtol=1e-9)

    @pytest.mark.parametrize("memory", [1, 1 << 20, 1 << 27])
    def test_blocks_of_all_threads_together_fit_the_memory(self, monkeypatch, rng, memory):
        monkeypatch.setattr("os.cpu_count", lambda: 64)
        draws = rng.standard_normal((500, CONSTANT.dimension)).astype(np.float32)
        x = np.zeros((10, 1), np.float32)
        mixture = number_predictive(CONSTANT, draws, x, Standardizer.identity(), memory)._mixture
        used = mixture.backend.n_threads * mixture.block_rows * mixture.row_bytes
        assert used <= max(memory, mixture.row_bytes)  # one row in one thread is the least

    def test_memory_does_not_grow_with_the_number_of_rows(self, rng):
        n_rows = 200_000
        draws = sixteenths(rng, 200, CONSTANT.dimension, sigma=0.2)
        x = np.zeros((n_rows, 1), np.float32)
        y = np.zeros(n_rows)
        predictive = number_predictive(CONSTANT, draws, x, Standardizer.identity(), memory=1 << 20)
        tracemalloc.start()
        predictive.log_prob(y)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        # All components at once would take 640 MB; the standardized responses and the result take 3.2 MB.
        assert 3e6 < peak < 32e6

    def test_no_rows_give_empty_results(self, case):
        empty = case.predictive(case.x[:0])
        nothing = np.zeros(0)
        assert len(empty) == 0
        assert empty.mean.shape == empty.std.shape == empty.epistemic_std.shape == (0,)
        assert empty.log_prob(nothing).shape == empty.cdf(nothing).shape == empty.quantile(0.5).shape == (0,)
        assert empty.interval().shape == (0, 2)
        assert empty.quantile([0.1, 0.5, 0.9]).shape == (0, 3)
        assert empty.sample(4).shape == (4, 0)


class TestQuantile:
    def test_quantiles_invert_the_cdf(self, case):
        predictive = case.predictive()
        quantiles = predictive.quantile(LEVELS)
        assert quantiles.shape == (N_ROWS, len(LEVELS))
        for column, level in enumerate(LEVELS):
            plain = stats.norm.cdf(quantiles[:, column], case.location, case.scale).mean(axis=0)
            np.testing.assert_allclose(plain, level, atol=1e-8)
            np.testing.assert_allclose(predictive.cdf(quantiles[:, column]), level, atol=1e-8)

    @pytest.mark.parametrize(
        ("locations", "scales"),
        [
            ([-1.0, 1.0], [1e-3, 1e-3]),
            ([-1.0, 1.0], [1e-6, 1e-6]),
            ([-1.0, 1.0], [1e-6, 1.0]),
            ([0.0, 0.0, 0.0], [1e-6, 1.0, 1e3]),
            ([-5.0, -5.0, 0.0, 8.0], [1e-4, 1.0, 1e-2, 1e-4]),
            (np.linspace(-3, 3, 101), np.full(101, 1e-6)),
        ],
        ids=["narrow", "narrowest", "narrow-and-wide", "nested", "four", "comb"],
    )
    @pytest.mark.parametrize("level", [1e-6, 1e-3, 0.25, 0.4999, 0.5, 0.7, 0.999, 1 - 1e-6])
    def test_quantiles_of_narrow_and_separate_components_invert_the_cdf(self, locations, scales, level):
        predictive = mixture(locations, scales)
        assert predictive.cdf(predictive.quantile(level))[0] == pytest.approx(level, abs=1e-8)

    @pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
    def test_one_draw_has_the_quantiles_of_a_normal(self, scale):
        predictive = mixture([0.5], [scale])
        exact = np.exp(float(np.float32(np.log(scale))))
        np.testing.assert_allclose(
            predictive.quantile(LEVELS)[0], stats.norm.ppf(LEVELS, 0.5, np.clip(exact, 1e-6, 1e6)), rtol=1e-12
        )

    @pytest.mark.parametrize("shift", [0.0, 1e-3])
    def test_quantiles_of_a_response_of_size_1e_6_are_as_exact(self, case, shift):
        predictive = case.predictive(y_scale=scaler(shift, 1e-6))
        for level in LEVELS:
            np.testing.assert_allclose(predictive.cdf(predictive.quantile(level)), level, atol=1e-8)

    def test_quantiles_rise_with_the_level(self, case):
        levels = np.concatenate([[1e-6, 1e-5], np.linspace(1e-4, 1 - 1e-4, 99), [1 - 1e-5, 1 - 1e-6]])
        assert (np.diff(case.predictive().quantile(levels), axis=1) > 0).all()
        assert (np.diff(mixture([-1.0, 1.0], [1e-6, 1e-6]).quantile(levels), axis=1) > 0).all()

    def test_one_level_gives_one_number_a_row_and_a_list_gives_columns(self, case):
        predictive = case.predictive()
        assert predictive.quantile(0.3).shape == predictive.quantile(np.float64(0.3)).shape == (N_ROWS,)
        assert predictive.quantile([0.3]).shape == (N_ROWS, 1)
        np.testing.assert_array_equal(predictive.quantile([0.9, 0.3])[:, 1], predictive.quantile(0.3))

    @pytest.mark.parametrize("level", [1e-3, 0.5, 0.9, 0.9999])
    def test_interval_leaves_equal_tails_outside(self, case, level):
        predictive = case.predictive()
        lower, upper = predictive.interval(level).T
        np.testing.assert_allclose(predictive.cdf(lower), (1 - level) / 2, atol=1e-8)
        np.testing.assert_allclose(1 - predictive.cdf(upper), (1 - level) / 2, atol=1e-8)

    def test_default_interval_holds_nine_tenths(self, case):
        predictive = case.predictive()
        np.testing.assert_array_equal(predictive.interval(), predictive.interval(0.9))

    @pytest.mark.parametrize("q", [0, 1, -0.1, 1.5, np.nan, np.inf, [0.5, 1.0], [[0.1, 0.2]], None, []], ids=repr)
    def test_impossible_quantile_levels_are_refused_by_name(self, case, q):
        with pytest.raises(ValueError, match=r"^q must be one or more levels"):
            case.predictive().quantile(q)

    @pytest.mark.parametrize("level", [0, 1, -0.5, 2, np.nan, np.inf, True])
    def test_impossible_interval_levels_are_refused_by_name(self, case, level):
        with pytest.raises(ValueError, match="level must lie strictly between 0 and 1"):
            case.predictive().interval(level)


class TestSample:
    def test_samples_have_the_moments_of_the_mixture(self, case):
        predictive = case.predictive(case.x[:5])
        n = 20_000
        samples = predictive.sample(n, random_state=1)
        assert samples.shape == (n, 5)
        assert samples.dtype == np.float64
        assert (np.abs(samples.mean(axis=0) - predictive.mean) < 5.5 * predictive.std / np.sqrt(n)).all()
        location, scale = case.location[:, :5] - predictive.mean, case.scale[:, :5]
        fourth = (location**4 + 6 * location**2 * scale**2 + 3 * scale**4).mean(axis=0)
        error = np.sqrt((fourth - predictive.std**4) / n)
        assert (np.abs(samples.var(axis=0) - predictive.std**2) < 5.5 * error).all()

    def test_samples_fall_below_a_quantile_as_often_as_it_says(self, case):
        predictive = case.predictive()
        n = 5_000
        share = (predictive.sample(n, random_state=2) < predictive.quantile(0.2)).mean(axis=0)
        assert (np.abs(share - 0.2) < 5.5 * np.sqrt(0.16 / n)).all()

    def test_rows_are_drawn_independently(self):
        samples = mixture([-3.0, 3.0], [0.1, 0.1], n_rows=2).sample(4_000, random_state=0)
        assert abs(np.corrcoef(samples.T)[0, 1]) < 5.5 / np.sqrt(4_000)

    def test_random_state_reproduces(self, case):
        predictive = case.predictive()
        first = predictive.sample(3, random_state=5)
        np.testing.assert_array_equal(predictive.sample(3, random_state=5), first)
        np.testing.assert_array_equal(predictive.sample(3, random_state=np.int64(5)), first)
        assert (predictive.sample(3, random_state=6) != first).any()
        assert (predictive.sample(3) != predictive.sample(3)).any()

    def test_one_sample_is_the_default(self, case):
        assert case.predictive().sample().shape == (1, N_ROWS)

    @pytest.mark.parametrize("n", [0, -1, 1.5, 2.0, "3", None, True, np.nan])
    def test_impossible_numbers_of_samples_are_refused_by_name(self, case, n):
        with pytest.raises(ValueError, match="n must be an integer of at least 1"):
            case.predictive().sample(n)

    @pytest.mark.parametrize("random_state", [-1, 0.5, "seed"])
    def test_impossible_seeds_are_refused_by_name(self, case, random_state):
        with pytest.raises(ValueError, match="random_state"):
            case.predictive().sample(1, random_state)


@pytest.mark.parametrize("method", ["log_prob", "cdf"])
@pytest.mark.parametrize("shape", [(), (1,), (N_ROWS - 1,), (N_ROWS + 1,), (N_ROWS, 1), (1, N_ROWS), (0,)], ids=str)
def test_a_response_of_another_shape_is_refused_with_both_shapes(case, method, shape):
    with pytest.raises(ValueError, match=r"y must have one value per row, shape \(70,\); got shape"):
        getattr(case.predictive(), method)(np.zeros(shape))


class ClassCase:
    """Three classes by a linear network, and each draw's probabilities by plain numpy."""

    def __init__(self, rng):
        self.draws = sixteenths(rng, N_DRAWS, LINEAR.dimension)
        self.x = sixteenths(rng, N_ROWS, 2)
        weights, bias = np.split(self.draws.astype(float), [6], axis=1)
        logits = self.x.astype(float) @ weights.reshape(-1, 2, 3) + bias[:, None]
        self.per_draw = softmax(logits, axis=-1)  # (draw, row, class)
        self.probs = self.per_draw.mean(axis=0)
        self.codes = rng.integers(3, size=N_ROWS)

    def predictive(self, x=None, classes=CLASSES, memory=MEMORY):
        x = self.x if x is None else x
        return class_predictive(LINEAR, self.draws, x, classes, memory)


@pytest.fixture
def class_case(rng):
    return ClassCase(rng)


class TestClasses:
    def test_probabilities_are_the_mean_of_the_draws_softmax(self, class_case):
        probs = class_case.predictive().probs
        assert probs.dtype == np.float64
        np.testing.assert_allclose(probs, class_case.probs, rtol=SINGLE)
        np.testing.assert_allclose(probs.sum(axis=1), 1.0, rtol=1e-14)

    def test_labels_are_the_most_probable_classes_in_their_own_type(self, class_case):
        labels = class_case.predictive().labels
        np.testing.assert_array_equal(labels, CLASSES[class_case.probs.argmax(axis=1)])
        assert labels.dtype == CLASSES.dtype
        assert class_case.predictive(classes=np.array([-4, 0, 90])).labels.dtype == int

    def test_entropy_splits_into_noise_and_ignorance(self, class_case):
        predictive = class_case.predictive()
        entropy = -(class_case.probs * np.log(class_case.probs)).sum(axis=1)
        noise = -(class_case.per_draw * np.log(class_case.per_draw)).sum(axis=2).mean(axis=0)
        np.testing.assert_allclose(predictive.entropy, entropy, rtol=SINGLE)
        np.testing.assert_allclose(predictive.mutual_information, entropy - noise, atol=SINGLE)
        assert (predictive.mutual_information > 0).all()

    def test_identical_draws_know_nothing_more(self, class_case):
        class_case.draws[:] = class_case.draws[0]
        information = class_case.predictive().mutual_information
        assert (information >= 0).all()
        np.testing.assert_allclose(information, 0.0, atol=SINGLE)

    def test_certain_classes_have_no_entropy_and_no_missing_numbers(self):
        draws = np.zeros((2, LINEAR.dimension), np.float32)
        draws[:, -3] = 1e6
        predictive = class_predictive(LINEAR, draws, np.zeros((1, 2), np.float32), CLASSES)
        assert predictive.entropy[0] == predictive.mutual_information[0] == 0.0
        assert predictive.log_prob(["cat"])[0] == 0.0
        assert predictive.log_prob(["dog"])[0] == pytest.approx(-1e6)

    def test_log_probability_is_looked_up_by_label(self, class_case):
        expected = np.log(class_case.probs[np.arange(N_ROWS), class_case.codes])
        np.testing.assert_allclose(class_case.predictive().log_prob(CLASSES[class_case.codes]), expected, rtol=1e-10)

    def test_classes_may_come_in_any_order(self, class_case):
        classes = np.array(["eel", "cat", "dog"])
        expected = np.log(class_case.probs[np.arange(N_ROWS), class_case.codes])
        log_prob = class_case.predictive(classes=classes).log_prob(classes[class_case.codes])
        np.testing.assert_allclose(log_prob, expected, rtol=1e-10)

    @pytest.mark.parametrize(
        ("classes", "unknown"),
        [(CLASSES, "yak"), (CLASSES, "catfish"), (np.array([0, 1, 2]), 3), (np.array([0, 1, 2]), -1)],
        ids=str,
    )
    def test_an_unknown_label_is_refused_by_name(self, class_case, classes, unknown):
        y = classes[class_case.codes].astype(object)
        y[4] = unknown
        with pytest.raises(ValueError, match=f"label .*{unknown}.* not among"):
            class_case.predictive(classes=classes).log_prob(np.array(y.tolist()))

    @pytest.mark.parametrize("shape", [(), (N_ROWS - 1,), (N_ROWS, 1)], ids=str)
    def test_labels_of_another_shape_are_refused_with_both_shapes(self, class_case, shape):
        with pytest.raises(ValueError, match=r"y must have one label per row, shape \(70,\); got shape"):
            class_case.predictive().log_prob(np.full(shape, "cat"))

    def test_samples_have_the_frequencies_of_the_probabilities(self, class_case):
        n = 20_000
        predictive = class_case.predictive(class_case.x[:4])
        samples = predictive.sample(n, random_state=3)
        assert samples.shape == (n, 4)
        assert samples.dtype == CLASSES.dtype
        for code, label in enumerate(CLASSES):
            probs = predictive.probs[:, code]
            error = np.sqrt(probs * (1 - probs) / n)
            assert (np.abs((samples == label).mean(axis=0) - probs) < 5.5 * error).all()

    def test_random_state_reproduces(self, class_case):
        predictive = class_case.predictive()
        first = predictive.sample(5, random_state=0)
        np.testing.assert_array_equal(predictive.sample(5, random_state=0), first)
        assert (predictive.sample(5, random_state=1) != first).any()

    @pytest.mark.parametrize("n", [0, -1, 1.5, "3", None, True])
    def test_impossible_numbers_of_samples_are_refused_by_name(self, class_case, n):
        with pytest.raises(ValueError, match="n must be an integer of at least 1"):
            class_case.predictive().sample(n)

    @pytest.mark.parametrize("method", ["quantile", "interval", "cdf"])
    def test_asking_for_an_order_of_classes_points_to_the_probabilities(self, class_case, method):
        with pytest.raises(TypeError, match="`probs`"):
            getattr(class_case.predictive(), method)(0.5)

    def test_asking_for_the_default_interval_points_to_the_probabilities(self, class_case):
        with pytest.raises(TypeError, match="`probs`"):
            class_case.predictive().interval()

    def test_row_order_subsets_and_memory_change_no_number(self, rng, class_case):
        order = rng.permutation(N_ROWS)[:50]
        whole, part = class_case.predictive(), class_case.predictive(class_case.x[order], memory=0)
        np.testing.assert_allclose(part.probs, whole.probs[order], rtol=1e-12)
        np.testing.assert_allclose(part.mutual_information, whole.mutual_information[order], atol=1e-12)

    def test_no_rows_give_empty_results(self, class_case):
        empty = class_case.predictive(class_case.x[:0])
        assert len(empty) == 0
        assert empty.probs.shape == (0, 3)
        assert empty.labels.shape == empty.entropy.shape == empty.mutual_information.shape == (0,)
        assert empty.labels.dtype == CLASSES.dtype
        assert empty.log_prob(CLASSES[:0]).shape == (0,)
        assert empty.sample(2).shape == (2, 0)

    def test_a_thousand_classes_are_as_exact(self, rng):
        network = MLP(n_inputs=1, hidden=(), n_outputs=1000)
        draws, x = sixteenths(rng, 4, network.dimension), sixteenths(rng, 6, 1)
        weights, bias = np.split(draws.astype(float), 2, axis=1)
        probs = softmax(x.astype(float) * weights[:, None] + bias[:, None], axis=-1).mean(axis=0)
        classes = np.arange(1000) * 3 - 500
        predictive = class_predictive(network, draws, x, classes)
        np.testing.assert_allclose(predictive.probs, probs, rtol=SINGLE)
        np.testing.assert_allclose(predictive.log_prob(classes[:6]), np.log(probs[np.arange(6), np.arange(6)]))
        assert np.isin(predictive.sample(50, random_state=0), classes).all()
