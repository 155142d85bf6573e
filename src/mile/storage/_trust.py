"""Run directories that may come from anywhere: what a manifest says is checked before anything relies on it."""

import os
import stat
from pathlib import Path
from typing import Any

from mile._errors import UntrustedFileError
from mile.storage._draws import VARIABLES, Layout
from mile.storage._manifest import NAME, Manifest, read_manifest
from mile.storage._run import Record, read_record

_LARGEST = 1 << 62
_TYPES = {"float32": 4, "float64": 8}


def read_checked_manifest(folder: Path) -> Manifest:
    """Read a manifest whose fields are what they should be and which names only regular files of its own folder.

    Raises
    ------
    CorruptFileError, UntrustedFileError
        If it is damaged, or says what no manifest of ours would.
    """
    path = folder / NAME
    if path.exists() and not stat.S_ISREG(path.lstat().st_mode):
        raise UntrustedFileError(f"{path} is not a regular file.")
    try:
        manifest = read_manifest(folder)
    except (TypeError, RecursionError) as error:
        raise UntrustedFileError(f"{path} is not a manifest: {error}.") from error
    wrong = [name for name, is_right in _fields(manifest).items() if not is_right]
    if wrong:
        raise UntrustedFileError(f"{path}: {wrong[0]} is not what it should be.")
    for name in {str(Path(name).parent) for name in manifest.files}:
        if Path(os.path.realpath(folder / name)) != Path(os.path.realpath(folder)) / name:
            raise UntrustedFileError(f"{path} names files in {name!r}, which leads out of the run.")
    for name in manifest.files:
        if (folder / name).is_symlink() or ((folder / name).exists() and not (folder / name).is_file()):
            raise UntrustedFileError(f"{folder / name} is not a regular file.")
    return manifest


def _fields(manifest: Manifest) -> dict[str, bool]:
    """Say of each field whether it has the right form."""
    files = manifest.files
    return {
        "seed": _is_count(manifest.seed) and manifest.seed < 2**32,
        "configuration": isinstance(manifest.configuration, dict),
        "origin": manifest.origin is None or isinstance(manifest.origin, dict),
        "plan": manifest.plan is None
        or (isinstance(manifest.plan, dict) and all(map(_is_count, manifest.plan.values()))),
        "layout": manifest.layout is None or _is_layout(manifest.layout),
        "files": isinstance(files, dict) and all(_is_file(name, entry) for name, entry in files.items()),
        "chains": isinstance(manifest.chains, dict)
        and isinstance(files, dict)
        and all(_is_chain(chain, kinds, files) for chain, kinds in manifest.chains.items()),
    }


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _LARGEST


def _is_file(name: str, entry: Any) -> bool:
    is_described = isinstance(entry, dict) and set(entry) == {"bytes", "sha256"}
    return is_described and _is_count(entry["bytes"]) and isinstance(entry["sha256"], str) and "\0" not in name


def _is_chain(chain: str, kinds: Any, files: dict[str, Any]) -> bool:
    return (
        chain.isascii()
        and chain.isdigit()
        and isinstance(kinds, dict)
        and all(isinstance(name, str) and name in files for name in kinds.values())
    )


def _is_layout(layout: Any) -> bool:
    if not isinstance(layout, dict) or set(layout) != set(Layout._fields):
        return False
    ids, sizes = layout["chain_ids"], [layout[name] for name in ("n_draws", "dimension", "chunk")]
    return (
        isinstance(ids, list)
        and all(map(_is_count, ids))
        and len(set(ids)) == len(ids)
        and all(_is_count(size) and size > 0 for size in sizes)
        and isinstance(layout["dtype"], str)
        and layout["dtype"] in _TYPES
    )


def read_checked_record(path: Path) -> Record:
    """Read what is known of one chain.

    Raises
    ------
    CorruptFileError, UntrustedFileError
        If the file is damaged, or not of a chain.
    """
    try:
        record = read_record(path)
    except TypeError as error:
        raise UntrustedFileError(f"{path} is not a record of a chain: {error}.") from error
    status = record.arrays.get("status")
    if not isinstance(record.stage, str) or not _is_count(record.step) or not _is_count(record.n_draws):
        raise UntrustedFileError(f"{path} is not a record of a chain.")
    if status is not None and (status.shape != () or status.dtype.kind != "i"):
        raise UntrustedFileError(f"{path} has no readable status.")
    return record


def check_draws(folder: Path, manifest: Manifest, layout: Layout, rows: list[int], n_draws: int) -> None:
    """Check that the first draws of some rows of the store are in files of the right size.

    Raises
    ------
    UntrustedFileError
        If one is not.
    """
    n_chunks = -(-n_draws // layout.chunk)
    if n_draws > layout.n_draws or len(rows) * n_chunks * len(VARIABLES) > len(manifest.files):
        raise UntrustedFileError(f"{folder}: there are fewer draws than the manifest says.")
    for variable in VARIABLES:
        width = layout.dimension if variable == "weights" else 1
        n_bytes = layout.chunk * width * _TYPES[layout.dtype] + 4  # and a CRC
        for name in (layout.path(variable, row, number) for row in rows for number in range(n_chunks)):
            if manifest.files.get(name, {}).get("bytes") != n_bytes:
                raise UntrustedFileError(f"{folder / name} is not in the manifest, or has the wrong size.")
