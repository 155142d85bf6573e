"""Repair of a damaged run: back to its last complete checkpoint. Resumed from there, it gives the same bits."""

from pathlib import Path

from mile._errors import CorruptFileError, UntrustedFileError
from mile._schema import Count
from mile.storage import _draws
from mile.storage._durable import remove, write_file
from mile.storage._inside import check_entries, inside, name_some, read_inside
from mile.storage._lock import locked
from mile.storage._manifest import NAME, PREVIOUS, Manifest, read_manifest
from mile.storage._run import Run, read_record
from mile.storage._run_folder import DATA, SCALES, damaged_files

_Files = dict[str, dict[str, str]]  # chain -> kind of record -> file


def repair(run_dir: str | Path) -> list[str]:
    """Bring a run back to its last complete checkpoint; return what was done, one sentence each.

    Raises
    ------
    CorruptFileError
        If nothing can be saved: both manifests are unreadable.
    RunLockedError
        If another process is writing to it.
    UntrustedFileError
        If a link or something else that no run contains has the name of one of its files.
    """
    folder = Path(run_dir)
    if not folder.is_dir():
        raise CorruptFileError(f"{folder} is not a run directory.")
    others = check_entries(folder)
    with locked(folder):
        manifest, done = _newest_manifest(folder)
        damaged = {path.relative_to(folder).as_posix() for path in damaged_files(folder, manifest)}
        done += [f"{name} is damaged." for name in sorted(damaged)]
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
    n_chains = Count().read(manifest.configuration.get("n_chains", len(manifest.chains)))
    bad_chunks = _bad_chunks(manifest, damaged)
    chains: _Files = {}
    changed = not manifest.finished or bool(damaged - {PREVIOUS})
    # Chains that were run together are in step; those that replaced failed ones came later.
    for group in (
        [i for i in manifest.chains if int(i) < n_chains],
        [i for i in manifest.chains if int(i) >= n_chains],
    ):
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
    starts = {chain: _without(manifest.chains[chain], "state", "final") for chain in group}
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
