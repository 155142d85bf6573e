"""MILE against what users would pick instead, at default settings, on the six regression sets.

Usage: python experiments/alternatives/run.py --dataset yacht --splits 1 --data-dir FOLDER

Each method runs in a process of its own, with `--threads` cores (default 2) and a `--time-limit` in minutes (default
20). Rows are added to summary.csv as they finish, and what stands there is not run again. The peers are installed into
a folder of their own on first use.
"""

import argparse
import functools
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import campaign
from benchmark_data import load
from catalog import Cell
from chart import draw
from isolation import Limits, run_method
from protocols import row_order
from workbench import Workbench

COLUMNS = (
    "dataset", "method", "protocol", "split", "lppd", "crps", "rmse", "coverage", "interval_score", "seconds",
    "rows_train", "rows_test", "cpu_seconds",
)  # fmt: skip
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
    campaign.main(__file__, campaign.Work(measure=measuring, columns=COLUMNS, load=load, draw=draw), others)
    if failed:
        sys.exit(f"{len(failed)} of the runs failed: {', '.join(failed)}")


def measure(cell: Cell, bench: Workbench, *, limits: Limits, failed: list[str]) -> dict[str, object] | None:
    """Run one method on one split; a row without scores if it took too long, no row if it failed."""
    rows = split_rows(*load(cell.dataset, bench.data_dir), cell.split)
    log = Path(bench.runs or ".") / "alternatives" / f"{cell.dataset}-{cell.method}-{cell.split}.log"
    scores = run_method(cell.method, rows, seed=cell.split, bench=bench, limits=limits, log=log)
    if scores is None:
        failed.append(log.name)
        said = log.read_text(errors="replace").splitlines() if log.exists() else []
        print(f"    failed: {said[-1] if said else 'no message'} (see {log})", flush=True)
        return None
    if "rmse" not in scores:
        print(f"    stopped after {limits.minutes:g} minutes", flush=True)
    rounded = {name: round(value, _DIGITS.get(name, _OTHER_DIGITS)) for name, value in scores.items()}
    return rounded | {"rows_train": len(rows["y"]), "rows_test": len(rows["y_test"])}


def split_rows(x: np.ndarray, y: np.ndarray, split: int) -> dict[str, np.ndarray]:
    """Cut as the other experiments do and leave the numbers as they are.

    Their training and validation rows, 80 % together, go to everybody; methods set rows aside as they like.
    """
    train, valid, test = row_order(len(x), split)
    known = np.concatenate([train, valid])
    return {"x": x[known], "y": y[known], "x_test": x[test], "y_test": y[test]}


if __name__ == "__main__":
    main()
