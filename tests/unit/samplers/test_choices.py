"""Words that stand for a choice: sampler="auto", which the time limit decides, and preset="exact"."""

import dataclasses

import numpy as np
import pytest
from targets import SMALL_NETWORK, small_dataset

import mile
from mile import Adjusted, DeepEnsemble, FitWarning, Gaussian, Mile, MileRegressor, Stochastic
from mile.configuration import build, describe
from mile.ensemble.training import Training
from mile.fitting import job as fitting
from mile.samplers import MINIBATCHES, Auto, configure, with_plan
from mile.sampling.chains import time_step

OPTIONS = {"training": Training(max_epochs=2), "n_chains": 2, "random_state": 0}
SMALL = Mile(warmup_steps=60, sampling_steps=40, n_draws=20)
BATCHES = Stochastic(warmup_steps=60, sampling_steps=40, n_draws=20, batch_size=16)
LIMIT = 600.0
SENTENCE = r'Sampling on all rows would take about .* h, more than the time limit of 10 min.*"auto" takes mini-batches'


def fit(**options):
    return mile.fit(small_dataset(), SMALL_NETWORK, Gaussian(), **OPTIONS | options)


@pytest.fixture
def slow_rows(monkeypatch):
    """Let a step on all rows seem to take minutes; how fast this machine is must not matter."""

    def timed(sampler, **options):
        forecast = time_step(sampler, **options)
        if isinstance(sampler, Mile):
            forecast.seconds_per_step = 300.0
        return forecast

    monkeypatch.setattr(fitting, "time_step", timed)


class TestAuto:
    def test_is_mile_when_there_is_time(self):
        expected = fit(sampler=SMALL).chains.draws
        for time_limit in (None, LIMIT):
            chosen = fit(sampler=Auto(full=SMALL, stochastic=BATCHES), time_limit=time_limit)
            assert chosen.sampler == SMALL.with_start(1e-3)
            np.testing.assert_array_equal(chosen.chains.draws, expected)

    @pytest.mark.usefixtures("slow_rows")
    def test_takes_mini_batches_when_there_is_not_and_says_so(self, tmp_path):
        options = {"sampler": Auto(full=SMALL, stochastic=BATCHES), "run_dir": tmp_path / "run"}
        with pytest.warns(FitWarning, match=SENTENCE) as caught:
            chosen = fit(**options, time_limit=LIMIT)
        assert caught[0].filename == __file__  # the line that called mile.fit
        assert chosen.sampler == BATCHES.with_start(1e-3)
        np.testing.assert_array_equal(chosen.chains.draws[:], fit(sampler=BATCHES).chains.draws)
        # The run remembers the choice, with or without a time limit.
        for other in (fit(**options), mile.resume(tmp_path / "run"), mile.load(tmp_path / "run")):
            assert other.sampler == chosen.sampler
            np.testing.assert_array_equal(other.chains.draws[:], chosen.chains.draws[:])

    @pytest.mark.slow
    @pytest.mark.usefixtures("slow_rows")
    def test_cuts_the_budgets_of_mini_batches_too(self):
        endless = dataclasses.replace(BATCHES, warmup_steps=40_000_000, sampling_steps=10_000_000)
        with pytest.warns(FitWarning) as caught:
            chosen = fit(sampler=Auto(full=SMALL, stochastic=endless), time_limit=8)
        sentences = " ".join(str(warning.message) for warning in caught)
        assert "takes mini-batches" in sentences
        assert "instead of 40,000,000" in sentences
        assert isinstance(chosen.sampler, Stochastic)

    def test_of_an_estimator_has_the_preset_and_budgets_and_is_kept_in_files(self, tmp_path):
        budgets = {"warmup_steps": 60, "sampling_steps": 40, "max_epochs": 2}
        model = MileRegressor((4,), sampler="auto", preset="paper", n_chains=2, random_state=0, **budgets)
        x = small_dataset().x_train
        model.fit(x, x[:, 0])
        assert model.fit_.sampler == dataclasses.replace(SMALL, n_draws=40, step_size=1e-3)
        model.save(tmp_path / "model.mile")
        assert mile.load(tmp_path / "model.mile").sampler == "auto"

    def test_is_known_to_files(self):
        auto = configure("auto", "quick", sampling_steps=300).with_start(0.01)
        assert build(describe(auto), Auto) == auto
        assert auto.full.step_size == auto.stochastic.step_size == 0.01
        assert auto.full.sampling_steps == auto.stochastic.sampling_steps == 300

    def test_chooses_between_one_of_each_kind(self):
        for arguments in ({"full": BATCHES, "stochastic": BATCHES}, {"full": SMALL, "stochastic": 1}):
            with pytest.raises(ValueError, match=r"must be a (Mile|Stochastic)"):
                Auto(**arguments)

    def test_has_no_rows_to_choose_from_in_a_function(self):
        with pytest.raises(ValueError, match="'auto' works with the rows"):
            mile.sample(lambda x: -0.5 * x @ x, np.zeros((2, 3)), "auto")


def test_a_plan_is_a_choice_and_budgets():
    auto = Auto(full=SMALL, stochastic=BATCHES)
    assert with_plan(auto, None) == with_plan(auto, {}) == SMALL
    assert with_plan(auto, {MINIBATCHES: 1, "n_draws": 5}) == dataclasses.replace(BATCHES, n_draws=5)
    assert with_plan(SMALL, {"n_draws": 5}) == dataclasses.replace(SMALL, n_draws=5)
    with pytest.raises(TypeError):
        with_plan(SMALL, {MINIBATCHES: 1})


class TestExact:
    def test_is_the_adjusted_sampler(self):
        assert configure("mile", "exact") == configure("adjusted", "exact") == Adjusted()
        assert configure("mile", "exact", sampling_steps=50) == Adjusted(sampling_steps=50, n_draws=50)

    def test_goes_with_no_other(self):
        for sampler in ("nuts", "auto", "deep_ensemble", DeepEnsemble(), Mile()):
            with pytest.raises(ValueError, match='preset "exact" means sampler="adjusted"'):
                configure(sampler, "exact")
            with pytest.raises(ValueError, match='preset "exact"'):
                MileRegressor(sampler=sampler, preset="exact").fit(np.zeros((30, 2)), np.arange(30.0))
