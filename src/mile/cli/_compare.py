"""`mile compare`: several models beside each other."""

from pathlib import Path

from mile.cli._console import Console
from mile.cli._data import fitted
from mile.cli._reading import DataFile
from mile.cli._use import load_model, read_rows
from mile.comparison import Candidate, by_left_out_rows, by_rows, compare_candidates
from mile.estimators.comparing import OUT_OF_FOLD_ROWS, names_of
from mile.report.comparison_page import render_comparison
from mile.storage import run_seconds, write_page


def compare(console: Console, models: list[Path], data: DataFile | None, target: str | None, out: Path | None) -> None:
    """Print a table, and write a page if one is asked for."""
    if data is None and target is not None:
        raise ValueError("--target names a column of --data, which is not given.")
    candidates = [_candidate(name, path, data, target) for name, path in zip(names_of(models), models, strict=True)]
    found = compare_candidates(candidates, f"rows of {data.name}" if data else OUT_OF_FOLD_ROWS)
    console.say(repr(found))
    if out is not None:
        write_page(out, render_comparison(found, title="Comparison of " + ", ".join(found.names)))
        console.say(f"Page  {out}")
    console.answer({"rows": found.rows, "best": found.best, "level": list(found.level), "models": found.frame()})


def _candidate(name: str, path: Path, data: DataFile | None, target: str | None) -> Candidate:
    model = load_model(path)
    seconds = run_seconds(path) if path.is_dir() else None
    if data is None:
        return by_left_out_rows(name, fitted(model), seconds)
    return by_rows(name, fitted(model), *read_rows(model, data, target), seconds=seconds)
