"""docs/results.md: all tables, figures and remarks, written from the summaries."""

import os
import runpy
from collections.abc import Mapping, Sequence
from pathlib import Path

from catalog import EXPERIMENTS, Experiment, experiments
from comparison import compare, markdown_table

PAGE = EXPERIMENTS.parent / "docs" / "results.md"
_HEAD = """# Results beside the paper's

Written by `mile paper table --write-docs` from the summaries in `experiments/`; do not edit.

Numbers are means ± standard errors over splits (no error: one split); the columns "paper" are those of the paper's
tables. The remark says how the first figure compares: *level* is a difference of at most two of its standard errors,
made of ours and the paper's as far as there are any, and of at most half of what separates the paper's deep ensemble
from its MILE. The column *method* names the sampler that ran: `stochastic` is not MILE, though its numbers stand beside
the paper's MILE. `mile paper run NAME` computes what is missing, `mile paper run NAME --again` computes everything on
your machine.
"""


def page() -> str:
    """Return the text of the page."""
    found = experiments()
    sections = "\n\n".join(map(section, found))
    contents = "\n".join(f"- [{entry.title}](#{_anchor(entry.title)}): {entry.description}" for entry in found)
    return f"{_HEAD}\n{contents}\n\n{sections}\n"


def section(experiment: Experiment) -> str:
    """Return one experiment's title, table, figure and remark."""
    rows = experiment.summary.rows
    n_rows = len(list(experiment.cells()))
    folder = f"../experiments/{experiment.name}"
    parts = [f"## {experiment.title}", f"{experiment.description} ([setting]({folder}/README.md))"]
    if rows:
        parts.append(_tables(experiment, rows))
    if experiment.figure is not None:
        parts.append(f"![{experiment.title}]({folder}/{experiment.figure.name})")
    parts += [experiment.remark.strip()] if experiment.remark else []
    where = f", in [summary.csv]({folder}/summary.csv)" if rows else ""
    parts.append(f"Rows: {experiment.done(rows)} of {n_rows}{where}.")
    return "\n\n".join(parts)


def _tables(experiment: Experiment, rows: Sequence[Mapping[str, str]]) -> str:
    """Return the table of all rows, or what the experiment makes of them."""
    if experiment.page:
        return runpy.run_path(str(experiment.folder / experiment.page))["markdown"](rows)
    return markdown_table(compare(experiment, rows))


def write_page(path: Path = PAGE) -> Path:
    """Write the page, whole or not at all, and return where it is."""
    temporary = path.with_suffix(".part")
    temporary.write_text(page(), encoding="utf-8")
    os.replace(temporary, path)
    return path


def _anchor(title: str) -> str:
    """Return the anchor that renderers of Markdown give a title."""
    kept = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")
