"""Data sets: the file that is asked for or a sentence that helps, and nothing that was not checked."""

import dataclasses
import gzip
import hashlib
import http.client
import io
import os
import tarfile
import urllib.error
import urllib.request
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import sklearn.datasets

from mile import datasets
from mile._errors import CorruptFileError, StorageError
from mile.datasets._catalog import SETS
from mile.datasets._kinds import ImageSet, TableSet, TextSet
from mile.datasets._origins import Closely, Exactly, OpenML, Reviews, Uci
from mile.storage import _downloads, downloaded, read_arrays, read_members, read_packed_lines, write_arrays
from mile.storage._downloads import download

DATA = os.environ.get("MILE_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="MILE_DATA does not name a folder with the benchmark data")

TABLE = np.array([[1.0, 2.5, 0.0], [3.0, 4.5, 1.0], [5.0, 6.5, 1.0]])
LINES = "a,b,c\n1,2.5,0\n3,4.5,1\n5,6.5,1\n"


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    """Keep each test to its own folders, and off the network."""
    real = urllib.request.urlopen

    def local(url, *arguments, **options):
        if not url.startswith("file:"):
            raise urllib.error.URLError("no network in tests")
        return real(url, *arguments, **options)

    def unreachable(**_):
        raise urllib.error.URLError("no network in tests")

    monkeypatch.setattr(urllib.request, "urlopen", local)
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", unreachable)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("MILE_DATA", raising=False)


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache" / "mile-bnn" / "datasets"


@pytest.fixture
def tiny(monkeypatch):
    """Add a table of three rows to the catalog and return its entry."""
    entry = TableSet(
        columns=("a", "b", "c"),
        n_rows=3,
        n_classes=2,
        origin=Uci(archive="1/tiny", members=("tiny.data",)),
        content=Exactly(hashlib.sha256(TABLE.tobytes()).hexdigest()),
    )
    monkeypatch.setitem(SETS, "tiny", entry)
    return entry


@pytest.fixture
def publish(monkeypatch, tmp_path):
    """Put an archive where the UCI repository would have it; returns the number of times it was asked for."""

    def write(**members):
        site = tmp_path / "site.zip"
        with zipfile.ZipFile(site, "w") as archive:
            for name, content in members.items():
                archive.writestr(name.replace("__", "."), content)
        asked = []
        monkeypatch.setattr(Uci, "url", property(lambda self: asked.append(self.archive) or site.as_uri()))
        return asked

    return write


def save(folder, name, text):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()))
    return path


