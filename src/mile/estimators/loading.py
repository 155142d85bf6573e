"""Reading from files: `load` returns a saved model or what a run has so far, `resume` continues a stopped run."""

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mile._errors import CorruptFileError, RunMismatchError, Status, UntrustedFileError
from mile._json import Json
from mile._progress import show_progress
from mile._schema import Count, Nullable, Text, quote, refused, require
from mile.configuration import is_custom
from mile.data.dataset import Dataset
from mile.estimators import MileClassifier, MileRegressor, restore_estimator
from mile.estimators._continuing import ask_for_more
from mile.estimators._under_way import ensemble_of
from mile.execution import Backend
from mile.fitting.flatness import RULES
from mile.fitting.result import Fit, Parts, assemble, build_parts, by_phase, read_fit
from mile.fitting.running import fit
from mile.fitting.tensors import Arrays, read_encodings, read_fixed
from mile.fitting.weighing import STACKING
from mile.samplers import with_plan
from mile.sampling.chains import count_gradients
from mile.sampling.record_checks import check_progress, check_reports
from mile.storage import (
    DATA,
    FINISHED,
    OUT_OF_FOLD,
    SCALES,
    TRAINING,
    Layout,
    Manifest,
    Record,
    check_draws,
    check_entries,
    check_member,
    check_pending,
    damaged_files,
    read_draws,
    read_manifest,
    read_record,
    read_status_of,
    read_tensors,
    schema,
)

_ATTEMPTS = 10  # to read a run while another process writes to it
_PAUSE = 0.2  # seconds between them
_RESUME = "If it was stopped, `mile resume {}` resumes it."

Model = Fit | MileRegressor | MileClassifier


