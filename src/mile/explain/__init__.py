"""What a fit has learned from the user's columns, with how sure it is: importance, effects, single predictions."""

from mile.explain._columns import Column, ColumnTable, column_table, encoded_table
from mile.explain.contributions import RowExplanation, explain_row
from mile.explain.effects import Band, Effect
from mile.explain.explanation import Explanation, explain, explain_briefly
from mile.explain.importance import Importance
from mile.explain.interactions import Interaction

__all__ = [
    "Band",
    "Column",
    "ColumnTable",
    "Effect",
    "Explanation",
    "Importance",
    "Interaction",
    "RowExplanation",
    "column_table",
    "encoded_table",
    "explain",
    "explain_briefly",
    "explain_row",
]
