"""The pipeline: data, network and prior become a posterior, a deep ensemble, tuned chains and their draws."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from mile import native
from mile._checks import check_count, check_number
from mile._compilation import use_compilation_cache
from mile._deadline import Deadline
from mile._errors import Status, warn
from mile._progress import Progress, Silent, duration
from mile._types import Json
from mile.configuration import describe
from mile.data import Dataset, Rows
from mile.ensemble.members import Members, train_members
from mile.ensemble.training import Training
from mile.execution import Backend, Fingerprint, InProcess, WorkerPool, choose_backend
from mile.fitting.monitoring import RunningScore, warn_of_remarks
from mile.fitting.replacement import SampledEnsemble, report_failures
from mile.fitting.result import Fit
from mile.fitting.tensors import prediction_tensors
from mile.likelihoods import AbstractLikelihood, AbstractResponse
from mile.networks.base import Network
from mile.posterior import PaddedRows, Posterior, pad_rows
from mile.priors import Normal, Prior
from mile.samplers import MINIBATCHES, Mile, Sampler, alternatives, budgets_of, with_plan
from mile.sampling.chains import describe_failures, run_chains, saved_when_stopped, seed_for, time_step
from mile.sampling.timing import check_memory, plan_budgets
from mile.storage import (
    DATA,
    SCALES,
    Manifest,
    Run,
    Unsaved,
    check_space,
    fingerprint,
    has_run,
    open_run,
    read_manifest,
)


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
        Default prior: standard normal. Others are `Laplace`, `StudentT`, `FanIn` and `PerLayer`.
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
        plan(dataset, network, likelihood, prior, sampler, training, n_chains, seed, temperature),
        choose_backend(backend),
        progress=progress,
        run_dir=run_dir,
        store_data=store_data,
        time_limit=time_limit,
        force=force,
        origin=origin,
    )


def run_job(
    job: "Job",
    backend: Backend,
    *,
    progress: Progress | None = None,
    run_dir: str | Path | None = None,
    store_data: bool = True,
    time_limit: float | None = None,
    force: bool = False,
    origin: dict[str, Json] | None = None,
) -> Fit:
    """Do a job whose seed, configuration and backend are decided; see `fit` for the rest."""
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
        with _opened(folder, job, job.manifest(kind, origin), deadline, store_data=store_data, force=force) as run:
            return job.run(run, deadline, progress, pool, watched=watched)


@contextmanager
def _opened(
    folder: Path | None, job: "Job", manifest: Manifest, deadline: Deadline, *, store_data: bool, force: bool
) -> Iterator[Run | Unsaved]:
    """Open a new or a resumed run in a folder; without a folder, one that saves nothing."""
    if folder is None:
        yield Unsaved()
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


def plan(
    dataset: Dataset,
    network: Network,
    likelihood: AbstractLikelihood,
    prior: Prior | None,
    sampler: Sampler | None,
    training: Training | None,
    n_chains: int,
    seed: int,
    temperature: float = 1.0,
) -> "Job":
    """Check that the parts fit together and fill in the defaults."""
    check_count("n_chains", n_chains)
    if network.n_outputs != likelihood.n_outputs:
        raise ValueError(
            f"the network has {network.n_outputs} outputs but the likelihood needs {likelihood.n_outputs}."
        )
    if network.n_inputs != dataset.n_features:
        raise ValueError(f"the network takes {network.n_inputs} features but the data has {dataset.n_features}.")
    likelihood.check_encoded(dataset.y_train, "y_train")
    likelihood.check_encoded(dataset.y_valid, "y_valid")
    training, prior = training or Training(), prior or Normal()
    temperature = check_number("temperature", temperature, positive=True)
    prior.bind(network).tempered(temperature)  # must be possible
    return Job(
        dataset=dataset,
        network=network,
        likelihood=likelihood,
        prior=prior,
        sampler=(sampler or Mile()).with_start(training.learning_rate),
        training=training,
        n_chains=n_chains,
        temperature=temperature,
        response=dataset.response or likelihood.plain_response(),
        seed=seed,
    )


def identify(network: Network, likelihood: AbstractLikelihood) -> Fingerprint:
    """Return the fingerprint of what computes a posterior in the process that calls this."""
    dtype = np.dtype(np.float32)
    is_native = native.specify(network, likelihood, dtype) is not None or native.accelerates(network, dtype)
    return fingerprint(is_native=is_native, width=InProcess().width, dtype="float32")


@dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """Everything that decides the bits of a fit, and the steps of it."""

    dataset: Dataset
    network: Network
    likelihood: AbstractLikelihood
    prior: Prior
    sampler: Sampler
    training: Training
    n_chains: int
    temperature: float
    response: AbstractResponse
    seed: int

    @property
    def draw_bytes(self) -> int:
        """Room that the draws and their statistics take."""
        return 4 * self.n_chains * self.sampler.n_draws * (self.network.dimension + 2)

    def manifest(self, kind: Fingerprint, origin: dict[str, Json] | None) -> Manifest:
        """Describe this job to a run; `kind` is the fingerprint of what computes."""
        parts = ("network", "likelihood", "prior", "sampler", "training", "n_chains", "temperature")
        configuration = {name: describe(getattr(self, name)) for name in parts}
        labels = self.response.labels
        configuration["classes"] = None if labels is None else list(map(str, labels.tolist()))
        return Manifest(
            fingerprint=dict(kind),
            configuration=configuration,
            data={"sha256": self.dataset.sha256(), "rows": len(self.dataset.y_train)},
            seed=self.seed,
            origin=origin,
        )

    def posterior(self) -> Posterior:
        """Return the posterior; the chains sample it at the temperature of this job."""
        return Posterior(
            rows=_padded(self.dataset.train),
            network=self.network,
            likelihood=self.likelihood,
            prior=self.prior.bind(self.network),
        )

    def run(
        self, run: Run | Unsaved, deadline: Deadline, progress: Progress, pool: WorkerPool, *, watched: bool
    ) -> Fit:
        """Train the ensemble, set the budgets, run the chains, replace those that failed."""
        dataset, posterior = self.dataset, self.posterior()
        target = posterior.tempered(self.temperature)
        validation = _padded(dataset.valid)

        def sample_ensemble(chain_ids: range) -> SampledEnsemble:
            members = train_members(
                posterior,
                validation,
                self.training,
                chain_ids,
                seed=self.seed,
                backend=pool,
                run=run,
                deadline=deadline,
                progress=progress,
            )
            sampler = self._within_time(target, members, run, deadline, pool)
            good = np.array([code == Status.OK for code in members.status])
            scored = watched and len(dataset.y_valid) > 0
            monitor = (
                RunningScore(self.network, self.likelihood, dataset.valid, self.response, good) if scored else None
            )
            chains = run_chains(
                sampler,
                target,
                members.positions,
                chain_ids=chain_ids,
                monitor=monitor,
                seed=self.seed,
                backend=pool,
                run=run,
                deadline=deadline,
                progress=progress,
            )
            return SampledEnsemble(np.asarray(chain_ids), members, chains, sampler)

        result = sample_ensemble(range(self.n_chains))
        self._report_cuts(result, deadline)
        status = dict(zip(result.chain_ids.tolist(), result.status, strict=True))
        failed = np.flatnonzero(~result.ok)
        if failed.size and not (deadline.passed() and result.ok.any()):
            reserve = sample_ensemble(range(self.n_chains, self.n_chains + failed.size))
            status |= dict(zip(reserve.chain_ids.tolist(), reserve.status, strict=True))
            reasons = describe_failures(result.status, result.chain_ids)
            result = result.replace(failed, reserve)
            report_failures(result, reasons, self.n_chains)
        elif failed.size:
            report_failures(result, describe_failures(result.status, result.chain_ids), self.n_chains, replaced=False)
        run.finish(status)
        warn_of_remarks(result.chains.draws, result.ok, posterior, dataset.train)
        return Fit(
            network=self.network,
            likelihood=self.likelihood,
            prior=self.prior,
            sampler=result.sampler,
            training=self.training,
            temperature=self.temperature,
            encoder=dataset.encoder,
            response=self.response,
            members=result.members,
            chains=result.chains,
            chain_ids=result.chain_ids,
            status=result.status,
            weights=run.weights,
        )

    def _within_time(
        self, target: Posterior, members: Members, run: Run | Unsaved, deadline: Deadline, pool: WorkerPool
    ) -> Sampler:
        """Return the sampler with budgets that fit the time limit; once they are planned they stay."""
        plan = run.plan
        if plan is None and deadline.time_limit is not None and self.sampler.gradient_evaluations():
            plan = self._planned(target, members.positions, deadline, deadline.time_limit, pool)
            run.set_plan(plan)
        return with_plan(self.sampler, plan)

    def _planned(
        self, target: Posterior, positions: np.ndarray, deadline: Deadline, time_limit: float, pool: WorkerPool
    ) -> dict[str, int]:
        """Time the first steps and return what the time limit asks for: smaller budgets, or mini-batches."""
        timed = partial(time_step, target=target, positions=positions, seed=self.seed, deadline=deadline, backend=pool)
        full, minibatches = alternatives(self.sampler)
        sampler, choice = full, {}
        forecast = timed(sampler)
        needed = forecast.seconds_left(0, 0)
        if minibatches is not full and needed > time_limit - deadline.elapsed:
            warn(
                f"Sampling on all rows would take about {duration(needed)}, more than the time limit of "
                f'{duration(time_limit)} leaves, so sampler="auto" takes mini-batches (sampler="stochastic").'
            )
            sampler, choice = minibatches, {MINIBATCHES: 1}
            forecast = timed(sampler)
        return choice | (plan_budgets(sampler, forecast, time_limit - deadline.elapsed) or {})

    def _report_cuts(self, result: SampledEnsemble, deadline: Deadline) -> None:
        used, n_draws = result.sampler, result.chains.logdensity.shape[1]
        full, minibatches = alternatives(self.sampler)
        wanted = full if used.name == full.name else minibatches
        found, asked = budgets_of(used), budgets_of(wanted)
        cuts = [
            f"{name.replace('_', ' ')} {found[name]:,} instead of {asked[name]:,}"
            for name in ("warmup_steps", "sampling_steps")
            if found.get(name) != asked.get(name)
        ]
        if deadline.time_limit is not None and n_draws != wanted.n_draws:
            cuts.append(f"draws of each chain {n_draws:,} instead of {wanted.n_draws:,}")
        if cuts:
            limit = "" if deadline.time_limit is None else f" of {deadline.time_limit:g} s"
            warn(f"The time limit{limit} cut the sampling: {', '.join(cuts)}.")


def _padded(rows: Rows) -> PaddedRows:
    return pad_rows(rows.x, rows.y, rows.weight)
