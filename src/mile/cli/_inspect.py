"""`mile inspect`: what a fit would take the columns of a table for, and what may mislead in them."""

from collections.abc import Mapping

import numpy as np

from mile._printable import one_line
from mile.cli._console import Console
from mile.cli._data import read_problem
from mile.cli._reading import DataFile
from mile.cli._target import LIKELIHOODS
from mile.diagnose.tables import table_warnings
from mile.features.base import ColumnReport
from mile.features.frame import Frame
from mile.features.table import TableEncoder

_LONGEST_CELL = 60  # characters
_HEADER = ("column", "kind", "values", "missing", "what is done")


def inspect(
    console: Console, data: DataFile, target: str, drop: list[str], task: str, kinds: Mapping[str, str] | None
) -> None:
    """Print each column's kind, range or levels, missing share, what becomes of it, and warnings."""
    problem = read_problem(data, target, drop, task, kinds)
    is_plain = not isinstance(problem.x, dict)
    columns = dict(zip(problem.features, problem.x.T, strict=True)) if isinstance(problem.x, np.ndarray) else problem.x
    targets = np.atleast_2d(problem.y.T)
    lines = enumerate(targets.T.tolist())
    known = np.array([row for row, cells in lines if all(value is not None and value == value for value in cells)])
    # A fit standardizes a table of finite numbers.
    encoder = TableEncoder(kinds=kinds or {}, squash="none" if is_plain else "smooth")
    chosen = {name: values[known] for name, values in columns.items()}
    frame, codes = Frame.of(chosen), [_codes(problem.task, target[known]) for target in targets]
    found = encoder.fit(frame, y=codes[0])
    warnings = list(dict.fromkeys(warning for one in codes for warning in table_warnings(found, frame, one)))
    n_missing = len(problem.y) - len(known)
    gaps = f" {n_missing:,} rows without a target are left out." if n_missing else ""
    console.say(f"{data}: {len(known):,} rows, {len(columns)} columns, {problem.task}: {problem.reason}.{gaps}\n")
    console.say(column_table(found.describe()))
    for warning in warnings:
        console.say(f"\nWarning: {warning.sentence}")
    console.answer(
        {
            "rows": len(known),
            "rows_without_target": n_missing,
            "task": problem.task,
            "columns": [report._asdict() for report in found.describe()],
            "warnings": [warning._asdict() for warning in warnings],
        }
    )


def _codes(task: str, target: np.ndarray) -> np.ndarray:
    """Return one target as a network would learn it."""
    response = LIKELIHOODS[task].check(target)
    return LIKELIHOODS[task].for_response(response).learn(response, np.arange(len(response))).encode(response)


def column_table(reports: list[ColumnReport]) -> str:
    """Return what became of columns as a table for people."""
    lines = [_HEADER, *(tuple(one_line(cell, _LONGEST_CELL) for cell in _cells(report)) for report in reports)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(_HEADER))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _cells(report: ColumnReport) -> tuple[str, ...]:
    done = f"{report.treatment}: {report.reason}" if report.reason else report.treatment
    return report.name, report.kind, report.values, f"{report.missing:.1%}" if report.missing else "", done
