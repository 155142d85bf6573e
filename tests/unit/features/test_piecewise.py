"""Pieces of numbers: their features in closed form, in arrays and in tables, and what comes back from a file."""

import json

import numpy as np
import pandas as pd
import pytest

from mile import MileRegressor, UntrustedFileError, load
from mile.features.pieces import learn_edges, piece_labels
from mile.features.piecewise import Piecewise
from mile.features.table import TableEncoder

SMALL = {"hidden_layer_sizes": (4,), "n_chains": 2, "warmup_steps": 60, "sampling_steps": 20, "n_draws": 10}
RNG = np.random.default_rng(0)
X = np.column_stack([RNG.exponential(size=200), RNG.integers(0, 2, 200), np.full(200, 7.0), RNG.normal(size=200)])


def edges_of(values, n_pieces, weight=None):
    values = np.asarray(values, float)
    return learn_edges(values, np.ones(len(values)) if weight is None else np.asarray(weight, float), n_pieces)


def restored(encoder):
    tensors = {name: array.copy() for name, array in encoder.tensors().items()}
    return type(encoder).restore(tensors, json.loads(json.dumps(encoder.settings())), encoder.n_features)


class TestEdges:
    def test_are_training_values_with_equal_shares_of_the_rows(self):
        values = RNG.permutation(np.square(np.arange(1.0, 101.0)))
        assert edges_of(values, 4) == (1.0, 625.0, 2500.0, 5625.0, 10000.0)

    def test_count_by_weight_as_rows_do(self):
        values, weight = RNG.normal(size=50), RNG.integers(1, 4, 50)
        assert edges_of(values, 6, weight) == edges_of(np.repeat(values, weight), 6)

    def test_single_out_numbers_that_many_rows_have(self):
        gains = np.append(np.zeros(900), np.arange(1.0, 101.0))
        assert edges_of(gains, 5) == (0.0, 1.0, 25.0, 50.0, 75.0, 100.0)
        assert edges_of([*gains, *[7.5] * 600], 5) == (0.0, 1.0, 7.5, 34.0, 67.0, 100.0)

    def test_are_never_more_than_asked_for(self):
        for n_pieces in range(2, 12):
            values = RNG.integers(0, 2 * n_pieces, 80).astype(float)
            assert len(edges_of(values, n_pieces)) <= n_pieces + 1

    def test_are_fewer_where_there_are_few_different_numbers(self):
        assert edges_of([0, 0, 0, 0, 0, 1, 1, 2], 4) == (0.0, 1.0, 2.0)
        for alike in ([3.0] * 9, [0, 1] * 9, [5e-324, 1e-323, 0.0] * 9):
            assert edges_of(alike, 4) == ()

    def test_have_names_that_differ(self):
        assert piece_labels((1.0, 1.0 + 1e-9, 2.0)) == (" (1.0 to 1.000000001)", " (1.000000001 to 2.0)")
        assert piece_labels(()) == ()


class TestArrays:
    encoder = Piecewise(pieces=4).fit(X)

    def test_are_standardized_and_rise_over_each_piece_alone(self):
        encoder = Piecewise(pieces=2).fit(np.array([[0.0], [0.0], [1.0], [1.0], [3.0], [3.0]]))
        assert encoder.edges == ((0.0, 1.0, 3.0),)
        out = encoder.transform(np.array([[-9.0], [0.5], [1.0], [2.0], [99.0]]))
        np.testing.assert_allclose(out[:, 1:], [[-1, -1], [0, -1], [1, -1], [1, 0], [1, 1]])
        np.testing.assert_allclose(out[:, 0], (np.array([-9, 0.5, 1, 2, 99]) - 4 / 3) / np.std([0, 1, 3]), rtol=1e-6)

    def test_have_pieces_only_in_columns_of_enough_different_numbers(self):
        names = self.encoder.names(list("abcd"), 12)
        assert [name[0] for name in names] == list("aaaaabcddddd")
        assert len(set(names)) == len(names) == self.encoder.n_features
        assert names[1] == f"a ({X[:, 0].min():g} to {np.quantile(X[:, 0], 0.25, method='inverted_cdf'):g})"
        assert self.encoder.names(None, 12)[5] == "feature 1"
        assert self.encoder.n_columns(12) == 4
        reports = self.encoder.describe()
        assert [report.treatment for report in reports] == [
            "standardized, and 4 pieces" if pieces else "standardized" for pieces in (True, False, False, True)
        ]

    def test_learn_from_the_given_rows_only_and_write_the_given_rows(self):
        rows = np.arange(0, 200, 2)
        other = X.copy()
        other[1::2] = 1e9
        one, two = Piecewise().fit(X, rows), Piecewise().fit(other, rows)
        np.testing.assert_array_equal(one.transform(X), two.transform(X))
        np.testing.assert_array_equal(one.transform(X, rows), one.transform(X)[rows])
        weight = np.where(np.arange(200) % 2, 0.0, 1.0)
        np.testing.assert_allclose(
            Piecewise().fit(other, None, weight).transform(X), one.transform(X), rtol=1e-5, atol=1e-6
        )

    def test_that_are_huge_or_infinite_stay_finite(self):
        huge = np.array([[-1.7e308], [0.0], [1.0], [1.7e308]])
        encoder = Piecewise(pieces=3).fit(huge)
        for values in (huge, np.array([[np.inf], [-np.inf]])):
            out = encoder.transform(values)
            assert np.isfinite(out).all()
            assert np.abs(out[:, 1:]).max() <= 1.0

    def test_with_gaps_have_the_mean_there_and_a_remark(self):
        gap = X[:3].copy()
        gap[1, 0] = np.nan
        out, remarks = self.encoder.transform_and_remark(gap)
        mean = X.mean(axis=0)
        mean[1:] = X[1, 1:]
        np.testing.assert_allclose(out[1], self.encoder.transform(mean[None])[0], atol=1e-6)
        assert remarks == ["Empty cells, which were filled because training had none, in column 0: 1."]

    def test_come_back_from_a_file_to_the_bit(self):
        again = restored(self.encoder)
        assert again.transform(X).tobytes() == self.encoder.transform(X).tobytes()
        assert again.describe() == self.encoder.describe()
        assert {array.dtype.kind for array in self.encoder.tensors().values()} == {"f", "i"}

    def test_from_a_hostile_file_are_refused(self):
        tensors, settings = self.encoder.tensors(), self.encoder.settings()
        edges, counts = tensors["edges"], tensors["counts"]
        hostile = [
            ("edges", value) for value in (edges[::-1], edges[1:], edges.astype("f4"), edges * np.nan, edges[None])
        ]
        hostile += [
            ("counts", value) for value in (counts + 1, -counts, counts[:-1], counts.astype("f8"), counts * 2**40)
        ]
        hostile += [("shift", tensors["shift"][1:]), ("scale", -tensors["scale"]), ("other", edges)]
        for name, array in hostile:
            with pytest.raises(UntrustedFileError):
                Piecewise.restore(tensors | {name: array}, settings, 12)
        two = {"edges": np.array([0.0, 1.0]), "counts": np.array([2]), "shift": np.zeros(1), "scale": np.ones(1)}
        for wrong in ({}, {"pieces": 1}, {"pieces": 65}, {"pieces": 4.0}, settings | {"other": 1}):
            with pytest.raises(UntrustedFileError):
                Piecewise.restore(tensors, wrong, 12)
        for name in tensors:
            with pytest.raises(UntrustedFileError):
                Piecewise.restore({key: array for key, array in tensors.items() if key != name}, settings, 12)
        for given, n_features in ((tensors, 11), (two, 2)):
            with pytest.raises(UntrustedFileError):
                Piecewise.restore(given, settings, n_features)

    def test_refuse_impossible_settings(self):
        for pieces in (1, 0, 65, 2.5, True):
            with pytest.raises(ValueError, match="pieces must"):
                Piecewise(pieces=pieces)
            if pieces != 0:
                with pytest.raises(ValueError, match="pieces must"):
                    TableEncoder(pieces=pieces)


