"""Effective draws, chainwise R-hat and variances of a network with six hidden layers of 8, layer by layer.

Usage: python experiments/diagnostics/run.py --dataset airfoil --data-dir FOLDER
"""

import sys
from functools import partial
from pathlib import Path

import numpy as np

from mile.diagnose.diagnosis import Group, diagnose

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmark_data import load
from campaign import Work, main
from catalog import Cell, find
from drawing import color_of, panels
from summaries import mean_of
from variants import is_fitted, try_out
from workbench import Workbench

EXPERIMENT = find("diagnostics")
N_LAYERS = len(EXPERIMENT.methods["every"]["hidden"]) + 1
# Column of the summary -> the statistic of a group of weights.
STATISTICS = {"ess": "ess", "chainwise_rhat": "rhat", "between": "between", "within": "within"}
TITLES = {
    "ess": "effective draws of a chain",
    "chainwise_rhat": "chainwise R-hat",
    "between": "variance between chains",
    "within": "variance within chains",
}
COLUMNS = (
    *Cell._fields, "lppd", "rmse", "calibration_error", "gradient_evaluations", "seconds", "chains", "draws",
    *(f"{name}{part}" for name in STATISTICS for part in ("", "_outer", "_inner")),
    *(f"{name}_layer{layer}" for name in STATISTICS for layer in range(1, N_LAYERS + 1)),
)  # fmt: skip


def measure(cell: Cell, bench: Workbench) -> dict[str, object]:
    """Fit one row, or load its fit, and judge its chains."""
    trial = try_out(EXPERIMENT, cell, bench)
    scored = {name: value for name, value in trial.columns().items() if name in COLUMNS}
    return scored | layer_columns(diagnose(trial.model).groups)


def layer_columns(groups: tuple[Group, ...]) -> dict[str, float]:
    """Return the mean of each statistic in each layer, and their means over outer and inner layers and over all."""
    found: dict[str, float] = {}
    for name, field in STATISTICS.items():
        layers = np.array([_mean(getattr(group, field)) for group in groups])
        means = {"": layers.mean(), "_outer": layers[[0, -1]].mean(), "_inner": layers[1:-1].mean()}
        means |= {f"_layer{layer}": value for layer, value in enumerate(layers, 1)}
        found |= {f"{name}{part}": round(float(value), 6) for part, value in means.items()}
    return found


def draw(rows: list[dict[str, str]], path: Path) -> None:
    """Show each statistic layer by layer, a line of panels for each data set."""
    datasets = [name for name in EXPERIMENT.datasets if any(row["dataset"] == name for row in rows)]
    names = {f"{dataset}: {TITLES[name]}": (dataset, name) for dataset in datasets for name in STATISTICS}
    layers = np.arange(1, N_LAYERS + 1)
    with panels(list(names), path, "layer", size=(2.7, 2.0), columns=len(STATISTICS)) as axes:
        for title, (dataset, name) in names.items():
            for method in EXPERIMENT.method_names:
                chosen = [row for row in rows if (row["dataset"], row["method"]) == (dataset, method)]
                if chosen:
                    found = [mean_of([float(row[f"{name}_layer{layer}"]) for row in chosen]) for layer in layers]
                    means, errors, _ = np.array(found).T
                    style = {"color": color_of(method), "marker": "o", "ms": 3, "lw": 1.2, "capsize": 2}
                    axes[title].errorbar(layers, means, yerr=np.nan_to_num(errors), label=method, **style)
            axes[title].set_xticks(layers)


def _mean(values: np.ndarray) -> float:
    """Return the mean of what is known: a weight that never moves has no R-hat."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else float("nan")


WORK = Work(measure=measure, columns=COLUMNS, load=load, is_fitted=partial(is_fitted, EXPERIMENT), draw=draw)

if __name__ == "__main__":
    main(__file__, WORK)
