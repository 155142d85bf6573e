"""Safetensors files with a checksum inside, read with every size checked before anything is allocated.

The `safetensors` package reads them too. It is not used here because a file may come from anywhere: we want
tighter limits than its own, a checksum over header and data, tensors that stay on disk, and files written as a
stream, so that draws larger than memory can be saved.
"""

import hashlib
import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from mile._errors import CorruptFileError, UntrustedFileError
from mile.storage._durable import write_file
from mile.storage._inside import inside, open_plain

_LARGEST_HEADER = 1 << 20
_MOST_TENSORS = 10_000
_MOST_AXES = 8
_LARGEST_SIZE = 1 << 62
_DTYPES = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "U32": np.dtype("<u4"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_PIECE = 1 << 22  # bytes hashed at a time
_ALIGNMENT = 8


class Tensors(NamedTuple):
    """What such a file holds."""

    arrays: dict[str, np.ndarray]
    metadata: dict[str, Any]


class _Entry(NamedTuple):
    dtype: np.dtype
    shape: tuple[int, ...]
    offset: int

    @property
    def n_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def canonical(value: Any) -> bytes:
    """Return the one JSON text that stands for a value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def parse(text: bytes | str, source: object) -> Any:
    """Read JSON that must be plain data: no repeated names, no NaN or infinity, no depth that exhausts the stack."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise UntrustedFileError(f"{source}: a name occurs twice in one JSON object.")
        return found

    def refuse(constant: str) -> Any:
        raise UntrustedFileError(f"{source}: {constant} is not a number that JSON can hold.")

    def finite(digits: str) -> float:
        return number if math.isfinite(number := float(digits)) else refuse(digits[:20])

    try:
        text = text.decode() if isinstance(text, bytes) else text
        return json.loads(text, object_pairs_hook=unique, parse_constant=refuse, parse_float=finite)
    except UntrustedFileError:
        raise
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"{source}: the header is not readable JSON ({type(error).__name__}).") from error


def write_tensors(path: Path, arrays: Mapping[str, Any], metadata: Mapping[str, Any]) -> str:
    """Write arrays, and metadata that JSON can hold; return the SHA-256 of the file.

    An array may be anything with `shape` and `dtype` that yields contiguous pieces through `pieces()`, such as draws
    on disk.
    """
    # Wide types first keeps each tensor aligned; the draws, which a reader may map, come wherever they fall.
    order = sorted(arrays, key=lambda name: (-np.dtype(arrays[name].dtype).itemsize, name))
    header: dict[str, Any] = {"__metadata__": {"mile": canonical(metadata).decode()}}
    offset = 0
    for name in order:
        array = arrays[name]
        dtype = np.dtype(array.dtype).newbyteorder("<")
        if dtype not in _NAMES:
            raise TypeError(f"{name} has dtype {array.dtype}, which the file format does not know.")
        n_bytes = math.prod(array.shape) * dtype.itemsize
        header[name] = {
            "dtype": _NAMES[dtype],
            "shape": [int(n) for n in array.shape],
            "data_offsets": [offset, offset + n_bytes],
        }
        offset += n_bytes
    digest = hashlib.sha256(canonical(header))
    for name in order:
        for piece in _pieces(arrays[name]):
            digest.update(piece)
    header["__metadata__"]["sha256"] = digest.hexdigest()
    text = _padded(header)
    if len(text) > _LARGEST_HEADER:
        raise ValueError(f"the description of {path.name} takes {len(text):,} bytes; at most {_LARGEST_HEADER:,} fit.")

    def parts() -> Iterator[Any]:
        yield len(text).to_bytes(8, "little")
        yield text
        for name in order:
            yield from _pieces(arrays[name])

    return write_file(path, parts())


def read_tensors(path: Path, *, mapped_above: float = math.inf, within: Path | None = None) -> Tensors:
    """Read a file that `write_tensors` wrote, and nothing else.

    Arrays of more than `mapped_above` bytes stay on disk as read-only memory maps. `within` is the run that the file
    is part of, if it is: no link leads to it then.

    Raises
    ------
    CorruptFileError
        If the file is cut short or altered.
    UntrustedFileError
        If it is not one of ours, or asks for more than its size justifies.
    """
    if within is None and not stat.S_ISREG(path.stat().st_mode):
        raise UntrustedFileError(f"{path} is not a regular file.")
    with path.open("rb") if within is None else open_plain(inside(within, str(path.relative_to(within)))) as file:
        entries, metadata, start = _read_header(file, path)
        arrays = {}
        for name, entry in entries.items():
            where = start + entry.offset
            if entry.n_bytes > mapped_above:
                arrays[name] = np.memmap(path, entry.dtype, "r", where, entry.shape)
            else:
                arrays[name] = np.empty(entry.shape, entry.dtype)
                file.seek(where)
                if file.readinto(arrays[name].reshape(-1).view(np.uint8)) != entry.n_bytes:
                    raise CorruptFileError(f"{path} was cut short while it was read.")
            if entry.dtype == np.bool_ and arrays[name].view(np.uint8).max(initial=0) > 1:
                raise UntrustedFileError(f"{path}: {name} holds bytes that are neither true nor false.")
    return Tensors(arrays, metadata)


