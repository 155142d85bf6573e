"""The rule that decides what a column is, from its training rows and from what the user says of it.

In this order: what the user says; numbers, dates and booleans by their type; categories that the table declares. Texts
are booleans if they are both words of a pair such as yes and no, numbers if all of them are, dates if all of them are
dates in one format, free text if most of them differ and have many words, identifiers if all of them differ, and else
categories. Left out are columns without values, with one value, or in which no level is frequent enough.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from mile.features import parsing
from mile.features.category_column import CategoryColumn
from mile.features.columns import AbstractColumn, IgnoredColumn, Learning, weighted_share
from mile.features.date_column import DateColumn
from mile.features.number_column import NumberColumn
from mile.features.values import AbstractValues, Dates, Texts

_WORDS_OF_TEXT = 5.0  # on average: names and addresses have fewer, sentences more
_DISTINCT_OF_TEXT = 0.5  # share of the cells
_MANY_TEXTS = 1_000  # enough to count words in

KINDS = ("boolean", "category", "date", "ignore", "number", "text")
COLUMNS: dict[str, type[AbstractColumn]] = {
    kind.kind: kind for kind in (NumberColumn, CategoryColumn, DateColumn, IgnoredColumn)
}
_LEARNERS: dict[str, Callable[[AbstractValues, Learning], AbstractColumn | None]] = {
    "number": NumberColumn.learn,
    "category": CategoryColumn.learn,
    "boolean": partial(CategoryColumn.learn, is_boolean=True),
    "date": DateColumn.learn,
}
REASONS = {
    "ignore": "you asked for it",
    "text": "it is free text, which this encoder does not read: MileTextClassifier does",
    "identifier": "it is an identifier: every row has another text",
}


def learn_column(values: AbstractValues, learning: Learning, asked: str | None = None) -> AbstractColumn:
    """Return the column that has learned from its training rows.

    Parameters
    ----------
    values
        Of the training rows.
    learning
        Their weights and responses, and how to learn.
    asked
        What the user says it is, one of `KINDS`.
    """
    missing = values.missing()
    kind = asked or suggested_kind(values)

    def ignored(reason: str) -> IgnoredColumn:
        return IgnoredColumn(reason=reason, missing=weighted_share(missing, learning.weight))

    if asked != "ignore" and missing.all():
        return ignored("it has no values")
    if kind in REASONS:
        return ignored(REASONS[kind])
    column = _LEARNERS[kind](values, learning)
    if column is None:
        return ignored(f"none of its values can be read as a {kind}")
    if column.n_features:
        return column
    is_one = kind != "category" or len(values.texts().occurring) == 1
    return ignored("it has one value only" if is_one else f"none of its levels has {learning.fewest_rows} rows")


def suggested_kind(values: AbstractValues) -> str:
    """Return what a column is by the rule at the top of this file: one of `KINDS`, or "identifier"."""
    if not isinstance(values, Texts):
        return "date" if isinstance(values, Dates) else "number"
    texts = values.occurring
    if parsing.are_flags(texts):
        return "boolean"
    if values.is_declared:
        return "category"
    if parsing.are_numbers(texts):
        return "number"
    if parsing.date_format(texts) is not None:
        return "date"
    n_cells = int(np.count_nonzero(~values.missing()))
    words = [len(text.split()) for text in texts[:_MANY_TEXTS]]
    if len(texts) > 1 and len(texts) > _DISTINCT_OF_TEXT * n_cells and np.mean(words) >= _WORDS_OF_TEXT:
        return "text"
    return "identifier" if 1 < len(texts) == n_cells else "category"
