"""Tables as users keep them: CSV, Parquet and NPZ files become named columns, and predictions become such files."""

import contextlib
import gzip
import io
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from mile.storage._durable import sync_folders, write_file
from mile.storage._table import LARGEST_EXACT, Table, choose
from mile.storage._table_text import read_text

if TYPE_CHECKING:
    from pyarrow import ChunkedArray  # pyright: ignore[reportMissingImports]

Choice = TypeVar("Choice")
_QUOTED = frozenset(',;\t"\r\n')  # any delimiter that a reader may look for


def read_table(path: Path, columns: Sequence[str] | None = None) -> Table:
    """Read a file by its suffix: .csv, .csv.gz, .tsv, .txt, .parquet or .npz.

    Parameters
    ----------
    path
        A text file has a header, UTF-8, and commas, semicolons or tabs; a Parquet file needs pyarrow. An NPZ file has
        one-dimensional arrays of one length, and perhaps a matrix `X` with `feature_names`.
    columns
        The columns to return, in this order; all of them by default.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is not such a table; the message says where.
    """
    with _explained(path):
        if path.is_dir():
            raise ValueError(f"{path} is a folder, not a table: name a file in it.")
        if not path.is_file():
            raise FileNotFoundError(f"There is no file {path}.")
        table = _by_suffix(path, _READERS, "read")(path, columns)
    if not len(table):
        raise ValueError(f"{path} has column names but no rows.")
    return table


def write_table(path: Path, columns: Mapping[str, np.ndarray]) -> None:
    """Write a file by its suffix, .csv, .csv.gz or .parquet; it appears whole or not at all.

    Raises
    ------
    ValueError
        If the suffix is another one, or the columns differ in length.
    StorageError
        If the system refuses.
    """
    write_file(path, _by_suffix(path, _WRITERS, "written")(path, columns))
    sync_folders([path], path.parent)


def csv_lines(columns: Mapping[str, np.ndarray]) -> Iterator[str]:
    """Yield the header and the rows as CSV, without line ends; floats keep all their digits, missing cells are empty.

    Raises
    ------
    ValueError
        If the columns differ in length.
    """
    arrays = _aligned(columns)
    yield ",".join(map(_quoted, arrays))
    for row in zip(*map(_cells, arrays.values()), strict=True):
        yield ",".join(row) or '""'  # a blank line would be no row


