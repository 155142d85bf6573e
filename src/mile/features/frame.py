"""A table as the encoder sees it: named columns of one length, made from whatever users hold their tables in."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np
from jaxtyping import Int
from scipy import sparse

from mile.features import objects, parsing
from mile.features.values import AbstractValues, Dates, Numbers, SparseNumbers, Texts

if TYPE_CHECKING:
    from narwhals import Series  # of which those of the stable interface are a kind
    from narwhals.typing import IntoSeries


class Factorizable(Protocol):
    """A series of pandas, as far as it is used here."""

    def factorize(self) -> tuple[np.ndarray, Iterable[object]]:
        """Return codes, -1 for missing, and levels."""
        ...


_SHOWN = 5  # names in a message
_FLAGS = (parsing.NO, parsing.YES)


@dataclass(frozen=True, kw_only=True, eq=False)
class Frame:
    """Columns by name.

    Attributes
    ----------
    names
        Their names, all different.
    columns
        Their values, in the same order.
    n_rows
        How many rows all of them have.
    is_named
        Whether the names are the user's; those of an array are x0, x1 and so on, and its columns go by position.

    Examples
    --------
    >>> from mile.features.frame import Frame
    >>> frame = Frame.of({"age": [31, None], "city": ["Oslo", "Rome"]})
    >>> frame.names, frame.n_rows
    (('age', 'city'), 2)
    >>> frame["age"].numbers().values
    array([31., nan])
    """

    names: tuple[str, ...]
    columns: tuple[AbstractValues, ...]
    n_rows: int
    is_named: bool = True

    def __post_init__(self) -> None:
        if not self.names:
            raise ValueError("the table has no columns.")
        twice = [name for name, count in Counter(self.names).items() if count > 1]
        if twice:
            raise ValueError(f"the names of columns must all be different; {listed(twice)} occurs more than once.")
        other = [name for name, values in zip(self.names, self.columns, strict=True) if len(values) != self.n_rows]
        if other:
            raise ValueError(f"the columns must have one length; {listed(other)} has another than {self.n_rows} rows.")

    @classmethod
    def of(cls, table: object) -> "Frame":
        """Return a table of any kind as a frame.

        Parameters
        ----------
        table
            A frame of pandas, polars, pyarrow or another library that narwhals knows, a mapping of names to columns,
            an array of two dimensions or with named fields, a sparse matrix of scipy, or a list of rows, each a list
            of cells or a mapping of names to cells.

        Raises
        ------
        ValueError
            If it is none of these, has no columns, columns of different lengths or two of one name.
        """
        if isinstance(table, Frame):
            return table
        if isinstance(table, sparse.sparray | sparse.spmatrix):
            return _from_sparse(table)
        if isinstance(table, Mapping):
            return _from_mapping(table)
        if isinstance(table, np.ma.MaskedArray):
            cells = np.array(table.data, object)
            cells[np.ma.getmaskarray(table)] = None
            return _from_array(cells)
        if isinstance(table, np.ndarray):
            return _from_array(np.asarray(table))  # a matrix has other rows than an array
        if isinstance(table, Sequence):
            return _from_rows(table)
        return _from_library(table)

    def __len__(self) -> int:
        return self.n_rows

    def __getitem__(self, name: str) -> AbstractValues:
        return self.columns[self._places[name]]

    def __contains__(self, name: object) -> bool:
        return name in self._places

    @property
    def is_plain(self) -> bool:
        """Whether every cell is a finite number."""
        return all(isinstance(column, Numbers) and not column.missing().any() for column in self.columns)

    def infinite(self) -> dict[str, Int[np.ndarray, " infinite"]]:
        """Return the rows of infinite numbers, for the columns that have any."""
        found = {name: column.infinite() for name, column in zip(self.names, self.columns, strict=True)}
        return {name: rows for name, rows in found.items() if len(rows)}

    def take(self, rows: Int[np.ndarray, " chosen"]) -> "Frame":
        """Return some of the rows."""
        columns = tuple(values.take(rows) for values in self.columns)
        return replace(self, columns=columns, n_rows=len(rows))

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return self.n_rows, len(self.names)


def listed(names: Sequence[str]) -> str:
    """Return a few names for a message."""
    shown = ", ".join(repr(str(name)[:80]) for name in names[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _built(names: Iterable[object], columns: Iterable[AbstractValues], *, is_named: bool = True) -> Frame:
    found = tuple(columns)
    n_rows = len(found[0]) if found else 0
    return Frame(names=tuple(map(str, names)), columns=found, n_rows=n_rows, is_named=is_named)


def _unnamed(columns: Sequence[AbstractValues]) -> Frame:
    return _built((f"x{place}" for place in range(len(columns))), columns, is_named=False)


def _from_sparse(matrix: "sparse.sparray | sparse.spmatrix") -> Frame:
    by_column = sparse.csc_array(matrix)
    by_column.sum_duplicates()
    entries = Numbers.of(by_column.data).values
    n_rows, indices = int(by_column.shape[0]), by_column.indices  # pyright: ignore[reportOptionalSubscript]
    return _unnamed(
        [
            SparseNumbers(rows=indices[start:end], entries=entries[start:end], length=n_rows)
            for start, end in pairwise(np.asarray(by_column.indptr).tolist())
        ]
    )


def _from_mapping(columns: Mapping[object, object]) -> Frame:
    return _built(columns, (_column(name, values) for name, values in columns.items()))


def _column(name: object, values: object) -> AbstractValues:
    import narwhals.stable.v2 as nw

    series = nw.from_native(values, series_only=True, pass_through=True)
    if isinstance(series, nw.Series):
        return _from_series(series)
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise ValueError(f"column {str(name)[:80]!r} must have one dimension; it has shape {values.shape}.")
        return _from_vector(values)
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ValueError(f"column {str(name)[:80]!r} must be a list or an array; got {type(values).__name__}.")
    return objects.values_of(values)


def _from_array(array: np.ndarray) -> Frame:
    if array.dtype.names is not None and array.ndim == 1:
        return _built(array.dtype.names, (_from_vector(array[name]) for name in array.dtype.names))
    if array.ndim != 2:
        raise ValueError(f"a table must have two dimensions, rows and columns; got shape {array.shape}.")
    return _unnamed([_from_vector(column) for column in array.T])


def _from_vector(values: np.ndarray) -> AbstractValues:
    """Return an array of one dimension, by the kind of its dtype."""
    kind = values.dtype.kind
    if kind in "iuf":
        return Numbers.of(values)
    if kind == "b":
        return Texts(codes=values.astype(np.int32), levels=_FLAGS)
    if kind == "M":
        time = values.astype("M8[us]")
        return Dates(time=time, clock=time)
    if kind == "m":
        return Numbers(values=values / np.timedelta64(1, "s"))
    if kind == "U":
        levels, codes = np.unique(values, return_inverse=True)
        return Texts.of(codes, levels.tolist())
    return objects.values_of(values.tolist() if kind != "O" else values)


def _from_rows(rows: Sequence[object]) -> Frame:
    if not rows:
        raise ValueError("a list of rows must have at least one; an empty one says nothing of its columns.")
    records = [row for row in rows if isinstance(row, Mapping)]
    if len(records) == len(rows):
        names = dict.fromkeys(name for row in records for name in row)
        return _built(names, (objects.values_of(row.get(name) for row in records) for name in names))
    cells = [tuple(row) for row in rows if isinstance(row, Sequence | np.ndarray) and not isinstance(row, str | bytes)]
    if len(cells) != len(rows) or len({len(row) for row in cells}) > 1:
        raise ValueError("a list must hold rows, each a list of as many cells.")
    return _unnamed([objects.values_of(column) for column in zip(*cells, strict=True)])


def _from_library(table: object) -> Frame:
    import narwhals.stable.v2 as nw

    frame = nw.from_native(table, pass_through=True, allow_series=True)
    if isinstance(frame, nw.LazyFrame):
        frame = frame.collect()
    if (
        not isinstance(frame, nw.DataFrame)
        and hasattr(table, "__arrow_c_stream__")
        and not isinstance(frame, nw.Series)
    ):
        try:
            frame = nw.from_arrow(table, backend="pyarrow")  # pyright: ignore[reportArgumentType]
        except ImportError as error:
            raise ValueError("this table needs the pyarrow package: pip install 'mile-bnn[tables]'.") from error
    if isinstance(frame, nw.DataFrame):
        return _built(frame.columns, (_from_series(series) for series in frame.iter_columns()))
    array = np.asarray(table)
    if array.ndim != 2:
        raise ValueError(
            "a table must be a frame, a mapping of names to columns, or an array of two dimensions; got "
            f"{type(table).__name__} of shape {array.shape}."
        )
    return _from_array(array)


def _from_series(series: "Series[IntoSeries]") -> AbstractValues:
    """Return a column of another library, by its type; a type that is not known there is read cell by cell."""
    import narwhals.stable.v2 as nw

    kind = series.dtype
    if kind.is_numeric():
        exact = series if kind.is_float() else series.cast(nw.Float64)
        return Numbers.of(exact.to_numpy())
    if kind == nw.Boolean:
        return Texts(codes=series.cast(nw.Int8).fill_null(-1).to_numpy().astype(np.int32), levels=_FLAGS)
    if kind in (nw.String, nw.Categorical, nw.Enum):
        return _from_texts(series, is_declared=kind != nw.String)
    if kind == nw.Date:
        return _dates(series.cast(nw.Datetime("us")), has_zone=False)
    if isinstance(kind, nw.Datetime):
        return _dates(series, has_zone=kind.time_zone is not None)
    if kind == nw.Duration:
        return Numbers.of(series.dt.total_microseconds().cast(nw.Float64).to_numpy() / 1e6)
    return objects.values_of(series.to_list())


def _from_texts(series: "Series[IntoSeries]", *, is_declared: bool) -> Texts:
    import narwhals.stable.v2 as nw

    if series.implementation.is_pandas_like():
        # narwhals has no factorize, and its replacement of values by others takes pandas eight times as long.
        native: Factorizable = series.to_native()  # pyright: ignore[reportAssignmentType]: as pandas has it
        codes, levels = native.factorize()
        return Texts.of(codes, list(map(_level, levels)), is_declared=is_declared)
    texts = series.cast(nw.String)
    levels = texts.drop_nulls().unique().to_list()
    codes = texts.replace_strict(levels, list(range(len(levels))), default=None, return_dtype=nw.Int32)
    return Texts.of(codes.fill_null(-1).to_numpy(), levels, is_declared=is_declared)


def _level(level: object) -> str:
    """Return a category of pandas, which may be of any type, as text."""
    return level if isinstance(level, str) else objects.text_of(level)


def _dates(series: "Series[IntoSeries]", *, has_zone: bool) -> Dates:
    import narwhals.stable.v2 as nw

    def plain(column: "Series[IntoSeries]") -> np.ndarray:
        return column.dt.replace_time_zone(None).cast(nw.Datetime("us")).to_numpy()

    clock = plain(series)
    return Dates(time=plain(series.dt.convert_time_zone("UTC")) if has_zone else clock, clock=clock)