class TestTables:
    TABLE = pd.DataFrame({"size": [*RNG.normal(size=58), np.nan, np.nan], "city": ["Oslo", "Rome", "Bern"] * 20})

    def test_have_pieces_of_numbers_beside_other_features(self):
        encoder = TableEncoder(pieces=2).fit(self.TABLE)
        names = encoder.names(None, encoder.n_features)
        low, middle, high = encoder.columns[0].edges
        wanted = ["size", f"size ({low:g} to {middle:g})", f"size ({middle:g} to {high:g})", "size (missing)"]
        assert names[:4] == wanted
        assert "2 pieces; missing: median and an indicator" in encoder.describe()[0].treatment
        cells = np.array([low, middle, high, np.nan, high + 9])
        out = encoder.transform(pd.DataFrame({"size": cells, "city": "Rome"}))
        np.testing.assert_allclose(out[[0, 1, 2, 4], 1:3], [[-1, -1], [1, -1], [1, 1], [1, 1]])
        plain = TableEncoder().fit(self.TABLE).transform(self.TABLE)
        np.testing.assert_array_equal(np.delete(encoder.transform(self.TABLE), [1, 2], axis=1), plain)

    def test_come_back_from_a_file_to_the_bit(self):
        encoder = TableEncoder(pieces=3).fit(self.TABLE)
        again = restored(encoder)
        assert again.transform(self.TABLE).tobytes() == encoder.transform(self.TABLE).tobytes()
        assert again.pieces == 3
        assert again.describe() == encoder.describe()

    def test_without_pieces_are_kept_as_before_there_were_any(self):
        encoder = TableEncoder().fit(self.TABLE)
        assert "pieces" not in encoder.settings()
        assert "edges" not in json.loads(encoder.tensors()["columns"].tobytes())[0]["fields"]
        assert restored(encoder).pieces == 0

    def test_from_a_hostile_file_are_refused(self):
        encoder = TableEncoder(pieces=2).fit(self.TABLE)
        for edges in ([0.0, 1.0], [1.0, 0.0, 2.0], [0.0, 1.0, float("inf")], [0, 1, 2], ["a"] * 3, "abc", None, {}):
            columns = json.loads(encoder.tensors()["columns"].tobytes())
            columns[0]["fields"]["edges"] = edges
            hostile = encoder.tensors() | {"columns": np.frombuffer(json.dumps(columns).encode(), np.uint8)}
            with pytest.raises(UntrustedFileError):
                TableEncoder.restore(hostile, encoder.settings(), encoder.n_features)
        columns[0]["fields"].update(edges=encoder.columns[0].edges, scale=0.0)
        hostile = encoder.tensors() | {"columns": np.frombuffer(json.dumps(columns).encode(), np.uint8)}
        with pytest.raises(UntrustedFileError, match="no pieces"):
            TableEncoder.restore(hostile, encoder.settings(), encoder.n_features)
        for pieces in (1, -1, 2.0, "2", None):
            with pytest.raises(UntrustedFileError):
                TableEncoder.restore(encoder.tensors(), encoder.settings() | {"pieces": pieces}, encoder.n_features)


def test_a_model_with_pieces_predicts_the_same_from_its_file(tmp_path):
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = MileRegressor(**SMALL, encoder="piecewise", max_epochs=3, random_state=0).fit(frame, X[:, 0])
    model.save(tmp_path / "model.mile")
    again = load(tmp_path / "model.mile")
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    assert again.columns_ == model.columns_
