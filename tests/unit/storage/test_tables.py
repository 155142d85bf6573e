"""Tables: what is read is what the file says, and every complaint names the place."""

import datetime
import gzip
import io
import sys
import zipfile
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mile.features.parsing import MISSING
from mile.storage import Table, _table_text, _table_writing, csv_lines, read_table, write_table


@pytest.fixture
def save(tmp_path):
    """Write a text file and return its path."""

    def write(content, name="data.csv"):
        path = tmp_path / name
        content = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write


def complaint(action, *arguments, kind=ValueError):
    """Return the message of the error, which must be one line."""
    with pytest.raises(kind) as caught:
        action(*arguments)
    message = str(caught.value)
    assert message
    assert "\n" not in message
    return message


def as_lists(table):
    return {name: array.tolist() for name, array in zip(table.columns, table.arrays, strict=True)}


# Reading text


def test_numbers_and_text_are_told_apart_and_gaps_are_nan_or_none(save):
    table = read_table(save("age,sex,empty\n1.5,male,\n,NA,NA\n-2e3,female,null\n"))
    assert table.columns == ("age", "sex", "empty")
    assert table.source == "data.csv"
    assert len(table) == 3
    np.testing.assert_array_equal(table.column("age"), [1.5, np.nan, -2000.0])
    assert table.column("sex").tolist() == ["male", None, "female"]
    assert table.column("sex").dtype == object
    assert table.column("empty").dtype == np.float64
    assert np.isnan(table.column("empty")).all()


@pytest.mark.parametrize("word", ["", "NA", "NaN", "nan", "null", "None", "?", "N/A", " NA "])
def test_each_word_for_missing_is_missing_in_numbers_and_in_text(word, save):
    table = read_table(save(f"x,t\n1,a\n{word},{word}\n"))
    np.testing.assert_array_equal(table.column("x"), [1, np.nan])
    assert table.column("t").tolist() == ["a", None]


@pytest.mark.parametrize("word", ["1_000", "1,5", "0x10", "-"])
def test_other_words_are_text(word, save):
    assert read_table(save(f'x\n1\n"{word}"\n')).column("x").tolist() == ["1", word]


def test_digits_after_a_zero_are_text_in_the_whole_column(save):
    table = read_table(save("zip,size\n01234,0.5\n98765,00.5\n10000,-0\n"))
    assert table.column("zip").tolist() == ["01234", "98765", "10000"]
    assert table.column("size").tolist() == [0.5, 0.5, 0.0]
    assert read_table(save("zip\n0\n10\n")).column("zip").tolist() == [0, 10]
    assert read_table(save('zip,b\n"007",x\n')).column("zip").tolist() == ["007"]


def test_whole_numbers_beyond_the_exact_ones_of_floats_stay_as_they_are(save, npz):
    large = [2**53, 2**53 + 1, -5]
    unsigned = [2**64 - 1, 2**64 - 2, 0]
    rows = "\n".join(f"{a},{b}" for a, b in zip(large, unsigned, strict=True))
    files = [save(f"a,b\n{rows}\n"), npz(a=np.array(large), b=np.array(unsigned, np.uint64))]
    for path in files:
        assert as_lists(read_table(path)) == {"a": large, "b": unsigned}
    assert read_table(save(f"a\n{2**53 + 1}\nNA\n")).column("a").tolist() == [str(2**53 + 1), None]
    assert read_table(save(f"a\n{2**53 + 1}\n0.5\n")).column("a").tolist() == [str(2**53 + 1), "0.5"]
    assert read_table(save("a\n1e300\ninf\n")).column("a").tolist() == [1e300, np.inf]
    assert "beyond 2^53" in complaint(read_table(save(f"a\n{2**53 + 1}\nNA\n")).matrix, ["a"])


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("name", ["data.csv", "data.CSV", "data.tsv", "data.txt", "data.csv.gz"])
def test_delimiter_is_found_whatever_the_suffix(delimiter, name, save):
    table = read_table(save(f"a{delimiter}b\n1{delimiter}x\n2{delimiter}y\n", name))
    assert as_lists(table) == {"a": [1, 2], "b": ["x", "y"]}


