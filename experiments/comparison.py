"""Our rows beside the paper's: means over splits with standard errors, and a word on how they compare."""

import csv
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from catalog import EXPERIMENTS, Experiment
from summaries import mean_of


class Metric(NamedTuple):
    """A figure of a table, and how it follows from a column of the summary."""

    title: str
    column: str
    better: int = 0  # 1: higher is better, -1: lower is better, 0: neither, only the same or not
    factor: float = 1.0
    digits: int = 3


METRICS = {
    "lppd": Metric("LPPD", "lppd", 1),
    "nll": Metric("NLL", "lppd", -1, -1.0),
    "rmse": Metric("RMSE", "rmse", -1),
    "accuracy": Metric("accuracy", "accuracy", 1),
    "calibration_error": Metric("calibration error", "calibration_error", -1),
    "crps": Metric("CRPS", "crps", -1),
    "interval_score": Metric("interval score", "interval_score", -1),
    "seconds": Metric("seconds", "seconds", 0, 1.0, 1),
    "minutes": Metric("minutes", "seconds", 0, 1 / 60, 2),
    "gradient_evaluations": Metric("gradients, all chains", "gradient_evaluations", 0, 1.0, 0),
    "gradients_per_chain": Metric("gradients of a chain", "gradients_per_chain", 0, 1.0, 0),
    "ratio": Metric("times MILE's", "ratio", 0, 1.0, 1),
    "paper_minutes_ratio": Metric("minutes in the paper, times MILE's", "paper_minutes_ratio", 0, 1.0, 1),
    "parameters": Metric("parameters", "parameters", 0, 1.0, 0),
    "training_rows": Metric("training rows", "training_rows", 0, 1.0, 0),
    "sampling_seconds": Metric("seconds of sampling", "sampling_seconds", 0, 1.0, 1),
    "processor_seconds": Metric("processor seconds", "processor_seconds", 0, 1.0, 1),
    "gradient_microseconds": Metric("µs of a gradient", "gradient_microseconds", 0, 1.0, 1),
    "r_squared": Metric("R²", "r_squared"),
    "linear_r_squared": Metric("R², linear", "linear_r_squared"),
    "quadratic_r_squared": Metric("R², quadratic", "quadratic_r_squared"),
    "step_size": Metric("step size", "step_size", 0, 1.0, 4),
    "L": Metric("L", "L", 0, 1.0, 3),
    "ess": Metric("effective draws", "ess", 1, 1.0, 1),
    "ess_outer": Metric("effective draws, outer", "ess_outer", 1, 1.0, 1),
    "ess_inner": Metric("effective draws, inner", "ess_inner", 1, 1.0, 1),
    "chainwise_rhat": Metric("chainwise R-hat", "chainwise_rhat", -1),
    "percent_nan": Metric("% NaN", "non_finite_share", 0, 100.0, 0),
}


class Number(NamedTuple):
    """A mean and its standard error; NaN where there is none."""

    value: float = math.nan
    error: float = math.nan

    def text(self, digits: int) -> str:
        """Return it for a table."""
        if math.isnan(self.value):
            return ""
        known = not math.isnan(self.error) and (digits > 0 or self.error >= 0.5)  # a count that never varies has none
        return f"{self.value:,.{digits}f}" + (f" ± {self.error:,.{digits}f}" if known else "")


class Line(NamedTuple):
    """One line of a comparison."""

    names: tuple[str, ...]  # data set, method, and what else tells lines apart
    ours: Sequence[Number]  # one for each metric
    paper: Sequence[Number]
    n_rows: int
    remark: str


class Comparison(NamedTuple):
    """The lines of an experiment."""

    by: tuple[str, ...]
    metrics: Sequence[Metric]
    has_paper: Sequence[bool]  # for each metric, whether the paper has any such number
    lines: list[Line]


def compare(experiment: Experiment, rows: Sequence[Mapping[str, str]], *, judged: bool = True) -> Comparison:
    """Average the rows over splits and put the paper's numbers beside them; `judged`: with a word on who is better."""
    metrics = [metric_of(name) for name in experiment.metrics]
    groups: dict[tuple[str, ...], list[Mapping[str, str]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in experiment.by), []).append(row)
    lines = []
    for names, members in sorted(groups.items(), key=lambda group: _place(experiment, group[0])):
        known = dict(zip(experiment.by, names, strict=True))
        ours = [_mean(metric, members) for metric in metrics]
        paper = [paper_number(experiment, known, name) for name in experiment.metrics]
        said = [_verdict(experiment, known, ours, paper) if judged else "", experiment.remarks.get(known["method"], "")]
        said.append(experiment.remarks.get(f"{known['dataset']}, {known['method']}", ""))
        lines.append(Line(names, ours, paper, len(members), "; ".join(filter(None, said))))
    has_paper = [any(not math.isnan(line.paper[index].value) for line in lines) for index in range(len(metrics))]
    return Comparison(tuple(experiment.by), metrics, has_paper, lines)


def metric_of(name: str) -> Metric:
    """Return the metric of that name; one that is not known is the column of that name."""
    return METRICS.get(name, Metric(name.replace("_", " "), name))


def paper_number(experiment: Experiment, known: Mapping[str, str], metric: str) -> Number:
    """Return the paper's number for one of our lines, NaN if it has none."""
    paper = experiment.paper
    method = paper.get("methods", {}).get(known["method"])
    protocols = paper.get("protocols", [known.get("protocol")])  # without a list, the paper's stand beside all
    if method is None or known.get("protocol") not in protocols:
        return Number()
    return _printed(experiment, paper.get("tables", {}).get(known["method"], paper["table"]), known, method, metric)


