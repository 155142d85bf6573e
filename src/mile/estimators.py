"""The scikit-learn face: MileRegressor and MileClassifier."""

import contextlib
from collections.abc import Iterable
from typing import Any, cast

import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from mile._checks import check_choice, check_count, check_number
from mile._progress import Bars
from mile._random import draw_seed
from mile.data import prepare
from mile.fitting import Fit, fit
from mile.inputs import check_features, check_training_data
from mile.likelihoods import Categorical, Gaussian
from mile.networks import ACTIVATIONS, MLP
from mile.optimize import Patience, Training
from mile.predict import DEFAULT_MEMORY
from mile.priors import Normal
from mile.samplers import Sampler, configure

_PRESET_HIDDEN = (16, 16)  # paper table 1
_LARGEST_FRACTION = 0.9  # of the rows may be set aside for validation


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

    def _fit(
        self, x: np.ndarray, y: np.ndarray, likelihood: Any, configuration: dict[str, Any], **options: Any
    ) -> None:
        network = MLP(
            n_inputs=x.shape[1],
            hidden=_PRESET_HIDDEN if self.hidden_layer_sizes is None else _check_widths(self.hidden_layer_sizes),
            n_outputs=likelihood.n_outputs,
            activation=self.activation,
        )
        seed = draw_seed(self.random_state)
        dataset = prepare(x, y, validation_fraction=self.validation_fraction, seed=seed)
        with Bars() if self.verbose > 0 else contextlib.nullcontext() as progress:
            self.fit_: Fit = fit(
                dataset, network, likelihood, random_state=seed, progress=progress, **configuration, **options
            )

    def _configuration(self) -> dict[str, Any]:
        """Check every argument, so that a mistake shows before any training and leaves an earlier fit as it was."""
        check_choice("activation", self.activation, ACTIVATIONS)
        if self.hidden_layer_sizes is not None:
            _check_widths(self.hidden_layer_sizes)
        check_number("validation_fraction", self.validation_fraction, smallest=0.0, largest=_LARGEST_FRACTION)
        if not isinstance(self.verbose, int | np.integer):
            raise ValueError(f"verbose must be an integer; got {self.verbose!r}.")
        return {
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


def _check_widths(widths: Any) -> tuple[int, ...]:
    if isinstance(widths, str) or not isinstance(widths, Iterable):
        raise ValueError(f"hidden_layer_sizes must be a sequence of widths, such as (16, 16); got {widths!r}.")
    return tuple(check_count("each entry of hidden_layer_sizes", width) for width in widths)
