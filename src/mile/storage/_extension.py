"""A finished run that is asked for more: it becomes a stopped run with larger budgets, which `resume` continues.

One manifest replaces another, so at every moment the folder holds the finished run or the longer one.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from mile._errors import CorruptFileError, RunMismatchError
from mile._json import Json
from mile._schema import Count
from mile.storage import _draws
from mile.storage._draw_files import read_draws
from mile.storage._draws import Layout
from mile.storage._durable import remove
from mile.storage._inside import check_entries, inside
from mile.storage._lock import locked
from mile.storage._manifest import read_manifest
from mile.storage._records import Record, read_record
from mile.storage._run import Run
from mile.storage._run_folder import OUT_OF_FOLD, check_space, clean, damaged_files

_FIRST_STATE = "state-000001"


def extend_run(
    folder: Path,
    *,
    configuration: dict[str, Json],
    origin: dict[str, Json] | None,
    n_draws: int | None = None,
    members_only: bool = False,
) -> None:
    """Give a finished run another configuration that continues what it has.

    Parameters
    ----------
    folder
        Of the run.
    configuration, origin
        What the manifest shall say; `n_chains` may be larger than it was.
    n_draws
        Of each chain, if there shall be more: each continues from its last state.
    members_only
        Whether only the trained networks are of use, and no draws.

    Raises
    ------
    RunMismatchError
        If the run is not finished, or does not keep the last states of its chains.
    RunLockedError, CorruptFileError, ResourceError
        If another process is writing to it, a file is damaged, or the disk has no room.
    """
    check_entries(folder)
    with locked(folder):
        manifest = read_manifest(folder)
        clean(folder, manifest)
        layout = manifest.layout
        if not manifest.finished or layout is None:
            raise RunMismatchError(
                f"The run in {folder} is not finished: `mile resume {folder}` finishes it, then ask for more."
            )
        damaged = damaged_files(folder, manifest)
        if damaged:
            raise CorruptFileError(f"{damaged[0]} is damaged. `mile repair {folder}` goes back to what is whole.")
        run = Run(folder, manifest)
        try:
            stale = _extend(run, layout, configuration, n_draws, members_only=members_only)
            manifest.configuration, manifest.origin = configuration, origin
            stale += run._forget_unused()
            run._sync()
            manifest.write(folder)
        finally:
            run.close()
        for name in stale:
            remove(inside(folder, name))


def _extend(
    run: Run, layout: Layout, configuration: Mapping[str, Json], n_draws: int | None, *, members_only: bool
) -> list[str]:
    """Change the manifest of a run; return the files that are of no use any more."""
    manifest, folder = run.manifest, run.folder
    n_before = Count(1).read(manifest.configuration.get("n_chains"), folder, ("configuration", "n_chains"))
    n_chains = Count(n_before).read(configuration.get("n_chains"), folder, ("configuration", "n_chains"))
    # A chain that replaced a failed one had the number of the next chain, which is another one now.
    own = {chain: files for chain, files in manifest.chains.items() if int(chain) < n_before}
    rows = [row for row, chain in enumerate(layout.chain_ids) if members_only or chain >= n_before]
    stale = [OUT_OF_FOLD] if OUT_OF_FOLD in manifest.files else []
    stale += [name for row in rows for name in _chunks(layout, row, 0) if name in manifest.files]
    larger = layout._replace(chain_ids=tuple(range(n_chains)), n_draws=n_draws or layout.n_draws)
    if members_only:
        own = {chain: {"member": files["member"]} for chain, files in own.items()}
        stale += [name for name in manifest.files if name.startswith(_draws.FOLDER) and name not in stale]
        manifest.layout = manifest.plan = None
    else:
        check_space(folder, larger.n_bytes - layout.n_bytes)
        manifest.layout = larger
    manifest.begun = n_before if n_chains > n_before else None
    if n_draws is not None and not members_only:
        if "lost" in manifest.status.values():
            raise RunMismatchError(
                f"The run in {folder} has chains that no worker could compute, which cannot continue: fit from the "
                "start with more draws."
            )
        manifest.plan = None
        own = {chain: _reopened(run, layout, int(chain), files) for chain, files in own.items()}
    for name in stale:
        del manifest.files[name]
    manifest.chains, manifest.previous = own, {}
    manifest.finished, manifest.status, manifest.weights = False, {}, None
    return stale


def _reopened(run: Run, layout: Layout, chain: int, files: Mapping[str, str]) -> dict[str, str]:
    """Write the last state of a chain as a checkpoint that holds the draws of a chunk that is not full; name it."""
    if "last" not in files:
        raise RunMismatchError(
            f"The run in {run.folder} does not keep the last states of its chains: an earlier version made it, which "
            "kept none. More chains can be added (n_chains), or fit from the start with more draws."
        )
    record, row = read_record(run.folder, files["last"]), layout.chain_ids.index(chain)
    n_whole = layout.n_draws // layout.chunk
    if layout.n_draws % layout.chunk:
        drawn = read_draws(run.folder, layout, [row], layout.n_draws)
        start = n_whole * layout.chunk
        pending = (drawn.position[0, start:], drawn.logdensity[0, start:], drawn.energy_change[0, start:])
        record = _with_pending(record, dict(enumerate(pending)))
        for name in _chunks(layout, row, n_whole):
            run.manifest.files.pop(name)  # it is written anew when it is full
    name = f"chains/{chain:04d}/{_FIRST_STATE}.safetensors"
    run._write_record(name, record)
    return {kind: name for kind, name in files.items() if kind in ("member", "start")} | {"state": name}


def _with_pending(record: Record, pending: Mapping[int, object]) -> Record:
    return record._replace(arrays=record.arrays | {f"draw.{number}": array for number, array in pending.items()})


def _chunks(layout: Layout, row: int, first: int) -> Iterator[str]:
    """Yield the files of the draws of one chain, from a chunk on."""
    for variable in _draws.VARIABLES:
        for number in range(first, layout.n_chunks):
            yield layout.path(variable, row, number)
