"""A fit with rotating folds: who sees what, the bits of it, and scores by chains that never saw a row."""

from dataclasses import replace

import numpy as np
import pytest
import runs
from targets import small_dataset

import mile
from mile import MLP, Dataset, DeepEnsemble, Gaussian, Mile
from mile.data.folds import rotating_folds
from mile.ensemble.training import Training
from mile.fitting.out_of_fold import predict_out_of_fold
from mile.fitting.rotation import Rotation

NETWORK = MLP(n_inputs=3, hidden=(4,))
SAMPLER = Mile(warmup_steps=60, sampling_steps=40, n_draws=10)
OPTIONS = {"training": Training(learning_rate=0.01, max_epochs=5), "n_chains": 6, "random_state": 0}


def folded(n_folds=3):
    train = small_dataset(120).train
    return Dataset.from_arrays(train.x, train.y, fold_train=rotating_folds(len(train), n_folds, 0))


def fit(dataset, **options):
    return mile.fit(dataset, NETWORK, Gaussian(), **({"sampler": SAMPLER} | OPTIONS | options))


@pytest.fixture(scope="module")
def fitted():
    return fit(folded())


def test_every_fold_is_left_out_by_as_many_chains_and_none_stops_by_it():
    for n_folds, n_chains in [(3, 6), (4, 12), (6, 12), (12, 12)]:
        rotation = Rotation(np.zeros(0, int), n_folds)
        places = range(n_chains)
        assert np.ptp(np.bincount([rotation.left_out(place) for place in places], minlength=n_folds)) == 0
        assert all(rotation.left_out(place) != rotation.stopping(place) for place in places)
        pairs = {(rotation.left_out(place), rotation.stopping(place)) for place in places}
        assert len(pairs) == n_chains  # members with the same rows to leave out stop by different ones


def test_rows_that_a_chain_leaves_out_change_none_of_its_bits(fitted):
    """Chains 0 and 3 leave out fold 0, and only they give the same draws when its responses are others."""
    dataset = folded()
    y = dataset.y_train.copy()
    y[dataset.folds == 0] += 1.0
    other = fit(replace(dataset, train=replace(dataset.train, y=y)))
    same = [np.array_equal(fitted.chains.draws[chain], other.chains.draws[chain]) for chain in range(6)]
    assert same == [True, False, False, True, False, False]


def test_a_run_with_folds_is_resumed_with_the_same_bits(fitted, tmp_path):
    with runs.interrupted("sampling", 1), pytest.raises(mile.Interrupted):
        fit(folded(), run_dir=tmp_path / "run")
    resumed = mile.resume(tmp_path / "run")
    np.testing.assert_array_equal(resumed.chains.draws, fitted.chains.draws)


class TestOutOfFold:
    def test_scores_are_those_of_the_chains_that_left_a_row_out(self, fitted):
        dataset = folded()
        found = predict_out_of_fold(fitted, dataset)
        assert found.log_density.shape == (6, len(dataset.train))
        for place in range(6):
            unseen = dataset.folds == place % 3
            np.testing.assert_array_equal(np.isfinite(found.log_density[place]), unseen)
        rows = dataset.folds == 1
        expected = fitted.predictive(dataset.x_train[rows], chains=[1, 4])
        np.testing.assert_array_equal(found.row_scores["lppd"][rows], expected.log_prob(dataset.y_train[rows]))
        mixed = np.logaddexp(*found.log_density[[1, 4]][:, rows]) - np.log(2)
        np.testing.assert_allclose(found.row_scores["lppd"][rows], mixed, rtol=1e-9)

    def test_standard_errors_are_those_of_a_mean(self, fitted):
        found = predict_out_of_fold(fitted, folded())
        assert set(found.scores) == {"lppd", "crps", "squared_error", "coverage_90"}
        for name, values in found.row_scores.items():
            assert found.scores[name].value == pytest.approx(values.mean(), rel=1e-6)
            assert found.scores[name].standard_error == pytest.approx(
                values.std(ddof=1) / np.sqrt(len(values)), rel=1e-6
            )

    def test_of_classes_count_right_ones(self):
        train = small_dataset(120, classes=3).train
        dataset = Dataset.from_arrays(train.x, train.y, fold_train=rotating_folds(len(train), 3, 0))
        network = MLP(n_inputs=3, hidden=(4,), n_outputs=3)
        sampled = mile.fit(dataset, network, mile.Categorical(3), sampler=DeepEnsemble(), **OPTIONS | {"n_chains": 3})
        scores = predict_out_of_fold(sampled, dataset).scores
        assert set(scores) == {"lppd", "accuracy", "brier"}
        assert 0.0 <= scores["accuracy"].value <= 1.0

    def test_need_folds_and_a_chain_for_each(self, fitted):
        with pytest.raises(ValueError, match="dataset has no folds"):
            predict_out_of_fold(fitted, small_dataset())
        few = fit(folded(), n_chains=2, sampler=DeepEnsemble())
        with pytest.raises(ValueError, match="no good chain has left out fold 2"):
            predict_out_of_fold(few, folded())
