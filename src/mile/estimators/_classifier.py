"""Classification."""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import numpy as np
from jaxtyping import Float
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight

from mile._errors import UntrustedFileError
from mile.configuration import describe
from mile.estimators._base import AbstractMileEstimator
from mile.estimators._task import check_weights, refuse_weightless_classes
from mile.execution import Backend
from mile.features.accepted import ClassWeights, InputLike, WeightsLike
from mile.features.base import AbstractFeatureEncoder, Table
from mile.fitting.result import Fit
from mile.likelihoods import AbstractLikelihood, ClassPredictive
from mile.predict import DEFAULT_MEMORY
from mile.priors import Prior
from mile.samplers import DEFAULT, Sampler


class MileClassifier(ClassifierMixin, AbstractMileEstimator):
    """Classification with calibrated probabilities from a Microcanonical Langevin Ensemble.

    Arguments and attributes are those of `MileRegressor`; `classes_` holds the labels.

    Parameters
    ----------
    class_weight
        How many times each row of a class counts: a weight for each label, or "balanced", which gives all classes the
        same total weight. It multiplies `sample_weight`. None: each row counts once.

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
    _task = "classification"

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
        class_weight: ClassWeights | str | None = None,
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
        super().__init__(
            hidden_layer_sizes,
            activation,
            n_chains=n_chains,
            preset=preset,
            warmup_steps=warmup_steps,
            sampling_steps=sampling_steps,
            n_draws=n_draws,
            prior=prior,
            prior_scale=prior_scale,
            temperature=temperature,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            batch_size=batch_size,
            max_epochs=max_epochs,
            patience=patience,
            validation_fraction=validation_fraction,
            n_folds=n_folds,
            stacking=stacking,
            network=network,
            likelihood=likelihood,
            encoder=encoder,
            columns=columns,
            sampler=sampler,
            run_dir=run_dir,
            store_data=store_data,
            time_limit=time_limit,
            stop_when=stop_when,
            warm_start=warm_start,
            backend=backend,
            address=address,
            n_threads=n_threads,
            random_state=random_state,
            verbose=verbose,
        )
        self.class_weight = class_weight

    def _row_weights(self, sample_weight: WeightsLike | None, x: Table, y: np.ndarray) -> np.ndarray | None:
        """Return the weight of each row's class times its own."""
        weight = super()._row_weights(sample_weight, x, y)
        if self.class_weight is not None:
            try:
                of_class = compute_sample_weight(self.class_weight, y)
            except (ValueError, TypeError) as error:
                raise ValueError(
                    f'class_weight must be "balanced" or a weight for each label; got {self.class_weight!r}: {error}'
                ) from None
            weight = check_weights(of_class if weight is None else weight * of_class, x)
        if weight is not None:
            refuse_weightless_classes(weight, y)
        return weight

    def _kept_parameters(self) -> dict[str, object]:
        kept = super()._kept_parameters()
        if self.class_weight is not None and self.class_weight != "balanced":
            pairs = cast(ClassWeights, self.class_weight).items()  # pairs, because the keys of JSON are texts
            kept["class_weight"] = [[describe(label), float(weight)] for label, weight in pairs]
        return kept

    @classmethod
    def _check_restored(cls, fitted: Fit) -> None:
        if fitted.classes is None:
            raise UntrustedFileError("a classifier must have labels.")

    @property
    def classes_(self) -> np.ndarray:
        """The labels, sorted."""
        return cast(np.ndarray, self.fit_.classes)

    def predictive(self, X: InputLike, memory: int = DEFAULT_MEMORY) -> ClassPredictive:
        """Return the predictive distribution of each row.

        Parameters
        ----------
        X
            Rows as at fit.
        memory
            Bytes that intermediate results may take.
        """
        return cast(ClassPredictive, super().predictive(X, memory))

    def predict(self, X: InputLike) -> np.ndarray:
        """Return the most probable label of each row."""
        return self.predictive(X).labels

    def __call__(self, X: InputLike) -> Float[np.ndarray, "row class"]:
        """Return what `predict_proba` does: `shap.Explainer(model, X)` explains functions."""
        return self.predict_proba(X)

    def predict_proba(self, X: InputLike) -> Float[np.ndarray, "row class"]:
        """Return the probability of each class, in the order of `classes_`."""
        return self.predictive(X).probs
