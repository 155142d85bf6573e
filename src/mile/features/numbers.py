"""Numbers on one scale: mean zero and standard deviation one in the training rows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from jaxtyping import Float, Int

from mile import _registry
from mile._schema import Fields, Tensor
from mile.features.base import AbstractFeatureEncoder, ColumnFacts, Encoded, Plain, Table, Tensors, as_array

# Standardized inputs are cut here; beyond, a row is so far out that only finiteness matters.
_LARGEST_INPUT = 1e6
# Cells that are worked on in float64 at a time: a whole table of that kind would be the largest array of a fit.
_BLOCK_CELLS = 1 << 18


@_registry.encoder("standardizer")
@dataclass(frozen=True, kw_only=True, eq=False)
class Standardizer(AbstractFeatureEncoder):
    """Shift and scale per column, in float64; a constant column has scale one."""

    shift: Float[np.ndarray, "*column"] = field(default_factory=lambda: np.zeros(()))
    scale: Float[np.ndarray, "*column"] = field(default_factory=lambda: np.ones(()))

    @classmethod
    def learn(
        cls,
        values: Float[np.ndarray, "row *column"],
        rows: Int[np.ndarray, " chosen"] | None = None,
        weight: Float[np.ndarray, " row"] | None = None,
    ) -> Self:
        """Learn mean and standard deviation of each column, from the given rows (default: all), counted by weight."""
        values, rows = np.asarray(values), np.arange(len(values)) if rows is None else rows
        if weight is not None:
            return cls._learn_weighted(values, rows, np.asarray(weight, np.float64)[rows])
        # Dividing by the largest magnitude first keeps squares of huge or tiny columns representable.
        size = np.max([np.max(np.abs(block), axis=0) for _, block in _blocks(values, rows)], axis=0)
        size = np.where(size > 0, size, 1.0)
        mean = sum(np.sum(block / size, axis=0) for _, block in _blocks(values, rows)) / len(rows)
        squares = sum(np.sum(np.square(block / size - mean), axis=0) for _, block in _blocks(values, rows))
        spread = np.sqrt(squares / len(rows))
        constant = spread <= 10 * np.finfo(np.float64).eps  # rounding of a constant, not variation
        return cls(shift=np.asarray(mean * size), scale=np.where(constant, 1.0, spread * size))

    @classmethod
    def _learn_weighted(cls, values: np.ndarray, rows: np.ndarray, weight: np.ndarray) -> Self:
        """Learn both by weight: a weight of two counts as the row twice."""
        size = np.max([np.max(np.abs(block), axis=0) for _, block in _blocks(values, rows)], axis=0)
        size = np.where(size > 0, size, 1.0)
        total = weight.sum()

        def weighted(where: slice, block: np.ndarray) -> np.ndarray:
            return np.tensordot(weight[where] / total, block, axes=1)

        mean = sum(weighted(where, block / size) for where, block in _blocks(values, rows))
        squares = sum(weighted(where, np.square(block / size - mean)) for where, block in _blocks(values, rows))
        spread = np.sqrt(squares)
        constant = spread <= 10 * np.finfo(np.float64).eps
        return cls(shift=np.asarray(mean * size), scale=np.where(constant, 1.0, spread * size))

    @classmethod
    def identity(cls, n_columns: int | None = None) -> Self:
        """Leave values as they are."""
        shape = () if n_columns is None else (n_columns,)
        return cls(shift=np.zeros(shape), scale=np.ones(shape))

    def apply(
        self, values: Float[np.ndarray, "row *column"], rows: Int[np.ndarray, " chosen"] | None = None
    ) -> Float[np.ndarray, "chosen *column"]:
        """Return standardized values in float32, of the given rows (default: all)."""
        values, rows = np.asarray(values), np.arange(len(values)) if rows is None else rows
        standardized = np.empty((len(rows), *values.shape[1:]), np.float32)
        for where, block in _blocks(values, rows):
            with np.errstate(over="ignore"):  # infinity is cut below
                block = (block - self.shift) / self.scale
            standardized[where] = np.clip(block, -_LARGEST_INPUT, _LARGEST_INPUT)
        return standardized

    def fit(
        self,
        x: Table,
        rows: Int[np.ndarray, " chosen"] | None = None,
        weight: Float[np.ndarray, " row"] | None = None,
    ) -> Self:
        """Return the standardizer of the given rows."""
        return self.learn(as_array(x), rows, weight)

    def transform(self, x: Table, rows: Int[np.ndarray, " chosen"] | None = None) -> Encoded:
        """Return standardized values in float32, of the given rows (default: all)."""
        x = as_array(x)
        if np.ndim(x) != 2 or np.shape(x)[1:] != self.shift.shape:
            raise ValueError(f"x must have shape (rows, {self.shift.size}); got {np.shape(x)}.")
        return self.apply(x, rows)

    def transform_and_remark(self, x: Table) -> tuple[Encoded, list[str]]:
        """Return all rows, in which the mean stands for NaN, and a sentence for each column that has any."""
        values = as_array(x)
        missing = np.isnan(values)
        if not missing.any():
            return self.transform(values), []
        counts = missing.sum(axis=0)
        sentences = [
            f"Empty cells, which were filled because training had none, in column {place}: {counts[place]:,}."
            for place in np.flatnonzero(counts)
        ]
        return self.transform(np.where(missing, self.shift, values)), sentences

    def n_columns(self, n_features: int) -> int | None:
        """Return one column for each feature."""
        return n_features

    def origins(self, n_features: int) -> Int[np.ndarray, " feature"]:
        """Return each column's own place."""
        return np.arange(n_features)

    def facts(self, given: Sequence[str] | None, n_features: int) -> list[ColumnFacts] | None:
        """Return mean and standard deviation of each column."""
        found = super().facts(given, n_features) or []
        numbers = zip(found, np.atleast_1d(self.shift).tolist(), np.atleast_1d(self.scale).tolist(), strict=True)
        return [one._replace(center=center, spread=spread) for one, center, spread in numbers]

    def tensors(self) -> dict[str, np.ndarray]:
        """Return shift and scale."""
        return {"shift": np.asarray(self.shift), "scale": np.asarray(self.scale)}

    @classmethod
    def restore(cls, tensors: Tensors, settings: Mapping[str, Plain], n_features: int) -> Self:
        """Return the standardizer that a file has kept."""
        Fields(dict, {}).read(settings)
        return cls.read(tensors, (n_features,))

    @classmethod
    def read(cls, tensors: Tensors, shape: tuple[int, ...]) -> Self:
        """Return the standardizer of one shape that a file has kept.

        Raises
        ------
        UntrustedFileError
            If there is anything but a shift and a scale, or they are not finite numbers in float64 of this shape.
        """
        shift = Tensor("float64", shape, is_finite=True)
        return Fields(cls, {"shift": shift, "scale": replace(shift, is_positive=True)}).read(tensors)

    def undo(self, values: Float[np.ndarray, "row *column"]) -> Float[np.ndarray, "row *column"]:
        """Return standardized values on their own scale, in float64."""
        return self.shift + self.scale * np.asarray(values, np.float64)


def _blocks(values: np.ndarray, rows: Int[np.ndarray, " chosen"]) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield the rows of a table in float64, block by block, each with its slice."""
    length = max(1, _BLOCK_CELLS // max(1, int(np.prod(values.shape[1:]))))
    for start in range(0, len(rows), length):
        where = slice(start, start + length)
        yield where, values[rows[where]].astype(np.float64)
