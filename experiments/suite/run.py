"""MILE at its defaults against what users would take instead, on 46 small and medium tables.

Usage: python experiments/suite/run.py --dataset yacht epil --splits 1 --data-dir FOLDER

Each method runs in a process of its own, with `--threads` cores (default 2) and a `--time-limit` in minutes (default
20). Rows are added to summary.csv as they finish, and what stands there is not run again. The peers, and the package
that has the tables of R, are installed into a folder of their own on first use.
"""

import argparse
import functools
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "alternatives"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "mixed_tables"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import campaign
from catalog import Cell
from export import KINDS
from isolation import Limits, peers_python, run_script
from suite_chart import draw
from suite_tables import OF_R, path_of
from suite_task import density_file, standard_error
from workbench import Workbench

HERE = Path(__file__).resolve().parent
COLUMNS = (
    "dataset", "method", "protocol", "split", "lppd", "lppd_se", "crps", "rmse", "log_loss", "accuracy", "coverage",
    "coverage_conformal", "interval_score", "constant", "std_train", "std_test", "std_out", "std_far",
    "minus_ensemble", "minus_ensemble_se", "minus_de", "minus_de_se", "oof_lppd", "oof_lppd_se", "oof_crps",
    "setting", "seconds", "cpu_seconds", "rows_train", "rows_test", "unit",
)  # fmt: skip
DEFAULT, ENSEMBLE = "mile-default", "ensemble"
OURS = (DEFAULT, ENSEMBLE, "de")
_COMPARED = (ENSEMBLE, "de")
_DIGITS = {"seconds": 1, "cpu_seconds": 1}
_OTHER_DIGITS = 4


def main(arguments: Sequence[str] | None = None) -> None:
    """Take the options of this script, leave the others to the command line of all experiments."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--threads", type=int, default=Limits.threads)
    parser.add_argument("--time-limit", type=float, default=Limits.minutes)
    own, others = parser.parse_known_args(arguments)
    failed: list[str] = []
    limits = Limits(threads=own.threads, minutes=own.time_limit)
    measuring = functools.partial(measure, limits=limits, failed=failed)
    campaign.main(__file__, campaign.Work(measure=measuring, columns=COLUMNS, load=find, draw=draw), others)
    if failed:
        sys.exit(f"{len(failed)} of the runs failed: {', '.join(failed)}")


def find(name: str, data_dir: str | None) -> None:
    """Complain of a table that is not there; those of R are written when they are needed."""
    if name not in OF_R:
        path_of(name, data_dir, Path())


def measure(cell: Cell, bench: Workbench, *, limits: Limits, failed: list[str]) -> dict[str, object] | None:
    """Run one method on one split; a row without scores if it took too long, no row if it failed.

    The starting ensemble comes with the fit of the default, which leaves its row among what is kept.
    """
    folder = Path(bench.runs or ".") / f"suite{bench.size}"
    kept = folder / "rows"
    left = ensemble_file(kept, cell.dataset, cell.split)
    if cell.method != ENSEMBLE or not left.exists():
        found = _run(cell, bench, folder, limits)
        if found is None or "lppd" not in found:
            return _explained(cell, folder, limits, failed, found)
    if cell.method == ENSEMBLE:
        found = json.loads(left.read_text())
    return rounded(found | (differences(kept, cell) if cell.method == DEFAULT else {}))


def _run(cell: Cell, bench: Workbench, folder: Path, limits: Limits) -> dict | None:
    method = DEFAULT if cell.method == ENSEMBLE else cell.method
    script, python = ("suite_ours.py", sys.executable) if method in OURS else ("suite_peers.py", peers_python(HERE))
    command = [python, HERE / script, method, cell.dataset, bench.data_dir or "", exported(folder), folder / "rows"]
    return run_script(command, seed=cell.split, bench=bench, limits=limits, log=_log(folder, cell))


def _explained(
    cell: Cell, folder: Path, limits: Limits, failed: list[str], found: dict[str, float] | None
) -> dict[str, object] | None:
    log = _log(folder, cell)
    if found is not None:
        print(f"    stopped after {limits.minutes:g} minutes", flush=True)
        return rounded(found)
    failed.append(log.name)
    said = log.read_text(errors="replace").splitlines() if log.exists() else []
    print(f"    failed: {said[-1] if said else 'no message'} (see {log})", flush=True)
    return None


def _log(folder: Path, cell: Cell) -> Path:
    return folder / "logs" / f"{cell.dataset}-{cell.method}-{cell.split}.log"


def exported(folder: Path) -> Path:
    """Return the folder with the tables of R as CSV files, written on first use."""
    tables = folder / "tables"
    if not (tables / KINDS).exists():
        subprocess.run([peers_python(HERE), HERE / "export.py", tables], check=True)
    return tables


def ensemble_file(kept: Path, name: str, split: int) -> Path:
    """Return where the row of the starting ensemble is left."""
    return density_file(kept, name, ENSEMBLE, split).with_suffix(".json")


def differences(kept: Path, cell: Cell) -> dict[str, float]:
    """Return how far the default's LPPD is above that of the ensembles, with the standard error over test rows.

    Of those whose densities are there: the fair deep ensemble must have been run before.
    """
    ours = np.load(density_file(kept, cell.dataset, DEFAULT, cell.split))
    found: dict[str, float] = {}
    for method in _COMPARED:
        file = density_file(kept, cell.dataset, method, cell.split)
        if file.exists():
            gain = ours - np.load(file)
            found |= {f"minus_{method}": float(gain.mean()), f"minus_{method}_se": standard_error(gain)}
    return found


def rounded(found: dict) -> dict[str, object]:
    """Return what the summary keeps; `unit` and words stay readable at any size."""
    return {name: value if isinstance(value, str) else _short(name, value) for name, value in found.items()}


def _short(name: str, value: float) -> float:
    return float(f"{value:.6g}") if name == "unit" else round(value, _DIGITS.get(name, _OTHER_DIGITS))


if __name__ == "__main__":
    main()
