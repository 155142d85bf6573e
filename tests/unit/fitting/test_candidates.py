"""Weights of chains and members in files: what is loaded predicts the same bits, and impossible weights are refused."""

import dataclasses
import shutil

import numpy as np
import pytest
from models import made_estimator, made_fit

import mile
from mile import MileRegressor, UntrustedFileError
from mile.diagnose.diagnosis import diagnose
from mile.fitting import result as results_module
from mile.plot import accumulation
from mile.report._words import summary
from mile.storage import Run, _draw_files, read_manifest, read_tensors, repair, write_tensors

WEIGHTS = np.array([0.1, 0.6, 0.3, 0.0])
BUDGET = {"hidden_layer_sizes": (4,), "n_chains": 2, "warmup_steps": 60, "sampling_steps": 20, "max_epochs": 5}
RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 3))
Y = X[:, 0] + 0.1 * RNG.standard_normal(40)


def everything(fit):
    one = fit.predictive(X)
    return np.column_stack([one.mean, one.std, one.log_prob(Y), one.quantile([0.1, 0.9]), one.sample(2, 1).T])


def test_a_model_file_keeps_the_weights_to_the_last_bit(tmp_path, monkeypatch):
    model = made_estimator()
    model.fit_ = dataclasses.replace(model.fit_, weights=WEIGHTS)
    model.save(tmp_path / "model.mile")
    for limit in (results_module.DRAWS_IN_MEMORY, 100):  # the draws in memory, then on disk
        monkeypatch.setattr(results_module, "DRAWS_IN_MEMORY", limit)
        loaded = mile.load(tmp_path / "model.mile")
        np.testing.assert_array_equal(loaded.fit_.weights, WEIGHTS, strict=True)
        np.testing.assert_array_equal(everything(loaded.fit_), everything(model.fit_))
    assert isinstance(loaded.fit_.chains.draws, np.memmap)


def test_a_model_file_without_weights_says_nothing_of_them(tmp_path):
    made_fit().save(tmp_path / "fit.mile")
    assert "candidate_weights" not in read_tensors(tmp_path / "fit.mile").arrays
    assert mile.load(tmp_path / "fit.mile").weights is None


def test_a_model_file_with_impossible_weights_is_refused(tmp_path):
    path, fit = tmp_path / "fit.mile", dataclasses.replace(made_fit(failed={1: "sampling"}), weights=None)
    fit.save(path)
    arrays, header = read_tensors(path)
    for weights in (
        np.array([1.0]),
        np.array([1.0, 0.0, 0.0, 0.0], np.float32),
        np.array([0.5, 0.0, 0.0, 0.0]),
        np.array([1.5, 0.0, -0.5, 0.0]),
        np.array([np.nan, 0.0, 1.0, 0.0]),
        np.array([np.inf, 0.0, 1.0, 0.0]),
        np.array([0.5, 0.5, 0.0, 0.0]),  # of a chain that failed
        np.array([0.5, 0.0, 0.0, 0.5]),  # of its member
    ):
        write_tensors(path, arrays | {"candidate_weights": weights}, header)
        with pytest.raises(UntrustedFileError, match="candidate_weights"):
            mile.load(path)
    write_tensors(path, arrays | {"candidate_weights": np.array([0.25, 0.0, 0.75, 0.0])}, header)
    assert mile.load(path).weights.tolist() == [0.25, 0.0, 0.75, 0.0]


def test_diagnostics_follow_all_good_chains_whatever_their_weights():
    plain = made_fit(n_draws=40)
    found, expected = (diagnose(fit, X) for fit in (dataclasses.replace(plain, weights=WEIGHTS), plain))
    assert [group.name for group in found.groups] == [group.name for group in expected.groups]
    for one, other in zip(found.groups, expected.groups, strict=True):
        np.testing.assert_array_equal(one.rhat, other.rhat)


def test_the_accumulated_density_ends_at_that_of_the_weighted_prediction():
    fit = dataclasses.replace(made_fit(), weights=WEIGHTS)
    together = accumulation(fit, X, Y).lines[-2].get_ydata()
    assert together[-1] == pytest.approx(fit.predictive(X).log_prob(Y).mean(), abs=1e-9)


def test_the_report_says_how_much_chains_count_and_names_those_that_do_not():
    fit = dataclasses.replace(made_fit(), weights=np.array([0.0, 0.7, 0.3, 0.0]))
    text = summary(fit, "price", ["a", "b", "c"], None)
    assert "1 of 2 chains are used, 6 draws each: 7 networks predict together." in text
    assert "Their weights lie between 0.0% and 70.0%; the networks that they start from have 30.0% together" in text
    assert "without a weight: chain 0." in text
    assert "weights lie" not in summary(made_fit(), "price", ["a", "b", "c"], None)


@pytest.fixture(scope="module")
def weighted_run(tmp_path_factory):
    """Return a model and its run, which was finished with weights."""
    folder, finish = tmp_path_factory.mktemp("runs") / "run", Run.finish
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "finish", lambda run, status: finish(run, status, WEIGHTS))
        model = MileRegressor(**BUDGET, random_state=0, run_dir=folder).fit(X, Y)
    return model, folder


def test_a_run_keeps_the_weights_to_the_last_bit(weighted_run, monkeypatch):
    model, folder = weighted_run
    np.testing.assert_array_equal(model.fit_.weights, WEIGHTS, strict=True)
    again = MileRegressor(**BUDGET, random_state=0, run_dir=folder).fit(X, Y)
    for loaded in (mile.load(folder), mile.resume(folder), again):
        np.testing.assert_array_equal(loaded.fit_.weights, WEIGHTS, strict=True)
        np.testing.assert_array_equal(everything(loaded.fit_), everything(model.fit_))
    monkeypatch.setattr(_draw_files, "DRAWS_IN_MEMORY", 100)
    np.testing.assert_array_equal(everything(mile.load(folder).fit_), everything(model.fit_))


def test_a_run_with_impossible_weights_is_refused(weighted_run):
    _, folder = weighted_run
    whole = read_manifest(folder)
    try:
        for weights in ((0.5, 0.5), (0.5, 0.6, 0.0, 0.0), (2.0, -1.0, 0.0, 0.0), (0.5, 0.5, 0.0, 0), ()):
            dataclasses.replace(whole, weights=weights).write(folder)
            with pytest.raises(UntrustedFileError, match="weights"):
                mile.load(folder)
    finally:
        whole.write(folder)
    assert mile.load(folder).fit_.weights.tolist() == WEIGHTS.tolist()


def test_a_run_without_weights_has_the_manifest_of_older_versions(weighted_run):
    _, folder = weighted_run
    whole = read_manifest(folder)
    try:
        dataclasses.replace(whole, weights=None).write(folder)
        assert b"weights" not in (folder / "MANIFEST.json").read_bytes().replace(b"/weights/", b"")
        assert mile.load(folder).fit_.weights is None
    finally:
        whole.write(folder)


def test_a_repaired_run_has_its_weights_to_find_again(weighted_run, tmp_path):
    folder = shutil.copytree(weighted_run[1], tmp_path / "copy")
    (folder / "chains" / "0000" / "final.safetensors").unlink()
    assert repair(folder)
    assert read_manifest(folder).weights is None
