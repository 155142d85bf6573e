"""Repair of a damaged run: back to its last complete checkpoint. Resumed from there, it gives the same bits."""

from collections.abc import Sequence
from pathlib import Path

from mile._errors import CorruptFileError, UntrustedFileError
from mile._schema import Count
from mile.storage import _draws
from mile.storage._durable import remove, write_file
from mile.storage._inside import check_entries, inside, name_some, read_inside
from mile.storage._lock import locked
from mile.storage._manifest import NAME, PREVIOUS, Manifest, read_manifest
from mile.storage._records import Record, check_alike, check_member, check_pending, read_record
from mile.storage._run import Run
from mile.storage._run_folder import DATA, OUT_OF_FOLD, SCALES, damaged_files

_Files = dict[str, dict[str, str]]  # chain -> kind of record -> file


def repair(run_dir: str | Path, *, without: Sequence[str] = ()) -> list[str]:
    """Bring a run back to its last complete checkpoint; return what was done, one sentence each.

    A file is damaged if its checksum does not hold, or if it is a record of a chain with contents that are impossible.

    Parameters
    ----------
    run_dir
        The folder of the run.
    without
        Names of further files to count as damaged, such as "chains/0003/state-000012.safetensors": what `resume`
        refuses and this function, which does not know the sampler, cannot tell.

    Raises
    ------
    CorruptFileError
        If nothing can be saved: both manifests are unreadable.
    RunLockedError
        If another process is writing to it.
    ValueError
        If the run has no file of a name in `without`.
    UntrustedFileError
        If a link or something else that no run contains has the name of one of its files.
    """
    folder = Path(run_dir)
    if not folder.is_dir():
        raise CorruptFileError(f"{folder} is not a run directory.")
    others = check_entries(folder)
    with locked(folder):
        manifest, done = _newest_manifest(folder)
        unknown = sorted(set(without) - set(manifest.files))
        if unknown:
            raise ValueError(f"{folder} has no file {unknown[0]!r}: give names relative to it, such as chains/0000/...")
        damaged = {path.relative_to(folder).as_posix() for path in damaged_files(folder, manifest)} | set(without)
        done += [f"{name} is damaged." for name in sorted(damaged - set(without))]
        done += [f"{name} is set aside." for name in sorted(without)]
        impossible = _impossible_records(folder, manifest, damaged)
        done += impossible.values()
        damaged |= impossible.keys()
        if not done:
            return []
        if others:
            done.append(f"Files that are not of the run are left alone: {name_some(others)}.")
        run = Run(folder, manifest)
        try:
            _mend(run, damaged, done)
        finally:
            run.close()
    return done


def _impossible_records(folder: Path, manifest: Manifest, damaged: set[str]) -> dict[str, str]:
    """Return the records that no run of ours can hold, each with a sentence that says why."""
    found: dict[str, str] = {}
    records: dict[str, Record] = {}
    both = (manifest.chains, manifest.previous)
    for name in sorted({name for chains in both for files in chains.values() for name in files.values()} - damaged):
        try:
            records[name] = _checked(read_record(folder, name), manifest)
        except (CorruptFileError, UntrustedFileError) as error:
            found[name] = str(error)
    for saved, group in ((chains, group) for chains in both for group in _groups(manifest, chains)):
        newest = [saved[chain].get("final") or saved[chain].get("state", "") for chain in group]
        first, *others = [name for name in newest if name in records] or [""]
        for name in others:
            try:
                check_alike(records[first], records[name])
            except UntrustedFileError as error:
                found.setdefault(name, str(error))
    return found


def _checked(record: Record, manifest: Manifest) -> Record:
    layout, kind = manifest.layout, Path(record.source).name
    if kind.startswith("member."):
        check_member(record, None if layout is None else layout.dimension)
    elif kind.startswith("state-") and layout is not None and "draw.0" in record.arrays:
        check_pending(record, layout)
    return record


def _groups(manifest: Manifest, chains: _Files) -> list[list[str]]:
    """Return chains that were run together: those of the beginning, those added, those that replaced failed ones."""
    n_chains = Count().read(manifest.configuration.get("n_chains", len(manifest.chains)))
    begun = n_chains if manifest.begun is None else manifest.begun
    bounds = ((0, begun), (begun, n_chains), (n_chains, 1 << 62))
    return [[chain for chain in chains if low <= int(chain) < high] for low, high in bounds]