def complaint(kind, *arguments, **options):
    """Return the message of the error of `load`, which must be one line."""
    with pytest.raises(kind) as caught:
        datasets.load(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


# Where a file is looked for


def test_the_catalog_has_every_data_set_of_the_paper():
    tables = "airfoil bikesharing concrete energy protein yacht ionosphere income sonar wine_white wine_red australian"
    assert set(datasets.NAMES) == {*tables.split(), "heart", "glass", "covertype8000", "mnist", "fashion_mnist", "imdb"}


def test_a_given_folder_comes_first_then_the_variable_then_the_cache_then_a_download(
    tiny, publish, tmp_path, cache, monkeypatch
):
    asked = publish(tiny__data="1,2.5,0\n3,4.5,1\n5,6.5,1\n")
    assert datasets.load("tiny").x[0, 0] == 1.0
    assert datasets.load("tiny").x[0, 0] == 1.0
    assert asked == ["1/tiny"]
    save(cache, "tiny.csv.gz", LINES.replace("1,2.5", "20,2.5"))
    assert datasets.load("tiny").x[0, 0] == 20.0
    save(tmp_path / "variable", "tiny.csv.gz", LINES.replace("1,2.5", "30,2.5"))
    monkeypatch.setenv("MILE_DATA", str(tmp_path / "variable"))
    assert datasets.load("tiny").x[0, 0] == 30.0
    save(tmp_path / "given", "tiny.csv.gz", LINES.replace("1,2.5", "40,2.5"))
    assert datasets.load("tiny", tmp_path / "given").x[0, 0] == 40.0
    assert datasets.load("tiny", str(tmp_path / "given")).x[0, 0] == 40.0
    (tmp_path / "empty").mkdir()
    assert datasets.load("tiny", tmp_path / "empty").x[0, 0] == 20.0
    assert asked == ["1/tiny"]


def test_a_file_that_is_nowhere_is_named_with_the_places_and_what_to_do(tiny, tmp_path, cache):
    for options in ({}, {"download": False}):
        message = complaint(FileNotFoundError, "tiny", tmp_path, **options)
        for part in ("tiny.csv.gz", str(tmp_path), str(cache), "data_dir", "--data-dir", "MILE_DATA", "Internet"):
            assert part in message
    assert "not allowed" in message
    assert "no network in tests" in complaint(FileNotFoundError, "tiny")
    assert "mnist.npz" in complaint(FileNotFoundError, "mnist")
    assert "imdb.csv.gz" in complaint(FileNotFoundError, "imdb")
    assert not cache.exists() or not list(cache.iterdir())


def test_without_permission_nothing_is_downloaded(tiny, publish):
    asked = publish(tiny__data="1,2.5,0\n3,4.5,1\n5,6.5,1\n")
    complaint(FileNotFoundError, "tiny", download=False)
    assert asked == []


def test_a_folder_that_is_not_there_is_an_error_and_no_reason_to_download(tiny, publish, tmp_path, monkeypatch):
    asked = publish(tiny__data="1,2.5,0\n3,4.5,1\n5,6.5,1\n")
    assert "data_dir" in complaint(FileNotFoundError, "tiny", tmp_path / "misspelled")
    monkeypatch.setenv("MILE_DATA", str(tmp_path / "elsewhere"))
    assert "MILE_DATA" in complaint(FileNotFoundError, "tiny")
    assert asked == []


def test_an_unknown_name_is_answered_with_those_there_are():
    message = complaint(ValueError, "fashion-mnist")
    assert "did you mean 'fashion_mnist'?" in message
    assert "airfoil" in message


# What a file must look like


def test_a_table_is_read_with_its_names_and_its_task(tiny, tmp_path, monkeypatch):
    save(tmp_path, "tiny.csv.gz", LINES)
    table = datasets.load("tiny", tmp_path)
    np.testing.assert_array_equal(table.x, TABLE[:, :2])
    np.testing.assert_array_equal(table.y, [0, 1, 1])
    assert table.y.dtype == np.int64
    assert table[2:] == (("a", "b"), "c", "classification")
    monkeypatch.setitem(SETS, "tiny", dataclasses.replace(tiny, n_classes=None))
    table = datasets.load("tiny", tmp_path)
    assert table.task == "regression"
    assert table.y.dtype == np.float64


@pytest.mark.parametrize(
    ("lines", "expected", "found"),
    [
        ("a,b,c\n1,2.5,0\n3,4.5,1\n", "3 rows and 3 columns", "2 rows and 3"),
        ("a,c\n1,0\n3,1\n5,1\n", "3 rows and 3 columns", "3 rows and 2"),
        ("c,b,a\n0,2.5,1\n1,4.5,3\n1,6.5,5\n", "target 'c'", "'a'"),
        ("a,b,c\n1,2.5,1\n3,4.5,2\n5,6.5,2\n", "classes 0 to 1", "1, 2"),
        ("a,b,c\n1,2.5,0\n3,4.5,0.5\n5,6.5,1\n", "classes 0 to 1", "0, 0.5, 1"),
    ],
)
def test_a_table_of_another_shape_is_refused_with_what_was_expected_and_found(tiny, tmp_path, lines, expected, found):
    path = save(tmp_path, "tiny.csv.gz", lines)
    message = complaint(ValueError, "tiny", tmp_path)
    assert str(path) in message
    assert expected in message
    assert f"found {found}" in message


def test_a_damaged_table_is_refused(tiny, tmp_path):
    path = save(tmp_path, "tiny.csv.gz", LINES)
    path.write_bytes(path.read_bytes()[:-12])
    assert "not a whole gzip file" in complaint(ValueError, "tiny", tmp_path)


@pytest.fixture
def pictures(monkeypatch):
    """Add three training images and one test image to the catalog and return them."""
    x = np.arange(24, dtype=np.uint8).reshape(4, 2, 3)
    y = np.array([0, 1, 1, 0], np.uint8)
    images = datasets.Images(x[:3], y[:3], x[3:], y[3:])
    sums = tuple(int(array.sum()) for array in images)
    entry = ImageSet(n_train=3, n_test=1, shape=(2, 3), n_classes=2, origin=OpenML(1), sums=sums)
    monkeypatch.setitem(SETS, "pictures", entry)
    return images


def test_images_are_read_as_they_are(pictures, tmp_path):
    write_arrays(tmp_path / "pictures.npz", pictures._asdict())
    for found, expected in zip(datasets.load("pictures", tmp_path), pictures, strict=True):
        assert found.dtype == np.uint8
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("change", "expected", "found"),
    [
        ({"x_train": np.zeros((3, 6), np.uint8)}, "'x_train' with shape (3, 2, 3)", "shape (3, 6)"),
        ({"y_test": np.zeros(1, np.int64)}, "'y_test' with shape (1,) of uint8", "int64"),
        ({"x_test": None}, "'x_test'", "no such array"),
        ({"y_train": np.array([0, 1, 2], np.uint8)}, "classes from 0 to 1", "found 2"),
    ],
)
def test_images_of_another_shape_are_refused(pictures, tmp_path, change, expected, found):
    arrays = {name: array for name, array in {**pictures._asdict(), **change}.items() if array is not None}
    write_arrays(tmp_path / "pictures.npz", arrays)
    message = complaint(ValueError, "pictures", tmp_path)
    assert expected in message
    assert found in message


