"""The three kinds of data sets: what their files must look like, what they are read as, how a download becomes one."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt8

from mile._errors import CorruptFileError
from mile.datasets._origins import Closely, Exactly, OpenML, Reviews, Uci
from mile.storage import read_arrays, read_table, write_arrays, write_table

_MOST_CLASSES = 12  # listed in a message


class Table(NamedTuple):
    """A table of raw numbers, rows in the order of the source, without a split."""

    x: Float[np.ndarray, "row feature"]
    y: Float[np.ndarray, "row"] | Int[np.ndarray, "row"]  # classes are integers from 0
    features: tuple[str, ...]
    target: str
    task: Literal["regression", "classification"]


class Images(NamedTuple):
    """Gray images from 0 to 255 with their classes, in the split of the source."""

    x_train: UInt8[np.ndarray, "row height width"]
    y_train: UInt8[np.ndarray, "row"]
    x_test: UInt8[np.ndarray, "row height width"]
    y_test: UInt8[np.ndarray, "row"]


class Texts(NamedTuple):
    """Texts with their classes, in the split of the source and sorted by class: shuffle before taking a part."""

    texts_train: tuple[str, ...]
    labels_train: Int[np.ndarray, "row"]
    texts_test: tuple[str, ...]
    labels_test: Int[np.ndarray, "row"]


@dataclass(frozen=True, kw_only=True)
class TableSet:
    """A table; its file is NAME.csv.gz with a header and the target in the last column."""

    suffix: ClassVar[str] = ".csv.gz"
    columns: tuple[str, ...]  # target last
    n_rows: int
    n_classes: int | None = None  # None: regression
    origin: OpenML | Uci
    content: Exactly | Closely  # what is checked of a download

    def read(self, path: Path) -> Table:
        """Read the file.

        Raises
        ------
        ValueError
            If it is not a table of this many rows and columns with this target.
        """
        table = read_table(path)
        *features, target = table.columns
        if (len(table), len(table.columns)) != (self.n_rows, len(self.columns)):
            found = f"{len(table):,} rows and {len(table.columns)}"
            raise _unlike(path, f"{self.n_rows:,} rows and {len(self.columns)} columns, target last", found)
        if target != self.columns[-1]:
            raise _unlike(path, f"the target {self.columns[-1]!r} in the last column", repr(target))
        x, y = table.matrix(features), table.matrix([target])[:, 0]
        if self.n_classes is None:
            return Table(x, y, tuple(features), target, "regression")
        classes = np.unique(y)
        if not np.array_equal(classes, np.arange(self.n_classes)):
            raise _unlike(path, f"the classes 0 to {self.n_classes - 1}", _listed(classes))
        return Table(x, y.astype(np.int64), tuple(features), target, "classification")

    def make(self, path: Path) -> None:
        """Download the table and write the file.

        Raises
        ------
        ConnectionError
            If the origin cannot be reached.
        CorruptFileError
            If it sends another table.
        """
        table = self.origin.fetch(path.parent)
        if table.shape != (self.n_rows, len(self.columns)) or not self.content.holds(table):
            found = f"{len(table):,} rows and {table.shape[1]} columns"
            expected = f"{self.n_rows:,} rows and {len(self.columns)} columns"
            raise _another(path, expected, found if found != expected else f"{found} with other values")
        write_table(path, {name: _whole(column) for name, column in zip(self.columns, table.T, strict=True)})


@dataclass(frozen=True, kw_only=True)
class ImageSet:
    """Images; their file is NAME.npz with the fields of `Images`."""

    suffix: ClassVar[str] = ".npz"
    n_train: int
    n_test: int
    shape: tuple[int, int]
    n_classes: int
    origin: OpenML
    sums: tuple[int, int, int, int]  # of the fields of `Images`; checked of a download

    def read(self, path: Path) -> Images:
        """Read the file.

        Raises
        ------
        ValueError
            If an array is missing or has another shape or type, or a class is out of range.
        """
        arrays = read_arrays(path)
        expected = {
            name: (n_rows, *shape)
            for n_rows, part in ((self.n_train, "train"), (self.n_test, "test"))
            for name, shape in ((f"x_{part}", self.shape), (f"y_{part}", ()))
        }
        for name, shape in expected.items():
            array = arrays.get(name)
            if array is None or array.shape != shape or array.dtype != np.uint8:
                found = "no such array" if array is None else f"shape {array.shape} of {array.dtype}"
                raise _unlike(path, f"an array {name!r} with shape {shape} of uint8", found)
        images = Images(*(arrays[name] for name in Images._fields))
        largest = int(max(images.y_train.max(), images.y_test.max()))
        if largest >= self.n_classes:
            raise _unlike(path, f"classes from 0 to {self.n_classes - 1}", str(largest))
        return images

    def make(self, path: Path) -> None:
        """Download the images and write the file; see `TableSet.make`."""
        x, y = self.origin.fetch_pair()
        n_rows = self.n_train + self.n_test
        if x.shape != (n_rows, int(np.prod(self.shape))) or y.shape != (n_rows,):
            expected = f"{n_rows:,} images of {np.prod(self.shape)} pixels"
            raise _another(path, expected, f"arrays of shape {x.shape} and {y.shape}")
        x, y = x.astype(np.uint8).reshape(n_rows, *self.shape), y.astype(np.uint8)
        n = self.n_train
        images = Images(x[:n], y[:n], x[n:], y[n:])
        sums = tuple(int(array.sum(dtype=np.int64)) for array in images)
        if sums != self.sums:
            raise _another(path, f"arrays whose sums are {self.sums}", str(sums))
        write_arrays(path, images._asdict())


@dataclass(frozen=True, kw_only=True)
class TextSet:
    """Texts; their file is NAME.csv.gz with columns label, text and split, which is `train` or `test`."""

    suffix: ClassVar[str] = ".csv.gz"
    n_train: int
    n_test: int
    n_classes: int
    origin: Reviews

    def read(self, path: Path) -> Texts:
        """Read the file.

        Raises
        ------
        ValueError
            If a column is missing, or the splits or labels are others.
        """
        table = read_table(path, ["label", "text", "split"])
        labels, texts, splits = table.arrays
        train, test = splits == "train", splits == "test"
        if (train.sum(), test.sum(), len(table)) != (self.n_train, self.n_test, self.n_train + self.n_test):
            found = f"{train.sum():,} and {test.sum():,} in {len(table):,} rows"
            raise _unlike(path, f"{self.n_train:,} rows with split 'train' and {self.n_test:,} with 'test'", found)
        classes = np.unique(table.matrix(["label"]))
        if not np.array_equal(classes, np.arange(self.n_classes)):
            raise _unlike(path, f"the labels 0 to {self.n_classes - 1}", _listed(classes))
        labels = labels.astype(np.int64)
        texts = np.array([text or "" for text in texts], object)
        return Texts(tuple(texts[train]), labels[train], tuple(texts[test]), labels[test])

    def make(self, path: Path) -> None:
        """Download the texts and write the file; see `TableSet.make`."""
        rows = self.origin.fetch(path.parent)
        counts = [sum(row[0] == split for row in rows) for split in ("train", "test")]
        if counts != [self.n_train, self.n_test]:
            expected = f"{self.n_train:,} training and {self.n_test:,} test texts"
            raise _another(path, expected, f"{counts[0]:,} and {counts[1]:,}")
        splits, labels, texts = zip(*rows, strict=True)
        columns = {"label": np.array(labels), "text": np.array(texts, object), "split": np.array(splits, object)}
        write_table(path, columns, keep_formulas=True)


def _whole(column: np.ndarray) -> np.ndarray:
    """Return whole numbers as integers, so that they are written without a decimal point."""
    whole = column.astype(np.int64)
    return whole if np.array_equal(whole, column) else column


def _listed(classes: np.ndarray) -> str:
    """Name the first few classes that were found."""
    return ", ".join(f"{value:g}" for value in classes[:_MOST_CLASSES]) + (", ..." * (len(classes) > _MOST_CLASSES))


def _unlike(path: Path, expected: str, found: str) -> ValueError:
    """Say how a file differs from what it should be."""
    return ValueError(
        f"{path} should have {expected}; found {found}. Replace the file, or remove it so that the next place is tried."
    )


def _another(path: Path, expected: str, found: str) -> CorruptFileError:
    """Say how a download differs from what it should be."""
    return CorruptFileError(
        f"What was downloaded for {path.name} is not the data set of the paper: expected {expected}, found {found}. "
        f"Nothing was kept: put a file {path.name} into a folder and name that folder with data_dir or the variable "
        "MILE_DATA."
    )
