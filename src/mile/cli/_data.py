"""From a table on disk to features, a response and the kind of task."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from mile.estimators.loading import Model
from mile.fitting.result import Fit
from mile.likelihoods import AbstractLikelihood, Categorical, Gaussian
from mile.storage import Table, read_table

# How a response is read where no model says it; a task without one is decided by what the column holds.
LIKELIHOODS: dict[str, type[AbstractLikelihood]] = {kind.task: kind for kind in (Gaussian, Categorical)}
TASKS = ("auto", *LIKELIHOODS)
_MOST_CODES = 10  # different whole numbers that are taken for classes
_LARGEST_TEXT_SHARE = 0.5  # different texts per row, above which a column is not taken for classes


class LearningInput(NamedTuple):
    """What there is to learn from a table."""

    x: np.ndarray
    y: np.ndarray
    features: tuple[str, ...]
    task: str
    reason: str
    target: str


def read_problem(path: Path, target: str, drop: list[str], task: str) -> LearningInput:
    """Read a table and decide what kind of response it has."""
    if task not in TASKS:
        raise ValueError(f"--task must be one of {', '.join(TASKS)}; got {task!r}.")
    table = read_table(path)
    response = table.column(target)
    for name in drop:
        table.column(name)
    features = tuple(name for name in table.columns if name != target and name not in drop)
    if not features:
        raise ValueError(f"{path} has no column besides {target!r} to predict it from.")
    task, reason = _decide(table, target, response, task)
    y = LIKELIHOODS[task].read(table, target)
    return LearningInput(table.matrix(features), y, features, task, reason, target)


def _decide(table: Table, target: str, response: np.ndarray, task: str) -> tuple[str, str]:
    if task != "auto":
        return task, "as asked for"
    n_values = len({value for value in response.tolist() if value is not None})
    if response.dtype == object:
        if n_values <= _LARGEST_TEXT_SHARE * len(response):
            return "classification", f"{target!r} is text with {n_values} different values"
        LIKELIHOODS["regression"].read(table, target)  # names the first cell that is not a number
        raise AssertionError("unreachable: a column of texts that are all numbers would have been read as numbers")
    known = response[np.isfinite(response)]
    if n_values <= _MOST_CODES and np.all(known == np.round(known)) and n_values < len(response):
        return "classification", f"{target!r} has only {n_values} different whole numbers"
    return "regression", f"{target!r} is a number"


def features_for(model: Model, table: Table, target: str | None) -> np.ndarray:
    """Return the columns that a model was fitted on, in its order."""
    names = feature_names(model)
    n_features = getattr(model, "n_features_in_", fitted(model).network.n_inputs)
    if names is None:
        names = tuple(name for name in table.columns if name != target)
        if len(names) != n_features:
            raise ValueError(
                f"The model was fitted on {n_features} columns without names, and {table.source} has {len(names)}."
            )
    return table.matrix(names)


def response_for(model: Model, table: Table, target: str) -> np.ndarray:
    """Return the observed response in the type that the model knows."""
    fit = fitted(model)
    return fit.response.cast(fit.likelihood.read(table, target))


def fitted(model: Model) -> Fit:
    """Return the `Fit` of an estimator; a `Fit` is its own."""
    return model if isinstance(model, Fit) else model.fit_


def feature_names(model: Model) -> tuple[str, ...] | None:
    """Return the names of the columns that a model was fitted on, if it knows them."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else tuple(map(str, names))
