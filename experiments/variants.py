"""Regression fits that differ by method in network, sampler, training or number of rows, as an experiment.toml says.

Settings of a method, all optional but `sampler`; those under [methods.every] hold for all:

    hidden = [16, 16, 16]                     # widths of the layers
    sampler = "mile"
    budget = { warmup_steps = 10_000, ... }
    options = { trust = 1.5, ... }            # other fields of the sampler
    energy = [0.5, 0.1]                       # start and end of the wanted energy variance
    training = { learning_rate = 0.01 }
    rows = 1_000                              # the first of the training rows; default all
    chains = 4                                # fewer than the experiment's
    members_of = "MILE"                       # predict by the members that start the chains of that method
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from catalog import Cell, Experiment
from protocols import Split, split_of
from scoring import costs, ensemble_costs, scores
from stage_clock import StageClock, Timed, path_of, timed_fit
from workbench import Workbench

from mile import MLP, Dataset, Gaussian
from mile.ensemble.training import Training
from mile.samplers import configure
from mile.samplers._step_size import Exponential, Linear


class Trial(NamedTuple):
    """A fit of one cell, with what it is scored on."""

    timed: Timed
    dataset: Dataset
    x_test: np.ndarray
    y_test: np.ndarray
    by_members: bool

    @property
    def model(self) -> Any:
        """The fit."""
        return self.timed.fitted.model

    def columns(self) -> dict[str, object]:
        """Return scores, costs and times."""
        if self.by_members:
            predictive = self.model.ensemble_predictive(self.x_test)
            return scores(predictive, self.y_test) | ensemble_costs(self.timed.fitted)
        found = scores(self.model.predictive(self.x_test), self.y_test)
        return found | costs(self.timed.fitted) | self.timed.columns()


def settings_of(experiment: Experiment, cell: Cell) -> Mapping[str, Any]:
    """Return the settings of a cell's method, or of the one whose members it is about.

    What they have under the name of the protocol goes before the rest, and a method's own before that of all.
    """
    own = experiment.methods[cell.method]
    own = experiment.methods[own["members_of"]] if "members_of" in own else own
    every = experiment.methods.get("every", {})
    return {**every, **every.get(cell.protocol, {}), **own, **own.get(cell.protocol, {})}


def split_for(settings: Mapping[str, Any], cell: Cell, data_dir: str | None) -> Split:
    """Return the rows of a cell, cut as its settings say."""
    options = {name: settings[name] for name in ("limit", "shares") if name in settings}
    dataset, x_test, y_test = split_of(cell.dataset, cell.split, cell.protocol, data_dir, **options)
    return Split(first_rows(dataset, settings.get("rows")), x_test, y_test)


def place(experiment: Experiment, cell: Cell) -> tuple[str, str]:
    """Return the folder of a cell's fit among the runs, and its name there."""
    method = experiment.methods[cell.method].get("members_of", cell.method)
    return f"{experiment.name}-{cell.protocol}", f"{cell.dataset}-{method.replace(' ', '-')}-{cell.split}"


def try_out(experiment: Experiment, cell: Cell, bench: Workbench) -> Trial:
    """Fit a cell, or load its fit."""
    settings = settings_of(experiment, cell)
    dataset, x_test, y_test = split_for(settings, cell, bench.data_dir)
    timed = timed_fit(
        bench,
        *place(experiment, cell),
        dataset,
        network_of(settings, dataset.n_features),
        Gaussian(),
        sampler=sampler_of(settings),
        training=Training(**settings.get("training", {})),
        chains=min(bench.chains, settings.get("chains", bench.chains)),
        seed=cell.split,
    )
    return Trial(timed, dataset, x_test, y_test, "members_of" in experiment.methods[cell.method])


def first_rows(dataset: Dataset, n_rows: int | None) -> Dataset:
    """Return a data set with the first of its training rows, which are in random order, and all validation rows."""
    return Dataset.from_arrays(dataset.x_train[:n_rows], dataset.y_train[:n_rows], dataset.x_valid, dataset.y_valid)


def network_of(settings: Mapping[str, Any], n_inputs: int) -> MLP:
    """Return the network of these settings."""
    return MLP(n_inputs=n_inputs, hidden=tuple(settings["hidden"]))


def sampler_of(settings: Mapping[str, Any]) -> Any:
    """Return the sampler of these settings."""
    sampler: Any = configure(settings["sampler"], "paper", **settings.get("budget", {}))
    options = dict(settings.get("options", {}))
    if "energy" in settings:
        start, end = settings["energy"]
        # As in the authors' code, which decays exponentially from any start above 2.
        options["schedule"] = (Exponential if start > 2.0 else Linear)(start=start, end=end)
    return replace(sampler, **options)


def is_fitted(experiment: Experiment, cell: Cell, bench: Workbench) -> bool:
    """Say whether a cell needs no new fit."""
    return bench.is_finished(*place(experiment, cell))


def times(experiment: Experiment, cells: list[Cell], bench: Workbench) -> dict[Cell, Any] | None:
    """Return the sampling times of finished fits; None, and a word to the user, if one is not there."""
    found = {cell: StageClock(path_of(bench, *place(experiment, cell))).spent for cell in cells}
    for cell, spent in found.items():
        if spent is None or not is_fitted(experiment, cell, bench):
            print(f"    there is no time of this fit: {cell}")
            return None
    return found
