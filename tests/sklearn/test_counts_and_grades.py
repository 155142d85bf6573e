"""Counts, grades and amounts go through everything that numbers go through: estimators, commands, files, reports."""

import json
from pathlib import Path

import numpy as np
import pytest
import runs
from typer.testing import CliRunner

import mile
from mile import MileClassifier, MileRegressor
from mile.cli import app

N_ROWS = 90
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N_ROWS, 2))
MEAN = np.exp(0.8 * X[:, 0])
COUNTS = RNG.poisson(MEAN * RNG.gamma(1.0, 1.0, N_ROWS))
GRADES = 0.5 * np.clip(np.round(X[:, 0] + RNG.standard_normal(N_ROWS)), -2, 2) + 3.0
AMOUNTS = 1000.0 * MEAN * RNG.gamma(2.0, 1.0, N_ROWS) * (RNG.uniform(size=N_ROWS) < 0.7)
SHARES = 100.0 * RNG.beta(2.0 * MEAN, 2.0)
# Networks without sampling predict by the same mixtures as chains, after a fraction of the compiling.
TRAINED = {"hidden_layer_sizes": (3,), "n_chains": 3, "sampler": "deep_ensemble", "max_epochs": 5, "random_state": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with a table and a run that the command line has made of it; the task follows from the likelihood."""
    folder = tmp_path_factory.mktemp("counts")
    lines = [f"{a:.4f},{b:.4f},{y}" for (a, b), y in zip(X, COUNTS, strict=True)]
    (folder / "data.csv").write_text("\n".join(["a,b,visits", *lines]))
    budget = ["--chains", "3", "--folds", "3", "--warmup-steps", "60", "--sampling-steps", "30", "--draws", "10"]
    budget += ["--hidden", "3", "--seed", "1"]
    fit = ["fit", str(folder / "data.csv"), "--target", "visits", "--likelihood", "negative_binomial", *budget]
    result = CliRunner().invoke(app, [*fit, "--out", str(folder / "counts.run"), "--quiet"])
    assert result.exit_code == 0, result.output
    return folder


SAMPLED = {"likelihood": "negative_binomial", "hidden_layer_sizes": (3,), "n_chains": 3, "n_folds": 3}
SAMPLED |= {"warmup_steps": 60, "sampling_steps": 30, "n_draws": 10, "random_state": 1}


@pytest.fixture(scope="module")
def model():
    return MileRegressor(**SAMPLED).fit(X, COUNTS)


def test_commands_predict_and_report_counts(folder):
    run, data = str(folder / "counts.run"), str(folder / "data.csv")
    found = CliRunner().invoke(app, ["predict", run, data, "--quantiles", "0.1,0.9", "--out", str(folder / "out.csv")])
    assert found.exit_code == 0, found.output
    table = np.genfromtxt(folder / "out.csv", delimiter=",", names=True)
    for column in ("lower_90", "upper_90", "q01", "q09"):
        np.testing.assert_array_equal(table[column] % 1.0, 0.0)
    assert np.all((table["p_0"] > 0.0) & (table["p_0"] < 1.0))
    scores = CliRunner().invoke(app, ["evaluate", run, data, "--json"])
    assert scores.exit_code == 0, scores.output
    assert '"crps"' in scores.output
    page = CliRunner().invoke(app, ["report", run, "--data", data, "--out", str(folder / "page.html")])
    assert page.exit_code == 0, page.output


def test_a_prediction_of_counts_is_one_distribution(model):
    predictive = model.predictive(X)
    counts = np.arange(4_000)
    probabilities = predictive.probabilities(counts)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-6)
    np.testing.assert_allclose(probabilities @ counts, predictive.mean, rtol=1e-4)
    np.testing.assert_allclose(np.exp(predictive.log_prob(COUNTS)), probabilities[np.arange(N_ROWS), COUNTS])
    cdf = np.cumsum(probabilities, axis=1)
    np.testing.assert_allclose(predictive.cdf(COUNTS), cdf[np.arange(N_ROWS), COUNTS], rtol=1e-9)
    np.testing.assert_allclose(predictive.cdf_below(COUNTS), predictive.cdf(COUNTS - 1.0))
    for level in (0.05, 0.5, 0.95):
        np.testing.assert_array_equal(predictive.quantile(level), (cdf < level).sum(axis=1))
    exact = np.square(cdf - (counts >= COUNTS[:, None])).sum(axis=1)
    np.testing.assert_allclose(predictive.crps(COUNTS), exact, rtol=1e-4)
    sample = predictive.sample(2_000, random_state=0)
    np.testing.assert_array_equal(sample, np.floor(sample))
    assert np.all(np.abs(sample.mean(axis=0) - predictive.mean) < 6.0 * predictive.std / np.sqrt(2_000))


def test_pit_values_are_uniform_where_the_prediction_is_right(model):
    """P(Y <= y) is not. Fails once in a million runs with other seeds."""
    predictive = model.predictive(np.tile(X, (20, 1)))
    y = predictive.sample(1, random_state=0)[0]
    for values, is_uniform in ((predictive.pit(y), True), (predictive.cdf(y), False)):
        distance = np.abs(np.sort(values) - (np.arange(len(y)) + 0.5) / len(y)).max()
        assert (distance < 2.7 / np.sqrt(len(y))) == is_uniform
    np.testing.assert_array_equal(predictive.pit(y), predictive.pit(y))
    lower, upper = predictive.interval(0.8).T
    np.testing.assert_array_equal(predictive.inside(y, 0.8), (y >= lower) & (y <= upper))
    assert predictive.inside(y, 0.8).mean() > 0.8


def test_conformal_intervals_end_at_counts(model):
    ends = model.predict_interval(X, level=0.8, conformal=True)
    np.testing.assert_array_equal(ends, np.floor(ends))
    assert ends.min() >= 0.0
    assert np.mean((ends[:, 0] <= COUNTS) & (ends[:, 1] >= COUNTS)) > 0.6


def test_a_run_of_counts_resumes_to_the_same_bits(model, tmp_path):
    with runs.interrupted("sampling", 1), pytest.raises(KeyboardInterrupt):
        MileRegressor(run_dir=tmp_path / "stopped.run", **SAMPLED).fit(X, COUNTS)
    np.testing.assert_array_equal(mile.resume(tmp_path / "stopped.run").predict(X), model.predict(X))


def test_other_kinds_are_saved_and_predict_values_that_y_can_have(tmp_path):
    cases = {
        "zero_inflated_poisson": (COUNTS, lambda q: np.all(q == np.floor(q))),
        "hurdle_gamma": (AMOUNTS, lambda q: np.all(q >= 0.0) and np.any(q == 0.0)),
        "ordinal": (GRADES, lambda q: np.isin(q, np.unique(GRADES)).all()),
        mile.Beta(upper=100.0): (SHARES, lambda q: np.all((q > 0.0) & (q < 100.0))),
    }
    for likelihood, (y, are_possible) in cases.items():
        model = MileRegressor(likelihood=likelihood, **TRAINED).fit(X, y)
        predictive = model.predictive(X)
        assert are_possible(predictive.quantile([0.05, 0.4, 0.9])), likelihood
        assert all(np.isfinite(list(predictive.scores(y).values()))), likelihood
        assert all(len(column) == N_ROWS for column in predictive.columns(quantiles=[0.3]).values())
        model.save(tmp_path / "model.mile")
        again = mile.load(tmp_path / "model.mile")
        np.testing.assert_array_equal(again.predictive(X).log_prob(y), predictive.log_prob(y))


def test_a_hurdle_density_is_per_unit_of_y_and_zero_has_a_probability():
    predictive = MileRegressor(likelihood="hurdle_lognormal", **TRAINED).fit(X, AMOUNTS).predictive(X[:1])
    y = np.geomspace(1e-2, 1e7, 20_001)
    density = np.array([np.exp(predictive.log_prob(np.array([value])))[0] for value in y[::20]])
    at_zero = float(np.exp(predictive.log_prob(np.zeros(1)))[0])
    np.testing.assert_allclose(at_zero, predictive.cdf(np.zeros(1)))
    assert at_zero + np.trapezoid(density, y[::20]) == pytest.approx(1.0, abs=2e-3)


def test_grades_have_the_scores_of_classes_too(tmp_path):
    model = MileRegressor(likelihood="ordinal", **TRAINED).fit(X, GRADES)
    predictive = model.predictive(X)
    np.testing.assert_allclose(predictive.probs.sum(axis=1), 1.0)
    np.testing.assert_allclose(predictive.probs @ predictive.classes, predictive.mean)
    model.report(tmp_path / "page.html", X, GRADES)
    assert predictive.scores(GRADES)["accuracy"] == np.mean(predictive.labels == GRADES)
    np.testing.assert_array_equal(predictive.possible(np.array([[2.1, 3.9], [-np.inf, np.inf]])), [[2.5, 3.5], [2, 4]])
    classes = MileClassifier(likelihood="ordered_classes", **TRAINED).fit(X, GRADES.astype(str))
    assert classes.predict_proba(X).shape == (N_ROWS, 5)
    assert json.dumps(classes.classes_.tolist()) == json.dumps(["2.0", "2.5", "3.0", "3.5", "4.0"])