def _newest_manifest(folder: Path) -> tuple[Manifest, list[str]]:
    try:
        return read_manifest(folder, NAME), []
    except (CorruptFileError, UntrustedFileError) as error:
        try:
            manifest = read_manifest(folder, PREVIOUS)
            write_file(inside(folder, NAME), [read_inside(folder, PREVIOUS)])
            return manifest, [f"{error}", f"Went back to {PREVIOUS}."]
        except (CorruptFileError, UntrustedFileError):
            raise CorruptFileError(
                f"Neither manifest of {folder} can be read, so its files cannot be told apart. Begin again elsewhere."
            ) from error


def _mend(run: Run, damaged: set[str], done: list[str]) -> None:
    manifest, folder = run.manifest, run.folder
    bad_chunks = _bad_chunks(manifest, damaged)
    chains: _Files = {}
    changed = not manifest.finished or bool(damaged - {PREVIOUS})
    for group in _groups(manifest, manifest.chains):
        kept, sentence = _whole_state(run, group, damaged, bad_chunks)
        chains |= kept
        if sentence:
            done.append(sentence)
    for name in damaged:
        manifest.files.pop(name, None)
        remove(inside(folder, name))
    if damaged & {DATA, SCALES}:
        done.append("The data are gone: fit again with the same X, y and arguments.")
    manifest.chains, manifest.previous = chains, {}
    if changed:
        manifest.finished, manifest.status, manifest.weights = False, {}, None
        if manifest.files.pop(OUT_OF_FOLD, None) is not None:  # it is made of all draws
            remove(inside(folder, OUT_OF_FOLD))
    run._forget_unused()
    if run.layout is not None and changed:
        run._submit(run._write_layout, run.layout)  # zarr needs a thread without an event loop, such as the writer's
        run.settle()
    run._sync()
    manifest.write(folder)
    done.append("Repaired. Resume the run: it ends with the same draws as if nothing had happened.")


def _bad_chunks(manifest: Manifest, damaged: set[str]) -> dict[str, int]:
    """Return the first damaged chunk of each chain."""
    layout, found = manifest.layout, {}
    if layout is None:
        return found
    for row, chain in enumerate(layout.chain_ids):
        for number in reversed(range(layout.n_chunks)):
            if damaged & {layout.path(variable, row, number) for variable in _draws.VARIABLES}:
                found[str(chain)] = number
    return found


def _whole_state(run: Run, group: list[str], damaged: set[str], bad_chunks: dict[str, int]) -> tuple[_Files, str]:
    """Return the newest checkpoints of chains that are intact and older than every damaged chunk."""
    manifest = run.manifest
    starts = {chain: _without(manifest.chains[chain], "state", "last", "final") for chain in group}
    choices = [(manifest.chains, ""), (manifest.previous, "Went back to the checkpoint before the last.")]
    for choice, sentence in choices:
        files = {chain: choice.get(chain, {}) for chain in group}
        if all(_is_whole(run, chain, files[chain], damaged, bad_chunks) for chain in group):
            return files, sentence
    if not group:
        return {}, ""
    if all("start" in files and not damaged & set(files.values()) for files in starts.values()):
        for chain in group:
            record = read_record(run.folder, starts[chain]["start"])
            name = f"chains/{int(chain):04d}/state-000000.safetensors"
            run._write_record(name, record)
            starts[chain]["state"] = name
        return {chain: starts[chain] for chain in group}, "Went back to the beginning of sampling."
    members = {chain: {"member": files["member"]} for chain, files in starts.items() if "member" in files}
    if len(members) == len(group) and not damaged & {files["member"] for files in members.values()}:
        return members, "Went back to the trained ensemble."
    return {}, "Went back to the beginning."


def _without(files: dict[str, str], *kinds: str) -> dict[str, str]:
    return {kind: name for kind, name in files.items() if kind not in kinds}


def _is_whole(run: Run, chain: str, files: dict[str, str], damaged: set[str], bad_chunks: dict[str, int]) -> bool:
    if not files or damaged & set(files.values()):
        return False
    if chain not in bad_chunks:
        return True
    if "final" in files or "state" not in files:
        return False
    layout, record = run.manifest.layout, read_record(run.folder, files["state"])
    return layout is not None and record.n_draws // layout.chunk <= bad_chunks[chain]
