"""Input that cannot be used is refused by name before any training; odd input that can be used is used."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from cases import case

from mile import FanIn, FitWarning, Laplace, Mile, MileClassifier, MileRegressor, PerLayer, StudentT
from mile.estimators import _base
from mile.networks import ConvNet

# Up to 16 rows of three features share their programs.
BUDGET = {
    "hidden_layer_sizes": (4,),
    "n_chains": 2,
    "warmup_steps": 40,
    "sampling_steps": 20,
    "n_draws": 10,
    "learning_rate": 1e-2,
    "max_epochs": 20,
    "random_state": 0,
}
RNG = np.random.default_rng(1)
X = RNG.standard_normal((12, 3))
Y = X[:, 0] + 0.3 * RNG.standard_normal(12)
LABELS = np.where(X[:, 1] > 0.0, "yes", "no")
NAMES = ["age", "dose", "weight"]
INFINITE = {"infinity": np.inf, "-infinity": -np.inf}
ESTIMATORS = [(MileRegressor, Y), (MileClassifier, LABELS)]


@pytest.fixture
def no_training(monkeypatch):
    def reached(*_, **__):
        raise AssertionError("training was reached")

    monkeypatch.setattr(_base, "run_job", reached)


@pytest.fixture(scope="module")
def fitted():
    """Both estimators, fitted on arrays and on tables; the classifier is a deep ensemble, which is cheap."""
    frame = pd.DataFrame(X, columns=NAMES)
    models = {}
    for estimator, y in ESTIMATORS:
        sampler = "mile" if estimator is MileRegressor else "deep_ensemble"
        models[estimator, "array"] = estimator(**BUDGET, sampler=sampler).fit(X, y)
        models[estimator, "table"] = estimator(**BUDGET, sampler=sampler).fit(frame, y)
    return models


def as_container(values, container):
    return values if container == "array" else pd.DataFrame(values, columns=NAMES)


def with_cell(value, row=4, column=1):
    spoiled = X.copy()
    spoiled[row, column] = value
    return spoiled


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(("estimator", "y"), ESTIMATORS, ids=["regressor", "classifier"])
class TestDataForFit:
    @pytest.mark.parametrize(("container", "column"), [("array", "1"), ("table", "'dose'")])
    @pytest.mark.parametrize("word", INFINITE)
    def test_a_feature_that_is_infinite_is_named_by_row_and_column(self, estimator, y, word, container, column):
        spoiled = as_container(with_cell(INFINITE[word]), container)
        with pytest.raises(ValueError, match=f"X contains -?infinity.* in row 4, column {column} "):
            estimator().fit(spoiled, y)

    def test_cells_that_are_infinite_are_counted(self, estimator, y):
        spoiled = with_cell(np.inf)
        spoiled[7] = np.inf
        for cells in (spoiled, np.column_stack([spoiled.astype(object), ["low", "high"] * 6])):
            with pytest.raises(ValueError, match=r"row 4, column 1 .*4 such cells"):
                estimator().fit(cells, y)

    def test_an_infinite_feature_of_a_table_with_missing_values_is_refused(self, estimator, y):
        spoiled = with_cell(np.inf)
        spoiled[2, 0] = np.nan
        with pytest.raises(ValueError, match=r"X contains infinity.* in row 4, column 1 "):
            estimator().fit(spoiled, y)

    @pytest.mark.parametrize("word", INFINITE)
    def test_a_response_that_is_infinite_is_named_by_row(self, estimator, y, word):
        spoiled = np.arange(12.0)
        spoiled[9] = INFINITE[word]
        for container in (spoiled, spoiled.tolist(), pd.Series(spoiled), spoiled.astype(np.float32)):
            with pytest.raises(ValueError, match=f"y contains {word}.* in row 9"):
                estimator().fit(X, container)

    @pytest.mark.parametrize("missing", [np.nan, None], ids=str)
    def test_a_response_that_is_missing_everywhere_is_refused(self, estimator, y, missing):
        with pytest.raises(ValueError, match=r"y contains NaN or a missing value in each of the 12 rows"):
            estimator().fit(X, np.full(12, missing))

    def test_dates_as_a_response_are_refused_with_advice(self, estimator, y):
        dates = pd.date_range("2020-01-01", periods=12)
        for container in (dates, pd.Series(dates), dates.to_pydatetime(), dates.tz_localize("UTC")):
            with pytest.raises(ValueError, match=r"y holds dates or times.* days since a fixed date"):
                estimator().fit(X, container)

    def test_complex_numbers_are_refused(self, estimator, y):
        for container in ("array", "table"):
            with pytest.raises(ValueError, match="Complex data not supported"):
                estimator().fit(as_container(X + 1j, container), y)

    def test_texts_are_refused_where_the_encoder_takes_numbers_only(self, estimator, y):
        frame = as_container(X, "table").assign(dose=["low"] * 12)
        with pytest.raises(ValueError, match="column 'dose' has 'low' in row 0"):
            estimator(encoder="standardizer").fit(frame, y)
        dates = as_container(X, "table").assign(age=pd.date_range("2020-01-01", periods=12))
        with pytest.raises(ValueError, match=r"column 'age' has the date or time 2020-01-01.* in row 0"):
            estimator(encoder="standardizer").fit(dates, y)
        with pytest.raises(ValueError, match="X contains NaN in row 4, column 1"):
            estimator(encoder="standardizer").fit(with_cell(np.nan), y)

    def test_a_kind_for_a_column_that_is_not_there_is_refused(self, estimator, y):
        with pytest.raises(ValueError, match="a kind was given for 'zip', but there is no such column"):
            estimator(columns={"zip": "category"}).fit(as_container(X, "table"), y)

    def test_columns_and_an_encoder_are_not_given_together(self, estimator, y):
        with pytest.raises(ValueError, match="columns must be None where encoder is given"):
            estimator(columns={"dose": "category"}, encoder="table").fit(as_container(X, "table"), y)

    @pytest.mark.parametrize("n_rows", [0, 1])
    def test_fewer_than_two_rows_are_refused_with_their_number(self, estimator, y, n_rows):
        with pytest.raises(ValueError, match=rf"{n_rows} sample\(s\).* minimum of 2 is required"):
            estimator().fit(X[:n_rows], y[:n_rows])

    def test_no_columns_are_refused(self, estimator, y):
        with pytest.raises(ValueError, match=r"0 feature\(s\)"):
            estimator().fit(X[:, :0], y)

    def test_one_dimension_is_refused(self, estimator, y):
        with pytest.raises(ValueError, match="Expected 2D array"):
            estimator().fit(X[:, 0], y)

    def test_lengths_that_differ_are_refused_with_both(self, estimator, y):
        with pytest.raises(ValueError, match=r"\[12, 11\]"):
            estimator().fit(X, y[:-1])

    def test_two_responses_of_classes_are_refused(self, estimator, y):
        if estimator is MileClassifier:  # a regression may have several
            with pytest.raises(ValueError, match="1d array"):
                estimator().fit(X, np.stack([y, y], axis=1))


@pytest.mark.usefixtures("no_training")
class TestLabelsForFit:
    @pytest.mark.parametrize("label", ["only", 3, True, -1.0])
    def test_one_class_is_refused_by_name(self, label):
        with pytest.raises(ValueError, match=f"at least 2 classes; it has only 1 class, .*{label}"):
            MileClassifier().fit(X, np.full(12, label))

    def test_a_continuous_response_is_refused(self):
        with pytest.raises(ValueError, match="continuous"):
            MileClassifier().fit(X, Y)

    def test_text_is_no_response_for_a_regressor(self):
        with pytest.raises(ValueError, match=r"y must be a finite number in every row, but row 0 has '(yes|no)'"):
            MileRegressor().fit(X, LABELS)


@pytest.mark.parametrize("estimator", [MileRegressor, MileClassifier])
class TestDataForPredict:
    @pytest.mark.parametrize(("container", "column"), [("array", "1"), ("table", "'dose'")])
    @pytest.mark.parametrize("word", INFINITE)
    def test_a_feature_that_is_infinite_is_named_by_row_and_column(self, fitted, estimator, word, container, column):
        spoiled = as_container(with_cell(INFINITE[word]), container)
        for method in ("predict", "predictive", "sample_predictive"):
            with pytest.raises(ValueError, match=f"X contains {word}.* in row 4, column {column} "):
                getattr(fitted[estimator, container], method)(spoiled)

    @pytest.mark.parametrize("container", ["array", "table"])
    def test_a_feature_that_is_missing_is_taken_for_the_mean_with_a_warning(self, fitted, estimator, container):
        model = fitted[estimator, container]
        with pytest.warns(FitWarning, match=r"Empty cells.* in column 1: 1\."):
            found = model.predictive(as_container(with_cell(np.nan), container)).point
        same = model.predictive(as_container(with_cell(X[:, 1].mean()), container)).point
        np.testing.assert_array_equal(found, same)

    @pytest.mark.parametrize("n_columns", [1, 2, 4])
    def test_another_number_of_columns_is_refused_with_both_numbers(self, fitted, estimator, n_columns):
        with pytest.raises(ValueError, match=f"X has {n_columns} features, but {estimator.__name__} is expecting 3"):
            fitted[estimator, "array"].predict(np.zeros((2, n_columns)))

    def test_another_order_of_columns_is_refused(self, fitted, estimator):
        with pytest.raises(ValueError, match="same order"):
            fitted[estimator, "table"].predict(as_container(X, "table")[["dose", "age", "weight"]])

    def test_extra_columns_are_refused_by_name(self, fitted, estimator):
        with pytest.raises(ValueError, match="height"):
            fitted[estimator, "table"].predict(as_container(X, "table").assign(height=0.0))

    def test_missing_columns_are_refused_by_name(self, fitted, estimator):
        with pytest.raises(ValueError, match="dose"):
            fitted[estimator, "table"].predict(as_container(X, "table")[["age", "weight"]])

    def test_a_text_column_is_named_with_its_text(self, fitted, estimator):
        frame = as_container(X, "table").assign(dose=["low"] * 12)
        with pytest.raises(ValueError, match="column 'dose' has 'low' in row 0"):
            fitted[estimator, "table"].predict(frame)

    def test_no_rows_give_no_predictions(self, fitted, estimator):
        for container in ("array", "table"):
            model, nothing = fitted[estimator, container], as_container(X[:0], container)
            assert model.predict(nothing).shape == (0,)
            assert model.sample_predictive(nothing, n=3).shape == (3, 0)
            if estimator is MileRegressor:
                assert [part.shape for part in model.predict(nothing, return_std=True)] == [(0,), (0,)]
                assert model.predict_interval(nothing).shape == (0, 2)
                assert model.predict_quantiles(nothing).shape == (0, 3)
            else:
                assert model.predict_proba(nothing).shape == (0, 2)


def test_features_far_outside_the_training_data_give_finite_predictions(fitted):
    far = np.array([[1e300, -1e300, 0.0], [1e30, 1e30, 1e30]])
    mean, std = fitted[MileRegressor, "array"].predict(far, return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    assert np.isfinite(fitted[MileClassifier, "array"].predict_proba(far)).all()


NOT_COUNTS = [0, -1, 1.5, 2.0, "2", True, np.nan, np.inf, [2], np.float64(2.0)]
NOT_NUMBERS = ["1", None, True, np.nan, np.inf, -np.inf, [1.0], 1j, np.complex128(1.0), np.array([1.0, 2.0])]
NEITHER_NUMBER_NOR_NONE = [value for value in NOT_NUMBERS if value is not None]
BAD_ARGUMENTS = {
    "hidden_layer_sizes": [16, "16", 8.0, True, (0,), (8, -1), (8.0,), ("8",), (None,), (True,), (np.nan,), ((8, 8),)],
    "activation": ["rely", "ReLU", "", 1, True, np.nan, ("relu",), ["relu"]],
    "n_chains": [*NOT_COUNTS, None],
    "preset": ["fast", "Paper", "", None, 1, True, ["paper"]],
    "warmup_steps": [*NOT_COUNTS, 2],
    "sampling_steps": NOT_COUNTS,
    "n_draws": [*NOT_COUNTS, 10_001],
    "prior": ["gauss", "Normal", "", 1, True, np.nan, StudentT, {}, ["normal"], Mile()],
    "prior_scale": [*NOT_NUMBERS, 0, 0.0, -1.0],
    "temperature": [*NOT_NUMBERS, 0, 0.0, -1.0],
    "learning_rate": [*NEITHER_NUMBER_NOR_NONE, 0, 0.0, -1e-3],
    "weight_decay": [*NEITHER_NUMBER_NOR_NONE, -1e-3],
    "batch_size": NOT_COUNTS,
    "max_epochs": NOT_COUNTS,
    "patience": NOT_COUNTS,
    "validation_fraction": [*NOT_NUMBERS, -0.1, 0.91, 1, 1.0, 5],
    "n_folds": [-1, 1, 2, 13, 4.0, "4", True, [4]],
    "stacking": ["all", 1, True, ["slots"]],
    "likelihood": ["normal", 1, {}],
    "encoder": ["scaler", 1, {}],
    "columns": ["zip", 1, ["zip"], {"dose": "float"}, {"dose": None}],
    "network": ["lenet", "", 1, True, {}, ["lenet5"], ConvNet],
    "sampler": ["nuts!", "MILE", "", None, 1, True, Mile, {}, ["mile"]],
    "run_dir": [1, True, b"run", ["run"], np.nan],
    "store_data": [None, "yes", 1, 0.0, [True]],
    "stop_when": ["never", "Flat", True, 0.002],
    "warm_start": [None, "yes", 1, 0.0],
    "time_limit": [0, -1.0, "10", True, np.nan, np.inf, [10]],
    "backend": ["cloud", 3, ["dask"], True],
    "address": ["tcp://scheduler:8786", 8786],  # without a backend that has one
    "n_threads": [0, -1, 1.5, "2", True],
    "random_state": [-1, 2**32, 1.5, "0", True, np.nan, [0]],
    "verbose": ["1", None, 1.5, np.nan, [1]],
}
POSSIBLE = [
    ("hidden_layer_sizes", ()),
    ("hidden_layer_sizes", [8, 8]),
    ("hidden_layer_sizes", (np.int64(8), np.int32(4))),
    ("hidden_layer_sizes", np.array([8, 8])),
    ("activation", "tanh"),
    ("n_chains", np.int64(2)),
    ("n_chains", np.uint8(2)),
    ("n_chains", 1),
    ("preset", "quick"),
    ("preset", "accurate"),
    ("warmup_steps", np.int32(200)),
    ("warmup_steps", 3),
    ("sampling_steps", np.int64(100)),
    ("sampling_steps", 1),
    ("n_draws", np.int64(10)),
    ("prior_scale", np.float32(0.5)),
    ("prior_scale", 2),
    ("prior", "laplace"),
    ("prior", "student_t"),
    ("prior", "fan_in"),
    ("prior", FanIn(family=Laplace())),
    ("prior", PerLayer(scales=(1.0, 2.0, 3.0))),
    ("temperature", np.float32(0.5)),
    ("temperature", 2),
    ("learning_rate", np.float64(0.01)),
    ("weight_decay", 0),
    ("weight_decay", np.float32(0.0)),
    ("batch_size", np.int64(8)),
    ("batch_size", 10**6),
    ("max_epochs", np.int16(3)),
    ("patience", np.int64(3)),
    ("validation_fraction", np.float64(0.25)),
    ("validation_fraction", 0),
    ("validation_fraction", 0.9),
    ("sampler", "deep_ensemble"),
    ("sampler", Mile(trust=2.0)),
    ("random_state", np.uint32(7)),
    ("random_state", 2**32 - 1),
    ("random_state", np.random.RandomState(0)),
    ("random_state", np.random.default_rng(0)),
    ("verbose", np.int64(0)),
    ("verbose", False),
]


@pytest.mark.usefixtures("no_training")
class TestArguments:
    def test_every_argument_has_bad_values_here(self):
        assert BAD_ARGUMENTS.keys() == MileRegressor().get_params().keys()
        assert BAD_ARGUMENTS.keys() | {"class_weight"} == MileClassifier().get_params().keys()

    def test_an_impossible_argument_is_refused_by_name(self):
        for name, values in BAD_ARGUMENTS.items():
            for value, (estimator, y) in product(values, ESTIMATORS):
                with case(f"{name}={value!r}"), pytest.raises(ValueError, match=rf"\b{name}\b"):
                    estimator(**{name: value}).fit(X, y)

    def test_draws_and_steps_that_contradict_are_both_named(self):
        with pytest.raises(ValueError, match=r"n_draws \(30\) must not exceed sampling_steps \(20\)"):
            MileRegressor(sampling_steps=20, n_draws=30).fit(X, Y)

    @pytest.mark.parametrize("prior", [StudentT(), FanIn()], ids=str)
    def test_a_prior_object_takes_no_scale_besides(self, prior):
        with pytest.raises(ValueError, match=r"prior_scale must be 1\.0 with a prior object"):
            MileRegressor(prior=prior, prior_scale=0.5).fit(X, Y)

    @pytest.mark.parametrize("name", ["warmup_steps", "sampling_steps", "n_draws", "preset"])
    def test_arguments_that_a_deep_ensemble_has_no_use_for_are_checked_too(self, name):
        with pytest.raises(ValueError, match=rf"\b{name}\b"):
            MileRegressor(sampler="deep_ensemble", **{name: -1}).fit(X, Y)

    def test_a_possible_argument_is_accepted(self):
        for name, value in POSSIBLE:
            with case(f"{name}={value!r}"), pytest.raises(AssertionError, match="training was reached"):
                MileRegressor(**{name: value}).fit(X, Y)

    def test_arguments_are_not_checked_before_fit(self):
        assert MileRegressor(n_chains="many").n_chains == "many"


def test_a_refused_argument_leaves_the_fitted_model_as_it_was(fitted):
    model = fitted[MileClassifier, "array"]
    before = model.predict_proba(X)
    model.set_params(n_chains=0)
    try:
        with pytest.raises(ValueError, match="n_chains"):
            model.fit(X, np.where(LABELS == "yes", "ja", "nein"))
    finally:
        model.set_params(n_chains=BUDGET["n_chains"])
    np.testing.assert_array_equal(model.predict_proba(X), before)
    assert model.classes_.tolist() == ["no", "yes"]
    assert set(model.predict(X)) <= {"no", "yes"}


def test_numpy_numbers_fit_as_plain_ones_do(fitted):
    arguments = {
        name: np.int64(value) if isinstance(value, int) else value
        for name, value in BUDGET.items()
        if name != "hidden_layer_sizes"
    }
    model = MileRegressor((4,), **arguments | {"learning_rate": np.float64(1e-2)}).fit(X, Y)
    np.testing.assert_array_equal(model.predict(X), fitted[MileRegressor, "array"].predict(X))


ODD_TABLES = {
    "a constant column": (X * [1, 0, 1] + [0, 7, 0], Y),
    "a duplicated column": (X[:, [0, 1, 0]], Y),
    "only zeros": (np.zeros((12, 3)), Y),
    "two rows, fewer than columns": (X[:2], Y[:2]),
    "identical rows": (np.repeat(X[:1], 12, axis=0), np.full(12, 3.0)),
    "identical features": (np.repeat(X[:1], 12, axis=0), Y),
    "a constant response": (X, np.full(12, -5.0)),
    "whole numbers": (np.arange(36).reshape(12, 3), np.arange(12)),
    "one feature": (X[:, :1], Y),
}


@pytest.mark.parametrize("name", ODD_TABLES)
def test_an_odd_table_fits_and_predicts_finite_numbers(name):
    x, y = ODD_TABLES[name]
    model = MileRegressor(**BUDGET).fit(x, y)
    mean, std = model.predict(x, return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    assert (std > 0).all()
    assert np.isfinite(model.predict_interval(x)).all()
    assert np.isfinite(model.lppd(x, y))
    assert model.chain_status_ == ["ok", "ok"]


def test_a_table_smaller_than_a_batch_is_one_batch(fitted):
    model = MileRegressor(**BUDGET, batch_size=16).fit(X, Y)  # the default is 32; both exceed the 12 rows
    np.testing.assert_array_equal(model.predict(X), fitted[MileRegressor, "array"].predict(X))


LABEL_KINDS = {
    "words": np.array(["yes", "no"] * 6),
    "objects": np.array(["yes", "no"] * 6, object),
    "truth": np.array([True, False] * 6),
    "negative": np.array([-1, 1] * 6),
    "unsorted": np.array([9, 2] * 6),
    "gapped": np.array([0, 1000] * 6, np.int16),
    "whole floats": np.array([1.0, 2.0] * 6),
    "one example": np.array(["rare"] + ["usual"] * 11),
}


class TestLabels:
    @pytest.mark.parametrize("kind", LABEL_KINDS)
    def test_labels_of_any_kind_come_back_as_they_were(self, kind):
        y = LABEL_KINDS[kind]
        model = MileClassifier(**BUDGET, sampler="deep_ensemble").fit(X, y)
        np.testing.assert_array_equal(model.classes_, np.unique(y))
        assert model.classes_.dtype == y.dtype
        assert model.predict(X).dtype == y.dtype
        assert np.isin(model.predict(X), y).all()
        np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0, rtol=1e-12)
        assert np.isfinite(model.lppd(X, y))

    def test_a_list_of_labels_is_as_good(self):
        model = MileClassifier(**BUDGET, sampler="deep_ensemble").fit(X.tolist(), LABELS.tolist())
        assert model.classes_.tolist() == ["no", "yes"]

    def test_the_meaning_of_labels_does_not_depend_on_their_order(self):
        one = MileClassifier(**BUDGET, sampler="deep_ensemble").fit(X, LABELS)
        two = MileClassifier(**BUDGET, sampler="deep_ensemble").fit(X, np.where(LABELS == "yes", 40, -3))
        np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))
        np.testing.assert_array_equal(one.predict(X) == "yes", two.predict(X) == 40)

    def test_two_rows_of_two_classes_fit(self):
        model = MileClassifier(**BUDGET, sampler="deep_ensemble").fit(X[:2], ["a", "b"])
        assert np.isfinite(model.predict_proba(X)).all()

    def test_fifty_classes_fit(self):
        x = np.random.default_rng(2).standard_normal((100, 3))
        y = np.arange(100) % 50 * 3
        model = MileClassifier(**BUDGET, sampler="deep_ensemble").fit(x, y)
        np.testing.assert_array_equal(model.classes_, np.arange(0, 150, 3))
        probs = model.predict_proba(x)
        assert probs.shape == (100, 50)
        np.testing.assert_allclose(probs.sum(axis=1), 1.0, rtol=1e-12)
        assert np.isin(model.predict(x), y).all()

    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("validation_fraction", [0.125, 0.5, 0.9])
    def test_no_class_is_in_the_validation_rows_only(self, monkeypatch, seed, validation_fraction):
        datasets = []

        def keep(job, *_, **__):
            datasets.append(job.dataset)

        monkeypatch.setattr(_base, "run_job", keep)
        x = np.random.default_rng(seed).standard_normal((40, 3))
        y = np.r_[np.zeros(34), 1, 2, 3, 4, 5, 5].astype(int)
        MileClassifier(validation_fraction=validation_fraction, n_folds=0, random_state=seed).fit(x, y)
        assert np.unique(datasets[0].y_train).tolist() == [0, 1, 2, 3, 4, 5]
        assert len(datasets[0].y_train) + len(datasets[0].y_valid) == 40
        assert len(datasets[0].y_valid) > 0
