"""Feature encoders as graphs: inputs as users have them, and the features that the network takes."""

from collections.abc import Iterator
from itertools import product

import numpy as np

from mile.export._calendar import CIRCLES
from mile.export._exact import ByClass
from mile.export._graph import FLOAT, INT64, STRING, Graph, Value
from mile.features import parsing
from mile.features.base import AbstractFeatureEncoder
from mile.features.category_column import CategoryColumn
from mile.features.columns import LARGEST, AbstractColumn
from mile.features.date_column import DateColumn
from mile.features.number_column import NumberColumn, indicator
from mile.features.numbers import Standardizer
from mile.features.pieces import Edges
from mile.features.piecewise import Piecewise
from mile.features.table import TableEncoder

ARRAY = "X"  # the input of a model that was fitted to an array
ROWS = "rows"
_LARGEST_INPUT = 1e6  # as in `features/numbers.py`
_SECOND, _SECONDS_PER_DAY = 1e6, 86_400.0  # microseconds, seconds
_NO_DATE = np.iinfo(np.int64).min  # what NaT is as a whole number


@ByClass
def encode(encoder: AbstractFeatureEncoder, graph: Graph) -> Value:
    """Add inputs and return the features in float32, shape (rows, features)."""
    raise ValueError(
        f"an .onnx file cannot hold the encoder {type(encoder).__name__}: it can hold those of numbers and tables."
    )


@encode.of(Standardizer)
def _(encoder: Standardizer, graph: Graph) -> Value:
    x = graph.input(ARRAY, FLOAT, [ROWS, encoder.shift.size]).double
    return _standardized(_filled(x, encoder.shift), encoder).single


@encode.of(Piecewise)
def _(encoder: Piecewise, graph: Graph) -> Value:
    x = _filled(graph.input(ARRAY, FLOAT, [ROWS, len(encoder.edges)]).double, encoder.plain.shift)
    standardized, parts = _standardized(x, encoder.plain), []
    for place, edges in enumerate(encoder.edges):
        parts += [_one_column(standardized, place)] + ([_pieces(_one_column(x, place), edges)] if edges else [])
    return graph.op("Concat", *parts, axis=1).single


@encode.of(TableEncoder)
def _(encoder: TableEncoder, graph: Graph) -> Value:
    used = [(name, each) for name, each in zip(encoder.names_in, encoder.columns, strict=True) if each.n_features]
    names = input_names([name for name, _ in used], graph.reserved)
    parts = [write_column(column, graph, name) for name, (_, column) in zip(names, used, strict=True)]
    return graph.op("Concat", *parts, axis=1)


def input_names(columns: list[str], taken: set[str]) -> list[str]:
    """Return a name for the input of each column: its own, unless it is empty or an output has it."""
    names: list[str] = []
    for place, column in enumerate(columns):
        name = column or f"column {place}"
        while name in taken or name in names or (name != column and name in columns):
            name += " (input)"
        names.append(name)
    taken.update(names)
    return names


@ByClass
def write_column(column: AbstractColumn, graph: Graph, name: str) -> Value:
    """Add the input of a column and return its features in float32, shape (rows, features)."""
    raise ValueError(f"an .onnx file cannot hold the column {name[:80]!r}, of kind {column.kind}.")


@write_column.of(NumberColumn)
def _(column: NumberColumn, graph: Graph, name: str) -> Value:
    given = graph.input(name, FLOAT, [ROWS, 1]).double
    # Infinite numbers count as missing.
    empty = graph.op("Or", graph.op("IsNaN", given), graph.op("Equal", graph.op("Abs", given), np.inf))
    x = graph.op("Where", empty, column.fill, given)
    parts = []
    if column.scale > 0:
        scaled = (x - column.center) / column.scale
        parts.append(_smooth_clip(scaled) if column.squash else _clip(scaled, _LARGEST_INPUT))
    parts += [_pieces(x, column.edges)] if column.edges else []
    return _features(graph, parts, empty, column.missing)


@write_column.of(CategoryColumn)
def _(column: CategoryColumn, graph: Graph, name: str) -> Value:
    n_levels = len(column.levels)
    places = {text: n_levels + 2 for text in parsing.MISSING}
    places |= {level: place for place, level in enumerate(column.levels)} | dict.fromkeys(column.rare, n_levels)
    if column.is_boolean:
        unknown = n_levels + 2  # other texts cannot be read
        places |= {word: places.get(flag, n_levels + 1) for word, flag in _flag_words()}
    else:
        unknown = n_levels + 1
    codes = graph.ml(
        "LabelEncoder",
        graph.input(name, STRING, [ROWS, 1]),
        keys_strings=list(places),
        values_int64s=list(places.values()),
        default_int64=unknown,
    )
    features = graph.op("Gather", graph.constant(column.table), codes, axis=0)
    return graph.op("Reshape", features, graph.integers(-1, column.table.shape[1]))


@write_column.of(DateColumn)
def _(column: DateColumn, graph: Graph, name: str) -> Value:
    given = graph.input(name, INT64, [ROWS, 1])
    empty = graph.op("Equal", given, graph.integers(_NO_DATE))
    time = graph.op("Where", empty, graph.integers(0), given)
    parts = []
    if column.scale > 0:
        parts.append(_smooth_clip((time.double / _SECOND / _SECONDS_PER_DAY - column.center) / column.scale))
    for circle in column.circles:
        angle = CIRCLES[circle](time) * (2 * np.pi)
        parts += [graph.op("Sin", angle), graph.op("Cos", angle)]
    parts = [graph.op("Where", empty, 0.0, part) for part in parts]
    return _features(graph, parts, empty, column.missing)


def _features(graph: Graph, parts: list[Value], empty: Value, missing: float) -> Value:
    """Return features side by side, with an indicator of empty cells if training had any."""
    if missing > 0:
        there, absent = indicator(missing).tolist()
        parts = [*parts, graph.op("Where", empty, absent, there)]
    return graph.op("Concat", *parts, axis=1).single


def _flag_words() -> Iterator[tuple[str, str]]:
    """Yield the words for no and yes in every mixture of upper and lower case, and what they stand for."""
    for word in parsing.FLAGS:
        for letters in product(*({letter.lower(), letter.upper()} for letter in word)):
            yield "".join(letters), parsing.FLAGS[word]


def _filled(x: Value, fill: np.ndarray) -> Value:
    return x.graph.op("Where", x.graph.op("IsNaN", x), np.asarray(fill), x)


def _standardized(x: Value, encoder: Standardizer) -> Value:
    return _clip((x - encoder.shift) / encoder.scale, _LARGEST_INPUT)


def _clip(x: Value, largest: float) -> Value:
    return x.graph.op("Clip", x, -largest, largest)


def _smooth_clip(x: Value) -> Value:
    x = _clip(x, _LARGEST_INPUT)
    part = x / LARGEST
    return x / x.graph.op("Sqrt", 1.0 + part * part)


def _pieces(x: Value, edges: Edges) -> Value:
    """Return the feature of each piece of a column of numbers, shape (rows, pieces)."""
    ends = np.asarray(edges) / 2
    inside = x.graph.op("Min", x.graph.op("Max", x / 2.0, ends[:-1]), ends[1:])
    return (inside - ends[:-1]) / np.diff(ends) * 2.0 - 1.0


def _one_column(x: Value, place: int) -> Value:
    return x.graph.op("Gather", x, x.graph.integers(place), axis=1)
