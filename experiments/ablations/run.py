"""Settings of MILE, each changed alone: warm-up budget, range of the energy variance, memory, trust.

Usage: python experiments/ablations/run.py --data-dir FOLDER
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmark_data import load
from campaign import Work, main
from catalog import Cell, find
from drawing import color_of, error_bar, panels
from summaries import mean_of
from variants import is_fitted, try_out
from workbench import Workbench

EXPERIMENT = find("ablations")
COLUMNS = (
    *Cell._fields, "lppd", "rmse", "calibration_error", "step_size", "L", "gradient_evaluations", "seconds",
    "sampling_seconds", "processor_seconds", "gradient_microseconds", "chains", "draws",
)  # fmt: skip
STUDIES = {
    "warmup": "warm-up steps",
    "energy": "energy variance",
    "memory": "memory",
    "trust": "trust",
}
_SHOWN = {"lppd": "LPPD", "rmse": "RMSE", "step_size": "step size", "L": "L"}
_SHOWN_PROTOCOL = "paper"  # others have other grids
_DEFAULT, _MEMBERS = "default", "DE"


def measure(cell: Cell, bench: Workbench) -> dict[str, object]:
    """Fit one row, or load its fit, and score it; with what the tuning came to."""
    trial = try_out(EXPERIMENT, cell, bench)
    return trial.columns() | ({} if trial.by_members else tuned(trial.model))


def tuned(model: Any) -> dict[str, float]:
    """Return step size and L that the good chains sampled with, in the median."""
    last = list(model.chains.info.values())[-1]
    return {name: round(float(np.median(np.asarray(last[name])[model.ok])), 5) for name in ("step_size", "L")}


def values_of(study: str) -> dict[str, str]:
    """Return the values of a study in order, each with the method that has it."""
    planned = [cell.method for cell in EXPERIMENT.cells() if cell.protocol == _SHOWN_PROTOCOL]
    known = {name: name for name in planned if name.split()[0] == study}
    known |= {name: _DEFAULT for name in EXPERIMENT.methods[_DEFAULT]["stands_for"] if name.split()[0] == study}
    ordered = sorted(known, key=lambda name: [float(part) for part in name.split()[1].split("-")])
    return {name.split()[1]: known[name] for name in ordered}


def draw(rows: list[dict[str, str]], path: Path) -> None:
    """Show scores and tuned parameters against the values of each study; the default is filled."""
    rows = [row for row in rows if row["protocol"] == _SHOWN_PROTOCOL]
    names = {
        f"{title}: {shown}": (study, column) for column, shown in _SHOWN.items() for study, title in STUDIES.items()
    }
    with panels(list(names), path, "value of the setting", size=(2.7, 1.8), columns=len(STUDIES)) as axes:
        for title, (study, column) in names.items():
            ax = axes[title]
            for place, method in enumerate(values_of(study).values()):
                mean, error, n_rows = mean_of(_column(rows, method, column))
                if n_rows:
                    filled = {} if method == _DEFAULT else {"mfc": "none"}
                    label = "the paper's default" if method == _DEFAULT else "another value"
                    style = {"marker": "o", "ls": "", "color": color_of("MILE"), "capsize": 2}
                    ax.errorbar(place, mean, yerr=error_bar(error), label=label, **style, **filled)
            members, _, n_rows = mean_of(_column(rows, _MEMBERS, column))
            if n_rows:
                ax.axhline(members, color=color_of("DE"), lw=1, ls="--", label="deep ensemble")
            ax.set_xticks(range(len(values_of(study))), values_of(study), rotation=30)


def _column(rows: list[dict[str, str]], method: str, column: str) -> list[float]:
    return [float(row[column]) for row in rows if row["method"] == method and row.get(column)]


WORK = Work(measure=measure, columns=COLUMNS, load=load, is_fitted=partial(is_fitted, EXPERIMENT), draw=draw)

if __name__ == "__main__":
    main(__file__, WORK)
