"""Ordered grades as numbers, such as stars or a quality from 3 to 8: cumulative logits with learned thresholds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from mile import _registry
from mile._checks import check_number, check_tuple
from mile._types import Outputs
from mile.likelihoods._thresholds import check_thresholds, even_thresholds, log_probabilities, thresholds_of
from mile.likelihoods.atoms import AtomPredictive
from mile.likelihoods.base import (
    AbstractResponse,
    Encoded,
    Evaluate,
    Mixture,
    NativeHead,
    OutputsOfDraws,
    PerDraw,
    PerRow,
    Tensors,
)
from mile.likelihoods.components import AbstractComponents
from mile.likelihoods.numbers import AbstractNumberLikelihood
from mile.likelihoods.weights import EQUAL, DrawWeights

_MOST_GRADES = 100
_LEAST_STD = 1e-12


@dataclass(frozen=True)
class GradedResponse(AbstractResponse):
    """Grades, as codes from 0."""

    grades: tuple[float, ...]

    def encode(self, y: np.ndarray) -> Encoded:
        """Return the code of each grade, in float32."""
        refuse_other(self.grades, y)
        return np.searchsorted(np.asarray(self.grades), np.asarray(y, np.float64)).astype(np.float32)

    def decode(self, encoded: np.ndarray) -> np.ndarray:
        """Return the grade of each code."""
        return np.asarray(self.grades)[np.asarray(encoded).astype(int)]

    def usable(self, y: np.ndarray) -> np.ndarray:
        """Return which entries are grades."""
        return np.isin(np.asarray(y, float), self.grades)

    def tensors(self) -> dict[str, np.ndarray]:
        """Return nothing: the likelihood has the grades."""
        return {}


def refuse_other(grades: Sequence[float], y: np.ndarray) -> None:
    """Refuse what is none of the grades.

    Raises
    ------
    ValueError
        If there is such a value; the message has its row.
    """
    wrong = np.flatnonzero(~np.isin(np.asarray(y, np.float64), grades))
    if wrong.size:
        raise ValueError(
            f"y has {float(y[wrong[0]]):g} in row {wrong[0]} ({wrong.size:,} such rows), which is none of the grades "
            f"{', '.join(f'{grade:g}' for grade in grades)}. Correct it, or give all grades: "
            "likelihood=Ordinal(grades=(...))."
        )


@_registry.likelihood("ordinal")
@dataclass(frozen=True)
class Ordinal(AbstractNumberLikelihood):
    """Ordered grades: outputs for a location, and for how far apart neighboring thresholds are.

    A grade up to k has the probability 1 / (1 + exp(location - threshold k)). `likelihood="ordinal"` takes the values
    in y for grades.

    Parameters
    ----------
    grades
        All grades as numbers, in ascending order.
    cuts
        Thresholds where the outputs are zero. None: learned when the model is fitted, so that each grade has its share
        of the rows.
    """

    grades: tuple[float, ...]
    cuts: tuple[float, ...] | None = None

    head = "ordinal"

    def __post_init__(self) -> None:
        grades = [check_number("each of grades", grade) for grade in check_tuple("grades", self.grades, "numbers")]
        if not 2 <= len(grades) <= _MOST_GRADES or not np.all(np.diff(grades) > 0):
            raise ValueError(f"grades must be 2 to {_MOST_GRADES} numbers in ascending order; got {self.grades!r}.")
        if self.cuts is not None:
            check_thresholds(self.cuts, len(grades))

    @property
    def n_outputs(self) -> int:
        """Location, and the log of each distance between thresholds."""
        return len(self.grades) - 1

    @classmethod
    def check(cls, y: np.ndarray) -> np.ndarray:
        """Return the response in float64, or say that it has too few or too many values for grades."""
        y = super().check(y)
        n_values = len(np.unique(y))
        if n_values > _MOST_GRADES:
            row = int(np.argmax(y != np.round(y)))
            raise ValueError(
                f"y has {n_values:,} different values, such as {y[row]:g} in row {row}, and an {cls.__name__} is of at "
                f'most {_MOST_GRADES} grades. Numbers need a likelihood such as "gaussian", counts one such as '
                '"negative_binomial".'
            )
        return y

    @classmethod
    def for_response(cls, y: np.ndarray) -> "Ordinal":
        """Return the likelihood of the grades that y has."""
        grades = np.unique(y).tolist()
        if len(grades) < 2:
            raise ValueError(f"y has only the value {grades[0]:g}, in all rows: an {cls.__name__} needs two grades.")
        return cls(grades=tuple(grades))

    def learn(self, y: np.ndarray, rows: Int[np.ndarray, " chosen"], weight: PerRow | None = None) -> AbstractResponse:
        """Take the grades from this likelihood, and refuse others."""
        refuse_other(self.grades, y)
        return GradedResponse(self.grades)

    def plain_response(self) -> AbstractResponse:
        """Return the encoding of codes as themselves."""
        return GradedResponse(tuple(float(code) for code in range(len(self.grades))))

    def restore_response(self, tensors: Tensors) -> AbstractResponse:
        """Return the encoding of the grades."""
        return GradedResponse(self.grades)

    def check_encoded(self, y: Encoded, name: str) -> None:
        """Refuse what is not a code from 0 to one less than the number of grades."""
        super().check_encoded(y, name)
        wrong = np.flatnonzero(~np.isin(y, np.arange(len(self.grades))))
        if wrong.size:
            raise ValueError(
                f"{name} has {y[wrong[0]]:g} in row {wrong[0]}; with {len(self.grades)} grades the codes are 0 to "
                f"{len(self.grades) - 1}."
            )

    def fitted(self, y: Encoded) -> "Ordinal":
        """Return this likelihood with thresholds that give each grade its share of the rows."""
        if self.cuts is not None:
            return self
        return replace(self, cuts=thresholds_of(np.asarray(y).astype(int), len(self.grades)))

    def native_head(self) -> NativeHead | None:
        """Return the head with the thresholds."""
        return None if self.head is None else NativeHead(self.head, numbers=tuple(map(float, self._cuts)))

    @property
    def _cuts(self) -> tuple[float, ...]:
        return even_thresholds(len(self.grades)) if self.cuts is None else self.cuts

    def log_prob(self, outputs: Outputs, y: Float[Array, " row"]) -> Float[Array, " row"]:
        """Return the log probability of each row's code."""
        found = log_probabilities(jnp, outputs, self._cuts)
        return jnp.take_along_axis(found, y.astype(jnp.int32)[None], axis=0)[0]

    def components(self, outputs: OutputsOfDraws) -> "GradeComponents":
        """Return the distributions of grades that outputs stand for."""
        parts = np.moveaxis(outputs.astype(np.float64), 1, 0)
        return GradeComponents(log_probabilities(np, parts, self._cuts), np.asarray(self.grades))

    def remarks(self, outputs: Callable[[], OutputsOfDraws], y: Encoded) -> list[str]:
        """Return nothing: probabilities have a limit, which densities do not."""
        return []

    def predictive(self, mixture: Mixture, response: AbstractResponse) -> "GradePredictive":
        """Return the predictive distribution of a grade."""
        return GradePredictive(mixture, self, response)

    def aim(self, target: str) -> str:
        """Say that a distribution over grades is predicted."""
        return f"{target}, one of {len(self.grades)} grades,"


