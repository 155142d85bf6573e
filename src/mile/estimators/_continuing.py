"""More of a finished fit: draws, chains or the steps of another preset, from where it ended."""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mile._checks import check_count
from mile._errors import RunMismatchError, warn
from mile._json import Json
from mile.configuration import describe
from mile.estimators._arguments import AbstractArguments
from mile.estimators._fitted import AbstractFittedModel
from mile.estimators._networks import default_network
from mile.fitting.job import Job
from mile.fitting.result import Fit
from mile.fitting.weighing import STACKING
from mile.samplers import Sampler, budgets_of, resized
from mile.storage import DATA, Manifest, Remembered, extend_run, has_run, read_manifest, read_tensors

_WHOLE = "Fit from the start for that."
Load = Callable[..., Any]  # `mile.load`, which returns what the run was begun by


class Previous(NamedTuple):
    """A fit that another one may add to."""

    job: Job
    fit: Fit
    memory: Remembered | None  # None: in a run directory

    @property
    def n_folds(self) -> int:
        """How many folds rotate; 0 if none do."""
        return _count_folds(self.job.dataset.folds)

    def kept_folds(self, wanted: int) -> int:
        """Return how many folds another fit has; a warning says where more chains would have had others."""
        if wanted != self.n_folds:
            _warn_of_folds(self.n_folds, wanted, len(self.fit.status))
        return self.n_folds


def ask_for_more(
    folder: Path, load: Load, *, n_draws: int | None, n_chains: int | None, preset: str | None, network: object = None
) -> None:
    """Give a finished run larger budgets; a run that has them already stays as it is.

    Raises
    ------
    ValueError
        If there would be fewer draws or chains, or nothing of the run would be left.
    RunMismatchError
        If the run is not finished.
    """
    manifest = read_manifest(folder)
    configuration = dict(manifest.configuration)
    if _has(manifest, n_draws, n_chains, preset):
        return
    if not manifest.finished:
        raise RunMismatchError(
            f"The run in {folder} is not finished: `mile resume {folder}` finishes it, then ask for more."
        )
    model = load(folder, network=network)
    fit = model if isinstance(model, Fit) else model.fit_
    changes: dict[str, object] = {}
    if n_chains is not None:
        before = len(fit.status)
        if check_count("n_chains", n_chains) < before:
            raise ValueError(f"n_chains must be at least the {before} chains that the run has; got {n_chains}.")
        changes["n_chains"] = configuration["n_chains"] = n_chains
    if preset is not None:
        if isinstance(model, Fit):
            raise ValueError("preset is for runs of an estimator: this one was begun by mile.fit.")
        changed = _changed(model, {"preset": preset, **changes, **({} if n_draws is None else {"n_draws": n_draws})})
        configuration |= _of_preset(model, changed, folder)
        if configuration["stacking"] == STACKING[0]:
            del configuration["stacking"]
    else:
        if n_draws is not None:
            now = fit.chains.logdensity.shape[1]
            if check_count("n_draws", n_draws) <= now:
                raise ValueError(f"n_draws must be more than the {now:,} draws of each chain that there are.")
            longer = resized(fit.sampler, n_draws)
            changes |= {"n_draws": n_draws, "sampling_steps": budgets_of(longer)["sampling_steps"], "stop_when": None}
            configuration["sampler"] = describe(longer)
            configuration.pop("stop_when", None)
        changed = model if isinstance(model, Fit) else _changed(model, changes)
    if n_chains is not None and isinstance(changed, AbstractFittedModel) and changed.n_folds is None:
        changed = _keep_folds(changed, fit, folder, manifest)
    extend_run(
        folder,
        configuration=configuration,
        origin=None if isinstance(changed, Fit) else changed._origin(fit.seed),
        n_draws=None if preset is not None else n_draws,
        members_only=preset is not None,
    )


