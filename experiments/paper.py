"""The command behind `mile paper`: list the experiments, run one, show its table, write the page of results."""

import argparse
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from catalog import EXPERIMENTS, RUNS, Experiment, experiments, find, words
from comparison import compare, text_table
from results_page import PAGE, write_page

_FAILED, _STOPPED = 1, 130  # exit codes


def list_all() -> None:
    """Print a line for each experiment."""
    lines = [("name", "title", "rows", "all rows take", "data")]
    for experiment in experiments():
        n_rows = len(list(experiment.cells()))
        done = f"{experiment.done(experiment.summary.rows)} of {n_rows}"
        data = ", ".join(experiment.datasets)
        lines.append((experiment.name, experiment.title, done, words(experiment.forecast()), data))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]) - 1)]
    for *cells, last in lines:
        print("  ".join([*(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)), last]))
    print("\nRun one with `mile paper run NAME`, compare with `mile paper table NAME`.")


def run(name: str, options: Sequence[str]) -> None:
    """Run the script of an experiment in this process, with these options."""
    experiment = find(name)
    script = experiment.folder / "run.py"
    arguments = list(options) if experiment.arguments is None else _own_arguments(experiment, options)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.parent))
    runpy.run_path(str(script), run_name="__main__")


def _own_arguments(experiment: Experiment, options: Sequence[str]) -> list[str]:
    """Return the arguments of a script with options of its own.

    Raises
    ------
    ValueError
        If it has no such option.
    """
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--data-dir")
    parser.add_argument("--summary")
    parser.add_argument("--runs", type=Path, default=RUNS)
    parser.add_argument("--again", action="store_true")
    given, others = parser.parse_known_args(list(options))
    if others:
        script = f"experiments/{experiment.name}/run.py"
        raise ValueError(f"{experiment.name} does not take {others[0]} here; see python {script} --help.")
    arguments = list(experiment.arguments or ())
    arguments += [] if given.data_dir is None else ["--data-dir", given.data_dir]
    if given.again and given.summary is None:
        folder = given.runs / experiment.name
        folder.mkdir(parents=True, exist_ok=True)
        given.summary = folder / "summary.csv"
    n_rows, done = len(list(experiment.cells())), experiment.done(experiment.summary.rows)
    left = n_rows if given.summary else n_rows - done
    minutes = experiment.forecast() * left / n_rows
    print(f"{experiment.title}: {left} of {n_rows} rows to compute, {words(minutes)} on two idle cores.", flush=True)
    return arguments + ([] if given.summary is None else ["--summary", str(given.summary)])


def show_tables(name: str | None) -> None:
    """Print our rows beside the paper's, of one experiment or all."""
    for experiment in experiments() if name is None else [find(name)]:
        rows = experiment.summary.rows
        done, planned = experiment.done(rows), len(list(experiment.cells()))
        print(f"{experiment.title} ({experiment.name}): {done} of {planned} rows\n")
        print(text_table(compare(experiment, rows)))
        if experiment.remark:
            print(f"\n{experiment.remark.strip()}")
        print()


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line; `run` leaves all options but the name to the experiment's own script."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="mile paper", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="name, title, cost and state of each experiment")
    running = commands.add_parser("run", help="run the rows of an experiment that are not there yet", add_help=False)
    running.add_argument("name")
    running.add_argument("options", nargs=argparse.REMAINDER)
    table = commands.add_parser("table", help="our numbers beside the paper's")
    table.add_argument("name", nargs="?")
    table.add_argument("--write-docs", action="store_true", help=f"also write {PAGE.relative_to(EXPERIMENTS.parent)}")
    chosen = parser.parse_args(given)
    try:
        if chosen.command == "list":
            list_all()
        elif chosen.command == "run":
            run(chosen.name, chosen.options)
        else:
            show_tables(chosen.name)
            if chosen.write_docs:
                print(f"Wrote {write_page()}.")
    except KeyboardInterrupt:
        print("\nStopped. Rows that were finished are kept; the same command goes on with the rest.", file=sys.stderr)
        sys.exit(_STOPPED)
    except (ValueError, OSError, ImportError) as error:
        print(f"Error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(_FAILED)


if __name__ == "__main__":
    main()
