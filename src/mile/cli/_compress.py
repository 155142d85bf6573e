"""`mile compress` and `mile distill`: smaller files of a fitted model."""

from copy import copy
from pathlib import Path

import numpy as np

from mile.cli._console import Console
from mile.cli._data import fitted
from mile.cli._reading import DataFile
from mile.cli._use import load_model, read_rows
from mile.estimators.loading import Model, read_training
from mile.fitting.compression import compress_fit
from mile.fitting.distillation import distill_fit
from mile.fitting.result import Fit
from mile.fitting.unseen import Estimate


def compress(
    console: Console,
    model: Path,
    out: Path,
    data: DataFile | None,
    target: str | None,
    draws: int | None,
    loss: float | None,
) -> None:
    """Choose draws, write them, and say what that loses."""
    loaded = load_model(model)
    x, y = _rows(loaded, model, data, target)
    smaller, found = compress_fit(fitted(loaded), x, y, n_draws=draws, loss=loss)
    _write(loaded, smaller, out)
    console.say(f"{found}\n{_written(out)}")
    answer: dict[str, object] = {"draws": found.n_draws, "of_draws": found.of_draws}
    if found.observed is not None:
        answer |= {"observed_on": found.rows}
    console.answer(_answer(out, found.expected, found.observed) | answer)


def distill(
    console: Console,
    model: Path,
    out: Path,
    data: DataFile | None,
    target: str | None,
    networks: int | None,
    width: int | None,
    loss: float,
) -> None:
    """Train a few networks to predict as all draws do, write them, and say what that loses."""
    loaded = load_model(model)
    x, y = _rows(loaded, model, data, target)
    student, found = distill_fit(fitted(loaded), x, y, width=width, n_networks=networks, loss=loss)
    _write(loaded, student, out)
    console.say(f"{found}\n{_written(out)}")
    answer = {"networks": found.n_networks, "of_draws": found.of_draws, "ignorance_correlation": found.ignorance}
    answer |= {"measured_on": found.rows, "instead": found.instead or None}
    console.answer(_answer(out, found.expected, found.observed) | answer)


def _written(out: Path) -> str:
    return f"Wrote  {out}, {out.stat().st_size / 1e6:.2f} MB"


def _answer(out: Path, expected: Estimate, observed: Estimate | None) -> dict[str, object]:
    found: dict[str, object] = {"file": str(out), "bytes": out.stat().st_size, "expected_loss": expected._asdict()}
    return found if observed is None else found | {"observed_loss": observed._asdict()}


def _rows(loaded: Model, model: Path, data: DataFile | None, target: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Return encoded rows and what was observed: of a table, or those that the run was fitted on."""
    if data is not None:
        return read_rows(loaded, data, target)
    kept = read_training(model, fitted(loaded)) if model.is_dir() else None
    if kept is None:
        raise ValueError(f"{model} keeps no rows to make a smaller model by: give those of the fit with --data.")
    return kept


def _write(loaded: Model, smaller: Fit, out: Path) -> None:
    if isinstance(loaded, Fit):
        smaller.save(out)
        return
    changed = copy(loaded)
    changed.fit_ = smaller
    changed.save(out)
