"""`compare`: fitted models beside each other, whether they are in memory or in files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mile.comparison import Candidate, Comparison, by_left_out_rows, by_rows, compare_candidates
from mile.estimators._fitted import AbstractFittedModel
from mile.estimators._task import check_weights, encode_rows
from mile.estimators.loading import load
from mile.features.accepted import InputLike, ResponseLike, WeightsLike
from mile.fitting.result import Fit
from mile.storage import run_seconds

OUT_OF_FOLD_ROWS = "out-of-fold rows"
Comparable = AbstractFittedModel | Fit | str | Path


class Loaded(NamedTuple):
    """A model, and the seconds that its fit took, if anybody noted them."""

    model: AbstractFittedModel | Fit
    seconds: float | None

    @property
    def fit(self) -> Fit:
        """The `Fit` of an estimator; a `Fit` is its own."""
        return self.model.fit_ if isinstance(self.model, AbstractFittedModel) else self.model


def compare(
    models: Mapping[str, Comparable] | Sequence[Comparable],
    X: InputLike | None = None,
    y: ResponseLike | None = None,
    sample_weight: WeightsLike | None = None,
) -> Comparison:
    """Compare fitted models row by row.

    Parameters
    ----------
    models
        Estimators, fits, model files or run directories, by name; a sequence names files as they are and others by
        their place.
    X, y
        Rows that none of them has seen, with their outcomes. Without them each model is judged by its out-of-fold
        predictions of the training rows, which must be the same for all.
    sample_weight
        How many times each row counts; only with X and y.

    Returns
    -------
    Comparison
        The best model in LPPD first, and how far each other one is behind it, with the standard error of the paired
        difference. Its repr is a table.

    Raises
    ------
    ValueError
        If the models cannot be compared; the message says why.

    Examples
    --------
    >>> import mile
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> small = mile.MileRegressor((4,), preset="quick", n_chains=2, random_state=0).fit(X[100:], y[100:])
    >>> ensemble = mile.MileRegressor((4,), sampler="deep_ensemble", n_chains=2, random_state=0).fit(X[100:], y[100:])
    >>> found = mile.compare({"mile": small, "ensemble": ensemble}, X[:100], y[:100])
    >>> sorted(found.names)
    ['ensemble', 'mile']
    """
    if (X is None) != (y is None):
        raise ValueError("X and y must be given together, or neither.")
    named = {name: loaded(model) for name, model in _by_name(models).items()}
    if X is None or y is None:
        if sample_weight is not None:
            raise ValueError("sample_weight is of the rows of X: out-of-fold scores have the weights of the fit.")
        found = [by_left_out_rows(name, one.fit, one.seconds) for name, one in named.items()]
        return compare_candidates(found, OUT_OF_FOLD_ROWS)
    observed = np.asarray(y)
    weight = check_weights(sample_weight, observed)
    return compare_candidates([_on_rows(name, one, X, observed, weight) for name, one in named.items()], "rows given")


def loaded(model: Comparable) -> Loaded:
    """Return a model with the seconds of its fit, read from its file if it is one."""
    if isinstance(model, str | Path):
        path = Path(model)
        return Loaded(load(path), run_seconds(path) if path.is_dir() else None)
    return Loaded(model, getattr(model, "fit_seconds_", None))


def names_of(paths: Sequence[Path]) -> list[str]:
    """Return the names of files, or whole paths where two files have the same name."""
    names = [path.name for path in paths]
    return [str(path) if names.count(path.name) > 1 else path.name for path in paths]


def _by_name(models: Mapping[str, Comparable] | Sequence[Comparable]) -> dict[str, Comparable]:
    if isinstance(models, Mapping):
        return dict(models)
    paths = [
        Path(one) if isinstance(one, str | Path) else Path(f"model {place}") for place, one in enumerate(models, 1)
    ]
    return dict(zip(names_of(paths), models, strict=True))


def _on_rows(name: str, one: Loaded, X: InputLike, y: np.ndarray, weight: np.ndarray | None) -> Candidate:
    x = (
        one.model._encoded(X)
        if isinstance(one.model, AbstractFittedModel)
        else encode_rows(one.fit.encoder, np.asarray(X))
    )
    return by_rows(name, one.fit, x, y, weight, one.seconds)
