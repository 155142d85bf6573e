"""Schemas: a value that fits comes back in its type, any other is refused by the place of its field."""

import json

import numpy as np
import pytest

from mile import UntrustedFileError
from mile._schema import (
    ByName,
    Count,
    Fields,
    Flag,
    Nullable,
    Number,
    PlainValue,
    Schema,
    Several,
    Tensor,
    Text,
    quote,
    refused,
    require,
)
from mile.storage import schema

LAYOUT = {"chain_ids": [0, 1], "n_draws": 10, "dimension": 3, "dtype": "float32", "chunk": 5}
VECTOR = np.array([1.0, 2.0], np.float32)


def test_what_fits_comes_back_in_its_type():
    for checker, value, expected in (
        (Text(), "a", "a"),
        (Text(choices=("a", "b")), "a", "a"),
        (Text("a word", str.isalpha), "a", "a"),
        (Count(1, 3), 3, 3),
        (Number(), 0.5, 0.5),
        (Flag(), False, False),
        (Nullable(Count()), None, None),
        (Nullable(Count()), 1, 1),
        (Several(Count()), [1, 2], (1, 2)),
        (ByName(Count()), {"a": 1}, {"a": 1}),
        (Fields(dict, {"a": Count()}, {"b": Flag()}), {"a": 1}, {"a": 1}),
        (schema.LAYOUT, LAYOUT, schema.Layout((0, 1), 10, 3, "float32", 5)),
        *((PlainValue(), value, value) for value in ("a", 1, 0.5, True, None)),
    ):
        found = checker.read(value)
        assert found == expected
        assert type(found) is type(expected)
    assert Tensor("f", (None,), is_finite=True, is_positive=True).read(VECTOR) is VECTOR


@pytest.mark.parametrize(
    ("checker", "values"),
    [
        (Text(), (None, 1, b"a", ["a"])),
        (Text(choices=("a",)), ("b", "", None)),
        (Text("a word", str.isalpha), ("1", "")),
        (Text(longest=3), ("abcd",)),
        (Count(1, 3), (0, 4, True, 1.0, "1", None)),
        (Number(), (1, True, np.inf, np.nan, "1", None)),
        (Flag(), (0, 1, None, "true")),
        (PlainValue(), ([], {}, b"a")),
        (Nullable(Count()), (-1, "", False)),
        (Several(Count(), 1, 2), ([], [1, 2, 3], ["a"], (1, 2), {"a": 1}, "ab", None)),
        (Several(Count(), are_distinct=True), ([1, 1],)),
        (ByName(Count(), Text("a word", str.isalpha), most=1), ({"1": 1}, {"a": "b"}, {"a": 1, "b": 2}, [], None)),
        (Fields(dict, {"a": Count()}, {"b": Flag()}), ({}, {"b": True}, {"a": 1, "c": 1}, {"a": 1, "b": 1}, [], None)),
        (Tensor("f", (2,)), (VECTOR[:1], VECTOR[None], VECTOR.astype(int), [1.0, 2.0], None)),
        (Tensor("float64", (2,)), (VECTOR,)),
        (Tensor("f", (2,), is_finite=True), (VECTOR * np.inf, VECTOR * np.nan)),
        (Tensor("f", (2,), is_positive=True), (-VECTOR, 0 * VECTOR)),
        (Tensor("f", (None,), largest=1), (VECTOR,)),
    ],
)
def test_anything_else_is_refused(checker: Schema[object], values):
    for value in values:
        with pytest.raises(
            UntrustedFileError, match=r"^file: a\.0\S* (must be|is missing|is not a field)|^file: a name"
        ):
            checker.read(value, "file", ("a", 0))


def test_a_refusal_has_the_place_what_was_expected_and_what_came():
    for change, message in (
        ({"dtype": "O"}, r"^run: layout\.dtype must be one of \['float32', 'float64'\]; got 'O'\.$"),
        ({"chunk": 0}, r"^run: layout\.chunk must be an integer of at least 1; got 0\.$"),
        ({"chain_ids": [0, -1]}, r"^run: layout\.chain_ids\.1 must be an integer of at least 0; got -1\.$"),
        ({"more": 1}, r"^run: layout\.more is not a field that is known here\.$"),
    ):
        with pytest.raises(UntrustedFileError, match=message):
            schema.LAYOUT.read(LAYOUT | change, "run", ("layout",))
    with pytest.raises(UntrustedFileError, match=r"^layout\.chunk is missing\.$"):
        schema.LAYOUT.read({name: LAYOUT[name] for name in LAYOUT if name != "chunk"}, place=("layout",))


def test_a_refusal_is_short_however_large_the_value():
    deep = json.loads("[" * 900 + "]" * 900)
    for value in ("x" * 10**6, 10**4000, [[[0] * 1000] * 1000] * 1000, {"y" * 10**6: 1}, deep):
        assert len(quote(value)) < 100
        for checker in (Flag(), Fields(dict, {"a": Count()})):
            with pytest.raises(UntrustedFileError) as caught:
                checker.read(value)
            assert len(str(caught.value)) < 300


def test_conditions_and_other_errors_become_refusals():
    require(True, "fine.")
    with pytest.raises(UntrustedFileError, match=r"^file: two fields differ\.$"):
        require(False, "two fields differ.", "file")
    for error in (TypeError("why"), ValueError("why"), OverflowError("why"), RecursionError("why")):
        with pytest.raises(UntrustedFileError, match=r"^the prior: why$"), refused("the prior"):
            raise error
    with pytest.raises(KeyError), refused("the prior"):
        raise KeyError("a mistake of this library")
