"""Several numbers for each row: joint densities, samples and scores, and each output alone."""

import families
import numpy as np
import pandas as pd
import pytest
import runs
from scipy import stats
from typer.testing import CliRunner

import mile
from mile import FitWarning, Gaussian, Independent, MileClassifier, MileRegressor, MultivariateGaussian, Poisson
from mile.cli import app
from mile.likelihoods.joint import KnownOutputs
from mile.likelihoods.outputs import names_of

RHO = 0.8
TRUE_GAIN = -0.5 * np.log(1.0 - RHO**2)  # nats per row that the correlation of the noise is worth
SMALL = {
    "hidden_layer_sizes": (8,),
    "n_chains": 3,
    "warmup_steps": 200,
    "sampling_steps": 60,
    "n_draws": 15,
    "learning_rate": 0.01,
    "max_epochs": 60,
    "n_folds": 3,
    "random_state": 1,
}
QUICK = SMALL | {"sampler": "deep_ensemble", "n_folds": 0}
DATA = 320  # rows to train on


def table(n_rows=2 * DATA):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n_rows, 2))
    noise = rng.standard_normal((n_rows, 2)) @ np.array([[1.0, RHO], [0.0, np.sqrt(1.0 - RHO**2)]])
    y = np.stack([x[:, 0], 10.0 + 4.0 * x[:, 1]], axis=1) + noise * [0.5, 3.0]
    return x, y


@pytest.fixture(scope="module")
def model():
    x, y = table()
    frame = pd.DataFrame(y, columns=["width", "net weight"])
    return MileRegressor(likelihood="multivariate_gaussian", **SMALL).fit(x[:DATA], frame[:DATA])


@pytest.fixture(scope="module")
def mixed():
    x, y = table(120)
    visits = np.random.default_rng(1).poisson(np.exp(0.5 * x[:, 0]))
    columns = np.stack([y[:, 0], visits], axis=1)
    columns[7, 0] = np.nan
    likelihood = Independent((Gaussian(link="bounded"), Poisson()), names=("a", "b"))
    with pytest.warns(FitWarning, match="an output without a value in 1 of 120 rows"):
        found = MileRegressor(likelihood=likelihood, **QUICK).fit(x, columns, sample_weight=1.0 + (x[:, 1] > 0))
    return found, x, np.where(np.isnan(columns), 0.0, columns)


def test_the_joint_density_is_that_of_scipy():
    likelihood = MultivariateGaussian(3)
    outputs = families.random_outputs(likelihood, n_rows=5, scale=0.7)
    y = np.random.default_rng(1).standard_normal((5, 3))
    families.check_gradients(likelihood, outputs, y)
    families.check_finite_far_out(likelihood, np.asarray(y))
    response = likelihood.plain_response()
    predictive = likelihood.predictive(KnownOutputs(outputs[:1]), response)
    assert np.all(np.abs(predictive.correlation) <= 1.0 + 1e-12)
    expected = [
        stats.multivariate_normal(mean, covariance).logpdf(one)
        for mean, covariance, one in zip(predictive.mean, predictive.covariance, y, strict=True)
    ]
    np.testing.assert_allclose(predictive.log_prob(y), expected, rtol=1e-9)
    np.testing.assert_allclose(predictive.log_prob_per_draw(y)[0], expected, rtol=1e-9)
    samples = predictive.sample(20_000, 0)
    found = np.stack([np.cov(samples[:, row].T) for row in range(5)])
    size = np.sqrt(np.einsum("rii,rjj->rij", predictive.covariance, predictive.covariance))
    np.testing.assert_allclose(found / size, predictive.covariance / size, atol=0.05)
    for alone, column in zip(predictive.outputs, predictive.mean.T, strict=True):
        np.testing.assert_allclose(alone.cdf(column), 0.5)


def test_correlations_stay_below_one():
    likelihood = MultivariateGaussian(2)
    outputs = np.zeros((1, 5, 1))
    outputs[0, 4] = 1e6
    assert 0.9999 < likelihood.noise_correlation(outputs, 0, 1)[0, 0] < 1.0