def _by_suffix(path: Path, choices: Mapping[str, Choice], verb: str) -> Choice:
    for suffix, choice in choices.items():
        if path.name.lower().endswith(suffix):
            return choice
    raise ValueError(f"{path} cannot be {verb}: the name of a table must end in {', '.join(choices)}.")


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Say in one sentence why a file cannot be read."""
    try:
        yield
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not text in UTF-8; save the table as CSV in UTF-8.") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is damaged: it is not a whole gzip file.") from error
    except OSError as error:
        if error.errno is None:  # our own
            raise
        raise type(error)(f"Could not read {path}: {error.strerror}.") from error


def _read_parquet(path: Path, columns: Sequence[str] | None) -> Table:
    pyarrow, parquet = _import_arrow(path, "Reading")
    with path.open("rb") as file:
        try:
            opened = parquet.ParquetFile(file)
            chosen = choose(opened.schema_arrow.names, columns, path)
            table = opened.read(columns=chosen)
        except (pyarrow.ArrowException, OSError) as error:
            raise ValueError(f"{path} is not a whole Parquet file: {' '.join(str(error).split())}") from error
        return Table(tuple(chosen), tuple(_from_arrow(pyarrow, table[name], name, path) for name in chosen), path.name)


def _from_arrow(pyarrow: ModuleType, column: "ChunkedArray", name: str, path: Path) -> np.ndarray:
    """Return numbers and booleans as numbers, all else (categories and dates too) as text."""
    kind, types = column.type, pyarrow.types
    tests = (types.is_boolean, types.is_floating, types.is_decimal, types.is_null)
    try:
        if types.is_integer(kind):
            return _from_integers(pyarrow, column)
        if any(test(kind) for test in tests):
            return column.cast(pyarrow.float64(), safe=False).to_numpy()
        plain = column.cast(kind.value_type) if types.is_dictionary(kind) else column
        return np.array(plain.cast(pyarrow.string()).to_pylist(), object)
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path}: column {name!r} has type {kind}, which is neither numbers nor text.") from error


def _from_integers(pyarrow: ModuleType, column: "ChunkedArray") -> np.ndarray:
    """Return whole numbers as floats if these are the same, else as integers, or as text if cells are missing."""
    try:
        return column.cast(pyarrow.float64()).to_numpy()
    except pyarrow.ArrowInvalid:
        return column.to_numpy() if not column.null_count else np.array(column.cast("string").to_pylist(), object)


def _import_arrow(path: Path, verb: str) -> tuple[ModuleType, ModuleType]:
    try:
        import pyarrow  # pyright: ignore[reportMissingImports]
        import pyarrow.parquet  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ValueError(
            f"{verb} {path} needs pyarrow: pip install 'mile-bnn[tables]', or save the table as CSV."
        ) from None
    return pyarrow, pyarrow.parquet


def _read_npz(path: Path, columns: Sequence[str] | None) -> Table:
    arrays = _read_arrays(path)
    named = list(arrays.items())
    if "X" in arrays and arrays["X"].ndim == 2:
        features = arrays.pop("X").T
        names = arrays.pop("feature_names", np.array([f"x{index}" for index in range(len(features))]))
        if names.dtype.kind != "U" or names.shape != (len(features),):
            raise ValueError(f"{path}: feature_names must be {len(features)} texts, one for each column of X.")
        named = [*zip(names.tolist(), features, strict=True), *arrays.items()]
    for name, array in named:
        if array.ndim != 1 or len(array) != len(named[0][1]) or array.dtype.kind not in "biufU":
            raise ValueError(
                f"{path}: array {name!r} has shape {array.shape} and dtype {array.dtype}. Besides a matrix X, a table "
                "is one-dimensional arrays of numbers or text, all of one length."
            )
    chosen = choose([name for name, _ in named], columns, path)
    found = dict(named)
    return Table(tuple(chosen), tuple(_from_numpy(found[name]) for name in chosen), path.name)


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of an NPZ file; numpy refuses by default those that would run code."""
    arrays, name = {}, ""
    with path.open("rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                for name in archive.namelist():
                    with archive.open(name) as member:
                        arrays[name.removesuffix(".npy")] = np.lib.format.read_array(member)
        # OSError: the system refuses to go to a place that a damaged directory names.
        except (ValueError, EOFError, OSError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
            part = f": {name!r} holds Python objects or is damaged" if name else ""
            raise ValueError(f"{path} is not an NPZ file of plain arrays{part}.") from error
    return arrays


def _from_numpy(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "U":
        return np.array([cell or None for cell in array.tolist()], object)
    values = array.astype(np.float64)
    is_rounded = array.dtype.kind in "iu" and (np.abs(values) >= LARGEST_EXACT).any()
    return array if is_rounded else values


def _aligned(columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    arrays = {name: np.asarray(values) for name, values in columns.items()}
    shapes = {name: array.shape for name, array in arrays.items()}
    if len(set(shapes.values())) != 1 or any(len(shape) != 1 for shape in shapes.values()):
        raise ValueError(f"The columns of a table must be one-dimensional and of one length; they have {shapes}.")
    return arrays


def _cells(array: np.ndarray) -> list[str]:
    """Return the cells of a column as they stand in a CSV file."""
    if array.dtype.kind == "f":
        return ["" if value != value else repr(value) for value in array.astype(np.float64).tolist()]
    if array.dtype.kind in "biu":
        return [str(int(value)) for value in array.tolist()]
    return ["" if text is None else _quoted(text) for text in _texts(array)]


def _texts(array: np.ndarray) -> list[str | None]:
    return [None if value is None or value != value else str(value) for value in array.tolist()]


def _quoted(text: str) -> str:
    return text if _QUOTED.isdisjoint(text) else '"' + text.replace('"', '""') + '"'


def _csv_parts(path: Path, columns: Mapping[str, np.ndarray]) -> Iterator[bytes]:
    return (f"{line}\n".encode() for line in csv_lines(columns))


def _gzip_parts(path: Path, columns: Mapping[str, np.ndarray]) -> Iterator[bytes]:
    packer = zlib.compressobj(wbits=31)  # with the header and trailer of gzip, and no time in them
    for part in _csv_parts(path, columns):
        yield packer.compress(part)
    yield packer.flush()


def _parquet_parts(path: Path, columns: Mapping[str, np.ndarray]) -> Iterator[bytes]:
    pyarrow, parquet = _import_arrow(path, "Writing")
    arrays = {
        name: pyarrow.array(array) if array.dtype.kind in "biuf" else pyarrow.array(_texts(array), pyarrow.string())
        for name, array in _aligned(columns).items()
    }
    sink = io.BytesIO()
    parquet.write_table(pyarrow.table(arrays), sink)
    yield sink.getvalue()


_READERS = {
    **dict.fromkeys([".csv", ".csv.gz", ".tsv", ".txt"], read_text),
    ".parquet": _read_parquet,
    ".npz": _read_npz,
}
_WRITERS = {".csv": _csv_parts, ".csv.gz": _gzip_parts, ".parquet": _parquet_parts}
