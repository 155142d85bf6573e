"""Folds that rotate in an estimator: what the default means, groups and order, out-of-fold scores, intervals."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.model_selection import GroupKFold, cross_validate

import mile
from mile import FitWarning, Gaussian, Hierarchical, MileClassifier, MileRegressor, Normal
from mile.data.folds import rotating_folds

SMALL = {
    "hidden_layer_sizes": (4,),
    "n_chains": 4,
    "warmup_steps": 60,
    "sampling_steps": 20,
    "n_draws": 10,
    "max_epochs": 20,
    "learning_rate": 0.01,
    "random_state": 0,
}
ENSEMBLE = SMALL | {"sampler": "deep_ensemble"}
N_ROWS = 60
rng = np.random.default_rng(0)
X = rng.normal(size=(N_ROWS, 3))
Y = 100.0 + 20.0 * X[:, 0] + 5.0 * rng.normal(size=N_ROWS)


@pytest.fixture(scope="module")
def model():
    return MileRegressor(**SMALL).fit(X, Y)


def folds_of(model, **data):
    """Return the fold of each row, in the user's order."""
    found = model.fit(X, Y, **data).oof_
    return found.fold[np.argsort(found.number)]


class TestThePreset:
    def test_default_has_folds_a_learned_prior_and_bounded_noise(self, model):
        fit = model.fit_
        assert (type(fit.prior), fit.likelihood.link) == (Hierarchical, "bounded")
        assert model.oof_.n_folds == 4
        assert fit.weights is not None
        assert (fit.weights.shape, fit.weights.sum()) == ((8,), pytest.approx(1.0))

    def test_paper_has_none_of_them(self):
        model = MileRegressor(**ENSEMBLE, preset="paper").fit(X, Y)
        fit = model.fit_
        assert (fit.prior, fit.likelihood, fit.weights) == (Normal(), Gaussian(), None)
        with pytest.raises(AttributeError, match="n_folds=0, or too few rows or chains"):
            _ = model.oof_

    def test_has_as_many_folds_as_there_are_chains(self):
        assert MileRegressor(**ENSEMBLE | {"n_chains": 3}).fit(X, Y).oof_.n_folds == 3
        assert MileRegressor(**ENSEMBLE | {"n_chains": 2}).fit(X, Y).fit_.out_of_fold is None

    def test_other_samplers_weigh_nothing_unless_asked(self):
        assert MileRegressor(**ENSEMBLE).fit(X, Y).fit_.weights is None
        with pytest.raises(ValueError, match="stacking='slots' weighs chains by the rows that they left out"):
            MileRegressor(**ENSEMBLE, n_folds=0, stacking="slots").fit(X, Y)

    def test_too_few_rows_set_some_aside_and_say_so_where_folds_were_asked_for(self):
        few = MileRegressor(**ENSEMBLE).fit(X[:7], Y[:7])
        assert few.fit_.out_of_fold is None
        with pytest.warns(FitWarning, match="7 rows are too few for 4 folds, which need 2 each"):
            MileRegressor(**ENSEMBLE, n_folds=4).fit(X[:7], Y[:7])


