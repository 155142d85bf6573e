"""Tables as they are: frames with texts, dates and gaps are fitted, predicted, saved and resumed as they come."""

import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import mile
from mile import FitWarning, MileClassifier, MileRegressor
from mile.estimators import _base, restore_estimator
from mile.features.numbers import Standardizer
from mile.features.table import TableEncoder
from mile.report import render

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
N_ROWS = 60


def made_frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "size": rng.normal(size=N_ROWS),
            "city": rng.choice(["Oslo", "Rome", "Bonn"], N_ROWS),
            "grade": pd.Categorical(rng.choice(["a", "b"], N_ROWS)),
            "is_new": rng.random(N_ROWS) > 0.5,
            "built": pd.date_range("2020-01-01", periods=N_ROWS, freq="3D"),
            "rooms": pd.array([None if row % 9 == 0 else row % 4 for row in range(N_ROWS)], dtype="Int64"),
            "id": [f"house {row}" for row in range(N_ROWS)],
        }
    )


FRAME = made_frame()
PRICE = pd.Series(FRAME["size"] + 2.0 * (FRAME["city"] == "Rome"), name="price")
PLAIN = np.random.default_rng(1).normal(size=(12, 3))


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("tables") / "run"


@pytest.fixture(scope="module")
def fitted(run_dir):
    return MileRegressor(**BUDGET, run_dir=run_dir).fit(FRAME, PRICE)


@pytest.fixture
def encoder_of(monkeypatch):
    """A function that says which encoder an estimator takes for some X, without training."""
    seen = []

    def keep(job, *_, **__):
        seen.append(job.dataset.encoder)

    monkeypatch.setattr(_base, "run_job", keep)

    def encoder(x, y=None, **arguments):
        MileRegressor(**arguments).fit(x, np.arange(len(x)) if y is None else y)
        return seen[-1]

    return encoder


def dataset_of(monkeypatch, estimator, x, y, **fit_arguments):
    found = SimpleNamespace()

    def keep(job, *_, **__):
        found.dataset = job.dataset

    monkeypatch.setattr(_base, "run_job", keep)
    with pytest.warns(FitWarning, match=r"y has no value in 2 of 60 rows, which are left out\.$"):
        estimator.fit(x, y, **fit_arguments)
    return found.dataset


