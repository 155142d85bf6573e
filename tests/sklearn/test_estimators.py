"""The estimators as users of scikit-learn meet them: arguments, outputs, and a life inside its tools."""

import inspect
import pickle
import re
from contextlib import contextmanager
from dataclasses import replace

import jax
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import r2_score
from sklearn.model_selection import ShuffleSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from targets import assert_same_bits

from mile import DeepEnsemble, Mile, MileClassifier, MileRegressor
from mile.predict import ClassPredictive, Predictive

# One budget and one shape of the data, so that every program is compiled once.
STEPS = {"warmup_steps": 200, "sampling_steps": 100, "n_draws": 20}
BUDGET = {"hidden_layer_sizes": (8,), "n_chains": 2, "learning_rate": 1e-2, "max_epochs": 100, **STEPS}
N_ROWS = 64
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N_ROWS, 3))
Y = np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.1 * RNG.standard_normal(N_ROWS)
LABELS = np.array(["low", "mid", "top"])[np.digitize(Y, [-0.4, 0.4])]
FRAME = pd.DataFrame(X, columns=["age", "dose", "weight"])

DEFAULTS = {
    "hidden_layer_sizes": None,
    "activation": None,
    "n_chains": 12,
    "preset": "default",
    "warmup_steps": None,
    "sampling_steps": None,
    "n_draws": None,
    "prior": None,
    "prior_scale": 1.0,
    "temperature": 1.0,
    "learning_rate": None,
    "weight_decay": None,
    "batch_size": None,
    "max_epochs": None,
    "patience": None,
    "validation_fraction": 0.125,
    "n_folds": None,
    "stacking": None,
    "network": None,
    "likelihood": None,
    "encoder": None,
    "columns": None,
    "sampler": "mile",
    "run_dir": None,
    "store_data": True,
    "time_limit": None,
    "stop_when": None,
    "warm_start": False,
    "backend": None,
    "address": None,
    "n_threads": None,
    "random_state": None,
    "verbose": 0,
}


def regressor(**changes):
    return MileRegressor(**{**BUDGET, "random_state": 0, **changes})


@pytest.fixture(scope="module")
def model():
    return regressor().fit(X, Y)


@pytest.fixture(scope="module")
def ensemble():
    return regressor(sampler="deep_ensemble").fit(X, Y)


@pytest.fixture(scope="module")
def classifier():
    return MileClassifier(**BUDGET, random_state=0).fit(X, LABELS)


def defaults_of(estimator):
    return DEFAULTS if estimator is MileRegressor else DEFAULTS | {"class_weight": None}


@pytest.mark.parametrize("estimator", [MileRegressor, MileClassifier])
class TestArguments:
    def test_names_order_and_defaults_are_fixed(self, estimator):
        parameters = inspect.signature(estimator).parameters
        found = [(name, parameter.default) for name, parameter in parameters.items()]
        assert dict(found) == defaults_of(estimator)
        assert [entry for entry in found if entry[0] != "class_weight"] == [*DEFAULTS.items()]

    def test_only_the_first_two_may_be_given_by_position(self, estimator):
        kinds = {name: parameter.kind for name, parameter in inspect.signature(estimator).parameters.items()}
        by_position = [name for name, kind in kinds.items() if kind == inspect.Parameter.POSITIONAL_OR_KEYWORD]
        assert by_position == ["hidden_layer_sizes", "activation"]
        assert {kinds[name] for name in kinds if name not in by_position} == {inspect.Parameter.KEYWORD_ONLY}

    def test_arguments_are_kept_as_given(self, estimator):
        odd = {name: object() for name in defaults_of(estimator)}
        params = estimator(**odd).get_params()
        assert params.keys() == odd.keys()
        assert all(params[name] is value for name, value in odd.items())

    def test_set_params_changes_what_get_params_says(self, estimator):
        changed = estimator().set_params(n_chains=3, sampler="deep_ensemble")
        assert changed.get_params() == {**defaults_of(estimator), "n_chains": 3, "sampler": "deep_ensemble"}
        with pytest.raises(ValueError, match="n_chain"):
            changed.set_params(n_chain=3)

    def test_a_sampler_object_survives_cloning(self, estimator):
        sampler = Mile(trust=2.0)
        copy = clone(estimator(sampler=sampler, n_chains=3))
        assert copy.sampler == sampler
        assert copy.n_chains == 3

    def test_nothing_looks_fitted_before_fit(self, estimator):
        fresh = estimator()
        for name in ("chain_status_", "tuned_", "gradient_evaluations_", "seed_", "fit_", "classes_"):
            assert not hasattr(fresh, name)
        for method in ("predict", "predictive", "sample_predictive"):
            with pytest.raises(NotFittedError):
                getattr(fresh, method)(X)


