"""The user's columns beside the features that the network sees, so that a column can be changed as a whole."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from mile.features import parsing
from mile.features.base import AbstractFeatureEncoder, Encoded, Table
from mile.features.frame import Frame
from mile.features.values import AbstractValues, Dates, Numbers

_EMPTY = "(missing)"
_CATEGORIES = ("category", "boolean")


@dataclass(frozen=True, kw_only=True, eq=False)
class Column:
    """A column of the user's table that the network sees.

    Attributes
    ----------
    name
        Of the column.
    kind
        "number", "date", "category" or "boolean".
    features
        Places of the features that are made of it.
    values
        Its cells: numbers, days since 1970 for dates, or the places of its levels; NaN is missing.
    levels
        The texts of a category.
    """

    name: str
    kind: str
    features: Int[np.ndarray, " feature"]
    values: Float[np.ndarray, " row"]
    levels: tuple[str, ...] = ()

    @property
    def is_category(self) -> bool:
        """Whether values have no order."""
        return self.kind in _CATEGORIES

    def take(self, rows: Int[np.ndarray, " chosen"]) -> "Column":
        """Return the cells of some rows."""
        return replace(self, values=self.values[rows])

    def spelled(self, value: float) -> str:
        """Return a value as people write it."""
        if np.isnan(value):
            return _EMPTY
        if self.is_category:
            return self.levels[int(value)]
        if self.kind == "date":
            return str(np.datetime64(round(value), "D"))
        return f"{value:.4g}"


@dataclass(frozen=True, kw_only=True, eq=False)
class ColumnTable:
    """Rows as the network takes them, with the columns that they are made of."""

    x: Encoded
    columns: tuple[Column, ...]
    number: Int[np.ndarray, " row"]  # where each row was in the user's table

    def __len__(self) -> int:
        return len(self.x)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.name for column in self.columns)

    def take(self, rows: Int[np.ndarray, " chosen"]) -> "ColumnTable":
        """Return some rows."""
        columns = tuple(column.take(rows) for column in self.columns)
        return replace(self, x=self.x[rows], columns=columns, number=self.number[rows])

    def with_column(self, place: int, donors: Int[np.ndarray, " row"]) -> Encoded:
        """Return the rows with one column as in other rows of the table."""
        changed, features = self.x.copy(), self.columns[place].features
        changed[:, features] = self.x[np.ix_(donors, features)]
        return changed

    def place(self, name: str) -> int:
        """Return the place of a column.

        Raises
        ------
        ValueError
            If there is none of that name.
        """
        if name not in self.names:
            raise ValueError(f"column must be one of {list(self.names)}; got {name!r}.")
        return self.names.index(name)


def column_table(
    encoder: AbstractFeatureEncoder, encoded: Encoded, table: Table, names: Sequence[str] | None = None
) -> ColumnTable:
    """Return encoded rows with the columns that they came from.

    Parameters
    ----------
    encoder
        That encoded them.
    encoded
        Rows as the network takes them.
    table
        The same rows as users have them: a frame, or an array of numbers.
    names
        Of the columns at fit; default: those of the table.

    Raises
    ------
    ValueError
        If features cannot be traced back to columns, as those of images and texts.
    """
    origins = encoder.origins(encoded.shape[1])
    if origins is None:
        raise ValueError(
            f"explain takes tables, and {type(encoder).__name__} does not say of which column each feature is made: "
            "for an encoder of your own, define `origins`."
        )
    frame = Frame.of(np.asarray(table) if isinstance(table, np.ndarray) else table)
    known = frame.names if names is None else tuple(map(str, names))
    kinds = {place: report.kind for place, report in enumerate(encoder.describe())}
    columns = []
    for place in np.unique(origins).tolist():
        by_name = frame.is_named and known[place] in frame
        cells = frame[known[place]] if by_name else frame.columns[place]
        features = np.flatnonzero(origins == place)
        columns.append(_column(known[place], kinds.get(place, "number"), features, cells))
    return ColumnTable(x=encoded, columns=tuple(columns), number=np.arange(len(encoded)))


def encoded_table(
    encoded: Encoded, origins: Int[np.ndarray, " feature"], names: Sequence[str], number: np.ndarray | None = None
) -> ColumnTable:
    """Return rows that a run keeps encoded; a column's value is its first feature, on the scale of the network."""
    columns = tuple(
        _column(
            str(names[place]),
            "number",
            np.flatnonzero(origins == place),
            Numbers(values=encoded[:, origins == place][:, 0]),
        )
        for place in np.unique(origins).tolist()
    )
    return ColumnTable(x=encoded, columns=columns, number=np.arange(len(encoded)) if number is None else number)


def _column(name: str, kind: str, features: np.ndarray, cells: AbstractValues) -> Column:
    if kind in _CATEGORIES:
        texts = cells.flags() if kind == "boolean" else cells.texts()
        values = np.where(texts.codes < 0, np.nan, texts.codes)
        return Column(name=name, kind=kind, features=features, values=values, levels=texts.levels)
    if kind == "date" and not isinstance(cells, Dates):
        cells = cells.dates(parsing.date_format(cells.texts().occurring, is_asked=True) or parsing.DATE_FORMATS[0])
    numbers = np.asarray(cells.numbers().values, np.float64)
    return Column(name=name, kind=kind, features=features, values=np.where(np.isfinite(numbers), numbers, np.nan))
