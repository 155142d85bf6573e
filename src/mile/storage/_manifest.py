"""The manifest of a run directory: what the run is, which files belong to it, and their checksums.

It is replaced as a whole after the files it names are on disk, so at every moment it describes a complete state.
It holds no times and no paths: two runs of the same work end with the same bytes.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from mile._errors import CorruptFileError, RunMismatchError
from mile._json import Json
from mile._schema import refused, require
from mile.storage._draws import Layout
from mile.storage._durable import sync_folders, write_file
from mile.storage._inside import inside, open_plain, read_inside
from mile.storage._tensors import canonical, parse
from mile.storage.schema import MANIFEST_FORMAT, METADATA, FileEntry, read_manifest_fields

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
    weights
        Of the chains and then of their members in predictions; None if all chains count the same.
    begun
        How many chains the run had before it was given more; None if it has those that it began with.
    forced
        Fields of the fingerprint that differed when the run was resumed with `force`.
    """

    fingerprint: Mapping[str, object]
    configuration: dict[str, Json]
    data: dict[str, Json]
    seed: int
    origin: dict[str, Json] | None = None
    plan: dict[str, int] | None = None
    layout: Layout | None = None
    chains: dict[str, dict[str, str]] = field(default_factory=dict)
    previous: dict[str, dict[str, str]] = field(default_factory=dict)
    files: dict[str, FileEntry] = field(default_factory=dict)
    status: dict[str, str] = field(default_factory=dict)
    forced: list[str] = field(default_factory=list)
    finished: bool = False
    weights: tuple[float, ...] | None = None
    begun: int | None = None
    format: int = MANIFEST_FORMAT

    def write(self, folder: Path) -> None:
        """Replace the last manifest by this one, and keep a copy of the last one."""
        content = asdict(self) | {"layout": None if self.layout is None else self.layout._asdict()}
        for name in ("weights", "begun"):
            if content[name] is None:
                del content[name]  # older versions do not know it
        text = _text(content)
        current = inside(folder, NAME)
        if current.exists() and not self.finished:
            write_file(inside(folder, PREVIOUS), [read_inside(folder, NAME)])
        write_file(current, [text])
        if self.finished:
            write_file(inside(folder, PREVIOUS), [text])
        sync_folders([current], folder)

    def identity(self) -> dict[str, object]:
        """Return what decides every bit of the result."""
        return {name: getattr(self, name) for name in _IDENTITY}


def copy_manifest(folder: Path) -> None:
    """Make the copy of a finished run's manifest equal to it; a killed process may have left an older copy."""
    text, copy = read_inside(folder, NAME), inside(folder, PREVIOUS)
    if not copy.exists() or read_inside(folder, PREVIOUS) != text:
        write_file(copy, [text])


def read_manifest(folder: Path, name: str = NAME) -> Manifest:
    """Read and check a manifest. Each field is what it should be, and it names only files that a run can contain.

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
    require(len(text) <= _LARGEST, "larger than a manifest can be.", path)
    with refused(f"{path} is not a manifest"):  # one that is nested too deeply, for example
        content = METADATA.read(METADATA.read(parse(text, path), path).get("manifest"), path, ("manifest",))
        if text != _text(content):
            raise CorruptFileError(
                f"{path} was altered after it was written. `mile repair` goes back to the one before."
            )
        return Manifest(**read_manifest_fields(content, path))  # pyright: ignore[reportArgumentType]


def check_identity(manifest: Manifest, identity: Mapping[str, object], folder: Path, *, force: bool) -> None:
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
            insist = "; force=True resumes it nevertheless and records that" if name.startswith("fingerprint.") else ""
            raise RunMismatchError(
                f"{name} differs: the run in {folder} has {_short(ours)}, this call {_short(theirs)}. Use what "
                "the run was begun with, or another run_dir for each fit (in a search over parameters or folds: none)"
                f"{insist}."
            )
    manifest.forced.extend(name for name in forced if name not in manifest.forced)


def _differences(ours: object, theirs: object, name: str = "") -> list[tuple[str, object, object]]:
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        found = []
        for key in [*ours, *(key for key in theirs if key not in ours)]:
            found += _differences(ours.get(key), theirs.get(key), f"{name}.{key}" if name else key)
        return found
    return [] if canonical(ours) == canonical(theirs) else [(name, ours, theirs)]


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _text(content: Mapping[str, object]) -> bytes:
    digest = hashlib.sha256(canonical(content)).hexdigest()
    return json.dumps({"manifest": content, "sha256": digest}, sort_keys=True, indent=1).encode()
