"""What users would pick instead of MILE, each at its own defaults; runs in the environment of `requirements.txt`.

Usage: peers.py METHOD TABLE DATA_DIR RESULT --seed N --threads N --scale S --chains N, see `task.py`.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parent))
from task import Options, Prediction, Rows, command_line


def cox(options: Options) -> Callable:
    """Return Cox's proportional hazards with Breslow's baseline, by lifelines."""
    from lifelines import CoxPHFitter

    def run(train: Rows, x_test: pd.DataFrame, times: np.ndarray) -> Prediction:
        x, x_test = as_numbers(train.x, x_test)
        model = CoxPHFitter().fit(x.assign(time=train.time, event=train.event), "time", "event")
        survival = model.predict_survival_function(x_test, times=times).to_numpy().T
        return Prediction(model.predict_log_partial_hazard(x_test).to_numpy(), survival)

    return run


def forest(options: Options) -> Callable:
    """Return the random survival forest of scikit-survival."""
    from sksurv.ensemble import RandomSurvivalForest
    from sksurv.util import Surv

    def run(train: Rows, x_test: pd.DataFrame, times: np.ndarray) -> Prediction:
        x, x_test = as_numbers(train.x, x_test)
        model = RandomSurvivalForest(random_state=options.seed, n_jobs=options.threads)
        model.fit(x, Surv.from_arrays(train.event, train.time))
        survival = np.stack([curve(times) for curve in model.predict_survival_function(x_test)])
        return Prediction(model.predict(x_test), survival)

    return run


def as_numbers(x: pd.DataFrame, x_test: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return both with an indicator for each level but the first of a column of texts."""
    both = pd.get_dummies(pd.concat([x, x_test]), drop_first=True).astype(float)
    return both.iloc[: len(x)].reset_index(drop=True), both.iloc[len(x) :].reset_index(drop=True)


if __name__ == "__main__":
    command_line({"cox": cox, "random-survival-forest": forest})