class TestRegressor:
    def test_predict_gives_the_mean_and_on_request_the_standard_deviation(self, model):
        mean, std = model.predict(X, return_std=True)
        for result in (mean, std, model.predict(X)):
            assert (result.shape, result.dtype) == ((N_ROWS,), np.float64)
        np.testing.assert_array_equal(mean, model.predict(X))
        np.testing.assert_array_equal(mean, model.predictive(X).mean)
        np.testing.assert_array_equal(std, model.predictive(X).std)
        assert (std > 0).all()

    def test_intervals_are_central_and_grow_with_the_level(self, model):
        narrow, wide = model.predict_interval(X, level=0.5), model.predict_interval(X)
        assert (wide.shape, wide.dtype) == ((N_ROWS, 2), np.float64)
        np.testing.assert_allclose(wide, model.predict_quantiles(X, [0.05, 0.95]), atol=1e-9)
        assert (wide[:, 0] < narrow[:, 0]).all()
        assert (narrow[:, 0] < narrow[:, 1]).all()
        assert (narrow[:, 1] < wide[:, 1]).all()

    @pytest.mark.parametrize(("q", "n_columns"), [(0.5, 1), ([0.5], 1), ((0.1, 0.5), 2), (np.linspace(0.1, 0.9, 5), 5)])
    def test_quantiles_have_one_column_for_each_level(self, model, q, n_columns):
        quantiles = model.predict_quantiles(X, q)
        assert (quantiles.shape, quantiles.dtype) == ((N_ROWS, n_columns), np.float64)

    def test_default_quantiles_are_median_and_ninety_percent_interval(self, model):
        np.testing.assert_array_equal(model.predict_quantiles(X), model.predict_quantiles(X, (0.05, 0.5, 0.95)))

    def test_samples_have_one_row_each_and_repeat_with_the_seed(self, model):
        samples = model.sample_predictive(X, n=5, random_state=3)
        assert (samples.shape, samples.dtype) == ((5, N_ROWS), np.float64)
        assert model.sample_predictive(X).shape == (1, N_ROWS)
        np.testing.assert_array_equal(samples, model.sample_predictive(X, n=5, random_state=3))

    def test_score_is_r_squared_and_the_model_has_learned(self, model):
        assert model.score(X, Y) == r2_score(Y, model.predict(X))
        assert model.score(X, Y) > 0.5

    def test_lppd_is_the_mean_log_density(self, model):
        assert model.lppd(X, Y) == pytest.approx(model.predictive(X).log_prob(Y).mean(), rel=1e-12)
        assert model.lppd(X, list(Y)) == model.lppd(X, Y)

    def test_predictive_is_the_whole_distribution(self, model):
        predictive = model.predictive(X, memory=100_000)
        assert isinstance(predictive, Predictive)
        assert len(predictive) == N_ROWS
        np.testing.assert_allclose(predictive.mean, model.predict(X), atol=1e-5)

    def test_attributes_describe_each_chain(self, model):
        assert model.chain_status_ == ["ok", "ok"]
        assert model.gradient_evaluations_.tolist() == [2 * (200 + 100) + 1] * 2
        assert model.tuned_.step_size.shape == model.tuned_.L.shape == (2,)
        assert (model.tuned_.step_size > 0).all()
        assert (model.tuned_.L > 0).all()
        assert model.seed_ == 0
        assert model.n_features_in_ == 3
        assert model.fit_.chains.draws.shape == (2, 20, model.fit_.network.dimension)
        assert not hasattr(model, "feature_names_in_")

    def test_a_table_gives_its_column_names_and_the_same_bits(self, model):
        from_table = regressor().fit(FRAME, pd.Series(Y))
        assert from_table.feature_names_in_.tolist() == ["age", "dose", "weight"]
        np.testing.assert_array_equal(from_table.predict(FRAME), model.predict(X))

    def test_float32_features_still_give_float64(self, model):
        prediction = model.predict(X.astype(np.float32))
        assert prediction.dtype == np.float64
        np.testing.assert_allclose(prediction, model.predict(X), atol=1e-4)


