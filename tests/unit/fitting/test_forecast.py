"""Forecasts and time limits: what is said before the work, what is cut, what is refused."""

import re
import time

import numpy as np
import pytest
from targets import small_dataset

import mile
from mile import MLP, DeepEnsemble, FitWarning, Gaussian, Mile, ResourceError
from mile._deadline import Deadline
from mile._progress import duration
from mile.ensemble.training import Training
from mile.fitting import job as fitting
from mile.sampling import timing as forecast
from mile.sampling.timing import Forecaster, available_memory, check_memory, plan_budgets

SAMPLER = Mile(warmup_steps=1_000, sampling_steps=200, n_draws=50, step_size=0.1)  # 800, 100, 100, 200 steps
NETWORK = MLP(n_inputs=3, hidden=(4,))


class Listener:
    """Keeps what is said."""

    def __init__(self):
        self.said = []

    def start(self, stage, total, *, unit="steps", n_chains=1): ...

    def advance(self, amount): ...

    def finish(self): ...

    def note(self, text): ...

    def say(self, text):
        self.said.append(text)


def timed(seconds_per_step=0.01, compile_seconds=2.0, sampler=SAMPLER):
    """Return a forecaster that has seen two blocks of phase I."""
    made, listener = Forecaster(sampler, 3, Deadline()), Listener()
    made.note(0, 10, 10, 10 * seconds_per_step + compile_seconds, listener)
    made.note(0, 110, 100, 100 * seconds_per_step, listener)
    return made, listener


class TestForecaster:
    def test_expects_the_steps_left_and_the_programs_still_to_be_compiled(self):
        made, _ = timed()
        assert made.seconds_per_step == pytest.approx(0.01)
        assert made.compile_seconds == pytest.approx(2.0)
        # Phase II shares the program of phase I; phase III and sampling have their own.
        assert made.seconds_left(0, 110) == pytest.approx(0.01 * (1_200 - 110) + 2 * 2.0)
        assert made.seconds_left(3, 100) == pytest.approx(0.01 * 100)

    def test_says_once_what_is_to_come(self):
        made, listener = timed()
        made.note(0, 200, 90, 5.0, listener)
        assert len(listener.said) == 1
        assert re.match(
            r"Sampling: about 15 s to go, 15 s in all \(3 chains of 1,200 steps, 7,203 gradient", listener.said[0]
        )

    def test_does_not_judge_by_a_block_that_is_too_short_to_time(self):
        made, listener = timed(seconds_per_step=1e-4)
        assert made.seconds_per_step is None
        assert listener.said == []

    def test_does_not_take_compiling_for_stepping_in_a_later_phase(self):
        made, listener = Forecaster(SAMPLER, 3, Deadline()), Listener()
        made.note(0, 800, 800, 0.4, listener)  # the whole of phase I in one block
        made.note(1, 100, 100, 3.0, listener)
        assert made.seconds_per_step is None

    def test_keeps_short_work_to_itself(self):
        _, listener = timed(
            seconds_per_step=0.0051,
            compile_seconds=0.0,
            sampler=Mile(warmup_steps=150, sampling_steps=50, n_draws=9, step_size=1.0),
        )
        assert listener.said == []

    @pytest.mark.parametrize(("seconds", "text"), [(3.4, "3 s"), (119, "119 s"), (600, "10 min"), (9000, "2.5 h")])
    def test_speaks_of_time_as_people_do(self, seconds, text):
        assert duration(seconds) == text


class TestPlan:
    def test_leaves_budgets_that_fit(self):
        made, _ = timed()
        assert plan_budgets(SAMPLER, made, 17.0) is None

    @pytest.mark.parametrize("seconds", [15.5, 12.0, 8.0])
    def test_shrinks_all_steps_alike_until_they_fit(self, seconds):
        made, _ = timed()
        plan = plan_budgets(SAMPLER, made, seconds)
        assert plan is not None
        assert plan["warmup_steps"] / plan["sampling_steps"] == pytest.approx(5.0, rel=0.1)
        cost = 0.01 * (plan["warmup_steps"] + plan["sampling_steps"]) + 2 * 2.0
        assert 0.8 * seconds <= cost <= seconds
        assert plan["n_draws"] == min(50, plan["sampling_steps"])

    def test_leaves_something_to_tune_and_to_keep_however_short_the_time(self):
        made, _ = timed()
        plan = plan_budgets(SAMPLER, made, -5.0)
        assert plan == {"warmup_steps": 200, "sampling_steps": 20, "n_draws": 20}
        assert Mile(**plan).n_draws == 20

    def test_never_asks_for_more_than_was_wanted(self):
        tiny = Mile(warmup_steps=30, sampling_steps=10, n_draws=5, step_size=0.1)
        made, _ = timed(sampler=tiny)
        assert plan_budgets(tiny, made, -5.0) == {"warmup_steps": 30, "sampling_steps": 10, "n_draws": 5}

    def test_has_nothing_to_cut_where_there_are_no_steps(self):
        made, _ = timed()
        assert plan_budgets(DeepEnsemble(), made, 0.1) is None


