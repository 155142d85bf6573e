"""MILE at its defaults with its starting ensemble, and a fair deep ensemble; runs in the environment of the library.

Usage: suite_ours.py METHOD TABLE DATA_DIR EXPORTED KEPT RESULT --seed N --threads N --scale S --chains N
"""

import copy
import inspect
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from mile import Gaussian, MileClassifier, MileRegressor
from mile.estimators._presets import table_defaults
from mile.likelihoods import ClassPredictive, Predictive

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "alternatives"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "mixed_tables"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from ours import scaled_steps
from scores import LEVEL, Mixture
from suite_tables import split_rows
from suite_task import (
    Job,
    Row,
    Scored,
    Stopwatch,
    classification_scores,
    command_line,
    density_file,
    keep,
    number_scores,
    outside,
)

Estimator = MileRegressor | MileClassifier
ENSEMBLE = "ensemble"
N_MEMBERS, N_GROUPS = 12, 3  # of the fair deep ensemble; each group has validation rows of its own
_FEW_ROWS, _INNER_SPLITS = 1_000, 3  # below that many rows, a choice looks at several inner splits


@dataclass(frozen=True, eq=False)
class OfLibrary:
    """A prediction of the library, as the scores of all methods take it."""

    predictive: Predictive

    @property
    def mean(self) -> np.ndarray:
        return self.predictive.mean

    @property
    def std(self) -> np.ndarray:
        return self.predictive.std

    def interval(self) -> tuple[np.ndarray, np.ndarray]:
        lower, upper = self.predictive.interval(LEVEL).T
        return lower, upper

    def log_density(self, y: np.ndarray) -> np.ndarray:
        return self.predictive.log_prob(y)

    def crps(self, y: np.ndarray) -> np.ndarray:
        return self.predictive.crps(y)


def default(job: Job) -> Scored:
    """Fit the estimator at its defaults; leave the row of its starting ensemble among what is kept."""
    options, rows, watch = job.options, job.rows, Stopwatch()
    chains = {"n_chains": options.chains} if options.chains else {}
    steps = scaled_steps(options.scale, len(rows.y))
    model = _estimator(job)(random_state=options.seed, **chains, **steps).fit(rows.x, rows.y)
    predictive = model.predictive(rows.x_test)
    _ = _summary(predictive)  # timed as those of the others
    seconds = watch.row()
    scored = scored_by_library(predictive, model, job)
    scored.row.update(seconds | _spread(model, job) | _conformal(model, job) | out_of_fold(model, job.unit))
    keep_ensemble(model, job)
    return scored


def scored_by_library(predictive: Predictive | ClassPredictive, model: Estimator, job: Job) -> Scored:
    """Return the scores of a prediction of the test rows."""
    if isinstance(predictive, ClassPredictive):
        return classification_scores(predictive.probs, np.asarray(model.classes_), job)
    return number_scores(OfLibrary(predictive), job)


def keep_ensemble(model: Estimator, job: Job) -> None:
    """Score the networks that the chains start from, and leave row and densities where `run.py` looks for them."""
    members = starting_ensemble(model)
    scored = scored_by_library(members.predictive(job.rows.x_test), members, job)
    keep(job, scored, ENSEMBLE)
    file = density_file(job.kept, job.name, ENSEMBLE, job.options.seed)
    file.with_suffix(".json").write_text(json.dumps(scored.row | _spread(members, job)))


def starting_ensemble(model: Estimator) -> Estimator:
    """Return a model that predicts by the members alone, each with the same weight."""
    ok = model.fit_.ok
    members = copy.copy(model)
    members.fit_ = replace(model.fit_, weights=np.concatenate([np.zeros(len(ok)), ok / ok.sum()]))
    return members


def _spread(model: Estimator, job: Job) -> Row:
    """Return the largest standard deviations of rows that are not test rows."""
    if isinstance(model, MileClassifier):
        return {}
    return {name: float(np.max(model.predictive(x).std)) / job.unit for name, x in outside(job).items()}


def _conformal(model: Estimator, job: Job) -> Row:
    """Return the coverage of conformal intervals, where the library has them."""
    if isinstance(model, MileClassifier) or "conformal" not in inspect.signature(model.predict_interval).parameters:
        return {}
    conformal: dict[str, Any] = {"conformal": True}
    lower, upper = model.predict_interval(job.rows.x_test, LEVEL, **conformal).T
    y = job.rows.y_test
    return {"coverage_conformal": float(np.mean((lower <= y) & (y <= upper)))}