class TestGroupsAndOrder:
    def test_groups_of_any_label_stay_together(self):
        groups = [f"customer {row // 5}" for row in range(N_ROWS)]
        folds = folds_of(MileRegressor(**ENSEMBLE), groups=groups)
        for start in range(0, N_ROWS, 5):
            assert len(set(folds[start : start + 5])) == 1
        assert np.bincount(folds).tolist() == [15, 15, 15, 15]

    def test_folds_are_stretches_of_an_order(self):
        order = rng.permutation(N_ROWS)
        for given in (order, pd.Timestamp("2020-01-01") + pd.to_timedelta(order, "D")):
            folds = folds_of(MileRegressor(**ENSEMBLE), order=given)
            np.testing.assert_array_equal(folds[np.argsort(order)], np.repeat(range(4), 15))

    def test_rows_that_are_left_out_have_no_place_in_them(self):
        y, groups = Y.copy(), np.arange(N_ROWS) // 10
        y[:3] = np.nan
        weight = np.where(np.arange(N_ROWS) == 50, 0.0, 1.0)
        with pytest.warns(FitWarning, match="y has no value in 3 of 60 rows"):
            found = MileRegressor(**ENSEMBLE).fit(X, y, weight, groups=groups).oof_
        assert found.number.tolist() == [*range(3, 50), *range(51, N_ROWS)]
        for group in range(6):
            assert len(set(found.fold[groups[found.number] == group])) == 1

    def test_what_cannot_be_used_is_refused_with_its_row(self):
        fit = MileRegressor(**ENSEMBLE).fit
        missing, words = [None if row == 7 else row // 5 for row in range(N_ROWS)], ["2020-01-01"] * (N_ROWS - 1)
        for data, message in (
            ({"groups": missing}, "groups must have an entry in every row, but row 7 has none"),
            ({"groups": [1, 2]}, r"groups must have one entry for each of the 60 rows; got shape \(2,\)"),
            ({"groups": np.arange(N_ROWS) % 2}, "groups must have at least as many different labels"),
            ({"order": [*words, "soon"]}, "order must be numbers or dates in one format, but row 59 has 'soon'"),
            ({"order": np.where(np.arange(N_ROWS) == 4, np.inf, 1.0)}, "order must be finite in every row, but row 4"),
            ({"order": np.arange(N_ROWS), "groups": np.arange(N_ROWS)}, "cannot be given together"),
        ):
            with pytest.raises(ValueError, match=message):
                fit(X, Y, **data)
        with pytest.raises(ValueError, match="groups says how rows are cut into folds, but there are none here"):
            MileRegressor(**ENSEMBLE, n_folds=0).fit(X, Y, groups=np.arange(N_ROWS))

    def test_are_routed_by_scikit_learn(self):
        groups = np.arange(N_ROWS) // 5
        with sklearn.config_context(enable_metadata_routing=True):
            model = MileRegressor(**ENSEMBLE).set_fit_request(groups=True, order=False)
            found = cross_validate(model, X, Y, cv=GroupKFold(2), params={"groups": groups}, return_estimator=True)
        for estimator, rows in zip(found["estimator"], GroupKFold(2).split(X, Y, groups), strict=True):
            kept, oof = groups[rows[0]], estimator.oof_
            assert all(len(set(oof.fold[kept[oof.number] == group])) == 1 for group in set(kept))


class TestScores:
    def test_are_of_every_row_and_survive_a_file(self, model, tmp_path):
        model.save(tmp_path / "model.mile")
        found = mile.load(tmp_path / "model.mile").oof_
        assert repr(found) == repr(model.oof_)
        assert "out-of-fold, 60 rows, 4 folds" in repr(found)
        assert list(found.scores) == ["lppd", "rmse", "crps", "coverage_90"]
        assert sorted(found.number) == list(range(N_ROWS))
        np.testing.assert_array_equal(found.fold, rotating_folds(N_ROWS, 4, 0))
        assert found.scores["rmse"].value < Y.std()

    def test_of_classes(self):
        labels = np.where(X[:, 0] > 0, "high", "low")
        found = MileClassifier(**ENSEMBLE).fit(X, labels).oof_
        assert list(found.scores) == ["lppd", "accuracy", "brier", "expected_calibration_error"]
        by_class = [np.bincount(found.fold[labels == label]) for label in ("high", "low")]
        assert all(np.ptp(counts) <= 1 for counts in by_class)  # each fold has its share

    def test_are_first_in_a_report_without_test_rows(self, model, tmp_path):
        model.report(tmp_path / "report.html")
        page = (tmp_path / "report.html").read_text()
        assert "Scores: out-of-fold, 60 rows." in page
        assert page.count("\N{PLUS-MINUS SIGN}") > 7


class TestPredictions:
    def test_conformal_intervals_are_the_same_after_loading(self, model, tmp_path):
        model.save(tmp_path / "model.mile")
        ends = model.predict_interval(X, 0.8, conformal=True)
        again = mile.load(tmp_path / "model.mile").predict_interval(X, 0.8, conformal=True)
        np.testing.assert_array_equal(again, ends)
        assert (ends[:, 0] < ends[:, 1]).all()
        with pytest.raises(ValueError, match="n_folds=4 with n_chains=12"):
            MileRegressor(**ENSEMBLE, n_folds=0).fit(X, Y).predict_interval(X, conformal=True)

    def test_stay_within_sight_of_the_data_five_standard_deviations_out(self, model):
        for column in range(3):
            for shift in (-5.0, 5.0):
                moved = X + shift * (np.arange(3) == column)
                predictive = model.predictive(moved)
                assert predictive.std.max() <= 20.0 * Y.std()
                assert np.abs(predictive.mean - Y.mean()).max() <= 20.0 * Y.std()
                assert predictive.crps(Y).max() <= 20.0 * Y.std()
                assert np.diff(predictive.interval(0.9), axis=1).max() <= 3.3 * 20.0 * Y.std()
