"""Fitted models made of random numbers: what files need, without the minutes of a fit."""

from typing import Any

import numpy as np

from mile import MLP, Categorical, Gaussian, Mile, MileClassifier, MileRegressor, Normal, Status
from mile.ensemble.members import Members
from mile.ensemble.training import Training
from mile.features.numbers import Standardizer
from mile.fitting.result import Fit
from mile.likelihoods import LabeledResponse, ScaledResponse
from mile.predict import DEFAULT_MEMORY, ClassPredictive, Predictive, predict
from mile.samplers import Tuned
from mile.samplers._phases import LengthRecord, TuningRecord
from mile.sampling.chains import Chains

N_INPUTS, N_CHAINS, N_DRAWS = 3, 2, 6
_FAILED = {"sampling": (Status.OK, Status.DIVERGED), "training": (Status.UNTRAINED, Status.OK)}


def made_fit(classes: Any = None, failed: dict[int, str] | None = None, seed: int = 0, n_draws: int = N_DRAWS) -> Fit:
    """Return a fit with random draws; `failed` chains have NaN for weights."""
    rng = np.random.default_rng(seed)

    def numbers(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    likelihood = Gaussian() if classes is None else Categorical(len(classes))
    network = MLP(n_inputs=N_INPUTS, hidden=(4,), n_outputs=likelihood.n_outputs)
    sampler = Mile(warmup_steps=60, sampling_steps=max(20, n_draws), n_draws=n_draws, step_size=0.001)
    codes = [_FAILED.get((failed or {}).get(chain, ""), (Status.OK, Status.OK)) for chain in range(N_CHAINS)]
    draws = numbers(N_CHAINS, n_draws, network.dimension)
    draws[[trained != sampled for trained, sampled in codes]] = np.nan
    names = ("step_size", "L", "bad_steps", "energy_variance", "logdensity")
    info = {phase.name: {name: numbers(N_CHAINS) for name in names} for phase in sampler.phases}
    history = {phase.name: TuningRecord(*(numbers(N_CHAINS, 5) for _ in range(3))) for phase in sampler.phases[:2]}
    history["phase III"] = LengthRecord(*(numbers(N_CHAINS, 5) for _ in range(2)))
    trained = tuple(before for before, _ in codes)
    members = Members(numbers(N_CHAINS, network.dimension), trained, np.full(N_CHAINS, 3), numbers(N_CHAINS, 3))
    info["sampling"] |= {"travel": numbers(N_CHAINS), "virial": numbers(N_CHAINS, network.dimension)}
    response = ScaledResponse(Standardizer(shift=np.array(1.5), scale=np.array(2.0)))
    if classes is not None:
        response = LabeledResponse(len(classes), np.asarray(classes))
    return Fit(
        network=network,
        likelihood=likelihood,
        prior=Normal(),
        sampler=sampler,
        training=Training(max_epochs=3),
        encoder=Standardizer(shift=rng.standard_normal(N_INPUTS), scale=rng.uniform(1, 2, N_INPUTS)),
        response=response,
        members=members,
        chains=Chains(
            draws=draws,
            logdensity=numbers(N_CHAINS, n_draws),
            energy_change=numbers(N_CHAINS, n_draws),
            status=tuple(sampled for _, sampled in codes),
            tuned=Tuned(info["sampling"]["step_size"], info["sampling"]["L"]),
            info=info,
            history=history,
            gradient_evaluations=np.full(N_CHAINS, sampler.gradient_evaluations()),
            seed=seed,
        ),
        chain_ids=np.arange(N_CHAINS),
        status=tuple(sampled if trained == Status.OK else trained for trained, sampled in codes),
    )


def made_estimator(classes: Any = None, feature_names: Any = None, **options: Any) -> MileRegressor | MileClassifier:
    """Return an estimator around such a fit."""
    fitted = made_fit(classes, **options)
    kind = MileRegressor if classes is None else MileClassifier
    model: Any = kind((4,), n_chains=N_CHAINS, warmup_steps=60, sampling_steps=20, max_epochs=3)
    model.fit_, model.n_features_in_ = fitted, N_INPUTS
    if feature_names is not None:
        model.feature_names_in_ = np.array(feature_names, object)
    return model


def number_predictive(
    network: Any, draws: Any, x: np.ndarray, y_scale: Standardizer | None = None, memory: int = DEFAULT_MEMORY
) -> Predictive:
    """Return what normal heads predict of encoded rows."""
    return predict(network, Gaussian(), draws, x, ScaledResponse(y_scale or Standardizer.identity()), memory)


def class_predictive(
    network: Any, draws: Any, x: np.ndarray, classes: Any, memory: int = DEFAULT_MEMORY
) -> ClassPredictive:
    """Return what logits predict of encoded rows."""
    classes = np.asarray(classes)
    return predict(network, Categorical(len(classes)), draws, x, LabeledResponse(len(classes), classes), memory)
