"""Downloads: files appear complete and checked or not at all. Readers of archives and arrays."""

import contextlib
import gzip
import hashlib
import http.client
import io
import logging
import os
import tarfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from mile._errors import CorruptFileError
from mile.storage._durable import remove, sync_folders, write_file
from mile.storage._table_npz import read_npz_arrays
from mile.storage._unpacking import DEFAULT, ReadOptions

_PART = 1 << 20  # bytes held in memory at a time
_TIMEOUT = 60.0  # seconds without a byte after which a server counts as gone

_logger = logging.getLogger(__name__)


def download(url: str, path: Path, checksum: str | None = None) -> None:
    """Download a file. Its name appears only when all bytes are there and the checksum, if given, is right.

    Parameters
    ----------
    url
        What `urllib` can open: https, http or file.
    path
        The place of the file; its folder is made if need be.
    checksum
        `sha256:` or `md5:` and the hexadecimal digits.

    Raises
    ------
    ConnectionError
        If the server cannot be reached, refuses, or stops before the end.
    CorruptFileError
        If the checksum is another one.
    StorageError
        If the file cannot be written.
    """
    _logger.info("Downloading %s", url)
    try:
        write_file(path, _stream(url, checksum))
    except _BrokenStreamError as error:
        raise ConnectionError(f"Could not download {url}: {error}.") from error.__cause__
    sync_folders([path], path.parent)


@contextlib.contextmanager
def downloaded(url: str, path: Path, checksum: str | None = None) -> Iterator[Path]:
    """Download a file under a name of this process, and remove it in the end; see `download`."""
    own = path.with_name(f"{path.name}.{os.getpid()}")  # another process may be reading the same
    download(url, own, checksum)
    try:
        yield own
    finally:
        remove(own)


def read_packed_lines(path: Path, member: str) -> list[str]:
    """Return the lines of a text in a ZIP file, itself perhaps packed with gzip.

    Raises
    ------
    CorruptFileError
        If the archive is damaged, has no such member, or the member is not text in UTF-8.
    """
    with path.open("rb") as file, _damage(path), zipfile.ZipFile(file) as archive, archive.open(member) as packed:
        stream = gzip.GzipFile(fileobj=packed) if member.endswith(".gz") else packed
        return list(io.TextIOWrapper(stream, encoding="utf-8"))  # pyright: ignore[reportArgumentType]


def read_members(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the wanted files in a .tar.gz, in its order; nothing is unpacked to disk.

    Raises
    ------
    CorruptFileError
        If the archive is damaged.
    """
    with path.open("rb") as file, _damage(path), tarfile.open(fileobj=file, mode="r|gz") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() and wanted(member.name) else None
            if content is not None:
                yield member.name, content.read()


def read_arrays(path: Path, options: ReadOptions = DEFAULT) -> dict[str, np.ndarray]:
    """Return the arrays of an NPZ file by name, if they are not larger than the options allow.

    Raises
    ------
    ValueError
        If it is not a whole file of plain arrays.
    """
    return read_npz_arrays(path, options)


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays as a compressed NPZ file; it appears whole or not at all.

    Raises
    ------
    StorageError
        If the system refuses.
    """
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # pyright: ignore[reportArgumentType]
    write_file(path, [buffer.getbuffer()])
    sync_folders([path], path.parent)


class _BrokenStreamError(Exception):
    """The network failed. It is not an OSError: that would look like a failure to write the file."""


def _stream(url: str, checksum: str | None) -> Iterator[bytes]:
    algorithm, _, expected = (checksum or "sha256:").partition(":")
    digest, n_bytes = hashlib.new(algorithm, usedforsecurity=False), 0
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as response:
            announced = response.headers.get("Content-Length")
            while part := response.read(_PART):
                n_bytes += len(part)
                digest.update(part)
                yield part
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if type(error) is urllib.error.URLError else error  # the rest of its text is brackets
        raise _BrokenStreamError(str(reason) or type(error).__name__) from error
    if announced is not None and n_bytes < int(announced):
        raise _BrokenStreamError(f"it ended after {n_bytes:,} of {int(announced):,} bytes")
    if expected and digest.hexdigest() != expected:
        raise CorruptFileError(
            f"{url} does not have the {algorithm} checksum that it should have: expected {expected}, found "
            f"{digest.hexdigest()}. Nothing was kept; try again, and do not use the file if it stays so."
        )


@contextlib.contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Raise CorruptFileError for every error that a damaged archive can cause."""
    try:
        yield
    except (KeyError, EOFError, OSError, UnicodeDecodeError, zipfile.BadZipFile, tarfile.TarError, zlib.error) as error:
        raise CorruptFileError(f"{path.name} is damaged or not the archive it should be: {error}") from error
