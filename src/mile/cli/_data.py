"""From a table on disk to features, a response and the kind of task."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from mile.cli._reading import DataFile
from mile.cli._target import LIKELIHOODS, TASKS, decide, known_rows, names_in, read_outputs, with_gaps
from mile.cli._times import read_times
from mile.estimators.loading import Model
from mile.features.frame import Frame
from mile.fitting.result import Fit
from mile.likelihoods.outputs import AbstractSeveral
from mile.storage import Table


class LearningInput(NamedTuple):
    """What there is to learn from a table."""

    x: np.ndarray | dict[str, np.ndarray]  # numbers, texts or images, or columns of any kind by name
    y: np.ndarray
    features: tuple[str, ...]
    task: str
    reason: str
    target: str
    event: str | None = None  # column that says whether times ended with an event

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of x: one axis for texts, two for tables, more for images."""
        return (len(self.y), len(self.features)) if isinstance(self.x, dict) else self.x.shape


def read_kinds(data: DataFile, target: str | None, asked: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Return the kind of each column that the user named, from lists of names by kind.

    Raises
    ------
    ValueError
        If a column is not there, is the target, or has two kinds.
    """
    if not any(asked.values()):
        return {}
    table, kinds = data.table, {}
    for kind, given in asked.items():
        for name in [part for text in given for part in names_in(text, table)]:
            table.column(name)  # must be there
            if target is not None and name in names_in(target, table):
                raise ValueError(f"--{kind} {name!r} is the target, which is no feature.")
            if kinds.setdefault(name, kind) != kind:
                raise ValueError(f"Column {name!r} cannot be both: --{kinds[name]} and --{kind} name it.")
    return kinds


def read_problem(
    data: DataFile,
    target: str,
    drop: list[str],
    task: str,
    kinds: Mapping[str, str] | None = None,
    event: str | None = None,
) -> LearningInput:
    """Read a table and decide what kind of response it has; `kinds` says what columns are."""
    if task not in TASKS:
        raise ValueError(f"--task must be one of {', '.join(TASKS)}; got {task!r}.")
    table = data.table
    targets = names_in(target, table) or [target]
    for name in (*targets, *drop):
        table.column(name)  # must be there
    features = tuple(name for name in table.columns if name not in (*targets, event) and name not in drop)
    if not features:
        raise ValueError(f"{data} has no column besides {target!r} to predict it from.")
    if len(targets) > 1:
        if event is not None or (task in LIKELIHOODS and not LIKELIHOODS[task].is_numeric):
            raise ValueError("Several columns in --target are numbers to predict together, without --event or classes.")
        y, task, reason = (
            read_outputs(table, targets),
            AbstractSeveral.task,
            f"{len(targets)} targets are predicted together",
        )
    elif event is None:
        known = known_rows(table, target)
        task, reason = decide(table.take(known), target, task)
        y = with_gaps(LIKELIHOODS[task].read(table.take(known), target), known, len(table))
    else:
        y, task, reason = read_times(table, target, event), "regression", f"{event!r} says which times are censored"
    is_plain = table.is_plain(features) and not kinds
    x = table.matrix(features) if is_plain else {name: table.column(name) for name in features}
    return LearningInput(x, y, features, task, reason, target, event)


def features_for(model: Model, table: Table, target: str | None) -> np.ndarray | Frame:
    """Return the columns that a model was fitted on, in its order."""
    name = getattr(model, "exposure_name_", None)
    exposure = None if name is None else read_exposure(table, name)
    return fitted(model).encoder.joined(_features_for(model, table, target), exposure)


def read_exposure(table: Table, name: str) -> np.ndarray:
    """Return the column that counts are proportional to."""
    return table.matrix([name])[:, 0]


def _features_for(model: Model, table: Table, target: str | None) -> np.ndarray | Frame:
    names, encoder = feature_names(model), fitted(model).encoder
    if names is not None and encoder.takes_tables:
        used = {column.name for column in encoder.describe() if not column.reason}
        return Frame.of({name: table.column(name) for name in names if name in used or name in table.columns})
    n_features = getattr(model, "n_features_in_", fitted(model).network.n_inputs)
    if names is None:
        others = (*([] if target is None else names_in(target, table)), getattr(model, "event_name_", None))
        names = tuple(name for name in table.columns if name not in others)
        if len(names) != n_features:
            raise ValueError(
                f"The model was fitted on {n_features} columns without names, and {table.source} has {len(names)}."
            )
    return table.matrix(names, with_gaps=True)


def kept_columns(model: Model, table: Table, keep: str | None) -> dict[str, np.ndarray]:
    """Return the columns to copy beside predictions: those asked for, or those that the model takes for identifiers."""
    if keep is not None:
        return {name: table.column(name) for name in names_in(keep, table)}
    columns = fitted(model).encoder.describe()
    return {
        column.name: table.column(column.name)
        for column in columns
        if "identifier" in column.reason and column.name in table.columns
    }


def response_for(model: Model, table: Table, target: str) -> np.ndarray:
    """Return the observed response in the type that the model knows."""
    fit, event = fitted(model), getattr(model, "event_name_", None)
    if event is not None:
        return read_times(table, target, event)
    return fit.response.cast(fit.likelihood.read(table, target))


def fitted(model: Model) -> Fit:
    """Return the `Fit` of an estimator; a `Fit` is its own."""
    return model if isinstance(model, Fit) else model.fit_


def feature_names(model: Model) -> tuple[str, ...] | None:
    """Return the names of the columns that a model was fitted on, if it knows them."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else tuple(map(str, names))
