"""MILE against boosters on five tables as people have them, each method at its defaults.

Usage: python experiments/mixed_tables/run.py --dataset titanic --splits 1 --data-dir FOLDER

Each method runs in a process of its own, with `--threads` cores (default 2) and a `--time-limit` in minutes (default
30). Rows are added to summary.csv as they finish, and what stands there is not run again. `--most-rows` takes that many
rows of each table, for a trial, and keeps the scores out of summary.csv. The peers are installed into a folder of their
own on first use.
"""

import argparse
import functools
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "alternatives"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import campaign
from catalog import RUNS, Cell
from isolation import Limits, peers_python, run_script
from tables import load
from workbench import Workbench

HERE = Path(__file__).resolve().parent
COLUMNS = (
    "dataset", "method", "protocol", "split", "lppd", "lppd_raw", "crps", "rmse", "log_loss", "accuracy", "coverage",
    "interval_score", "seconds", "cpu_seconds", "rows_train", "rows_test", "unit",
)  # fmt: skip
OURS = ("mile-default",)
_MINUTES = 30.0
_DIGITS = {"seconds": 1, "cpu_seconds": 1}
_OTHER_DIGITS = 4


def main(arguments: Sequence[str] | None = None) -> None:
    """Take the options of this script, leave the others to the command line of all experiments."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--threads", type=int, default=Limits.threads)
    parser.add_argument("--time-limit", type=float, default=_MINUTES)
    parser.add_argument("--most-rows", type=int, default=0)
    own, others = parser.parse_known_args(arguments)
    if own.most_rows and "--summary" not in others:
        others += ["--summary", str(RUNS / "mixed_tables" / f"summary.rows-{own.most_rows}.csv")]
    failed: list[str] = []
    limits = Limits(threads=own.threads, minutes=own.time_limit)
    measuring = functools.partial(measure, limits=limits, most_rows=own.most_rows, failed=failed)
    campaign.main(__file__, campaign.Work(measure=measuring, columns=COLUMNS, load=load), others)
    if failed:
        sys.exit(f"{len(failed)} of the runs failed: {', '.join(failed)}")


def measure(
    cell: Cell, bench: Workbench, *, limits: Limits, most_rows: int, failed: list[str]
) -> dict[str, object] | None:
    """Run one method on one split; a row without scores if it took too long, no row if it failed."""
    log = Path(bench.runs or ".") / "mixed_tables" / f"{cell.dataset}-{cell.method}-{cell.split}.log"
    script, python = ("ours.py", sys.executable) if cell.method in OURS else ("peers.py", peers_python(HERE))
    command = [python, HERE / script, cell.method, cell.dataset, bench.data_dir or "", most_rows]
    scores = run_script(command, seed=cell.split, bench=bench, limits=limits, log=log)
    if scores is None:
        failed.append(log.name)
        said = log.read_text(errors="replace").splitlines() if log.exists() else []
        print(f"    failed: {said[-1] if said else 'no message'} (see {log})", flush=True)
        return None
    if "lppd" not in scores:
        print(f"    stopped after {limits.minutes:g} minutes", flush=True)
    return {name: round(value, _DIGITS.get(name, _OTHER_DIGITS)) for name, value in scores.items()}


if __name__ == "__main__":
    main()
