"""`mile compress`: a smaller file of a fitted model."""

from copy import copy
from pathlib import Path

import numpy as np

from mile.cli._console import Console
from mile.cli._data import fitted
from mile.cli._reading import DataFile
from mile.cli._use import load_model, read_rows
from mile.estimators.loading import Model, read_training
from mile.fitting.compression import compress_fit
from mile.fitting.result import Fit


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
    _with_fit(loaded, smaller).save(out)
    console.say(f"{found}\nWrote  {out}, {out.stat().st_size / 1e6:.2f} MB")
    answer: dict[str, object] = {"file": str(out), "bytes": out.stat().st_size, "draws": found.n_draws}
    answer |= {"of_draws": found.of_draws, "expected_loss": found.expected._asdict()}
    if found.observed is not None:
        answer |= {"observed_loss": found.observed._asdict(), "observed_on": found.rows}
    console.answer(answer)


def _rows(loaded: Model, model: Path, data: DataFile | None, target: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Return encoded rows and what was observed: of a table, or those that the run was fitted on."""
    if data is not None:
        return read_rows(loaded, data, target)
    kept = read_training(model, fitted(loaded)) if model.is_dir() else None
    if kept is None:
        raise ValueError(f"{model} keeps no rows to choose draws by: give those of the fit with --data.")
    return kept


def _with_fit(loaded: Model, smaller: Fit) -> Model:
    if isinstance(loaded, Fit):
        return smaller
    changed = copy(loaded)
    changed.fit_ = smaller
    return changed
