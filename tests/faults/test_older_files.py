"""Models and runs of earlier versions are still read, predict the same numbers, and resume or say why not."""

import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest

import mile
from mile import RunMismatchError
from mile.fitting.job import identify
from mile.storage import read_manifest

FIXTURES = Path(__file__).parent.parent / "fixtures" / "version-0.1"
TEXTS = ["a good film", "good fun", "a bad film", "bad and dull", "a good film"]
NETWORK = mile.MLP(n_inputs=3, hidden=(4,))
CLOSE = {"rtol": 1e-4, "atol": 1e-5}  # another processor rounds otherwise


@pytest.fixture(scope="module")
def expected():
    with np.load(FIXTURES / "expected.npz") as arrays:
        return dict(arrays)


def unpack(name, folder):
    with zipfile.ZipFile(FIXTURES / f"{name}.run.zip") as archive:
        archive.extractall(folder)
    return folder


def test_models_predict_what_their_version_did(expected):
    rows = expected["x"][:5]
    regressor, classifier = mile.load(FIXTURES / "regressor.mile"), mile.load(FIXTURES / "classifier.mile")
    assert list(regressor.feature_names_in_) == ["a", "b", "c"]
    assert regressor.target_name_ == "response"
    assert list(classifier.classes_) == ["high", "low", "mid"]
    assert classifier.prior == mile.StudentT(df=4.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a plain array has no column names
        np.testing.assert_allclose(regressor.predict(rows), expected["regressor"], **CLOSE)
    np.testing.assert_allclose(classifier.predict_proba(rows), expected["classifier"], **CLOSE)
    texts = mile.load(FIXTURES / "texts.mile")
    np.testing.assert_allclose(texts.predict_proba(TEXTS), expected["texts"], **CLOSE)


def test_a_model_is_saved_anew_and_predicts_the_same(expected, tmp_path):
    classifier = mile.load(FIXTURES / "classifier.mile")
    classifier.save(tmp_path / "again.mile")
    again = mile.load(tmp_path / "again.mile")
    rows = expected["x"][:5]
    np.testing.assert_array_equal(again.predict_proba(rows), classifier.predict_proba(rows))


def test_a_finished_run_loads_and_predicts_what_its_version_did(expected, tmp_path):
    model = mile.load(unpack("finished", tmp_path / "finished.run"))
    np.testing.assert_allclose(model.predict(expected["x"][:5]), expected["finished"], **CLOSE)


@pytest.mark.parametrize("name", ["stopped-warmup", "stopped-sampling"])
def test_a_stopped_run_resumes_or_says_in_one_sentence_why_not(name, expected, tmp_path):
    folder = unpack(name, tmp_path / "stopped.run")
    if identify(NETWORK, mile.Gaussian()) != read_manifest(folder).fingerprint:
        with pytest.raises(RunMismatchError, match=r"^fingerprint\..*force=True.*$"):
            mile.resume(folder)
        return
    model = mile.resume(folder)
    np.testing.assert_allclose(model.predict(expected["x"][:5]), expected["stopped"], **CLOSE)


def test_a_stopped_run_predicts_with_the_draws_it_has(expected, tmp_path):
    model = mile.load(unpack("stopped-sampling", tmp_path / "stopped.run"))
    assert np.isfinite(model.predict(expected["x"][:5])).all()
