"""The pipeline: data, network and prior become a posterior, a deep ensemble, tuned chains and their draws."""

import warnings
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from mile._checks import check_count
from mile._compilation import use_compilation_cache
from mile._errors import FitFailedError, FitWarning, Status
from mile._progress import Progress, Silent
from mile._random import draw_seed
from mile.data import Dataset, Standardizer
from mile.likelihoods import Categorical, Gaussian
from mile.optimize import Members, Training, train_members
from mile.posterior import Posterior, pad_rows
from mile.predict import DEFAULT_MEMORY, ClassPredictive, Predictive
from mile.priors import Normal
from mile.samplers import Mile, Sampler
from mile.sampling import Chains, describe_failures, run_chains

# When a response counts as discrete, and how narrow a predicted scale must be to count as a spike.
_SPIKE_LARGEST_SHARE = 0.1  # distinct values per row
_SPIKE_WIDTH = 0.1  # of the median gap between values
_SPIKE_SMALLEST_SHARE = 0.1  # of the predictions
_SPIKE_ROWS = 512


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """A fitted ensemble: everything that prediction and diagnosis need, and nothing of the data."""

    network: Any
    likelihood: Gaussian | Categorical
    prior: Normal
    sampler: Sampler
    training: Training
    x_scale: Standardizer
    y_scale: Standardizer
    members: Members
    chains: Chains
    chain_ids: Int[np.ndarray, " chain"]  # a replaced chain has an id of K or more
    status: tuple[Status, ...]
    classes: np.ndarray | None = None

    @property
    def seed(self) -> int:
        """Seed of all randomness of the fit."""
        return self.chains.seed

    @property
    def ok(self) -> np.ndarray:
        """Mask of the chains that predictions use."""
        return np.array([code == Status.OK for code in self.status])

    def predictive(
        self, x: Float[np.ndarray, "row feature"], memory: int = DEFAULT_MEMORY
    ) -> Predictive | ClassPredictive:
        """Return the predictive distribution of each row of raw features."""
        return self._mixture(_kept(self.chains.draws, self.ok), x, memory)

    def ensemble_predictive(
        self, x: Float[np.ndarray, "row feature"], memory: int = DEFAULT_MEMORY
    ) -> Predictive | ClassPredictive:
        """Return what the deep ensemble predicts whose members started these chains."""
        return self._mixture(_kept(self.members.positions[:, None], self.ok), x, memory)

    def _mixture(self, draws: np.ndarray, x: np.ndarray, memory: int) -> Predictive | ClassPredictive:
        use_compilation_cache()
        draws = draws.reshape(-1, draws.shape[-1])
        x = self.x_scale.apply(x)
        if isinstance(self.likelihood, Categorical):
            classes = np.arange(self.likelihood.n_classes) if self.classes is None else self.classes
            return ClassPredictive(self.network, self.likelihood, draws, x, classes, memory)
        return Predictive(self.network, self.likelihood, draws, x, self.y_scale, memory)


def _kept(draws: np.ndarray, ok: np.ndarray) -> np.ndarray:
    return draws if ok.all() else draws[ok]  # a copy of all draws takes longer than predicting one row


