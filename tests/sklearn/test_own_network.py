"""Networks of the user's own in the estimators: fit, save, load with the code given again, stop and go on."""

import copy
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import runs
from own_networks import LIBRARIES, make
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from targets import assert_same_bits

import mile
from mile import FanIn, MileClassifier, MileRegressor, RunMismatchError, UntrustedFileError
from mile.networks.adapters import adapt
from mile.storage import read_manifest
from mile.storage._tensors import read_tensors, write_tensors

BUDGET = {
    "preset": "quick",
    "n_chains": 2,
    "warmup_steps": 100,
    "sampling_steps": 160,
    "n_draws": 20,
    "max_epochs": 20,
    "learning_rate": 1e-2,
    "random_state": 0,
}
# Without chains, where they do not matter: each sampler's programs take seconds to compile.
ENSEMBLE = BUDGET | {"sampler": "deep_ensemble", "warmup_steps": None, "sampling_steps": None, "n_draws": None}
RNG = np.random.default_rng(0)
X = RNG.standard_normal((48, 3))
Y = np.sin(X[:, 0]) + 0.1 * RNG.standard_normal(48)
IMAGES = RNG.random((48, 6, 6))
LABELS = np.array(["cat", "dog", "owl"])[np.digitize(IMAGES[:, :3].sum((1, 2)), [8.3, 9.7])]
TASKS = {"table": (MileRegressor, X, Y, (3,), 2), "images": (MileClassifier, IMAGES, LABELS, (6, 6), 3)}


def network_for(library, task="table", **options):
    """Return a network as a new process would make it."""
    return make(library, *TASKS[task][3:], **options)


@pytest.fixture(scope="module")
def fitted():
    """Return a fitted model of each library and task; each is fitted once."""
    found = {}

    def get(library, task="table"):
        if (library, task) not in found:
            kind, x, y, *_ = TASKS[task]
            options = BUDGET if task == "table" else ENSEMBLE
            found[library, task] = kind(network=network_for(library, task), **options).fit(x, y)
        return found[library, task]

    return get


def predictions(model, x):
    return model.predict_proba(x) if isinstance(model, MileClassifier) else np.stack(model.predict(x, return_std=True))


# Images are tried with one library here, with the others among the slow tests.
CASES = [
    pytest.param(library, task, marks=() if task == "table" or library == "linen" else pytest.mark.slow)
    for library in LIBRARIES
    for task in TASKS
]


@pytest.mark.parametrize(("library", "task"), CASES)
def test_fits_and_comes_back_from_a_file_with_the_same_predictions(library, task, fitted, tmp_path):
    _, x, y, *_ = TASKS[task]
    model, path = fitted(library, task), tmp_path / "model.mile"
    assert model.chain_status_ == ["ok", "ok"]
    assert model.lppd(x, y) > (-1.2 if task == "table" else -1.5)
    model.save(path)
    network = network_for(library, task)
    loaded = mile.load(path, network=network)
    assert_same_bits(predictions(loaded, x), predictions(model, x))
    assert loaded.network is network
    assert {**loaded.get_params(), "network": 0} == {**model.get_params(), "network": 0}
    again = tmp_path / "again.mile"
    loaded.save(again)
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize(("library", "task"), CASES)
def test_a_run_goes_on_and_is_read_with_the_code_given_again(library, task, fitted, tmp_path):
    folder, (_, x, y, *_) = tmp_path / "run", TASKS[task]
    model = clone(fitted(library, task)).set_params(run_dir=folder)
    if task == "table":
        with runs.interrupted("sampling", 1), pytest.raises(mile.Interrupted):
            model.fit(x, y)
    else:
        model.fit(x, y)
    with pytest.raises(ValueError, match=r"your own code .*arrays, \d+ weights\).*network="):
        mile.resume(folder)
    network = network_for(library, task)  # one for all that follows, which share its programs
    resumed = mile.resume(folder, network=network)
    expected = predictions(fitted(library, task), x)
    assert_same_bits(predictions(resumed, x), expected)
    assert_same_bits(predictions(mile.load(folder, network=network), x), expected)
    finished = clone(model).set_params(network=network).fit(x, y)
    assert_same_bits(predictions(finished, x), expected)