def test_independent_outputs_add_their_log_densities():
    likelihood = Independent((Gaussian(link="bounded"), Poisson()))
    outputs = families.random_outputs(likelihood, n_rows=6)
    y = np.stack([np.linspace(-1.0, 1.0, 6), np.arange(6)], axis=1)
    families.check_gradients(likelihood, outputs, y)
    rows = np.arange(6)
    response = likelihood.learn(y, rows)
    np.testing.assert_allclose(response.decode(response.encode(y)), y, rtol=1e-6)
    kept = likelihood.restore_response(response.tensors())
    assert kept.tensors() == response.tensors()
    predictive = likelihood.predictive(KnownOutputs(outputs), response)
    alone = [one.log_prob_per_draw(column) for one, column in zip(predictive.outputs, y.T, strict=True)]
    np.testing.assert_allclose(predictive.log_prob_per_draw(y), alone[0] + alone[1])
    # The draws are shared: their mixture is no product of mixtures.
    mixed = np.log(np.mean(np.exp(alone[0] + alone[1]), axis=0))
    np.testing.assert_allclose(predictive.log_prob(y), mixed)
    assert set(np.unique(predictive.sample(50, 0)[..., 1] % 1.0)) == {0.0}


def test_what_is_no_response_of_several_outputs_is_refused():
    x, y = table(60)
    for likelihood, wanted, message in (
        ("multivariate_gaussian", y[:, 0], "several outputs, and y has one column"),
        (MultivariateGaussian(3), y, "of 3 outputs, and y has 2 columns"),
        ("censored", y, "one value for each row"),
        ("poisson", y, "output 'y0'.*in row 0"),
    ):
        with pytest.raises(ValueError, match=message):
            MileRegressor(likelihood=likelihood, **QUICK).fit(x, wanted)
    with pytest.raises(ValueError, match="row 3"):
        MileRegressor(**QUICK).fit(x, np.where(np.arange(60)[:, None] == 3, np.inf, y))
    with pytest.raises(ValueError, match="1d array"):
        MileClassifier(**QUICK).fit(x, (y > 0).astype(int))
    for wrong in ({"names": ("a", "a")}, {"floors": (1.0,)}, {"floors": (0.0, 1.0)}):
        with pytest.raises(ValueError, match=r"names|floors"):
            MultivariateGaussian(2, **wrong)
    with pytest.raises(ValueError, match="families"):
        Independent(("gaussian", "poisson"))
    assert names_of(y, "a, b") == ("a", "b")
    assert names_of(y[:, 0], "a, b") == names_of(pd.DataFrame(y, columns=["a", "a"])) == ()


def test_a_joint_model_gains_most_of_what_the_correlation_is_worth(model):
    x, y = table()
    x, y = x[DATA:], y[DATA:]
    two = [MileRegressor(**SMALL).fit(table()[0][:DATA], table()[1][:DATA, place]) for place in range(2)]
    separate = sum(one.predictive(x).log_prob(y[:, place]) for place, one in enumerate(two))
    gain = model.predictive(x).log_prob(y) - separate
    error = gain.std() / np.sqrt(len(gain))
    assert gain.mean() > 0.5 * TRUE_GAIN
    assert gain.mean() < TRUE_GAIN + 6.0 * error
    assert model.predictive(x).correlation[:, 0, 1].mean() == pytest.approx(RHO, abs=0.1)


def test_every_prediction_has_an_axis_of_outputs(model):
    x, y = table()
    x, y = x[DATA:][:40], y[DATA:][:40]
    mean, std = model.predict(x, return_std=True)
    assert mean.shape == std.shape == (40, 2)
    assert model.predict_interval(x).shape == (40, 2, 2)
    assert model.predict_quantiles(x, (0.1, 0.5, 0.9)).shape == (40, 2, 3)
    samples = model.sample_predictive(x, 400, random_state=0)
    assert samples.shape == (400, 40, 2)
    assert np.all(np.abs(samples.mean(axis=0) - mean) < 6.0 * std / 20.0)  # of 400 samples
    within = np.mean([np.corrcoef(samples[:, row].T)[0, 1] for row in range(40)])
    assert within == pytest.approx(model.predictive(x).correlation[:, 0, 1].mean(), abs=0.05)
    assert model.score(x, y) > 0.3
    assert np.isfinite(model.lppd(x, y, sample_weight=np.arange(1, 41)))
    columns = model.predict_frame(x[:3], interval=0.5).columns.tolist()
    assert columns[:4] == ["width_mean", "width_std", "width_lower_50", "width_upper_50"]
    assert columns[4] == "net weight_mean"
    assert "net weight mean" in repr(model.predictive(x))
    with pytest.raises(ValueError, match="several outputs"):
        model.predict_interval(x, conformal=True)
    with pytest.raises(ValueError, match="one value for each row and output"):
        model.predictive(x).log_prob(y[:, 0])


