"""`mile watch`: what it says of a run in each of its stages."""

import json

import numpy as np
import pytest
import runs
from targets import small_dataset
from typer.testing import CliRunner

import mile
from mile.cli import app
from mile.estimators.watching import RunState, time_left, watch_run
from mile.fitting.out_of_fold import predict_out_of_fold

STEPS = 460  # of runs.SAMPLER


def stopped(folder, stage, **changes):
    with runs.interrupted(stage, 4), pytest.raises(mile.Interrupted):
        runs.begin(folder, **changes)
    return watch_run(folder)


def test_each_stage_has_its_words_and_numbers(tmp_path):
    with runs.frequent_checkpoints():
        state = stopped(tmp_path, "ensemble")
    assert state.stage == "training networks"
    assert (state.step, state.steps, state.draws, state.score) == (0, STEPS, 0, None)
    state = stopped(tmp_path, "phase I")
    assert (state.stage, state.trained) == ("finding the step size", 3)
    assert 0 < state.step < 300
    assert state.score == state.ensemble_score is not None
    state = stopped(tmp_path, "sampling")
    assert state.stage == "sampling"
    assert 300 < state.step < STEPS
    assert state.draws > 0
    assert state.score != state.ensemble_score
    fit = runs.begin(tmp_path)
    state = watch_run(tmp_path)
    assert (state.stage, state.step, state.draws, state.is_finished) == ("finished", STEPS, 50, True)
    valid = small_dataset().valid
    assert state.score.value == pytest.approx(np.mean(fit.predictive(valid.x).log_prob(valid.y)), abs=1e-6)
    assert state.rows == "validation rows"


def test_with_folds_rows_are_scored_by_chains_that_left_them_out(tmp_path):
    x, y = small_dataset().x_train, small_dataset().y_train
    dataset = mile.Dataset.from_arrays(x, y, fold_train=np.arange(len(x)) % 3)
    state = stopped(tmp_path, "sampling", dataset=dataset)
    expected = predict_out_of_fold(mile.load(tmp_path), dataset)
    assert state.rows == "out-of-fold rows"
    assert state.score == expected.scores["lppd"]


def test_the_command_prints_a_line_and_answers_programs(tmp_path):
    runs.begin(tmp_path / "run")
    run = CliRunner().invoke
    said = run(app, ["watch", str(tmp_path / "run")]).output
    assert "finished  50 draws of each chain  LPPD " in said
    assert "(ensemble " in said
    answer = json.loads(run(app, ["watch", str(tmp_path / "run"), "--once", "--json"]).stdout)
    assert (answer["stage"], answer["draws"]) == ("finished", 50)
    assert set(answer["score"]) == {"value", "standard_error"}
    assert "There is no run" in run(app, ["watch", str(tmp_path / "none")]).output
    assert "--every must be" in run(app, ["watch", str(tmp_path / "run"), "--every", "0"]).output


def test_the_time_left_goes_by_the_speed_between_two_looks():
    earlier = RunState("sampling", 3, 3, 100, 400, 0, 1.0)
    assert time_left(earlier, earlier._replace(step=200), 10.0) == 20.0
    assert time_left(earlier, earlier, 10.0) is None
