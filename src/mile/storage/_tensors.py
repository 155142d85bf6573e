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
from typing import BinaryIO, NamedTuple, NoReturn, Protocol, runtime_checkable

import numpy as np

from mile._errors import CorruptFileError, UntrustedFileError
from mile._json import Json
from mile._schema import HasShape, require
from mile.storage._durable import Bytes, write_file
from mile.storage._inside import inside, open_plain
from mile.storage._mapped import MappedTensor, Stamp
from mile.storage.schema import METADATA, SIGNATURE, TENSOR_TYPES, Entry, read_entries

_LARGEST_HEADER = 1 << 20
_NAMES = {dtype: name for name, dtype in TENSOR_TYPES.items()}
_METADATA = "__metadata__"  # what the format calls the entry that is no tensor
_PIECE = 1 << 22  # bytes hashed at a time
_ALIGNMENT = 8


@runtime_checkable
class InPieces(Protocol):
    """An array that need not be in memory."""

    def pieces(self) -> Iterator[np.ndarray]:
        """Yield its bytes in order."""
        ...


class Tensors(NamedTuple):
    """What such a file holds."""

    arrays: dict[str, np.ndarray]
    metadata: dict[str, Json]


def canonical(value: object) -> bytes:
    """Return the one JSON text that stands for a value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def parse(text: bytes | str, source: object) -> Json:
    """Read JSON that must be plain data: no repeated names, no NaN or infinity, no depth that exhausts the stack."""

    def unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
        found = dict(pairs)
        require(len(found) == len(pairs), "a name occurs twice in one JSON object.", source)
        return found

    def refuse(constant: str) -> NoReturn:
        raise UntrustedFileError(f"{source}: {constant} is not a number that JSON can hold.")

    def finite(digits: str) -> float:
        return number if math.isfinite(number := float(digits)) else refuse(digits[:20])

    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=refuse, parse_float=finite)
    except UntrustedFileError:
        raise
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"{source}: the header is not readable JSON ({type(error).__name__}).") from error


def write_tensors(path: Path, arrays: Mapping[str, HasShape], metadata: Mapping[str, object]) -> str:
    """Write arrays, and metadata that JSON can hold; return the SHA-256 of the file.

    Draws on disk are written as they are read, so they may be larger than memory.
    """
    # Wide types come first, which keeps each tensor aligned.
    order = sorted(arrays, key=lambda name: (-np.dtype(arrays[name].dtype).itemsize, name))
    signature = {"mile": canonical(metadata).decode()}
    header: dict[str, object] = {_METADATA: signature}
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
    signature["sha256"] = digest.hexdigest()
    text = _padded(header)
    if len(text) > _LARGEST_HEADER:
        raise ValueError(f"the description of {path.name} takes {len(text):,} bytes; at most {_LARGEST_HEADER:,} fit.")

    def parts() -> Iterator[Bytes]:
        yield len(text).to_bytes(8, "little")
        yield text
        for name in order:
            yield from _pieces(arrays[name])

    return write_file(path, parts())


def read_tensors(path: Path, *, mapped_above: float = math.inf, within: Path | None = None) -> Tensors:
    """Read a file that `write_tensors` wrote; refuse any other.

    Arrays of more than `mapped_above` bytes stay on disk as read-only maps that notice when the file changes. `within`
    is the run that the file belongs to; no link is followed there.

    Raises
    ------
    CorruptFileError
        If the file is cut short or altered.
    UntrustedFileError
        If it is not one of ours, or asks for more than its size justifies.
    """
    if within is None and not stat.S_ISREG(path.stat().st_mode):
        raise UntrustedFileError(f"{path}: not a regular file.")
    with path.open("rb") if within is None else open_plain(inside(within, str(path.relative_to(within)))) as file:
        stamp = Stamp.of(os.fstat(file.fileno()))
        entries, metadata, start = _read_header(file, path)
        arrays = {}
        for name, entry in entries.items():
            where, dtype = start + entry.data_offsets[0], entry.numpy_type
            if entry.n_bytes > mapped_above:
                arrays[name] = MappedTensor.of(path, stamp, dtype, where, entry.shape)
            else:
                arrays[name] = np.empty(entry.shape, dtype)
                file.seek(where)
                if file.readinto(arrays[name].reshape(-1).view(np.uint8)) != entry.n_bytes:
                    raise CorruptFileError(f"{path} was cut short while it was read.")
            if dtype == np.bool_:
                largest = arrays[name].view(np.uint8).max(initial=0)
                require(largest <= 1, f"{name} holds bytes that are neither true nor false.", path)
    return Tensors(arrays, metadata)


def _read_header(file: BinaryIO, path: Path) -> tuple[dict[str, Entry], dict[str, Json], int]:
    """Check the whole file; return what it holds, its metadata, and where the data begin."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    require(
        size >= 10 and length <= min(size - 8, _LARGEST_HEADER),
        f"not a file written by mile: it is {size:,} bytes long and its first 8 bytes announce a header of {length:,} "
        f"(at most {_LARGEST_HEADER:,}, and within the file).",
        path,
    )
    text = file.read(length)
    header = METADATA.read(parse(text, path), path)
    signature = SIGNATURE.read(header.pop(_METADATA, None), path, (_METADATA,))
    entries = read_entries(header, size - 8 - length, path)
    digest = hashlib.sha256(canonical(header | {_METADATA: {"mile": signature.mile}}))
    if text != _padded(header | {_METADATA: signature._asdict()}):
        raise CorruptFileError(f"{path}: the header was altered.")
    while piece := file.read(_PIECE):
        digest.update(piece)
    if digest.hexdigest() != signature.sha256:
        raise CorruptFileError(f"{path}: the checksum does not match; the file was altered after it was written.")
    return entries, METADATA.read(parse(signature.mile, path), path, ("metadata",)), 8 + length


def _padded(header: Mapping[str, object]) -> bytes:
    text = canonical(header)
    return text + b" " * (-(8 + len(text)) % _ALIGNMENT)


def _pieces(array: HasShape) -> Iterator[memoryview]:
    if isinstance(array, InPieces):
        yield from (piece.data for piece in array.pieces())
    else:
        yield np.ascontiguousarray(array, np.dtype(array.dtype).newbyteorder("<")).reshape(-1).view(np.uint8).data
