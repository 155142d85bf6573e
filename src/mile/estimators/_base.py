"""What both estimators share: arguments, fitting, files, and the distribution they predict."""

import time
from abc import ABCMeta
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from mile import _registry
from mile._checks import check_choice, check_count, check_number
from mile._progress import Progress, show_progress
from mile.configuration import describe
from mile.data import Dataset, prepare
from mile.ensemble.training import Patience, Training
from mile.estimators._inputs import check_features, check_training_data, check_training_images
from mile.estimators._networks import check_widths, choose_template, default_network, table_defaults
from mile.estimators._task import LearningTask, check_weights, choose_encoder, choose_likelihood
from mile.execution import Backend, choose_backend
from mile.features.base import AbstractFeatureEncoder
from mile.features.numbers import Standardizer
from mile.features.pixels import PixelScale, check_images, is_images
from mile.fitting.forecast import Forecast, forecast_fit
from mile.fitting.job import fit
from mile.fitting.result import Fit
from mile.likelihoods import AbstractLikelihood
from mile.likelihoods.base import Task
from mile.networks import ACTIVATIONS
from mile.predict import DEFAULT_MEMORY
from mile.priors import Prior, choose_prior
from mile.report import render
from mile.samplers import AUTO, DEFAULT, Sampler, configure, preset_names
from mile.sampling.chains import seed_for
from mile.storage import write_page

_LARGEST_FRACTION = 0.9  # of the rows may be set aside for validation
_LEAST_SECONDS = 1.0  # of a time limit that are left when preparing the rows has taken the rest
# In files: folders and machines are not the model's, and a seed is kept as a number.
_NOT_KEPT = {"run_dir", "backend", "address", "n_threads", "random_state"}