def test_quoted_delimiters_do_not_mislead(save):
    assert read_table(save('"a;b;c",d\n1,2\n')).columns == ("a;b;c", "d")
    assert read_table(save('"a, in cm";d\n1;2\n')).columns == ("a, in cm", "d")
    assert read_table(save("a, in cm\td\n1\t2\n", "data.tsv")).columns == ("a, in cm", "d")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
@pytest.mark.parametrize("value", ["2", "ü"])  # the quick way and the general one
def test_line_ends_byte_order_marks_and_blank_lines_do_not_matter(end, bom, value, save):
    table = read_table(save(bom + end.join(["", "a, b", "", f"1,{value}", "  ", "", "3,4", "", ""])))
    assert table.columns == ("a", "b")
    assert table.column("a").tolist() == [1, 3]
    assert str(table.column("b")[0]) in ("2.0", "ü")
    assert table.lines.tolist() == [4, 7]


def test_quoted_cells_may_hold_delimiters_quotes_and_lines(save):
    table = read_table(save('a,"b\nc"\r\n"1","x,""y""\nz"\r\n2,w\r\n'))
    assert as_lists(table) == {"a": [1, 2], "b\nc": ['x,"y"\nz', "w"]}
    assert table.lines.tolist() == [3, 5]


def test_columns_are_chosen_and_ordered_and_others_may_be_anything(save):
    path = save("a,b,c\n1,x,2\n3,y,4\n")
    table = read_table(path, ["c", "a"])
    assert table.columns == ("c", "a")
    assert as_lists(table) == {"c": [2, 4], "a": [1, 3]}
    assert as_lists(read_table(path, ["b"])) == {"b": ["x", "y"]}
    assert as_lists(read_table(save('a,b\n1,"2\n3,4"\n'), ["a"])) == {"a": [1]}
    assert "no column 'd'" in complaint(read_table, path, ["a", "d"])


def test_rows_are_complete_across_blocks_and_text_may_begin_late(save, monkeypatch):
    monkeypatch.setattr(_table_text, "_BLOCK", 3)
    rows = [f"{i},{i}.5," for i in range(7)] + ["7,late,1"]
    table = read_table(save("\n".join(["a,b,c", *rows])))
    assert table.column("a").tolist() == list(range(8))
    assert table.column("b").tolist() == [*(f"{i}.5" for i in range(7)), "late"]
    np.testing.assert_array_equal(table.column("c"), [np.nan] * 7 + [1])


NUMBERS = st.floats(allow_nan=False).map(repr) | st.sampled_from([" 1", "2 ", "+3", ".5", "inf", "NaN", "-0"])
CELLS = NUMBERS | st.sampled_from(["", "x", "1_0", "-nan", "NAN", "NA", '"4"', '"5,6"', "  "])


@settings(max_examples=100)
@given(st.data())
def test_the_quick_way_and_the_general_one_agree(tmp_path_factory, data):
    width = data.draw(st.integers(1, 3))
    cells = data.draw(st.sampled_from([NUMBERS, CELLS]))
    rows = data.draw(st.lists(st.lists(cells, min_size=width, max_size=width), min_size=1, max_size=5))
    blank = data.draw(st.sampled_from(["", "\n", "\r\n"]))
    path = tmp_path_factory.mktemp("agree") / "data.csv"
    path.write_text("\n".join([",".join("abc"[:width]), *(",".join(row) + blank for row in rows)]), newline="")
    quick, general = outcome(path), None
    with mock.patch.object(_table_text, "_read_plain", return_value=None):
        general = outcome(path)
    assert quick == general


def outcome(path):
    try:
        table = read_table(path)
    except ValueError as error:
        return str(error)
    return [[repr(cell) for cell in array.tolist()] for array in (*table.arrays, table.lines)]


def test_numbers_alone_take_the_quick_way_and_nothing_else_does(save):
    with mock.patch.object(_table_text, "_read_cells", side_effect=AssertionError):
        table = read_table(save('\na,"b\nc"\n1,2\n\n3,4\n'))
        assert as_lists(table) == {"a": [1, 3], "b\nc": [2, 4]}
        assert table.lines.tolist() == [4, 6]
        assert as_lists(read_table(save("a,b\n1,x\n3,y\n"), ["a"])) == {"a": [1, 3]}
        with pytest.raises(AssertionError):
            read_table(save("a,b\n1,\n"))


