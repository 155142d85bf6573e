"""The folder of a run, looked at from outside: what it holds, whether that is whole, and what may be removed."""

import hashlib
import logging
import os
from pathlib import Path

from mile._errors import CorruptFileError, ResourceError, UntrustedFileError
from mile.storage._durable import free_bytes, remove
from mile.storage._inside import check_entries, entries, inside, is_record, is_temporary, name_some, open_plain
from mile.storage._manifest import NAME, PREVIOUS, Manifest, read_manifest
from mile.storage._tensors import read_tensors
from mile.storage.schema import FileEntry

_logger = logging.getLogger("mile")
DATA, SCALES = "data.safetensors", "scales.safetensors"
OUT_OF_FOLD = "out-of-fold.safetensors"  # written when a run with folds is finished
_KNOWN = ("run.lock", "run.owner")
_SPARE_BYTES = 1 << 25  # beyond draws: checkpoints, metadata, temporary files


def make_folder(folder: Path) -> None:
    """Make a folder for a run.

    Raises
    ------
    ValueError
        If something else is there already.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not has_run(folder):
        names = sorted(path.name for path in folder.iterdir())
        others = [name for name in names if not is_temporary(name) and not _may_be_replaced(folder, name)]
        if others:
            raise ValueError(f"run_dir {folder} holds other files, such as {others[0]!r}; give a new or empty folder.")


def _may_be_replaced(folder: Path, name: str) -> bool:
    """Say whether a file belongs to a run that was stopped before it had a manifest."""
    if name not in (DATA, SCALES):
        return name in _KNOWN
    try:
        read_tensors(folder / name, within=folder)
    except (CorruptFileError, UntrustedFileError):
        return False
    return True


def clean(folder: Path, manifest: Manifest) -> None:
    """Delete the unfinished files of a killed process. Files that are not part of a run stay and are logged."""
    others = check_entries(folder)
    for name in [entry.name for entry in entries(folder)]:
        if is_temporary(name) or (is_record(name) and name not in manifest.files):
            remove(inside(folder, name))
    if others:
        _logger.info("%s holds files that are not of the run; they are left alone: %s", folder, name_some(others))


def damaged_files(folder: Path, manifest: Manifest) -> list[Path]:
    """Return the files of a run that are missing or were altered."""
    damaged = [folder / name for name, entry in manifest.files.items() if not _is_intact(folder, name, entry)]
    if os.path.lexists(folder / PREVIOUS):  # no manifest lists itself or the one before
        try:
            read_manifest(folder, PREVIOUS)
        except (CorruptFileError, UntrustedFileError):
            damaged.append(folder / PREVIOUS)
    return damaged


def _is_intact(folder: Path, name: str, entry: FileEntry) -> bool:
    try:
        with open_plain(inside(folder, name)) as file:
            if os.fstat(file.fileno()).st_size != entry["bytes"]:
                return False
            return hashlib.file_digest(file, "sha256").hexdigest() == entry["sha256"]
    except OSError:
        return False


def check_space(folder: Path, draw_bytes: int) -> None:
    """Refuse a run at its start if its files would not fit on the disk.

    Raises
    ------
    ResourceError
        If they would not; the message has the numbers.
    """
    needed, free = draw_bytes + _SPARE_BYTES, free_bytes(folder)
    if needed > free:
        raise ResourceError(
            f"This run will take {needed / 1e6:,.0f} MB in {folder}, where {free / 1e6:,.0f} MB are free. "
            "Make room, choose another run_dir, or ask for fewer draws or chains."
        )


def has_run(folder: Path) -> bool:
    """Say whether a folder holds a run. A link in the place of the manifest counts; reading it is refused later."""
    return os.path.lexists(folder / NAME)


def run_seconds(folder: Path) -> float:
    """Return the time from a run's first file to its last, pauses included."""
    return max(0.0, (folder / NAME).lstat().st_mtime - (folder / SCALES).lstat().st_mtime)
