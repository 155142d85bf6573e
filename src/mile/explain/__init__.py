"""What a fit has learned from the user's columns, with how sure it is: importance, effects, single predictions."""

from mile.explain._columns import Column, ColumnTable, column_table, encoded_table
from mile.explain.effects import Band, Effect
from mile.explain.explanation import Explanation, explain, explain_briefly
from mile.explain.importance import Importance

__all__ = [
    "Band",
    "Column",
    "ColumnTable",
    "Effect",
    "Explanation",
    "Importance",
    "column_table",
    "encoded_table",
    "explain",
    "explain_briefly",
]
