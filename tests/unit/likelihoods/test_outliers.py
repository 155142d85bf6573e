"""Outliers in y: families that withstand them learn the scale of the middle, the others name the rows."""

import numpy as np
import pytest
from sklearn.datasets import make_friedman1

import mile
from mile import FitWarning, MileRegressor

TINY = {
    "hidden_layer_sizes": (4,),
    "n_chains": 2,
    "warmup_steps": 60,
    "sampling_steps": 20,
    "n_draws": 5,
    "max_epochs": 3,
    "n_folds": 0,
    "random_state": 1,
}


def table(n_rows=120, n_outliers=0):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n_rows, 2))
    y = 10.0 + 2.0 * x[:, 0] + rng.standard_normal(n_rows)
    y[10 : 10 + n_outliers] = 1e6
    return x, y


def test_the_scale_of_y_is_that_of_its_middle():
    rows = np.arange(120)
    clean, dirty = table()[1], table(n_outliers=2)[1]
    for robust in (mile.StudentTNoise(), mile.LaplaceNoise()):
        usual, found = mile.Gaussian().learn(clean, rows).tensors(), robust.learn(dirty, rows).tensors()
        assert np.array_equal(robust.learn(clean, rows).tensors()["scale"], usual["scale"])
        assert found["scale"] == pytest.approx(usual["scale"], rel=0.25)
        assert found["shift"] == pytest.approx(usual["shift"], abs=0.25 * usual["scale"])


def test_a_weight_counts_as_the_row_that_often():
    y = table(n_outliers=2)[1][:40]
    weight = np.random.default_rng(1).integers(3, size=40).astype(float)
    often = np.repeat(y, weight.astype(int))
    expected = mile.StudentTNoise().learn(often, np.arange(len(often))).tensors()
    found = mile.StudentTNoise().learn(y, np.arange(40), weight).tensors()
    assert found["scale"] == pytest.approx(expected["scale"])
    assert found["shift"] == pytest.approx(expected["shift"])


def test_a_response_with_hardly_any_variation_keeps_its_usual_scale():
    y, rows = np.zeros(1000), np.arange(1000)
    y[:3] = 1.0
    found, usual = (kind().learn(y, rows).tensors() for kind in (mile.StudentTNoise, mile.Gaussian))
    assert found == usual
    assert mile.Gaussian().cautions(y, rows) == []


def test_rows_are_named_by_their_number_in_the_users_table():
    y, number = table(n_outliers=7)[1], 1000 + np.arange(120)
    y[3] = -3e6
    (sentence,) = mile.Gaussian().cautions(y, number)
    assert "row 1003 (-3e+06), row 1010 (1e+06), row 1011" in sentence
    assert "and 3 more" in sentence
    assert 'likelihood="student_t"' in sentence
    assert mile.TwoPieceNormal().cautions(y, number) == [sentence]
    assert mile.StudentTNoise().cautions(y, number) == []


def test_prices_and_heavy_tails_are_no_outliers():
    rng = np.random.default_rng(0)
    for y in (rng.lognormal(0.0, 1.0, 500), rng.standard_t(3, 500), rng.standard_normal(50)):
        assert mile.Gaussian().cautions(y, np.arange(len(y))) == []


def test_student_t_keeps_the_error_of_clean_rows_on_friedmans_function():
    x, y = make_friedman1(1_000, noise=1.0, random_state=0)
    x, y, x_new, y_new = x[:500], y[:500], x[500:], y[500:]
    dirty, far = y.copy(), np.array([255, 317, 423])  # 0.6 % of the rows
    dirty[far] = 1e6
    # Networks alone: what is sampled later starts from them and has the same density.
    small = TINY | {"sampler": "deep_ensemble", "hidden_layer_sizes": (16,), "n_chains": 3, "n_folds": 3}
    model = MileRegressor(likelihood="student_t", **small | {"max_epochs": 200})
    clean, robust = (np.sqrt(np.mean((model.fit(x, t).predict(x_new) - y_new) ** 2)) for t in (y, dirty))
    assert clean < 2.5 < y_new.std() / 1.5
    assert robust <= 1.1 * clean
    (sentence,) = mile.Gaussian(link="bounded").cautions(dirty, np.arange(500))
    assert "row 255 (1e+06), row 317 (1e+06), row 423 (1e+06)." in sentence


@pytest.fixture(scope="module")
def robust():
    x, y = table(n_outliers=1)
    return MileRegressor(likelihood="student_t", **TINY).fit(x, y, sample_weight=np.ones(len(y)) + (x[:, 1] > 0))


def test_gaussian_warns_before_the_fit():
    x, y = table(n_outliers=2)
    y[4] = np.nan  # rows that are left out do not change the numbers of the others
    with pytest.warns(FitWarning) as found:
        MileRegressor(likelihood="gaussian", **TINY).fit(x, y)
    assert any("row 10 (1e+06), row 11 (1e+06)" in str(warning.message) for warning in found)


def test_a_model_with_student_t_noise_is_in_sight_of_the_middle(robust):
    x, y = table()
    predictive = robust.predictive(x)
    assert np.all(predictive.std < 500.0)
    assert np.all(np.isfinite(predictive.log_prob(y)))
    np.testing.assert_allclose(predictive.cdf(predictive.quantile(0.9)), 0.9, atol=1e-6)


def test_a_file_keeps_the_family_and_its_floor(robust, tmp_path):
    robust.save(tmp_path / "model.mile")
    again, x = mile.load(tmp_path / "model.mile"), table()[0]
    assert again.fit_.likelihood == robust.fit_.likelihood == mile.StudentTNoise(floor=1e-6)
    np.testing.assert_array_equal(again.predict(x), robust.predict(x))
