"""The contract of a likelihood: it owns the response, from what users pass as y to the distribution that predicts it.

To add one, write one file in this folder with a class that `mile._registry.likelihood` registers. A likelihood of
numbers is best derived from `AbstractNumberLikelihood`, which leaves three things to say: how many outputs the network
has, the log density in JAX, and the distributions that outputs stand for.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Array, Float, Int

from mile import metrics
from mile._types import Outputs, Response
from mile.likelihoods._shown import STRIP_LEVELS, as_html, as_text
from mile.likelihoods.weights import DrawWeights

Task = Literal["regression", "classification"]  # scikit-learn's words
HeadName = Literal[
    "gaussian", "categorical", "bounded_gaussian", "mixture", "student_t", "poisson", "negative_binomial", "ordinal"
]
# y as compiled code takes it; several numbers for each row are its second axis.
Encoded = Float[np.ndarray, " row"] | Int[np.ndarray, " row"] | Float[np.ndarray, "row part"]
Tensors = Mapping[str, np.ndarray]
OutputsOfDraws = Float[np.ndarray, "draw output row"]
PerDraw = Float[np.ndarray, "draw row"]
PerRow = Float[np.ndarray, " row"]
Result = TypeVar("Result")  # an array, or a tuple of arrays, whose last axis is the row


class NativeHead(NamedTuple):
    """What the native kernel must know of a likelihood."""

    name: HeadName
    floor: float = 0.0  # of standard deviations, for heads with the bounded link
    numbers: tuple[float, ...] = ()  # what else the head takes: native/heads.hpp


class AbstractResponse(ABC):
    """How y is encoded for compiled code, and how that is undone; learned from training rows and kept in files."""

    @abstractmethod
    def encode(self, y: np.ndarray) -> Encoded:
        """Return y as compiled code takes it.

        Raises
        ------
        ValueError
            If an entry cannot be encoded; the message names it.
        """

    @abstractmethod
    def decode(self, encoded: np.ndarray) -> np.ndarray:
        """Return encoded values as users know them."""

    @abstractmethod
    def usable(self, y: np.ndarray) -> np.ndarray:
        """Return which entries of y can be scored."""

    @abstractmethod
    def tensors(self) -> dict[str, np.ndarray]:
        """Return what a file must keep, by name."""

    def cast(self, y: np.ndarray) -> np.ndarray:
        """Return observed values in the type that y has."""
        return y

    @property
    def unit(self) -> float:
        """The encoded unit on the scale of y: scores of y divided by it are those of encoded values."""
        return 1.0

    @property
    def labels(self) -> np.ndarray | None:
        """The labels of classes; None where y has none."""
        return None


@runtime_checkable
class Table(Protocol):
    """A table on disk: what the command line reads a response from."""

    @property
    def source(self) -> str:
        """Name of the file, for messages."""
        ...

    def column(self, name: str) -> np.ndarray:
        """Return one column: numbers, or objects that are texts or None."""
        ...

    def matrix(self, names: Sequence[str]) -> np.ndarray:
        """Return columns of finite numbers side by side, or name the first cell that is not one."""
        ...


@runtime_checkable
class Mixture(Protocol):
    """Draws of a network and the rows to predict, walked over in blocks; see `mile.predict`."""

    @property
    def n_rows(self) -> int:
        """Rows to predict."""
        ...

    @property
    def n_draws(self) -> int:
        """Components of the mixture."""
        ...

    @property
    def weights(self) -> DrawWeights:
        """How much each draw counts; averages over draws are its methods."""
        ...

    def head(self, n: int) -> "Mixture":
        """Return the same draws with the first rows to predict."""
        ...

    def over_blocks(self, function: Callable[..., Result], *row_arrays: np.ndarray) -> Result:
        """Apply `function(outputs, *rows)` to each block and put its results, row by row, together."""
        ...

    def native_means(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the native kernel's means over draws and the center that they refer to, if it has the head."""
        ...

    def native_normals(self, location: PerDraw, scale: PerDraw, weight: PerDraw | None = None) -> "Evaluate | None":
        """Return the native distribution function and density of mixtures of normals, if the kernel is in use."""
        ...


Evaluate = Callable[[PerRow], tuple[PerRow, PerRow]]  # distribution function and density of each row's mixture


class Uncertainty(NamedTuple):
    """Noise and ignorance of each row, with the words that a figure needs."""

    noise: PerRow
    ignorance: PerRow
    share: PerRow  # of ignorance in the whole
    whole: str  # what the share is of
    noise_label: str  # may have a place for the target's name, {target}
    ignorance_label: str