def test_a_damaged_file_of_images_is_refused(pictures, tmp_path):
    (tmp_path / "pictures.npz").write_bytes(b"not a zip file")
    assert "not an NPZ file" in complaint(ValueError, "pictures", tmp_path)


ODD = 'A line\u0085break, a "quotation"; <br />'


@pytest.fixture
def letters(monkeypatch):
    """Add two training texts and two test texts to the catalog."""
    origin = Reviews(url="file:/nowhere", checksum="md5:0")
    monkeypatch.setitem(SETS, "letters", TextSet(n_train=2, n_test=2, n_classes=2, origin=origin))


def test_texts_are_read_to_the_last_character(letters, tmp_path):
    quoted = '"' + ODD.replace('"', '""') + '"'
    save(tmp_path, "letters.csv.gz", f"label,text,split\n0,{quoted},train\n1,b,train\n0,1.5,test\n1,NA,test\n")
    texts = datasets.load("letters", tmp_path)
    assert texts.texts_train == (ODD, "b")
    assert texts.labels_train.tolist() == texts.labels_test.tolist() == [0, 1]
    assert texts.texts_test == ("1.5", "")  # what a table takes for a missing cell is an empty text


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("label,text\n0,a\n", "no column 'split'"),
        ("label,text,split\n0,a,train\n1,b,train\n0,c,test\n", "2 rows with split 'train' and 2 with 'test'"),
        ("label,text,split\n0,a,train\n1,b,train\n0,c,test\n1,d,test\n1,e,val\n", "2 and 2 in 5 rows"),
        ("label,text,split\n0,a,train\n2,b,train\n0,c,test\n1,d,test\n", "labels 0 to 1; found 0, 1, 2"),
        ("label,text,split\nneg,a,train\npos,b,train\nneg,c,test\npos,d,test\n", "'neg'"),
    ],
)
def test_texts_of_another_form_are_refused(letters, tmp_path, lines, expected):
    save(tmp_path, "letters.csv.gz", lines)
    assert expected in complaint(ValueError, "letters", tmp_path)


# Downloads


class Response(io.BytesIO):
    """An answer that promises more bytes than it has, or breaks."""

    def __init__(self, content, length, error=None):
        super().__init__(content)
        self.headers, self.error = {"Content-Length": length}, error

    def read(self, size=-1):
        part = super().read(size)
        if not part and self.error is not None:
            raise self.error
        return part


