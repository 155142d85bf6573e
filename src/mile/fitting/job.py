"""The pipeline: data, network and prior become a posterior, a deep ensemble, tuned chains and their draws."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from mile import native
from mile._checks import check_chains, check_choice, check_number
from mile._deadline import Deadline
from mile._errors import Status, warn
from mile._json import Json
from mile._progress import Progress, duration
from mile.configuration import describe
from mile.data import Dataset, Rows
from mile.ensemble.members import Members, OwnPosterior, OwnRows, train_members
from mile.ensemble.training import Training
from mile.execution import Fingerprint, InProcess, WorkerPool
from mile.fitting.flatness import Flat, check_stop_when
from mile.fitting.monitoring import RunningScore, UnseenRows, warn_of_remarks, warn_of_response, warn_of_weightless
from mile.fitting.out_of_fold import weigh_and_predict
from mile.fitting.replacement import SampledEnsemble, report_failures
from mile.fitting.result import Fit
from mile.fitting.rotation import Rotation
from mile.fitting.unseen import OutOfFold
from mile.fitting.weighing import STACKING
from mile.likelihoods import AbstractLikelihood, AbstractResponse
from mile.networks.base import Network
from mile.padded_rows import PaddedRows, pad_rows
from mile.posterior import Posterior
from mile.priors import Normal, Prior
from mile.samplers import MINIBATCHES, STOPPED, Mile, Sampler, alternatives, budgets_of, resized, with_plan
from mile.sampling.chains import describe_failures, run_chains, time_step
from mile.sampling.timing import plan_budgets
from mile.storage import (
    OUT_OF_FOLD,
    Manifest,
    Run,
    Unsaved,
    fingerprint,
)


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
    stacking: str = "none",
    stop_when: str | None = None,
) -> "Job":
    """Check that the parts fit together and fill in the defaults."""
    check_chains(n_chains)
    if network.n_outputs != likelihood.n_outputs:
        raise ValueError(
            f"the network has {network.n_outputs} outputs but the likelihood needs {likelihood.n_outputs}."
        )
    if network.n_inputs != dataset.n_features:
        raise ValueError(f"the network takes {network.n_inputs} features but the data has {dataset.n_features}.")
    likelihood.check_encoded(dataset.y_train, "y_train")
    likelihood.check_encoded(dataset.y_valid, "y_valid")
    likelihood = likelihood.fitted(dataset.y_train[dataset.train.weight > 0.0])
    training, prior = training or Training(), prior or Normal()
    temperature = check_number("temperature", temperature, positive=True)
    prior.bind(network).tempered(temperature)  # must be possible
    sampler = (sampler or Mile()).with_start(training.learning_rate)
    return Job(
        dataset=dataset,
        network=network,
        likelihood=likelihood,
        prior=prior,
        sampler=sampler,
        training=training,
        n_chains=n_chains,
        temperature=temperature,
        response=dataset.response or likelihood.plain_response(),
        seed=seed,
        stacking=check_choice("stacking", stacking, STACKING) if dataset.folds is not None else STACKING[0],
        stop_when=check_stop_when(stop_when, sampler),
    )


def identify(network: Network, likelihood: AbstractLikelihood) -> Fingerprint:
    """Return the fingerprint of what computes a posterior in the process that calls this."""
    dtype = np.dtype(np.float32)
    spec, head = native.specify(network, likelihood, dtype), likelihood.native_head()
    return fingerprint(
        is_native=spec is not None or native.accelerates(network, dtype),
        width=InProcess().width,
        dtype="float32",
        head=None if head is None or spec is None else head.name,
    )


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
    stacking: str = STACKING[0]  # nothing is weighed
    stop_when: str | None = None  # by which rule sampling ends early

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
        if self.stacking != STACKING[0]:  # which earlier versions do not know
            configuration["stacking"] = self.stacking
        if self.stop_when is not None:
            configuration["stop_when"] = self.stop_when
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
            rows=padded(self.dataset.train),
            network=self.network,
            likelihood=self.likelihood,
            prior=self.prior.bind(self.network),
        )

    def run(
        self, run: Run | Unsaved, deadline: Deadline, progress: Progress, pool: WorkerPool, *, watched: bool
    ) -> Fit:
        """Train the ensemble, set the budgets, run the chains, replace those that failed."""
        dataset, posterior = self.dataset, self.posterior()
        warn_of_response(self.likelihood, self.response, dataset.train)

        def sample_ensemble(chain_ids: range, places: np.ndarray) -> SampledEnsemble:
            learning, validation, sampling = self.own_rows(posterior, places)
            target = sampling.tempered(self.temperature)
            members = train_members(
                learning,
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
            unseen = self._unseen(places[list(chain_ids)], good) if watched or self.stop_when else None
            rule = self._rule(unseen, sampler, run)
            chains = run_chains(
                sampler,
                target,
                members.positions,
                chain_ids=chain_ids,
                monitor=RunningScore(unseen) if unseen is not None and watched else None,
                stop=rule,
                seed=self.seed,
                backend=pool,
                run=run,
                deadline=deadline,
                progress=progress,
            )
            sampler = self._ended_early(sampler, chains.logdensity.shape[1], run, progress) if rule else sampler
            return SampledEnsemble(np.asarray(chain_ids), members, chains, sampler)

        result = self._in_turn(sample_ensemble, run.begun, deadline)
        if STOPPED not in (run.plan or {}):
            self._report_cuts(result, deadline)
        status = dict(zip(result.chain_ids.tolist(), result.status, strict=True))
        failed = np.flatnonzero(~result.ok)
        if failed.size and not (deadline.passed() and result.ok.any()):
            places = np.concatenate([np.arange(self.n_chains), failed])
            reserve = sample_ensemble(range(self.n_chains, len(places)), places)
            status |= dict(zip(reserve.chain_ids.tolist(), reserve.status, strict=True))
            reasons = describe_failures(result.status, result.chain_ids)
            result = result.replace(failed, reserve)
            report_failures(result, reasons, self.n_chains)
        elif failed.size:
            report_failures(result, describe_failures(result.status, result.chain_ids), self.n_chains, replaced=False)
        fitted = self._fit_of(result)
        warn_of_remarks(result.chains.draws, result.ok, posterior, dataset.train)
        return self._finish(fitted, run, status)

    def _in_turn(
        self, sample_ensemble: Callable[[range, np.ndarray], SampledEnsemble], begun: int | None, deadline: Deadline
    ) -> SampledEnsemble:
        """Sample all chains; those that were added to a run after the `begun` ones that it had."""
        places = np.arange(self.n_chains)
        if begun is None:
            return sample_ensemble(range(self.n_chains), places)
        if deadline.time_limit is not None:
            raise ValueError("time_limit must be None where chains are added: they get as many draws as the others.")
        first = sample_ensemble(range(begun), places)
        return first.joined(sample_ensemble(range(begun, self.n_chains), places))

    def _rule(self, unseen: UnseenRows | None, sampler: Sampler, run: Run | Unsaved) -> Flat | None:
        """Return the rule that may end the sampling; None if there is none, or it has decided already."""
        if self.stop_when is None or STOPPED in (run.plan or {}):
            return None
        if unseen is None:
            warn(f"stop_when={self.stop_when!r} has no rows to decide by: no folds rotate and none are set aside.")
            return None
        return Flat(unseen, sampler)

    def _ended_early(self, sampler: Sampler, n_draws: int, run: Run | Unsaved, progress: Progress) -> Sampler:
        """Return the sampler with the budgets that were spent, and keep them, if the rule has ended the sampling."""
        asked = budgets_of(sampler)
        if n_draws == asked["n_draws"]:
            return sampler
        ended = resized(sampler, n_draws)
        spent = budgets_of(ended)
        budgets = {name: spent[name] for name in ("sampling_steps", "n_draws")}
        run.set_plan({**(run.plan or {}), **budgets, STOPPED: 1})
        saved = asked["sampling_steps"] - spent["sampling_steps"]
        progress.say(
            f"Sampling ended after {n_draws:,} of {asked['n_draws']:,} draws of each chain, because the last third of "
            f"them gained nothing on unseen rows: {saved:,} of {asked['sampling_steps']:,} steps saved."
        )
        return ended

    def _fit_of(self, result: SampledEnsemble) -> Fit:
        return Fit(
            network=self.network,
            likelihood=self.likelihood,
            prior=self.prior,
            sampler=result.sampler,
            training=self.training,
            temperature=self.temperature,
            encoder=self.dataset.encoder,
            response=self.response,
            members=result.members,
            chains=result.chains,
            chain_ids=result.chain_ids,
            status=result.status,
        )

    def _finish(self, fitted: Fit, run: Run | Unsaved, status: dict[int, Status]) -> Fit:
        """Score the rows by the chains that left them out, weigh the chains by that, and record the end of the run."""
        stored = run.recall(OUT_OF_FOLD)
        if stored is not None or run.is_finished or self.dataset.folds is None:
            run.finish(status)
            found = OutOfFold.read(stored or {}, self.n_chains)
            return replace(fitted, weights=run.weights, out_of_fold=found)
        unseen = self._folds_without_chain(fitted)
        if unseen:
            warn(
                f"No good chain has left out fold {unseen[0]}, so there are no out-of-fold scores. With more chains, "
                "or fewer folds, several leave out each fold."
            )
            run.finish(status)
            return fitted
        samples = self.sampler.gradient_evaluations() > 0
        out_of_fold, weights = weigh_and_predict(fitted, self.dataset, self.stacking if samples else STACKING[0])
        run.finish(status, weights, {OUT_OF_FOLD: out_of_fold.tensors()})
        found = replace(fitted, weights=weights, out_of_fold=out_of_fold)
        warn_of_weightless(found)
        return found

    def _folds_without_chain(self, fitted: Fit) -> list[int]:
        """Return the folds that no good chain has left out."""
        rotation = self.rotation
        assert rotation is not None
        known = {rotation.left_out(place) for place in np.flatnonzero(fitted.ok).tolist()}
        return [fold for fold in range(rotation.n_folds) if fold not in known]

    def _unseen(self, places: np.ndarray, good: np.ndarray) -> UnseenRows | None:
        """Return the rows that the chains at these places have not seen; None without any."""
        dataset, rotation = self.dataset, self.rotation
        rows = dataset.valid if rotation is None else dataset.train
        if not len(rows):
            return None
        left_out = None if rotation is None else np.array([rotation.left_out(place) for place in places.tolist()])
        return UnseenRows(self.network, self.likelihood, rows, self.response, good, dataset.folds, left_out)

    def own_rows(self, posterior: Posterior, places: np.ndarray) -> tuple[OwnPosterior, OwnRows, OwnPosterior]:
        """Return what members learn from, what they stop by, and what chains sample; `places` is by chain number."""
        rotation = self.rotation
        if rotation is None:
            return posterior, padded(self.dataset.valid), posterior
        return *rotation.for_training(posterior, places), rotation.for_sampling(posterior, places)

    @property
    def rotation(self) -> Rotation | None:
        """The folds that chains leave out in turn, if the data set has them."""
        folds = self.dataset.folds
        return None if folds is None else Rotation.of(folds)

    def _within_time(
        self, target: OwnPosterior, members: Members, run: Run | Unsaved, deadline: Deadline, pool: WorkerPool
    ) -> Sampler:
        """Return the sampler with budgets that fit the time limit; once they are planned they stay."""
        plan = run.plan
        if plan is None and deadline.time_limit is not None and self.sampler.gradient_evaluations():
            plan = self._planned(target, members.positions, deadline, deadline.time_limit, pool)
            run.set_plan(plan)
        return with_plan(self.sampler, plan)

    def _planned(
        self, target: OwnPosterior, positions: np.ndarray, deadline: Deadline, time_limit: float, pool: WorkerPool
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


def padded(rows: Rows) -> PaddedRows:
    """Return rows as compiled code takes them."""
    return pad_rows(rows.x, rows.y, rows.weight)