class Explained(NamedTuple):
    """The number that explanations follow: under each draw its value, and the standard deviation of what is left."""

    value: PerDraw
    noise: PerDraw
    label: str  # what the number is, such as "mean"


class AbstractPredictive(ABC):
    """The predictive distribution of each row: a mixture over draws, on the scale of y.

    Class variables name what suits it: scores of `mile.metrics`, figures of `mile.plot`, cautions of the report.
    """

    score_names: ClassVar[tuple[str, ...]]
    figure_names: ClassVar[tuple[str, ...]]
    caution_names: ClassVar[tuple[str, ...]]
    log_prob_label: ClassVar[str]  # what tables call the log density of an observed value
    # What `AbstractLikelihood.predictive` was given.
    _mixture: Mixture
    _likelihood: "AbstractLikelihood"
    _response: AbstractResponse

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def point(self) -> np.ndarray:
        """The one value to predict for each row."""

    @abstractmethod
    def log_prob(self, y: np.ndarray) -> PerRow:
        """Return the log predictive density, or probability, of one response per row."""

    @abstractmethod
    def log_prob_per_draw(self, y: np.ndarray) -> PerDraw:
        """Return the same under each draw alone."""

    @property
    @abstractmethod
    def draw_weights(self) -> Float[np.ndarray, " draw"] | None:
        """How much each draw counts in the mixture; None if all count the same."""

    @abstractmethod
    def sample(self, n: int = 1, random_state: int | None = None) -> np.ndarray:
        """Draw n responses per row, shape (n, row)."""

    @abstractmethod
    def columns(self, interval: float = 0.9, quantiles: Sequence[float] = ()) -> dict[str, np.ndarray]:
        """Return the columns of a table of predictions."""

    @abstractmethod
    def brief(self, rows: Int[np.ndarray, " chosen"]) -> dict[str, np.ndarray]:
        """Return the cells of a short table of some rows: numbers, texts, or pairs of the ends of an interval."""

    @abstractmethod
    def uncertainty(self) -> Uncertainty:
        """Return what more data could and could not remove."""

    @abstractmethod
    def followed(self) -> dict[str, PerDraw]:
        """Return the quantities that diagnostics follow from draw to draw, by name."""

    def explained(self, label: object = None) -> Explained:
        """Return the number that explanations follow; `label` chooses among several, such as a class."""
        name, value = next(iter(self.followed().items()))
        return Explained(value, np.zeros_like(value), name)

    def row_quantities(self, label: object = None) -> dict[str, PerRow]:
        """Return what a single prediction is explained by: the number above, and how unsure it is, by name."""
        parts, per_draw = self.uncertainty(), self.explained(label)
        value = np.average(per_draw.value, axis=0, weights=self.draw_weights)
        return {per_draw.label: value, "noise": parts.noise, "ignorance": parts.ignorance}

    @property
    def part_score_names(self) -> tuple[str, ...]:
        """Names of scores of single outputs, where there are several."""
        return ()

    def scores(self, y: np.ndarray) -> dict[str, float]:
        """Return all scores that suit this distribution, by name."""
        return metrics.scores(self, y)

    @property
    def n_draws(self) -> int:
        """Components of the mixture."""
        return self._mixture.n_draws

    def head(self, n: int = 5) -> "AbstractPredictive":
        """Return the distributions of the first rows."""
        return self._likelihood.predictive(self._mixture.head(n), self._response)

    def strips(self, levels: Sequence[float] = STRIP_LEVELS) -> Float[np.ndarray, "row level"] | None:
        """Return quantiles to draw each row by; None where there is nothing to draw."""
        return None

    def shares(self) -> dict[str, PerRow] | None:
        """Return the probability of each label, where there are labels without order; else None."""
        return None

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)

    def row_scores(self, y: np.ndarray, thinned: "AbstractPredictive | None" = None) -> dict[str, PerRow]:
        """Return scores of single rows, by name; `thinned` is the same by fewer draws, for scores that take long."""
        return {"lppd": self.log_prob(y)}

    def survival_columns(self, times: Sequence[float]) -> dict[str, np.ndarray]:
        """Return the probability of a value above each of the times, as columns of a table.

        Raises
        ------
        ValueError
            If this is no prediction of times.
        """
        raise ValueError(f"survival at times needs a model of a response with limits; this is a {type(self).__name__}.")

    def row_values(self, y: np.ndarray) -> dict[str, PerRow]:
        """Return what a file keeps of single rows besides their scores, by name."""
        return {}


