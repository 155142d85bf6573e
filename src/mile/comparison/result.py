"""The comparison itself: whose scores differ from the best model's by more than chance."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape

import numpy as np
from jaxtyping import Float, Int

from mile import metrics
from mile._printable import aligned, html_table, one_line
from mile.comparison.candidates import Candidate
from mile.fitting.unseen import Estimate, show, summarize

_LEVEL = 2.0  # standard errors that a difference must exceed to be one
_FEWEST_ROWS = 10  # with fewer a standard error says nothing
_SAME = 1e-4  # of the spread of outcomes: how exactly two fits must have seen the same ones
_NAME = 40  # characters


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Models on the same rows, the best in LPPD first. Its repr is a table; notebooks show it as one.

    Attributes
    ----------
    candidates
        The models, each with its scores of the same rows in the same order.
    rows
        What the rows are, such as "442 out-of-fold rows".
    """

    candidates: tuple[Candidate, ...]
    rows: str

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the models, the best in LPPD first."""
        return tuple(candidate.name for candidate in self.candidates)

    @property
    def best(self) -> str:
        """The model with the highest LPPD."""
        return self.names[0]

    @cached_property
    def scores(self) -> dict[str, dict[str, Estimate]]:
        """Scores of each model by name, with standard errors over rows."""
        shared = set.intersection(*(set(candidate.row_scores) for candidate in self.candidates))
        return {
            candidate.name: summarize(
                {name: values for name, values in candidate.row_scores.items() if name in shared}, candidate.weight
            )
            for candidate in self.candidates
        }

    @cached_property
    def differences(self) -> dict[str, Estimate]:
        """LPPD of each model less that of the best, with the standard error of that difference, row by row."""
        first = self.candidates[0].row_scores["lppd"]
        return {
            candidate.name: summarize({"lppd": candidate.row_scores["lppd"] - first}, candidate.weight)["lppd"]
            for candidate in self.candidates
        }

    @property
    def level(self) -> tuple[str, ...]:
        """The models that rows cannot tell from the best: those within two standard errors, itself included."""
        return tuple(name for name, found in self.differences.items() if -found.value <= _LEVEL * found.standard_error)

    def row_differences(self, name: str, other: str) -> tuple[Int[np.ndarray, " row"], Float[np.ndarray, " row"]]:
        """Return the numbers of the rows, and by how much the log density of `name` is above that of `other`."""
        first, second = (self._named(one) for one in (name, other))
        return first.number, first.row_scores["lppd"] - second.row_scores["lppd"]

    def frame(self) -> dict[str, list[object]]:
        """Return the table as a mapping of names to columns, as `pandas.DataFrame` takes it."""
        found: dict[str, list[object]] = {"model": list(self.names)}
        found["difference"] = [self.differences[name].value for name in self.names]
        found["difference_se"] = [self.differences[name].standard_error for name in self.names]
        found["level"] = [name in self.level for name in self.names]
        for score in self.scores[self.best]:
            found[score] = [self.scores[name][score].value for name in self.names]
            found[f"{score}_se"] = [self.scores[name][score].standard_error for name in self.names]
        for field in self.candidates[0].cost._fields:
            found[field] = [candidate.cost._asdict()[field] for candidate in self.candidates]
        return found

    def sentence(self) -> str:
        """Say which model is best and which ones are as good."""
        if len(self.level) > 1:
            others = ", ".join(one_line(name, _NAME) for name in self.level[1:])
            return f"{one_line(self.best, _NAME)} is first in LPPD; within two standard errors of it: {others}."
        return f"{one_line(self.best, _NAME)} is first in LPPD, by more than two standard errors."

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Return the header and the lines of the table, as texts."""
        scores = self.scores[self.best]
        header = ["model", "LPPD less the best's", *(metrics.SCORES[name].label for name in scores)]
        header += ["gradients", "seconds"]
        lines = []
        for candidate in self.candidates:
            own, difference = self.scores[candidate.name], self.differences[candidate.name]
            is_best = candidate.name == self.best
            lines.append(
                [
                    one_line(candidate.name, _NAME),
                    "" if is_best else f"{difference.value:.4f} ± {difference.standard_error:.4f}",
                    *(show(name, own[name]) for name in scores),
                    f"{candidate.cost.gradient_evaluations:,}",
                    "" if candidate.cost.seconds is None else f"{candidate.cost.seconds:,.0f}",
                ]
            )
        return header, lines

    def __repr__(self) -> str:
        header, lines = self.cells()
        return "\n".join([f"{self.rows}; ± one standard error", *aligned([header, *lines]), self.sentence()])

    def _repr_html_(self) -> str:
        header, lines = self.cells()
        return f"<p>{escape(self.rows)}; ± one standard error. {escape(self.sentence())}</p>{html_table(header, lines)}"

    def _named(self, name: str) -> Candidate:
        for candidate in self.candidates:
            if candidate.name == name:
                return candidate
        raise ValueError(f"no model is called {name!r}; there are {list(self.names)}.")


def compare_candidates(candidates: Sequence[Candidate], rows: str) -> Comparison:
    """Return the comparison of models on the rows that all of them have.

    Raises
    ------
    ValueError
        If there are fewer than two models, names repeat, they share too few rows, or saw different outcomes.
    """
    names = [candidate.name for candidate in candidates]
    if len(names) < 2:
        raise ValueError(f"a comparison needs at least two models; got {len(names)}.")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"each model needs a name of its own; {twice[0]!r} stands for several.")
    number = candidates[0].number
    for candidate in candidates[1:]:
        number = np.intersect1d(number, candidate.number)
    if len(number) < _FEWEST_ROWS:
        raise ValueError(
            f"the models {names} share {len(number)} rows, and a comparison needs {_FEWEST_ROWS}: give rows to compare "
            "by (X and y, or --data)."
        )
    chosen = [candidate.take(number) for candidate in candidates]
    _check_same_outcomes(chosen)
    ranked = sorted(chosen, key=lambda candidate: -_lppd(candidate))
    return Comparison(tuple(ranked), f"{len(number):,} {rows}")


def _lppd(candidate: Candidate) -> float:
    return summarize({"lppd": candidate.row_scores["lppd"]}, candidate.weight)["lppd"].value


def _check_same_outcomes(candidates: Sequence[Candidate]) -> None:
    """Refuse fits of other rows or another target: their scores do not compare."""
    first = candidates[0]
    for other in candidates[1:]:
        if set(first.row_scores) & {"accuracy"} != set(other.row_scores) & {"accuracy"}:
            raise ValueError(f"{first.name!r} and {other.name!r} cannot be compared: one predicts classes.")
        if first.mean is None or first.distance is None or other.mean is None or other.distance is None:
            continue
        apart = np.min(
            [
                np.abs((first.mean + one * first.distance) - (other.mean + another * other.distance))
                for one in (-1.0, 1.0)
                for another in (-1.0, 1.0)
            ],
            axis=0,
        )
        spread = np.std(first.mean) + np.mean(first.distance)
        wrong = np.flatnonzero(apart > _SAME * spread)
        if wrong.size:
            raise ValueError(
                f"{first.name!r} and {other.name!r} were fitted to different outcomes, first in row "
                f"{first.number[wrong[0]]}: fit both to the same rows, or give rows to compare by (X and y, or --data)."
            )
