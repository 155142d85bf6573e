"""The table encoder: learned on training rows, matched by name, finite for any table, the same after a file."""

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.datasets import load_diabetes, load_wine

from mile import _registry
from mile._errors import UntrustedFileError
from mile.features.frame import Frame
from mile.features.table import TableEncoder

MIXED = {
    "size": [40.0, 62.0, None, 90.0, 55.0, 71.0] * 4,
    "city": ["Oslo", "Rome", "Rome", None, "Oslo", "Bern"] * 4,
    "sold": [True, False, True, True, None, False] * 4,
    "day": pd.date_range("2020-01-01", periods=24, freq="31D").to_numpy(),
    "id": [f"row {place}" for place in range(24)],
    "one": [1.0] * 24,
}

KINDS = ("number", "category", "boolean", "date")


def some_rows(n_rows=2_000, seed=0):
    """Return a table with a category of many levels, and a response that depends on it."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 60, n_rows)
    table = pd.DataFrame({"x": rng.normal(size=n_rows), "zip": [f"z{code}" for code in codes]})
    return table, np.sin(codes) + rng.normal(size=n_rows)


def restored(encoder):
    kept = json.loads(json.dumps(encoder.settings()))
    tensors = {name: array.copy() for name, array in encoder.tensors().items()}
    return TableEncoder.restore(tensors, kept, encoder.n_features)


class TestFit:
    def test_takes_codes_for_categories_also_where_a_file_has_none_with_a_zero_in_front(self):
        encoder = TableEncoder().fit({"zip": ["01234", "98765", "10000"] * 10})
        assert encoder.describe()[0].kind == "category"
        np.testing.assert_array_equal(encoder.transform({"zip": [98765.0]}), encoder.transform({"zip": ["98765"]}))
        assert not np.array_equal(encoder.transform({"zip": ["01234"]}), encoder.transform({"zip": ["1234"]}))

    def test_gives_features_with_names(self):
        encoder = TableEncoder().fit(MIXED)
        names = encoder.names(None, encoder.n_features)
        assert names[:4] == ["size", "size (missing)", "city = Oslo", "city = Rome"]
        assert encoder.transform(MIXED).shape == (24, len(names))
        assert [report.kind for report in encoder.describe()] == [*KINDS, "ignored", "ignored"]
        assert encoder.n_columns(len(names)) == 6
        assert encoder.names(list("abcdef"), len(names))[0] == "a"

    def test_learns_from_the_given_rows_only(self):
        rows = np.arange(0, 24, 2)
        other = pd.DataFrame(MIXED)
        other.loc[1::2, "size"] = 1e9
        other.loc[1::2, "city"] = "Paris"
        one, two = TableEncoder().fit(MIXED, rows), TableEncoder().fit(other, rows)
        assert one.tensors().keys() == two.tensors().keys()
        for name, array in one.tensors().items():
            np.testing.assert_array_equal(array, two.tensors()[name])

    def test_counts_rows_by_weight(self):
        weight = np.random.default_rng(0).integers(0, 4, 24).astype(float)
        repeated = pd.DataFrame(MIXED).loc[np.repeat(np.arange(24), weight.astype(int))].drop(columns="id")
        one = TableEncoder(fewest_rows=2).fit(pd.DataFrame(MIXED).drop(columns="id"), None, weight)
        other = TableEncoder(fewest_rows=2).fit(repeated)
        np.testing.assert_allclose(one.transform(repeated), other.transform(repeated), atol=1e-5)

    def test_does_not_see_rows_of_weight_zero(self):
        table = pd.DataFrame({"a": [9.0, None, None, 9.0], "b": [1.0, 2.0, 3.0, 50.0], "c": list("xyyx")})
        weight = np.array([0.0, 1.0, 1.0, 0.0])
        for squash in ("smooth", "none"):
            one = TableEncoder(squash=squash).fit(table, None, weight)
            assert one.describe() == TableEncoder(squash=squash).fit(table[1:3]).describe()
            assert len(TableEncoder(squash=squash).fit_and_transform(table, None, weight, np.arange(4.0))[1]) == 4

    def test_takes_kinds_from_the_user_and_refuses_unknown_ones(self):
        encoder = TableEncoder(kinds={"size": "category", "id": "ignore", "one": "number"}, fewest_rows=1).fit(MIXED)
        assert encoder.describe()[0].kind == "category"
        with pytest.raises(ValueError, match=r"a kind was given for 'town', .* the table has 'size', 'city', 'sold'"):
            TableEncoder(kinds={"town": "category"}).fit(MIXED)
        encoder = TableEncoder(kinds={0: "category"}).fit(pd.DataFrame({0: [1, 2] * 9, 1: range(18)}))
        assert encoder.describe()[0].kind == "category"
        with pytest.raises(ValueError, match="kinds must be a mapping"):
            TableEncoder(kinds=["size"])
        with pytest.raises(ValueError, match=r"'size' must be one of \['boolean', 'category', .*got 'numeric'"):
            TableEncoder(kinds={"size": "numeric"})

    def test_refuses_what_cannot_be(self):
        for options in ({"squash": "hard"}, {"most_levels": 1}, {"fewest_rows": 0}):
            with pytest.raises(ValueError, match=next(iter(options))):
                TableEncoder(**options)
        with pytest.raises(ValueError, match="no rows to learn from"):
            TableEncoder().fit({"a": []})
        with pytest.raises(ValueError, match=r"nothing to learn|anything to learn from \('a': it has one value only"):
            TableEncoder().fit({"a": [1, 1]})
        with pytest.raises(ValueError, match="call fit first"):
            TableEncoder().transform(MIXED)

    def test_leaves_out_copies_unless_they_are_asked_for(self):
        table = pd.DataFrame({"a": [1.0, 2, 3, 5], "b": [1, 2, 3, 5], "c": [1.0, 3, 2, 5], "d": ["1", "2", "3", "5.0"]})
        reports = TableEncoder().fit(table).describe()
        assert [report.reason for report in reports] == ["", "it is the same as 'a'", "", "it is the same as 'a'"]
        reports = TableEncoder(kinds={"b": "number"}).fit(table).describe()
        assert [report.kind for report in reports] == ["number", "number", "number", "ignored"]

    def test_shows_no_training_row_its_own_response(self):
        table, y = some_rows()
        encoder, trained = TableEncoder().fit_and_transform(table, None, None, y)
        plain = encoder.transform(table)
        assert encoder.names(None, 3) == ["x", "zip (mean of y)", "zip (frequency)"]
        np.testing.assert_allclose(
            TableEncoder().fit_and_transform(table, None, None, 1e300 * y)[1], trained, atol=1e-5
        )
        np.testing.assert_array_equal(trained[:, [0, 2]], plain[:, [0, 2]])
        assert np.corrcoef(trained[:, 1], y)[0, 1] < np.corrcoef(plain[:, 1], y)[0, 1]
        rows = np.arange(0, 2_000, 3)
        again, part = TableEncoder().fit_and_transform(table, rows, None, y)
        assert part.shape == (len(rows), 3)
        assert again.transform(table, rows).shape == part.shape

    def test_without_a_response_is_transform(self):
        encoder, trained = TableEncoder().fit_and_transform(MIXED)
        np.testing.assert_array_equal(trained, encoder.transform(MIXED))


class TestOtherEncoders:
    def test_encode_training_rows_as_all_others(self):
        x = np.random.default_rng(0).normal(size=(20, 3))
        encoder, trained = _registry.encoder["standardizer"]().fit_and_transform(x, np.arange(10), None, x[:, 0])
        np.testing.assert_array_equal(trained, encoder.transform(x, np.arange(10)))


class TestTransform:
    def test_finds_columns_by_name(self):
        encoder = TableEncoder().fit(MIXED)
        expected = encoder.transform(MIXED)
        shuffled = pd.DataFrame(MIXED)[["one", "day", "size", "id", "sold", "city"]].assign(more=1)
        np.testing.assert_array_equal(encoder.transform(shuffled), expected)
        np.testing.assert_array_equal(encoder.transform(shuffled, np.array([3, 1])), expected[[3, 1]])
        needed = pd.DataFrame(MIXED)[["city", "sold", "size", "day"]]
        np.testing.assert_array_equal(encoder.transform(needed), expected)
        with pytest.raises(ValueError, match="the table has no column 'city', 'day'; it has 'size', 'sold'"):
            encoder.transform({name: MIXED[name] for name in ("size", "sold")})

    def test_finds_columns_of_arrays_by_position(self):
        x = load_diabetes().data
        encoder = TableEncoder().fit(x)
        np.testing.assert_array_equal(encoder.transform(pd.DataFrame(x)), encoder.transform(x))
        np.testing.assert_array_equal(encoder.transform(sparse.csr_array(x)), encoder.transform(x))
        named = TableEncoder().fit(pd.DataFrame(x))
        np.testing.assert_array_equal(named.transform(x), encoder.transform(x))
        with pytest.raises(ValueError, match="must have 10 columns, as at fit; it has 9"):
            encoder.transform(x[:, :9])

    def test_is_the_same_for_every_library(self):
        polars = pytest.importorskip("polars")
        frame = pd.DataFrame(MIXED)
        tables = [MIXED, frame, frame.convert_dtypes(), pa.table(frame), polars.from_pandas(frame)]
        encoders = [TableEncoder().fit(table) for table in tables]
        expected = encoders[0].transform(MIXED)
        for encoder in encoders:
            for table in tables:
                np.testing.assert_array_equal(encoder.transform(table), expected)

    def test_counts_what_training_had_not(self):
        encoder = TableEncoder().fit({"a": [1.0, 2, 3, 5], "b": list("ppqq"), "c": [1, 2, 4, None]}, y=None)
        assert encoder.transform_and_count({"a": [1], "b": ["p"], "c": [None]})[1].columns == {}
        encoder = TableEncoder(fewest_rows=1).fit({"a": [1.0, 2, 3, 5], "b": list("ppqq"), "c": [1, 2, 4, None]})
        table = {"a": ["2", "two", None], "b": ["new", None, "p"], "c": [np.inf, None, 3]}
        encoded, findings = encoder.transform_and_count(table)
        assert np.isfinite(encoded).all()
        found = {name: counts._asdict() for name, counts in findings.columns.items()}
        assert found == {
            "a": {"filled": 1, "infinite": 0, "unreadable": 1, "unseen": 0},
            "b": {"filled": 1, "infinite": 0, "unreadable": 0, "unseen": 1},
            "c": {"filled": 0, "infinite": 1, "unreadable": 0, "unseen": 0},
        }
        assert findings.sentences()[1] == "Cells that could not be read and count as missing in 'a': 1."

    def test_ignores_other_values_of_a_constant_column(self):
        encoder = TableEncoder().fit(MIXED)
        other = MIXED | {"one": [-266.0] * 24}
        np.testing.assert_array_equal(encoder.transform(other), encoder.transform(MIXED))

    def test_of_no_rows_gives_none(self):
        encoder = TableEncoder().fit(MIXED)
        assert encoder.transform({name: [] for name in MIXED}).shape == (0, encoder.n_features)

    def test_works_in_blocks(self):
        x = np.random.default_rng(0).normal(size=(40_000, 2))
        x[::7, 0] = np.nan
        encoder = TableEncoder().fit(x)
        encoded, findings = encoder.transform_and_count(x)
        np.testing.assert_array_equal(encoded[39_990:], encoder.transform(x[39_990:]))
        np.testing.assert_array_equal(encoded[:9], encoder.transform(x[:9]))
        x[::5, 1] = np.nan
        assert encoder.transform_and_count(x)[1].columns["x1"].filled == 8_000
        assert findings.columns == {}

    def test_keeps_numbers_of_a_table_near_unit_scale(self):
        encoded = TableEncoder().fit_and_transform(load_wine().data)[1]
        assert 0.5 < encoded.std() < 1
        assert np.abs(encoded).max() <= 3
        standardized = TableEncoder(squash="none").fit_and_transform(load_wine().data)[1]
        assert standardized.std(axis=0) == pytest.approx(np.ones(13), abs=1e-5)


STRANGE = ["<b>a</b>&amp;", 'quote " and \\ \n\t', "ü" * 1_000, "{{7*7}}", "\x00", "\ud800", "a", "A", "=1+1"]


def test_strange_names_and_levels_survive_as_data():
    cells = [[level for level in STRANGE for _ in range(5)]] * len(STRANGE)
    cells = [list(np.roll(column, place)) for place, column in enumerate(cells)]
    table = dict(zip(STRANGE, cells, strict=True))
    encoder = TableEncoder().fit(table)
    again = restored(encoder)
    assert again.names_in == tuple(STRANGE)
    assert again.names(None, 0) == encoder.names(None, 0)
    assert f"{'ü' * 1_000} = {'ü' * 1_000}" in again.names(None, 0)
    np.testing.assert_array_equal(again.transform(table), encoder.transform(table))


# Cells of each kind, with words for missing values and cells of other kinds among them.
CELLS = {
    "numbers": st.floats(width=64) | st.integers(-(2**70), 2**70) | st.none(),
    "texts": st.sampled_from(["a", "b", "c", "", "NA", "1"]) | st.text(max_size=3),
    "flags": st.booleans() | st.none(),
    "words": st.sampled_from(["yes", "no", "No", "?"]),
    "digits": st.integers(-5, 5).map(str) | st.just(" 7 "),
    "dates": st.datetimes() | st.none(),
    "date texts": st.dates().map(str) | st.just("null"),
    "mixtures": st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=2) | st.dates(),
    "constants": st.just(3),
    "nothing": st.none(),
}


@st.composite
def two_tables(draw):
    """Return training rows and others with the same columns, of which some cells are of another kind."""
    kinds = draw(st.lists(st.sampled_from(sorted(CELLS)), min_size=1, max_size=4))
    n_train, n_test = draw(st.integers(1, 12)), draw(st.integers(0, 6))
    train = {
        f"{place} {kind}": draw(st.lists(CELLS[kind], min_size=n_train, max_size=n_train))
        for place, kind in enumerate(kinds)
    }
    test = {}
    for name in train:
        kind = draw(st.sampled_from([name.split(" ", 1)[1]] * 3 + ["mixtures"]))
        test[name] = draw(st.lists(CELLS[kind], min_size=n_test, max_size=n_test))
    # One column that is never left out, so that there is always something to learn from.
    train = {"fixed": [*range(n_train), 0.5]} | {name: [*cells, None] for name, cells in train.items()}
    return train, {"fixed": [1] * n_test} | test


@settings(max_examples=150, deadline=None)
@given(tables=two_tables(), fewest_rows=st.integers(1, 3), with_y=st.booleans(), random=st.randoms())
def test_any_table_is_encoded_finite_and_alike_after_a_file_and_in_any_order(tables, fewest_rows, with_y, random):
    train, test = tables
    n_rows = len(train["fixed"])
    encoder = TableEncoder(fewest_rows=fewest_rows, most_levels=2)
    encoder, trained = encoder.fit_and_transform(train, None, None, np.arange(n_rows) ** 2.0 if with_y else None)
    encoded = encoder.transform(test)
    assert encoded.dtype == trained.dtype == np.float32
    assert trained.shape == (n_rows, encoder.n_features)
    assert encoded.shape == (len(test["fixed"]), encoder.n_features)
    assert np.isfinite(encoded).all()
    assert np.isfinite(trained).all()
    np.testing.assert_array_equal(restored(encoder).transform(test), encoded)
    assert restored(encoder).describe() == encoder.describe()
    names = list(test)
    random.shuffle(names)
    np.testing.assert_array_equal(encoder.transform({name: test[name] for name in names}), encoded)
    objects = np.empty((len(test["fixed"]), len(test)), object)
    for place, cells in enumerate(test.values()):
        objects[:, place] = cells
    np.testing.assert_array_equal(encoder.transform(objects), encoded)


@pytest.fixture(scope="module")
def encoder():
    table, y = some_rows()
    dates = pd.date_range("2020-01-01", periods=len(table), freq="h")
    table = table.assign(day=dates, flag=table["x"] > 0, id=[f"i{row}" for row in range(len(table))])
    return TableEncoder(kinds={"x": "number"}).fit(table, None, None, y)


DESCRIPTIONS = {
    "another kind": lambda columns: columns[0].update(kind="pickle"),
    "a kind that is a list": lambda columns: columns[0].update(kind=[]),
    "no name": lambda columns: columns[0].pop("name"),
    "a name that is a number": lambda columns: columns[0].update(name=1),
    "two columns of one name": lambda columns: columns[0].update(name="zip"),
    "no columns": lambda columns: columns.clear(),
    "a column less": lambda columns: columns.pop(0),
    "a column that is a text": lambda columns: columns.__setitem__(0, "x"),
    "fields that are a list": lambda columns: columns[0].update(fields=[]),
    "a field more": lambda columns: columns[0]["fields"].update(code="1"),
    "a field less": lambda columns: columns[0]["fields"].pop("center"),
    "a center that is NaN": lambda columns: columns[0]["fields"].update(center=float("nan")),
    "a center that is a text": lambda columns: columns[0]["fields"].update(center="0"),
    "a center that is a flag": lambda columns: columns[0]["fields"].update(center=True),
    "a negative scale": lambda columns: columns[0]["fields"].update(scale=-1.0),
    "a share above one": lambda columns: columns[0]["fields"].update(missing=1.5),
    "a flag that is a number": lambda columns: columns[0]["fields"].update(squash=1),
    "features that are a text": lambda columns: columns[1]["fields"].update(features="ab"),
    "features that are numbers": lambda columns: columns[1]["fields"].update(features=[1, 2]),
    "a feature more": lambda columns: columns[1]["fields"].update(features=["a", "b", "c"]),
    "another circle": lambda columns: columns[2]["fields"].update(circles=["moon"]),
    "a circle twice": lambda columns: columns[2]["fields"].update(circles=["year", "year"]),
    "another format": lambda columns: columns[2]["fields"].update(format="%c"),
    "a reason that is a number": lambda columns: columns[4]["fields"].update(reason=1),
}


class TestFiles:
    def test_keep_settings(self, encoder):
        again = restored(encoder)
        assert (again.kinds, again.squash, again.is_named) == ({"x": "number"}, "smooth", True)
        assert again.describe() == encoder.describe()

    def test_hold_plain_arrays(self, encoder):
        assert {array.dtype.name for array in encoder.tensors().values()} == {"uint8", "float32"}
        for value in encoder.settings().values():
            assert isinstance(value, str | int | float | bool)

    @pytest.mark.parametrize("name", DESCRIPTIONS)
    def test_with_a_hostile_description_are_refused(self, encoder, name):
        columns = json.loads(encoder.tensors()["columns"].tobytes())
        DESCRIPTIONS[name](columns)
        hostile = encoder.tensors() | {"columns": np.frombuffer(json.dumps(columns).encode(), np.uint8)}
        with pytest.raises(UntrustedFileError):
            TableEncoder.restore(hostile, encoder.settings(), encoder.n_features)

    def test_with_hostile_arrays_are_refused(self, encoder):
        arrays = encoder.tensors()
        table = arrays["1.table"]
        texts = np.frombuffer(json.dumps(["z1"] * (len(table) - 3)).encode(), np.uint8)
        changes = {
            "1.table": [table[1:], table.astype(np.float64), np.full_like(table, np.nan), table + 9, table[:, 0]],
            "1.levels": [texts, texts[:-1], texts.astype(np.int16), texts[None], np.frombuffer(b"[1]", np.uint8)],
            "1.rare": [np.frombuffer(b'["z1"]', np.uint8), np.frombuffer(b"[" * 100_000, np.uint8)],
            "columns": [np.frombuffer(b"[" * 100_000, np.uint8), np.frombuffer(b"{}", np.uint8), table],
            "0.table": [table],
            "9.table": [table],
            "other": [table],
        }
        for name, hostile in changes.items():
            for array in hostile:
                with pytest.raises(UntrustedFileError):
                    TableEncoder.restore(arrays | {name: array}, encoder.settings(), encoder.n_features)
        for name in arrays:
            less = {other: array for other, array in arrays.items() if other != name}
            with pytest.raises(UntrustedFileError):
                TableEncoder.restore(less, encoder.settings(), encoder.n_features)

    def test_with_hostile_settings_are_refused(self, encoder):
        kept = encoder.settings()
        changes = [("kinds", "[]"), ("kinds", "{"), ("kinds", '{"x": "pickle"}'), ("kinds", 3), ("squash", "hard")]
        changes += [("squash", None), ("is_named", 1), ("most_levels", 1), ("most_levels", "9"), ("fewest_rows", 0.5)]
        changes += [("other", 1)]
        for name, value in changes:
            with pytest.raises(UntrustedFileError):
                TableEncoder.restore(encoder.tensors(), kept | {name: value}, encoder.n_features)
        with pytest.raises(UntrustedFileError):
            TableEncoder.restore(encoder.tensors(), {}, encoder.n_features)
        with pytest.raises(UntrustedFileError, match="the network takes 7"):
            TableEncoder.restore(encoder.tensors(), kept, 7)


@pytest.mark.data
@pytest.mark.skipif("MILE_DATA" not in os.environ, reason="MILE_DATA does not name the folder of the data sets")
@pytest.mark.parametrize(
    ("name", "target"), [("ames", "Sale_Price"), ("titanic", "survived"), ("flights", "arr_delay")]
)
def test_public_tables_are_encoded_as_they_are(name, target):
    table = pd.read_csv(Path(os.environ["MILE_DATA"]) / "mixed" / f"{name}.csv.gz")
    y = pd.factorize(table.pop(target))[0].astype(float)
    rows = np.arange(0, len(table), 2)
    encoder, trained = TableEncoder().fit_and_transform(table, rows, None, y)
    encoded = encoder.transform(table)
    assert np.isfinite(trained).all()
    assert np.isfinite(encoded).all()
    np.testing.assert_array_equal(restored(encoder).transform(Frame.of(table)), encoded)