def test_a_file_is_read_in_another_process(fitted, tmp_path):
    code = """
import sys, numpy, mile, own_networks
for library in own_networks.LIBRARIES:
    model = mile.load(f"{sys.argv[1]}/{library}.mile", network=own_networks.make(library, (3,), 2))
    numpy.save(f"{sys.argv[1]}/{library}.npy", model.predict(numpy.load(f"{sys.argv[1]}/x.npy")))
"""
    np.save(tmp_path / "x.npy", X)
    for library in LIBRARIES:
        fitted(library).save(tmp_path / f"{library}.mile")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    subprocess.run([sys.executable, "-W", "error", "-c", code, str(tmp_path)], env=environment, check=True)
    for library in LIBRARIES:
        assert_same_bits(np.load(tmp_path / f"{library}.npy"), fitted(library).predict(X))


@pytest.mark.parametrize("library", LIBRARIES)
def test_code_that_is_missing_or_another_is_refused_with_what_differs(library, fitted, tmp_path):
    path = tmp_path / "model.mile"
    fitted(library).save(path)
    n_weights = fitted(library).fit_.network.dimension
    with pytest.raises(ValueError, match=rf"your own code \(.*, [46] arrays, {n_weights} weights\).*mile\.load\(path"):
        mile.load(path)
    with pytest.raises(ValueError, match=r"has shape .*8.* in the file but .*9.* in the network you gave"):
        mile.load(path, network=network_for(library, width=9))
    other = "pair" if library == "linen" else "linen"
    with pytest.raises(ValueError, match=r"the library is .* in the file but"):
        mile.load(path, network=network_for(other))
    with pytest.raises(TypeError, match=r"must be a flax\.linen\.Module"):
        mile.load(path, network=3)


def test_shapes_are_compared_before_the_code_is_tried(fitted, tmp_path):
    path = tmp_path / "model.mile"
    fitted("nnx").save(path)
    with pytest.raises(ValueError, match=r"first/kernel has shape \(3, 8\) in the file but \(4, 8\)"):
        mile.load(path, network=make("nnx", (4,), 2))


def test_a_network_for_a_file_that_describes_its_own_is_refused(tmp_path):
    MileRegressor(hidden_layer_sizes=(4,), **ENSEMBLE).fit(X, Y).save(tmp_path / "model.mile")
    with pytest.raises(ValueError, match="leave network= out"):
        mile.load(tmp_path / "model.mile", network=network_for("linen"))


def test_a_run_does_not_go_on_from_other_starting_weights(tmp_path):
    from flax import nnx
    from own_networks import NnxNet

    folder = tmp_path / "run"
    with runs.interrupted("ensemble"), pytest.raises(mile.Interrupted):
        MileRegressor(network=network_for("nnx"), run_dir=folder, **BUDGET).fit(X, Y)
    with pytest.raises(RunMismatchError, match=r"network\.start differs"):
        mile.resume(folder, network=NnxNet(3, 2, nnx.Rngs(1)))


def test_no_text_of_the_users_code_is_in_files(tmp_path):
    folder = tmp_path / "run"
    model = MileRegressor(network=network_for("pair"), run_dir=folder, **ENSEMBLE).fit(X, Y)
    model.save(tmp_path / "model.mile")
    manifest = read_manifest(folder)
    assert manifest.origin["parameters"]["network"] == {"kind": "adapted"}
    assert set(manifest.configuration["network"]) == {"kind", "signature", "start"}
    for text in (json.dumps(vars(manifest)), json.dumps(read_tensors(tmp_path / "model.mile").metadata)):
        assert "make_pair" not in text
        assert " at 0x" not in text


def test_a_fit_without_an_estimator_is_saved_and_loaded_too(tmp_path):
    network = adapt(network_for("linen")).sized((3,), 2)
    found = runs.begin(None, network=network)
    found.save(tmp_path / "fit.mile")
    loaded = mile.load(tmp_path / "fit.mile", network=network)
    x = np.random.default_rng(1).standard_normal((5, 3))
    assert_same_bits(loaded.predictive(x).mean, found.predictive(x).mean)


@pytest.mark.parametrize("library", LIBRARIES)
def test_life_inside_scikit_learn(library):
    model = MileRegressor(network=network_for(library), prior=FanIn(), **ENSEMBLE)
    assert np.isfinite(cross_val_score(model, X, Y, cv=2)).all()