class AbstractLikelihood(ABC):
    """What the network's outputs say about y, and all that the rest of the library must know of y.

    Nobody else asks which likelihood it is. Instances are frozen dataclasses: static and hashable, because compiled
    programs are looked up by them.
    """

    task: ClassVar[Task]
    head: ClassVar[HeadName | None] = None  # of the native kernel; without one it takes derivatives from JAX
    dtype: ClassVar[type] = np.float32  # of encoded values
    is_numeric: ClassVar[bool] = True  # whether y must be numbers

    def __init_subclass__(cls) -> None:
        # A head is not inherited: a class derived from one with a head may compute something else.
        super().__init_subclass__()
        cls.head = vars(cls).get("head")

    def native_head(self) -> NativeHead | None:
        """Return what the native kernel must know, or None if it does not have this likelihood."""
        return None if self.head is None else NativeHead(self.head)

    def with_softmax_twice(self) -> "AbstractLikelihood":
        """Return the likelihood that takes class probabilities for logits; only that of classes has one."""
        raise ValueError("softmax_twice needs a network that predicts classes.")

    @property
    def n_offsets(self) -> int:
        """How many of the outputs are last features of a row, which the network hands on."""
        return 0

    def with_exposure(self) -> "AbstractLikelihood":
        """Return this likelihood with means that are proportional to an exposure.

        Raises
        ------
        ValueError
            If it is not of counts.
        """
        name = type(self).__name__
        raise ValueError(f'exposure is for counts, and this is a {name}: give likelihood="negative_binomial" or such.')

    @property
    def output_names(self) -> tuple[str, ...]:
        """What the columns of y are called; () where y has one number or label for each row."""
        return ()

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """Outputs of the network for each row."""

    @abstractmethod
    def log_prob(self, outputs: Outputs, y: Response) -> Float[Array, " row"]:
        """Return the log density, or probability, of each row's encoded response. In JAX, differentiable."""

    @classmethod
    def for_response(cls, y: np.ndarray) -> "AbstractLikelihood":
        """Return the member of this family that fits a checked response."""
        return cls()

    @classmethod
    @abstractmethod
    def check(cls, y: np.ndarray) -> np.ndarray:
        """Return a response that can be learned, or name the row and value that prevent it.

        Raises
        ------
        ValueError
            If y is not of this kind.
        """

    @classmethod
    @abstractmethod
    def parse(cls, values: np.ndarray, name: str) -> np.ndarray:
        """Return an array of a file as a response of this kind; messages begin with `name`."""

    @classmethod
    @abstractmethod
    def read(cls, table: Table, name: str) -> np.ndarray:
        """Return a column of a file as a response of this kind, or name the row that does not fit."""

    @abstractmethod
    def learn(self, y: np.ndarray, rows: Int[np.ndarray, " chosen"], weight: PerRow | None = None) -> AbstractResponse:
        """Learn how a checked response is encoded from its training rows."""

    def fitted(self, y: Encoded) -> "AbstractLikelihood":
        """Return this likelihood with what it takes from the encoded response of the training rows."""
        return self

    def cautions(self, y: np.ndarray, number: Int[np.ndarray, " row"]) -> list[str]:
        """Return a sentence for each thing to know before a fit, from y and the numbers of training rows."""
        return []

    @abstractmethod
    def plain_response(self) -> AbstractResponse:
        """Return the encoding of values that are encoded already."""

    @abstractmethod
    def check_encoded(self, y: Encoded, name: str) -> None:
        """Refuse encoded values that this likelihood cannot have.

        Raises
        ------
        ValueError
            If a value is impossible; the message has `name`, the row and the value.
        """

    @abstractmethod
    def restore_response(self, tensors: Tensors) -> AbstractResponse:
        """Return the response whose `tensors` a file has kept.

        Raises
        ------
        UntrustedFileError
            If anything is missing or impossible.
        """

    def strata(self, y: np.ndarray) -> Int[np.ndarray, " row"] | None:
        """Return groups of which a split of the rows must have equal shares; None if there are none."""
        return None

    @abstractmethod
    def predictive(self, mixture: Mixture, response: AbstractResponse) -> AbstractPredictive:
        """Return the predictive distribution that a mixture of draws stands for."""

    @abstractmethod
    def aim(self, target: str) -> str:
        """Say what is predicted, as in "trained to predict ... from 8 features"."""

    def remarks(self, outputs: Callable[[], OutputsOfDraws], y: Encoded) -> list[str]:
        """Return a sentence for each thing to know about a fit, from the outputs of a few draws for y."""
        return []
