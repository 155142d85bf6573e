"""How far a run is and how well it predicts already, read from its folder while another process writes it."""

import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mile import _registry
from mile._errors import CorruptFileError, FitWarning
from mile._schema import Count, refused
from mile.configuration import build
from mile.data import Dataset
from mile.estimators.loading import read_kept_rows, read_run, record_of
from mile.fitting.out_of_fold import predict_out_of_fold
from mile.fitting.result import Fit
from mile.fitting.unseen import Estimate, OutOfFold, summarize
from mile.samplers import Sampler
from mile.samplers.auto import with_plan
from mile.storage import DATA, FINISHED, TRAINING, Manifest, Record, read_manifest, run_seconds

# What the phases of MILE do; those of other samplers go by their names.
_WORDS = {
    "phase I": "finding the step size",
    "phase II": "scaling the directions",
    "phase III": "finding how long a chain remembers",
}


_ATTEMPTS, _PAUSE = 5, 0.2


class RunState(NamedTuple):
    """How far a run is, by its last checkpoints, and how well what it has predicts rows that it has not seen.

    Attributes
    ----------
    stage
        In words: "training networks", what the sampler does, or "finished".
    trained, networks
        How many networks are trained, of how many.
    step, steps
        Of each chain, in all phases together; the slowest chain counts.
    draws
        That each chain has.
    seconds
        From the run's first file to its last.
    score, ensemble_score
        LPPD with its standard error: of what `mile.load` gives now, and of the starting ensemble. None if nothing
        predicts yet or there are no unseen rows.
    rows
        What rows these are of.
    """

    stage: str
    trained: int
    networks: int
    step: int
    steps: int
    draws: int
    seconds: float
    score: Estimate | None = None
    ensemble_score: Estimate | None = None
    rows: str = ""

    @property
    def is_finished(self) -> bool:
        """Whether the run is over."""
        return self.stage == FINISHED


def watch_run(folder: str | Path, network: object = None) -> RunState:
    """Read how far a run is and score what it has so far.

    Parameters
    ----------
    folder
        The run directory, also one that another process is writing to.
    network
        Your own network again, if the run was begun with one.

    Raises
    ------
    CorruptFileError, UntrustedFileError
        If a file of the run is damaged.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from sklearn.datasets import load_diabetes
    >>> from mile import MileRegressor
    >>> from mile.estimators.watching import watch_run
    >>> folder = pathlib.Path(tempfile.mkdtemp()) / "diabetes.run"
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = MileRegressor(preset="quick", n_chains=2, random_state=0, run_dir=folder).fit(X, y)
    >>> watch_run(folder).stage
    'finished'
    """
    folder = Path(folder)
    for attempt in range(_ATTEMPTS):
        try:
            return _look(folder, network)
        except (CorruptFileError, FileNotFoundError):  # the writer may just have replaced a file
            if attempt == _ATTEMPTS - 1:
                raise
            time.sleep(_PAUSE)
    raise AssertionError("unreachable")


def time_left(earlier: RunState, now: RunState, seconds_between: float) -> float | None:
    """Return the seconds that the sampling still takes at the speed between two looks; None if that is not known."""
    made = now.step - earlier.step
    return None if made <= 0 or now.is_finished else (now.steps - now.step) / made * seconds_between


def _look(folder: Path, network: object) -> RunState:
    state = _place(folder)
    if state.trained < state.networks:
        return state
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # that there are no draws yet is what the state says
        fit, _ = read_run(folder, network)
    return _scored(state, fit, folder)


def _place(folder: Path) -> RunState:
    """Say how far a run is, by the slowest of its chains."""
    manifest = read_manifest(folder)
    n_chains = Count(1).read(manifest.configuration.get("n_chains"), folder, ("configuration", "n_chains"))
    members = [record_of(folder, manifest, chain, "member") for chain in range(n_chains)]
    known = [record_of(folder, manifest, chain, "final", "state") for chain in range(n_chains)]
    records = [record for record in known if record is not None and record.stage != TRAINING]
    phases = _sampler(folder, manifest).phases
    done = [_steps_made(record, [(phase.name, phase.n_steps) for phase in phases]) for record in records]
    trained, have_begun = sum(member is not None for member in members), len(records) == n_chains
    stage = "training networks" if trained < n_chains else "beginning to sample"
    if manifest.finished:
        stage = FINISHED
    elif have_begun:
        behind = records[int(np.argmin(done))].stage
        stage = _WORDS.get(behind, behind)
    return RunState(
        stage=stage,
        trained=trained,
        networks=n_chains,
        step=min(done) if have_begun else 0,
        steps=sum(phase.n_steps for phase in phases),
        draws=min(record.n_draws for record in records) if have_begun else 0,
        seconds=run_seconds(folder),
    )


def _sampler(folder: Path, manifest: Manifest) -> Sampler:
    with refused(f"the budgets of the run in {folder} are impossible"):
        return with_plan(build(manifest.configuration.get("sampler"), _registry.sampler), manifest.plan)


def _steps_made(record: Record, phases: list[tuple[str, int]]) -> int:
    """Return how many steps a chain has made in all phases."""
    made = 0
    for name, n_steps in phases:
        if record.stage == name:
            return made + record.step
        made += n_steps
    return made if record.stage == FINISHED else 0


def _scored(state: RunState, fit: Fit, folder: Path) -> RunState:
    dataset = read_kept_rows(folder) if DATA in read_manifest(folder).files else None
    unseen = fit.out_of_fold or _left_out(fit, dataset)
    if unseen is not None:
        return state._replace(
            score=unseen.scores["lppd"], ensemble_score=unseen.scores_of_ensemble["lppd"], rows="out-of-fold rows"
        )
    if dataset is None or not len(dataset.valid):
        return state
    rows, encoded = dataset.valid, fit.for_encoded
    y = fit.response.decode(rows.y)
    score, of_ensemble = (
        summarize({"lppd": method(rows.x).log_prob(y)}, rows.weight)["lppd"]
        for method in (encoded.predictive, encoded.ensemble_predictive)
    )
    return state._replace(score=score, ensemble_score=of_ensemble, rows="validation rows")


def _left_out(fit: Fit, dataset: Dataset | None) -> OutOfFold | None:
    return None if dataset is None or dataset.folds is None else predict_out_of_fold(fit, dataset)