@pytest.mark.parametrize("library", LIBRARIES)
def test_reports_and_diagnoses_name_its_arrays(library, fitted, tmp_path):
    model = fitted(library)
    model.report(tmp_path / "report.html", X, Y)
    assert f"{model.fit_.network.dimension} weights" in (tmp_path / "report.html").read_text()
    diagnosis = mile.diagnose.diagnosis.diagnose(model.fit_)
    assert {layer.name for layer in model.fit_.network.layers} <= {group.name for group in diagnosis.groups}


@pytest.mark.parametrize("library", ["linen", "nnx", "equinox"])
def test_fitted_models_survive_pickle(library, fitted):
    model = fitted(library)
    assert_same_bits(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))


def test_wrong_data_and_arguments_are_refused_before_training(fitted):
    with pytest.raises(ValueError, match=r"must return floats of shape \(rows, 3\)"):
        MileClassifier(network=make("linen", (3,), 2), **BUDGET).fit(X, np.arange(48) % 3)
    with pytest.raises(ValueError, match="could not evaluate a batch of shape"):
        MileRegressor(network=make("equinox", (4,), 2), **BUDGET).fit(X, Y)
    with pytest.raises(ValueError, match="hidden_layer_sizes and activation"):
        MileRegressor(network=network_for("linen"), hidden_layer_sizes=(3,), **BUDGET).fit(X, Y)
    with pytest.raises(ValueError, match="fitted to images of shape"):
        fitted("pair", "images").predict(IMAGES[:, :5])


HOSTILE = {
    "no signature": lambda network: network.pop("signature"),
    "no start": lambda network: network.pop("start"),
    "a start that is no text": lambda network: network.update(start=[1]),
    "something more": lambda network: network.update(code="import os"),
    "signature of nothing": lambda network: network.update(signature=None),
    "module to import": lambda network: network["signature"].update(library="os"),
    "huge rows": lambda network: network["signature"].update(input_shape=[10**12]),
    "huge arrays": lambda network: network["signature"]["arrays"][0].update(shape=[10**12, 10**12]),
    "many arrays": lambda network: network["signature"].update(arrays=network["signature"]["arrays"] * 300),
}


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize("given", [False, True])
def test_malformed_descriptions_are_refused(case, given, fitted, tmp_path):
    fitted("linen").save(tmp_path / "good.mile")
    arrays, metadata = read_tensors(tmp_path / "good.mile")
    metadata = copy.deepcopy(metadata)
    HOSTILE[case](metadata["configuration"]["network"])
    write_tensors(tmp_path / "bad.mile", arrays, metadata)
    with pytest.raises(UntrustedFileError, match=r"not the signature of a network|network\.\w+ (is|must be) "):
        mile.load(tmp_path / "bad.mile", network=network_for("linen") if given else None)


def test_an_estimator_and_a_fit_of_different_networks_are_refused(fitted, tmp_path):
    fitted("linen").save(tmp_path / "good.mile")
    arrays, metadata = read_tensors(tmp_path / "good.mile")
    for description in (None, "lenet5"):
        bad = copy.deepcopy(metadata)
        bad["extra"]["parameters"]["network"] = description
        write_tensors(tmp_path / "bad.mile", arrays, bad)
        with pytest.raises(UntrustedFileError, match="do not have the same network"):
            mile.load(tmp_path / "bad.mile", network=network_for("linen"))
    for part in ("sampler", "prior"):
        bad = copy.deepcopy(metadata)
        bad["configuration"][part] = bad["configuration"]["network"]
        write_tensors(tmp_path / "bad.mile", arrays, bad)
        with pytest.raises(UntrustedFileError, match="adapted"):
            mile.load(tmp_path / "bad.mile", network=network_for("linen"))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(4))
def test_examples_of_the_page_run(number, tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "your-own-network.md").read_text()
    examples = [part.split("```")[0] for part in page.split("```python\n")[1:]]
    assert len(examples) == 4
    subprocess.run([sys.executable, "-c", examples[number]], cwd=tmp_path, check=True)
    assert (tmp_path / "model.mile").exists()
