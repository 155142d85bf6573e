"""The front door of a fit: decide seed, backend and folder, then do the job."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from mile._checks import check_number
from mile._compilation import use_compilation_cache
from mile._deadline import Deadline
from mile._json import Json
from mile._progress import Progress, Silent
from mile.data import Dataset
from mile.ensemble.members import Members, member_records
from mile.ensemble.training import Training
from mile.execution import Backend, choose_backend
from mile.fitting.job import Job, identify, plan
from mile.fitting.result import Fit
from mile.fitting.tensors import prediction_tensors
from mile.likelihoods import AbstractLikelihood
from mile.networks.base import Network
from mile.priors import Prior
from mile.samplers import Sampler
from mile.sampling.chains import saved_when_stopped, seed_for
from mile.sampling.timing import check_memory
from mile.storage import DATA, SCALES, Manifest, Remembered, Run, Unsaved, check_space, has_run, open_run, read_manifest


def fit(
    dataset: Dataset,
    network: Network,
    likelihood: AbstractLikelihood,
    prior: Prior | None = None,
    sampler: Sampler | None = None,
    *,
    training: Training | None = None,
    n_chains: int = 12,
    temperature: float = 1.0,
    random_state: int | None = None,
    progress: Progress | None = None,
    run_dir: str | Path | None = None,
    store_data: bool = True,
    time_limit: float | None = None,
    force: bool = False,
    backend: Backend | None = None,
    origin: dict[str, Json] | None = None,
    stacking: str = "none",
    stop_when: str | None = None,
) -> Fit:
    """Train a deep ensemble, start one chain from each member, and keep the draws.

    A chain that fails is replaced once, from a freshly trained member with random streams of its own; the
    other chains' numbers do not change.

    Parameters
    ----------
    dataset
        Training and validation rows; see `Dataset`.
    network
        Such as `MLP`; its number of outputs must be the likelihood's.
    likelihood, prior
        Default prior: standard normal. Others are `Laplace`, `StudentT`, `FanIn`, `PerLayer` and `Hierarchical`.
    sampler
        Default: `Mile()`, the paper's.
    training
        How the ensemble is trained; its learning rate is the sampler's first step size.
    n_chains
        Members and chains.
    temperature
        The chains sample the posterior to the power 1 / temperature, likelihood and prior alike, so below 1 it is
        narrower. The ensemble is the same at any temperature.
    random_state
        Seed; None draws one, or takes that of the run in `run_dir`.
    progress
        Such as `Bars`.
    run_dir
        Folder that takes draws and checkpoints while the fit runs. If it holds a run of the same data and
        configuration, that run is resumed, and the result has the same bits as without a stop. Ctrl-C and SIGTERM
        save the run before they end it.
    store_data
        Whether the run keeps the prepared data, so that `mile.resume` needs only the folder.
    time_limit
        Seconds that the fit may take. Budgets that need more are cut, with a warning that says by how much.
    force
        Resume a run that was begun by another version or on another kind of machine; its manifest records it.
    backend
        Where the chains run: `InProcess()` (the default: all cores of this machine), `Devices()` or `DaskBackend(...)`
        of `mile.execution`. The draws have the same bits everywhere on one kind of machine, and the run directory is
        the same, so a run may begin on one backend and resume on another.
    origin
        Description of the estimator that calls this, to rebuild it; kept in the manifest.
    stacking
        How chains and the members that they start from are weighed by the rows that they left out: "none" (all good
        chains count the same), "ensemble" (all chains against the whole ensemble) or "slots" (a slot has one chain, or
        one member, for each fold). Without folds nothing is weighed.
    stop_when
        "flat": sampling ends when the last third of the draws has gained less than 0.002 in LPPD on rows that chains
        have not seen, which is asked after fixed numbers of draws. None: all steps are made.

    Returns
    -------
    Fit

    Raises
    ------
    FitFailedError
        If no chain is left.
    RunMismatchError, RunLockedError, CorruptFileError
        If `run_dir` holds another run, one that is under way, or one that is damaged.
    ResourceError
        If memory or disk space is too small.
    ClusterError
        If a cluster cannot be used or was lost; the run in `run_dir` is saved then.
    Interrupted
        After Ctrl-C; the run in `run_dir` is saved then.
    """
    seed = seed_for(run_dir, random_state)
    return run_job(
        plan(dataset, network, likelihood, prior, sampler, training, n_chains, seed, temperature, stacking, stop_when),
        choose_backend(backend),
        progress=progress,
        run_dir=run_dir,
        store_data=store_data,
        time_limit=time_limit,
        force=force,
        origin=origin,
    )


def run_job(
    job: Job,
    backend: Backend,
    *,
    progress: Progress | None = None,
    run_dir: str | Path | None = None,
    store_data: bool = True,
    time_limit: float | None = None,
    force: bool = False,
    origin: dict[str, Json] | None = None,
    memory: Remembered | None = None,
    starts: Members | None = None,
) -> Fit:
    """Do a job whose seed, configuration and backend are decided; see `fit` for the rest.

    Without a folder, `memory` may hold what there is of the job already, and remembers how its chains end.
    Chains begin at `starts` instead of networks that are trained for them.
    """
    if time_limit is not None:
        time_limit = check_number("time_limit", time_limit, positive=True)
    use_compilation_cache()
    deadline, watched, progress = Deadline(time_limit), progress is not None, progress or Silent()
    folder = None if run_dir is None else Path(run_dir)
    known = None
    if folder is None:
        check_memory(job.draw_bytes)
    elif has_run(folder):
        known = read_manifest(folder).fingerprint
    else:
        check_space(folder, job.draw_bytes)
    with backend.open_pool() as pool:
        kind = pool.agree(partial(identify, job.network, job.likelihood), known)
        manifest = job.manifest(kind, origin)
        with _opened(folder, job, manifest, deadline, memory, store_data=store_data, force=force) as run:
            if starts is not None and run.load(0, "member") is None:
                run.save({(chain, "member"): record for chain, record in enumerate(member_records(starts))})
                run.settle()
            return job.run(run, deadline, progress, pool, watched=watched)


@contextmanager
def _opened(
    folder: Path | None,
    job: Job,
    manifest: Manifest,
    deadline: Deadline,
    memory: Remembered | None,
    *,
    store_data: bool,
    force: bool,
) -> Iterator[Run | Unsaved]:
    """Open a new or a resumed run in a folder; without a folder, one that saves nothing."""
    if folder is None:
        yield memory or Unsaved()
        return
    dataset = job.dataset
    files = {SCALES: prediction_tensors(job.network, dataset.encoder, job.response)}
    files |= {DATA: dataset.arrays()} if store_data else {}
    advice = (
        f"Resume it with mile.resume({str(folder)!r}), or fit again with the same arguments; "
        f"mile.load({str(folder)!r}) predicts with the draws there are."
    )
    with (
        open_run(folder, manifest, files, force=force) as run,
        saved_when_stopped(folder, deadline, advice=advice),
    ):
        yield run
