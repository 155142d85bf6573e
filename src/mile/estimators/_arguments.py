"""The arguments that both estimators share: the constructor, the checks, and what a file keeps of them."""

from abc import ABCMeta
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, TypedDict

import numpy as np
from sklearn.base import BaseEstimator

from mile import _registry
from mile._checks import check_choice, check_count, check_flag, check_integer, check_number, check_path
from mile._types import Json
from mile.configuration import describe
from mile.ensemble.training import Patience, Training
from mile.estimators._networks import check_widths, choose_template, kept_network, table_defaults
from mile.estimators._task import check_kinds, choose_encoder, choose_likelihood
from mile.execution import Backend, choose_backend
from mile.features.base import AbstractFeatureEncoder
from mile.features.numbers import Standardizer
from mile.likelihoods import AbstractLikelihood
from mile.likelihoods.base import Task
from mile.networks import ACTIVATIONS
from mile.networks.base import Template
from mile.priors import Prior, choose_prior
from mile.samplers import AUTO, DEFAULT, Sampler, configure, preset_names

_LARGEST_FRACTION = 0.9  # of the rows may be set aside for validation
# Folders and machines do not belong to the model, and the seed is kept as a number.
_NOT_KEPT = {"run_dir", "backend", "address", "n_threads", "random_state"}


class Configuration(TypedDict):
    """Checked arguments, as `fit` and `forecast_fit` take them."""

    n_chains: int
    prior: Prior
    temperature: float
    sampler: Sampler
    training: Training


class AbstractArguments(BaseEstimator, metaclass=ABCMeta):
    """The arguments of an estimator."""

    _kind: ClassVar[str]  # the name in files
    _task: ClassVar[Task]
    _likelihood: ClassVar[str]  # the default
    n_features_in_: int
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
        prior: str | Prior = "normal",
        prior_scale: float = 1.0,
        temperature: float = 1.0,
        learning_rate: float = 1e-3,
        weight_decay: float = 1e-3,
        batch_size: int = 32,
        max_epochs: int = 500,
        patience: int = 10,
        validation_fraction: float = 0.125,
        network: object = None,
        likelihood: str | AbstractLikelihood | None = None,
        encoder: str | AbstractFeatureEncoder | None = None,
        columns: Mapping[str, str] | None = None,
        sampler: str | Sampler = "mile",
        run_dir: str | Path | None = None,
        store_data: bool = True,
        time_limit: float | None = None,
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
        self.network = network
        self.likelihood = likelihood
        self.encoder = encoder
        self.columns = columns
        self.sampler = sampler
        self.run_dir = run_dir
        self.store_data = store_data
        self.time_limit = time_limit
        self.backend = backend
        self.address = address
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def _configuration(self) -> Configuration:
        """Check every argument, so that a mistake is found before any training and an earlier fit stays as it was.

        Budgets that depend on the number of rows are those of few; `_sampler` knows them when the rows are counted.
        """
        if self.activation is not None:
            check_choice("activation", self.activation, ACTIVATIONS)
        check_choice("preset", self.preset, preset_names())
        if self.hidden_layer_sizes is not None:
            check_widths(self.hidden_layer_sizes)
        if self.network is not None:
            self._template()
        choose_likelihood(self.likelihood, self._likelihood, self._task)
        choose_encoder(self.encoder, Standardizer())
        check_kinds(self.columns)
        if self.columns is not None and self.encoder is not None:
            raise ValueError("columns must be None where encoder is given: TableEncoder(kinds=...) says the same.")
        check_number("validation_fraction", self.validation_fraction, smallest=0.0, largest=_LARGEST_FRACTION)
        check_integer("verbose", self.verbose)
        if self.run_dir is not None:
            check_path("run_dir", self.run_dir, "a path or None")
        check_flag("store_data", self.store_data)
        if self.time_limit is not None:
            check_number("time_limit", self.time_limit, positive=True)
        return {
            "n_chains": check_count("n_chains", self.n_chains),
            "prior": choose_prior(self.prior, self.prior_scale),
            "temperature": check_number("temperature", self.temperature, positive=True),
            "sampler": self._sampler(0),
            "training": Training(
                learning_rate=check_number("learning_rate", self.learning_rate, positive=True),
                weight_decay=check_number("weight_decay", self.weight_decay, smallest=0.0),
                batch_size=check_count("batch_size", self.batch_size),
                max_epochs=check_count("max_epochs", self.max_epochs),
                stopping=Patience(epochs=check_count("patience", self.patience)),
            ),
        }

    def _backend(self) -> Backend:
        return choose_backend(self.backend, self.address, self.n_threads)

    def _sampler(self, n_rows: int) -> Sampler:
        is_table = self.network is None
        budgets = {"warmup_steps": self.warmup_steps, "sampling_steps": self.sampling_steps, "n_draws": self.n_draws}
        if is_table and self.hidden_layer_sizes is None and self.sampler in ("mile", AUTO):
            usual = table_defaults(self.preset, n_rows).steps
            budgets = {name: usual.get(name) if value is None else value for name, value in budgets.items()}
        preset = self.preset if is_table or self.preset != DEFAULT else "paper"
        return configure(self.sampler, preset, **budgets)

    def _template(self) -> Template:
        """Return the network that was asked for; the data decide its size."""
        return choose_template(self.network, self.hidden_layer_sizes, self.activation)

    def _kept_parameters(self) -> dict[str, object]:
        """Return the arguments that a file keeps, in the form that it keeps them."""
        parameters = {name: value for name, value in self.get_params(deep=False).items() if name not in _NOT_KEPT}
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
        return {
            "estimator": self._kind,
            "parameters": described | {"random_state": seed},
            "feature_names": None if names is None else [str(name) for name in names],
            "target": getattr(self, "target_name_", None),
            "n_features": int(getattr(self, "n_features_in_", 1)),  # one column of texts if nothing was fitted
        }
