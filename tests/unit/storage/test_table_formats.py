"""Files as users have them: encodings, decimal commas, packed, typed and several files become the same table."""

import gzip
import io
import json
import sys
import zipfile

import numpy as np
import pytest

from mile.storage import ReadOptions, read_size, read_table

COLUMNS = {"size": [1.5, np.nan, 3.0], "city": ["Zürich", None, "Rome"], "zip": ["01234", "98765", "10000"]}
ROWS = [{name: None if cells[row] != cells[row] else cells[row] for name, cells in COLUMNS.items()} for row in range(3)]


@pytest.fixture
def save(tmp_path):
    def write(content, name="data.csv"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def as_csv(delimiter=",", decimal="."):
    rows = [["" if cell is None else str(cell).replace(".", decimal) for cell in row.values()] for row in ROWS]
    return "\n".join(delimiter.join(row) for row in [list(COLUMNS), *rows]) + "\n"


def check(table):
    assert table.columns == tuple(COLUMNS)
    np.testing.assert_array_equal(table.column("size"), COLUMNS["size"])
    assert table.column("city").tolist() == COLUMNS["city"]
    assert table.column("zip").tolist() == COLUMNS["zip"]


def complaint(path, options=None, kind=ValueError):
    with pytest.raises(kind) as caught:
        read_table(path, options=options or ReadOptions())
    assert "\n" not in str(caught.value)
    return str(caught.value)


# The form of a text file


def test_every_encoding_is_recognized_and_unusual_ones_are_said(save):
    for encoding, said in {
        "utf-8": "",
        "utf-8-sig": "",
        "utf-16": "UTF-16",
        "cp1252": "Windows-1252",
    }.items():
        table = read_table(save(as_csv().encode(encoding)))
        check(table)
        assert said in table.remark, encoding
        assert bool(table.remark) == bool(said)
    late = as_csv().encode() + b"1,a,2\n" * 100_000 + b"1,\xe9,2\n"
    assert read_table(save(late)).column("city")[-1] == "é"
    assert read_table(save(b"a,b\n1,\x81\n")).remark.startswith("data.csv is read with the encoding Latin-1")


def test_every_delimiter_and_decimal_comma_is_recognized_and_said(save):
    assert read_table(save(as_csv())).remark == ""
    assert read_table(save(as_csv("\t"), "data.tsv")).remark == ""
    for delimiter, word in {";": "semicolons", "\t": "tabs", "|": "vertical bars"}.items():
        table = read_table(save(as_csv(delimiter, ",")))
        check(table)
        assert table.remark.startswith(f"data.csv is read with {word} between cells and decimal commas; ")


def test_commas_that_may_separate_thousands_are_not_guessed(save):
    assert read_table(save("a;b\n1,234;x\n")).column("a").tolist() == ["1,234"]
    assert read_table(save("a;b\n1,234;0,5\n")).column("a").tolist() == [1.234]
    assert read_table(save("a;b\n1,5;2.5\n")).column("a").tolist() == ["1,5"]
    assert read_table(save("a;b\n1.234;0,5\n")).column("a").tolist() == ["1.234"]


def test_the_user_may_say_it_all(save):
    options = ReadOptions(delimiter="#", decimal=",", encoding="latin-1", missing=("n.a.", "-999"))
    table = read_table(save("a#b#c\n1,5#-999#é\nn.a.#2#n.a.\n".encode("latin-1")), options=options)
    np.testing.assert_array_equal(table.matrix(["a", "b"], with_gaps=True), [[1.5, np.nan], [np.nan, 2]])
    assert table.column("c").tolist() == ["é", None]
    assert table.remark == ""
    assert "is not text in utf-8" in complaint(save(b"a\n\xff\n"), ReadOptions(encoding="utf-8"))
    assert "no encoding 'utf-9'" in complaint(save("a\n1\n"), ReadOptions(encoding="utf-9"))
    for wrong in ({"delimiter": ";;"}, {"decimal": "x"}):
        with pytest.raises(ValueError, match="must be"):
            ReadOptions(**wrong)


# Packed, typed and other files


def test_json_lines_are_tables(save):
    lines = "\n".join(json.dumps(row) for row in ROWS)
    for name, pack in {"data.jsonl": bytes, "data.ndjson": bytes, "data.jsonl.gz": gzip.compress}.items():
        check(read_table(save(pack(f"\n{lines}\n\n".encode()), name)))
    table = read_table(save('{"a": 1, "t": true}\n{"b": 9007199254740993, "a": 2.5}\n', "data.jsonl"))
    assert table.columns == ("a", "t", "b")
    assert table.column("a").tolist() == [1.0, 2.5]
    assert table.column("t").tolist() == ["True", None]
    assert table.column("b").tolist() == [None, "9007199254740993"]
    for line in ("[1]", "{", '"text"'):
        assert "line 2 must be a JSON object" in complaint(save('{"a": 1}\n' + line, "data.jsonl"))
    assert "'a' in line 1 holds a list" in complaint(save('{"a": [1]}', "data.jsonl"))


def test_zstandard_and_feather_are_read(save, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    packed = pyarrow.compress(as_csv().encode(), "zstd", asbytes=True)
    check(read_table(save(packed, "data.csv.zst")))
    assert "is damaged" in complaint(save(packed[:-9], "data.csv.zst"))
    table = pyarrow.table({name: pyarrow.array([row[name] for row in ROWS]) for name in COLUMNS})
    for name, writer in {"data.feather": pyarrow.ipc.new_file, "data.arrow": pyarrow.ipc.new_stream}.items():
        with pyarrow.OSFile(str(tmp_path / name), "wb") as sink, writer(sink, table.schema) as file:
            file.write_table(table)
        check(read_table(tmp_path / name))
        content = (tmp_path / name).read_bytes()
        assert "is not a whole Feather file" in complaint(save(content[: len(content) // 2], name))


def test_the_first_sheet_of_an_excel_file_is_read(save, tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in [list(COLUMNS), [], *(list(row.values()) for row in ROWS)]:
        book.active.append(row)
    book.create_sheet("notes").append(["not", "read"])
    book.save(tmp_path / "data.xlsx")
    table = read_table(tmp_path / "data.xlsx")
    check(table)
    assert table.lines.tolist() == [3, 4, 5]
    assert "is not a whole Excel file" in complaint(save(b"PK\x03\x04", "bad.xlsx"))
    assert "unpacks to more than" in complaint(tmp_path / "data.xlsx", ReadOptions(most_bytes=1000))


def test_what_is_not_installed_is_named(save, monkeypatch):
    for module in ("openpyxl", "pyarrow"):
        monkeypatch.setitem(sys.modules, module, None)
    assert "pip install 'mile-bnn[excel]'" in complaint(save(b"PK", "data.xlsx"))
    for name in ("data.csv.zst", "data.feather"):
        assert "pip install 'mile-bnn[tables]'" in complaint(save(b"", name))


def test_words_for_missing_cells_hold_in_typed_files(tmp_path):
    np.savez(tmp_path / "data.npz", n=np.array([1.0, -999.0]), t=np.array(["2", "oops"]))
    table = read_table(tmp_path / "data.npz", options=ReadOptions(missing=("oops", "-999")))
    np.testing.assert_array_equal(table.matrix(["n", "t"], with_gaps=True), [[1, 2], [np.nan, np.nan]])


# Several files


def test_a_pattern_or_a_folder_stands_for_several_files(save, tmp_path):
    save("a,b\n1,x\n2,y\n", "part/one.csv")
    save("b,a\nz,3\n01,oops\n", "part/two.csv")
    table = read_table(tmp_path / "part" / "*.csv")
    assert table.columns == ("a", "b")
    assert table.column("a").tolist() == ["1", "2", "3", "oops"]
    assert table.column("b").tolist() == ["x", "y", "z", "01"]
    with pytest.raises(ValueError, match=r"Column 'a' has 'oops' in row 2 \(line 3 of two\.csv\)"):
        table.matrix(["a"])
    assert table.take(np.array([3])).place(0) == "row 2 (line 3 of two.csv)"
    save("b,a\nz,3\n", "part/more/one.csv")
    assert read_table(tmp_path / "part" / "**" / "one.csv").place(2) == f"row 2 (line 3 of {tmp_path}/part/one.csv)"
    save("a,c\n1,2\n", "part/zoo.csv")
    assert "zoo.csv has no column 'b', which one.csv has" in complaint(tmp_path / "part" / "*.csv")
    assert "matches" in complaint(tmp_path / "part" / "*.npz", kind=FileNotFoundError)
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for place in range(2):
        parquet.write_table(pyarrow.table({"a": [place, 2**60 + 1][: place + 1]}), tmp_path / f"part/{place}.parquet")
    assert read_table(tmp_path / "part").column("a").tolist() == [0, 1, 2**60 + 1]


# Files that are made to fill the memory


def test_files_that_unpack_to_too_much_are_refused_unless_allowed(save, tmp_path):
    small = ReadOptions(most_bytes=50_000)
    text = b"a\n" + b"1\n" * 100_000
    buffer = io.BytesIO()
    np.savez_compressed(buffer, a=np.zeros(100_000))
    files = {"data.csv.gz": gzip.compress(text), "data.npz": buffer.getvalue()}
    pyarrow = pytest.importorskip("pyarrow")
    files["data.csv.zst"] = pyarrow.compress(text, "zstd", asbytes=True)
    sink = io.BytesIO()
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table({"a": np.zeros(100_000)}), sink)
    files["data.parquet"] = sink.getvalue()
    sink = io.BytesIO()
    pytest.importorskip("pyarrow.feather").write_feather(pyarrow.table({"a": np.zeros(100_000)}), sink)
    files["data.feather"] = sink.getvalue()
    for name, content in files.items():
        path = save(content, name)
        assert "unpacks to more than 0.1 MB" in complaint(path, small), name
        assert "--unpack" in complaint(path, small)
        assert len(read_table(path)) == 100_000


def test_an_array_that_promises_more_than_there_is_is_refused(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
    with zipfile.ZipFile(tmp_path / "data.npz", "w") as archive:
        archive.writestr("a.npy", header.getvalue() + bytes(80))
    assert "'a.npy' holds Python objects or is damaged" in complaint(tmp_path / "data.npz")


def test_sizes_are_read():
    assert [read_size(text) for text in ("8GB", "500 mb", "1.5kB", "12")] == [8 * 10**9, 5 * 10**8, 1500, 12]
    for wrong in ("", "GB", "-1GB", "1XB", "1e9", "0MB", "nan"):
        with pytest.raises(ValueError, match="A size must be"):
            read_size(wrong)