# Complaints about text files


@pytest.mark.parametrize("value", ["2", "x"])
@pytest.mark.parametrize(("row", "found"), [("5", 1), ("5,6,7", 3), ('"5\n,6"', 1)])
@pytest.mark.parametrize("columns", [None, ["a"]])
def test_ragged_rows_are_named(value, row, found, columns, save):
    message = complaint(read_table, save(f"a,b\n1,{value}\n\n{row}\n"), columns)
    assert f"line 4 has {found} cells where the header has 2" in message


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "is empty"),
        ("\n \n", "is empty"),
        ('""\n', "is empty"),
        ("a,b\n", "has column names but no rows"),
        ("a,b\n\n", "has column names but no rows"),
        ("a,b,a\n1,2,3\n", "two columns named 'a'"),
        ("a,,b\n1,2,3\n", "column 2 has no name"),
        (",a\n0,1\n", "column 1 has no name. If pandas wrote the file, save it again with index=False."),
        ("1.5,2\n3,4\n", "has no header row: the first line holds only numbers; add a line with column names."),
        ('a,b\n1,"x\n2,y\n', "from line 2 on: unexpected end of data"),
        ('a,b\n1,x\n2,"y"z\n', "from line 3 on: ',' expected after '\"'"),
        (b"PK\x03\x04\x00\x00", "is not a text file"),
        ("a,b\n1,2\n".encode("utf-16")[:-1], "is not text in UTF-16"),
    ],
)
@pytest.mark.parametrize("name", ["data.csv", "data.csv.gz", "data.tsv"])
def test_a_file_that_is_no_table_is_refused(content, expected, name, save):
    path = save(content, name)
    message = complaint(read_table, path)
    assert name in message
    assert expected in message


def test_columns_are_checked_even_if_not_asked_for(save):
    assert "two columns named 'b'" in complaint(read_table, save("a,b,b\n1,2,3\n"), ["a"])


@pytest.mark.parametrize("damage", ["cut", "changed", "not gzip"])
@pytest.mark.parametrize("value", ["2", "x"])
def test_damaged_gzip_is_refused(damage, value, tmp_path):
    path = tmp_path / "data.csv.gz"
    content = gzip.compress(b"a,b\n" + f"1,{value}\n".encode() * 1000)
    changed = bytes([*content[:-6], content[-6] ^ 1, *content[-5:]])  # in the checksum
    path.write_bytes({"cut": content[:-10], "changed": changed, "not gzip": b"a,b\n1,2\n"}[damage])
    assert "data.csv.gz is damaged" in complaint(read_table, path)


def test_missing_files_folders_and_other_suffixes_are_named(tmp_path, save):
    assert complaint(read_table, tmp_path / "no.csv", kind=FileNotFoundError) == f"There is no file {tmp_path}/no.csv."
    assert "is a folder without Parquet files" in complaint(read_table, tmp_path)
    message = complaint(read_table, save("a\n1\n", "data.ods"))
    suffixes = (
        ".csv",
        ".csv.gz",
        ".tsv",
        ".txt",
        ".parquet",
        ".npz",
        ".jsonl",
        ".ndjson",
        ".feather",
        ".arrow",
        ".xlsx",
    )
    assert all(suffix in message for suffix in suffixes)
    assert "cannot be read" in complaint(read_table, save("a\n1\n", "data.parquet.gz"))


@pytest.mark.parametrize("name", ["data.csv", "data.npz"])
def test_what_the_system_refuses_is_a_sentence(name, save):
    path = save("a\n1\n", name)
    with mock.patch.object(Path, "open", side_effect=PermissionError(13, "Permission denied")):
        assert complaint(read_table, path, kind=PermissionError) == f"Could not read {path}: Permission denied."


# Columns and matrices


