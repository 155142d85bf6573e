"""How the files of tables are read: what the user says of them, and streams that unpack no more than they may."""

import gzip
import io
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

PACKED = (".gz", ".zst")
_LEAST_LIMIT = 256 << 20  # bytes that every file may unpack to
_LARGEST_RATIO = 100  # of unpacked to packed: tables have at most some tens, files made to fill memory a thousand
_BUFFER = 1 << 20  # bytes unpacked at a time
_SUFFIXES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """What the user says about files; None means that it is detected.

    Attributes
    ----------
    delimiter, decimal, encoding
        Of text files.
    missing
        Words for an empty cell, besides those that are always known.
    most_bytes
        What a packed file may unpack to; None: 256 MiB, or a hundred times its own size if that is more.
    """

    delimiter: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    missing: tuple[str, ...] = ()
    most_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise ValueError(f"The delimiter must be one character, such as ; or a tab; got {self.delimiter!r}.")
        if self.decimal not in (None, ".", ","):
            raise ValueError(f"The decimal mark must be a point or a comma; got {self.decimal!r}.")

    def limit(self, path: Path) -> int:
        """Return the bytes that a file may unpack to."""
        return self.most_bytes or max(_LEAST_LIMIT, _LARGEST_RATIO * path.stat().st_size)

    def refuse_large(self, path: Path, n_bytes: int) -> None:
        """Refuse a file that unpacks to too much.

        Raises
        ------
        ValueError
            If it does; the message says how to raise the limit.
        """
        limit = self.limit(path)
        if n_bytes > limit:
            raise ValueError(
                f"{path} has {_size(path.stat().st_size)} and unpacks to more than {_size(limit)}, as files do that "
                "are made to fill the memory. If you trust it, allow more, such as --unpack 8GB."
            )


DEFAULT = ReadOptions()


def read_size(text: str) -> int:
    """Return the bytes that a text such as 8GB stands for.

    Raises
    ------
    ValueError
        If it is not a size.
    """
    number = text.strip().upper().rstrip("BKMGT")
    factor = _SUFFIXES.get(text.strip().upper()[len(number) :].strip())
    if factor is None or not number.strip().replace(".", "", 1).isdecimal() or not float(number) * factor >= 1:
        raise ValueError(f"A size must be a number with a unit, such as 8GB or 500MB; got {text!r}.")
    return int(float(number) * factor)


def open_unpacked(path: Path, options: ReadOptions) -> BinaryIO:
    """Open a file that may be packed with gzip or Zstandard; reading more than the limit raises ValueError."""
    suffix = path.suffix.lower()
    if suffix not in PACKED:
        return path.open("rb")
    opener = gzip.GzipFile if suffix == ".gz" else _open_zstandard
    return io.BufferedReader(_Limited(opener(path), path, options), _BUFFER)


class _Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int, /) -> bytes: ...

    def close(self) -> None: ...


class _Limited(io.RawIOBase):
    """A stream that counts what it gives."""

    def __init__(self, stream: _Readable, path: Path, options: ReadOptions) -> None:
        self._stream, self._path, self._options = stream, path, options
        self._n_bytes, self._limit = 0, options.limit(path)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "bytearray | memoryview", /) -> int:
        part = self._stream.read(len(buffer))
        self._n_bytes += len(part)
        if self._n_bytes > self._limit:
            self._options.refuse_large(self._path, self._n_bytes)
        buffer[: len(part)] = part
        return len(part)

    def close(self) -> None:
        self._stream.close()
        super().close()


class _Zstandard:
    """A stream of pyarrow, whose errors do not say which file is damaged."""

    def __init__(self, stream: _Readable, path: Path) -> None:
        self._stream, self._path = stream, path

    def read(self, size: int, /) -> bytes:
        try:
            return self._stream.read(size)
        except OSError as error:
            raise ValueError(f"{self._path} is damaged: it is not a whole Zstandard file.") from error

    def close(self) -> None:
        self._stream.close()


def _open_zstandard(path: Path) -> _Readable:
    try:
        import pyarrow  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ValueError(
            f"Reading {path} needs pyarrow: pip install 'mile-bnn[tables]', or unpack the file first."
        ) from None
    return _Zstandard(pyarrow.CompressedInputStream(path.open("rb"), "zstd"), path)


def without_packing(path: Path) -> str:
    """Return a file's name in lower case, without the suffix of its packing."""
    name = path.name.lower()
    return next((name.removesuffix(suffix) for suffix in PACKED if name.endswith(suffix)), name)


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:,.1f} GB" if n_bytes >= 1e9 else f"{max(n_bytes / 1e6, 0.1):,.1f} MB"
