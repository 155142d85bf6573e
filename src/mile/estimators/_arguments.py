"""The arguments that both estimators share: the constructor, the checks, and what a file keeps of them."""

from abc import ABCMeta
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, TypedDict

import numpy as np
from sklearn.base import BaseEstimator

from mile import _registry
from mile._checks import check_chains, check_choice, check_count, check_flag, check_integer, check_number, check_path
from mile._json import Json
from mile.configuration import describe
from mile.data.folds import FEWEST_FOLDS
from mile.ensemble.training import Patience, Training
from mile.estimators._networks import check_widths, choose_template, kept_network
from mile.estimators._presets import TableDefaults, table_defaults, usual_folds
from mile.estimators._task import check_kinds, choose_encoder, choose_likelihood
from mile.execution import Backend, choose_backend
from mile.features.base import AbstractFeatureEncoder
from mile.features.numbers import Standardizer
from mile.fitting.flatness import check_stop_when
from mile.fitting.likelihood_choice import LikelihoodChoice
from mile.fitting.weighing import STACKING
from mile.likelihoods import AbstractLikelihood
from mile.likelihoods.base import Task
from mile.networks import ACTIVATIONS
from mile.networks.base import Template
from mile.priors import Prior, choose_prior
from mile.samplers import AUTO, DEFAULT, Sampler, configure, preset_names

_LARGEST_FRACTION = 0.9  # of the rows may be set aside for validation
# Folders, machines and what a next fit does do not belong to the model, and the seed is kept as a number.
NOT_KEPT = {"run_dir", "backend", "address", "n_threads", "random_state", "warm_start"}


class Configuration(TypedDict):
    """Checked arguments, as `fit` and `forecast_fit` take them."""

    n_chains: int
    prior: Prior
    temperature: float
    sampler: Sampler
    training: Training
    stacking: str
    stop_when: str | None