def test_unknown_columns_are_answered_with_close_ones_first(save):
    names = [f"feature_{letter}" for letter in "abcdefghijkl"] + ["Income"]
    table = read_table(save(",".join(names) + "\n" + ",".join("1" * 13) + "\n"))
    message = complaint(table.column, "income")
    assert message.startswith("data.csv has no column 'income'; did you mean 'Income'? Its columns are 'Income', ")
    assert message.endswith("'feature_i' and 3 more.")
    assert "did you mean 'Income'?" in complaint(table.column, "incme")
    assert "did you mean 'ID'?" in complaint(read_table(save("ID,x\n1,2\n")).column, "id")
    message = complaint(table.matrix, ["zzz"])
    assert message.startswith("data.csv has no column 'zzz'. Its columns are 'feature_a', ")


def test_matrix_has_the_columns_asked_for_in_order(save):
    matrix = read_table(save("a,b,c\n1,x,2\n3,y,4\n")).matrix(["c", "a"])
    assert matrix.dtype == np.float64
    np.testing.assert_array_equal(matrix, [[2, 1], [4, 3]])


def test_text_in_a_matrix_names_column_row_line_and_cell(save):
    table = read_table(save("age,the sex\n\n1,\n2,male\n3,female\n"))
    assert complaint(table.matrix, ["age", "the sex"]) == (
        "Column 'the sex' has 'male' in row 2 (line 4 of data.csv), where a number is needed. "
        "Encode text columns as numbers first, or leave it out with --drop 'the sex'."
    )


def test_a_mostly_numeric_column_names_the_cell_that_is_no_number(save):
    cells = ["1", "", "2", "3", "4", "5", "6", "7", "oops", "8", "n/a"]
    table = read_table(save("\n".join(["x,y", *(f"{cell},0" for cell in cells)])))
    assert complaint(table.matrix, ["x"]) == (
        "Column 'x' has 'oops' in row 9 (line 10 of data.csv), where a number is needed. "
        "2 of 10 cells are not numbers: correct them or remove their rows, or leave it out with --drop x."
    )


def test_decimal_commas_and_long_or_broken_cells_are_explained(save):
    assert "Write decimals with a point" in complaint(read_table(save('x,y\n"1,5",2\n')).matrix, ["x"])
    message = complaint(read_table(save('x\n"a\n' + "b" * 1000 + '"\n')).matrix, ["x"])
    assert "'a\\nbbb" in message
    assert len(message) < 300


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1", "", "3"], "Column 'x' is empty in row 2 (line 3 of data.csv). "),
        (["1", "nan", "3"], "Column 'x' is empty in row 2 (line 3 of data.csv). "),
        (["1", "2", "", "inf", "NA"], "Column 'x' is empty in 2 rows, first in row 3 (line 4 of data.csv). "),
        (["1", "-inf", ""], "Column 'x' is infinite in row 2 (line 3 of data.csv). "),
    ],
)
def test_gaps_in_a_matrix_name_column_row_line_and_number(cells, expected, save):
    message = complaint(read_table(save("\n".join(["x,y", *(f"{cell},0" for cell in cells)]))).matrix, ["x"])
    assert message.startswith(expected)
    assert message.endswith("or leave it out with --drop x.")


def test_places_outside_text_files_have_no_line():
    column = np.array([None, "10"], object)
    table = Table(("a", "b", "c"), (np.array([1.0, np.nan]), column, np.array([None, None])), "data.npz")
    assert "in row 2 of data.npz." in complaint(table.matrix, ["a"])
    assert "'10' in row 2 of data.npz" in complaint(table.matrix, ["b"])
    assert "store it as numbers" in complaint(table.matrix, ["b"])
    assert "Column 'c' is empty in 2 rows, first in row 1 of data.npz." in complaint(table.matrix, ["c"])


# NPZ


@pytest.fixture
def npz(tmp_path):
    def write(**arrays):
        np.savez(tmp_path / "data.npz", **arrays)
        return tmp_path / "data.npz"

    return write


