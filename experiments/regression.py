"""The paper's network on its six regression tables: one fit for each method, shared by several experiments.

Methods and budgets are those of uci/experiment.toml. The seed of a fit is the number of its split.
"""

from typing import Any, NamedTuple

import numpy as np
from catalog import Cell, find
from protocols import split_of
from workbench import Fitted, Workbench

from mile import MLP, Gaussian
from mile.ensemble.training import Patience, Training
from mile.samplers import configure

UCI = find("uci")


class Prediction(NamedTuple):
    """What a method says about the test rows, and the fit behind it."""

    predictive: Any
    y_test: np.ndarray
    fitted: Fitted
    is_ensemble: bool  # of the members that started the chains, not of the chains


def predict(cell: Cell, bench: Workbench) -> Prediction:
    """Fit a cell, or load its fit, and predict the test rows.

    The members that start MILE's chains are taken from its fit if that is there; else they are trained alone, which
    gives the same networks.
    """
    dataset, x_test, y_test = split_of(cell.dataset, cell.split, cell.protocol, bench.data_dir)
    is_ensemble = cell.method == "DE" and bench.is_finished(*place(cell._replace(method="MILE")))
    cell = cell._replace(method="MILE") if is_ensemble else cell
    method = UCI.methods[cell.method]
    fitted = bench.fit(
        *place(cell),
        dataset,
        MLP(n_inputs=dataset.n_features),
        Gaussian(),
        sampler=sampler_of(cell.method),
        training=training_of(cell.method),
        chains=min(bench.chains, method.get("chains", bench.chains)),
        seed=cell.split,
    )
    model = fitted.model
    predictive = model.ensemble_predictive(x_test) if is_ensemble else model.predictive(x_test)
    return Prediction(predictive, y_test, fitted, is_ensemble)


def is_fitted(cell: Cell, bench: Workbench) -> bool:
    """Say whether a prediction needs no new fit."""
    methods = [cell.method, "MILE"] if cell.method == "DE" else [cell.method]
    return any(bench.is_finished(*place(cell._replace(method=method))) for method in methods)


def place(cell: Cell) -> tuple[str, str]:
    """Return the folder of a fit among the runs, and its name there."""
    return f"uci-{cell.protocol}", f"{cell.dataset}-{UCI.methods[cell.method]['run']}-{cell.split}"


def sampler_of(method: str) -> Any:
    """Return the sampler of a method at its full budget."""
    settings = UCI.methods[method]
    return configure(settings["sampler"], "paper", **settings.get("budget", {}))


def training_of(method: str) -> Training:
    """Return how the members of a method are trained."""
    settings = dict(UCI.methods[method].get("training", {}))
    if "patience" in settings:
        settings["stopping"] = Patience(epochs=settings.pop("patience"))
    return Training(**settings)