def _read_header(file: BinaryIO, path: Path) -> tuple[dict[str, _Entry], dict[str, Any], int]:
    """Check the whole file; return what it holds, its metadata, and where the data begin."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if size < 10 or length > min(size - 8, _LARGEST_HEADER):
        raise UntrustedFileError(
            f"{path} is not a file written by mile: it is {size:,} bytes long and its first 8 bytes announce a header "
            f"of {length:,} (at most {_LARGEST_HEADER:,}, and within the file)."
        )
    text = file.read(length)
    header = parse(text, path)
    metadata = header.pop("__metadata__", None) if isinstance(header, dict) else None
    if not isinstance(metadata, dict) or set(metadata) != {"mile", "sha256"}:
        raise UntrustedFileError(f"{path} is not a file written by mile: it has no metadata of ours.")
    if not all(isinstance(value, str) for value in metadata.values()):
        raise UntrustedFileError(f"{path}: metadata must be text.")
    entries = _read_entries(header, size - 8 - length, path)
    digest = hashlib.sha256(canonical(header | {"__metadata__": {"mile": metadata["mile"]}}))
    if text != _padded(header | {"__metadata__": metadata}):
        raise CorruptFileError(f"{path}: the header was altered.")
    while piece := file.read(_PIECE):
        digest.update(piece)
    if digest.hexdigest() != metadata["sha256"]:
        raise CorruptFileError(f"{path}: the checksum does not match; the file was altered after it was written.")
    described = parse(metadata["mile"], path)
    if not isinstance(described, dict):
        raise UntrustedFileError(f"{path}: metadata must be a JSON object.")
    return entries, described, 8 + length


def _read_entries(header: dict[str, Any], n_data: int, path: Path) -> dict[str, _Entry]:
    if len(header) > _MOST_TENSORS:
        raise UntrustedFileError(f"{path}: {len(header):,} tensors; at most {_MOST_TENSORS:,} are allowed.")
    entries = {}
    for name, entry in header.items():
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise UntrustedFileError(f"{path}: tensor {name!r} must have dtype, shape and data_offsets.")
        shape, offsets = entry["shape"], entry["data_offsets"]
        if not isinstance(entry["dtype"], str) or entry["dtype"] not in _DTYPES:
            raise UntrustedFileError(f"{path}: tensor {name!r} has the unknown dtype {str(entry['dtype'])[:40]!r}.")
        if not _are_sizes(shape) or not _are_sizes(offsets) or len(shape) > _MOST_AXES or len(offsets) != 2:
            raise UntrustedFileError(f"{path}: tensor {name!r} has an impossible shape or place.")
        made = _Entry(_DTYPES[entry["dtype"]], tuple(shape), offsets[0])
        # numpy multiplies the axes of an empty array too, without those that are zero.
        if math.prod(max(size, 1) for size in shape) * made.dtype.itemsize >= _LARGEST_SIZE:
            raise UntrustedFileError(f"{path}: tensor {name!r} has an impossible shape.")
        if made.offset % made.dtype.itemsize:
            raise UntrustedFileError(f"{path}: tensor {name!r} is not aligned.")
        if offsets[1] - offsets[0] != made.n_bytes or offsets[1] > n_data:
            raise CorruptFileError(
                f"{path}: tensor {name!r} needs {made.n_bytes:,} bytes at {offsets[0]:,}, but the file gives it "
                f"{min(offsets[1], n_data) - offsets[0]:,}; it was cut short or altered."
            )
        entries[name] = made
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].offset, item[1].n_bytes)):
        if entry.offset != end:
            raise UntrustedFileError(f"{path}: tensor {name!r} overlaps its neighbor or leaves a gap.")
        end = entry.offset + entry.n_bytes
    if end != n_data:
        raise CorruptFileError(f"{path}: {n_data:,} bytes of data where {end:,} belong.")
    return entries


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < _LARGEST_SIZE for value in values)


def _padded(header: Mapping[str, Any]) -> bytes:
    text = canonical(header)
    return text + b" " * (-(8 + len(text)) % _ALIGNMENT)


def _pieces(array: Any) -> Iterator[Any]:
    if hasattr(array, "pieces"):
        yield from array.pieces()
    else:
        yield np.ascontiguousarray(array, np.dtype(array.dtype).newbyteorder("<")).reshape(-1).view(np.uint8)
