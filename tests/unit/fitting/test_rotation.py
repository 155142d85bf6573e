"""A fit with rotating folds: who sees what, the bits of it, and scores by chains that never saw a row."""

from dataclasses import replace

import numpy as np
import pytest
import runs
from targets import small_dataset

import mile
from mile import MLP, Dataset, DeepEnsemble, Gaussian, Mile, Status
from mile.data.folds import rotating_folds
from mile.ensemble.training import Training
from mile.fitting.out_of_fold import predict_out_of_fold, weigh_and_predict
from mile.fitting.rotation import Rotation
from mile.fitting.weighing import STACKING, LeftOut, weigh, within_fold
from mile.storage import repair

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
        fit(folded(), run_dir=tmp_path / "run", stacking="slots")
    assert mile.load(tmp_path / "run").out_of_fold is None
    resumed = mile.resume(tmp_path / "run")
    np.testing.assert_array_equal(resumed.chains.draws, fitted.chains.draws)
    weighed = weigh_and_predict(fitted, folded(), "slots")
    for found in (resumed, mile.load(tmp_path / "run"), mile.resume(tmp_path / "run")):
        np.testing.assert_array_equal(found.weights, weighed.weights)
        assert repr(found.out_of_fold) == repr(weighed.out_of_fold)
    path = tmp_path / "run" / "out-of-fold.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(mile.CorruptFileError, match="mile repair"):
        mile.load(tmp_path / "run")
    repair(tmp_path / "run")
    again = mile.resume(tmp_path / "run")
    assert repr(again.out_of_fold) == repr(weighed.out_of_fold)
    np.testing.assert_array_equal(again.weights, weighed.weights)


class TestOutOfFold:
    def test_scores_are_those_of_the_chains_that_left_a_row_out(self, fitted):
        dataset = folded()
        found = predict_out_of_fold(fitted, dataset)
        assert found.chain_log_density.shape == found.member_log_density.shape == (2, len(dataset.train))
        np.testing.assert_array_equal(found.fold, dataset.folds)
        rows = dataset.folds == 1
        x, y = dataset.x_train[rows], dataset.y_train[rows]
        expected = fitted.predictive(x, chains=[1, 4])
        np.testing.assert_array_equal(found.row_scores["lppd"][rows], expected.log_prob(y))
        np.testing.assert_array_equal(found.values["std"][rows], expected.std)
        mixed = np.logaddexp(*found.chain_log_density[:, rows]) - np.log(2)
        np.testing.assert_allclose(found.row_scores["lppd"][rows], mixed, rtol=1e-9)
        member = fitted.ensemble_predictive(x, chains=[4])
        np.testing.assert_array_equal(found.member_log_density[1, rows], member.log_prob(y))
        both = fitted.ensemble_predictive(x, chains=[1, 4])
        np.testing.assert_array_equal(found.ensemble_scores["crps"][rows], both.crps(y))

    def test_standard_errors_are_those_of_a_mean(self, fitted):
        found = predict_out_of_fold(fitted, folded())
        assert set(found.scores) == {"lppd", "crps", "rmse", "coverage_90"}
        mean_square = found.row_scores["squared_error"].mean()
        assert found.scores["rmse"].value == pytest.approx(np.sqrt(mean_square), rel=1e-6)
        for name, values in found.row_scores.items():
            if name == "squared_error":
                continue
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
        assert set(scores) == {"lppd", "accuracy", "brier", "expected_calibration_error"}
        assert 0.0 <= scores["accuracy"].value <= 1.0

    def test_a_fit_and_a_run_keep_them(self, fitted, tmp_path):
        expected = predict_out_of_fold(fitted, folded())
        fitted.save(tmp_path / "model.mile")
        fit(folded(), run_dir=tmp_path / "run")
        for found in (fitted, mile.load(tmp_path / "model.mile"), mile.load(tmp_path / "run")):
            tensors = found.out_of_fold.tensors()
            assert tensors.keys() == expected.tensors().keys()
            for name, array in expected.tensors().items():
                np.testing.assert_array_equal(tensors[name], array, err_msg=name)
            assert repr(found.out_of_fold) == repr(expected)
        assert "out-of-fold, 90 rows, 3 folds" in repr(expected)

    def test_weights_for_scores_of_a_fold_come_from_the_others(self, fitted):
        dataset = folded()
        weighed = weigh_and_predict(fitted, dataset, "slots")
        found, rows = weighed.out_of_fold, dataset.folds == 2
        left_out = LeftOut(found.chain_log_density, found.member_log_density, found.fold, found.weight)
        others = weigh("slots", left_out, fitted.ok, 3, without_fold=2)
        own = within_fold(others, 2, fitted.ok, 3)
        assert not own[[0, 1, 3, 4, 6, 7, 9, 10]].any()
        expected = replace(fitted, weights=own).predictive(dataset.x_train[rows])
        np.testing.assert_array_equal(found.row_scores["lppd"][rows], expected.log_prob(dataset.y_train[rows]))
        changed = left_out._replace(chains=np.where(rows, -50.0, left_out.chains))
        np.testing.assert_array_equal(weigh("slots", changed, fitted.ok, 3, without_fold=2), others)
        assert weighed.weights is not None
        assert weighed.weights.sum() == pytest.approx(1.0)

    def test_chains_that_failed_have_no_part_in_them(self, fitted):
        status = tuple(Status.DIVERGED if place == 1 else code for place, code in enumerate(fitted.status))
        broken, dataset = replace(fitted, status=status, out_of_fold=None), folded()
        rows = dataset.folds == 1
        for scheme in STACKING:
            found, weights = weigh_and_predict(broken, dataset, scheme)
            assert np.isnan(found.chain_log_density[0, rows]).all()
            assert np.isfinite(found.chain_log_density[1]).all()
            assert weights is None or (weights[[1, 7]] == 0.0).all()
            assert weights is None or weights.sum() == pytest.approx(1.0)
        alone = fitted.predictive(dataset.x_train[rows], chains=[4])
        found = predict_out_of_fold(broken, dataset)
        np.testing.assert_array_equal(found.row_scores["lppd"][rows], alone.log_prob(dataset.y_train[rows]))

    def test_need_folds_and_a_chain_for_each(self, fitted):
        with pytest.raises(ValueError, match="dataset has no folds"):
            predict_out_of_fold(fitted, small_dataset())
        with pytest.warns(mile.FitWarning, match="No good chain has left out fold 2"):
            few = fit(folded(), n_chains=2, sampler=DeepEnsemble())
        assert few.out_of_fold is None
        with pytest.raises(ValueError, match="no good chain has left out fold 2"):
            predict_out_of_fold(few, folded())
