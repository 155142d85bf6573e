"""Texts in a column of a table."""

from typing import TypeGuard

import numpy as np

from mile.cli._data import LearningInput, response_for
from mile.cli._reading import DataFile
from mile.cli._target import LIKELIHOODS, drop_unknown, known_rows, with_gaps
from mile.estimators import MileTextClassifier
from mile.estimators.loading import Model
from mile.storage import Table

_TASKS = ("auto", "classification")


def takes_texts(model: Model) -> TypeGuard[MileTextClassifier]:
    """Say whether a model was fitted to texts."""
    return isinstance(model, MileTextClassifier)


def read_text_problem(data: DataFile, text: str, target: str | None, drop: list[str], task: str) -> LearningInput:
    """Read a column of texts and the labels to predict."""
    if task not in _TASKS:
        raise ValueError(f"texts can be classified: --task must be one of {', '.join(_TASKS)}; got {task!r}.")
    if target is None:
        raise ValueError("--target must name the column to predict.")
    if target == text:
        raise ValueError(f"--text and --target must be two columns; both are {text!r}.")
    if drop:
        raise ValueError("--drop leaves out features, but with --text that column is the only one.")
    table = data.table
    texts, known = _texts(table, text), known_rows(table, target)
    labels = LIKELIHOODS["classification"].read(table.take(known), target)
    reason = f"{target!r} has {len(np.unique(labels))} different labels"
    return LearningInput(texts, with_gaps(labels, known, len(table)), (text,), "classification", reason, target)


def read_texts(
    model: MileTextClassifier, data: DataFile, target: str | None, *, known: bool
) -> tuple[np.ndarray, np.ndarray | None]:
    """Read the column of texts that a model knows, and the labels if they are known."""
    table = data.table
    if known and target is None:
        raise ValueError("The model does not know its target's name: give --target.")
    response = None
    if known and target is not None:
        table = drop_unknown(table, target)
        response = response_for(model, table, target)
    name = model.text_name_ or _only_text(table, target)
    return _texts(table, name), response


def _texts(table: Table, name: str) -> np.ndarray:
    """Return a column of texts; an empty cell is an empty text."""
    column = table.column(name)
    if column.dtype != object:
        raise ValueError(f"Column {name!r} of {table.source} holds numbers, not texts.")
    return np.array(["" if cell is None else str(cell) for cell in column] + [None], object)[:-1]


def _only_text(table: Table, target: str | None) -> str:
    names = [name for name in table.columns if name != target and table.column(name).dtype == object]
    if len(names) != 1:
        raise ValueError(
            f"The model does not know the name of its column of texts, and {table.source} has {len(names)} columns of "
            "text besides the target: leave one."
        )
    return names[0]