def out_of_fold(model: Any, unit: float) -> Row:
    """Return the scores of training rows by chains that never saw them, where the estimator has such."""
    if not hasattr(model, "oof_"):  # a fit without folds
        return {}
    found = model.oof_.scores
    row = {"oof_lppd": found["lppd"].value + np.log(unit), "oof_lppd_se": found["lppd"].standard_error}
    return row | ({"oof_crps": found["crps"].value / unit} if "crps" in found else {})


class Choice(NamedTuple):
    """How a deep ensemble is trained."""

    learning_rate: float
    patience: int | None = None  # None: the learning rate follows the default's schedule, else it is constant

    def settings(self, n_rows: int) -> dict[str, Any]:
        """Return what an estimator must be told; without a schedule its network is still the default's."""
        if self.patience is None:
            return {"learning_rate": self.learning_rate}
        hidden = table_defaults("default", n_rows).hidden
        constant = {"preset": "paper", "hidden_layer_sizes": hidden, "activation": "gelu"}
        return self._asdict() | constant

    def __str__(self) -> str:
        how = "schedule" if self.patience is None else f"patience {self.patience}"
        return f"rate {self.learning_rate:g}, {how}"


CHOICES = (Choice(2e-2), Choice(5e-3), Choice(1e-2, 20), Choice(3e-3, 50))


def deep_ensemble(job: Job) -> Scored:
    """Fit a deep ensemble as one would who uses nothing else.

    The network is the default's. Learning rate and schedule are those with the highest LPPD on rows of inner splits
    that no member has seen. The members come in three groups with validation rows of their own, so that together they
    know all rows.
    """
    watch = Stopwatch()
    choice = chosen(job, CHOICES)
    models = train(job, choice, job.rows.x, job.rows.y, seed=job.options.seed)
    predicted = joined(models, job.rows.x_test)
    _ = _summary(predicted)
    seconds, setting = watch.row(), {"setting": str(choice)}
    if isinstance(predicted, np.ndarray):
        scored = classification_scores(predicted, np.asarray(models[0].classes_), job)
    else:
        scored = number_scores(predicted, job)
        frames = outside(job)
        scored.row.update({name: float(np.max(_std(models, x))) / job.unit for name, x in frames.items()})
    return scored._replace(row=scored.row | seconds | setting)


def chosen(job: Job, choices: Sequence[Choice]) -> Choice:
    """Return the best choice on inner splits of the training rows."""
    few = len(job.rows.y) < _FEW_ROWS
    totals = dict.fromkeys(choices, 0.0)
    for inner in range(1, 1 + (_INNER_SPLITS if few else 1)):
        rows = split_rows(job.rows.x, job.rows.y, inner)
        for choice in choices:
            models = train(job, choice, rows.x, rows.y, seed=inner, groups=1)
            totals[choice] += models[0].lppd(rows.x_test, rows.y_test)
    return max(choices, key=totals.__getitem__)


def train(
    job: Job, choice: Choice, x: pd.DataFrame, y: np.ndarray, *, seed: int, groups: int = N_GROUPS
) -> list[Estimator]:
    """Return groups of members, twelve in all."""
    members = (job.options.chains or N_MEMBERS) // groups
    settings: dict[str, Any] = {"sampler": "deep_ensemble", "n_chains": max(1, members), "n_folds": 0}
    settings |= choice.settings(len(y)) | ({"likelihood": Gaussian(link="bounded")} if job.table.is_regression else {})
    return [_estimator(job)(random_state=100 * seed + group, **settings).fit(x, y) for group in range(groups)]


def joined(models: Sequence[Estimator], x: pd.DataFrame) -> Mixture | np.ndarray:
    """Return the mixture of all members, or mean probabilities."""
    predicted: list[Any] = [model.predictive(x) for model in models]
    if isinstance(predicted[0], ClassPredictive):
        return np.mean([part.probs for part in predicted], axis=0)
    location, scale = (np.concatenate(parts) for parts in zip(*(p.moments_per_draw() for p in predicted), strict=True))
    return Mixture(location=location, scale=scale)


def _std(models: Sequence[Estimator], x: pd.DataFrame) -> np.ndarray:
    mixture: Any = joined(models, x)
    return mixture.std


def _summary(predicted: Any) -> tuple:
    """Compute what a user would ask for."""
    if isinstance(predicted, np.ndarray):
        return (predicted,)
    return (predicted.probs,) if isinstance(predicted, ClassPredictive) else (predicted.mean, predicted.interval())


def _estimator(job: Job) -> Callable[..., Any]:
    return MileRegressor if job.table.is_regression else MileClassifier


METHODS = {"mile-default": default, "de": deep_ensemble}

if __name__ == "__main__":
    command_line(METHODS)
