"""Columns of a table as tensors for a file, and columns from such tensors, with everything checked."""

import json
from collections.abc import Sequence

import numpy as np

from mile._errors import UntrustedFileError
from mile.features.base import Tensors
from mile.features.columns import AbstractColumn
from mile.features.kinds import COLUMNS

_LONGEST_JSON = 1 << 26  # bytes
_DESCRIPTION = "columns"  # the tensor that holds all but arrays, as JSON in UTF-8


def column_tensors(names: Sequence[str], columns: Sequence[AbstractColumn]) -> dict[str, np.ndarray]:
    """Return the columns as JSON, and their arrays by the column's place."""
    described = [
        {"name": name, "kind": column.kind, "fields": column.fields()}
        for name, column in zip(names, columns, strict=True)
    ]
    found = {_DESCRIPTION: np.frombuffer(json.dumps(described).encode(), np.uint8)}
    for place, column in enumerate(columns):
        found |= {f"{place}.{name}": array for name, array in column.tensors().items()}
    return found


def read_columns(tensors: Tensors) -> tuple[tuple[str, ...], tuple[AbstractColumn, ...]]:
    """Return names and columns from the arrays of a file.

    Raises
    ------
    UntrustedFileError
        If anything is missing, unknown or impossible.
    """
    data = tensors.get(_DESCRIPTION)
    if data is None or data.dtype != np.uint8 or data.ndim != 1 or len(data) > _LONGEST_JSON:
        raise UntrustedFileError(f"the columns of a table must be described in at most {_LONGEST_JSON:,} bytes.")
    described = read_json(data.tobytes())
    if not isinstance(described, list) or not described:
        raise UntrustedFileError("the columns of a table must be a list.")
    arrays: dict[str, dict[str, np.ndarray]] = {}
    for key, array in tensors.items():
        if key != _DESCRIPTION:
            place, _, name = key.partition(".")
            arrays.setdefault(place, {})[name] = array
    names, columns = [], []
    for place, entry in enumerate(described):
        if not isinstance(entry, dict) or set(entry) != {"name", "kind", "fields"}:
            raise UntrustedFileError("a column must have a name, a kind and fields.")
        name, kind, fields = entry["name"], entry["kind"], entry["fields"]
        if (
            not isinstance(name, str)
            or not isinstance(kind, str)
            or kind not in COLUMNS
            or not isinstance(fields, dict)
        ):
            raise UntrustedFileError(f"column {place} must have a name and a kind, one of {sorted(COLUMNS)}.")
        names.append(name)
        columns.append(COLUMNS[kind].restore(fields, arrays.pop(str(place), {})))
    if arrays or len(set(names)) != len(names):
        raise UntrustedFileError("there are arrays of columns that are not there, or two columns of one name.")
    return tuple(names), tuple(columns)


def read_json(data: bytes) -> object:
    """Return what JSON says.

    Raises
    ------
    UntrustedFileError
        If it is not JSON.
    """
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UntrustedFileError("the description of the columns is not readable.") from error
