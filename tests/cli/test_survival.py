"""Survival times on the command line: fit, predict, evaluate and report with a column of events."""

import csv
import json

import numpy as np
import pytest
from typer.testing import CliRunner

import mile
from mile.cli import app

BUDGET = ["--chains", "2", "--folds", "0", "--hidden", "4", "--seed", "1", "--sampler", "deep_ensemble"]


@pytest.fixture
def run(tmp_path):
    def call(*arguments):
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    return call


def write(path, events=("yes", "no"), n=60):
    rng = np.random.default_rng(0)
    age, stage = rng.normal(60.0, 10.0, n), rng.choice(["I", "II"], n)
    days = np.exp(6.0 + 0.05 * (60.0 - age) + rng.logistic(size=n) / 3.0)
    seen = np.where(rng.random(n) < 0.7, *events)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("age", "stage", "days", "died"), *zip(age, stage, days, seen, strict=True)])
    return path


def test_a_run_of_times_predicts_survival_and_is_scored(run, tmp_path):
    data, folder = write(tmp_path / "patients.csv"), tmp_path / "patients.run"
    fitted = run("fit", data, "--target", "days", "--event", "died", "--out", folder, *BUDGET)
    assert fitted.exit_code == 0, fitted.output
    assert "'died' says which times are censored" in fitted.output
    model = mile.load(folder)
    assert list(model.feature_names_in_) == ["age", "stage"]
    assert (model.target_name_, model.event_name_) == ("days", "died")
    predicted = run("predict", folder, data, "--times", "100,400", "--quiet")
    assert predicted.exit_code == 0, predicted.output
    rows = list(csv.DictReader(predicted.stdout.splitlines()))
    assert list(rows[0]) == ["median", "lower_90", "upper_90", "survival_100", "survival_400"]
    assert all(float(row["survival_100"]) >= float(row["survival_400"]) for row in rows)
    scored = run("evaluate", folder, data, "--json")
    assert scored.exit_code == 0, scored.output
    scores = json.loads(scored.stdout)["deep_ensemble"]
    assert set(scores) == {"lppd", "concordance", "integrated_brier", "survival_calibration"}
    reported = run("report", folder, "--data", data, "--out", tmp_path / "page.html")
    assert reported.exit_code == 0, reported.output
    page = (tmp_path / "page.html").read_text()
    assert "Kaplan and Meier" in page
    assert "concordance" in page


def test_cells_that_are_no_event_are_refused_by_line(run, tmp_path):
    fit = ["--target", "days", "--out", tmp_path / "x.run", *BUDGET]
    wrong = run("fit", write(tmp_path / "a.csv", ("yes", "maybe")), "--event", "died", *fit)
    assert wrong.exit_code != 0
    assert "true or false" in wrong.output
    assert "'maybe' in row" in wrong.output
    same = run("fit", write(tmp_path / "b.csv"), "--event", "days", *fit)
    assert "must be two columns" in same.output
    times = run("predict", tmp_path, tmp_path / "b.csv", "--times", "soon")
    assert "--times must be numbers" in times.output
