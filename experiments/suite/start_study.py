"""How members should be trained: LPPD and processor time of the starting ensemble.

    MILE_DATA=... MILE_SUITE=... python start_study.py SETTING ... [--folds F] [--tables T ...] [--split S]

appends a row per table and setting to start_study.csv. Scores are of inner splits of training rows (inner_splits.py).
With --folds members leave out folds in turn
(fitting/rotation.py) and stop by a fold; without, an eighth of the rows is set aside.
"""

import argparse
import csv
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from inner_splits import TABLES, Problem, inner_split, problem

from mile import native
from mile.ensemble.rate_schedules import Cosine, CosLog, RateSchedule
from mile.ensemble.training import Patience, Training, start, train
from mile.execution import InProcess
from mile.fitting.rotation import Rotation
from mile.padded_rows import pad_rows
from mile.posterior import Posterior
from mile.predict import predict
from mile.priors import Normal

ROWS = Path(__file__).with_name("start_study.csv")
_MEMBERS = 12


def _by_rows(n_rows: int, few: int, some: int, many: int) -> int:
    """Return a number for tables of fewer than 1,000 rows, of fewer than 5,000, or of more, as presets tell them."""
    return few if n_rows < 1_000 else some if n_rows < 5_000 else many


def _scheduled(rate: float, schedule: RateSchedule, decay: float = 0.95) -> Training:
    return Training(learning_rate=rate, second_decay=decay, schedule=schedule)


def _batches(training: Training, n_rows: int) -> Training:
    return replace(training, batch_size=_by_rows(n_rows, 32, 64, 256))


def _of_known_length(training: Training, n_rows: int, times: float = 1.0) -> Training:
    epochs = int(times * _by_rows(n_rows, 200, 100, 60))
    return replace(_batches(training, n_rows), max_epochs=epochs, stopping=Patience(epochs=epochs))


def _impatient(training: Training, share: int) -> Training:
    return replace(training, stopping=Patience(epochs=training.max_epochs // share))


SETTINGS = {
    "today": lambda n_rows: Training(),
    "deep ensemble": lambda n_rows: Training(learning_rate=0.01, stopping=Patience(epochs=20)),
    "decay 0.95": lambda n_rows: Training(learning_rate=0.01, stopping=Patience(epochs=20), second_decay=0.95),
    "cosine, batches": lambda n_rows: _of_known_length(_scheduled(0.01, Cosine()), n_rows),
    "cosine, batches, twice": lambda n_rows: _of_known_length(_scheduled(0.01, Cosine()), n_rows, 2.0),
    "coslog, batches": lambda n_rows: _of_known_length(_scheduled(0.02, CosLog()), n_rows),
    "coslog, batches, waits a quarter": lambda n_rows: _impatient(
        _of_known_length(_scheduled(0.02, CosLog()), n_rows), 4
    ),
    "coslog, batches, waits half": lambda n_rows: _impatient(_of_known_length(_scheduled(0.02, CosLog()), n_rows), 2),
    "coslog, batches, twice": lambda n_rows: _of_known_length(_scheduled(0.02, CosLog()), n_rows, 2.0),
    "coslog, batches, 0.01": lambda n_rows: _of_known_length(_scheduled(0.01, CosLog()), n_rows),
    "coslog, batches, 0.04": lambda n_rows: _of_known_length(_scheduled(0.04, CosLog()), n_rows),
    "coslog, batches, 0.999": lambda n_rows: _of_known_length(_scheduled(0.02, CosLog(), 0.999), n_rows),
}


def append(path: Path, row: dict[str, object]) -> None:
    """Write a row behind the others."""
    row = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in row.items()}
    is_new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(row), lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(row)
    print(*row.values(), flush=True)


class Trained(NamedTuple):
    """An ensemble and what it took."""

    positions: np.ndarray
    epochs: float
    seconds: float  # of the processor, without compiling


def ensemble(given: Problem, training: Training, seed: int) -> Trained:
    """Train the members one after the other on one core."""
    posterior = Posterior(
        rows=pad_rows(given.dataset.x_train, given.dataset.y_train),
        network=given.network,
        likelihood=given.likelihood.fitted(given.dataset.y_train),
        prior=Normal(),
    )
    validation, program = pad_rows(given.dataset.x_valid, given.dataset.y_valid), InProcess(n_threads=1)
    if given.dataset.folds is not None:
        posterior, validation = Rotation.of(given.dataset.folds).for_training(posterior, np.arange(_MEMBERS))

    def member(number: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        names = np.uint32(seed), np.array([number], np.uint32)
        begun = start(training, program, *names, posterior)
        done = jax.block_until_ready(train(training, program, last, *names, begun, posterior, validation))
        return np.asarray(done.best[0]), np.asarray(done.epoch[0])

    with native.sharing_cores(1, 1):
        member(0, 0)  # compiles
        began = time.process_time()
        found = [member(number, training.max_epochs) for number in range(_MEMBERS)]
        seconds = time.process_time() - began
    positions, epochs = map(np.stack, zip(*found, strict=True))
    return Trained(positions, float(epochs.mean()), seconds)


def ensemble_scores(given: Problem, training: Training, seed: int) -> dict[str, object]:
    """Return LPPD per row on the scale of standardized y, epochs and seconds."""
    trained = ensemble(given, training, seed)
    draws = trained.positions[np.isfinite(trained.positions).all(axis=1)]
    likelihood = given.likelihood.fitted(given.dataset.y_train)
    predictive = predict(given.network, likelihood, draws, given.x_scored, given.dataset.response)
    lppd = float(np.mean(predictive.log_prob(given.y_scored))) + given.log_unit
    return {"stage": "ensemble", "lppd": lppd, "epochs": trained.epochs, "seconds": trained.seconds}


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", nargs="+", choices=SETTINGS)
    parser.add_argument("--tables", nargs="+", default=TABLES)
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--folds", type=int)
    arguments = parser.parse_args()
    for name in arguments.tables:
        inner = inner_split(name, arguments.split)
        given = problem(inner, seed=arguments.split, n_folds=arguments.folds)
        for setting in arguments.settings:
            training = SETTINGS[setting](len(inner.y))
            found = ensemble_scores(given, training, arguments.split)
            row = {"table": name, "split": arguments.split, "rows": len(inner.y), "folds": arguments.folds or 0}
            row |= {"setting": setting, **found}
            append(ROWS, row)


if __name__ == "__main__":
    main()