class TestClassifier:
    def test_probabilities_follow_classes_and_sum_to_one(self, classifier):
        assert classifier.classes_.tolist() == ["low", "mid", "top"]
        probs = classifier.predict_proba(X)
        assert (probs.shape, probs.dtype) == ((N_ROWS, 3), np.float64)
        np.testing.assert_allclose(probs.sum(axis=1), 1.0, rtol=1e-12)
        np.testing.assert_array_equal(classifier.predict(X), classifier.classes_[probs.argmax(axis=1)])

    def test_labels_keep_their_type(self, classifier):
        assert classifier.predict(X).dtype == classifier.classes_.dtype == LABELS.dtype
        assert classifier.predict(X).shape == (N_ROWS,)

    def test_score_is_accuracy_and_the_model_has_learned(self, classifier):
        assert classifier.score(X, LABELS) == np.mean(classifier.predict(X) == LABELS)
        assert classifier.score(X, LABELS) > 0.7

    def test_lppd_is_the_mean_log_probability_of_the_label(self, classifier):
        codes = np.searchsorted(classifier.classes_, LABELS)
        expected = np.log(classifier.predict_proba(X)[np.arange(N_ROWS), codes]).mean()
        assert classifier.lppd(X, LABELS) == pytest.approx(expected, rel=1e-7)  # two sums of float32 outputs

    def test_samples_are_labels(self, classifier):
        samples = classifier.sample_predictive(X, n=4, random_state=0)
        assert samples.shape == (4, N_ROWS)
        assert set(samples.ravel()) <= set(LABELS)

    def test_predictive_is_the_whole_distribution(self, classifier):
        predictive = classifier.predictive(X)
        assert isinstance(predictive, ClassPredictive)
        assert (predictive.mutual_information <= predictive.entropy).all()

    def test_attributes_describe_each_chain(self, classifier):
        assert classifier.chain_status_ == ["ok", "ok"]
        assert classifier.gradient_evaluations_.tolist() == [601, 601]
        assert classifier.tuned_.step_size.shape == classifier.tuned_.L.shape == (2,)
        assert classifier.n_features_in_ == 3
        assert classifier.seed_ == 0

    def test_a_pickled_copy_predicts_the_same_bits(self, classifier):
        copy = pickle.loads(pickle.dumps(classifier))
        np.testing.assert_array_equal(copy.predict_proba(X), classifier.predict_proba(X))
        np.testing.assert_array_equal(copy.classes_, classifier.classes_)


