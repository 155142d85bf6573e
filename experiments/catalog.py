"""What experiments there are: each folder with an experiment.toml, read into an `Experiment`. Loads nothing heavy."""

import difflib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from summaries import Summary

EXPERIMENTS = Path(__file__).resolve().parent
RUNS = EXPERIMENTS.parent / "runs" / "paper"  # run directories, and rows that the repository does not keep
CONFIGURATION = "experiment.toml"
_SHORT = 0.1  # minutes of a row whose cost is not stated: a deep ensemble, or what comes with another row's fit


class Cell(NamedTuple):
    """What one row of a summary is about."""

    dataset: str
    method: str
    protocol: str
    split: int

    def __str__(self) -> str:
        return f"{self.dataset}, {self.method}, {self.protocol} protocol, split {self.split}"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """The content of an experiment.toml; experiments/README.md explains its fields."""

    folder: Path
    title: str
    description: str
    rows: Sequence[Mapping[str, Any]]
    order: int = 100
    chains: int = 12
    methods: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    minutes: Mapping[str, Any] = field(default_factory=dict)
    by: Sequence[str] = ("dataset", "method", "protocol")
    metrics: Sequence[str] = ("lppd",)
    paper: Mapping[str, Any] = field(default_factory=dict)
    remarks: Mapping[str, str] = field(default_factory=dict)
    remark: str = ""
    arguments: Sequence[str] | None = None  # of a run.py with options of its own
    page: str = ""  # script with a function `markdown(rows)`, shown in docs/results.md instead of the table

    @classmethod
    def read(cls, folder: Path) -> "Experiment":
        """Read the configuration in a folder.

        Raises
        ------
        ValueError
            If it has a field that is not known, or lacks one.
        """
        path = folder / CONFIGURATION
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        known = {entry.name for entry in fields(cls)} - {"folder"}
        if unknown := set(content) - known:
            raise ValueError(f"{path} has the unknown field {min(unknown)!r}; there are {', '.join(sorted(known))}.")
        if missing := {"title", "description", "rows"} - set(content):
            raise ValueError(f"{path} lacks the field {min(missing)!r}.")
        return cls(folder=folder, **content)

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.name

    @property
    def summary(self) -> Summary:
        """The rows that the repository keeps."""
        return Summary(self.folder / "summary.csv")

    @property
    def figure(self) -> Path | None:
        """The figure that the repository keeps, if there is one."""
        path = self.folder / "figure.png"
        return path if path.exists() else None

    @property
    def datasets(self) -> list[str]:
        """All data sets, in the order of their first row."""
        return list(dict.fromkeys(cell.dataset for cell in self.cells()))

    @property
    def protocols(self) -> list[str]:
        """All protocols, the one that is run by default first."""
        return list(dict.fromkeys(cell.protocol for cell in self.cells()))

    @property
    def method_names(self) -> list[str]:
        """All methods that have a row."""
        return list(dict.fromkeys(cell.method for cell in self.cells()))

    def cells(self, splits: int | None = None) -> Iterator[Cell]:
        """Yield all rows; `splits` instead of the planned number of splits."""
        for block in self.rows:
            for protocol in block.get("protocols", ["paper"]):
                for dataset in block["datasets"]:
                    for split in range(1, 1 + (splits or block.get("splits", 1))):
                        for method in block["methods"]:
                            yield Cell(dataset, method, protocol, split)

    def done(self, rows: Sequence[Mapping[str, str]]) -> int:
        """Count the planned rows that are there."""
        there = {tuple(row.get(name, "1") for name in Cell._fields) for row in rows}
        return sum(tuple(map(str, cell)) in there for cell in self.cells())

    def minutes_of(self, cell: Cell) -> float:
        """Return what a row is expected to take on two idle cores."""
        stated = self.minutes.get(cell.method, _SHORT)
        return float(stated.get(cell.dataset, _SHORT) if isinstance(stated, Mapping) else stated)

    def forecast(self) -> float:
        """Return the minutes of all rows."""
        return sum(map(self.minutes_of, self.cells()))


def experiments() -> list[Experiment]:
    """Return all experiments in the order in which they are shown."""
    found = [Experiment.read(path.parent) for path in EXPERIMENTS.glob(f"*/{CONFIGURATION}")]
    return sorted(found, key=lambda experiment: (experiment.order, experiment.name))


def find(name: str) -> Experiment:
    """Return the experiment of that name, in which '-' and '_' are the same.

    Raises
    ------
    ValueError
        If there is none.
    """
    known = {experiment.name: experiment for experiment in experiments()}
    wanted = name.replace("-", "_")
    if wanted not in known:
        close = difflib.get_close_matches(wanted, known, 1)
        question = f"; did you mean {close[0]!r}?" if close else "."
        raise ValueError(f"There is no experiment {name!r}{question} There are {', '.join(known)}.")
    return known[wanted]


def words(minutes: float) -> str:
    """Return a duration as people say it."""
    if minutes < 1.0:
        return "less than a minute"
    return f"about {minutes:.0f} min" if minutes < 120 else f"about {minutes / 60:.1f} h"
