"""Arrays of numbers, each standardized and beside that cut into pieces with a feature each."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from jaxtyping import Float, Int

from mile import _registry
from mile._checks import check_count
from mile._schema import Count, Fields, Tensor, require
from mile.features.base import (
    AbstractFeatureEncoder,
    ColumnFacts,
    ColumnReport,
    Encoded,
    Plain,
    Table,
    Tensors,
    as_array,
)
from mile.features.numbers import Standardizer
from mile.features.pieces import MOST_PIECES, Edges, are_edges, learn_edges, n_pieces_of, piece_labels, write_pieces

PIECES = 4  # chosen on inner splits (experiments/suite)
_BLOCK_ROWS = 1 << 12


@_registry.encoder("piecewise")
@dataclass(frozen=True, kw_only=True, eq=False)
class Piecewise(AbstractFeatureEncoder):
    """Standardized numbers, each followed by one feature for each piece of its range; see `pieces.py`.

    For tables of other columns than numbers `TableEncoder(pieces=4)` does the same to its numbers.

    Parameters
    ----------
    pieces
        How many a column is cut into, if it has enough different numbers.
    plain, edges
        What was learned; set by `fit`.

    Examples
    --------
    >>> import numpy as np
    >>> from mile.features.piecewise import Piecewise
    >>> encoder = Piecewise(pieces=2).fit(np.array([[0.0], [1.0], [2.0], [9.0]]))
    >>> encoder.names(["size"], 3)
    ['size', 'size (0 to 1)', 'size (1 to 9)']
    >>> encoder.transform(np.array([[5.0]]))[:, 1:]
    array([[1., 0.]], dtype=float32)
    """

    pieces: int = PIECES
    plain: Standardizer = field(default_factory=Standardizer)
    edges: tuple[Edges, ...] = ()

    def __post_init__(self) -> None:
        check_count("pieces", self.pieces, 2)
        if self.pieces > MOST_PIECES:
            raise ValueError(f"pieces must be at most {MOST_PIECES}; got {self.pieces}.")

    def fit(
        self,
        x: Table,
        rows: Int[np.ndarray, " chosen"] | None = None,
        weight: Float[np.ndarray, " row"] | None = None,
    ) -> Self:
        """Return the encoder of the given rows."""
        x = as_array(x)
        rows = np.arange(len(x)) if rows is None else rows
        counted = np.ones(len(rows)) if weight is None else np.asarray(weight, np.float64)[rows]
        known = rows[counted > 0]
        edges = tuple(
            learn_edges(x[known, column].astype(np.float64), counted[counted > 0], self.pieces)
            for column in range(x.shape[1])
        )
        return replace(self, plain=Standardizer.learn(x, rows, weight), edges=edges)

    def transform(self, x: Table, rows: Int[np.ndarray, " chosen"] | None = None) -> Encoded:
        """Return the features in float32, of the given rows (default: all)."""
        x = as_array(x)
        standardized = self.plain.transform(x, rows)
        rows = np.arange(len(x)) if rows is None else rows
        out = np.empty((len(rows), self.n_features), np.float32)
        for column, (edges, place) in enumerate(self._places()):
            out[:, place.start] = standardized[:, column]
            for start in range(0, len(rows) if edges else 0, _BLOCK_ROWS):
                block = slice(start, start + _BLOCK_ROWS)
                write_pieces(x[rows[block], column].astype(np.float64), edges, out[block, place.start + 1 : place.stop])
        return out

    def transform_and_remark(self, x: Table) -> tuple[Encoded, list[str]]:
        """Return all rows, in which the mean stands for NaN, and a sentence for each column that has any."""
        values = as_array(x)
        remarks = self.plain.transform_and_remark(values)[1]
        return self.transform(np.where(np.isnan(values), self.plain.shift, values) if remarks else values), remarks

    def _places(self) -> Iterator[tuple[Edges, slice]]:
        start = 0
        for edges in self.edges:
            end = start + 1 + n_pieces_of(edges)
            yield edges, slice(start, end)
            start = end

    @property
    def n_features(self) -> int:
        """How many numbers a row becomes."""
        return len(self.edges) + sum(map(n_pieces_of, self.edges))

    def n_columns(self, n_features: int) -> int | None:
        """Return the number of columns at fit."""
        return len(self.edges)

    def origins(self, n_features: int) -> Int[np.ndarray, " feature"]:
        """Return the column that each feature is of."""
        return np.repeat(np.arange(len(self.edges)), [1 + n_pieces_of(edges) for edges in self.edges])

    def names(self, given: Sequence[str] | None, n_features: int) -> list[str]:
        """Return the name of each column and of its pieces."""
        names = given if given is not None and len(given) == len(self.edges) else self._own_names
        return [
            name + label for name, edges in zip(names, self.edges, strict=True) for label in ("", *piece_labels(edges))
        ]

    @property
    def _own_names(self) -> list[str]:
        return [f"feature {place}" for place in range(len(self.edges))]

    def facts(self, given: Sequence[str] | None, n_features: int) -> list[ColumnFacts] | None:
        """Return mean, standard deviation and pieces of each column."""
        named = self.plain.facts(given or [f"x{place}" for place in range(len(self.edges))], len(self.edges)) or []
        return [
            one._replace(edges=edges, low=edges[0], high=edges[-1]) if n_pieces_of(edges) == self.pieces else one
            for one, edges in zip(named, self.edges, strict=True)
        ]

    def describe(self) -> list[ColumnReport]:
        """Return for each column its range and the number of pieces; arrays have no names of columns."""
        return [
            ColumnReport(
                name,
                "number",
                f"{edges[0]:g} to {edges[-1]:g}" if edges else "",
                treatment=f"standardized, and {n_pieces_of(edges)} pieces" if edges else "standardized",
            )
            for name, edges in zip(self._own_names, self.edges, strict=True)
        ]

    def tensors(self) -> dict[str, np.ndarray]:
        """Return shift and scale, all edges in a row, and how many each column has."""
        edges = np.array([edge for column in self.edges for edge in column], np.float64)
        counts = np.array([len(column) for column in self.edges], np.int64)
        return self.plain.tensors() | {"edges": edges, "counts": counts}

    def settings(self) -> dict[str, Plain]:
        """Return how many pieces were asked for."""
        return {"pieces": self.pieces}

    @classmethod
    def restore(cls, tensors: Tensors, settings: Mapping[str, Plain], n_features: int) -> Self:
        """Return the encoder that a file has kept."""
        pieces = Fields(dict, {"pieces": Count(2, MOST_PIECES)}).read(settings)["pieces"]
        count = Tensor("int64", (None,), largest=n_features)
        edge = Tensor("float64", (None,), is_finite=True, largest=(MOST_PIECES + 1) * n_features)
        shift = Tensor("float64", (None,), largest=n_features)
        found = Fields(dict, {"shift": shift, "scale": shift, "edges": edge, "counts": count}).read(tensors)
        counts, flat = found["counts"], found["edges"]
        fits = bool(((counts >= 0) & (counts <= pieces + 1)).all()) and counts.sum() == len(flat)
        require(fits, "edges must be as many as the counts of the columns say.")
        columns = np.split(flat, np.cumsum(counts)[:-1]) if len(counts) else []
        edges = tuple(tuple(map(float, column.tolist())) for column in columns)
        require(all(map(are_edges, edges)), "the edges of a column must rise, and be none or at least three.")
        plain = Standardizer.read({name: tensors[name] for name in ("shift", "scale")}, (len(edges),))
        encoder = cls(pieces=pieces, plain=plain, edges=edges)
        require(encoder.n_features == n_features, f"the columns must have {n_features} features, as the network takes.")
        return encoder
