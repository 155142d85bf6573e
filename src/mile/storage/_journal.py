"""What a service remembers: a snapshot that is replaced as a whole, and a journal of what came after it.

A line of the journal is with the operating system before `append` returns, so that it outlives the process, and on disk
after `sync`. A snapshot names the journal that follows it; others are left from before and are removed.
"""

import contextlib
import json
import os
from pathlib import Path
from typing import NamedTuple

from mile._errors import CorruptFileError, RunLockedError, StorageError
from mile._json import Json
from mile.storage._durable import explained, remove, write_binary

_LARGEST = 1 << 28  # bytes of either file


class Remembered(NamedTuple):
    """What was found: the snapshot, None if there is none, and the lines after it."""

    snapshot: Json
    lines: list[Json]


class Journal:
    """One writer's snapshot and journal, as two files beside each other.

    Raises
    ------
    RunLockedError
        If another process writes them.
    CorruptFileError
        If they cannot be read.
    StorageError
        If the system refuses.
    """

    def __init__(self, path: Path) -> None:
        import filelock

        self._path = path
        self._lock = filelock.FileLock(path.with_name(f"{path.name}.lock"))
        with explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._lock.acquire(timeout=0)
            except filelock.Timeout:
                raise RunLockedError(f"{path} is in use by another service: give this one another --state.") from None
            self._generation, self.found = self._read()
            self._file = self._open()

    @property
    def size(self) -> int:
        """Bytes of the journal."""
        return self._size

    def append(self, line: bytes) -> None:
        """Add a line of JSON; a line that could not be written whole is taken back.

        Raises
        ------
        StorageError
            If the system refuses.
        """
        with explained(self._path, lambda: len(line)):
            data = line + b"\n"
            try:
                if os.write(self._file, data) < len(data):
                    raise OSError(28, "there was no space for all of it")
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file, self._size)
                raise
            self._size += len(data)

    def sync(self) -> None:
        """Force the journal to disk."""
        with explained(self._path):
            os.fsync(self._file)

    def replace(self, snapshot: Json) -> None:
        """Write a snapshot of all there is to remember, and begin an empty journal."""
        old, before = self._file, self._name(self._generation)
        text = json.dumps({"journal": self._generation + 1, "snapshot": snapshot}, allow_nan=False)
        write_binary(self._path, text.encode())
        self._generation += 1
        self._file = self._open()
        os.close(old)
        with contextlib.suppress(StorageError):
            remove(before)

    def close(self) -> None:
        """Let others write."""
        os.close(self._file)
        self._lock.release()

    def _name(self, generation: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{generation}.journal")

    def _open(self) -> int:
        self._size = 0
        path = self._name(self._generation)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        whole = path.read_bytes()
        self._size = whole.rfind(b"\n") + 1
        os.ftruncate(descriptor, self._size)  # the rest is of a line that was never acknowledged
        return descriptor

    def _read(self) -> tuple[int, Remembered]:
        generation, snapshot = 0, None
        if self._path.exists():
            found = self._parsed(self._path, self._bytes(self._path))
            number = found.get("journal") if type(found) is dict else None
            if type(found) is not dict or type(number) is not int or number < 0:
                raise CorruptFileError(f"{self._path} is no state of a service; {_ADVICE}")
            generation, snapshot = number, found.get("snapshot")
        journal, lines = self._name(generation), []
        if journal.exists():
            lines = [self._parsed(journal, line) for line in self._bytes(journal).split(b"\n")[:-1]]
        return generation, Remembered(snapshot, lines)

    def _bytes(self, path: Path) -> bytes:
        if path.stat().st_size > _LARGEST:
            raise CorruptFileError(f"{path} is larger than any state of a service; {_ADVICE}")
        return path.read_bytes()

    def _parsed(self, path: Path, data: bytes) -> Json:
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise CorruptFileError(f"{path} was altered or damaged ({str(error)[:80]}); {_ADVICE}") from error


_ADVICE = "move it away, and the service begins anew."
