"""`likelihood="auto"` for estimators: what an earlier call has chosen stands, and else the rows decide."""

from collections.abc import Callable
from pathlib import Path

from mile import _registry
from mile.configuration import build
from mile.data import Dataset
from mile.ensemble.training import Training
from mile.estimators._task import LearningTask
from mile.fitting.likelihood_choice import Chosen, LikelihoodChoice, choose_by_left_out_rows
from mile.likelihoods import AbstractLikelihood
from mile.likelihoods.limits import has_limits
from mile.likelihoods.recognition import Recognized, recognize
from mile.networks.base import Network
from mile.storage import has_run, read_manifest

_SHARE_OF_TIME = 0.2  # of a time limit that the comparison may take


def settle_likelihood(
    task: LearningTask,
    dataset: Callable[[], Dataset],
    network_for: Callable[[LearningTask, Dataset], Network],
    training: Training,
    *,
    seed: int,
    run_dir: str | Path | None,
    time_limit: float | None,
    n_threads: int | None,
) -> Chosen:
    """Return the likelihood of a task whose rows shall decide it; that of the task is the usual one.

    Parameters
    ----------
    task
        Checked rows.
    dataset
        Returns them encoded, with folds that rotate.
    network_for
        Returns the network of a task with such rows.
    training, seed, n_threads
        Of the fit.
    run_dir
        Where a run may be that has chosen already; it is not compared again.
    time_limit
        Of the whole fit.
    """
    before = _chosen_before(run_dir)
    if before is not None:
        return before
    usual = task.likelihood
    found = Recognized("known by limits in some rows") if has_limits(task.y) else recognize(task.y)
    if not found.families:
        name = _registry.likelihood.name_of(type(usual)) or type(usual).__name__
        return Chosen(usual, LikelihoodChoice(chosen=name, kind=found.kind))
    encoded = dataset()

    def network(likelihood: AbstractLikelihood) -> Network:
        return network_for(task._replace(likelihood=likelihood), encoded)

    return choose_by_left_out_rows(
        encoded,
        task.y,
        found,
        usual,
        network,
        training,
        seed=seed,
        seconds=None if time_limit is None else _SHARE_OF_TIME * time_limit,
        groups=task.folding.groups,
        n_threads=n_threads,
    )


def _chosen_before(run_dir: str | Path | None) -> Chosen | None:
    """Return what the run in a folder has chosen; None if there is no run, or it did not choose."""
    if run_dir is None or not has_run(Path(run_dir)):
        return None
    manifest = read_manifest(Path(run_dir))
    described = (manifest.origin or {}).get("choice")
    if described is None:
        return None
    return Chosen(build(manifest.configuration["likelihood"], _registry.likelihood), LikelihoodChoice.read(described))
