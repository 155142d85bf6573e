"""One writer per run directory.

This is a file lock of the operating system, which frees it when its owner dies. There are no stale locks. A note beside
it tells others who the owner is.
"""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from mile._errors import RunLockedError, StorageError, UntrustedFileError
from mile.storage._durable import explained, remove, write_file
from mile.storage._inside import inside, read_inside
from mile.storage._tensors import canonical, parse
from mile.storage.schema import OWNER

_LOCK, _OWNER = "run.lock", "run.owner"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a run directory.

    Raises
    ------
    RunLockedError
        If another process holds it.
    UntrustedFileError
        If the lock or the note is a link.
    """
    import filelock

    lock = filelock.FileLock(inside(folder, _LOCK))
    with explained(folder / _LOCK):
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            raise RunLockedError(
                f"{folder} is in use{_owner(folder)}. Wait for it to end, or stop it; its work is saved and can be "
                "resumed."
            ) from None
    try:
        write_file(inside(folder, _OWNER), [canonical({"pid": os.getpid(), "host": socket.gethostname()})])
        yield
    finally:
        # A failure here must not hide an earlier one.
        with contextlib.suppress(StorageError, UntrustedFileError):
            remove(inside(folder, _OWNER))
        lock.release()  # the file stays: a process that has it open would otherwise lock a file without a name


def _owner(folder: Path) -> str:
    try:
        owner = OWNER.read(parse(read_inside(folder, _OWNER), _OWNER), _OWNER)
        return f" by process {owner['pid']} on {owner['host']}"
    except (OSError, ValueError):
        return " by another process"
