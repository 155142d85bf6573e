"""More draws, more chains, another preset, and an end of sampling that waits for nothing."""

import numpy as np
import pytest

import mile
from mile import FitWarning, MileRegressor
from mile.storage import read_manifest

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3))
Y = X[:, 0] - X[:, 1] ** 2 + 0.3 * RNG.normal(size=120)
# 203 steps and 50 draws: one draw in four, after 3 steps without.
SMALL = {"warmup_steps": 300, "sampling_steps": 203, "n_draws": 50, "n_chains": 4, "n_folds": 3, "max_epochs": 20}
LARGE = SMALL | {"sampling_steps": 403, "n_draws": 100, "n_chains": 6}


def regressor(**arguments):
    return MileRegressor(**(SMALL | {"random_state": 3} | arguments))


@pytest.fixture(scope="module")
def whole():
    return regressor(**LARGE).fit(X, Y).fit_


def assert_same(fit, whole, chains=slice(None)):
    np.testing.assert_array_equal(fit.chains.draws, whole.chains.draws[chains])
    np.testing.assert_array_equal(fit.chains.virial, whole.chains.virial[chains])
    if len(fit.status) == len(whole.status):
        np.testing.assert_array_equal(fit.weights, whole.weights)


def test_a_second_fit_adds_to_the_first(whole):
    model = regressor(warm_start=True).fit(X, Y)
    assert_same(model.set_params(n_draws=100).fit(X, Y).fit_, whole, slice(4))
    assert_same(model.set_params(n_chains=6).fit(X, Y).fit_, whole)
    assert_same(model.fit(X, Y).fit_, whole)
    with pytest.raises(ValueError, match="only be more draws and chains"):
        model.set_params(n_chains=5).fit(X, Y)
    with pytest.warns(FitWarning, match="begins from the start: the rows are not those"):
        model.set_params(n_chains=6).fit(X[:90], Y[:90])


def test_more_chains_keep_the_folds_that_there_are(tmp_path):
    model = regressor(warm_start=True, n_folds=None, n_chains=3).fit(X, Y)
    with pytest.warns(FitWarning, match="from the start would rotate 4 folds.*keeps the 3"):
        model.set_params(n_chains=4).fit(X, Y)
    np.testing.assert_array_equal(model.fit_.chains.draws, regressor().fit(X, Y).fit_.chains.draws)


def test_a_run_is_given_more(tmp_path, whole):
    regressor(run_dir=tmp_path / "run").fit(X, Y)
    assert mile.resume(tmp_path / "run", n_chains=6).n_chains == 6
    model = mile.resume(tmp_path / "run", n_draws=100)
    assert_same(model.fit_, whole)
    assert (model.n_draws, model.sampling_steps) == (100, 403)
    assert_same(regressor(**LARGE, run_dir=tmp_path / "run").fit(X, Y).fit_, whole)  # it is that run now


def test_another_preset_keeps_the_networks(tmp_path):
    regressor(preset="quick", n_chains=3, run_dir=tmp_path).fit(X, Y)
    model = mile.resume(tmp_path, preset="accurate")
    whole = regressor(preset="accurate", n_chains=3).fit(X, Y)
    np.testing.assert_array_equal(model.fit_.chains.draws, whole.fit_.chains.draws)
    assert model.preset == "accurate"
    with pytest.raises(ValueError, match="preset='paper' has another"):
        mile.resume(tmp_path, preset="paper")


# One draw in four; with fewer of them the last ones still gain.
MANY = {"sampling_steps": 400, "n_draws": 100}


@pytest.fixture(scope="module")
def not_ended():
    return regressor(**MANY).fit(X, Y).fit_


@pytest.fixture(scope="module")
def flat_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("flat") / "run"
    return folder, regressor(**MANY, stop_when="flat", run_dir=folder).fit(X, Y)


def test_sampling_ends_when_more_draws_gain_nothing(flat_run, not_ended):
    folder, model = flat_run
    n_draws = model.fit_.chains.draws.shape[1]
    assert n_draws < 100
    assert model.steps_saved_ == 4 * (100 - n_draws)
    np.testing.assert_array_equal(model.fit_.chains.draws, not_ended.chains.draws[:, :n_draws])
    assert read_manifest(folder).plan == {"n_draws": n_draws, "sampling_steps": 400 - model.steps_saved_, "stopped": 1}
    again = mile.load(folder)
    assert again.stop_when == "flat"
    assert again.fit_.sampler.n_draws == n_draws
    unsaved = regressor(**MANY, stop_when="flat").fit(X, Y)
    np.testing.assert_array_equal(unsaved.fit_.chains.draws, model.fit_.chains.draws)


def test_a_run_that_ended_early_can_be_given_the_rest(flat_run, not_ended):
    folder, _ = flat_run
    model = mile.resume(folder, n_draws=100)
    assert model.stop_when is None
    assert_same(model.fit_, not_ended)


def test_a_rule_needs_rows_and_a_sampler_that_can_be_longer():
    with pytest.raises(ValueError, match="deep_ensemble cannot be continued"):
        regressor(sampler="deep_ensemble", stop_when="flat").fit(X, Y)
    with pytest.raises(ValueError, match="stop_when must be"):
        regressor(stop_when="soon").fit(X, Y)
