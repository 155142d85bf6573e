"""The scikit-learn face: MileRegressor and MileClassifier."""

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from mile._checks import check_choice, check_count, check_number
from mile._errors import UntrustedFileError
from mile._progress import Bars
from mile.configuration import build, describe
from mile.data import prepare
from mile.fitting import fit
from mile.inputs import check_features, check_training_data
from mile.likelihoods import Categorical, Gaussian
from mile.networks import ACTIVATIONS, MLP
from mile.optimize import Patience, Training
from mile.predict import DEFAULT_MEMORY
from mile.priors import Normal
from mile.results import Fit
from mile.samplers import SAMPLERS, DeepEnsemble, Mile, Sampler, configure
from mile.sampling import seed_for

_PRESET_HIDDEN = (16, 16)  # paper table 1
_LARGEST_FRACTION = 0.9  # of the rows may be set aside for validation
_NOT_KEPT = {"run_dir", "random_state"}  # in files: a folder is not the model's, and a seed is kept as a number


class _MileEstimator(BaseEstimator):
    """What both estimators share: arguments, fitting, and the distribution they predict."""

    _kind: ClassVar[str]  # what files call it

    def __init__(
        self,
        hidden_layer_sizes: tuple[int, ...] | None = None,
        activation: str = "relu",
        *,
        n_chains: int = 12,
        preset: str = "paper",
        warmup_steps: int | None = None,
        sampling_steps: int | None = None,
        n_draws: int | None = None,
        prior_scale: float = 1.0,
        learning_rate: float = 1e-3,
        weight_decay: float = 1e-3,
        batch_size: int = 32,
        max_epochs: int = 500,
        patience: int = 10,
        validation_fraction: float = 0.125,
        sampler: str | Sampler = "mile",
        run_dir: str | Path | None = None,
        store_data: bool = True,
        time_limit: float | None = None,
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
        self.prior_scale = prior_scale
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.sampler = sampler
        self.run_dir = run_dir
        self.store_data = store_data
        self.time_limit = time_limit
        self.random_state = random_state
        self.verbose = verbose

    def _fit(
        self, x: np.ndarray, y: np.ndarray, likelihood: Any, configuration: dict[str, Any], **options: Any
    ) -> None:
        network = MLP(
            n_inputs=x.shape[1],
            hidden=_PRESET_HIDDEN if self.hidden_layer_sizes is None else _check_widths(self.hidden_layer_sizes),
            n_outputs=likelihood.n_outputs,
            activation=self.activation,
        )
        seed = seed_for(self.run_dir, self.random_state)
        dataset = prepare(x, y, validation_fraction=self.validation_fraction, seed=seed)
        options |= {"run_dir": self.run_dir, "store_data": self.store_data, "origin": self._origin(seed)}
        with Bars() if self.verbose > 0 else contextlib.nullcontext() as progress:
            self.fit_: Fit = fit(
                dataset, network, likelihood, random_state=seed, progress=progress, **configuration, **options
            )

    def _origin(self, seed: int) -> dict[str, Any]:
        """Describe this estimator, so that it can be built again from a file."""
        parameters = {name: value for name, value in self.get_params(deep=False).items() if name not in _NOT_KEPT}
        names = getattr(self, "feature_names_in_", None)
        return {
            "estimator": self._kind,
            "parameters": {name: describe(value) for name, value in parameters.items()} | {"random_state": seed},
            "feature_names": None if names is None else [str(name) for name in names],
        }

    def _configuration(self) -> dict[str, Any]:
        """Check every argument, so that a mistake shows before any training and leaves an earlier fit as it was."""
        check_choice("activation", self.activation, ACTIVATIONS)
        check_choice("preset", self.preset, SAMPLERS["mile"])
        if self.hidden_layer_sizes is not None:
            _check_widths(self.hidden_layer_sizes)
        check_number("validation_fraction", self.validation_fraction, smallest=0.0, largest=_LARGEST_FRACTION)
        if not isinstance(self.verbose, int | np.integer):
            raise ValueError(f"verbose must be an integer; got {self.verbose!r}.")
        if self.run_dir is not None and not isinstance(self.run_dir, str | Path):
            raise ValueError(f"run_dir must be a path or None; got {self.run_dir!r}.")
        if not isinstance(self.store_data, bool | np.bool_):
            raise ValueError(f"store_data must be True or False; got {self.store_data!r}.")
        if self.time_limit is not None:
            check_number("time_limit", self.time_limit, positive=True)
        return {
            "time_limit": self.time_limit,
            "n_chains": check_count("n_chains", self.n_chains),
            "prior": Normal(scale=check_number("prior_scale", self.prior_scale, positive=True)),
            "sampler": configure(
                self.sampler,
                self.preset,
                warmup_steps=self.warmup_steps,
                sampling_steps=self.sampling_steps,
                n_draws=self.n_draws,
            ),
            "training": Training(
                learning_rate=check_number("learning_rate", self.learning_rate, positive=True),
                weight_decay=check_number("weight_decay", self.weight_decay, smallest=0.0),
                batch_size=check_count("batch_size", self.batch_size),
                max_epochs=check_count("max_epochs", self.max_epochs),
                stopping=Patience(epochs=check_count("patience", self.patience)),
            ),
        }

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

    def to_arviz(self) -> Any:
        """Return draws and sampler statistics as an xarray `DataTree` in ArviZ's layout (needs the `arviz` extra)."""
        check_is_fitted(self)
        return self.fit_.to_arviz()

    def predictive(self, X: Any, memory: int = DEFAULT_MEMORY) -> Any:
        """Return the predictive distribution of each row: a `Predictive`, or a `ClassPredictive` for classes.

        Parameters
        ----------
        X
            Table of shape (rows, features).
        memory
            Bytes that intermediate results may take.
        """
        check_is_fitted(self)
        return self.fit_.predictive(check_features(self, X), memory)

    def sample_predictive(self, X: Any, n: int = 1, random_state: int | None = None) -> np.ndarray:
        """Draw n responses per row, shape (n, rows)."""
        return self.predictive(X).sample(n, random_state)

    def lppd(self, X: Any, y: Any) -> float:
        """Return the log pointwise predictive density: the mean over rows of the log density at y."""
        return float(np.mean(self.predictive(X).log_prob(np.asarray(y))))


class MileRegressor(RegressorMixin, _MileEstimator):
    """Regression with calibrated uncertainty from a Microcanonical Langevin Ensemble.

    A network with two outputs, location and log scale, gives each row its own noise level. K such networks
    are trained, one chain samples the weights around each, and all kept draws predict together. X and y are
    standardized inside, and every output is on the scale of y.

    Parameters
    ----------
    hidden_layer_sizes
        Widths of the hidden layers; None takes the preset's, 16 and 16.
    activation
        "relu", "tanh", "gelu", "silu" or "sigmoid".
    n_chains
        Ensemble members and chains.
    preset
        "paper" (default), "quick" (a tenth of the steps) or "accurate" (smaller steps, four times as many).
    warmup_steps, sampling_steps, n_draws
        Budgets per chain; None takes the preset's.
    prior_scale
        Standard deviation of the normal prior on all weights and biases.
    learning_rate, weight_decay, batch_size, max_epochs, patience
        Training of the ensemble by AdamW with early stopping; the learning rate is also the sampler's first
        step size.
    validation_fraction
        Share of the rows that decides when training stops; under 20 rows there is none.
    sampler
        "mile", "deep_ensemble" (no sampling), or a sampler object such as `Mile(trust=2.0)`.
    run_dir
        Folder that takes draws and checkpoints while `fit` runs. Fitting again with the same data and arguments goes
        on where the run was stopped; a finished one is loaded. One folder serves one fit: leave it None in a search.
    store_data
        Whether the run keeps the prepared data, so that `mile.resume` needs nothing but the folder.
    time_limit
        Seconds that `fit` may take. Budgets that do not fit are cut, with a warning that says by how much.
    random_state
        Seed; None draws one and keeps it in `seed_`.
    verbose
        Above zero shows progress bars and forecasts.

    Attributes
    ----------
    chain_status_
        One word per chain; "ok" or what went wrong.
    tuned_
        Step size and L per chain.
    gradient_evaluations_
        Gradient evaluations per chain.
    fit_
        The `Fit`: draws, ensemble, records.
    seed_
        The seed that reproduces this fit.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from mile import MileRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = MileRegressor(preset="quick", n_chains=2, random_state=0).fit(X, y)
    >>> model.predict_interval(X[:3], level=0.9).shape
    (3, 2)
    """

    _kind = "regressor"

    def fit(self, X: Any, y: Any) -> "MileRegressor":
        """Fit the ensemble.

        Parameters
        ----------
        X
            Table of shape (rows, features), numeric and finite.
        y
            Response, shape (rows,).

        Returns
        -------
        MileRegressor
            Itself.

        Raises
        ------
        ValueError
            If an argument or the data cannot be used; nothing has been trained then.
        FitFailedError
            If every chain failed.
        """
        configuration = self._configuration()
        X, y = check_training_data(self, X, y, numeric=True)
        self._fit(X, np.asarray(y, np.float64), Gaussian(), configuration)
        return self

    def predict(self, X: Any, return_std: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Return the predictive mean, and with `return_std` also the standard deviation."""
        predictive = self.predictive(X)
        return (predictive.mean, predictive.std) if return_std else predictive.mean

    def predict_interval(self, X: Any, level: float = 0.9) -> Float[np.ndarray, "row 2"]:
        """Return lower and upper end of the central interval that holds y with probability `level`."""
        return self.predictive(X).interval(level)

    def predict_quantiles(self, X: Any, q: Any = (0.05, 0.5, 0.95)) -> Float[np.ndarray, "row level"]:
        """Return the quantiles at levels `q`, one column each."""
        return self.predictive(X).quantile(np.atleast_1d(np.asarray(q, np.float64)))


class MileClassifier(ClassifierMixin, _MileEstimator):
    """Classification with calibrated probabilities from a Microcanonical Langevin Ensemble.

    Arguments and attributes are those of `MileRegressor`; `classes_` holds the labels.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mile import MileClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MileClassifier(preset="quick", n_chains=2, random_state=0).fit(X, y)
    >>> model.predict_proba(X[:3]).shape
    (3, 3)
    """

    _kind = "classifier"

    def fit(self, X: Any, y: Any) -> "MileClassifier":
        """Fit the ensemble.

        Parameters
        ----------
        X
            Table of shape (rows, features), numeric and finite.
        y
            Labels of any kind, shape (rows,), at least two different ones.

        Returns
        -------
        MileClassifier
            Itself.

        Raises
        ------
        ValueError
            If an argument or the data cannot be used; nothing has been trained then.
        FitFailedError
            If every chain failed.
        """
        configuration = self._configuration()
        X, y = check_training_data(self, X, y, numeric=False)
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"y must have at least 2 classes; it has only 1 class, {classes.tolist()[0]!r}.")
        self._fit(X, codes, Categorical(len(classes)), configuration, classes=classes)
        return self

    @property
    def classes_(self) -> np.ndarray:
        """The labels, sorted."""
        return cast(np.ndarray, self.fit_.classes)

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable label of each row."""
        return self.predictive(X).labels

    def predict_proba(self, X: Any) -> Float[np.ndarray, "row class"]:
        """Return the probability of each class, in the order of `classes_`."""
        return self.predictive(X).probs


def restore_estimator(origin: Any, fitted: Fit) -> MileRegressor | MileClassifier:
    """Return the estimator that a file describes, fitted.

    Raises
    ------
    UntrustedFileError
        If the description is not of an estimator with possible arguments.
    """
    if not isinstance(origin, dict) or set(origin) != {"estimator", "parameters", "feature_names"}:
        raise UntrustedFileError("the file does not describe an estimator.")
    kinds: dict[Any, Any] = {kind._kind: kind for kind in (MileRegressor, MileClassifier)}
    word, parameters, names = origin["estimator"], origin["parameters"], origin["feature_names"]
    if not isinstance(word, str) or word not in kinds or not isinstance(parameters, dict):
        raise UntrustedFileError(f"{str(word)[:80]!r} is not one of {sorted(kinds)}.")
    if (word == "classifier") != isinstance(fitted.likelihood, Categorical):
        raise UntrustedFileError(f"a {word} does not have this likelihood.")
    if word == "classifier" and fitted.classes is None:
        raise UntrustedFileError("a classifier must have labels.")
    kind = kinds[word]
    # A folder to write to is not a file's to choose.
    wrong = set(parameters) ^ (set(kind._get_param_names()) - {"run_dir"})
    if wrong:
        raise UntrustedFileError(f"unknown or missing argument of a {word}: {sorted(wrong)[0][:80]!r}.")
    if type(parameters["random_state"]) is not int or parameters["random_state"] != fitted.seed:
        raise UntrustedFileError("random_state must be the seed of the fit.")
    plain = (bool, int, float, str, tuple, type(None))
    arguments = {
        name: build(value, *(Mile, DeepEnsemble, str) if name == "sampler" else plain)
        for name, value in parameters.items()
    }
    estimator = kind(**arguments)
    try:
        estimator._configuration()
    except (ValueError, OverflowError) as error:
        raise UntrustedFileError(f"the file describes an estimator with an impossible argument: {error}") from error
    n_features = fitted.network.n_inputs
    if names is not None:
        are_words = isinstance(names, list) and all(isinstance(name, str) for name in names)
        if not are_words or len(names) != n_features:
            raise UntrustedFileError("there must be one name for each feature.")
        estimator.feature_names_in_ = np.array(names, object)
    estimator.n_features_in_ = n_features
    estimator.fit_ = fitted
    return estimator


def _check_widths(widths: Any) -> tuple[int, ...]:
    if isinstance(widths, str) or not isinstance(widths, Iterable):
        raise ValueError(f"hidden_layer_sizes must be a sequence of widths, such as (16, 16); got {widths!r}.")
    return tuple(check_count("each entry of hidden_layer_sizes", width) for width in widths)