def _has(manifest: Manifest, n_draws: int | None, n_chains: int | None, preset: str | None) -> bool:
    """Say whether a run was asked for all of this before."""
    configuration: dict[str, Any] = manifest.configuration  # JSON
    asked: Any = {} if manifest.origin is None else manifest.origin.get("parameters", {})
    drawn = configuration.get("sampler", {}).get("n_draws")
    if manifest.finished and manifest.layout is not None:
        drawn = manifest.layout.n_draws  # fewer where a time limit or a rule ended the sampling
    return (
        n_draws in (None, drawn)
        and n_chains in (None, configuration.get("n_chains"))
        and preset in (None, asked.get("preset"))
    )


def _changed(model: AbstractFittedModel, changes: Mapping[str, object]) -> AbstractFittedModel:
    """Return the estimator with other arguments; those that it does not have are left out."""
    changed = copy(model)
    changed.set_params(**{name: value for name, value in changes.items() if name in changed._get_param_names()})
    return changed


def _keep_folds(changed: AbstractFittedModel, fit: Fit, folder: Path, manifest: Manifest) -> AbstractFittedModel:
    """Return the estimator with the folds that its run has, and say where more chains would have had others."""
    found = _read_folds(folder, manifest, fit)
    if found is None:
        return changed
    _warn_of_folds(found.n_folds, changed._folds(found.n_rows), len(fit.status))
    return _changed(changed, {"n_folds": found.n_folds})


def _warn_of_folds(n_folds: int, wanted: int, n_before: int) -> None:
    if wanted != n_folds:
        warn(
            f"A fit with so many chains from the start would rotate {wanted} folds. This one keeps the {n_folds} of "
            f"its first {n_before} chains, so it equals a fit with n_folds={n_folds}."
        )


class _Folds(NamedTuple):
    n_rows: int
    n_folds: int


def _read_folds(folder: Path, manifest: Manifest, fit: Fit) -> _Folds | None:
    """Return how many rows and folds a run has, as far as it keeps them."""
    if DATA in manifest.files:
        arrays = read_tensors(folder / DATA, within=folder).arrays
        n_rows = len(arrays["y_train"]) + len(arrays["y_valid"])
        return _Folds(n_rows, _count_folds(arrays.get("fold_train")))
    unseen = fit.out_of_fold
    return None if unseen is None else _Folds(len(unseen), unseen.n_folds)


def _count_folds(folds: np.ndarray | None) -> int:
    return 0 if folds is None else int(folds.max()) + 1


def _of_preset(model: AbstractFittedModel, changed: AbstractFittedModel, folder: Path) -> dict[str, Json]:
    """Return what another preset changes of a configuration, if all that trained the networks stays.

    Raises
    ------
    ValueError
        If it does not; the message names what differs.
    """
    fit, manifest = model.fit_, read_manifest(folder)
    found = _read_folds(folder, manifest, fit)
    if found is None:
        raise ValueError(f"preset needs the rows of the run, which {folder} does not keep. {_WHOLE}")
    now, then = changed._configuration(found.n_rows), model._configuration(found.n_rows)
    usual, before = changed._usual(found.n_rows), model._usual(found.n_rows)
    network, n_outputs = fit.network, fit.likelihood.n_outputs
    if changed.network is None:
        encoded = usual.of_encoded(fit.encoder.takes_tables)
        network = default_network(
            network.input_shape, n_outputs, found.n_rows, changed.hidden_layer_sizes, changed.activation, encoded
        )
    pairs = {
        "network": (fit.network, network),
        "prior": (then["prior"], now["prior"]),
        "training": (then["training"], now["training"]),
        "likelihood": (before.likelihood, usual.likelihood),
        "number of folds": (found.n_folds, changed._folds(found.n_rows)),
        "encoding": (model.preset == "paper", changed.preset == "paper"),
    }
    for name, (ours, theirs) in pairs.items():
        if describe(ours) != describe(theirs):
            raise ValueError(
                f"preset={changed.preset!r} has another {name} for {found.n_rows:,} rows than the run, so that none of "
                f"its networks can be kept. {_WHOLE}"
            )
    sampler = now["sampler"].with_start(now["training"].learning_rate)
    return {"sampler": describe(sampler), "stacking": now["stacking"]}


