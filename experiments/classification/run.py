"""Classification: one network, one chain, the deep ensemble and all chains, on tables, images and texts.

Usage: python experiments/classification/run.py --dataset ionosphere --data-dir FOLDER

The tables are fitted here. Rows of images and texts are taken from the experiments that measure them; one that is
missing there is named, with the command that makes it.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from mile import MLP, Categorical
from mile.samplers import configure

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import class_tables
from campaign import Work, main
from catalog import Cell, find
from dot_chart import draw_beside_paper
from scoring import costs, ensemble_costs, scores
from summaries import Summary
from workbench import Fitted, Workbench

N_CLASSES = 2
_SHOWN = ("single DNN", "single chain", "DE", "NUTS", "stochastic", "MILE")  # from below
EXPERIMENT = find("classification")
BORROWED = EXPERIMENT.methods["stochastic"]  # data set -> the experiment that measures it


def measure(cell: Cell, bench: Workbench) -> dict[str, object] | None:
    """Fit one row, or load its fit, and score it."""
    if cell.dataset in BORROWED:
        return borrowed(cell, bench)
    way = EXPERIMENT.methods[cell.method]
    dataset, x_test, y_test = class_tables.split_of(cell.dataset, cell.split, cell.protocol, bench.data_dir)
    fitted = fit(cell, bench, dataset)
    model, members = fitted.model, way.get("members", False)
    predict = model.ensemble_predictive if members else model.predictive
    if not way.get("alone", False):
        return scores(predict(x_test), y_test) | (ensemble_costs if members else costs)(fitted)
    places = [[int(chain)] for chain in np.flatnonzero(model.ok)]
    found = [scores(predict(x_test, chains=chain), y_test) for chain in places]
    means = {name: round(float(np.mean([each[name] for each in found])), 4) for name in found[0]}
    return means | share(fitted, members=members)


def fit(cell: Cell, bench: Workbench, dataset: Any) -> Fitted:
    """Return the fit that a row is about."""
    name = EXPERIMENT.methods[cell.method].get("fit", cell.method)
    settings = EXPERIMENT.methods[name]
    own = settings[cell.dataset]
    return bench.fit(
        *place(cell),
        dataset,
        MLP(n_inputs=dataset.n_features, hidden=tuple(own["hidden"]), n_outputs=N_CLASSES),
        Categorical(N_CLASSES),
        sampler=configure(settings["sampler"], "paper", **own["budget"]),
        chains=min(bench.chains, own.get("chains", bench.chains)),
        seed=cell.split,
    )


def share(fitted: Fitted, *, members: bool) -> dict[str, object]:
    """Return what one chain of a fit cost, on average."""
    n_chains = len(fitted.model.status)
    found = (ensemble_costs if members else costs)(fitted) | {"chains": 1}
    found["gradient_evaluations"] = int(found["gradient_evaluations"]) // n_chains
    if found["seconds"] != "":
        found["seconds"] = round(float(found["seconds"]) / n_chains, 1)
    return found


def place(cell: Cell) -> tuple[str, str]:
    """Return the folder of a row's fit among the runs, and its name there."""
    method = EXPERIMENT.methods[cell.method].get("fit", cell.method)
    return f"classification-{cell.protocol}", f"{cell.dataset}-{EXPERIMENT.methods[method]['run']}-{cell.split}"


def is_fitted(cell: Cell, bench: Workbench) -> bool:
    """Say whether a row needs no new fit."""
    return is_borrowed(cell) or bench.is_finished(*place(cell))


def is_borrowed(cell: Cell) -> bool:
    """Say whether a row comes from another experiment."""
    return cell.dataset in BORROWED


def borrowed(cell: Cell, bench: Workbench) -> dict[str, object] | None:
    """Return the row of the experiment that measures this data set."""
    source = find(BORROWED[cell.dataset])
    rows = Summary(bench.summary_of(source)).find(**cell._asdict())
    if not rows:
        print(f"    {source.name} has no such row yet: mile paper run {source.name}")
        return None
    return {name: value for name, value in rows[0].items() if name not in Cell._fields}


def load(name: str, data_dir: str | None) -> None:
    """Load a table, if it is one."""
    if name not in BORROWED:
        class_tables.load(name, data_dir)


def draw(rows: list[dict[str, str]], path: Path) -> None:
    """Show the LPPD of each way to predict."""
    draw_beside_paper(EXPERIMENT, rows, path, _SHOWN)


WORK = Work(measure=measure, load=load, is_fitted=is_fitted, draw=draw, is_derived=is_borrowed)

if __name__ == "__main__":
    main(__file__, WORK)