def test_scores_are_joint_and_of_each_output(model):
    x, y = table()
    predictive = model.predictive(x[DATA:])
    found = predictive.scores(y[DATA:])
    assert found["lppd"] == pytest.approx(model.lppd(x[DATA:], y[DATA:]))
    alone = predictive.outputs[1]
    assert found["rmse__net_weight"] == pytest.approx(mile.metrics.rmse(alone, y[DATA:, 1]))
    assert found["crps__net_weight"] == pytest.approx(mile.metrics.crps(alone, y[DATA:, 1]))
    assert mile.metrics.SCORES["rmse__net_weight"].label == "RMSE of net_weight"
    with pytest.raises(KeyError):
        mile.metrics.SCORES["rmse_of"]
    assert list(model.oof_.scores)[:3] == ["lppd", "lppd__width", "rmse__width"]
    assert "RMSE of net_weight" in repr(model.oof_)
    residuals = mile.metrics.residual_correlation(predictive, y[DATA:])
    assert residuals[0, 1] == pytest.approx(RHO, abs=0.1)


def test_a_report_and_an_explanation_are_of_several_outputs(model, tmp_path):
    x, y = table()
    x, y = x[DATA:], y[DATA:]
    model.report(tmp_path / "page.html", x[:80], y[:80])
    page = (tmp_path / "page.html").read_text()
    for text in ("2 outputs together (width, net weight)", "RMSE of net_weight", "Residuals of width and net weight"):
        assert text in page, text
    explanation = model.explain(x[:60], y[:60], label="net weight", n_draws=10, n_repeats=1, columns=["x1"])
    assert explanation.quantity == "mean of net weight"
    with pytest.raises(ValueError, match="one of the outputs"):
        model.explain(x[:60], y[:60], label="length", n_draws=10)
    small = model.compress(x[:60], y[:60], n_draws=8)
    assert small.predict(x).shape == y.shape


def test_a_file_and_a_stopped_run_give_the_same_bits(model, tmp_path):
    x, y = table()
    model.save(tmp_path / "model.mile")
    again = mile.load(tmp_path / "model.mile")
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    assert again.fit_.likelihood.output_names == ("width", "net weight")
    assert again.target_name_ == "width,net weight"
    folder = tmp_path / "several.run"
    stopped = MileRegressor(likelihood="multivariate_gaussian", run_dir=folder, **SMALL)
    with runs.interrupted("sampling", 1), pytest.raises(KeyboardInterrupt):
        stopped.fit(x[:DATA], y[:DATA])
    np.testing.assert_array_equal(mile.resume(folder).predict(x), model.predict(x))


def test_each_output_has_its_own_family(mixed):
    model, x, y = mixed
    predictive = model.predictive(x)
    assert [type(one).__name__ for one in predictive.outputs] == ["Predictive", "CountPredictive"]
    assert "b_p_0" in model.predict_frame(x).columns
    assert model.fit_.likelihood.families[1].center is not None  # learned from its own column
    assert np.isfinite(predictive.log_prob(y)).all()
    off = predictive.correlation[:, 0, 1]  # what draws know in common
    assert np.all(np.abs(off) < 0.5)


def test_the_command_line_takes_several_targets(tmp_path):
    x, y = table(80)
    frame = pd.DataFrame(np.hstack([x, y]), columns=["p", "q", "width", "net weight"])
    frame.loc[3, "width"] = None
    data, run = str(tmp_path / "data.csv"), str(tmp_path / "cli.run")
    frame.to_csv(data, index=False)
    options = ["--sampler", "deep_ensemble", "--chains", "2", "--hidden", "4", "--seed", "1", "--quiet"]
    target = ["--target", "width,net weight"]
    for arguments in (
        ["fit", data, *target, "--out", run, *options],
        ["evaluate", run, data],
        ["report", run, "--data", data],
        ["inspect", data, *target],
        ["predict", run, data],
    ):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
    assert "width_mean" in result.output
    assert "net weight_upper_90" in result.output
    refused = CliRunner().invoke(app, ["fit", data, *target, "--task", "classification"])
    assert refused.exit_code != 0
