"""The reader of NPZ files: arrays by name."""

import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np

from mile.storage._cells import LARGEST_EXACT
from mile.storage._table import Table, choose
from mile.storage._unpacking import DEFAULT, ReadOptions


def read_npz(path: Path, columns: Sequence[str] | None, options: ReadOptions) -> Table:
    """Read arrays of one length as columns, and a matrix X as columns of its own."""
    arrays = read_npz_arrays(path, options)
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


def read_npz_arrays(path: Path, options: ReadOptions = DEFAULT) -> dict[str, np.ndarray]:
    """Return the arrays of an NPZ file; numpy refuses by default those that would run code."""
    arrays: dict[str, np.ndarray] = {}
    name = ""
    with path.open("rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                members = archive.infolist()
                sizes = {member.filename: member.file_size for member in members}
                names = {name.removesuffix(".npy") for name in sizes}
                too_large = sum(member.file_size for member in members)
                if len(names) == len(members) and too_large <= options.limit(path):
                    for name, size in sizes.items():
                        with archive.open(name) as member:
                            arrays[name.removesuffix(".npy")] = _read_array(member, size)
        # OSError: the system refuses to go to a place that a damaged directory names.
        except (ValueError, EOFError, OSError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
            part = f": {name!r} holds Python objects or is damaged" if name else ""
            raise ValueError(f"{path} is not an NPZ file of plain arrays{part}.") from error
    options.refuse_large(path, too_large)
    if len(names) < len(members):
        raise ValueError(f"{path} has two arrays of one name; write it again.")
    return arrays


def _read_array(member: IO[bytes], size: int) -> np.ndarray:
    """Read an array whose header must not claim more than its member holds, because numpy would allocate all of it."""
    version = np.lib.format.read_magic(member)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        shape, _, dtype = header(member)
    except (SyntaxError, tokenize.TokenError, TypeError, RecursionError) as error:  # numpy reads it as Python
        raise ValueError("The header cannot be read.") from error
    if dtype.itemsize * int(np.prod(shape, dtype=object)) > size:
        raise ValueError("The header promises more than there is.")
    member.seek(0)
    return np.lib.format.read_array(member)


def _from_numpy(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "U":
        return np.array([cell or None for cell in array.tolist()], object)
    values = array.astype(np.float64)
    is_rounded = array.dtype.kind in "iu" and (np.abs(values) >= LARGEST_EXACT).any()
    return array if is_rounded else values
