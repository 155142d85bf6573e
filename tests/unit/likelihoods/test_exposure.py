"""Counts with an exposure: means are proportional to it, and files, tables and the command line keep it."""

import numpy as np
import pandas as pd
import pytest
import runs
from scipy import optimize
from typer.testing import CliRunner

import mile
from mile import MLP, MileClassifier, MileRegressor, Offset, UntrustedFileError, WithExposure
from mile.cli import app
from mile.features.exposure import joined

SMALL = {
    "hidden_layer_sizes": (4,),
    "n_chains": 2,
    "warmup_steps": 60,
    "sampling_steps": 20,
    "n_draws": 5,
    "max_epochs": 60,
    "n_folds": 0,
    "random_state": 1,
}
QUICK = SMALL | {"sampler": "deep_ensemble"}


def table(n_rows=300):
    rng = np.random.default_rng(0)
    x, days = rng.standard_normal((n_rows, 2)), np.exp(rng.uniform(0.0, 5.0, n_rows))
    return x, rng.poisson(days * np.exp(0.5 * x[:, 0] - 1.0)).astype(float), days


@pytest.fixture(scope="module")
def model():
    x, y, days = table()
    return MileRegressor(likelihood="poisson", **SMALL).fit(x, y, exposure=days)


def test_twice_the_exposure_is_twice_the_mean(model):
    x, _, days = table()
    once, twice = model.predict(x, exposure=days), model.predict(x, exposure=2.0 * days)
    np.testing.assert_allclose(twice, 2.0 * once, rtol=1e-6)
    np.testing.assert_allclose(model.predict(x, exposure=1.0) * days, once, rtol=1e-5)
    each = model.predictive(mile.with_exposure(x, days)).moments_per_draw()
    np.testing.assert_allclose(each[1], np.sqrt(each[0]), rtol=1e-6)  # Poisson under every draw, at any exposure
    assert np.all(model.predict_interval(x, exposure=9.0 * days)[:, 1] > model.predict_interval(x, exposure=days)[:, 1])


def test_rates_are_those_of_a_regression_with_an_offset():
    """The network can be the log-linear model, whose maximum likelihood is known: it comes close to it."""
    x, y, days = table()
    found = MileRegressor(likelihood="poisson", **QUICK | {"max_epochs": 200, "n_chains": 4}).fit(x, y, exposure=days)
    design = np.column_stack([np.ones(len(x)), x])

    def loss(weights):
        rate = design @ weights + np.log(days)
        return np.sum(np.exp(rate) - y * rate), design.T @ (np.exp(rate) - y)

    best = optimize.minimize(loss, np.zeros(3), jac=True).x
    rates = np.log(found.predict(x, exposure=1.0))
    assert np.sqrt(np.mean((rates - design @ best) ** 2)) < 0.15
    # Without it, exposure is noise.
    blind = MileRegressor(likelihood="poisson", **QUICK).fit(x, y)
    assert found.lppd(mile.with_exposure(x, days), y) > blind.lppd(x, y) + 1.0


def test_the_likelihood_adds_the_log_of_the_exposure():
    for family in (
        mile.Poisson(),
        mile.NegativeBinomial(),
        mile.ZeroInflatedPoisson(),
        mile.ZeroInflatedNegativeBinomial(),
    ):
        exposed = family.with_exposure()
        assert (exposed.n_offsets, exposed.n_outputs) == (1, family.n_outputs + 1)
        outputs = 0.3 * np.random.default_rng(1).standard_normal((2, exposed.n_outputs, 5))
        outputs[:, -1] = np.log(3.0)
        plain = family.components(outputs[:, :-1])
        np.testing.assert_allclose(exposed.components(outputs).mean, 3.0 * plain.mean)
        y = np.arange(5.0)
        compiled = np.stack([np.asarray(exposed.log_prob(one, y)) for one in outputs])
        np.testing.assert_allclose(compiled, exposed.components(outputs).log_prob(y), rtol=1e-4)


