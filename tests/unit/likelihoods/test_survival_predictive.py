"""A regressor of survival times: what it predicts, how it is scored, and files and runs of it."""

import numpy as np
import pytest
import runs
from matplotlib.figure import Figure
from scipy import integrate
from sklearn.model_selection import cross_val_score

import mile
from mile import MileRegressor, metrics, plot

SMALL = {
    "hidden_layer_sizes": (4,),
    "n_chains": 3,
    "n_folds": 3,
    "warmup_steps": 200,
    "sampling_steps": 100,
    "n_draws": 20,
    "max_epochs": 30,
    "learning_rate": 0.01,
    "random_state": 1,
}
QUICKEST = {
    "sampler": "deep_ensemble",
    "hidden_layer_sizes": (4,),
    "n_chains": 2,
    "n_folds": 0,
    "max_epochs": 5,
    "learning_rate": 0.02,
    "random_state": 1,
}
TIMES = np.array([0.3, 1.0, 3.0])


def table(n=120, seed=0):
    """Two features, of which one matters, and times of which a third is censored."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    time, lost = np.exp(x[:, 0] + 0.5 * rng.logistic(size=n)), rng.exponential(3.0, size=n)
    y = np.empty(n, [("cens", bool), ("time", float)])
    y["cens"], y["time"] = time <= lost, np.minimum(time, lost)
    return x, y


@pytest.fixture(scope="module")
def model():
    return MileRegressor(**SMALL).fit(*table())


def test_times_are_log_logistic_unless_a_family_is_named(model):
    likelihood = model.fit_.likelihood
    assert type(likelihood.family) is mile.LogLogistic
    assert likelihood.only_right
    assert np.isfinite(model.oof_.row_scores["lppd"]).all()
    assert set(model.oof_.scores) == {"lppd"}


def test_predictions_agree_with_each_other(model):
    x, _ = table(7, seed=1)
    survival, ends = model.predict_survival(x, TIMES, level=0.9)
    assert survival.shape == (7, 3)
    assert ends.shape == (7, 3, 2)
    assert np.all((ends[..., 0] <= survival) & (survival <= ends[..., 1]))
    np.testing.assert_allclose(model.predict_survival(x, TIMES), survival, rtol=1e-12)
    predictive = model.predictive(x)
    np.testing.assert_allclose(1.0 - predictive.cdf(np.full(7, 1.0)), survival[:, 1], rtol=1e-9)
    median, around = model.predict_median(x, level=0.9)
    np.testing.assert_array_equal(model.predict(x), median)
    assert np.all((around[:, 0] < median) & (median < around[:, 1]))
    np.testing.assert_allclose([1.0 - predictive.cdf(median), np.full(7, 0.5)], 0.5, rtol=1e-6)
    # The hazard is the slope of minus the log of survival, and the restricted mean the integral of survival.
    step = 1e-5
    low, high = model.predict_survival(x, [1.0 - step, 1.0 + step]).T
    np.testing.assert_allclose(model.predict_hazard(x, [1.0])[:, 0], np.log(low / high) / (2 * step), rtol=1e-5)
    mean, ends = model.predict_restricted_mean(x, 3.0, level=0.9)
    exact, _ = integrate.quad_vec(lambda t: model.predictive(x).survival([max(t, 1e-12)])[:, 0], 0.0, 3.0, epsrel=1e-6)
    np.testing.assert_allclose(mean, exact, rtol=1e-5)
    assert np.all((ends[:, 0] <= mean) & (mean <= ends[:, 1]))
    assert model.predict_interval(x).min() >= 0.0
    assert np.all(np.isfinite(model.sample_predictive(x, 3, random_state=0)))
    with pytest.raises(ValueError, match="level must lie strictly between"):
        model.predict_median(x, level=2)
    with pytest.raises(ValueError, match="times must be one or more finite numbers"):
        model.predict_survival(x, [np.nan])


def test_columns_and_tables_speak_of_medians(model):
    x, _ = table(6, seed=1)
    predictive = model.predictive(x)
    assert list(predictive.columns(0.8, [0.25])) == ["median", "lower_80", "upper_80", "q0.25"]
    assert list(predictive.survival_columns([1.0, 30.0])) == ["survival_1", "survival_30"]
    assert "median" in repr(predictive)
    assert predictive.head(2).median.tolist() == predictive.median[:2].tolist()
    assert np.all(np.isfinite(predictive.uncertainty().share))
    assert predictive.explained().label == "median"


def test_the_score_is_the_concordance_and_files_keep_everything(model, tmp_path):
    x, y = table(60, seed=1)
    assert model.score(x, y) == metrics.concordance(model.predictive(x), y) > 0.7
    weight = np.ones(60)
    assert model.score(x, y, 2.0 * weight) == pytest.approx(model.score(x, y))
    found = model.predictive(x).scores(y)
    assert set(found) == {"lppd", "concordance", "integrated_brier", "survival_calibration"}
    assert model.lppd(x, y) == pytest.approx(found["lppd"])
    model.save(tmp_path / "model.mile")
    again = mile.load(tmp_path / "model.mile")
    np.testing.assert_array_equal(again.predict_survival(x, TIMES), model.predict_survival(x, TIMES))
    assert again.lppd(x, y) == model.lppd(x, y)


def test_figures_are_drawn_where_asked_for(model):
    x, y = table(60, seed=1)
    for function in (plot.survival, plot.survival_calibration):
        ax = Figure().add_subplot()
        assert function(model.predictive(x), y, ax=ax) is ax
        assert "urvival of" in ax.get_title(loc="left") + ax.get_title()
        assert ax.lines


def test_a_log_density_is_of_the_scale_of_y(model):
    x, y = table(60, seed=1)
    predictive = model.predictive(x)
    observed = y["cens"]
    found = predictive.log_prob(y)
    survival = np.array([predictive.survival([time])[row, 0] for row, time in enumerate(y["time"])])
    np.testing.assert_allclose(found[~observed], np.log(survival[~observed]), rtol=1e-9)
    density = np.array([predictive.hazard([time])[row, 0] for row, time in enumerate(y["time"])]) * survival
    np.testing.assert_allclose(found[observed], np.log(density[observed]), rtol=1e-9)
    per_draw = predictive.log_prob_per_draw(y)
    np.testing.assert_allclose(np.log(np.average(np.exp(per_draw), axis=0, weights=predictive.draw_weights)), found)


def test_a_stopped_run_resumes_to_the_same_bits(model, tmp_path):
    folder, (x, y) = tmp_path / "times.run", table()
    stopped = MileRegressor(run_dir=folder, **SMALL)
    with runs.interrupted("sampling", 1), pytest.raises(KeyboardInterrupt):
        stopped.fit(x, y)
    np.testing.assert_array_equal(mile.resume(folder).predict(x), model.predict(x))


def test_a_search_splits_structured_times():
    estimator = MileRegressor(**(QUICKEST | {"likelihood": "log_logistic"}))
    found = cross_val_score(estimator, *table(60), cv=2, error_score="raise")
    assert found.shape == (2,)
    assert np.all((found >= 0.0) & (found <= 1.0))


def test_words_and_intervals_are_taken_too():
    x, y = table(60)
    words = np.where(y["cens"], "none", "right")
    by_words = MileRegressor(**QUICKEST).fit(x, y["time"], censored=words)
    np.testing.assert_array_equal(by_words.predict(x), MileRegressor(**QUICKEST).fit(x, y).predict(x))
    # Known up to the next half only.
    lower = np.floor(2.0 * y["time"]) / 2.0
    seen = mile.censored(lower, np.where(y["cens"], lower + 0.5, np.inf))
    model = MileRegressor(**(QUICKEST | {"likelihood": "lognormal", "max_epochs": 100})).fit(x, seen)
    assert not model.fit_.likelihood.only_right
    assert np.corrcoef(np.log(model.predict(x)), x[:, 0])[0, 1] > 0.8
    found = model.predictive(x).scores(seen)
    assert np.isnan(found["integrated_brier"])
    assert found["concordance"] > 0.7


def test_numbers_of_both_signs_are_normal():
    x, y = table(60)
    words = np.where(y["cens"], "none", "right")
    model = MileRegressor(**(QUICKEST | {"max_epochs": 100})).fit(x, np.log(y["time"]), censored=words)
    assert model.fit_.likelihood.family.link == "bounded"
    assert np.corrcoef(model.predict(x), x[:, 0])[0, 1] > 0.8
    assert model.predict_interval(x).min() < 0.0
    assert np.all(np.isfinite(model.predict_restricted_mean(x, 0.0)))


def test_what_cannot_be_fitted_is_refused():
    x, y = table(20)
    for likelihood in ("student_t", mile.Gamma()):
        with pytest.raises(ValueError, match=r"takes no response with limits.*log_logistic"):
            MileRegressor(likelihood=likelihood).fit(x, y)
    y["time"][3] = np.nan
    with pytest.raises(ValueError, match="row 3 is NaN"):
        MileRegressor().fit(x, y)
    with pytest.raises(ValueError, match="likelihood must be for classification"):
        mile.MileClassifier(likelihood="weibull").fit(x, y)
    with pytest.raises(ValueError, match="only a regressor takes"):
        mile.MileClassifier().fit(x, table(20)[1])


def test_other_models_say_that_they_predict_no_survival():
    x, y = table(60)
    model = MileRegressor(**QUICKEST).fit(x, y["time"])
    with pytest.raises(ValueError, match="needs a model of a response with limits; this is a Predictive"):
        model.predict_survival(x, TIMES)
