"""Frames: every kind of table gives the same columns, and what is no table is refused with what is wrong."""

import datetime as dt
import decimal

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import sparse

from mile.features.frame import Frame
from mile.features.values import Dates, Numbers, Texts

DAY = dt.datetime(2024, 2, 29, 13, 30)
COLUMNS = {
    "whole": [3, None, -1, 2**40],
    "real": [0.5, 1e300, None, -2.0],
    "flag": [True, False, None, True],
    "word": ["a", None, "b", "a"],
    "moment": [DAY, None, dt.datetime(1969, 7, 20), DAY],
}


def as_polars(columns):
    return pytest.importorskip("polars").DataFrame(columns)


TABLES = {
    "mapping": dict,
    "pandas": pd.DataFrame,
    "pandas nullable": lambda columns: pd.DataFrame(columns).convert_dtypes(),
    "pandas on Arrow": lambda columns: pa.table(columns).to_pandas(types_mapper=pd.ArrowDtype),
    "pandas objects": lambda columns: pd.DataFrame(columns, dtype=object),
    "pyarrow": pa.table,
    "polars": as_polars,
    "polars, lazy": lambda columns: as_polars(columns).lazy(),
    "narwhals": lambda columns: nw.from_native(pa.table(columns)),
    "records": lambda columns: [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
    "rows": lambda columns: list(zip(*columns.values(), strict=True)),
    "object array": lambda columns: np.array(list(zip(*columns.values(), strict=True)), object),
}


def spelled(texts):
    return [None if code < 0 else texts.levels[code] for code in texts.codes]


def vector(values):
    return Frame.of({"x": values})["x"]


@pytest.mark.parametrize("kind", TABLES)
def test_all_libraries_give_the_same_columns(kind):
    frame = Frame.of(TABLES[kind](COLUMNS))
    assert frame.shape == (4, 5)
    assert frame.is_named == (kind not in ("rows", "object array"))
    assert frame.names == (tuple(COLUMNS) if frame.is_named else ("x0", "x1", "x2", "x3", "x4"))
    whole, real, flag, word, moment = frame.columns
    np.testing.assert_array_equal(whole.numbers().values, [3, np.nan, -1, 2**40])
    np.testing.assert_array_equal(real.numbers().values, [0.5, 1e300, np.nan, -2])
    assert spelled(flag.flags()) == ["yes", "no", None, "yes"]
    assert spelled(word.texts()) == ["a", None, "b", "a"]
    expected = np.array([DAY, None, dt.datetime(1969, 7, 20), DAY], "M8[us]")
    np.testing.assert_array_equal(moment.dates("ISO 8601").time, expected)
    for values in frame.columns:
        assert len(values) == 4
        assert values.missing().sum() == 1
        assert len(values.take(np.array([3, 1]))) == 2


class TestColumnsOfPandas:
    def test_a_category_of_numbers_is_texts_that_stay_texts(self):
        values = vector(pd.Series(pd.Categorical([3.0, None, 4.5])))
        assert isinstance(values, Texts)
        assert values.is_declared
        assert spelled(values) == ["3", None, "4.5"]

    def test_periods_and_intervals_are_texts(self):
        assert spelled(vector(pd.Series(pd.PeriodIndex(["2020-01", "2020-03"], freq="M")))) == ["2020-01", "2020-03"]
        assert spelled(vector(pd.Series(pd.interval_range(0, 2)))) == ["(0, 1]", "(1, 2]"]

    def test_lengths_of_time_are_seconds(self):
        values = vector(pd.Series(pd.to_timedelta(["1D", None, "2h"])))
        np.testing.assert_array_equal(values.numbers().values, [86_400, np.nan, 7_200])

    def test_sparse_columns_are_numbers(self):
        np.testing.assert_array_equal(
            vector(pd.Series(pd.arrays.SparseArray([0, 2.5, 0]))).numbers().values, [0, 2.5, 0]
        )

    def test_a_time_zone_gives_the_time_in_utc_and_the_local_clock(self):
        local = pd.Series(pd.to_datetime(["2020-07-01 12:00", None])).dt.tz_localize("America/New_York")
        values = vector(local)
        assert isinstance(values, Dates)
        assert values.time[0] == np.datetime64("2020-07-01T16:00")
        assert values.clock[0] == np.datetime64("2020-07-01T12:00")
        assert values.missing().tolist() == [False, True]

    def test_names_that_are_no_texts_become_texts(self):
        assert Frame.of(pd.DataFrame([[1, 2]], columns=[0, ("a", 1)])).names == ("0", "('a', 1)")


class TestObjects:
    def test_mixtures_are_texts_with_numbers_spelled_as_everywhere(self):
        assert spelled(vector([1, "a", None, 2.0, True, b"caf\xc3\xa9"])) == ["1", "a", None, "2", "yes", "café"]

    def test_numbers_of_all_classes_are_numbers(self):
        cells = [decimal.Decimal("2.5"), np.int8(3), float("nan"), 10**400, True, np.float32(0.5)]
        np.testing.assert_array_equal(vector(cells).numbers().values, [2.5, 3, np.nan, np.inf, 1, 0.5])

    def test_days_and_moments_are_dates(self):
        cells = [dt.date(2020, 1, 1), np.datetime64("2020-01-02"), None, dt.datetime(2020, 1, 3, tzinfo=dt.UTC)]
        values = vector(cells)
        assert isinstance(values, Dates)
        assert values.time.astype("M8[D]").astype(str).tolist() == ["2020-01-01", "2020-01-02", "NaT", "2020-01-03"]

    def test_lengths_of_time_are_seconds(self):
        assert vector([dt.timedelta(minutes=1), np.timedelta64(2, "s")]).numbers().values.tolist() == [60, 2]

    def test_any_other_object_is_its_text(self):
        assert spelled(vector([[1, 2], {"a": 1}, np.arange(2)])) == ["[1, 2]", "{'a': 1}", "[0 1]"]


class TestArrays:
    @pytest.mark.parametrize("dtype", ["i1", "u8", "f2", "f4", "f8", "g"])
    def test_numbers_keep_their_precision(self, dtype):
        values = Frame.of(np.array([[1, 2], [3, 4]], dtype))["x1"]
        assert isinstance(values, Numbers)
        assert values.values.dtype == (np.float32 if dtype in ("i1", "f2", "f4") else np.float64)
        assert values.values.tolist() == [2, 4]

    def test_other_types_are_read_as_what_they_are(self):
        assert spelled(vector(np.array([" a", "b ", "NA"]))) == ["a", "b", None]
        assert spelled(vector(np.array([b"a", b"?"]))) == ["a", None]
        assert spelled(vector(np.array([True, False]))) == ["yes", "no"]
        assert vector(np.array([90, "NaT"], "m8[s]")).numbers().values.tolist()[0] == 90
        assert vector(np.array(["2020-01-01", "NaT"], "M8[D]")).missing().tolist() == [False, True]

    def test_matrices_and_masked_arrays_are_read_by_column(self):
        assert Frame.of(np.array([[1, 2], [3, 4]]).view(np.matrix))["x1"].numbers().values.tolist() == [2, 4]
        masked = np.ma.masked_array([[1.0, 2.0], [3.0, 4.0]], mask=[[True, False], [False, False]])
        assert Frame.of(masked)["x0"].missing().tolist() == [True, False]

    def test_fields_are_columns(self):
        assert Frame.of(np.zeros(2, [("a", "f8"), ("b", "U1")])).names == ("a", "b")

    @pytest.mark.parametrize("form", [sparse.csr_array, sparse.csc_matrix, sparse.coo_array, sparse.lil_array])
    def test_sparse_matrices_are_the_dense_ones(self, form):
        dense = np.random.default_rng(0).poisson(0.3, (20, 4)).astype(float)
        frame = Frame.of(form(dense))
        assert not frame.is_named
        for place, values in enumerate(frame.columns):
            np.testing.assert_array_equal(values.numbers().values, dense[:, place])
            np.testing.assert_array_equal(values.take(np.array([5, 2])).numbers().values, dense[[5, 2], place])
            assert len(values) == 20
            assert not values.missing().any()
            assert values.texts().levels == values.numbers().texts().levels

    def test_parts_of_an_entry_add_up(self):
        matrix = sparse.coo_array((np.array([1.0, 2.0]), (np.array([0, 0]), np.array([0, 0]))), shape=(2, 1))
        assert Frame.of(matrix)["x0"].numbers().values.tolist() == [3, 0]


def test_a_frame_is_its_own_frame():
    frame = Frame.of({"a": [1]})
    assert Frame.of(frame) is frame
    assert "a" in frame
    assert "b" not in frame
    assert len(frame) == 1


def test_a_table_may_have_no_rows():
    for table in (
        {"a": []},
        pd.DataFrame({"a": pd.Series([], dtype=object)}),
        np.empty((0, 1)),
        pa.table({"a": pa.nulls(0)}),
    ):
        assert Frame.of(table).shape == (0, 1)


NO_TABLES = {
    "no columns": ({}, "no columns"),
    "an array without columns": (np.empty((3, 0)), "no columns"),
    "no rows in a list": ([], "at least one"),
    "a list of numbers": ([1, 2], "must hold rows"),
    "a list of texts": (["ab", "cd"], "must hold rows"),
    "rows of different lengths": ([[1], [1, 2]], "as many cells"),
    "columns of different lengths": ({"a": [1], "b": [1, 2]}, "'b' has another than 1 rows"),
    "a vector": (np.zeros(3), r"two dimensions.*\(3,\)"),
    "images": (np.zeros((2, 3, 4)), "two dimensions"),
    "a series": (pd.Series([1]), "got Series of shape"),
    "a text": ("abc", "must hold rows"),
    "a number": (5, "got int"),
    "a column that is a text": ({"a": "xyz"}, "column 'a' must be a list or an array; got str"),
    "a column of two dimensions": ({"a": np.zeros((2, 2))}, "column 'a' must have one dimension"),
    "two columns of one name": (pd.DataFrame([[1, 2]], columns=["a", "a"]), "(?s)unique.*'a'"),
    "two names of one text": (pd.DataFrame([[1, 2]], columns=[1, "1"]), "'1' occurs more than once"),
}


@pytest.mark.parametrize("name", NO_TABLES)
def test_what_is_no_table_is_refused_with_what_is_wrong(name):
    table, message = NO_TABLES[name]
    with pytest.raises(ValueError, match=message):
        Frame.of(table)
