"""The manifest of a run directory: what the run is, which files belong to it, and their checksums.

It is replaced as a whole after the files it names are on disk, so at every moment it describes a complete state.
It holds no times and no paths: two runs of the same work end with the same bytes.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from mile._errors import CorruptFileError, RunMismatchError, UntrustedFileError
from mile.storage._durable import sync_folders, write_file
from mile.storage._fields import unknown_files, wrong_fields
from mile.storage._inside import inside, open_plain, read_inside
from mile.storage._tensors import canonical, parse

FORMAT = 1  # this reader knows all formats up to this one
NAME = "MANIFEST.json"
PREVIOUS = "MANIFEST.previous.json"
_LARGEST = 1 << 26
_IDENTITY = ("fingerprint", "data", "seed", "configuration")  # a resumed run must agree in these


@dataclass
class Manifest:
    """State of a run.

    Attributes
    ----------
    fingerprint, configuration, data, seed
        What computes, what it was told, and the hash of the data: together they decide every bit.
    origin
        How to build the estimator that began the run, if one did.
    plan
        Budgets that a time limit led to.
    layout
        Sizes of the draw store.
    chains
        Per chain its newest files by kind: member, start, state.
    previous
        The same, one checkpoint earlier.
    files
        Size and SHA-256 of every file.
    forced
        Fields that differed when somebody insisted on going on.
    """

    fingerprint: dict[str, Any]
    configuration: dict[str, Any]
    data: dict[str, Any]
    seed: int
    origin: dict[str, Any] | None = None
    plan: dict[str, Any] | None = None
    layout: dict[str, Any] | None = None
    chains: dict[str, dict[str, str]] = field(default_factory=dict)
    previous: dict[str, dict[str, str]] = field(default_factory=dict)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    status: dict[str, str] = field(default_factory=dict)
    forced: list[str] = field(default_factory=list)
    finished: bool = False
    format: int = FORMAT

    def write(self, folder: Path) -> None:
        """Put this manifest in the place of the last one, which is kept beside it."""
        text = _text(asdict(self))
        current = inside(folder, NAME)
        if current.exists() and not self.finished:
            write_file(inside(folder, PREVIOUS), [read_inside(folder, NAME)])
        write_file(current, [text])
        if self.finished:
            write_file(inside(folder, PREVIOUS), [text])
        sync_folders([current], folder)

    def identity(self) -> dict[str, Any]:
        """Return what decides every bit of the result."""
        return {name: getattr(self, name) for name in _IDENTITY}


def copy_manifest(folder: Path) -> None:
    """Make sure that the copy of a finished run's manifest is one: a killed process may have left an older one."""
    text, copy = read_inside(folder, NAME), inside(folder, PREVIOUS)
    if not copy.exists() or read_inside(folder, PREVIOUS) != text:
        write_file(copy, [text])


def read_manifest(folder: Path, name: str = NAME) -> Manifest:
    """Read and check a manifest: its fields are what they should be, and it names only files that a run can contain.

    Raises
    ------
    CorruptFileError, UntrustedFileError
        If it is damaged, newer than this library, or not a manifest.
    """
    path = folder / name
    try:
        with open_plain(inside(folder, name)) as file:
            text = file.read(_LARGEST + 1)
    except FileNotFoundError:
        raise CorruptFileError(f"{folder} is not a run directory: it has no {name}.") from None
    if len(text) > _LARGEST:
        raise UntrustedFileError(f"{path} is larger than a manifest can be.")
    try:
        return Manifest(**_checked(text, path))
    except (TypeError, RecursionError) as error:
        raise UntrustedFileError(f"{path} is not a manifest: {error}.") from error


def _checked(text: bytes, path: Path) -> dict[str, Any]:
    """Return what a manifest says."""
    document = parse(text, path)
    content = document.get("manifest") if isinstance(document, dict) else None
    if not isinstance(content, dict) or text != _text(content):
        raise CorruptFileError(f"{path} was altered after it was written. `mile repair` goes back to the one before.")
    known = {entry.name for entry in fields(Manifest)}
    number = content.get("format")
    if type(number) is not int or number > FORMAT:
        raise UntrustedFileError(f"{path} has format {str(number)[:20]}; this version of mile reads up to {FORMAT}.")
    if set(content) != known:
        raise UntrustedFileError(f"{path} has unknown or missing fields: {sorted(set(content) ^ known)}.")
    wrong = wrong_fields(content)
    if wrong:
        raise UntrustedFileError(f"{path}: {wrong[0]} is not what it should be.")
    unknown = unknown_files(content)
    if unknown:
        raise UntrustedFileError(f"{path} names a file that no run contains: {unknown[0][:200]!r}.")
    return content


def check_identity(manifest: Manifest, identity: dict[str, Any], folder: Path, *, force: bool) -> None:
    """Compare a run with what a caller wants to do.

    Raises
    ------
    RunMismatchError
        At the first field that differs; with `force` only if it is not part of the fingerprint.
    """
    differing = _differences(manifest.identity(), identity)
    forced = [name for name, _, _ in differing if name.startswith("fingerprint.")] if force else []
    for name, ours, theirs in differing:
        if name not in forced:
            insist = "; force=True goes on all the same and records it" if name.startswith("fingerprint.") else ""
            raise RunMismatchError(
                f"{name} differs: the run in {folder} has {_short(ours)}, this call {_short(theirs)}. Use what "
                "the run was begun with, or another run_dir for each fit (in a search over parameters or folds: none)"
                f"{insist}."
            )
    manifest.forced.extend(name for name in forced if name not in manifest.forced)


def _differences(ours: Any, theirs: Any, name: str = "") -> list[tuple[str, Any, Any]]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        found = []
        for key in [*ours, *(key for key in theirs if key not in ours)]:
            found += _differences(ours.get(key), theirs.get(key), f"{name}.{key}" if name else key)
        return found
    return [] if canonical(ours) == canonical(theirs) else [(name, ours, theirs)]


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _text(content: dict[str, Any]) -> bytes:
    digest = hashlib.sha256(canonical(content)).hexdigest()
    return json.dumps({"manifest": content, "sha256": digest}, sort_keys=True, indent=1).encode()