def _printed(experiment: Experiment, table: str, known: Mapping[str, str], method: str, metric: str) -> Number:
    """Return what a table of the paper has for one of its methods on the data set of one of our lines."""
    paper = experiment.paper
    dataset, *model = paper.get("datasets", {}).get(known["dataset"], [known["dataset"]])
    for row in paper_numbers():
        key = [row["table"], row["dataset"], row["method"], row["metric"], row["model"]]
        if key == [table, dataset, method, metric, *(model or [row["model"]])]:
            error = _float(row["standard_error"])
            for correction in paper.get("corrections", ()):
                if (correction["dataset"], correction["method"], correction["metric"]) == (dataset, method, metric):
                    error = correction["standard_error"]
            return Number(_float(row["value"]), error)
    return Number()


def paper_numbers() -> list[dict[str, str]]:
    """Return the paper's tables, one row a number."""
    with (EXPERIMENTS / "paper_numbers.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def header(comparison: Comparison) -> list[str]:
    """Return the titles of a comparison's columns."""
    titles = ["data" if name == "dataset" else name.replace("_", " ") for name in comparison.by]
    for metric, has_paper in zip(comparison.metrics, comparison.has_paper, strict=True):
        titles += [metric.title, "paper"] if has_paper else [metric.title]
    return [*titles, "rows", "remark"]


def cells(comparison: Comparison, line: Line) -> list[str]:
    """Return one line of a comparison as text."""
    found = list(line.names)
    columns = zip(comparison.metrics, comparison.has_paper, line.ours, line.paper, strict=True)
    for metric, has_paper, ours, paper in columns:
        found += [ours.text(metric.digits), *([paper.text(metric.digits)] if has_paper else [])]
    return [*found, str(line.n_rows), line.remark]


def text_table(comparison: Comparison) -> str:
    """Return a comparison for the terminal."""
    lines = [header(comparison), *(cells(comparison, line) for line in comparison.lines)]
    if len(lines) == 1:
        return "There is no row yet."
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    left = {*range(len(comparison.by)), len(widths) - 1}  # names and remarks
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def markdown_table(comparison: Comparison) -> str:
    """Return a comparison for a page."""
    titles = header(comparison)
    lines = [f"| {' | '.join(titles)} |", "|" + "---|" * len(titles)]
    for line in comparison.lines:
        shown = (f"−{cell[1:]}" if cell.startswith("-") else cell for cell in cells(comparison, line))
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines)


def _mean(metric: Metric, rows: Sequence[Mapping[str, str]]) -> Number:
    values = [metric.factor * float(row[metric.column]) for row in rows if row.get(metric.column)]
    return Number(*mean_of(values)[:2])


def _verdict(experiment: Experiment, known: Mapping[str, str], ours: Sequence[Number], paper: Sequence[Number]) -> str:
    """Compare the first metric with the paper's, and name the others in which we are worse."""
    if known["dataset"] in experiment.paper.get("other_setting", ()):
        return ""  # a difference would mean nothing
    found = []
    for index, (name, mine, theirs) in enumerate(zip(experiment.metrics, ours, paper, strict=True)):
        metric, difference = metric_of(name), distance(mine, theirs, halfway(experiment, known, name))
        if difference is not None and round(difference, metric.digits) == 0.0:
            difference = 0.0  # nothing to print
        is_worse = metric.better * (difference or 0.0) < 0.0
        if difference is not None and (index == 0 or is_worse):
            word = ("worse" if is_worse else "better") if metric.better else "differs"
            title = "" if index == 0 else f"{metric.title} "
            found.append(f"{title}{word} by {abs(difference):.{metric.digits}f}" if difference else "level")
    return ", ".join(found)


def halfway(experiment: Experiment, known: Mapping[str, str], metric: str) -> float:
    """Return half of what separates the paper's deep ensemble from its MILE, infinite if it does not have both."""
    if "table" not in experiment.paper:
        return math.inf
    ensemble, mile = (
        _printed(experiment, experiment.paper["table"], known, method, metric).value for method in ("DE", "MILE")
    )
    gap = abs(ensemble - mile) / 2.0
    return math.inf if math.isnan(gap) else gap


def distance(ours: Number, paper: Number, most: float = math.inf) -> float | None:
    """Return by how much our figure is above the paper's: 0 within the errors, None if there are not both.

    Within the errors is a difference of at most two of its standard errors, and of at most `most`, lest what the paper
    itself tells apart be level. An error that is not known adds nothing: without any, every difference counts.
    """
    if math.isnan(ours.value) or math.isnan(paper.value):
        return None
    errors = [number.error for number in (ours, paper) if not math.isnan(number.error)]
    allowed = min(2.0 * math.hypot(*errors), most)
    difference = ours.value - paper.value
    return 0.0 if abs(difference) <= allowed else difference


def _place(experiment: Experiment, names: tuple[str, ...]) -> tuple:
    """Sort lines as the experiment lists data sets and methods; what it does not list comes last."""
    orders = {"dataset": experiment.datasets, "method": experiment.method_names, "protocol": experiment.protocols}

    def place(kind: str, name: str) -> tuple[int, str]:
        order = orders.get(kind, [])
        return (order.index(name) if name in order else len(order), name)

    places = {kind: place(kind, name) for kind, name in zip(experiment.by, names, strict=True)}
    return (places.pop("dataset"), places.pop("protocol", (0, "")), places.pop("method"), *places.values())


def _float(text: str) -> float:
    return float(text) if text else math.nan
