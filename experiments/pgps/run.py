"""Compare path-guided particle sampling with MILE and the deep ensemble on seven classification tables.

Usage: python experiments/pgps/run.py --dataset sonar glass --protocol all --data-dir FOLDER
"""

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mile import MLP, Categorical, Dataset, FitFailedError, Normal, metrics
from mile.ensemble.training import Training
from mile.samplers import configure

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmark_data import Summary, load_classes
from campaign import Work, main
from catalog import Cell, find
from dot_chart import draw_beside_paper
from protocols import standardized
from scoring import costs, ensemble_costs, scores
from workbench import Workbench

EXPERIMENT = find("pgps")
COLUMNS = (*Summary.COLUMNS, "limited_moves", "reverted_moves")
PRIOR = Normal(scale=math.sqrt(0.5))  # the original's, for all methods
HIDDEN, ACTIVATION = (32,), "sigmoid"  # likewise
UNTRAINED = Training(max_epochs=1)  # particles do not start from a trained network
PHASES = ("path", "langevin")  # of a cloud
VALIDATION_SHARE = 5  # MILE's members need rows to stop at: a fifth of the training rows, as in the paper's comparison


def halves(name: str, split: int, data_dir: str | None) -> tuple[np.ndarray, ...]:
    """Cut a random order in two, standardized by the first half, as the original does."""
    x, y = load_classes(name, data_dir)
    order = np.random.default_rng(split).permutation(len(x))
    train, test = np.split(order, [len(x) // 2])
    x = standardized(x, train)
    return x[train], y[train], x[test], y[test]


def measure(cell: Cell, bench: Workbench) -> dict[str, object]:
    """Fit one row, or load its fit, and score it; a cloud that fails has a row without scores."""
    x, y, x_test, y_test = halves(cell.dataset, cell.split, bench.data_dir)
    has_members = fit_of(cell.method) == "MILE"
    n_train = len(x) - len(x) // VALIDATION_SHARE if has_members else len(x)
    valid = (x[n_train:], y[n_train:]) if has_members else ()
    n_classes = int(max(y.max(), y_test.max())) + 1
    try:
        fitted = bench.fit(
            *place(cell),
            Dataset.from_arrays(x[:n_train], y[:n_train], *valid),
            MLP(n_inputs=x.shape[1], hidden=HIDDEN, n_outputs=n_classes, activation=ACTIVATION),
            Categorical(n_classes),
            prior=PRIOR,
            sampler=sampler_of(cell),
            training=Training() if has_members else UNTRAINED,
            chains=bench.chains if has_members else 1,
            seed=cell.split,
        )
    except FitFailedError as error:
        print(f"    {error}", flush=True)
        return {"chains": 0}
    model = fitted.model
    if cell.method == "DE":
        return scores(model.ensemble_predictive(x_test), y_test) | ensemble_costs(fitted)
    predictive = model.predictive(x_test)
    found = scores(predictive, y_test) | costs(fitted)
    if not has_members:
        return found | moves(model.chains.info)
    if cell.protocol == "paper":  # what the paper's table calls NLL of MILE is that of one draw, on average
        found["lppd"] = round(-metrics.mean_draw_nll(predictive, y_test), 4)
    return found


def moves(info: dict[str, Any]) -> dict[str, int]:
    """Count the moves of particles that had to be cut or taken back: a measure of whether the step suits the target."""
    counts = {"limited_moves": "limited_steps", "reverted_moves": "bad_steps"}
    return {name: round(sum(float(info[phase][of].sum()) for phase in PHASES)) for name, of in counts.items()}


def sampler_of(cell: Cell) -> Any:
    """Return the sampler behind a row."""
    settings = EXPERIMENT.methods[fit_of(cell.method)]
    sampler: Any = configure(settings["sampler"], settings.get("preset", "paper"), **settings.get("budget", {}))
    return replace(sampler, **settings.get("options", {}), **settings.get(cell.protocol, {}))


def fit_of(method: str) -> str:
    """Return the method whose fit a row is about."""
    return EXPERIMENT.methods[method].get("fit", method)


def place(cell: Cell) -> tuple[str, str]:
    """Return the folder of a row's fit among the runs, and its name there; MILE's is the same for both protocols."""
    name = fit_of(cell.method)
    folder = "pgps-corrected" if name == "MILE" else f"pgps-{cell.protocol}"
    return folder, f"{cell.dataset}-{EXPERIMENT.methods[name].get('run', name)}-{cell.split}"


def is_fitted(cell: Cell, bench: Workbench) -> bool:
    """Say whether a row needs no new fit."""
    return bench.is_finished(*place(cell))


def draw(rows: list[dict[str, str]], path: Path) -> None:
    """Show the NLL of each method on each table."""
    draw_beside_paper(EXPERIMENT, rows, path, ("PGPS-shared", "PGPS-published", "PGPS-corrected", "DE", "MILE"), "nll")


WORK = Work(measure=measure, columns=COLUMNS, load=load_classes, is_fitted=is_fitted, draw=draw)

if __name__ == "__main__":
    main(__file__, WORK)
