"""What scores ask of a prediction, by the kind of what is predicted."""

from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float


@runtime_checkable
class Scored(Protocol):
    """A prediction of rows, of numbers or of classes."""

    score_names: ClassVar[tuple[str, ...]]  # of the scores that suit it

    @property
    def part_score_names(self) -> tuple[str, ...]:
        """Names of scores of single outputs, where there are several."""
        ...

    def __len__(self) -> int: ...

    def log_prob(self, y: np.ndarray) -> Float[np.ndarray, " row"]:
        """Return the log density, or probability, of one observed value per row."""
        ...

    def log_prob_per_draw(self, y: np.ndarray) -> Float[np.ndarray, "draw row"]:
        """Return the same under each draw alone."""
        ...

    @property
    def draw_weights(self) -> Float[np.ndarray, " draw"] | None:
        """How much each draw counts; None if all count the same."""
        ...


@runtime_checkable
class ScoredNumbers(Scored, Protocol):
    """A prediction of numbers."""

    @property
    def mean(self) -> Float[np.ndarray, " row"]:
        """Predictive means."""
        ...

    def cdf(self, y: np.ndarray) -> Float[np.ndarray, " row"]:
        """Return P(Y <= y) for one value per row."""
        ...

    def pit(self, y: np.ndarray) -> Float[np.ndarray, " row"]:
        """Return P(Y <= y), at random between P(Y < y) and that where values have a probability of their own."""
        ...

    def crps(self, y: np.ndarray) -> Float[np.ndarray, " row"]:
        """Return the continuous ranked probability score of one value per row."""
        ...

    def interval(self, level: float = 0.9) -> Float[np.ndarray, "row 2"]:
        """Return central intervals."""
        ...


@runtime_checkable
class ScoredOutputs(Scored, Protocol):
    """A prediction of several numbers for each row."""

    def part(self, key: str) -> tuple[int, Scored]:
        """Return place and prediction of the output that names of scores call so."""
        ...

    @property
    def mean(self) -> Float[np.ndarray, "row output"]:
        """Predictive means."""
        ...

    @property
    def std(self) -> Float[np.ndarray, "row output"]:
        """Predictive standard deviations."""
        ...


@runtime_checkable
class ScoredClasses(Scored, Protocol):
    """A prediction of classes."""

    @property
    def probs(self) -> Float[np.ndarray, "row class"]:
        """Probability of each class."""
        ...

    @property
    def labels(self) -> np.ndarray:
        """Most probable class of each row."""
        ...

    @property
    def classes(self) -> np.ndarray:
        """The labels, in the order of the columns of `probs`."""
        ...


@runtime_checkable
class ScoredTimes(Scored, Protocol):
    """A prediction of values with limits, such as survival times."""

    @property
    def median(self) -> Float[np.ndarray, " row"]:
        """Predictive medians."""
        ...

    def limits(self, y: np.ndarray) -> tuple[Float[np.ndarray, " row"], Float[np.ndarray, " row"]]:
        """Return the ends that each observed row lies between."""
        ...

    def survival(self, times: np.ndarray) -> Float[np.ndarray, "row time"]:
        """Return the probability of a value above each of the times."""
        ...