# Any: which `Model` it is, only the file says, and callers use the methods of the one that they saved.
def load(path: str | Path, *, network: object = None) -> Any:
    """Return the whole of what was saved, with every array checked; see `mile.load`, which may put it off."""
    path = Path(path)
    with _naming(path):
        found, origin = read_run(path, network) if path.is_dir() else read_fit(path, network)
        return restore_estimator(origin, found, network) if origin else found


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Make every refusal name the file."""
    try:
        yield
    except (CorruptFileError, UntrustedFileError) as error:
        if str(path) in str(error):
            raise
        raise type(error)(f"{path}: {error}") from error


def resume(
    run_dir: str | Path,
    *,
    network: object = None,
    dataset: Dataset | None = None,
    time_limit: float | None = None,
    verbose: int = 0,
    force: bool = False,
    backend: Backend | None = None,
    n_draws: int | None = None,
    n_chains: int | None = None,
    preset: str | None = None,
) -> Any:
    """Resume a run that was stopped, or give a finished one more. The result has the same bits as without the stop.

    Parameters
    ----------
    run_dir
        The folder of the run. A finished one is loaded.
    network
        Your own network again, if the run was begun with one.
    dataset
        The data, if the run does not keep them.
    time_limit
        Seconds from now on. Budgets that are planned already stay.
    verbose
        Above zero shows progress bars.
    force
        Resume a run that another version or another kind of machine began.
    backend
        Where the chains run from now on, such as `mile.execution.DaskBackend(...)`; default: in this process.
    n_draws, n_chains
        How many draws of each chain, and how many chains, a finished run shall have instead. Chains continue from their
        last states at the spacing that their draws have. The result has the bits of a run that had asked for as many
        draws, steps and chains from the start; a warning says where folds would have been others.
    preset
        Another preset for a finished run, such as "default" after "quick", which keeps its trained networks if both
        presets have the same; the chains are sampled anew.

    Returns
    -------
    MileRegressor, MileClassifier or Fit
        What the run was begun by.

    Raises
    ------
    RunMismatchError, RunLockedError, CorruptFileError
        If the run cannot be resumed; the message says why.
    """
    folder = Path(run_dir)
    if not (n_draws is None and n_chains is None and preset is None):
        ask_for_more(folder, load, n_draws=n_draws, n_chains=n_chains, preset=preset, network=network)
    manifest = _manifest(folder)
    configuration = manifest.configuration
    if "network" not in configuration or is_custom(configuration):
        raise RunMismatchError(
            f"The run in {folder} uses functions or classes of your own, which a file cannot hold: call what began it "
            "again, with the same arguments and run_dir."
        )
    arrays = _read(folder, SCALES)
    parts = build_parts(configuration, read_fixed(arrays), network)
    if dataset is None:
        if DATA not in manifest.files:
            raise ValueError(
                f"The run in {folder} does not keep its data: give dataset=, or fit again with the same X, y."
            )
        dataset = _read_dataset(folder, arrays, parts)
    with show_progress(verbose > 0) as progress:
        result = fit(
            dataset,
            **parts._asdict(),
            n_chains=Count(1).read(configuration.get("n_chains"), folder, ("configuration", "n_chains")),
            stacking=Text(choices=STACKING).read(
                configuration.get("stacking", "none"), folder, ("configuration", "stacking")
            ),
            stop_when=Nullable(Text(choices=RULES)).read(
                configuration.get("stop_when"), folder, ("configuration", "stop_when")
            ),
            random_state=manifest.seed,
            progress=progress,
            run_dir=folder,
            store_data=DATA in manifest.files,
            time_limit=time_limit,
            force=force,
            backend=backend,
            origin=manifest.origin,
        )
    return restore_estimator(manifest.origin, result, network) if manifest.origin else result


class ValidationRows(NamedTuple):
    """Rows that a run set aside: encoded features, observed values as they were given, and where each row was."""

    x: np.ndarray
    y: np.ndarray
    numbers: np.ndarray


def read_validation(run_dir: str | Path, fitted: Fit) -> ValidationRows | None:
    """Return the rows that a run set aside for validation; `fitted.for_encoded` predicts them.

    None if the run keeps no data or has no such rows.
    """
    folder = Path(run_dir)
    if DATA not in _manifest(folder).files:
        return None
    valid = read_kept_rows(folder).valid
    return ValidationRows(valid.x, fitted.response.decode(valid.y), valid.number) if len(valid) else None


def read_training(run_dir: str | Path, fitted: Fit) -> tuple[np.ndarray, np.ndarray] | None:
    """Return encoded rows and observed values that a run was fitted on, each at its place in the user's table.

    A place whose row was left out has another row of them. None if the run keeps no data.
    """
    folder = Path(run_dir)
    if DATA not in _manifest(folder).files:
        return None
    train = read_kept_rows(folder).train
    rows = np.zeros(int(train.number.max()) + 1, int)
    rows[train.number] = np.arange(len(train))
    return train.x[rows], fitted.response.decode(train.y)[rows]


def _manifest(folder: Path) -> Manifest:
    """Read the manifest of a run in which no link leads elsewhere."""
    check_entries(folder)
    return read_manifest(folder)


def _read_dataset(folder: Path, arrays: Mapping[str, np.ndarray], parts: Parts) -> Dataset:
    encoder, response = read_encodings(arrays, parts.likelihood, parts.network.input_shape)
    return replace(read_kept_rows(folder), encoder=encoder, response=response)


def read_kept_rows(folder: Path) -> Dataset:
    """Return the rows that a run keeps, encoded."""
    arrays = _read(folder, DATA)
    with refused(f"{folder / DATA} does not hold a data set"):
        return Dataset.from_arrays(**arrays)


def _read(folder: Path, name: str) -> dict[str, np.ndarray]:
    try:
        return read_tensors(folder / name, within=folder).arrays
    except FileNotFoundError:
        raise CorruptFileError(
            f"{folder / name} is missing. Fit again with the same X, y and arguments, and it is written anew."
        ) from None


def read_run(folder: Path, network: object = None) -> tuple[Fit, dict[str, Json] | None]:
    """Read what a run has so far, also while it is written; return also the estimator that began it, if one did."""
    for attempt in range(_ATTEMPTS):
        manifest = _manifest(folder)
        try:
            damaged = damaged_files(folder, manifest)
            if damaged:
                raise CorruptFileError(f"{damaged[0]} is missing or was altered. `mile repair {folder}` may help.")
            return _read_run(folder, manifest, network), manifest.origin
        except (CorruptFileError, FileNotFoundError):
            # If its writer has replaced a file, the manifest has changed, too.
            if attempt == _ATTEMPTS - 1 or read_manifest(folder) == manifest:
                raise
            time.sleep(_PAUSE)
    raise AssertionError("unreachable")


def _read_run(folder: Path, manifest: Manifest, network: object) -> Fit:
    if "logdensity" in manifest.configuration:
        raise ValueError(
            f"The run in {folder} is of mile.sample: call that again with the same arguments, or open its draws.zarr "
            "with xarray."
        )
    kept_arrays = _read(folder, SCALES)
    parts = build_parts(manifest.configuration, read_fixed(kept_arrays), network)
    with refused("the budgets of this run are impossible"):
        parts = parts._replace(sampler=with_plan(parts.sampler, manifest.plan))
    layout = manifest.layout
    if layout is None:
        n_chains = Count(1).read(manifest.configuration.get("n_chains"), folder, ("configuration", "n_chains"))
        n_chains = manifest.begun or n_chains
        members = [record_of(folder, manifest, chain, "member") for chain in range(n_chains)]
        return _without_draws(folder, "the ensemble", manifest, parts, kept_arrays, members)
    n_chains = _count_chains(manifest, layout)
    require(layout.dimension == parts.network.dimension, "the draws are not of this network.")

    members = {chain: record_of(folder, manifest, chain, "member") for chain in layout.chain_ids}
    records = {chain: record_of(folder, manifest, chain, "final", "state") for chain in layout.chain_ids}
    _check_records(parts, layout, members.values(), records.values())
    codes = {chain: _status(members[chain], records[chain]) for chain in layout.chain_ids}
    failed = [chain for chain in range(n_chains) if codes[chain] != Status.OK]
    spare = [
        chain
        for chain in layout.chain_ids
        if chain >= n_chains and (record := records[chain]) and record.stage == FINISHED
    ]
    replaced = dict(zip(failed, spare, strict=False))
    chosen = [replaced.get(chain, chain) for chain in range(n_chains)]
    kept = [record for chain in chosen if (record := records[chain]) is not None]
    trained = [record for chain in chosen if (record := members[chain]) is not None]
    if len(kept) < n_chains or len(trained) < n_chains or not min(record.n_draws for record in kept):
        stage = kept[0].stage if kept else "the ensemble"
        return _without_draws(
            folder, stage, manifest, parts, kept_arrays, [members[chain] for chain in range(n_chains)]
        )
    if all(codes[chain] != Status.OK for chain in chosen):
        raise ValueError(f"All chains of the run in {folder} failed: there is nothing to predict with.")
    arrays = dict(kept_arrays)
    arrays |= _draws_of(kept, folder, manifest, layout, [layout.chain_ids.index(chain) for chain in chosen])
    arrays |= {name: _stack(kept, name) for name in kept[0].arrays if name.startswith(("info.", "history."))}
    check_reports(kept)
    info = by_phase(arrays, "info", parts.sampler)
    arrays |= {
        "chain_status": _stack(kept, "status"),
        "gradient_evaluations": count_gradients(parts.sampler, info, n_chains),
        "chain_ids": np.array(chosen),
        "status": np.array([codes[chain] for chain in chosen], np.int32),
        "member": _stack(trained, "position"),
        "member_status": _stack(trained, "status"),
        "member_epochs": _stack(trained, "epochs"),
        "validation_loss": _stack(trained, "losses"),
    }
    if OUT_OF_FOLD in manifest.files:
        arrays |= _read(folder, OUT_OF_FOLD)
    if manifest.weights is not None:
        arrays[schema.CANDIDATE_WEIGHTS] = np.array(manifest.weights)
    return assemble(parts, arrays, manifest.seed)


def record_of(folder: Path, manifest: Manifest, chain: int, *kinds: str) -> Record | None:
    """Return the first of these kinds of records that a chain has."""
    names = [manifest.chains.get(str(chain), {}).get(kind) for kind in kinds]
    return next((read_record(folder, name) for name in names if name is not None), None)


def _without_draws(
    folder: Path, stage: str, manifest: Manifest, parts: Parts, kept: Arrays, members: list[Record | None]
) -> Fit:
    """Return the deep ensemble of a run that has no draws yet, or say what is missing."""
    found = ensemble_of(folder, stage, parts, kept, members, manifest.seed)
    if found is None:
        raise ValueError(f"The run in {folder} has no draws yet: it is in {stage}. {_RESUME.format(folder)}")
    return found


def _check_records(
    parts: Parts, layout: Layout, members: Iterable[Record | None], records: Iterable[Record | None]
) -> None:
    """Check what is read of the records; a run that another process writes to may not have all of them."""
    for member in (record for record in members if record is not None):
        check_member(member, layout.dimension, parts.training.max_epochs)
    with refused("the sampler"):  # its step size may be open
        phases = parts.sampler.phases
    kept = [record for record in records if record is not None and record.stage != TRAINING]
    for record in kept:
        names = [FINISHED, *(phase.name for phase in phases)]
        require(record.stage in names, f"stage must be one of {names}; got {quote(record.stage)}.", record.source)
    check_progress(kept, phases, layout)


def _count_chains(manifest: Manifest, layout: Layout) -> int:
    counts = Count(1, len(layout.chain_ids))
    n_chains = counts.read(manifest.configuration.get("n_chains"), place=("configuration", "n_chains"))
    require(set(range(n_chains)) <= set(layout.chain_ids), "there is no room for the draws of some chains.")
    # Chains that are added have no draws yet.
    return n_chains if manifest.finished or manifest.begun is None else min(n_chains, manifest.begun)


def _draws_of(
    records: list[Record], folder: Path, manifest: Manifest, layout: Layout, rows: list[int]
) -> dict[str, np.ndarray]:
    """Return the draws that all of these chains have. Those after the last chunk come from the checkpoints."""
    n_draws, pending = min(record.n_draws for record in records), None
    n_stored = n_draws
    most = max(record.n_draws for record in records)
    require(most <= layout.n_draws, "the chains of this run have more draws than there is room for.")
    if any(record.stage != FINISHED for record in records):
        stages = {record.stage for record in records}
        require(len(stages) == 1, "the chains of this run were not saved together.")
        pending = [check_pending(record, layout) for record in records]
        n_stored = n_draws // layout.chunk * layout.chunk
        # A chain that is ahead, or has all its draws, has the newest common ones in a chunk already.
        is_last = [n_stored + len(part[1]) == record.n_draws for record, part in zip(records, pending, strict=True)]
        pending = [part if last else None for part, last in zip(pending, is_last, strict=True)]
        ahead = [row for row, part in zip(rows, pending, strict=True) if part is None]
        check_draws(manifest.files, layout, ahead, n_draws, folder)
    check_draws(manifest.files, layout, rows, n_stored, folder)
    draws = read_draws(folder, layout, rows, n_draws, pending)
    return {"draws": draws.position, "logdensity": draws.logdensity, "energy_change": draws.energy_change}


def _status(member: Record | None, record: Record | None) -> Status:
    trained = Status.OK if member is None else read_status_of(member)
    sampled = Status.OK if record is None or record.stage == TRAINING else read_status_of(record)
    return sampled if trained == Status.OK else trained


def _stack(records: list[Record], name: str) -> np.ndarray:
    arrays = [record.arrays[name] for record in records if name in record.arrays]
    is_same = len(arrays) == len(records) and len({(array.shape, array.dtype) for array in arrays}) == 1
    require(is_same, f"all chains of this run must hold {quote(name)}, of one type and shape.")
    return np.stack(arrays)