def test_npz_gives_a_matrix_and_single_columns(npz):
    X = np.arange(6, dtype=np.float32).reshape(3, 2)
    arrays = {"y": np.array([True, False, True]), "group": np.array(["a", "", "NA"]), "n": np.arange(3)}
    expected = {"y": [1, 0, 1], "group": ["a", None, "NA"], "n": [0, 1, 2]}
    assert as_lists(read_table(npz(X=X, **arrays))) == {"x0": [0, 2, 4], "x1": [1, 3, 5], **expected}
    named = read_table(npz(X=X, feature_names=np.array(["u", "v"]), **arrays), ["v", "y"])
    assert as_lists(named) == {"v": [1, 3, 5], "y": [1, 0, 1]}
    assert all(array.dtype == np.float64 for array in named.arrays)
    assert as_lists(read_table(npz(X=np.arange(3.0), **arrays)))["X"] == [0, 1, 2]


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"X": np.ones((3, 2)), "y": np.ones(4)}, "array 'y' has shape (4,)"),
        ({"a": np.ones(3), "Z": np.ones((3, 2))}, "array 'Z' has shape (3, 2)"),
        ({"a": np.ones(3), "s": np.float64(1)}, "array 's' has shape ()"),
        ({"a": np.ones(3, complex)}, "dtype complex128"),
        ({"X": np.ones((3, 2)), "feature_names": np.array(["a"])}, "feature_names must be 2 texts"),
        ({"X": np.ones((3, 2)), "feature_names": np.ones(2)}, "feature_names must be 2 texts"),
        ({"X": np.ones((3, 2)), "x0": np.ones(3)}, "two columns named 'x0'"),
        ({"X": np.ones((0, 2))}, "no rows"),
        ({}, "no columns"),
        ({"a": np.array(["x", None], object)}, "'a.npy' holds Python objects or is damaged"),
    ],
)
def test_npz_that_is_no_table_is_refused(arrays, expected, npz):
    assert expected in complaint(read_table, npz(**arrays))


def test_npz_never_builds_python_objects(npz):
    class Trap:
        def __reduce__(self):
            return print, ("sprung",)

    path = npz(a=np.array([Trap()], object))
    with mock.patch("builtins.print") as trap:
        complaint(read_table, path)
    trap.assert_not_called()


def test_npz_with_a_member_that_is_no_array_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "data.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    assert "'readme.txt' holds" in complaint(read_table, tmp_path / "data.npz")


# Damage


def small_npz():
    buffer = io.BytesIO()
    np.savez_compressed(buffer, x=np.arange(20.0), y=np.array(list("abcdefghijklmnopqrst")))
    return buffer.getvalue()


def small_gzip():
    return gzip.compress("\n".join(["x,y", *(f"{i},{chr(97 + i)}" for i in range(20))]).encode())


@pytest.mark.parametrize(("make", "name"), [(small_npz, "data.npz"), (small_gzip, "data.csv.gz")])
def test_every_damaged_byte_and_every_cut_is_harmless_or_refused(make, name, tmp_path):
    content, path = make(), tmp_path / name
    expected = {"x": list(range(20)), "y": list("abcdefghijklmnopqrst")}
    damaged = [content[:length] for length in range(len(content))]
    for place, byte in enumerate(content):
        damaged += [content[:place] + bytes([byte ^ mask]) + content[place + 1 :] for mask in (1, 128, 255)]
    refused = 0
    for bad in damaged:
        path.write_bytes(bad)
        try:
            table = read_table(path)
        except ValueError as error:
            refused += 1
            message = str(error)
        else:
            message = ""
            for column, values in as_lists(table).items():  # a damaged ZIP directory may lose a whole array
                assert values == expected[column]
        assert "\n" not in message
    assert refused > len(damaged) // 2


# Writing

FLOATS = st.lists(st.tuples(st.floats(), st.floats(width=32)), min_size=1, max_size=20)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


@settings(max_examples=100, deadline=None)
@given(values=FLOATS, suffix=st.sampled_from([".csv", ".csv.gz"]))
def test_floats_come_back_to_the_last_bit(tmp_path_factory, values, suffix):
    path = tmp_path_factory.mktemp("floats") / f"data{suffix}"
    wide, narrow = (np.array(part, dtype) for part, dtype in zip(zip(*values, strict=True), "df", strict=True))
    write_table(path, {"wide": wide, "narrow": narrow})
    table = read_table(path)
    np.testing.assert_array_equal(table.column("wide"), wide)
    np.testing.assert_array_equal(table.column("narrow"), narrow.astype(np.float64))
    zeros = wide == 0
    np.testing.assert_array_equal(np.signbit(table.column("wide")[zeros]), np.signbit(wide[zeros]))