class TestFittedToAMixedFrame:
    def test_names_and_kinds_of_columns_are_known(self, fitted):
        assert fitted.n_features_in_ == 7
        assert fitted.feature_names_in_.tolist() == FRAME.columns.tolist()
        assert {row.name: row.kind for row in fitted.columns_} == {
            "size": "number",
            "city": "category",
            "grade": "category",
            "is_new": "boolean",
            "built": "date",
            "rooms": "number",
            "id": "ignored",
        }
        assert "identifier" in fitted.columns_[-1].reason

    def test_order_and_extra_columns_do_not_matter(self, fitted):
        shuffled = FRAME[FRAME.columns[::-1]].assign(color="red").drop(columns="id")
        np.testing.assert_array_equal(fitted.predict(shuffled), fitted.predict(FRAME))

    def test_a_missing_column_is_named(self, fitted):
        with pytest.raises(ValueError, match="the table has no column 'city'; it has 'size'"):
            fitted.predict(FRAME.drop(columns="city"))

    def test_known_values_give_no_warning(self, fitted):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert np.isfinite(fitted.predict(FRAME)).all()

    def test_unseen_and_missing_values_are_counted_in_one_warning(self, fitted):
        odd = FRAME.copy()
        odd.loc[:4, "city"] = "Paris"
        odd.loc[7, "size"] = np.nan
        odd["rooms"] = odd["rooms"].fillna(2).astype(float)
        with pytest.warns(FitWarning) as caught:
            found = fitted.predict_interval(odd)
        assert np.isfinite(found).all()
        assert len(caught) == 1
        assert "in 'size': 1." in str(caught[0].message)
        assert "in 'city': 5." in str(caught[0].message)

    def test_every_kind_of_table_gives_the_same_predictions(self, fitted):
        polars, pyarrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
        expected = fitted.predict(FRAME)
        tables = [
            polars.from_pandas(FRAME),
            pyarrow.Table.from_pandas(FRAME),
            {name: FRAME[name].tolist() for name in FRAME},
            FRAME.to_dict("records"),
            FRAME.to_numpy(object),
        ]
        for table in tables:
            np.testing.assert_array_equal(fitted.predict(table), expected)

    def test_predictions_are_a_frame_of_the_same_library(self, fitted):
        polars, pyarrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
        rows = FRAME[:5].set_axis(list("edcba"))
        found = fitted.predict_frame(rows, interval=0.8, quantiles=[0.5])
        assert isinstance(found, pd.DataFrame)
        assert found.index.tolist() == list("edcba")
        assert found.columns.tolist() == ["mean", "std", "lower_80", "upper_80", "q0.5"]
        np.testing.assert_array_equal(found["mean"], fitted.predict(rows))
        np.testing.assert_array_equal(found[["lower_80", "upper_80"]], fitted.predict_interval(rows, 0.8))
        for table, kind in (
            (polars.from_pandas(rows), polars.DataFrame),
            (polars.from_pandas(rows).lazy(), polars.DataFrame),
            (pyarrow.Table.from_pandas(rows), pyarrow.Table),
            (rows.to_numpy(object), pd.DataFrame),
        ):
            other = fitted.predict_frame(table, interval=0.8, quantiles=[0.5])
            assert isinstance(other, kind)
            np.testing.assert_array_equal(np.asarray(other["mean"]), found["mean"])
        with pytest.raises(ValueError, match="interval must lie strictly between 0 and 1; got 90"):
            fitted.predict_frame(rows, interval=90)

    def test_an_array_with_another_number_of_columns_is_refused(self, fitted):
        with pytest.raises(ValueError, match="X has 6 features, but MileRegressor is expecting 7"):
            fitted.predict(FRAME.to_numpy(object)[:, 1:])

    def test_an_infinite_number_is_refused_at_prediction(self, fitted):
        odd = FRAME.copy()
        odd.loc[3, "size"] = np.inf
        with pytest.raises(ValueError, match=r"X contains infinity.* in row 3, column 'size'"):
            fitted.predict(odd)

    def test_no_rows_give_no_predictions(self, fitted):
        assert fitted.predict(FRAME[:0]).shape == (0,)

    def test_scores_use_the_same_rows(self, fitted):
        assert np.isfinite(fitted.lppd(FRAME, PRICE))
        assert np.isfinite(fitted.score(FRAME, PRICE))

    def test_a_file_holds_the_same_model(self, fitted, tmp_path):
        fitted.save(tmp_path / "model.mile")
        again = mile.load(tmp_path / "model.mile")
        np.testing.assert_array_equal(again.predict(FRAME), fitted.predict(FRAME))
        assert again.columns_ == fitted.columns_
        assert again.feature_names_in_.tolist() == fitted.feature_names_in_.tolist()

    def test_a_run_loads_and_resumes_as_the_same_model(self, fitted, run_dir):
        expected = fitted.predict(FRAME)
        for again in (mile.load(run_dir), mile.resume(run_dir), MileRegressor(**BUDGET, run_dir=run_dir)):
            if not hasattr(again, "fit_"):
                again.fit(FRAME, PRICE)
            np.testing.assert_array_equal(again.predict(FRAME), expected)

    def test_the_report_takes_the_frame(self, fitted, tmp_path):
        fitted.report(tmp_path / "report.html", FRAME, PRICE)
        page = (tmp_path / "report.html").read_text()
        assert "city = Rome" in page
        assert "2020-01-01 to " in page
        assert "left out: it is an identifier" in page
        assert render(fitted.fit_, FRAME, PRICE).count('id="columns"') == 1


class TestKindsThatTheUserGives:
    def test_they_are_used_kept_in_files_and_restored(self, tmp_path):
        asked = {"rooms": "category", "built": "ignore", "city": "category"}
        model = MileClassifier(**BUDGET, columns=asked, sampler="deep_ensemble").fit(FRAME, FRAME["grade"])
        kinds = {row.name: row.kind for row in model.columns_}
        assert (kinds["rooms"], kinds["built"]) == ("category", "ignored")
        assert model.classes_.tolist() == ["a", "b"]
        model.save(tmp_path / "model.mile")
        again = mile.load(tmp_path / "model.mile")
        assert again.columns == asked
        np.testing.assert_array_equal(again.predict_proba(FRAME), model.predict_proba(FRAME))
        frame = model.predict_frame(FRAME)
        assert frame.columns.tolist() == ["label", "probability", "p_a", "p_b"]
        assert frame["label"].tolist() == model.predict(FRAME).tolist()

    def test_they_make_a_table_of_an_array(self, encoder_of):
        encoder = encoder_of(np.arange(36.0).reshape(12, 3) % 4, columns={"x1": "category"}, validation_fraction=0.0)
        assert isinstance(encoder, TableEncoder)
        assert encoder.kinds == {"x1": "category"}


