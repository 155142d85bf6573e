"""Gradient evaluations of a chain, NUTS against MILE, from the rows of the experiment uci.

Usage: python experiments/grad_evals/run.py

Nothing is fitted here: rows that uci lacks are named, with the command that makes them.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from campaign import Work, main
from catalog import Cell, find
from comparison import paper_number
from drawing import color_of, panels
from summaries import Summary, mean_of
from workbench import Workbench

UCI = find("uci")
COLUMNS = (*Cell._fields, "gradients_per_chain", "ratio", "paper_minutes_ratio", "chains", "draws")


def measure(cell: Cell, bench: Workbench) -> dict[str, object] | None:
    """Divide the gradients of a row of uci by its chains, and by those of MILE."""
    rows = Summary(bench.summary_of(UCI))
    found = {method: rows.find(**cell._replace(method=method)._asdict()) for method in (cell.method, "MILE")}
    for method, there in found.items():
        if not there:
            command = f"mile paper run uci --dataset {cell.dataset} --splits {cell.split} --methods {method}"
            print(f"    uci has no such row yet: {command}")
            return None
    row, base = found[cell.method][0], found["MILE"][0]
    number = per_chain(row)
    return {
        "gradients_per_chain": round(number),
        "ratio": round(number / per_chain(base), 2),
        "paper_minutes_ratio": "" if cell.method == "MILE" else round(paper_ratio(cell), 2),
        "chains": row["chains"],
        "draws": row["draws"],
    }


def per_chain(row: dict[str, str]) -> float:
    """Return the gradients of one chain of a row, on average."""
    return float(row["gradient_evaluations"]) / float(row["chains"])


def paper_ratio(cell: Cell) -> float:
    """Return how many times as long as MILE the paper's NUTS took to sample."""
    nuts, mile = (paper_number(UCI, cell._replace(method=name)._asdict(), "minutes") for name in (cell.method, "MILE"))
    return nuts.value / mile.value


def draw(rows: list[dict[str, str]], path: Path) -> None:
    """Show the gradients of a chain on each table."""
    with panels([""], path, "gradient evaluations of a chain", size=(6.5, 2.8)) as axes:
        ax = axes[""]
        names = [name for name in UCI.datasets if any(row["dataset"] == name for row in rows)]
        for dataset, method in dict.fromkeys((row["dataset"], row["method"]) for row in rows):
            chosen = [row for row in rows if (row["dataset"], row["method"]) == (dataset, method)]
            numbers = [float(row["gradients_per_chain"]) for row in chosen]
            estimated = method == "NUTS-20"
            ax.plot(
                numbers,
                [names.index(dataset)] * len(numbers),
                marker="o",
                ls="",
                color=color_of(method),
                mfc="none" if estimated else None,
                label="NUTS, estimated from 20 draws" if estimated else method,
            )
            if method != "MILE":
                ratio = mean_of([float(row["ratio"]) for row in chosen])[0]
                ax.annotate(f"  × {ratio:.1f}", (max(numbers), names.index(dataset)), va="center", fontsize="small")
        ax.set_xscale("log")
        ax.set_yticks(range(len(names)), names)
        ax.set_ylim(len(names) - 0.5, -0.5)
        ax.margins(x=0.2)


if __name__ == "__main__":
    main(__file__, Work(measure=measure, columns=COLUMNS, draw=draw, is_derived=True))
