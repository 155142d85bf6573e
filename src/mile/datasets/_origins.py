"""Where data sets are published: what each place sends becomes a table, images or texts in our form."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from mile._errors import CorruptFileError
from mile.storage import downloaded, read_members, read_packed_lines

if TYPE_CHECKING:
    from sklearn.utils import Bunch

# Relative difference allowed between column means: copies of a table are rounded to three digits and more.
_ROUNDING = 1e-4


@dataclass(frozen=True)
class Exactly:
    """The SHA-256 of a table as little-endian float64, row by row."""

    sha256: str

    def holds(self, table: np.ndarray) -> bool:
        """Say whether this is the table, to the last bit."""
        return hashlib.sha256(table.astype("<f8").tobytes()).hexdigest() == self.sha256


@dataclass(frozen=True)
class Closely:
    """The column means of a table whose copies differ by rounding."""

    means: tuple[float, ...]

    def holds(self, table: np.ndarray) -> bool:
        """Say whether the columns are the same up to rounding."""
        return table.shape[1] == len(self.means) and np.allclose(table.mean(axis=0), self.means, rtol=_ROUNDING, atol=0)


@dataclass(frozen=True)
class OpenML:
    """A data set of openml.org; scikit-learn compares it with the checksum that OpenML gives."""

    data_id: int

    def fetch(self, folder: Path) -> np.ndarray:
        """Return the columns, target last.

        Raises
        ------
        ConnectionError
            If OpenML cannot be reached.
        CorruptFileError
            If it sends something else than a table of numbers with the right checksum.
        """
        x, y = self.fetch_pair()
        return np.column_stack([x, y])

    def fetch_pair(self) -> tuple[np.ndarray, np.ndarray]:
        """Return features and target apart; see `fetch`."""
        from sklearn.datasets import fetch_openml  # a second that only a download has to wait

        try:
            # This parser needs no pandas, and gives the same arrays on every machine.
            found = cast("Bunch", fetch_openml(data_id=self.data_id, as_frame=False, parser="liac-arff", cache=False))
            x = found.data
            for index, name in enumerate(found.feature_names):
                if name in (found.categories or {}):  # sent as codes; the categories are numbers
                    x[:, index] = np.array(found.categories[name], np.float64)[x[:, index].astype(int)]
            return x, found.target.astype(np.float64)
        except OSError as error:
            raise ConnectionError(f"Could not download data set {self.data_id} from OpenML: {error}") from error
        except ValueError as error:
            raise CorruptFileError(f"Data set {self.data_id} of OpenML cannot be used: {error}") from error


@dataclass(frozen=True, kw_only=True)
class Uci:
    """An archive of the UCI Machine Learning Repository, and how its files become a table.

    Columns of text become codes in alphabetical order, and so do classes, whether text or numbers.
    """

    archive: str  # number and name on archive.ics.uci.edu
    members: tuple[str, ...]
    delimiter: str | None = ","  # None: white space
    header: bool = False
    columns: tuple[int, ...] | None = None  # those kept, target last; all by default
    classes: bool = True
    question_mark: str = "?"  # what to read in the place of a question mark
    n_drawn: int | None = None  # rows drawn without replacement, with seed 0; all by default

    @property
    def url(self) -> str:
        """The address of the archive."""
        return f"https://archive.ics.uci.edu/static/public/{self.archive}.zip"

    def fetch(self, folder: Path) -> np.ndarray:
        """Return the columns, target last; the archive is in `folder` for as long as it is read.

        Raises
        ------
        ConnectionError
            If the repository cannot be reached.
        CorruptFileError
            If the archive is not what it should be.
        """
        with downloaded(self.url, folder / f"{self.archive.replace('/', '-')}.zip") as path:
            lines = [line for member in self.members for line in self._data_lines(read_packed_lines(path, member))]
        if self.n_drawn is not None:
            lines = [lines[row] for row in np.random.default_rng(0).permutation(len(lines))[: self.n_drawn]]
        rows = [self._cells(line) for line in lines]
        width = max(map(len, rows), default=0)
        cells = np.array([row for row in rows if len(row) == width])  # adult.test begins with a remark
        if cells.size == 0:
            raise CorruptFileError(f"{self.url} has no rows in {', '.join(self.members)}.")
        kept = self.columns or tuple(range(width))
        if max(kept) >= width:
            raise CorruptFileError(f"{self.url} has {width} columns where {max(kept) + 1} or more were expected.")
        table = np.column_stack([_numbers(cells[:, column]) for column in kept])
        if self.classes:
            table[:, -1] = np.unique(table[:, -1], return_inverse=True)[1]
        return table

    def _data_lines(self, lines: list[str]) -> list[str]:
        return [line for line in lines[self.header :] if line.strip()]

    def _cells(self, line: str) -> list[str]:
        # The classes in adult.test end with a period; behind a number one says nothing.
        cells = [cell.strip().rstrip(".") for cell in line.split(self.delimiter)]
        return [self.question_mark if cell == "?" else cell for cell in cells]


@dataclass(frozen=True, kw_only=True)
class Reviews:
    """The archive of the Large Movie Review Dataset: one file per review, in a folder per split and label."""

    url: str
    checksum: str

    def fetch(self, folder: Path) -> list[tuple[str, int, str]]:
        """Return split, label and text of each review: training before test, negative before positive, then by number.

        Raises
        ------
        ConnectionError
            If the server cannot be reached.
        CorruptFileError
            If the archive has another checksum or cannot be read.
        """
        found = {}
        with downloaded(self.url, folder / "reviews.tar.gz", self.checksum) as path:
            for name, content in read_members(path, lambda name: _REVIEW.search(name) is not None):
                split, label, number = _REVIEW.search(name).groups()  # pyright: ignore[reportOptionalMemberAccess]
                found[split != "train", label == "pos", int(number)] = split, int(label == "pos"), content.decode()
        return [found[place] for place in sorted(found)]


_REVIEW = re.compile(r"(train|test)/(neg|pos)/(\d+)_\d+\.txt$")  # 1234_7.txt: number, and stars given


def _numbers(cells: np.ndarray) -> np.ndarray:
    try:
        return cells.astype(np.float64)
    except ValueError:
        return np.unique(cells, return_inverse=True)[1].astype(np.float64)
