"""MILE and the deep ensemble through the estimator that users call; runs in the environment of the library.

Usage: ours.py METHOD ROWS RESULT --seed N --threads N, see `job.py`.
"""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mile import MileRegressor, metrics
from mile.samplers import configure

sys.path.insert(0, str(Path(__file__).resolve().parent))
from job import Options, command_line

# Training of the ensemble in the paper's table; the estimator's own defaults stop earlier, because chains follow.
TABLE_TRAINING = {"learning_rate": 0.01, "patience": 20}
_FEWEST_STEPS = 20  # however small the scale


def mile(options: Options, preset: str) -> Callable:
    budgets = {}
    if options.scale != 1.0:
        sampler: Any = configure("mile", preset)
        steps = {name: getattr(sampler, name) for name in ("warmup_steps", "sampling_steps")}
        budgets = {name: max(_FEWEST_STEPS, round(options.scale * count)) for name, count in steps.items()}
    return _method(options, preset=preset, **budgets)


def deep_ensemble(options: Options) -> Callable:
    return _method(options, sampler="deep_ensemble", preset="paper", **TABLE_TRAINING)


def _method(options: Options, **settings: Any) -> Callable:
    chains = {"n_chains": options.chains} if options.chains else {}
    return functools.partial(_run, MileRegressor(random_state=options.seed, **chains, **settings))


def _run(model: MileRegressor, x: np.ndarray, y: np.ndarray, x_test: np.ndarray) -> Callable:
    predictive = model.fit(x, y).predictive(x_test)
    _ = predictive.mean, predictive.interval()  # timed as those of the others

    def scores(y_test: np.ndarray, unit: float) -> dict[str, float | None]:
        found = metrics.standardized(metrics.scores(predictive, y_test), unit)
        names = {"coverage": "coverage_90", "interval_score": "interval_score_90"}
        return {name: found[names.get(name, name)] for name in ("lppd", "crps", "rmse", *names)}

    return scores


METHODS = {
    "mile-default": functools.partial(mile, preset="default"),
    "mile-paper": functools.partial(mile, preset="paper"),
    "deep-ensemble": deep_ensemble,
}

if __name__ == "__main__":
    command_line(METHODS)
