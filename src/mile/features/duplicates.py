"""Columns that repeat another one: only those that have learned the same are compared cell by cell."""

import json
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Int

from mile.features.columns import AbstractColumn, IgnoredColumn, Writing, write_rows
from mile.features.frame import Frame
from mile.features.values import AbstractValues


def without_duplicates(
    frame: Frame, rows: Int[np.ndarray, " chosen"] | None, learned: Sequence[AbstractColumn], asked: Iterable[str]
) -> tuple[AbstractColumn, ...]:
    """Leave out columns that are the same as one before them in the given rows, unless they were asked for by name."""
    first: dict[str, list[int]] = {}
    kept = list(learned)
    for place, (name, column) in enumerate(zip(frame.names, learned, strict=True)):
        if not column.n_features:
            continue
        # Columns that have learned the same may be the same; only these are compared.
        alike = first.setdefault(_summary(column), [])
        for other in alike if name not in asked else ():
            if _are_same(column, frame.columns[place].chosen(rows), frame.columns[other].chosen(rows)):
                same = f"it is the same as {frame.names[other]!r}"
                kept[place] = IgnoredColumn(reason=same, missing=column.describe(name).missing)
                break
        else:
            alike.append(place)
    return tuple(kept)


def _summary(column: AbstractColumn) -> str:
    arrays = {name: array.tobytes().hex() for name, array in column.tensors().items()}
    return json.dumps([column.kind, column.fields(), arrays], sort_keys=True)


def _are_same(column: AbstractColumn, left: AbstractValues, right: AbstractValues) -> bool:
    one, other = (np.empty((len(values), column.n_features), np.float32) for values in (left, right))
    write_rows([Writing(column, left, one), Writing(column, right, other)])
    return np.array_equal(one, other)