class AbstractMileEstimator(BaseEstimator, metaclass=ABCMeta):
    """What both estimators share: arguments, fitting, and the distribution they predict."""

    _kind: ClassVar[str]  # what files call it
    _task: ClassVar[Task]
    _likelihood: ClassVar[str]  # where none is asked for
    n_features_in_: int

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
        network: Any = None,
        likelihood: str | AbstractLikelihood | None = None,
        encoder: str | AbstractFeatureEncoder | None = None,
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
        self.sampler = sampler
        self.run_dir = run_dir
        self.store_data = store_data
        self.time_limit = time_limit
        self.backend = backend
        self.address = address
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def _fit(self, task: LearningTask, configuration: dict[str, Any]) -> None:
        seed = seed_for(self.run_dir, self.random_state)
        began = time.perf_counter()
        with show_progress(self.verbose > 0) as progress:
            dataset = self._dataset(task, seed)
            network = self._network(task, dataset, configuration["training"], seed, progress)
            spent = time.perf_counter() - began
            options = {"run_dir": self.run_dir, "store_data": self.store_data, "origin": self._origin(seed)}
            options["backend"] = choose_backend(self.backend, self.address, self.n_threads)
            self.fit_: Fit = fit(
                dataset,
                network,
                task.likelihood,
                random_state=seed,
                time_limit=_time_left(self.time_limit, spent),
                progress=progress,
                **configuration,
                **options,
            )
        self.fit_seconds_ = time.perf_counter() - began

    def _dataset(self, task: LearningTask, seed: int) -> Dataset:
        x = task.x.reshape(len(task.x), -1) if len(task.shape) > 1 else task.x
        return prepare(
            x,
            task.y,
            task.likelihood,
            task.encoder,
            validation_fraction=self.validation_fraction,
            seed=seed,
            weight=task.weight,
            number=task.number,
        )

    def _network(
        self, task: LearningTask, dataset: Dataset, training: Training, seed: int, progress: Progress | None
    ) -> Any:
        """Return the network for encoded rows."""
        shape = task.shape if len(task.shape) > 1 else (dataset.n_features,)
        n_outputs = task.likelihood.n_outputs
        if self.network is None:
            n_rows = len(task.x)
            return default_network(shape, n_outputs, n_rows, self.hidden_layer_sizes, self.activation, self.preset)
        return self._template().sized(shape, n_outputs)

    @classmethod
    def _check_restored(cls, fitted: Fit) -> None:
        """Refuse a fit that a file gives to this kind of estimator, if it cannot be its own."""

    def _template(self) -> Any:
        """Return the network that was asked for, which takes its size from the data."""
        return choose_template(self.network, self.hidden_layer_sizes, self.activation)

    def _origin(self, seed: int) -> dict[str, Any]:
        """Describe this estimator, so that it can be built again from a file."""
        parameters = {name: value for name, value in self.get_params(deep=False).items() if name not in _NOT_KEPT}
        if self.network is not None and not isinstance(self.network, str):
            parameters["network"] = self._template()  # files keep nothing of the user's own code
        if isinstance(self.encoder, AbstractFeatureEncoder):
            parameters["encoder"] = _registry.encoder.name_of(type(self.encoder))
        weights = parameters.get("class_weight")
        if isinstance(weights, Mapping):  # JSON has texts only for names
            parameters["class_weight"] = [[describe(label), float(weight)] for label, weight in weights.items()]
        names = getattr(self, "feature_names_in_", None)
        return {
            "estimator": self._kind,
            "parameters": {name: describe(value) for name, value in parameters.items()} | {"random_state": seed},
            "feature_names": None if names is None else [str(name) for name in names],
            "target": getattr(self, "target_name_", None),
            "n_features": int(getattr(self, "n_features_in_", 1)),  # of a column of texts that was put together by hand
        }

    def _configuration(self, n_rows: int = 0) -> dict[str, Any]:
        """Check every argument, so that a mistake shows before any training and leaves an earlier fit as it was.

        Budgets that depend on the number of rows are right only once it is given.
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
        check_number("validation_fraction", self.validation_fraction, smallest=0.0, largest=_LARGEST_FRACTION)
        if not isinstance(self.verbose, int | np.integer):
            raise ValueError(f"verbose must be an integer; got {self.verbose!r}.")
        if self.run_dir is not None and not isinstance(self.run_dir, str | Path):
            raise ValueError(f"run_dir must be a path or None; got {self.run_dir!r}.")
        if not isinstance(self.store_data, bool | np.bool_):
            raise ValueError(f"store_data must be True or False; got {self.store_data!r}.")
        if self.time_limit is not None:
            check_number("time_limit", self.time_limit, positive=True)
        choose_backend(self.backend, self.address, self.n_threads)
        return {
            "n_chains": check_count("n_chains", self.n_chains),
            "prior": choose_prior(self.prior, self.prior_scale),
            "temperature": check_number("temperature", self.temperature, positive=True),
            "sampler": self._sampler(n_rows),
            "training": Training(
                learning_rate=check_number("learning_rate", self.learning_rate, positive=True),
                weight_decay=check_number("weight_decay", self.weight_decay, smallest=0.0),
                batch_size=check_count("batch_size", self.batch_size),
                max_epochs=check_count("max_epochs", self.max_epochs),
                stopping=Patience(epochs=check_count("patience", self.patience)),
            ),
        }

    def _sampler(self, n_rows: int) -> Sampler:
        is_table = self.network is None
        budgets = {"warmup_steps": self.warmup_steps, "sampling_steps": self.sampling_steps, "n_draws": self.n_draws}
        if is_table and self.hidden_layer_sizes is None and self.sampler in ("mile", AUTO):
            usual = table_defaults(self.preset, n_rows).steps
            budgets = {name: usual.get(name) if value is None else value for name, value in budgets.items()}
        preset = self.preset if is_table or self.preset != DEFAULT else "paper"
        return configure(self.sampler, preset, **budgets)

    @property
    def seed_(self) -> int:
        """The seed that reproduces this fit."""
        return self.fit_.seed

    @property
    def chain_status_(self) -> list[str]:
        """Status of each chain: OK, or what went wrong."""
        return [code.name.lower() for code in self.fit_.status]

    @property
    def tuned_(self) -> Any:
        """Step size and L of each chain."""
        return self.fit_.chains.tuned

    @property
    def gradient_evaluations_(self) -> np.ndarray:
        """Gradient evaluations on all rows that each chain cost."""
        return self.fit_.chains.gradient_evaluations

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "fit_")

    def save(self, path: str | Path) -> None:
        """Write this fitted model to one file, which `mile.load` reads; it cannot hold code.

        Parameters
        ----------
        path
            Such as "model.mile".

        Raises
        ------
        StorageError
            If the file could not be written.
        TypeError
            If the sampler is of a class of your own, which a file cannot describe.
        """
        check_is_fitted(self)
        self.fit_.save(path, extra=self._origin(self.seed_))

    def report(self, path: str | Path, X: Any = None, y: Any = None, *, title: str | None = None) -> None:
        """Write one HTML page about this model: scores, calibration, diagnostics of the chains, advice.

        Parameters
        ----------
        path
            Such as "report.html".
        X, y
            Test rows. Without them the page has the diagnostics of the chains only.
        title
            Heading of the page.

        Raises
        ------
        StorageError
            If the file could not be written.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> import pathlib, tempfile
        >>> from mile import MileRegressor
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = MileRegressor(preset="quick", n_chains=2, random_state=0).fit(X[50:], y[50:])
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "report.html"
        >>> model.report(path, X[:50], y[:50])
        >>> path.stat().st_size < 3_000_000
        True
        """
        check_is_fitted(self)
        if (X is None) != (y is None):
            raise ValueError("X and y must be given together, or neither.")
        names = getattr(self, "feature_names_in_", None)
        page = render(
            self.fit_,
            None if X is None else self._features(X),
            None if y is None else np.asarray(y),
            title=title or f"MILE {self._kind}",
            rows="test rows",
            feature_names=None if names is None else [str(name) for name in names],
            target=getattr(self, "target_name_", None),
            seconds=getattr(self, "fit_seconds_", None),
        )
        write_page(Path(path), page)

    def forecast(self, X: Any, y: Any) -> Forecast:
        """Say what `fit` would take in time, memory and disk, after timing a few epochs and steps; fits nothing."""
        self._configuration()
        fresh: Any = clone(self)
        task = fresh._prepare(X, y, None)
        dataset, configuration = self._dataset(task, 0), self._configuration(len(task.x))
        network = fresh._untrained_network(task, dataset, configuration["training"])
        return forecast_fit(dataset, network, task.likelihood, **configuration)

    def _untrained_network(self, task: LearningTask, dataset: Dataset, training: Training) -> Any:
        """Return a network of the right size to measure time with."""
        return self._network(task, dataset, training, 0, None)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fit the ensemble.

        Parameters
        ----------
        X
            Table of shape (rows, features), or images of shape (images, height, width) or (images, height, width,
            channels) for a `network` that takes them; numeric and finite.
        y
            Shape (rows,): numbers, or for a classifier labels of any kind, at least two different ones.
        sample_weight
            How many times each row counts, shape (rows,): it multiplies the row's log likelihood, so a weight of 2
            equals the row twice, and a weight of 0 leaves it out. None: each counts once.

        Returns
        -------
        MileRegressor or MileClassifier
            Itself.

        Raises
        ------
        ValueError
            If an argument or the data cannot be used; nothing has been trained then.
        FitFailedError
            If every chain failed.
        """
        return self._fit_named(X, y, None, getattr(y, "name", None), sample_weight)

    def fit_columns(
        self,
        X: np.ndarray,
        y: np.ndarray,
        columns: Sequence[str],
        target: str | None = None,
        sample_weight: Any = None,
    ) -> Any:
        """Fit a plain array whose columns have names, as they come from a file; what is saved knows them.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.
        columns
            One name per column of X.
        target
            Name of y.
        """
        if len(columns) != np.shape(X)[1]:
            raise ValueError(f"columns must be one name for each of the {np.shape(X)[1]} columns; got {len(columns)}.")
        return self._fit_named(X, y, columns, target, sample_weight)

    def _fit_named(self, X: Any, y: Any, columns: Sequence[str] | None, target: Any, sample_weight: Any) -> Any:
        self._configuration()
        task = self._prepare(X, y, sample_weight)
        if columns is not None:
            self.feature_names_in_ = np.array([str(name) for name in columns], object)
        self.target_name_ = target if isinstance(target, str) else None
        self._fit(task, self._configuration(len(task.x)))
        return self

    def _prepare(self, X: Any, y: Any, sample_weight: Any) -> LearningTask:
        """Check the data and say what there is to learn; rows of weight zero are left out."""
        kind = choose_likelihood(self.likelihood, self._likelihood, self._task)
        x, y, usual = self._checked(X, y, numeric=kind.is_numeric)
        weight = self._row_weights(sample_weight, x, y)
        number = np.arange(len(x)) if weight is None else np.flatnonzero(weight > 0)
        if len(number) < len(x):
            x, y, weight = x[number], y[number], None if weight is None else weight[number]
        y = kind.check(y)
        likelihood = kind.for_response(y) if isinstance(kind, type) else kind
        return LearningTask(x, y, likelihood, choose_encoder(self.encoder, usual), weight, number)

    def _row_weights(self, sample_weight: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray | None:
        """Return how many times each row counts; None: once."""
        return check_weights(sample_weight, x)

    def _checked(self, X: Any, y: Any, *, numeric: bool) -> tuple[np.ndarray, np.ndarray, AbstractFeatureEncoder]:
        """Return rows, response, and the encoder that suits the rows."""
        if is_images(X):
            return *check_training_images(self, X, y, numeric=numeric), PixelScale()
        return *check_training_data(self, X, y, numeric=numeric), Standardizer()

    def _features(self, X: Any) -> np.ndarray:
        """Check rows to predict and return them as a table."""
        shape = self.fit_.network.input_shape
        if len(shape) == 1:
            return check_features(self, X)
        encoder = self.fit_.encoder
        images = check_images(X, shape, encoder if isinstance(encoder, PixelScale) else None)
        return images.reshape(len(images), self.fit_.network.n_inputs)

    def to_arviz(self) -> Any:
        """Return draws and sampler statistics as an xarray `DataTree` in ArviZ's layout (needs the `arviz` extra)."""
        check_is_fitted(self)
        return self.fit_.to_arviz()

    def predictive(self, X: Any, memory: int = DEFAULT_MEMORY) -> Any:
        """Return the predictive distribution of each row: a `Predictive`, or a `ClassPredictive` for classes.

        Parameters
        ----------
        X
            Rows as at fit.
        memory
            Bytes that intermediate results may take.
        """
        check_is_fitted(self)
        return self.fit_.predictive(self._features(X), memory)

    def sample_predictive(self, X: Any, n: int = 1, random_state: int | None = None) -> np.ndarray:
        """Draw n responses per row, shape (n, rows)."""
        return self.predictive(X).sample(n, random_state)

    def lppd(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the log pointwise predictive density: the mean over rows of the log density at y, by weight."""
        density = self.predictive(X).log_prob(np.asarray(y))
        weight = check_weights(sample_weight, density)
        return float(np.mean(density) if weight is None else np.average(density, weights=weight))


def _time_left(limit: float | None, spent: float) -> float | None:
    return None if limit is None else max(limit - spent, min(limit, _LEAST_SECONDS))
