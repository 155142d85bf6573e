"""The readers of Arrow's files, Parquet and Feather."""

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from mile.storage._table import Table, choose
from mile.storage._unpacking import ReadOptions

if TYPE_CHECKING:
    from pyarrow import ChunkedArray  # pyright: ignore[reportMissingImports]

_CELL_BYTES = 8  # at least, of a cell in memory


def read_parquet(path: Path, columns: Sequence[str] | None, options: ReadOptions) -> Table:
    """Read a Parquet file."""
    pyarrow = import_arrow(path, "Reading")
    import pyarrow.parquet as parquet  # pyright: ignore[reportMissingImports]

    with path.open("rb") as file:
        try:
            opened = parquet.ParquetFile(file)
            chosen = choose(opened.schema_arrow.names, columns, path)
            options.refuse_large(path, _CELL_BYTES * opened.metadata.num_rows * len(chosen))
            table = opened.read(columns=chosen)
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is not a whole Parquet file: {' '.join(str(error).split())}") from error
        return Table(tuple(chosen), tuple(_from_arrow(pyarrow, table[name], name, path) for name in chosen), path.name)


def read_feather(path: Path, columns: Sequence[str] | None, options: ReadOptions) -> Table:
    """Read a file of Arrow's own format, with or without a directory at its end."""
    pyarrow = import_arrow(path, "Reading")
    import pyarrow.ipc as ipc  # pyright: ignore[reportMissingImports]

    try:
        with path.open("rb") as file:
            is_stream = file.read(len(_MAGIC)) != _MAGIC
            file.seek(0)
            opened = (ipc.open_stream if is_stream else ipc.open_file)(file)
            chosen = choose(opened.schema.names, columns, path)
            batches, n_bytes = [], 0
            for batch in opened if is_stream else map(opened.get_batch, range(opened.num_record_batches)):
                n_bytes += batch.nbytes
                options.refuse_large(path, n_bytes)
                batches.append(batch)
            table = pyarrow.Table.from_batches(batches, opened.schema)
            table.validate(full=True)  # places of texts that lie outside would be read
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a whole Feather file: {' '.join(str(error).split())}") from error
    return Table(tuple(chosen), tuple(_from_arrow(pyarrow, table[name], name, path) for name in chosen), path.name)


_MAGIC = b"ARROW1"  # of a file with a directory


def import_arrow(path: Path, verb: str) -> ModuleType:
    """Return pyarrow.

    Raises
    ------
    ValueError
        If it is not installed.
    """
    try:
        import pyarrow  # pyright: ignore[reportMissingImports]
        import pyarrow.parquet  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ValueError(
            f"{verb} {path} needs pyarrow: pip install 'mile-bnn[tables]', or save the table as CSV."
        ) from None
    return pyarrow


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
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: column {name!r} has type {kind}, which is neither numbers nor text.") from error


def _from_integers(pyarrow: ModuleType, column: "ChunkedArray") -> np.ndarray:
    """Return whole numbers as floats if these are the same, else as integers, or as text if cells are missing."""
    try:
        return column.cast(pyarrow.float64()).to_numpy()
    except pyarrow.ArrowInvalid:
        return column.to_numpy() if not column.null_count else np.array(column.cast("string").to_pylist(), object)