class GradePredictive(AtomPredictive):
    """Predictive distribution of a grade for each row; a mean lies between grades, a quantile is one of them."""

    score_names = ("lppd", "accuracy", *AtomPredictive.score_names[1:])
    log_prob_label = "log probability"
    _likelihood: Ordinal

    def __init__(self, mixture: Mixture, likelihood: Ordinal, response: AbstractResponse) -> None:
        super().__init__(mixture, likelihood, response)
        self._shift, self._scale = 0.0, 1.0  # components have the grades themselves

    @property
    def classes(self) -> np.ndarray:
        """The grades, in the order of the columns of `probs`."""
        return np.asarray(self._likelihood.grades)

    @property
    def probs(self) -> Float[np.ndarray, "row class"]:
        """Probability of each grade, the mean over draws."""
        columns = [np.exp(self.log_prob(np.full(len(self), grade))) for grade in self.classes]
        return np.stack(columns, axis=1)

    @property
    def labels(self) -> np.ndarray:
        """Most probable grade of each row."""
        return self.classes[np.argmax(self.probs, axis=1)]

    def points(self, y: np.ndarray) -> np.ndarray:
        """Return the grades in between."""
        return self.classes[(self.classes >= y[0]) & (self.classes <= y[-1])]

    def possible(self, ends: np.ndarray) -> np.ndarray:
        """Return ends of intervals, moved inward to grades: that loses none."""
        grades, last = self.classes, len(self.classes) - 1
        lower, upper = np.clip(ends, grades[0], grades[-1]).T
        below = np.clip(np.searchsorted(grades, upper, side="right") - 1, 0, last)
        return np.stack([grades[np.clip(np.searchsorted(grades, lower), 0, last)], grades[below]], axis=1)

    def columns(self, interval: float = 0.9, quantiles: Sequence[float] = ()) -> dict[str, np.ndarray]:
        """Return mean, standard deviation, ends of an interval, quantiles, and the probability of each grade."""
        found = super().columns(interval, quantiles) | {"grade": self.labels}
        return found | {f"p_{grade:g}": column for grade, column in zip(self.classes, self.probs.T, strict=True)}