class TestWhichEncoderIsTaken:
    def test_finite_numbers_are_standardized(self, encoder_of):
        frame = pd.DataFrame(PLAIN, columns=["a", "b", "c"])
        for x in (PLAIN, PLAIN.tolist(), PLAIN.astype(object), PLAIN > 0, frame, frame.astype("Float64")):
            assert isinstance(encoder_of(x), Standardizer)

    def test_anything_else_is_a_table(self, encoder_of):
        frame = pd.DataFrame(PLAIN, columns=["a", "b", "c"])
        gap = PLAIN.copy()
        gap[3, 1] = np.nan
        tables = {
            "NaN": gap,
            "masked": np.ma.masked_invalid(gap),
            "NaN in a frame": pd.DataFrame(gap),
            "None": np.where(np.isnan(gap), None, gap),
            "booleans": frame.assign(d=[True, False] * 6),
            "lengths of time": frame.assign(d=pd.to_timedelta(np.arange(12), unit="s")),
            "mapping": frame.to_dict("list"),
            "named fields": frame.to_records(index=False),
        }
        for name, x in tables.items():
            y = np.arange(12)
            assert isinstance(encoder_of(x, y), TableEncoder), name
        assert isinstance(encoder_of(sparse.csr_array(PLAIN), np.arange(12)), TableEncoder)

    def test_the_preset_of_the_paper_does_not_clip(self, encoder_of):
        frame = pd.DataFrame({"a": [*range(11), None]})
        assert encoder_of(frame, preset="paper").squash == "none"
        assert encoder_of(frame).squash == "smooth"

    def test_a_mapping_is_predicted_by_a_model_of_numbers(self):
        frame = pd.DataFrame(PLAIN, columns=["a", "b", "c"])
        model = MileRegressor(**BUDGET).fit(frame, PLAIN[:, 0])
        mapping = {name: frame[name].tolist() for name in "cba"}
        np.testing.assert_array_equal(model.predict(mapping), model.predict(frame))
        with pytest.raises(ValueError, match="the table has no column 'b'"):
            model.predict({"a": [1.0], "c": [2.0]})


class TestMissingResponses:
    @pytest.mark.parametrize("kind", ["float", "object", "Float64"])
    def test_rows_without_a_number_are_left_out_with_a_count(self, monkeypatch, kind):
        price = PRICE.astype(kind)
        price[[3, 40]] = None
        dataset = dataset_of(monkeypatch, MileRegressor(), FRAME, price)
        kept = np.sort(np.concatenate([dataset.train.number, dataset.valid.number]))
        np.testing.assert_array_equal(kept, np.delete(np.arange(N_ROWS), [3, 40]))

    @pytest.mark.parametrize(
        "labels",
        [
            pd.Series(["yes", "no"] * 30, dtype=object),
            pd.Series(["yes", "no"] * 30, dtype="category"),
            pd.Series([True, False] * 30, dtype="boolean"),
            pd.Series([3, 5] * 30, dtype="Int64"),
        ],
        ids=lambda labels: str(labels.dtype),
    )
    def test_rows_without_a_label_are_left_out_with_a_count(self, monkeypatch, labels):
        labels = labels.copy()
        labels[[3, 40]] = None
        dataset = dataset_of(monkeypatch, MileClassifier(), PLAIN[np.arange(60) % 12], labels)
        assert len(dataset.train) + len(dataset.valid) == 58
        assert len(dataset.response.labels) == 2

    def test_weights_stay_with_their_rows(self, monkeypatch):
        price = PRICE.copy()
        price[[3, 40]] = np.nan
        weight = np.arange(N_ROWS) + 1.0
        dataset = dataset_of(monkeypatch, MileRegressor(), FRAME, price, sample_weight=weight)
        np.testing.assert_array_equal(dataset.train.weight, dataset.train.number + 1.0)

    def test_whole_numbers_beside_gaps_are_not_rounded(self, monkeypatch):
        labels = [2**53, 2**53 + 1] * 30
        labels[3], labels[40] = None, np.nan
        dataset = dataset_of(monkeypatch, MileClassifier(), FRAME, labels)
        assert dataset.response.labels.tolist() == [2**53, 2**53 + 1]

    def test_numbers_that_float64_cannot_tell_apart_are_refused(self):
        for y in (np.arange(N_ROWS, dtype=np.uint64) + np.uint64(2**63), [2**70 + row for row in range(N_ROWS)]):
            with pytest.raises(ValueError, match=r"y has \d+ in row \d+, a whole number that is rounded"):
                MileRegressor().fit(FRAME, y)

    def test_a_list_of_texts_may_have_gaps(self, monkeypatch):
        labels = ["yes", "no"] * 30
        labels[3], labels[40] = None, np.nan
        dataset = dataset_of(monkeypatch, MileClassifier(), FRAME, labels)
        assert dataset.response.labels.tolist() == ["no", "yes"]


def test_kinds_in_a_file_must_be_pairs_of_words():
    model = MileRegressor(**BUDGET).fit(PLAIN, PLAIN[:, 0])
    for wrong in (["zip"], [["zip"]], "zip", 3, [["zip", "float"]]):
        origin = model._origin(0)
        origin["parameters"]["columns"] = wrong
        with pytest.raises(mile.UntrustedFileError):
            restore_estimator(origin, model.fit_)
