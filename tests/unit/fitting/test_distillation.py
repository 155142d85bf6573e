"""Students: a few networks that predict together as all draws do, with what that loses."""

import json
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes, make_classification

import mile
from mile._errors import FitWarning
from mile.fitting import distillation
from mile.fitting._lessons import FARTHEST, directions_of, practice_rows
from mile.fitting.compression import compress_fit
from mile.fitting.distillation import distill_fit
from mile.fitting.unseen import Estimate

TINY = {"warmup_steps": 60, "sampling_steps": 100, "n_draws": 50, "max_epochs": 10, "random_state": 0}
SHORT = {"_STEPS": 30, "_STEPS_FROM_NOTHING": 30, "_PRACTICE_ROWS": 300, "_CHECKED_VALUES": 2}


@pytest.fixture(scope="module")
def rows():
    X, y = load_diabetes(return_X_y=True)
    return X[:240], y[:240], X[240:], y[240:]


@pytest.fixture(scope="module")
def model(rows):
    return mile.MileRegressor(n_chains=6, **TINY).fit(rows[0], rows[1])


@pytest.fixture(scope="module")
def student(model, rows):
    with mock.patch.multiple(distillation, _STEPS=400, _PRACTICE_ROWS=2_000):
        return model.distill(rows[0], rows[1], n_networks=16, loss=None)


@pytest.fixture
def in_short():
    with mock.patch.multiple(distillation, **SHORT):
        yield


def test_a_student_predicts_as_all_draws_also_beyond_the_table(model, student, rows):
    assert type(student) is type(model)
    step = np.random.default_rng(0).normal(size=rows[2].shape)
    beyond = rows[2] + 4.0 * rows[0].std(axis=0) * step / np.linalg.norm(step, axis=1, keepdims=True)
    for X in (rows[2], beyond):
        before, after = model.predictive(X), student.predictive(X)
        assert after.n_draws == 16
        assert (np.abs(after.mean - before.mean) / before.std).max() < 0.4
        assert np.corrcoef(before.epistemic_std, after.epistemic_std)[0, 1] > 0.9
        assert abs(np.median(after.epistemic_std / before.epistemic_std) - 1.0) < 0.15
        assert abs(np.median(after.aleatoric_std / before.aleatoric_std) - 1.0) < 0.1
    assert abs(model.lppd(rows[2], rows[3]) - student.lppd(rows[2], rows[3])) < 0.03
    assert not hasattr(model, "distillation_")


def test_training_makes_of_chosen_draws_what_they_are_not(model, student, rows):
    """As many chosen draws are further from all of them than the student that began with them."""
    chosen, _ = compress_fit(model.fit_, model.fit_.encoder.transform(rows[0]), n_draws=16)
    wanted = np.log(model.predictive(rows[2]).epistemic_std)
    misses = [np.abs(np.log(one.predictive(rows[2]).epistemic_std) - wanted).mean() for one in (chosen, student.fit_)]
    assert misses[1] < 0.7 * misses[0]


def test_the_loss_is_that_on_rows_left_out(model, student, rows, in_short):
    found = student.distillation_
    assert (found.n_networks, found.of_draws) == (16, model.predictive(rows[2][:1]).n_draws)
    assert found.rows == "40 out-of-fold rows"
    assert abs(found.expected.value) < 0.03
    assert found.ignorance > 0.9
    assert "out-of-fold" in repr(found)
    new = model.distill(rows[2], n_networks=4, loss=None).distillation_
    assert (new.rows, new.observed) == ("50 rows kept apart", None)


def test_a_student_is_saved_small_and_read_again_also_without_jax(student, rows, tmp_path):
    path = tmp_path / "student.mile"
    student.save(path)
    assert path.stat().st_size < 100_000
    wanted = student.predict_interval(rows[2])
    assert np.array_equal(mile.load(path).predict_interval(rows[2]), wanted)
    np.save(tmp_path / "x.npy", rows[2])
    script = (
        "import sys, json, numpy as np, mile; found = mile.load(sys.argv[1]).predict_interval(np.load(sys.argv[2]));"
        "print(json.dumps([found.tolist(), 'jax' in sys.modules]))"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, path, tmp_path / "x.npy"], capture_output=True, text=True, check=True
    )
    found, used_jax = json.loads(run.stdout)
    assert np.allclose(found, wanted, atol=1e-5 * np.std(wanted))
    if mile.native.kernel_name() != "xla":
        assert not used_jax


