"""New rows: the chains continue on all rows, folds and groups stay whole, and a model says when that is not enough."""

import warnings

import numpy as np
import pytest

import mile
from mile import FitWarning, MileClassifier, MileRegressor
from mile.estimators._updating import Earlier, plan_new_rows
from mile.storage import read_manifest, read_tensors

RNG = np.random.default_rng(1)
X = RNG.normal(size=(160, 2))
Y = X[:, 0] - X[:, 1] + 0.5 * RNG.normal(size=160)
GIVEN = {"warmup_steps": 400, "sampling_steps": 200, "n_draws": 50, "n_chains": 3, "max_epochs": 30, "random_state": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("rows") / "run"


@pytest.fixture(scope="module")
def model(folder):
    return MileRegressor((8,), run_dir=folder, **GIVEN).fit(X[:120], Y[:120])


@pytest.fixture(scope="module")
def updated(model, folder, tmp_path_factory):
    more = mile.load(folder)
    out = tmp_path_factory.mktemp("updated") / "run"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # chains as short as these are not settled
        return out, more.update(X[120:150], Y[120:150], earlier=folder, run_dir=out)


def test_chains_continue_on_all_rows(model, updated, folder):
    out, more = updated
    assert (more.updated_.n_before, more.updated_.n_new) == (120, 30)
    assert len(more.oof_) == 150
    np.testing.assert_array_equal(more.oof_.number, np.arange(150))
    np.testing.assert_array_equal(more.fit_.members.positions, model.fit_.chains.draws[:, -1])
    np.testing.assert_array_equal(more.fit_.encoder.transform(X), model.fit_.encoder.transform(X))
    evaluations = [one.fit_.chains.gradient_evaluations[0] for one in (more, model)]
    assert evaluations[0] < 0.6 * evaluations[1]  # a quarter of a whole fit; here no tuning is below 100 steps
    old, new = (read_tensors(path / "data.safetensors", within=path).arrays["fold_train"] for path in (folder, out))
    np.testing.assert_array_equal(new[:120], old)
    assert np.bincount(new[120:]).tolist() == [10, 10, 10]


def test_the_run_with_all_rows_is_a_run_like_others(updated):
    out, more = updated
    again = mile.load(out)
    assert again.seed_ == more.seed_
    np.testing.assert_array_equal(again.predict(X[150:]), more.predict(X[150:]))
    assert mile.resume(out, n_draws=90).fit_.chains.draws.shape[1] == 90


def test_rows_of_another_world_ask_for_a_fit_from_the_start(model, folder):
    fit = model.fit_
    earlier = Earlier(dataset=mile.estimators.loading.read_kept_rows(folder), stacking="none")
    found = {}
    for name, features, response in (("same", X[120:], Y[120:]), ("other", X[120:], Y[120:] + 8.0)):
        found[name] = plan_new_rows(
            fit, earlier, features, response, None, groups=None, earlier_groups=None, order=None
        ).moved
    assert found["other"].is_due
    assert found["other"].shift > 3.0 * found["same"].shift
    far = plan_new_rows(fit, earlier, X[120:] + 20.0, Y[120:], None, groups=None, earlier_groups=None, order=None).moved
    assert far.outside == 1.0
    assert any("far outside" in reason for reason in far.reasons)


def test_new_texts_are_counted_and_pooled():
    cities = np.array(["Oslo", "Rome"] * 60 + ["Bonn"] * 40, object)
    table = {"x": X[:, 0], "city": cities}
    first, rest = ({name: column[rows] for name, column in table.items()} for rows in (slice(120), slice(120, 160)))
    model = MileRegressor((8,), warm_start=True, **GIVEN).fit(first, Y[:120])
    with pytest.warns(FitWarning) as caught:
        model.update(rest, Y[120:])
    assert any("100 % of the new rows have texts" in str(one.message) for one in caught)
    assert model.updated_.unseen == 1.0


def test_groups_stay_in_their_folds():
    groups = np.array([f"g{number % 20}" for number in range(160)])
    labels = np.where(Y > 0, "yes", "no")
    model = MileClassifier((4,), warm_start=True, **GIVEN).fit(X[:120], labels[:120], groups=groups[:120])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        model.update(X[120:], labels[120:], groups=groups[120:], earlier_groups=groups[:120])
    fold = dict(zip(groups[:120], model.oof_.fold[:120].tolist(), strict=True))
    assert [fold[label] for label in groups[120:]] == model.oof_.fold[120:].tolist()
    with pytest.raises(ValueError, match="'maybe'"):
        model.update(X[:4], np.array(["yes", "no", "maybe", "no"]))


def test_rows_that_nobody_kept_are_asked_for(folder, model, tmp_path):
    model.save(tmp_path / "model.mile")
    saved = mile.load(tmp_path / "model.mile")
    with pytest.raises(ValueError, match=r"does not keep its rows.*run_dir.*warm_start"):
        saved.update(X[:5], Y[:5])
    with pytest.raises(ValueError, match="keeps no rows"):
        saved.update(X[:5], Y[:5], earlier=tmp_path)
    assert read_manifest(folder).finished
