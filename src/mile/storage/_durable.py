"""Atomic files: each is written under a temporary name, forced to disk, then renamed."""

import contextlib
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from mile._errors import StorageError

TEMPORARY = ".partial"  # suffix of files that are not in their place yet
Bytes = bytes | memoryview


def write_file(path: Path, parts: Iterable[Bytes]) -> str:
    """Write the parts one after another and return their SHA-256.

    The name appears only when all bytes are on disk; `sync_folders` makes the name itself durable.

    Raises
    ------
    StorageError
        If the system refuses; an earlier file of that name is untouched.
    """
    digest, n_bytes = hashlib.sha256(), 0
    temporary = path.with_name(f"{path.name}.{os.getpid()}{TEMPORARY}")  # two processes may save to one name
    with explained(path, lambda: n_bytes):
        created = _created(temporary)  # if that is refused, what is there is not ours to remove
        try:
            with created as file:
                for part in parts:
                    n_bytes += memoryview(part).nbytes
                    digest.update(part)
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
    return digest.hexdigest()


def write_page(path: Path, text: str) -> None:
    """Write a text as a file of its own, in UTF-8."""
    write_binary(path, text.encode())


def write_binary(path: Path, data: Bytes) -> None:
    """Write bytes as a file of its own."""
    write_file(path, [data])
    sync_folders([path], path.parent)


def _created(path: Path) -> BinaryIO:
    """Open a new file; its folder is made if need be.

    The name can be guessed, so a file or link that has it already is never opened.
    """
    try:
        return path.open("xb")
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise
        path.unlink()  # left by a killed process with the same id
    return path.open("xb")


def sync_folders(paths: Iterable[Path], within: Path) -> None:
    """Force the names of files to disk, and those of the folders that lead to them from `within`."""
    parents = {parent for path in paths for parent in path.parents}
    for folder in sorted(parent for parent in parents if parent == within or within in parent.parents):
        with explained(folder):
            if os.name == "nt":
                continue  # a folder cannot be opened there; renames are journaled
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def remove(path: Path) -> None:
    """Delete a file if it is there."""
    with explained(path):
        path.unlink(missing_ok=True)


def free_bytes(folder: Path) -> int:
    """Return the space left where a folder is or will be."""
    existing = next(parent for parent in [folder.absolute(), *folder.absolute().parents] if parent.exists())
    return shutil.disk_usage(existing).free


@contextlib.contextmanager
def explained(path: Path, n_bytes: Callable[[], int] = lambda: 0) -> Iterator[None]:
    """Turn an error of the system into one that names the path and the space that is left.

    Raises
    ------
    StorageError
        Instead of any other OSError.
    """
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        free = ""
        with contextlib.suppress(OSError):
            free = f", {free_bytes(path):,} bytes are free"
        raise StorageError(
            error.errno,
            f"Could not write {path}: {error.strerror} (at least {n_bytes():,} bytes were needed{free}). "
            "What was saved before is still valid: make room or mend the cause, then resume.",
        ) from error
