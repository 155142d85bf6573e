"""The scikit-learn face: MileRegressor and MileClassifier."""

import contextlib
import math
from typing import Any, Self

import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from mile._progress import Bars
from mile._random import draw_seed
from mile.data import prepare
from mile.fitting import Fit, fit
from mile.likelihoods import Categorical, Gaussian
from mile.networks import ACTIVATIONS, MLP
from mile.optimize import Patience, Training
from mile.predict import DEFAULT_MEMORY
from mile.priors import Normal
from mile.samplers import Sampler, configure
from mile.samplers.base import check_count

_PRESET_HIDDEN = (16, 16)  # paper table 1


class _MileEstimator(BaseEstimator):
    """What both estimators share: arguments, fitting, and the distribution they predict."""

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
        self.random_state = random_state
        self.verbose = verbose

    def _fit(self, x: np.ndarray, y: np.ndarray, likelihood: Any, classes: np.ndarray | None) -> Self:
        configuration = self._configuration()
        hidden = _PRESET_HIDDEN if self.hidden_layer_sizes is None else tuple(self.hidden_layer_sizes)
        network = MLP(n_inputs=x.shape[1], hidden=hidden, n_outputs=likelihood.n_outputs, activation=self.activation)
        self.seed_ = draw_seed(self.random_state)
        dataset = prepare(x, y, validation_fraction=self.validation_fraction, seed=self.seed_)
        with Bars() if self.verbose > 0 else contextlib.nullcontext() as progress:
            self.fit_: Fit = fit(
                dataset,
                network,
                likelihood,
                n_chains=self.n_chains,
                classes=classes,
                random_state=self.seed_,
                progress=progress,
                **configuration,
            )
        return self

    def _configuration(self) -> dict[str, Any]:
        """Check every argument, so that a mistake shows before any training."""
        check_count("n_chains", self.n_chains)
        check_count("batch_size", self.batch_size)
        check_count("max_epochs", self.max_epochs)
        check_count("patience", self.patience)
        for name in ("prior_scale", "learning_rate", "weight_decay", "validation_fraction"):
            _check_number(name, getattr(self, name))
        if not 0.0 <= self.validation_fraction <= 0.9:
            raise ValueError(f"validation_fraction must lie in [0, 0.9]; got {self.validation_fraction!r}.")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {sorted(ACTIVATIONS)}; got {self.activation!r}.")
        if self.hidden_layer_sizes is not None:
            _check_widths(self.hidden_layer_sizes)
        if not isinstance(self.verbose, int | np.integer):
            raise ValueError(f"verbose must be an integer; got {self.verbose!r}.")
        return {
            "prior": Normal(scale=float(self.prior_scale)),
            "sampler": configure(
                self.sampler,
                self.preset,
                warmup_steps=self.warmup_steps,
                sampling_steps=self.sampling_steps,
                n_draws=self.n_draws,
            ),
            "training": Training(
                learning_rate=float(self.learning_rate),
                weight_decay=float(self.weight_decay),
                batch_size=int(self.batch_size),
                max_epochs=int(self.max_epochs),
                stopping=Patience(epochs=int(self.patience)),
            ),
        }

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
        return self.fit_.predictive(_check_features(self, X), memory)

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
    random_state
        Seed; None draws one and keeps it in `seed_`.
    verbose
        Above zero shows progress bars.

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

    def fit(self, X: Any, y: Any) -> Self:
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
        X, y = _check_training_data(self, X, y, y_numeric=True)
        return self._fit(X, np.asarray(y, np.float64), Gaussian(), None)

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

    def fit(self, X: Any, y: Any) -> Self:
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
        X, y = _check_training_data(self, X, y)
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"y must have at least 2 classes; it has only 1 class, {classes[0]!r}.")
        self.classes_ = classes
        return self._fit(X, codes, Categorical(len(classes)), classes)

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable label of each row."""
        return self.predictive(X).labels

    def predict_proba(self, X: Any) -> Float[np.ndarray, "row class"]:
        """Return the probability of each class, in the order of `classes_`."""
        return self.predictive(X).probs


def _check_training_data(estimator: BaseEstimator, X: Any, y: Any, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    _refuse_text(X)
    _refuse_non_finite_response(y)
    # Finiteness of X is checked afterwards, because scikit-learn's check does not name the cell.
    X, y = validate_data(estimator, X, y, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=2, **options)
    _refuse_non_finite(estimator, X)
    return X, y


def _check_features(estimator: BaseEstimator, X: Any) -> np.ndarray:
    _refuse_text(X)
    X = validate_data(estimator, X, reset=False, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=0)
    _refuse_non_finite(estimator, X)
    return X


def _refuse_text(X: Any) -> None:
    """Name the first column that is not numeric."""
    names = list(X.columns) if hasattr(X, "columns") else None
    columns = np.asarray(X) if isinstance(X, list | tuple) else X
    if names is None and not (isinstance(columns, np.ndarray) and columns.ndim == 2 and columns.dtype.kind in "OUSM"):
        return
    n_columns = columns.shape[1]
    for index in range(n_columns):
        column = np.asarray(columns[names[index]] if names is not None else columns[:, index])
        if column.dtype.kind in "biufc":
            continue
        for row, cell in enumerate(column):
            try:
                float(cell)
            except ValueError:
                name = f"{names[index]!r}" if names is not None else index
                raise ValueError(
                    f"X must be numeric, but column {name} has {cell!r} in row {row}: could not convert string to "
                    "float. Encode text columns first, for example with scikit-learn's OneHotEncoder."
                ) from None
            except TypeError:
                break  # dates, dictionaries, missing-value objects: scikit-learn says what is wrong


def _refuse_non_finite(estimator: Any, X: np.ndarray) -> None:
    bad = np.argwhere(~np.isfinite(X))
    if len(bad):
        row, column = bad[0]
        names = getattr(estimator, "feature_names_in_", None)
        name = f"{names[column]!r}" if names is not None else column
        value = _name_value(float(X[row, column]))
        raise ValueError(
            f"Input X contains {value} in row {row}, column {name} ({len(bad)} such cells in all). "
            "Remove these rows or impute them, for example with scikit-learn's SimpleImputer."
        )


def _refuse_non_finite_response(y: Any) -> None:
    y = np.asarray(y)
    if y.dtype.kind != "f":
        return
    bad = np.argwhere(~np.isfinite(y))
    if len(bad):
        value = _name_value(float(y[tuple(bad[0])]))
        raise ValueError(f"Input y contains {value} in row {bad[0][0]} ({len(bad)} such rows). Remove these rows.")


def _name_value(value: float) -> str:
    return "NaN" if math.isnan(value) else "infinity (inf)" if value > 0 else "-infinity (-inf)"


def _check_number(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number; got {value!r}.")


def _check_widths(widths: Any) -> None:
    try:
        widths = tuple(widths)
    except TypeError:
        raise ValueError(
            f"hidden_layer_sizes must be a sequence of widths, such as (16, 16); got {widths!r}."
        ) from None
    for width in widths:
        check_count("each entry of hidden_layer_sizes", width)
