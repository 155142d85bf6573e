"""Arrays that hide a part of themselves, and numbers near the ends of what floats hold: used rightly, or refused."""

import io
import warnings
import zipfile

import numpy as np
import pytest
from cases import case
from models import N_INPUTS, made_estimator

import mile
from mile import MileClassifier, MileRegressor, UntrustedFileError
from mile.storage import Table, read_table
from mile.storage._tensors import read_tensors, write_tensors

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 3))
Y = X[:, 0] + 0.1 * RNG.standard_normal(40)
FAST = {"sampler": "deep_ensemble", "hidden_layer_sizes": (4,), "n_chains": 2, "max_epochs": 3, "random_state": 0}


def hidden(values, *places):
    mask = np.zeros(np.shape(values), bool)
    for place in places:
        mask[place] = True
    return np.ma.array(values, mask=mask)


def test_masked_numbers_count_as_missing():
    wrong = Y.copy()
    wrong[5] = 1e6  # what the mask hides must not be seen
    with pytest.warns(UserWarning, match="no value in 1 of 40 rows"):
        found = MileRegressor(**FAST).fit(X, hidden(wrong, 5))
    expected = MileRegressor(**FAST).fit(np.delete(X, 5, 0), np.delete(Y, 5))
    np.testing.assert_array_equal(found.predict(X), expected.predict(X))
    bare = MileRegressor(**FAST).fit(X, Y)
    np.testing.assert_array_equal(bare.predict(np.ma.array(X)), bare.predict(X))
    rows = X.copy()
    rows[3, 1] = 1e6
    with pytest.warns(UserWarning, match="Empty cells"):
        seen = bare.predict(hidden(rows, (3, 1)))
    assert abs(seen[3] - bare.predict(X)[3]) < 10.0
    with pytest.raises(ValueError, match="sample_weight is masked in row 2"):
        MileRegressor(**FAST).fit(X, Y, sample_weight=hidden(np.ones(40), 2))
    with pytest.raises(ValueError, match="y is masked in row 7"):
        bare.lppd(X, hidden(Y, 7))
    with pytest.warns(UserWarning, match="no value in 1 of 40 rows"):
        assert set(MileClassifier(**FAST).fit(X, hidden((Y > 0).astype(int) * 7, 2)).classes_) == {0, 7}


def test_targets_that_float64_cannot_hold_are_refused_by_row():
    one = np.longdouble(1)
    for title, y, words in (
        ("4e307", Y * 4e307, r"y has .* in row \d+, beyond 1e\+150.*Divide y"),
        ("both ends", np.where(np.arange(40) % 2, 1.7e308, -1.7e308), "in row 0, beyond"),
        ("longdouble beyond float64", np.asarray(Y, np.longdouble) * np.longdouble("1e400"), "Divide y"),
        ("longdouble too close", one + np.arange(40) * one * 2**-60, "becomes the same number"),
        ("dates", np.datetime64("2020-01-01") + np.arange(40), "dates or times"),
    ):
        with case(title), pytest.raises(ValueError, match=words):
            MileRegressor(**FAST).fit(X, y)


def test_wide_and_narrow_numbers_that_can_be_used_are():
    expected = MileRegressor(**FAST).fit(X, Y).predict(X)
    for title, x, y, factor in (
        ("longdouble", X.astype(np.longdouble), Y.astype(np.longdouble), 1.0),
        ("X of 4e307", X * 4e307, Y, 1.0),
        ("y of 1e-300", X, Y * 1e-300, 1e-300),
    ):
        with case(title), warnings.catch_warnings():
            warnings.simplefilter("error")
            np.testing.assert_allclose(
                MileRegressor(**FAST).fit(x, y).predict(x), expected * factor, 1e-4, 1e-4 * factor
            )


def test_impossible_sizes_are_refused_at_once():
    for options, words in (
        ({"n_chains": 10**7}, "n_chains must be at most 100,000; got 10,000,000"),
        ({"n_chains": 10**30}, "n_chains must be at most"),
        ({"prior_scale": 4e307}, "scale must be between 1e-18 and 1e"),
        ({"prior_scale": 1e-300}, "scale must be between"),
    ):
        with case(options), pytest.raises(ValueError, match=words):
            MileRegressor(**(FAST | options)).fit(X, Y)


def test_a_model_file_with_weights_near_the_end_of_float32_is_refused(tmp_path):
    path = tmp_path / "model.mile"
    made_estimator().save(path)
    arrays, metadata = read_tensors(path)
    for name in ("draws", "member"):
        large = arrays[name].copy()
        large.flat[-1] = 3.4e38
        write_tensors(path, arrays | {name: large}, metadata)
        with pytest.raises(UntrustedFileError, match=rf"{name}: chain 1 has weights beyond 1e\+18"):
            mile.load(path).predict(np.zeros((1, N_INPUTS)))


def member(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def test_an_npz_with_two_arrays_of_one_name_is_refused(tmp_path):
    for names in (("a.npy", "a.npy"), ("a.npy", "a")):
        with warnings.catch_warnings(), zipfile.ZipFile(tmp_path / "table.npz", "w") as archive:
            warnings.simplefilter("ignore")
            for name in names:
                archive.writestr(name, member(np.arange(5.0)))
        with case(names), pytest.raises(ValueError, match="two arrays of one name"):
            read_table(tmp_path / "table.npz")


def test_an_npz_that_promises_gigabytes_is_refused(tmp_path):
    header = io.BytesIO()
    shape = {"descr": "<f8", "fortran_order": False, "shape": (400_000_000,)}
    np.lib.format.write_array_header_1_0(header, shape)
    with zipfile.ZipFile(tmp_path / "table.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", header.getvalue() + bytes(100))
    with pytest.raises(ValueError, match="is not an NPZ file of plain arrays"):
        read_table(tmp_path / "table.npz")
    with (
        zipfile.ZipFile(tmp_path / "table.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("a.npy", "w", force_zip64=True) as file,
    ):
        file.write(header.getvalue())
        for _ in range(300):
            file.write(bytes(1 << 20))
    with pytest.raises(ValueError, match="unpacks to more than"):
        read_table(tmp_path / "table.npz")


def test_the_columns_of_a_wide_table_are_looked_up_once_each():
    """Ten thousand columns took seconds when each was searched for among all."""
    looked_at = 0

    class Name(str):
        __slots__ = ()

        def __eq__(self, other):
            nonlocal looked_at
            looked_at += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    n_columns = 2000
    names = tuple(Name(f"column {number}") for number in range(n_columns))
    table = Table(names, tuple(np.full(2, float(number)) for number in range(n_columns)), "table")
    found = table.matrix([f"column {number}" for number in range(n_columns)])
    np.testing.assert_array_equal(found[0], np.arange(n_columns))
    assert looked_at <= 4 * n_columns