def test_a_download_is_the_file(tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"content" * 1_000_000)  # several parts
    for checksum in (
        None,
        f"sha256:{hashlib.sha256(source.read_bytes()).hexdigest()}",
        f"md5:{hashlib.md5(source.read_bytes()).hexdigest()}",
    ):
        download(source.as_uri(), tmp_path / "new" / "file", checksum)
        assert (tmp_path / "new" / "file").read_bytes() == source.read_bytes()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file"]


def test_a_wrong_checksum_leaves_nothing_and_what_was_there_untouched(tmp_path):
    (tmp_path / "source").write_bytes(b"altered")
    place = tmp_path / "new" / "file"
    with pytest.raises(CorruptFileError, match=f"expected {'0' * 32}, found"):
        download((tmp_path / "source").as_uri(), place, f"md5:{'0' * 32}")
    assert list(place.parent.iterdir()) == []
    place.write_bytes(b"earlier")
    with pytest.raises(CorruptFileError):
        download((tmp_path / "source").as_uri(), place, "sha256:0")
    assert [(path.name, path.read_bytes()) for path in place.parent.iterdir()] == [("file", b"earlier")]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (None, "ended after 4 of 10 bytes"),
        (TimeoutError("timed out"), "timed out"),
        (ConnectionResetError("reset by peer"), "reset by peer"),
        (http.client.IncompleteRead(b"", 6), "IncompleteRead"),
        (urllib.error.HTTPError("https://example.org/file", 404, "Not Found", {}, None), "HTTP Error 404: Not Found"),
        (ConnectionAbortedError(), "ConnectionAbortedError"),
    ],
)
def test_an_interrupted_download_leaves_nothing(monkeypatch, tmp_path, error, sentence):
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: Response(b"half", "10", error))
    with pytest.raises(ConnectionError, match=sentence) as caught:
        download("https://example.org/file", tmp_path / "file")
    assert not isinstance(caught.value, StorageError)
    assert "https://example.org/file" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_during_a_download_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: Response(b"half", "10", KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        download("https://example.org/file", tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_a_refusal_of_the_server_and_of_the_disk_are_told_apart(monkeypatch, tmp_path):
    with pytest.raises(ConnectionError, match="no network in tests"):
        download("https://example.org/file", tmp_path / "file")
    with pytest.raises(ConnectionError):
        download((tmp_path / "nothing").as_uri(), tmp_path / "file")
    (tmp_path / "source").write_bytes(b"content")
    with pytest.raises(StorageError):
        download((tmp_path / "source").as_uri(), tmp_path / "source" / "file")


def test_a_file_that_is_only_read_once_does_not_stay(tmp_path):
    (tmp_path / "source").write_bytes(b"content")
    place = tmp_path / "new" / "file"

    def fail():
        with downloaded((tmp_path / "source").as_uri(), place) as path:
            assert path.read_bytes() == b"content"
            raise ValueError("of the reader")

    with pytest.raises(ValueError, match="of the reader"):
        fail()
    assert list(place.parent.iterdir()) == []


def test_a_damaged_archive_is_called_so(tmp_path):
    path = tmp_path / "archive"
    path.write_bytes(b"neither")
    with pytest.raises(CorruptFileError, match="archive is damaged"):
        read_packed_lines(path, "member")
    with pytest.raises(CorruptFileError, match="archive is damaged"):
        list(read_members(path, lambda _: True))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("text", b"\xff\xfe")
        archive.writestr("packed.gz", gzip.compress(b"some lines\n" * 1_000)[:-20])
    for member in ("member", "text", "packed.gz"):
        with pytest.raises(CorruptFileError, match="archive is damaged"):
            read_packed_lines(path, member)


def test_arrays_are_written_whole(tmp_path):
    arrays = {"x": np.arange(6, dtype=np.uint8).reshape(2, 3), "y": np.array([0.5])}
    write_arrays(tmp_path / "new" / "arrays.npz", arrays)
    found = read_arrays(tmp_path / "new" / "arrays.npz")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
    assert len(list((tmp_path / "new").iterdir())) == 1


# What each origin sends


def test_a_downloaded_table_is_kept_in_the_cache_and_its_archive_is_not(tiny, publish, cache):
    publish(tiny__data="1,2.5,0\n3,4.5,1\n5,6.5,1\n")
    np.testing.assert_array_equal(datasets.load("tiny").x, TABLE[:, :2])
    assert [path.name for path in cache.iterdir()] == ["tiny.csv.gz"]
    assert gzip.decompress((cache / "tiny.csv.gz").read_bytes()).decode() == LINES


@pytest.mark.parametrize(
    ("content", "found"),
    [("1,2.5,0\n3,4.5,1\n5,6.6,1\n", "3 columns with other values"), ("1,2.5,0\n3,4.5,1\n", "2 rows")],
)
def test_a_download_with_other_values_is_refused_and_not_kept(tiny, publish, cache, content, found):
    publish(tiny__data=content)
    message = complaint(CorruptFileError, "tiny")
    assert "tiny.csv.gz" in message
    assert found in message
    assert "MILE_DATA" in message
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("members", [{"other__data": "1,2\n"}, {"tiny__data": "\n\n"}])
def test_an_archive_without_the_rows_is_refused(tiny, publish, cache, members):
    publish(**members)
    complaint(CorruptFileError, "tiny")
    assert list(cache.iterdir()) == []


def test_an_archive_with_too_few_columns_is_refused(publish, tmp_path):
    publish(few__data="1,2\n3,4\n")
    with pytest.raises(CorruptFileError, match="2 columns where 6 or more"):
        Uci(archive="1/few", members=("few.data",), columns=(0, 5)).fetch(tmp_path)


def test_text_becomes_codes_in_alphabetical_order_and_remarks_are_left_out(publish, tmp_path):
    publish(
        adult__data="39, State-gov, <=50K\n50, ?, >50K\n\n",
        adult__test="|1x3 Cross validator\n25, Private, >50K.\n",
    )
    table = Uci(archive="2/adult", members=("adult.data", "adult.test")).fetch(tmp_path)
    np.testing.assert_array_equal(table, [[39, 2, 0], [50, 0, 1], [25, 1, 1]])


def test_headers_delimiters_and_question_marks_are_as_the_entry_says(publish, tmp_path):
    publish(
        wine__csv='"acid";"quality"\n7.4;5\n8.1;3\n', blanks__dat="1 .5  7\n0 1.5 2 \n", gaps__data="1,?,0\n2,3.0,4\n"
    )
    wine = Uci(archive="1", members=("wine.csv",), delimiter=";", header=True).fetch(tmp_path)
    np.testing.assert_array_equal(wine, [[7.4, 1], [8.1, 0]])
    blanks = Uci(archive="1", members=("blanks.dat",), delimiter=None, columns=(2, 1), classes=False).fetch(tmp_path)
    np.testing.assert_array_equal(blanks, [[7, 0.5], [2, 1.5]])
    gaps = Uci(archive="1", members=("gaps.data",), question_mark="0").fetch(tmp_path)
    np.testing.assert_array_equal(gaps, [[1, 0, 0], [2, 3, 1]])


def test_rows_are_drawn_from_a_packed_file_with_the_seed_that_the_catalog_names(publish, tmp_path):
    rows = "".join(f"{row},{row % 2 + 1}\n" for row in range(50))
    publish(all__gz=gzip.compress(rows.encode()))
    table = Uci(archive="1", members=("all.gz",), n_drawn=8).fetch(tmp_path)
    drawn = np.random.default_rng(0).permutation(50)[:8]
    np.testing.assert_array_equal(table, np.column_stack([drawn, drawn % 2]))


def answer(monkeypatch, data, target, categories=None):
    """Let OpenML send these arrays."""
    names = [f"x{index}" for index in range(data.shape[1])]
    found = SimpleNamespace(data=data, target=target, feature_names=names, categories=categories)
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", lambda **_: found)


def test_openml_is_asked_for_numbers_without_pandas_or_a_second_cache(monkeypatch):
    asked = []

    def fetch(**options):
        asked.append(options)
        return SimpleNamespace(data=TABLE[:, :2].copy(), target=TABLE[:, 2], feature_names=["a", "b"], categories=None)

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
    np.testing.assert_array_equal(OpenML(7).fetch(Path()), TABLE)
    assert asked == [{"data_id": 7, "as_frame": False, "parser": "liac-arff", "cache": False}]


def test_codes_of_openml_become_the_numbers_that_they_stand_for(monkeypatch):
    answer(monkeypatch, np.array([[0.0, 1.0], [2.0, 0.0]]), np.array(["5", "0"], object), {"x0": ["2", "3", "5"]})
    np.testing.assert_array_equal(OpenML(7).fetch(Path()), [[2, 1, 5], [5, 0, 0]])


def test_a_rounded_copy_passes_and_another_column_does_not(tiny, monkeypatch, cache):
    entry = dataclasses.replace(tiny, origin=OpenML(7), content=Closely(tuple(TABLE.mean(axis=0))))
    monkeypatch.setitem(SETS, "tiny", entry)
    answer(monkeypatch, TABLE[:, [1, 0]].copy(), TABLE[:, 2])
    assert "other values" in complaint(CorruptFileError, "tiny")
    answer(monkeypatch, TABLE[:, :1].copy(), TABLE[:, 2])
    assert "3 rows and 2 columns" in complaint(CorruptFileError, "tiny")
    assert not cache.exists()
    answer(monkeypatch, TABLE[:, :2] * (1 + 1e-6), TABLE[:, 2])
    np.testing.assert_allclose(datasets.load("tiny").x, TABLE[:, :2], rtol=1e-5)


def test_what_openml_refuses_is_told_apart_from_no_connection(tiny, monkeypatch):
    monkeypatch.setitem(SETS, "tiny", dataclasses.replace(tiny, origin=OpenML(7)))
    assert "data set 7" in complaint(FileNotFoundError, "tiny")

    def refuse(**_):
        raise ValueError("md5 checksum does not match")

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", refuse)
    assert "md5 checksum" in complaint(CorruptFileError, "tiny")


def test_downloaded_images_are_split_checked_and_kept(pictures, monkeypatch, cache):
    x = np.concatenate([pictures.x_train, pictures.x_test]).reshape(4, 6).astype(np.float64)
    y = np.array(["0", "1", "1", "0"], object)
    answer(monkeypatch, x[::-1].copy(), y)
    assert "sums" in complaint(CorruptFileError, "pictures")
    answer(monkeypatch, x[:, :5].copy(), y)
    assert "4 images of 6 pixels" in complaint(CorruptFileError, "pictures")
    assert not cache.exists()
    answer(monkeypatch, x, y)
    for found, expected in zip(datasets.load("pictures"), pictures, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert [path.name for path in cache.iterdir()] == ["pictures.npz"]


def reviews(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for name, text in members.items():
            content = text.encode()
            entry = tarfile.TarInfo(f"aclImdb/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return Reviews(url=path.as_uri(), checksum=f"md5:{hashlib.md5(path.read_bytes()).hexdigest()}")


def test_downloaded_reviews_are_sorted_by_split_label_and_number(monkeypatch, tmp_path, cache):
    origin = reviews(
        tmp_path / "reviews.tar.gz",
        {
            "README": "about",
            "test/pos/0_10.txt": "f",
            "train/neg/10_4.txt": "b",
            "train/neg/9_1.txt": ODD,
            "train/unsup/0_0.txt": "no label",
            "train/pos/3_7.txt": "c",
            "test/neg/1_1.txt": "d",
            "test/neg/2_2.txt": "e",
            "train/urls_neg.txt": "addresses",
        },
    )
    entry = TextSet(n_train=3, n_test=3, n_classes=2, origin=origin)
    monkeypatch.setitem(SETS, "letters", entry)
    texts = datasets.load("letters")
    assert texts.texts_train == (ODD, "b", "c")
    assert texts.texts_test == ("d", "e", "f")
    assert texts.labels_train.tolist() == texts.labels_test.tolist() == [0, 0, 1]
    assert [path.name for path in cache.iterdir()] == ["letters.csv.gz"]
    (cache / "letters.csv.gz").unlink()
    monkeypatch.setitem(SETS, "letters", dataclasses.replace(entry, n_train=4))
    assert "4 training and 3 test texts" in complaint(CorruptFileError, "letters")
    wrong = dataclasses.replace(origin, checksum="md5:0")
    monkeypatch.setitem(SETS, "letters", dataclasses.replace(entry, origin=wrong))
    assert "md5 checksum" in complaint(CorruptFileError, "letters")
    assert list(cache.iterdir()) == []


def test_a_download_says_so_in_the_log(tmp_path, caplog):
    (tmp_path / "source").write_bytes(b"content")
    with caplog.at_level("INFO", logger=_downloads.__name__):
        download((tmp_path / "source").as_uri(), tmp_path / "file")
    assert "source" in caplog.text


# The real files


@pytest.mark.data
@needs_data
@pytest.mark.parametrize("name", datasets.NAMES)
def test_the_real_file_has_what_the_catalog_says(name):
    found = datasets.load(name, DATA, download=False)
    if isinstance(found, datasets.Table):
        assert (*found.features, found.target) == SETS[name].columns
        assert SETS[name].content.holds(np.column_stack([found.x, found.y]))
    elif isinstance(found, datasets.Images):
        assert tuple(int(array.sum(dtype=np.int64)) for array in found) == SETS[name].sums
    else:
        assert sum("\u0085" in text for text in found.texts_train + found.texts_test) == 681
        assert found.labels_train.sum() == found.labels_test.sum() == 12_500


def letter_target(letters):
    return lambda row: [*row[:-1], letters[int(row[-1])]]


def shifted_target(first):
    return lambda row: [*row[:-1], str(int(row[-1]) + first)]


# How a row of our file stands in the file of the UCI repository, and what separates its cells.
RAW = {
    "airfoil": ("\t", list),
    "yacht": (" ", lambda row: [*row[:2], "", *row[2:]]),  # some rows have two spaces
    "bikesharing": (",", lambda row: [row[0], "2011-01-01", "1", *row[1:12], "3", "13", row[12]]),
    "protein": (",", lambda row: [row[-1], *row[:-1]]),
    "ionosphere": (",", letter_target("bg")),
    "sonar": (",", letter_target("MR")),
    "wine_white": (";", shifted_target(3)),
    "wine_red": (";", shifted_target(3)),
    "australian": (" ", list),
    "heart": (",", list),
    "glass": (",", lambda row: ["1", *row[:-1], "123567"[int(row[-1])]]),
    "covertype8000": (",", shifted_target(1)),
}


@pytest.mark.data
@needs_data
@pytest.mark.parametrize("name", RAW)
def test_the_files_of_the_repository_become_the_real_table(name, publish, cache):
    entry = SETS[name]
    origin, (delimiter, raw) = entry.origin, RAW[name]
    with gzip.open(Path(DATA) / f"{name}.csv.gz", "rt") as file:
        lines = [delimiter.join(raw(line.rstrip("\n").split(","))) + "\n" for line in list(file)[1:]]
    if origin.n_drawn is not None:  # the rows that were not drawn may be anything
        everything = [lines[0]] * 581_012
        for place, line in zip(np.random.default_rng(0).permutation(len(everything)), lines, strict=False):
            everything[place] = line
        lines = everything
    text = "".join(["names\n"] * origin.header + lines).encode()
    publish(**{origin.members[0]: gzip.compress(text, 1) if origin.members[0].endswith(".gz") else text})
    made, real = datasets.load(name), datasets.load(name, DATA)
    np.testing.assert_array_equal(made.x, real.x)
    np.testing.assert_array_equal(made.y, real.y)
    assert made[2:] == real[2:]
    assert [path.name for path in cache.iterdir()] == [f"{name}.csv.gz"]


@pytest.mark.data
@needs_data
def test_the_files_of_the_adult_archive_become_the_real_table(publish):
    with gzip.open(Path(DATA) / "income_raw.csv.gz", "rt") as file:
        rows = [line.rstrip("\n").split(",") for line in list(file)[1:]]
    lines = [", ".join([*row[:-1], ("<=50K", ">50K")[int(row[-1])]]) for row in rows]
    publish(
        adult__data="\n".join([*lines[:32_561], "\n"]),
        adult__test="\n".join(["|1x3 Cross validator", *(f"{line}." for line in lines[32_561:]), "\n"]),
    )
    made, real = datasets.load("income"), datasets.load("income", DATA)
    np.testing.assert_array_equal(made.x, real.x)
    np.testing.assert_array_equal(made.y, real.y)
