"""MILE against Cox's regression and a random survival forest on two tables with censored times.

Usage: python experiments/survival/run.py --dataset veteran --data-dir FOLDER

Each method runs in a process of its own, with `--threads` cores (default 1) and a `--time-limit` in minutes (default
60). A split is one of five folds. Rows are added to summary.csv as they finish, and what stands there is not run again.
The peers are installed into a folder of their own on first use.
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
from catalog import Cell
from isolation import Limits, peers_python, run_script
from task import load
from workbench import Workbench

HERE = Path(__file__).resolve().parent
COLUMNS = (
    "dataset", "method", "protocol", "split", "concordance", "integrated_brier", "lppd", "seconds", "cpu_seconds",
    "rows_train", "rows_test",
)  # fmt: skip
OURS = ("mile-default", "mile-quick")
_MINUTES = 60.0
_DIGITS = {"seconds": 1, "cpu_seconds": 1}
_OTHER_DIGITS = 4


def main(arguments: Sequence[str] | None = None) -> None:
    """Take the options of this script, leave the others to the command line of all experiments."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--time-limit", type=float, default=_MINUTES)
    own, others = parser.parse_known_args(arguments)
    failed: list[str] = []
    measuring = functools.partial(measure, limits=Limits(threads=own.threads, minutes=own.time_limit), failed=failed)
    campaign.main(__file__, campaign.Work(measure=measuring, columns=COLUMNS, load=load), others)
    if failed:
        sys.exit(f"{len(failed)} of the runs failed: {', '.join(failed)}")


def measure(cell: Cell, bench: Workbench, *, limits: Limits, failed: list[str]) -> dict[str, object] | None:
    """Run one method on one fold; no row if it failed."""
    log = Path(bench.runs or ".") / "survival" / f"{cell.dataset}-{cell.method}-{cell.split}.log"
    script, python = ("ours.py", sys.executable) if cell.method in OURS else ("peers.py", peers_python(HERE))
    command = [python, HERE / script, cell.method, cell.dataset, bench.data_dir or ""]
    scores = run_script(command, seed=cell.split, bench=bench, limits=limits, log=log)
    if scores is None:
        failed.append(log.name)
        said = log.read_text(errors="replace").splitlines() if log.exists() else []
        print(f"    failed: {said[-1] if said else 'no message'} (see {log})", flush=True)
        return None
    return {name: round(value, _DIGITS.get(name, _OTHER_DIGITS)) for name, value in scores.items()}


if __name__ == "__main__":
    main()
