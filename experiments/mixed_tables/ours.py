"""MILE through the estimators that users call, on the frame as it is; runs in the environment of the library.

Usage: ours.py METHOD TABLE DATA_DIR MOST_ROWS RESULT --seed N --threads N --scale S --chains N, see `task.py`.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mile import MileClassifier, MileRegressor, metrics
from mile.estimators._presets import table_defaults
from mile.samplers import configure

sys.path.insert(0, str(Path(__file__).resolve().parent))
from tables import MixedTable
from task import Options, Scores, class_scores, command_line

_FEWEST_STEPS = 20  # however small the scale
_NAMES = {"coverage": "coverage_90", "interval_score": "interval_score_90"}


def mile(options: Options, table: MixedTable, **settings: Any) -> Callable:
    """Return the estimator's fit and predictions; `settings` are its arguments where not the defaults."""
    chains = {"n_chains": options.chains} if options.chains else {}
    estimator = MileRegressor if table.is_regression else MileClassifier

    def run(x: pd.DataFrame, y: np.ndarray, x_test: pd.DataFrame) -> Scores:
        model = estimator(random_state=options.seed, **chains, **scaled_steps(options.scale, len(y)), **settings)
        return scored(model.fit(x, y), x_test)

    return run


def scored(model: MileRegressor | MileClassifier, x_test: pd.DataFrame) -> Scores:
    """Predict, and return the function that scores."""
    predictive: Any = model.predictive(x_test)
    if isinstance(model, MileClassifier):
        probs = predictive.probs
        return lambda y_test, unit: class_scores(probs, np.asarray(model.classes_), y_test)
    _ = predictive.mean, predictive.interval()  # timed as those of the others

    def scores(y_test: np.ndarray, unit: float) -> dict[str, float | None]:
        found = metrics.standardized(metrics.scores(predictive, y_test), unit)
        return {name: found[_NAMES.get(name, name)] for name in ("lppd", "crps", "rmse", *_NAMES)}

    return scores


def scaled_steps(scale: float, n_rows: int) -> dict[str, int]:
    """Return the default's steps multiplied by the scale; nothing at scale 1."""
    if scale == 1.0:
        return {}
    sampler: Any = configure("mile", "default")
    usual = table_defaults("default", n_rows).steps
    steps = {name: usual.get(name, getattr(sampler, name)) for name in ("warmup_steps", "sampling_steps")}
    steps = {name: max(_FEWEST_STEPS, round(scale * count)) for name, count in steps.items()}
    return steps | {"n_draws": min(sampler.n_draws, steps["sampling_steps"])}


METHODS = {"mile-default": mile}

if __name__ == "__main__":
    command_line(METHODS)
