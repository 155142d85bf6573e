"""The files of a run: which names they can have, and that none of them is a symbolic link.

A run may come from anywhere, and a link in it would let us read, write or delete files outside of it. So every path
in a run comes from `inside`, and `open_plain` opens what exists. Files with names that are not in the list below belong
to somebody else: they are neither read nor removed. The folder of the run itself may be a link.
"""

import io
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from mile._errors import UntrustedFileError

_CHAIN = r"chains/[0-9]{4,18}"
_GROUP = r"draws\.zarr/(posterior|sample_stats)"
_VARIABLE = _GROUP + r"/(chain|draw|weights|lp|energy_change|status)"
_RECORD = re.compile(_CHAIN + r"/(member|start|final|last|state-[0-9]{6,18})\.safetensors")
_LISTED = re.compile(  # what a manifest may vouch for
    rf"(data|scales|out-of-fold)\.safetensors|{_RECORD.pattern}|(draws\.zarr|{_GROUP}|{_VARIABLE})/zarr\.json"
    rf"|{_VARIABLE}/c(\.[0-9]{{1,18}}){{1,3}}"
)
_FILE = re.compile(rf"MANIFEST(\.previous)?\.json|run\.(lock|owner)|report\.html|{_LISTED.pattern}")
_TEMPORARY = re.compile(rf"({_FILE.pattern})\.[0-9]+\.partial")
_FOLDER = re.compile(rf"chains|{_CHAIN}|draws\.zarr|{_GROUP}|{_VARIABLE}")
_JUNCTION = 0xA0000003  # what Windows calls a folder that leads elsewhere
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # a pipe must not make us wait either


class Entry(NamedTuple):
    """Something in a run, by its name relative to the run."""

    name: str
    mode: int

    @property
    def is_ours(self) -> bool:
        """Whether it has a name that a run gives to its files or folders."""
        return any(pattern.fullmatch(self.name) for pattern in (_FILE, _FOLDER, _TEMPORARY))


def is_listed(name: str) -> bool:
    """Say whether a manifest may vouch for a file of this name."""
    return _LISTED.fullmatch(name) is not None


def is_record(name: str, chain: int | None = None, kind: str = "") -> bool:
    """Say whether a record of a chain can have this name; with a chain and kind, one of those."""
    found = _RECORD.fullmatch(name)
    if found is None or chain is None:
        return found is not None
    return name.startswith((f"chains/{chain:04d}/{kind}.", f"chains/{chain:04d}/{kind}-"))


def is_temporary(name: str) -> bool:
    """Say whether this is the temporary name of a file of a run."""
    return _TEMPORARY.fullmatch(name) is not None


def inside(folder: Path, name: str) -> Path:
    """Return the path of a file of a run, which need not exist yet.

    Raises
    ------
    UntrustedFileError
        If the file or a folder on the way is a link, or a file is where a folder belongs.
    """
    path = folder
    parts = Path(name).parts
    for depth, part in enumerate(parts, 1):
        path = path / part
        try:
            mode = _mode(path.lstat())
        except FileNotFoundError:
            break
        if stat.S_ISLNK(mode) or (depth < len(parts) and not stat.S_ISDIR(mode)):
            raise _refusal(path, mode, "folder" if depth < len(parts) else "file")
    return folder / name


def open_plain(path: Path) -> io.BufferedReader:
    """Open a regular file for reading; a link that has just taken its place is not followed.

    Raises
    ------
    UntrustedFileError
        If it is a link, or not a regular file.
    """
    try:
        file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | _NO_FOLLOW))  # noqa: SIM115
    except OSError as error:
        if path.is_symlink() or path.is_dir():
            raise _refusal(path, path.lstat().st_mode, "file") from error
        raise
    mode = os.fstat(file.fileno()).st_mode
    if not stat.S_ISREG(mode):
        file.close()
        raise _refusal(path, mode, "file")
    return file


def read_inside(folder: Path, name: str) -> bytes:
    """Return the bytes of a file of a run."""
    with open_plain(inside(folder, name)) as file:
        return file.read()


def entries(folder: Path) -> Iterator[Entry]:
    """Yield the entries of a run. Links, and folders that are not part of it, are not entered."""
    waiting = [""]
    while waiting:
        parent = waiting.pop()
        try:
            names = sorted(os.listdir(folder / parent))
        except FileNotFoundError:
            continue
        for name in (f"{parent}{name}" for name in names):
            try:
                entry = Entry(name, _mode((folder / name).lstat()))
            except FileNotFoundError:
                continue  # the writer of the run has just renamed or removed it
            if stat.S_ISDIR(entry.mode) and _FOLDER.fullmatch(name):
                waiting.append(f"{name}/")
            yield entry


def check_entries(folder: Path) -> list[str]:
    """Check that each entry with a name that runs use is a plain file or folder; return all other names.

    Raises
    ------
    UntrustedFileError
        If something is a link, or another kind of thing.
    """
    others = []
    for entry in entries(folder):
        if not entry.is_ours:
            others.append(entry.name)
            continue
        is_folder = _FOLDER.fullmatch(entry.name) is not None
        if not (stat.S_ISDIR if is_folder else stat.S_ISREG)(entry.mode):
            raise _refusal(folder / entry.name, entry.mode, "folder" if is_folder else "file")
    return others


def name_some(names: list[str]) -> str:
    """Return the first few of many names, quoted: names that we did not choose may contain anything."""
    shown = ", ".join(repr(name) for name in names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5:,} more"


def _mode(about: os.stat_result) -> int:
    """Return the mode of a file; a junction of Windows counts as a link."""
    is_junction = getattr(about, "st_reparse_tag", 0) == _JUNCTION
    return stat.S_IFLNK if is_junction else about.st_mode


def _refusal(path: Path, mode: int, expected: str) -> UntrustedFileError:
    if stat.S_ISLNK(mode):
        return UntrustedFileError(
            f"{path} is a symbolic link, and no link inside a run is followed. Put the {expected} itself there, or "
            "remove the link, and try again."
        )
    kind = "folder" if expected == "folder" else "regular file"
    return UntrustedFileError(
        f"{path} is not a {kind}, which a run has under this name. Move it out of the run or remove it, and try again."
    )
