"""The command line that all experiments share: run the rows that are missing, draw the figure, print the table."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from catalog import RUNS, Cell, Experiment, words
from comparison import compare, text_table
from summaries import Summary
from workbench import Workbench

from mile import FitFailedError, ResourceError, RunLockedError

_FAILED, _STOPPED = 1, 130  # exit codes
_SHORT = 0.1  # minutes to score a fit that is there
_MOST_SHOWN = 7  # columns of a finished row
# What the library raises on purpose; each message stands for itself.
_OURS = (ValueError, OSError, ImportError, FitFailedError, ResourceError, RunLockedError)

Row = Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Work:
    """What makes an experiment; each part is a function that its run.py defines.

    Attributes
    ----------
    measure
        Fits one cell and returns the columns of its row besides the cell's own; None: there is nothing to measure yet.
    columns
        Of the summary, the cell's first.
    load
        Called with each data set and the data folder before anything runs, so that a missing file is told at once.
    is_fitted
        Says whether the fit of a cell is there already; for the forecast.
    draw
        Draws the figure from the rows of the summary into a file.
    is_derived
        Whether rows follow from those of another experiment; then they are cheap, and written anew each time. A
        function says it of each cell.
    """

    measure: Callable[[Cell, Workbench], Row | None]
    columns: Sequence[str] = Summary.COLUMNS
    load: Callable[[str, str | None], Any] | None = None
    is_fitted: Callable[[Cell, Workbench], bool] | None = None
    draw: Callable[[list[dict[str, str]], Path], None] | None = None
    is_derived: bool | Callable[[Cell], bool] = False

    def derives(self, cell: Cell) -> bool:
        """Say whether the row of a cell is written anew each time."""
        return self.is_derived(cell) if callable(self.is_derived) else self.is_derived


def main(script: str, work: Work, arguments: Sequence[str] | None = None) -> None:
    """Be the command `python experiments/NAME/run.py`; `script` is its `__file__`."""
    experiment = Experiment.read(Path(script).resolve().parent)
    given = parser_of(experiment).parse_args(arguments)
    try:
        run(experiment, work, given)
    except KeyboardInterrupt:
        print("\nStopped. Rows that were finished are kept; the same command goes on with the rest.", file=sys.stderr)
        sys.exit(_STOPPED)
    except _OURS as error:
        print(f"Error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(_FAILED)


def parser_of(experiment: Experiment) -> argparse.ArgumentParser:
    """Return the parser of an experiment's options."""
    parser = argparse.ArgumentParser(prog=f"experiments/{experiment.name}/run.py", description=experiment.description)
    listed = ", ".join(experiment.datasets)
    parser.add_argument("--dataset", nargs="+", action="extend", metavar="NAME", help=f"default all: {listed}")
    parser.add_argument("--splits", type=_count, help="run splits 1 to this number; default as planned")
    methods = ", ".join(experiment.method_names)
    parser.add_argument("--methods", nargs="+", action="extend", metavar="NAME", help=f"default all: {methods}")
    protocols = [*experiment.protocols, "all"]
    parser.add_argument("--protocol", default=protocols[0], choices=protocols, help=f"default {protocols[0]}")
    parser.add_argument("--scale", type=_scale, default=1.0, help="multiplies the steps of each chain; default 1")
    parser.add_argument("--chains", type=_count, default=experiment.chains, help=f"default {experiment.chains}")
    parser.add_argument("--data-dir", help="folder with the data; default: MILE_DATA, or a download")
    parser.add_argument("--runs", type=Path, default=RUNS, help="folder of the run directories; default runs/paper")
    parser.add_argument("--again", action="store_true", help="compute rows that summary.csv has, into a file in --runs")
    parser.add_argument("--summary", type=Path, help="file of the rows; default summary.csv, at full size")
    return parser


def run(experiment: Experiment, work: Work, given: argparse.Namespace) -> None:
    """Run what is asked for and not there."""
    cells = _chosen(experiment, given)
    for dataset in dict.fromkeys(cell.dataset for cell in cells) if work.load else ():
        work.load(dataset, given.data_dir)
    bench = Workbench(
        runs=given.runs,
        data_dir=given.data_dir,
        scale=given.scale,
        chains=given.chains,
        planned_chains=experiment.chains,
        again=given.again,
    )
    summary = Summary(given.summary or bench.summary_of(experiment), work.columns)
    for cell in filter(work.derives, cells):
        summary.drop(**cell._asdict())
    missing = [cell for cell in cells if not summary.has(**cell._asdict())]
    _say_forecast(experiment, work, bench, missing, len(cells), summary.path)
    for number, cell in enumerate(missing, 1):
        print(f"[{number}/{len(missing)}] {cell}", flush=True)
        measured = work.measure(cell, bench)
        if measured is not None:
            summary.add(**cell._asdict(), **measured)
            print(f"    {_few(measured)}", flush=True)
    rows = summary.rows
    if rows and work.draw:
        figure = summary.path.with_name(summary.path.stem.replace("summary", "figure") + ".png")
        work.draw(rows, figure)
        print(f"\nFigure: {figure}")
    chosen = [row for row in rows if row["dataset"] in {cell.dataset for cell in cells}]
    print(f"\n{text_table(compare(experiment, chosen, judged=not bench.size))}\n\nRows: {summary.path}")


def _chosen(experiment: Experiment, given: argparse.Namespace) -> list[Cell]:
    """Return the cells that the options choose.

    Raises
    ------
    ValueError
        If a name is unknown, or there is no such combination.
    """
    datasets = _names("data set", given.dataset, experiment.datasets)
    methods = _names("method", given.methods, experiment.method_names)
    cells = [
        cell
        for cell in experiment.cells(given.splits)
        if cell.dataset in datasets and cell.method in methods and given.protocol in (cell.protocol, "all")
    ]
    if not cells:
        raise ValueError(f"No row of {experiment.name} is of these data sets, methods and this protocol at once.")
    return list(dict.fromkeys(cells))


def _names(kind: str, given: Sequence[str] | None, known: Sequence[str]) -> Sequence[str]:
    """Return the names that an option lists, with spaces or commas between them; all if it was not given."""
    if not given:
        return known
    names = [name.strip() for entry in given for name in entry.split(",")]
    if unknown := set(names) - set(known):
        raise ValueError(f"There is no {kind} {min(unknown)!r} here; there are {', '.join(known)}.")
    return names


def _say_forecast(
    experiment: Experiment, work: Work, bench: Workbench, missing: list[Cell], n_cells: int, path: Path
) -> None:
    """Say what is going to happen, and for how long."""
    if not missing:
        advice = "" if path != experiment.summary.path else " --again computes them anew, into a file of their own."
        print(f"All {n_cells} rows are in {path} already.{advice}")
        return
    minutes = 0.0
    for cell in missing:
        fitted = work.is_fitted is not None and work.is_fitted(cell, bench)
        full = experiment.minutes_of(cell) * bench.scale * bench.chains / bench.planned_chains
        minutes += _SHORT if fitted else max(_SHORT, full)
    print(
        f"{experiment.title}: {len(missing)} of {n_cells} rows to compute, {words(minutes)} on two idle cores. "
        "Stop with Ctrl-C whenever you like: the same command goes on where it was.",
        flush=True,
    )


def _few(row: Row) -> str:
    """Return the first columns of a row that are not empty."""
    return ", ".join([f"{name} {value}" for name, value in row.items() if value != ""][:_MOST_SHOWN])


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1; got {text!r}")
    return int(text)


def _scale(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < 1e3:
        raise argparse.ArgumentTypeError(f"must be a number above 0; got {text!r}")
    return value
