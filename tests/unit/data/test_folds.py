"""Folds that rotate: their sizes, strata, groups and order, and which are refused."""

import numpy as np
import pytest
from cases import case

from mile import Categorical, Dataset, Gaussian
from mile.data import prepare
from mile.data.folds import rotating_folds


def test_have_nearly_the_same_size_and_depend_on_the_seed():
    for n_rows, n_folds in [(20, 4), (23, 4), (101, 3), (1_000, 12)]:
        with case((n_rows, n_folds)):
            sizes = np.bincount(rotating_folds(n_rows, n_folds, 0), minlength=n_folds)
            assert sizes.sum() == n_rows
            assert np.ptp(sizes) <= 1
    assert (rotating_folds(100, 4, 0) != rotating_folds(100, 4, 1)).any()
    np.testing.assert_array_equal(rotating_folds(100, 4, 5), rotating_folds(100, 4, 5))


def test_have_their_share_of_each_class():
    strata = np.repeat([0, 1, 2], [60, 30, 10])
    folds = rotating_folds(100, 5, 0, strata=strata)
    for label in range(3):
        assert np.ptp(np.bincount(folds[strata == label], minlength=5)) <= 1


def test_never_part_the_rows_of_a_group():
    groups = np.random.default_rng(0).integers(0, 30, 400)
    folds = rotating_folds(400, 4, 0, groups=groups)
    assert all(len(set(folds[groups == group])) == 1 for group in np.unique(groups))
    assert np.ptp(np.bincount(folds, minlength=4)) <= np.bincount(groups).max()


def test_are_stretches_of_ordered_rows():
    times = np.random.default_rng(0).permutation(97)
    folds = rotating_folds(97, 4, 0, order=times)
    assert (np.diff(folds[np.argsort(times)]) >= 0).all()
    assert np.ptp(np.bincount(folds)) <= 1


class TestPreparedRows:
    X = np.random.default_rng(0).standard_normal((40, 2))

    def test_are_all_for_training(self):
        y = np.repeat(["a", "b"], 20)
        dataset = prepare(self.X, y, Categorical(2), seed=0, n_folds=4)
        assert (len(dataset.train), len(dataset.valid)) == (40, 0)
        assert np.bincount(dataset.folds).tolist() == [10] * 4
        for label in (0, 1):
            assert np.bincount(dataset.folds[dataset.y_train == label]).tolist() == [5] * 4

    def test_are_set_aside_where_folds_would_be_tiny(self):
        dataset = prepare(self.X, self.X[:, 0], Gaussian(), seed=0, n_folds=21)
        assert dataset.folds is None
        assert len(dataset.valid) == 5

    def test_come_back_from_their_arrays_with_the_same_identity(self):
        dataset = prepare(self.X, self.X[:, 0], Gaussian(), seed=0, n_folds=4)
        again = Dataset.from_arrays(**dataset.arrays())
        np.testing.assert_array_equal(again.folds, dataset.folds)
        assert again.sha256() == dataset.sha256()
        plain = {name: array for name, array in dataset.arrays().items() if name != "fold_train"}
        assert Dataset.from_arrays(**plain).sha256() != dataset.sha256()


def test_impossible_ones_are_refused():
    x, y = np.zeros((6, 1)), np.zeros(6)
    bad = [[0, 1, 2], [0, 1, 0, 1, 0, 1], [0, 1, 3, 0, 1, 3], [-1, 0, 1, 2, 0, 1], [0.0, 1.0, 2.0, 0.0, 1.0, 2.0], []]
    for folds in bad:
        with case(folds), pytest.raises(ValueError, match="fold_train must have one whole number for each of the 6"):
            Dataset.from_arrays(x, y, fold_train=np.asarray(folds))
    with pytest.raises(ValueError, match="no rows are set aside"):
        Dataset.from_arrays(x, y, x, y, fold_train=np.array([0, 1, 2, 0, 1, 2]))