class AbstractArguments(BaseEstimator, metaclass=ABCMeta):
    """The arguments of an estimator."""

    _kind: ClassVar[str]  # the name in files
    _task: ClassVar[Task]
    n_features_in_: int
    likelihood_choice_: LikelihoodChoice | None = None  # what likelihood="auto" chose
    feature_names_in_: np.ndarray  # only where X has names

    def __init__(
        self,
        hidden_layer_sizes: tuple[int, ...] | None = None,
        activation: str | None = None,
        *,
        n_chains: int = 12,
        preset: str = DEFAULT,
        warmup_steps: int | None = None,
        sampling_steps: int | None = None,
        n_draws: int | None = None,
        prior: str | Prior | None = None,
        prior_scale: float = 1.0,
        temperature: float = 1.0,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        batch_size: int | None = None,
        max_epochs: int | None = None,
        patience: int | None = None,
        validation_fraction: float = 0.125,
        n_folds: int | None = None,
        stacking: str | None = None,
        network: object = None,
        likelihood: str | AbstractLikelihood | None = None,
        encoder: str | AbstractFeatureEncoder | None = None,
        columns: Mapping[str, str] | None = None,
        sampler: str | Sampler = "mile",
        run_dir: str | Path | None = None,
        store_data: bool = True,
        time_limit: float | None = None,
        stop_when: str | None = None,
        warm_start: bool = False,
        backend: str | Backend | None = None,
        address: str | None = None,
        n_threads: int | None = None,
        random_state: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.n_chains = n_chains
        self.preset = preset
        self.warmup_steps = warmup_steps
        self.sampling_steps = sampling_steps
        self.n_draws = n_draws
        self.prior = prior
        self.prior_scale = prior_scale
        self.temperature = temperature
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.n_folds = n_folds
        self.stacking = stacking
        self.network = network
        self.likelihood = likelihood
        self.encoder = encoder
        self.columns = columns
        self.sampler = sampler
        self.run_dir = run_dir
        self.store_data = store_data
        self.time_limit = time_limit
        self.stop_when = stop_when
        self.warm_start = warm_start
        self.backend = backend
        self.address = address
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def _configuration(self, n_rows: int = 0) -> Configuration:
        """Check every argument, so that a mistake is found before any training and an earlier fit stays as it was.

        What depends on the number of rows is that of few, until the rows are counted.
        """
        if self.activation is not None:
            check_choice("activation", self.activation, ACTIVATIONS)
        check_choice("preset", self.preset, preset_names())
        if self.hidden_layer_sizes is not None:
            check_widths(self.hidden_layer_sizes)
        if self.network is not None:
            self._template()
        usual = self._usual(n_rows)
        choose_likelihood(self.likelihood, usual.likelihood, self._task)
        choose_encoder(self.encoder, Standardizer())
        check_kinds(self.columns)
        if self.columns is not None and self.encoder is not None:
            raise ValueError("columns must be None where encoder is given: TableEncoder(kinds=...) says the same.")
        check_number("validation_fraction", self.validation_fraction, smallest=0.0, largest=_LARGEST_FRACTION)
        n_chains = check_chains(self.n_chains)
        temperature = check_number("temperature", self.temperature, positive=True)
        # A learned prior has tails too heavy to be flattened.
        usual_prior = usual.prior if temperature <= 1.0 else "normal"
        stacking = check_choice("stacking", usual.stacking if self.stacking is None else self.stacking, STACKING)
        if not self._folds(n_rows) and self.stacking not in (None, STACKING[0]):
            raise ValueError(
                f"stacking={self.stacking!r} weighs chains by the rows that they left out, and no folds rotate here: "
                f"give n_folds of at least {FEWEST_FOLDS}, and as many chains."
            )
        check_integer("verbose", self.verbose)
        if self.run_dir is not None:
            check_path("run_dir", self.run_dir, "a path or None")
        check_flag("store_data", self.store_data)
        check_flag("warm_start", self.warm_start)
        if self.time_limit is not None:
            check_number("time_limit", self.time_limit, positive=True)
        sampler = self._sampler(n_rows)
        return {
            "n_chains": n_chains,
            "prior": choose_prior(usual_prior if self.prior is None else self.prior, self.prior_scale),
            "temperature": temperature,
            "sampler": sampler,
            "training": self._training(usual.training),
            "stacking": stacking,
            "stop_when": check_stop_when(self.stop_when, sampler.with_start(1.0)),
        }

    def _training(self, usual: Training) -> Training:
        """Return the training that was asked for; what was left open is as usual."""
        given: dict[str, float | int | None] = {
            "learning_rate": self.learning_rate,
            "weight_decay": self.weight_decay,
            "batch_size": self.batch_size,
            "max_epochs": self.max_epochs,
        }
        training = replace(usual, **{name: value for name, value in given.items() if value is not None})
        return training if self.patience is None else replace(training, stopping=Patience(epochs=self.patience))

    def _usual(self, n_rows: int) -> TableDefaults:
        """Return what the preset means; other networks than the default one of tables keep the paper's."""
        preset = self.preset if self.network is None else "paper"
        return table_defaults(preset, n_rows, self._task, self.sampler)

    def _folds(self, n_rows: int) -> int:
        """Return how many folds are wanted; 0 where rows are set aside."""
        if self.n_folds is None:
            return usual_folds(self._usual(n_rows).n_folds, self.n_chains)
        n_folds = check_count("n_folds", self.n_folds, 0)
        if 0 < n_folds < FEWEST_FOLDS:
            raise ValueError(
                f"n_folds must be 0, to set rows aside instead, or at least {FEWEST_FOLDS}; got {n_folds}."
            )
        if n_folds > self.n_chains:
            raise ValueError(
                f"n_folds must be at most n_chains, so that a chain leaves out each of them; got {n_folds} folds and "
                f"{self.n_chains} chains."
            )
        return n_folds

    def _backend(self) -> Backend:
        return choose_backend(self.backend, self.address, self.n_threads)

    def _sampler(self, n_rows: int) -> Sampler:
        is_table = self.network is None
        budgets = {"warmup_steps": self.warmup_steps, "sampling_steps": self.sampling_steps, "n_draws": self.n_draws}
        if is_table and self.hidden_layer_sizes is None and self.sampler in ("mile", AUTO):
            usual = self._usual(n_rows).steps
            budgets = {name: usual.get(name) if value is None else value for name, value in budgets.items()}
        preset = self.preset if is_table or self.preset != DEFAULT else "paper"
        return configure(self.sampler, preset, **budgets)

    def _template(self) -> Template:
        """Return the network that was asked for; the data decide its size."""
        return choose_template(self.network, self.hidden_layer_sizes, self.activation)

    def _kept_parameters(self) -> dict[str, object]:
        """Return the arguments that a file keeps, in the form that it keeps them."""
        parameters = {name: value for name, value in self.get_params(deep=False).items() if name not in NOT_KEPT}
        if self.network is not None:
            parameters["network"] = kept_network(self.network, self._template())
        if self.columns is not None:  # pairs, as for the weights of classes
            parameters["columns"] = [[str(name), kind] for name, kind in self.columns.items()]
        if self.encoder is not None:
            encoder = choose_encoder(self.encoder, Standardizer())
            parameters["encoder"] = _registry.encoder.name_of(type(encoder))
        return parameters

    def _origin(self, seed: int) -> dict[str, Json]:
        """Describe this estimator, so that it can be built again from a file."""
        described = {name: describe(value) for name, value in self._kept_parameters().items()}
        names = getattr(self, "feature_names_in_", None)
        columns = {"event": getattr(self, "event_name_", None), "exposure": getattr(self, "exposure_name_", None)}
        extra: dict[str, Json] = {key: str(name) for key, name in columns.items() if name is not None}
        choice = self.likelihood_choice_
        extra |= {} if choice is None else {"choice": choice.described()}
        return extra | {
            "estimator": self._kind,
            "parameters": described | {"random_state": seed},
            "feature_names": None if names is None else [str(name) for name in names],
            "target": getattr(self, "target_name_", None),
            "n_features": int(getattr(self, "n_features_in_", 1)),  # one column of texts if nothing was fitted
        }