@dataclass(frozen=True, eq=False)
class GradeComponents(AbstractComponents):
    """Distributions of grades of each row under each draw."""

    log_probs: Float[np.ndarray, "grade draw row"]
    grades: Float[np.ndarray, " grade"]

    @property
    def mean(self) -> PerDraw:
        """Means."""
        return self._average(self.grades)

    @property
    def std(self) -> PerDraw:
        """Standard deviations."""
        variance = self._average(np.square(self.grades)) - np.square(self.mean)
        return np.sqrt(np.maximum(variance, _LEAST_STD**2))

    @property
    def spread(self) -> PerDraw:
        """Standard deviations."""
        return self.std

    def log_prob(self, y: PerRow) -> PerDraw:
        """Return the log probability of one grade per row."""
        place = np.searchsorted(self.grades, y).clip(0, len(self.grades) - 1)
        found = np.take_along_axis(self.log_probs, place[None, None], axis=0)[0]
        return np.where(self.grades[place] == y, found, -np.inf)

    def cdf(self, y: PerRow) -> PerDraw:
        """Return P(Y <= y) of one value per row."""
        return self._average(self.grades[:, None] <= y)

    def cdf_below(self, y: PerRow) -> PerDraw:
        """Return P(Y < y) of one value per row."""
        return self._average(self.grades[:, None] < y)

    def quantile(self, level: float) -> PerDraw:
        """Return the smallest grades whose P(Y <= y) is at least the level."""
        reached = np.cumsum(np.exp(self.log_probs), axis=0)[:-1] < level
        return self.grades[reached.sum(axis=0)] + 0.0 * self.log_probs[0]

    def solve(self, evaluate: Evaluate, spread: PerDraw, guess: tuple[PerRow, PerRow], level: float) -> PerRow:
        """Return the smallest grade whose P(Y <= y) is at least the level."""
        nothing = np.zeros(self.log_probs.shape[-1])
        found = nothing + self.grades[-1]
        for grade in self.grades[-2::-1]:
            found = np.where(evaluate(nothing + grade)[0] >= level, grade, found)
        return found

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Draw one grade from each distribution."""
        edges = np.cumsum(np.exp(self.log_probs), axis=0)[:-1]
        return self.grades[(rng.uniform(size=edges.shape[1:]) >= edges).sum(axis=0)]

    def parameters(self) -> tuple[np.ndarray, ...]:
        """Return the log probabilities."""
        return (self.log_probs,)

    def with_parameters(self, arrays: Sequence[np.ndarray]) -> "GradeComponents":
        """Return distributions of the same grades with other probabilities."""
        return replace(self, log_probs=arrays[0])

    def take(self, draws: Int[np.ndarray, "sample row"]) -> "GradeComponents":
        """Return one distribution for each sample and row: that of the draw with the given number."""
        return replace(self, log_probs=np.take_along_axis(self.log_probs, draws[None], axis=1))

    def evaluator(self, mixture: Mixture) -> Evaluate:
        """Return a function that gives the mixtures' P(Y <= y), and no density."""
        probs = mixture.weights.mean(np.moveaxis(np.exp(self.log_probs), 1, 0))

        def evaluate(y: PerRow) -> tuple[PerRow, PerRow]:
            found = np.where(self.grades[:, None] <= y, probs, 0.0).sum(axis=0)
            return found, np.zeros_like(found)

        return evaluate

    def crps(self, evaluate: Evaluate, y: PerRow, weights: DrawWeights = EQUAL) -> PerRow:
        """Return the score: the mean distance of the grade to y less half of that between two grades."""
        distance = weights.mean(self._average(np.abs(self.grades[:, None] - y)))
        nothing = np.zeros_like(distance)
        for grade, gap in zip(self.grades, np.diff(self.grades), strict=False):
            cdf = evaluate(nothing + grade)[0]
            distance = distance - gap * cdf * (1.0 - cdf)
        return distance

    def _average(self, of_grades: np.ndarray) -> PerDraw:
        values = of_grades[:, None] if of_grades.ndim == 2 else of_grades[:, None, None]
        return (np.exp(self.log_probs) * values).sum(axis=0)