# A second fit of an estimator


def continued(estimator: AbstractArguments, previous: Previous, asked: Job) -> tuple[Job, Remembered | None] | None:
    """Return the job that adds to a previous one what is asked for, and what is remembered of it.

    None, with a warning that says why, if the fit must begin from the start.

    Raises
    ------
    ValueError
        If there would be fewer draws or chains.
    """
    fit, before = previous.fit, previous.job
    n_chains, n_draws = len(fit.status), fit.chains.logdensity.shape[1]
    budgets, then = budgets_of(asked.sampler), budgets_of(before.sampler)
    is_longer = budgets.get("n_draws", 0) != then.get("n_draws", 0)
    if asked.n_chains < n_chains or (is_longer and budgets.get("n_draws", 0) < n_draws):
        raise ValueError(
            f"with warm_start=True there can only be more draws and chains than the {n_draws:,} and {n_chains} of the "
            f"fit before; got {budgets.get('n_draws', 0):,} and {asked.n_chains}."
        )
    reason = _difference(before, asked) or _reason(fit, previous.memory)
    sampler = fit.sampler
    if not reason:
        try:
            sampler = resized(fit.sampler, budgets["n_draws"]) if is_longer else fit.sampler
        except ValueError as error:
            reason = str(error)
    if not reason and not _is_asked(asked.sampler, sampler if is_longer else before.sampler, estimator, then):
        reason = "the steps asked for are not those of its chains continued"
    if reason:
        warn(f"warm_start=True begins from the start: {reason}.")
        return None
    job = replace(asked, sampler=sampler)
    if previous.memory is None:
        return job, None
    drawn = (fit.chains.draws, fit.chains.logdensity, fit.chains.energy_change)
    by_chain = {chain: [np.asarray(array[chain]) for array in drawn] for chain in range(n_chains)}
    return job, previous.memory.longer(by_chain, asked.n_chains, more_draws=is_longer)


def _difference(before: Job, asked: Job) -> str:
    """Name what differs between two jobs besides draws and chains."""
    if before.dataset.sha256() != asked.dataset.sha256():
        return "the rows are not those of the fit before (update() adds rows)"
    for name in ("network", "likelihood", "prior", "training", "temperature", "stacking", "seed"):
        if describe(getattr(before, name)) != describe(getattr(asked, name)):
            return f"{name} is not that of the fit before"
    return ""


def _reason(fit: Fit, memory: Remembered | None) -> str:
    """Say why a fit cannot be continued."""
    if memory is not None and not (fit.ok.all() and np.array_equal(fit.chain_ids, np.arange(len(fit.ok)))):
        return "some chains of the fit before failed"
    return ""


def _is_asked(asked: Sampler, longer: Sampler, estimator: AbstractArguments, before: Mapping[str, int]) -> bool:
    """Say whether these are the steps that were asked for, or none were asked for."""
    wanted, given = budgets_of(longer), budgets_of(asked)
    if estimator.sampling_steps not in (None, before.get("sampling_steps"), wanted.get("sampling_steps")):
        return False
    same = {name: wanted[name] for name in ("sampling_steps", "n_draws") if name in given}
    return describe(replace(asked, **same)) == describe(longer)


def extend_folder(folder: Path, job: Job, previous: Previous, origin: dict[str, Json]) -> None:
    """Give the run of an estimator what its next fit asks for."""
    if not has_run(folder):
        return
    manifest = read_manifest(folder)
    n_draws = budgets_of(job.sampler).get("n_draws")
    is_longer = n_draws is not None and n_draws > previous.fit.chains.logdensity.shape[1]
    if not (is_longer or job.n_chains > len(previous.fit.status)) or not manifest.finished:
        return
    configuration = dict(manifest.configuration) | {"n_chains": job.n_chains}
    if is_longer:
        configuration["sampler"] = describe(job.sampler)
    extend_run(folder, configuration=configuration, origin=origin, n_draws=n_draws if is_longer else None)