class TestTools:
    def test_a_pickled_copy_predicts_the_same_bits(self, model):
        copy = pickle.loads(pickle.dumps(model))
        assert_same_bits(copy.predict(X, return_std=True), model.predict(X, return_std=True))
        np.testing.assert_array_equal(copy.predict_interval(X), model.predict_interval(X))
        assert copy.get_params() == model.get_params()
        assert copy.chain_status_ == model.chain_status_

    def test_a_clone_is_unfitted_and_fits_to_the_same_bits(self, model):
        copy = clone(model)
        assert not hasattr(copy, "fit_")
        np.testing.assert_array_equal(copy.fit(X, Y).predict(X), model.predict(X))

    def test_scaling_in_a_pipeline_changes_nothing(self, model):
        pipeline = make_pipeline(StandardScaler(), regressor()).fit(X, Y)
        np.testing.assert_allclose(pipeline.predict(X), model.predict(X), atol=1e-3)
        mean, std = pipeline.predict(X, return_std=True)
        assert mean.shape == std.shape == (N_ROWS,)

    def test_cross_validation_scores_every_fold(self):
        folds = ShuffleSplit(n_splits=2, train_size=60, random_state=0)
        scores = cross_val_score(regressor(), X, Y, cv=folds, error_score="raise")
        assert scores.shape == (2,)
        assert scores[0] != scores[1]


class TestReproducibility:
    def test_the_same_seed_gives_the_same_bits(self, model):
        again = regressor().fit(X, Y)
        assert_same_bits(again.fit_.chains.draws, model.fit_.chains.draws)
        assert_same_bits(again.fit_.members.positions, model.fit_.members.positions)
        assert_same_bits(again.predict(X), model.predict(X))

    def test_fitting_again_starts_anew(self, model):
        twice = regressor().fit(X, -Y).fit(X, Y)
        np.testing.assert_array_equal(twice.predict(X), model.predict(X))

    def test_another_seed_gives_another_fit(self, model):
        assert (regressor(random_state=1).fit(X, Y).predict(X) != model.predict(X)).any()

    def test_without_a_seed_one_is_drawn_kept_and_reproduces(self):
        first, second = regressor(random_state=None).fit(X, Y), regressor(random_state=None).fit(X, Y)
        assert first.seed_ != second.seed_
        assert first.random_state is None
        again = regressor(random_state=first.seed_).fit(X, Y)
        np.testing.assert_array_equal(again.predict(X), first.predict(X))

    def test_global_random_numbers_are_neither_read_nor_advanced(self, model):
        np.random.seed(1)  # noqa: NPY002
        before = np.random.get_state()[1].copy()  # noqa: NPY002
        prediction = regressor().fit(X, Y).predict(X)
        np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
        np.testing.assert_array_equal(prediction, model.predict(X))

    def test_a_sampler_object_equals_the_name_with_the_same_budgets(self, model):
        nothing = dict.fromkeys(STEPS)
        sampler = replace(Mile.presets()["default"], **STEPS)
        by_object = regressor(sampler=sampler, **nothing).fit(X, Y)
        np.testing.assert_array_equal(by_object.predict(X), model.predict(X))

    def test_more_chains_leave_the_first_ones_alone(self, model):
        more = regressor(n_chains=3, n_folds=0).fit(X, Y)  # two chains are too few for folds
        assert_same_bits(more.fit_.chains.draws[:2], model.fit_.chains.draws)


@contextmanager
def compiled_programs():
    """Collect the names of all programs that XLA compiles meanwhile."""
    names = []

    def listen(event, seconds, **details):
        if event == "/jax/core/compile/backend_compile_duration":
            names.append(details["fun_name"])

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield names
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def of_the_library(names):
    """Leave out JAX's own small programs, such as slices whose length depends on how fast the machine is."""
    return [name for name in names if re.fullmatch(r"jit\((start|train|begin|advance|finish|_forward)\)", name)]


class TestCompilation:
    def test_counting_sees_the_programs_of_a_new_shape(self):
        with compiled_programs() as names:
            regressor(sampler="deep_ensemble", hidden_layer_sizes=(3,), max_epochs=2).fit(X, Y)
        found = of_the_library(names)
        for name in ("jit(start)", "jit(train)", "jit(begin)", "jit(advance)", "jit(finish)"):
            assert name in found

    def test_other_values_of_the_same_shape_compile_nothing(self, model):
        model.predict(X)
        with compiled_programs() as names:
            other = regressor(random_state=7).fit(2 * X + 1, np.cos(Y))
            other.predict(X[:5])
            other.predict_interval(X[::-1])
        assert of_the_library(names) == []

    def test_a_few_rows_less_compile_nothing(self, model):
        with compiled_programs() as names:
            regressor().fit(X[:-3], Y[:-3])
        assert of_the_library(names) == []