def test_what_is_no_exposure_is_refused(model):
    x, y, days = table()
    with pytest.raises(ValueError, match=r"exposure=\.\.\., a number for each row"):
        model.predict(x)
    plain = MileRegressor(likelihood="poisson", **QUICK).fit(x, y)
    with pytest.raises(ValueError, match="was not: leave it out"):
        plain.predict(x, exposure=days)
    for wrong, message in (
        (np.where(np.arange(300) == 7, 0.0, days), "row 7 has 0"),
        (days[:5], "each of the 300 rows"),
        (["long"] * 300, "one number for each row"),
    ):
        with pytest.raises(ValueError, match=message):
            MileRegressor(likelihood="poisson", **QUICK).fit(x, y, exposure=wrong)
    for estimator, target in ((MileRegressor(**QUICK), y), (MileClassifier(**QUICK), y > 3)):
        with pytest.raises(ValueError, match="exposure is for counts"):
            estimator.fit(x, target, exposure=days)
    with pytest.raises(ValueError, match="rows of tables"):
        joined(np.zeros((2, 3, 3)), 1.0)
    with pytest.raises(ValueError, match="features"):
        Offset(network=MLP(n_inputs=2)).sized((2,), 3)


def test_a_table_keeps_its_own_columns(tmp_path):
    x, y, days = table(120)
    frame = pd.DataFrame({"exposure": x[:, 0], "kind": np.where(x[:, 1] > 0, "a", "b")}, index=range(5, 125))
    y[3] = np.nan
    rows = mile.with_exposure(frame, days)
    with pytest.warns(mile.FitWarning, match="left out"):
        model = MileRegressor(likelihood="negative_binomial", **QUICK).fit(rows, y)
    known = np.arange(120) != 3
    assert model.n_features_in_ == 2
    assert model.predict_frame(rows).index.tolist() == frame.index.tolist()
    test = mile.with_exposure(frame[known], days[known])
    assert model.score(test, y[known]) > 0.3
    explanation = model.explain(test, y[known], n_draws=2, n_repeats=1, columns=["exposure_"])
    assert explanation.columns == ("exposure", "kind", "exposure_")
    assert explanation.important[0] == "exposure_"
    model.report(tmp_path / "page.html", test, y[known])
    model.save(tmp_path / "model.mile")
    again = mile.load(tmp_path / "model.mile")
    np.testing.assert_array_equal(again.predict(frame, exposure=days), model.predict(frame, exposure=days))


def test_a_file_says_what_its_encoder_is(model):
    encoder = model.fit_.encoder
    kept = encoder.tensors(), encoder.settings()
    again = WithExposure.restore(*kept, 3)
    assert again.tensors().keys() == kept[0].keys()
    assert again.log_mean == encoder.log_mean
    for settings in ({}, {"inner": "with_exposure"}, {"inner": "nothing"}, {"inner": "standardizer", "other": 1}):
        with pytest.raises(UntrustedFileError):
            WithExposure.restore(kept[0], settings, 3)
    with pytest.raises(UntrustedFileError):
        WithExposure.restore({**kept[0], "log_mean": np.array(np.nan)}, kept[1], 3)


def test_a_stopped_run_resumes_to_the_same_bits(model, tmp_path):
    x, y, days = table()
    stopped = MileRegressor(likelihood="poisson", run_dir=tmp_path / "exposed.run", **SMALL)
    with runs.interrupted("sampling", 1), pytest.raises(KeyboardInterrupt):
        stopped.fit(x, y, exposure=days)
    resumed = mile.resume(tmp_path / "exposed.run")
    np.testing.assert_array_equal(resumed.predict(x, exposure=days), model.predict(x, exposure=days))


def test_the_command_line_takes_a_column_for_it(tmp_path):
    x, y, days = table(80)
    data, run = str(tmp_path / "claims.csv"), str(tmp_path / "claims.run")
    pd.DataFrame({"age": x[:, 0], "claims": y.astype(int), "days": days}).to_csv(data, index=False)
    options = ["--sampler", "deep_ensemble", "--chains", "2", "--hidden", "4", "--seed", "1", "--quiet"]
    fit = ["fit", data, "--target", "claims", "--likelihood", "poisson", "--exposure", "days", "--out", run, *options]
    for arguments in (fit, ["evaluate", run, data], ["report", run, "--data", data], ["predict", run, data]):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
    model = mile.load(run)
    assert (model.exposure_name_, model.feature_names_in_.tolist()) == ("days", ["age"])
    first = float(result.output.splitlines()[1].split(",")[0])
    assert first == pytest.approx(model.predict(pd.DataFrame({"age": x[:, 0]}), exposure=days)[0])
    pd.DataFrame({"age": x[:, 0]}).to_csv(data, index=False)
    refused = CliRunner().invoke(app, ["predict", run, data])
    assert refused.exit_code != 0
    assert "days" in refused.output