@settings(max_examples=200, deadline=None)
@given(values=st.lists(TEXTS | st.sampled_from([",", '"', "\n", "\r\n", ";\t", " a ", "ü", None]), max_size=10))
@pytest.mark.parametrize("alone", [True, False])
def test_text_comes_back_unless_it_stands_for_missing(tmp_path_factory, values, alone):
    path = tmp_path_factory.mktemp("texts") / "data.csv"
    cells = np.array([*values, "a word"], object)  # the last keeps the column from being numeric
    columns = {"t": cells} if alone else {"t": cells, "n": np.arange(len(cells)), "u": cells[::-1]}
    write_table(path, columns, keep_formulas=True)
    expected = [None if cell is None or cell.strip() in MISSING else cell for cell in cells]
    table = read_table(path)
    assert table.column("t").tolist() == expected
    if not alone:
        assert table.column("u").tolist() == expected[::-1]
        assert table.column("n").tolist() == list(range(len(cells)))


@settings(max_examples=100, deadline=None)
@given(names=st.lists(TEXTS.map(str.strip).filter(bool), min_size=1, max_size=4, unique=True))
def test_names_come_back(tmp_path_factory, names):
    names = [f"c{name.removeprefix(chr(0xFEFF))}" for name in dict.fromkeys(names)]
    path = tmp_path_factory.mktemp("names") / "data.csv"
    write_table(path, {name: np.ones(1) for name in names})
    assert read_table(path).columns == tuple(dict.fromkeys(names))


def test_lines_are_plain_csv():
    columns = {
        "a,b": np.array([0.1, np.nan, 1e300]),
        "n": np.array([1, 2, 3]),
        "ok": np.array([True, False, True]),
        "t": np.array(['say "x"', None, "two\nlines"], object),
        "u": np.array(["p", "q", ""]),
    }
    assert list(csv_lines(columns)) == [
        '"a,b",n,ok,t,u',
        '0.1,1,1,"say ""x""",p',
        ",2,0,,q",
        '1e+300,3,1,"two\nlines",',
    ]
    assert list(csv_lines({"x": np.array([np.nan])})) == ["x", '""']


def test_texts_that_a_spreadsheet_would_run_get_an_apostrophe_unless_asked(tmp_path):
    texts = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\tx", "\rx", "a=1", "-3.5", "+7", "", None]
    columns = {"=name": np.array(texts, object), "n": -np.arange(11.0)}
    lines = list(csv_lines(columns))
    assert lines[0] == "'=name,n"
    begun = [line.removeprefix('"')[:2] for line in lines[1:]]
    assert begun == ["'=", "'+", "'-", "'@", "'\t", "'\r", "a=", "-3", "+7", ",-", ",-"]
    assert lines[2].endswith("-1.0")
    kept = list(csv_lines(columns, keep_formulas=True))
    assert kept[:2] == ["=name,n", "=1+1,-0.0"]


@pytest.mark.parametrize("columns", [{}, {"a": np.ones(2), "b": np.ones(3)}, {"a": np.ones((2, 2))}])
def test_columns_that_do_not_fit_are_refused(columns, tmp_path):
    assert "of one length" in complaint(write_table, tmp_path / "out.csv", columns)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["out.xlsx", "out", "out.tsv", "out.npz"])
def test_other_suffixes_are_not_written(name, tmp_path):
    assert ".csv, .csv.gz, .parquet" in complaint(write_table, tmp_path / name, {"a": np.ones(1)})
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_leaves_the_earlier_file(tmp_path):
    path = tmp_path / "out.csv"
    write_table(path, {"a": np.ones(3)})
    broken = np.array(["fine", "\ud800"], object)  # no file in UTF-8 can hold the second
    complaint(write_table, path, {"a": broken})
    assert as_lists(read_table(path)) == {"a": [1, 1, 1]}
    assert list(tmp_path.iterdir()) == [path]