def test_a_student_explains_reports_and_can_be_cloned(student, rows, tmp_path):
    student.report(tmp_path / "page.html", rows[2], rows[3], explain=False)
    assert student.explain(rows[2], columns=[], n_repeats=1, progress=False).frames()
    assert clone(student).get_params() == student.get_params()


def test_what_loses_too_much_is_a_compressed_model_and_says_so(model, rows, in_short):
    with pytest.warns(FitWarning, match="compressed to"):
        found = model.distill(rows[0], n_networks=2, loss=0.002)
    kept = found.distillation_
    assert "instead" in kept.instead
    assert kept.n_networks == found.fit_.chains.draws.shape[0] > 2
    assert kept.expected.value <= 0.002
    with pytest.raises(ValueError, match="Keep this model"):
        distill_fit(model.fit_.thinned(5), model.fit_.encoder.transform(rows[0]), n_networks=2, loss=1e-7)


def test_noise_of_the_rows_alone_refuses_no_student():
    def lost(expected, observed, error):
        return distillation.Distillation(
            n_networks=1,
            of_draws=2,
            expected=Estimate(expected, 0.0),
            observed=Estimate(observed, error),
            ignorance=1.0,
            rows="",
        )

    assert not distillation._loses_more(lost(0.01, 0.1, 0.05), 0.03)
    assert distillation._loses_more(lost(0.01, 0.1, 0.01), 0.03)
    assert distillation._loses_more(lost(0.04, -0.1, 0.01), 0.03)


def test_networks_of_another_width_and_classes_are_taught_too(model, rows, in_short):
    narrow = model.distill(rows[0], n_networks=4, width=5, loss=None)
    assert narrow.fit_.network.hidden == (5,) * len(model.fit_.network.hidden)
    assert np.isfinite(narrow.predict(rows[2])).all()
    X, y = make_classification(120, 5, random_state=0)
    table = {f"c{place}": X[:, place] for place in range(4)} | {"kind": np.where(X[:, 4] > 0, "high", "low")}
    classes = mile.MileClassifier(n_chains=2, **TINY).fit(table, y)
    taught = classes.distill(table, y, n_networks=8, loss=None)
    assert np.abs(taught.predict_proba(table) - classes.predict_proba(table)).mean() < 0.05


def test_rows_to_learn_from_lie_in_around_and_beyond_the_table():
    rng = np.random.default_rng(0)
    x = np.c_[rng.normal(size=(300, 2)), rng.integers(0, 2, size=300)].astype(np.float32)
    found, near = practice_rows(x, 900, rng, is_table=True)
    assert found.shape == (900, 3)
    assert near.sum() == 600
    assert set(found[:, 2]) == {0.0, 1.0}
    assert np.abs(found[near]).max() <= np.abs(x).max()
    away = np.abs(found[~near, :2]).max(axis=1)
    assert 3.0 < np.quantile(away, 0.9) < np.abs(x).max() + FARTHEST * 1.1
    texts, are_near = practice_rows(x, 900, rng, is_table=False)
    assert are_near.all()
    assert np.isin(texts[:, 0], x[:, 0]).all()


def test_directions_are_in_units_of_the_outputs():
    outputs = np.random.default_rng(0).normal(size=(50, 2, 30)) * np.array([1.0, 100.0])[:, None]
    found = directions_of(outputs, np.random.default_rng(1))
    assert found.shape == (2, 4)
    spread = np.einsum("dor,op->dpr", outputs, found).std(axis=0).mean(axis=1)
    assert np.abs(spread - 1.0).max() < 0.3


def test_impossible_requests_are_refused(model, rows):
    for wrong, sentence in (
        ({"n_networks": 100_000}, "n_networks must be less"),
        ({"n_networks": 0}, "n_networks"),
        ({"width": 0}, "width"),
        ({"loss": -1.0}, "loss"),
    ):
        with pytest.raises(ValueError, match=sentence):
            model.distill(rows[0], **wrong)
    with pytest.raises(ValueError, match="X has 3"):
        model.distill(rows[0][:3])
    with pytest.raises(ValueError, match="one entry for each"):
        model.distill(rows[0], rows[1][:5])