class TestDeepEnsemble:
    def test_each_chain_has_its_member_as_its_one_draw(self, ensemble):
        assert ensemble.fit_.chains.draws.shape[:2] == (2, 1)
        np.testing.assert_array_equal(ensemble.fit_.chains.draws[:, 0], ensemble.fit_.members.positions)
        assert ensemble.gradient_evaluations_.tolist() == [0, 0]
        assert ensemble.chain_status_ == ["ok", "ok"]

    def test_it_predicts_what_the_chains_of_the_same_seed_started_from(self, ensemble, model):
        starts = model.fit_.ensemble_predictive(X)
        np.testing.assert_array_equal(ensemble.predict(X), starts.mean)
        np.testing.assert_array_equal(ensemble.predict_interval(X), starts.interval())
        assert (starts.mean != model.predict(X)).any()

    def test_a_sampler_object_equals_its_name(self, ensemble):
        by_object = regressor(sampler=DeepEnsemble()).fit(X, Y)
        np.testing.assert_array_equal(by_object.predict(X), ensemble.predict(X))


class TestScales:
    @pytest.mark.parametrize(
        ("column_scales", "column_shifts"),
        [((1e-30, 1.0, 1e30), (0, 0, 0)), ((1e30, 1e30, 1e30), (2, -3, 0)), ((1e-30, 1e-15, 1e-30), (0, 0, 5))],
        ids=["mixed", "huge", "tiny"],
    )
    @pytest.mark.parametrize(("factor", "offset"), [(1.0, 0.0), (1e12, 1e15), (1e-12, -1e-9)], ids=str)
    def test_predictions_follow_the_scales_of_features_and_response(
        self, model, column_scales, column_shifts, factor, offset
    ):
        moved = (X + column_shifts) * column_scales
        fitted = regressor().fit(moved, factor * Y + offset)
        spread = Y.std()

        def standardized(values):
            return (values - offset) / factor / spread

        mean, std = model.predict(X, return_std=True)
        moved_mean, moved_std = fitted.predict(moved, return_std=True)
        np.testing.assert_allclose(standardized(moved_mean), mean / spread, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(moved_std / factor, std, rtol=1e-3)
        intervals = standardized(fitted.predict_interval(moved))
        np.testing.assert_allclose(intervals, model.predict_interval(X) / spread, rtol=1e-3, atol=1e-3)
        assert fitted.lppd(moved, factor * Y + offset) == pytest.approx(model.lppd(X, Y) - np.log(factor), abs=1e-3)

    def test_class_probabilities_do_not_depend_on_the_scales_of_features(self, classifier):
        moved = X * (1e-30, 1.0, 1e30)
        fitted = clone(classifier).fit(moved, LABELS)
        np.testing.assert_allclose(fitted.predict_proba(moved), classifier.predict_proba(X), atol=1e-3)


class TestProgress:
    def test_verbose_shows_one_bar_for_each_stage_and_changes_no_number(self, model, capsys, monkeypatch):
        monkeypatch.setenv("FORCE_COLOR", "1")  # as in a terminal
        loud = regressor(verbose=1).fit(X, Y)
        shown = capsys.readouterr().err
        for stage in ("ensemble", "phase I ", "phase II ", "phase III", "sampling"):
            assert stage in shown
        assert "2 chains" in shown
        assert "validation LPPD" in shown
        np.testing.assert_array_equal(loud.predict(X), model.predict(X))

    def test_silence_is_the_default(self, capfd):
        fitted = regressor().fit(X, Y)
        fitted.predict_interval(X)
        assert capfd.readouterr() == ("", "")
