"""Arrays of a file that stay on disk, and notice when the file changes after its checksum was compared."""

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mile._errors import CorruptFileError


class Stamp(NamedTuple):
    """What changes when somebody writes to a file, or puts another one in its place."""

    device: int
    inode: int
    n_bytes: int
    modified: int
    changed: int

    @classmethod
    def of(cls, about: os.stat_result) -> "Stamp":
        """Return the stamp of a file."""
        return cls(about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)


class MappedTensor(np.memmap):
    """A read-only map of an array in a file, of the moment when it was checked."""

    path: Path | None = None
    stamp: Stamp | None = None

    @classmethod
    def of(cls, path: Path, stamp: Stamp, dtype: np.dtype, offset: int, shape: tuple[int, ...]) -> "MappedTensor":
        """Map an array of a file with that stamp."""
        found = cls(path, dtype, "r", offset, shape)
        found.path, found.stamp = path, stamp
        found.check()
        return found

    def __array_finalize__(self, other: object) -> None:
        super().__array_finalize__(other)  # pyright: ignore[reportArgumentType]
        if isinstance(other, MappedTensor):
            self.path, self.stamp = other.path, other.stamp

    def __getitem__(self, key: object) -> np.ndarray:
        """Return a part of it: a map where that is possible, else a copy in memory."""
        found = super().__getitem__(key)  # pyright: ignore[reportArgumentType, reportCallIssue]
        is_copy = isinstance(found, MappedTensor) and not np.may_share_memory(found, self)
        return found.view(np.ndarray) if is_copy else found

    def __array_wrap__(self, array: np.ndarray, context: object = None, return_scalar: bool = False) -> np.ndarray:
        """Return the result of an operation as a plain array."""
        plain = np.asarray(array)
        return plain[()] if return_scalar else plain

    def check(self) -> None:
        """Refuse to read on if the file has changed.

        Raises
        ------
        CorruptFileError
            If it has; the message names it.
        """
        if self.path is None or self.stamp is None:
            return
        try:
            is_same = Stamp.of(self.path.stat()) == self.stamp
        except OSError:
            is_same = False
        if not is_same:
            raise CorruptFileError(
                f"{self.path} was changed after it was loaded, and its draws are read when predictions need them: load "
                "it again."
            )