class TestMemory:
    def test_that_is_there_is_a_sensible_number(self):
        available = available_memory()
        assert available is None or 1 << 24 < available < 1 << 50

    def test_that_is_not_there_is_refused_with_the_numbers_and_a_way_out(self, monkeypatch):
        monkeypatch.setattr(forecast, "available_memory", lambda: 1_000_000_000)
        check_memory(700_000_000)
        with pytest.raises(ResourceError, match=r"900 MB of memory, and 1,000 MB are available.*run_dir"):
            check_memory(900_000_000)

    def test_that_is_not_there_is_refused_before_anything_is_trained(self, monkeypatch):
        monkeypatch.setattr(forecast, "available_memory", lambda: 1000)
        monkeypatch.setattr(fitting, "train_members", lambda *_, **__: pytest.fail("training began"))
        with pytest.raises(ResourceError, match="MB of memory"):
            mile.fit(small_dataset(), NETWORK, Gaussian(), sampler=SAMPLER)
        with pytest.raises(ResourceError, match="MB of memory"):
            mile.sample(lambda x: -x @ x, np.zeros((2, 3)), SAMPLER)


class TestTimeLimit:
    OPTIONS = {"training": Training(max_epochs=2), "n_chains": 2, "random_state": 0}  # noqa: RUF012

    def test_that_suffices_changes_nothing(self):
        free = mile.fit(small_dataset(), NETWORK, Gaussian(), sampler=SAMPLER, **self.OPTIONS)
        limited = mile.fit(small_dataset(), NETWORK, Gaussian(), sampler=SAMPLER, time_limit=600, **self.OPTIONS)
        np.testing.assert_array_equal(free.chains.draws, limited.chains.draws)

    def test_that_does_not_cuts_the_budgets_and_says_so(self):
        endless = Mile(warmup_steps=40_000_000, sampling_steps=10_000_000, n_draws=1_000)
        mile.fit(small_dataset(), NETWORK, Gaussian(), sampler=SAMPLER, **self.OPTIONS)  # compiles
        began = time.perf_counter()
        with pytest.warns(
            FitWarning, match=r"time limit of 3 s cut the sampling: warmup steps [\d,]+ instead of 40,000,000"
        ):
            fit = mile.fit(small_dataset(), NETWORK, Gaussian(), sampler=endless, time_limit=3, **self.OPTIONS)
        # Twice the limit: the machine may be busy, and tuning, once planned, has no clock of its own.
        assert time.perf_counter() - began < 6
        assert fit.sampler.warmup_steps < 40_000_000
        assert fit.ok.all()
        assert fit.chains.draws.shape[1] == fit.chains.logdensity.shape[1] >= 10
        assert np.isfinite(fit.predictive(np.zeros((3, 3))).mean).all()

    def test_plan_can_be_asked_for_is_kept_by_the_run_and_used_when_it_is_resumed(self, tmp_path):
        endless = Mile(warmup_steps=40_000_000, sampling_steps=10_000_000, n_draws=1_000)
        options = self.OPTIONS | {"sampler": endless, "run_dir": tmp_path / "run"}
        with pytest.warns(FitWarning, match="time limit of 2 s") as caught:
            fit = mile.fit(small_dataset(), NETWORK, Gaussian(), time_limit=2, **options)
        assert caught[0].filename == __file__
        with pytest.warns(FitWarning, match="The time limit cut the sampling"):
            again = mile.fit(small_dataset(), NETWORK, Gaussian(), **options)
        assert again.sampler == fit.sampler
        np.testing.assert_array_equal(again.chains.draws, fit.chains.draws)
        np.testing.assert_array_equal(mile.load(tmp_path / "run").chains.draws, fit.chains.draws)
        asked = mile.fit(small_dataset(), NETWORK, Gaussian(), sampler=fit.sampler, **self.OPTIONS)
        np.testing.assert_array_equal(asked.chains.draws[:, : fit.chains.draws.shape[1]], fit.chains.draws)

    def test_cuts_the_last_phase_at_a_block_when_the_plan_was_too_bold(self, monkeypatch):
        """The plan trusts a timing; here it finds nothing to cut although the time is far too short."""
        monkeypatch.setattr(fitting, "plan_budgets", lambda *_: None)
        long = Mile(warmup_steps=300, sampling_steps=2_000_000, n_draws=2_000)
        with pytest.warns(FitWarning, match=r"draws of each chain [\d,]+ instead of 2,000"):
            fit = mile.fit(small_dataset(), NETWORK, Gaussian(), sampler=long, time_limit=3, **self.OPTIONS)
        n_draws = fit.chains.draws.shape[1]
        assert 10 <= n_draws < 2_000
        assert np.isfinite(fit.chains.draws).all()
        assert fit.ok.all()

    def test_cuts_training_and_says_so(self):
        training = Training(max_epochs=1_000_000)
        x, y = np.random.default_rng(0).standard_normal((2, 40, 3))[:, :, :]
        dataset = mile.Dataset.from_arrays(x, y[:, 0])  # without validation rows nothing stops it
        began = time.perf_counter()
        with pytest.warns(FitWarning, match="cut the training of 2 of 2 members") as caught:
            fit = mile.fit(
                dataset,
                NETWORK,
                Gaussian(),
                sampler=DeepEnsemble(),
                training=training,
                n_chains=2,
                random_state=0,
                time_limit=1,
            )
        assert time.perf_counter() - began < 30
        assert caught[0].filename == __file__  # the caller's line, not one of the library
        assert (fit.members.epochs < training.max_epochs).all()
        assert fit.ok.all()

    @pytest.mark.parametrize("time_limit", [0, -1, float("nan"), float("inf"), "10", True])
    def test_must_be_a_positive_number(self, time_limit):
        with pytest.raises(ValueError, match="time_limit must be"):
            mile.fit(small_dataset(), NETWORK, Gaussian(), time_limit=time_limit)
        with pytest.raises(ValueError, match="time_limit must be"):
            mile.MileRegressor(time_limit=time_limit).fit(np.zeros((30, 2)), np.arange(30.0))
