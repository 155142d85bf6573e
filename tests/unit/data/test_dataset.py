"""Standardization learned on training rows only, splits that are fixed and fair, and arrays taken as they are."""

import tracemalloc

import numpy as np
import pytest

from mile import Categorical, Dataset, Gaussian
from mile.data import prepare, split_rows
from mile.features import numbers
from mile.features.frame import Frame
from mile.features.numbers import Standardizer
from mile.features.table import TableEncoder


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    return rng.normal(3.0, 2.0, size=(200, 4)), rng.normal(-5.0, 0.1, size=200)


class TestStandardizer:
    def test_mean_and_standard_deviation_are_numpys(self, table):
        x, _ = table
        learned = Standardizer.learn(x)
        np.testing.assert_allclose(learned.shift, x.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(learned.scale, x.std(axis=0), rtol=1e-12)

    def test_applying_gives_zero_mean_unit_variance_in_float32(self, table):
        x, _ = table
        standardized = Standardizer.learn(x).apply(x)
        assert standardized.dtype == np.float32
        np.testing.assert_allclose(standardized.mean(axis=0), 0.0, atol=1e-6)
        np.testing.assert_allclose(standardized.std(axis=0), 1.0, rtol=1e-6)

    @pytest.mark.parametrize("value", [0.0, 0.1, -7.3, 1e-300, 1e300, 1e15 + 0.3])
    @pytest.mark.parametrize("n_rows", [1, 2, 3, 1000])
    def test_constant_column_has_scale_one_and_becomes_zero(self, value, n_rows):
        column = np.full((n_rows, 1), value)
        learned = Standardizer.learn(column)
        assert learned.scale == 1.0
        np.testing.assert_allclose(learned.apply(column), 0.0, atol=1e-6)

    @pytest.mark.parametrize("power", [-300, -200, -30, 30, 150, 300])
    def test_tiny_and_huge_columns_neither_underflow_nor_overflow(self, table, power):
        x, _ = table
        plain = Standardizer.learn(x).apply(x)
        scaled = x * 10.0**power
        np.testing.assert_allclose(Standardizer.learn(scaled).apply(scaled), plain, rtol=1e-5, atol=1e-6)

    def test_large_offset_keeps_the_variation(self, table):
        x, _ = table
        shifted = 1e12 * x + 1e15
        np.testing.assert_allclose(
            Standardizer.learn(shifted).apply(shifted), Standardizer.learn(x).apply(x), rtol=1e-4, atol=1e-5
        )

    def test_rows_far_out_stay_finite(self):
        learned = Standardizer(shift=np.zeros(1), scale=np.full(1, 1e-30))
        standardized = learned.apply(np.array([[1e300], [-1e300]]))
        assert np.isfinite(standardized).all()
        assert standardized[0] > 0 > standardized[1]

    @pytest.mark.parametrize("cells", [1, 4, 99, 400])
    def test_blocks_change_nothing_but_rounding(self, table, cells, monkeypatch):
        x, _ = table
        rows = np.arange(0, 200, 3)
        whole = Standardizer.learn(x, rows)
        monkeypatch.setattr(numbers, "_BLOCK_CELLS", cells)
        blocks = Standardizer.learn(x, rows)
        np.testing.assert_allclose(blocks.shift, whole.shift, rtol=1e-14)
        np.testing.assert_allclose(blocks.scale, whole.scale, rtol=1e-14)
        np.testing.assert_array_equal(whole.apply(x, rows), whole.apply(x)[rows])

    def test_identity_changes_nothing(self, table):
        x, y = table
        np.testing.assert_array_equal(Standardizer.identity(4).apply(x), x.astype(np.float32))
        np.testing.assert_array_equal(Standardizer.identity().apply(y), y.astype(np.float32))


class TestPrepare:
    def test_scales_come_from_the_training_rows_only(self, table):
        x, y = table
        validation = split_rows(200, 0.25, 0)
        changed_x, changed_y = x.copy(), y.copy()
        changed_x[validation] = 1e6
        changed_y[validation] = -1e6
        before = prepare(x, y, Gaussian(), validation_fraction=0.25, seed=0)
        after = prepare(changed_x, changed_y, Gaussian(), validation_fraction=0.25, seed=0)
        np.testing.assert_array_equal(before.encoder.shift, after.encoder.shift)
        np.testing.assert_array_equal(before.encoder.scale, after.encoder.scale)
        np.testing.assert_array_equal(before.response.scale.shift, after.response.scale.shift)
        np.testing.assert_array_equal(before.response.scale.scale, after.response.scale.scale)
        np.testing.assert_array_equal(before.x_train, after.x_train)
        np.testing.assert_array_equal(before.y_train, after.y_train)
        np.testing.assert_allclose(before.encoder.shift, x[~validation].mean(axis=0))
        np.testing.assert_allclose(before.response.scale.scale, y[~validation].std())

    def test_every_row_is_used_exactly_once_in_its_order(self, table):
        x, y = table
        dataset = prepare(x, y, Gaussian(), validation_fraction=0.25, seed=3)
        validation = split_rows(200, 0.25, 3)
        scale = dataset.encoder
        np.testing.assert_allclose(dataset.x_train * scale.scale + scale.shift, x[~validation], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(dataset.x_valid * scale.scale + scale.shift, x[validation], rtol=1e-5, atol=1e-5)
        assert len(dataset.y_train) + len(dataset.y_valid) == 200

    def test_class_codes_are_not_standardized(self, table):
        x, _ = table
        codes = np.arange(200) % 3
        dataset = prepare(x, codes, Categorical(3), seed=0)
        assert dataset.y_train.dtype == np.int32
        np.testing.assert_array_equal(np.unique(dataset.y_train), [0, 1, 2])
        assert dataset.response.labels.tolist() == [0, 1, 2]

    def test_same_seed_same_split_another_seed_another(self, table):
        x, y = table
        first, second, third = (prepare(x, y, Gaussian(), seed=seed) for seed in (0, 0, 1))
        np.testing.assert_array_equal(first.x_train, second.x_train)
        assert first.x_train.shape == third.x_train.shape
        assert not np.array_equal(first.x_valid, third.x_valid)

    def test_single_precision_is_treated_as_its_values_in_double(self, table):
        single = [array.astype(np.float32) for array in table]
        one, other = (
            prepare(*arrays, Gaussian(), seed=0) for arrays in (single, [array.astype(np.float64) for array in single])
        )
        for name in ("x_train", "y_train", "x_valid", "y_valid"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        np.testing.assert_array_equal(one.encoder.scale, other.encoder.scale)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_needs_little_memory_beyond_its_result(self, dtype):
        x = np.ones((200_000, 20), dtype)
        x[::2] = 0.0
        y = x[:, 0].copy()
        tracemalloc.start()
        dataset = prepare(x, y, Gaussian(), seed=0)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        result = dataset.x_train.nbytes + dataset.x_valid.nbytes
        assert result == 16e6
        assert peak < 1.75 * result

    def test_everything_handed_on_is_float32(self, table):
        dataset = prepare(*table, Gaussian(), seed=0)
        assert {array.dtype for array in (dataset.x_train, dataset.y_train, dataset.x_valid, dataset.y_valid)} == {
            np.dtype(np.float32)
        }


class TestSplit:
    @pytest.mark.parametrize("fraction", [0.05, 0.125, 0.3, 0.5, 0.9])
    @pytest.mark.parametrize("n_rows", [20, 33, 200, 1001])
    def test_fraction_is_met_to_a_row(self, n_rows, fraction):
        assert abs(split_rows(n_rows, fraction, 0).sum() - fraction * n_rows) <= 0.5

    @pytest.mark.parametrize("n_rows", [1, 2, 19])
    def test_under_twenty_rows_there_is_no_validation_part(self, n_rows):
        assert not split_rows(n_rows, 0.5, 0).any()
        x = np.random.default_rng(0).normal(size=(n_rows, 2))
        assert len(prepare(x, x[:, 0], Gaussian(), validation_fraction=0.5, seed=0).x_valid) == 0

    def test_at_twenty_rows_there_is_one(self):
        assert split_rows(20, 0.125, 0).sum() == 2

    def test_fraction_zero_sets_nothing_aside(self):
        assert not split_rows(1000, 0.0, 0).any()

    def test_split_depends_on_the_seed_only(self):
        np.testing.assert_array_equal(split_rows(100, 0.2, 7), split_rows(100, 0.2, 7))
        assert not np.array_equal(split_rows(100, 0.2, 7), split_rows(100, 0.2, 8))

    def test_rows_are_chosen_evenly_over_many_seeds(self):
        share = np.mean([split_rows(40, 0.25, seed) for seed in range(2000)], axis=0)
        # Binomial standard deviation of one share is 0.0097; 5 of them.
        assert np.abs(share - 0.25).max() < 0.049

    @pytest.mark.parametrize("fraction", [0.1, 0.25, 0.5])
    def test_each_class_gives_its_share(self, fraction):
        classes = np.random.default_rng(0).permutation(np.repeat([0, 1, 2], [300, 100, 20]))
        validation = split_rows(len(classes), fraction, 0, classes)
        for code, count in enumerate(np.bincount(classes)):
            assert abs(validation[classes == code].sum() - fraction * count) <= 2

    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("fraction", [0.125, 0.9])
    def test_no_class_is_in_the_validation_rows_only(self, fraction, seed):
        classes = np.concatenate([np.zeros(40, int), np.arange(30)])  # thirty classes, most with one example
        validation = split_rows(len(classes), fraction, seed, classes)
        assert validation.any()
        assert set(classes[validation]) <= set(classes[~validation])
        assert set(classes[~validation]) == set(range(30))

    def test_classes_with_one_example_each_are_all_trained_on(self):
        assert not split_rows(50, 0.5, 0, np.arange(50)).any()


class TestFromArrays:
    def test_arrays_are_taken_as_they_are(self):
        x, y = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([10.0, 20.0])
        dataset = Dataset.from_arrays(x, y, 2 * x, 2 * y)
        np.testing.assert_array_equal(dataset.x_train, x)
        np.testing.assert_array_equal(dataset.y_valid, 2 * y)
        assert dataset.n_features == 2
        assert dataset.x_train.dtype == dataset.y_train.dtype == np.float32

    def test_integers_are_class_codes(self):
        assert Dataset.from_arrays(np.zeros((2, 1)), np.array([0, 1])).y_train.dtype == np.int32

    def test_validation_rows_may_be_left_out(self):
        dataset = Dataset.from_arrays(np.zeros((2, 3)), np.zeros(2))
        assert dataset.x_valid.shape == (0, 3)
        assert dataset.y_valid.shape == (0,)

    @pytest.mark.parametrize(
        ("arrays", "message"),
        [
            ((np.zeros(3), np.zeros(3)), "x_train must have shape"),
            ((np.zeros((3, 0)), np.zeros(3)), "x_train must have shape"),
            ((np.zeros((3, 2)), np.zeros(4)), "x_train must have shape"),
            ((np.zeros((3, 2)), np.zeros((3, 1))), "y_train shape"),
            ((np.zeros((0, 2)), np.zeros(0)), "x_train has no rows"),
            ((np.zeros((3, 2)), np.zeros(3), np.zeros((1, 2))), "x_valid and y_valid must be given together"),
            ((np.zeros((3, 2)), np.zeros(3), None, np.zeros(1)), "x_valid and y_valid must be given together"),
            ((np.zeros((3, 2)), np.zeros(3), np.zeros((1, 3)), np.zeros(1)), "x_valid has 3 columns"),
            ((np.full((3, 2), np.nan), np.zeros(3)), "x_train and y_train must be finite"),
            ((np.zeros((3, 2)), np.full(3, np.inf)), "x_train and y_train must be finite"),
            ((np.zeros((3, 2)), np.zeros(3), np.full((1, 2), -np.inf), np.zeros(1)), "x_valid and y_valid must be"),
        ],
    )
    def test_what_cannot_be_used_is_refused_with_a_reason(self, arrays, message):
        with pytest.raises(ValueError, match=message):
            Dataset.from_arrays(*arrays)

    def test_values_beyond_float32_are_refused(self):
        with pytest.raises(ValueError, match="finite in float32"):
            Dataset.from_arrays(np.full((2, 1), 1e300), np.zeros(2))


def test_an_encoding_by_the_response_shows_no_training_row_its_own():
    rng = np.random.default_rng(0)
    y = rng.standard_normal(400)  # noise, which pairs of rows know nothing of
    x = {"pair": [f"pair {place}" for place in np.arange(400) // 2]}
    encoder = TableEncoder(most_levels=30, fewest_rows=1)
    dataset = prepare(Frame.of(x), y, Gaussian(), encoder, seed=0)
    leaking = encoder.fit(x, dataset.train.number, y=y).transform(x, dataset.train.number)
    assert abs(np.corrcoef(leaking[:, 0], dataset.y_train)[0, 1]) > 0.5
    assert abs(np.corrcoef(dataset.x_train[:, 0], dataset.y_train)[0, 1]) < 0.2