def fit(
    dataset: Dataset,
    network: Any,
    likelihood: Gaussian | Categorical,
    prior: Normal | None = None,
    sampler: Sampler | None = None,
    *,
    training: Training | None = None,
    n_chains: int = 12,
    classes: np.ndarray | None = None,
    random_state: int | None = None,
    progress: Progress | None = None,
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
        Default prior: standard normal.
    sampler
        Default: `Mile()`, the paper's.
    training
        How the ensemble is trained; its learning rate is the sampler's first step size.
    n_chains
        Members and chains.
    classes
        Labels that the class codes stand for.
    random_state
        Seed; None draws one.
    progress
        Such as `Bars`.

    Returns
    -------
    Fit

    Raises
    ------
    FitFailedError
        If no chain is left.
    """
    check_count("n_chains", n_chains)
    if network.n_outputs != likelihood.n_outputs:
        raise ValueError(
            f"the network has {network.n_outputs} outputs but the likelihood needs {likelihood.n_outputs}."
        )
    if network.n_inputs != dataset.n_features:
        raise ValueError(f"the network takes {network.n_inputs} features but the data has {dataset.n_features}.")
    prior = prior or Normal()
    training = training or Training()
    configured = (sampler or Mile()).with_start(training.learning_rate)
    seed = draw_seed(random_state)
    use_compilation_cache()
    posterior = Posterior(
        rows=pad_rows(dataset.x_train, dataset.y_train), network=network, likelihood=likelihood, prior=prior
    )
    validation = pad_rows(dataset.x_valid, dataset.y_valid)
    progress = progress or Silent()

    def attempt(chain_ids: range) -> _Attempt:
        members = train_members(posterior, validation, training, chain_ids, seed=seed, progress=progress)
        chains = run_chains(configured, posterior, members.positions, seed=seed, chain_ids=chain_ids, progress=progress)
        return _Attempt(np.asarray(chain_ids), members, chains)

    result = attempt(range(n_chains))
    failed = np.flatnonzero(~result.ok)
    if failed.size:
        reserve = attempt(range(n_chains, n_chains + failed.size))
        reasons = describe_failures(result.status, result.chain_ids)
        result = result.replace(failed, reserve)
        _report(result, reasons, n_chains)
    if isinstance(likelihood, Gaussian):
        _warn_of_spikes(result, posterior, dataset)
    return Fit(
        network=network,
        likelihood=likelihood,
        prior=prior,
        sampler=configured,
        training=training,
        x_scale=dataset.x_scale,
        y_scale=dataset.y_scale,
        members=result.members,
        chains=result.chains,
        chain_ids=result.chain_ids,
        status=result.status,
        classes=classes,
    )


@dataclass(frozen=True, eq=False)
class _Attempt:
    """One ensemble and its chains."""

    chain_ids: np.ndarray
    members: Members
    chains: Chains

    @property
    def status(self) -> tuple[Status, ...]:
        """A chain is as good as its member and its sampling."""
        pairs = zip(self.members.status, self.chains.status, strict=True)
        return tuple(sampled if trained == Status.OK else trained for trained, sampled in pairs)

    @property
    def ok(self) -> np.ndarray:
        return np.array([code == Status.OK for code in self.status])

    def replace(self, slots: np.ndarray, reserve: "_Attempt") -> "_Attempt":
        """Put the reserve's chains in the given slots."""

        def put(ours: Any, theirs: Any) -> Any:
            if isinstance(ours, np.ndarray):
                ours = ours.copy()
                ours[slots] = theirs
                return ours
            if isinstance(ours, dict):
                return {name: put(value, theirs[name]) for name, value in ours.items()}
            if hasattr(ours, "_fields"):
                return type(ours)(*map(put, ours, theirs))
            if isinstance(ours, tuple):
                return tuple(put(np.array(ours, object), np.array(theirs, object)))
            return ours

        return _Attempt(
            put(self.chain_ids, reserve.chain_ids), put(self.members, reserve.members), put(self.chains, reserve.chains)
        )


def _warn_of_spikes(result: _Attempt, posterior: Posterior, dataset: Dataset) -> None:
    """Warn when the predicted noise falls below the spacing of a response with few distinct values.

    The density of such a response can be driven up without limit by placing a spike on each value, so a high
    LPPD then says little.
    """
    y = dataset.y_train
    values = np.unique(y)
    if not 2 <= len(values) <= _SPIKE_LARGEST_SHARE * len(y):
        return
    outputs = np.asarray(_outputs(posterior, result.chains.draws[result.ok, -1]))
    scales = np.exp(outputs[:, 1, : len(y)])
    spacing = float(np.median(np.diff(values)))
    share = float(np.mean(scales < _SPIKE_WIDTH * spacing))
    if share > _SPIKE_SMALLEST_SHARE:
        warnings.warn(
            f"y has only {len(values)} distinct values and for {share:.0%} of the predictions the noise is below a "
            "tenth of the gap between them: the model puts spikes on the values, and LPPD rewards that without "
            "limit. Judge the fit by RMSE and coverage, or use a classifier if the values are categories.",
            FitWarning,
            stacklevel=3,
        )


@jax.jit
def _outputs(posterior: Posterior, draws: Float[Array, "chain d"]) -> Float[Array, "chain output row"]:
    """Return what the networks say of the first rows."""
    x = posterior.rows.x[:, :_SPIKE_ROWS]
    return jax.vmap(lambda draw: posterior.network.apply(draw, x))(draws)


def _report(result: _Attempt, first_reasons: str, n_chains: int) -> None:
    """Say which chains were replaced; raise if none is left."""
    second_reasons = describe_failures(result.status, result.chain_ids)
    if not result.ok.any():
        raise FitFailedError(
            f"All {n_chains} chains failed, and so did their replacements. {first_reasons} {second_reasons} "
            "Look for extreme values in X and y, or lower learning_rate."
        )
    lost = (
        f" {int((~result.ok).sum())} could not be replaced and are left out: {second_reasons}" if second_reasons else ""
    )
    warnings.warn(
        f"{len(first_reasons.split('Chain ')) - 1} of {n_chains} chains failed and were replaced by fresh members. "
        f"{first_reasons}{lost}",
        FitWarning,
        stacklevel=3,
    )
