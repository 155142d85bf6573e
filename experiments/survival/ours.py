"""MILE through the estimator that users call, on the frame as it is; runs in the environment of the library.

Usage: ours.py METHOD TABLE DATA_DIR RESULT --seed N --threads N --scale S --chains N, see `task.py`.
"""

import functools
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from mile import MileRegressor

sys.path.insert(0, str(Path(__file__).resolve().parent))
from task import Options, Prediction, Rows, command_line


def mile(options: Options, preset: str = "default") -> Callable:
    """Return the estimator's fit and predictions."""
    chains = {"n_chains": options.chains} if options.chains else {}

    def run(train: Rows, x_test: pd.DataFrame, times: np.ndarray) -> Prediction:
        model = MileRegressor(preset=preset, n_threads=options.threads, random_state=options.seed, **chains)
        predictive = model.fit(train.x, as_response(train)).predictive(x_test)
        survival, median = predictive.survival(times), predictive.median
        return Prediction(-median, survival, lambda test: float(predictive.log_prob(as_response(test)).mean()))

    return run


def as_response(rows: Rows) -> np.ndarray:
    """Return times and events as scikit-survival has them."""
    y = np.empty(len(rows.time), [("event", bool), ("time", float)])
    y["event"], y["time"] = rows.event, rows.time
    return y


if __name__ == "__main__":
    command_line({"mile-default": mile, "mile-quick": functools.partial(mile, preset="quick")})