def test_the_name_of_a_written_file_is_forced_to_disk(tmp_path):
    with mock.patch.object(_table_writing, "sync_folders") as forced:
        write_table(tmp_path / "out.csv", {"a": np.ones(1)})
    forced.assert_called_once_with([tmp_path / "out.csv"], tmp_path)


def test_equal_tables_give_equal_files_also_when_compressed(tmp_path):
    for name in ("a.csv.gz", "b.csv.gz"):
        write_table(tmp_path / "new" / name, {"a": np.arange(5.0)})
    first, second = ((tmp_path / "new" / name).read_bytes() for name in ("a.csv.gz", "b.csv.gz"))
    assert first == second
    assert gzip.decompress(first).decode() == "a\n0.0\n1.0\n2.0\n3.0\n4.0\n"


# Parquet


def test_without_pyarrow_the_message_says_what_to_install(save, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = save(b"PAR1", "data.parquet")
    assert complaint(read_table, path) == (
        f"Reading {path} needs pyarrow: pip install 'mile-bnn[tables]', or save the table as CSV."
    )
    assert "Writing" in complaint(write_table, tmp_path / "out.parquet", {"a": np.ones(1)})
    assert list(tmp_path.iterdir()) == [path]


def test_parquet_types_become_numbers_or_text(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    day = datetime.date(2020, 1, 31)
    columns = {
        "half": pyarrow.array([0.5, None], pyarrow.float32()),
        "large": pyarrow.array([2**60 + 1, 3]),
        "flag": pyarrow.array([True, None]),
        "text": pyarrow.array(["a", None]),
        "category": pyarrow.array(["u", None]).dictionary_encode(),
        "day": pyarrow.array([day, None]),
        "moment": pyarrow.array([np.datetime64("2020-01-31T12:00:00.000000001"), None]),
        "nothing": pyarrow.nulls(2),
        "a.b": pyarrow.array([1, 2], pyarrow.uint8()),
    }
    path = tmp_path / "data.parquet"
    parquet.write_table(pyarrow.table(columns), path)
    table = read_table(path)
    assert table.columns == tuple(columns)
    numeric = {
        "half": [0.5, np.nan],
        "flag": [1, np.nan],
        "nothing": [np.nan] * 2,
        "a.b": [1, 2],
    }
    for name, expected in numeric.items():
        assert table.column(name).dtype == np.float64
        np.testing.assert_array_equal(table.column(name), expected)
    assert table.column("large").tolist() == [2**60 + 1, 3]
    for name, expected in {"text": ["a", None], "category": ["u", None]}.items():
        assert table.column(name).tolist() == expected
    assert table.column("day").tolist() == ["2020-01-31", None]
    assert table.column("moment")[0].startswith("2020-01-31 12:00:00")
    assert "Column 'flag' is empty in row 2 of data.parquet." in complaint(table.matrix, ["flag"])
    assert "Column 'category' has 'u' in row 1 of data.parquet" in complaint(table.matrix, ["category"])
    assert as_lists(read_table(path, ["a.b", "text"])) == {"a.b": [1, 2], "text": ["a", None]}
    assert "no column 'txt'; did you mean 'text'?" in complaint(read_table, path, ["txt"])


def test_parquet_of_other_types_or_without_rows_or_damaged_is_refused(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "data.parquet"
    parquet.write_table(pyarrow.table({"l": [[1], [2]]}), path)
    assert "column 'l' has type list<" in complaint(read_table, path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    assert "is not a whole Parquet file" in complaint(read_table, path)
    parquet.write_table(pyarrow.table({"a": pyarrow.array([], pyarrow.float64())}), path)
    assert "no rows" in complaint(read_table, path)


def test_parquet_written_comes_back(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "out.parquet"
    write_table(path, {"x": np.array([0.1, np.nan]), "n": np.arange(2), "t": np.array(["a\n,", None], object)})
    table = read_table(path)
    np.testing.assert_array_equal(table.matrix(["n"]), [[0], [1]])
    np.testing.assert_array_equal(table.column("x"), [0.1, np.nan])
    assert table.column("t").tolist() == ["a\n,", None]
