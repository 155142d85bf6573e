"""Likelihoods of counts and of ordered grades against Gaussian ones, classes, and generalized linear models.

Usage: python experiments/targets/run.py --data-dir FOLDER
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "alternatives"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from campaign import Work, main
from catalog import Cell, find
from isolation import peers_python
from rows import Rows, load, split_rows
from workbench import Workbench

from mile import MileClassifier, MileRegressor
from mile.samplers import configure

HERE = Path(__file__).resolve().parent
EXPERIMENT = find("targets")
COLUMNS = (
    *Cell._fields, "lppd", "lppd_density", "rmse", "crps", "calibration_error", "coverage_90", "coverage_closed_90",
    "accuracy", "cpu_seconds", "seconds", "rows_train", "rows_test",
)  # fmt: skip
_PRESET = "quick"
_STEP = 1.0  # between counts, and between grades
_DIGITS = {"cpu_seconds": 1, "seconds": 1, "rows_train": 0, "rows_test": 0}
_OTHER_DIGITS = 4


def measure(cell: Cell, bench: Workbench) -> dict[str, object]:
    """Fit one method and score the test rows."""
    settings, rows = EXPERIMENT.methods[cell.method], split_rows(cell.dataset, cell.split, bench.data_dir)
    wall, processor = time.perf_counter(), time.process_time()
    if "peer" in settings:
        command = [peers_python(HERE), HERE / "peers.py", settings["peer"], cell.dataset, cell.split]
        said = subprocess.run(
            [*map(str, command), bench.data_dir or ""], capture_output=True, text=True, check=True
        ).stdout
        scores = json.loads(said.splitlines()[-1])
    else:
        model = estimator(settings, bench, cell.split).fit(rows.x, rows.y)
        predictive = model.predictive(rows.x_test)
        _ = predictive.point
        scores = {"cpu_seconds": time.process_time() - processor, **scores_of(predictive, rows)}
    found = scores | {"seconds": time.perf_counter() - wall}
    found |= {"rows_train": len(rows.y), "rows_test": len(rows.y_test)}
    return {name: round(found[name], _DIGITS.get(name, _OTHER_DIGITS)) for name in COLUMNS if name in found}


def estimator(settings: dict[str, Any], bench: Workbench, seed: int) -> MileRegressor | MileClassifier:
    """Return the estimator of a method; with all steps it is what users get."""
    kind = {"regressor": MileRegressor, "classifier": MileClassifier}[settings["estimator"]]
    sampler = "mile" if bench.scale == 1.0 else bench.scaled(configure("mile", _PRESET))
    likelihood = settings["likelihood"]
    return kind(likelihood=likelihood, preset=_PRESET, n_chains=bench.chains, sampler=sampler, random_state=seed)


def scores_of(predictive: Any, rows: Rows) -> dict[str, float]:
    """Return the scores that suit a prediction, with the log probability of the observed value as `lppd`."""
    y = rows.y_test
    found = predictive.scores(y)
    if hasattr(predictive, "probs"):  # of classes and of grades
        found["rmse"] = float(np.sqrt(np.mean(np.square(predictive.probs @ predictive.classes - y))))
    if hasattr(predictive, "inside"):
        found["coverage_closed_90"] = float(np.mean(predictive.inside(y)))
    if predictive.log_prob_label == "log density":
        cells = predictive.cdf(y + 0.5 * _STEP) - predictive.cdf(y - 0.5 * _STEP)
        found |= {"lppd_density": found["lppd"], "lppd": float(np.mean(np.log(cells)))}
    return found


WORK = Work(measure=measure, columns=COLUMNS, load=load)

if __name__ == "__main__":
    main(__file__, WORK)
