"""Responses of several numbers for each row: what a likelihood of them adds to the contract, and how y is encoded."""

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from mile._schema import require
from mile.likelihoods._rounding import refuse_extreme, refuse_rounded
from mile.likelihoods.base import (
    AbstractLikelihood,
    AbstractResponse,
    Encoded,
    Mixture,
    OutputsOfDraws,
    PerDraw,
    PerRow,
    Table,
    Tensors,
)
from mile.likelihoods.joint import JointPredictive

MOST_OUTPUTS = 50  # a joint distribution has a correlation for each pair

Columns = Float[np.ndarray, "row output"]


class Marginal(NamedTuple):
    """The distribution of one output alone: its likelihood, and which outputs of the network it takes."""

    likelihood: AbstractLikelihood
    places: Int[np.ndarray, " place"]


@dataclass(frozen=True)
class SeveralResponse(AbstractResponse):
    """Several numbers for each row, each encoded as its own family wants it."""

    parts: tuple[AbstractResponse, ...]
    dtypes: tuple[type, ...]  # of what the parts decode

    def encode(self, y: np.ndarray) -> Encoded:
        """Return the encoded columns side by side in float32."""
        columns = self._columns(y)
        return np.stack(
            [part.encode(column).astype(np.float32) for part, column in zip(self.parts, columns, strict=True)], axis=1
        )

    def decode(self, encoded: np.ndarray) -> np.ndarray:
        """Return encoded columns as users know them."""
        columns = zip(self.parts, self.dtypes, self._columns(encoded), strict=True)
        return np.stack([part.decode(column.astype(dtype)) for part, dtype, column in columns], axis=1)

    def usable(self, y: np.ndarray) -> np.ndarray:
        """Return which rows can be scored in every column."""
        columns = self._columns(y)
        return np.all([part.usable(column) for part, column in zip(self.parts, columns, strict=True)], axis=0)

    def tensors(self) -> dict[str, np.ndarray]:
        """Return what each part keeps, below its number."""
        return {
            f"{place}.{name}": array for place, part in enumerate(self.parts) for name, array in part.tensors().items()
        }

    def _columns(self, y: np.ndarray) -> np.ndarray:
        given = np.asarray(y)
        if given.ndim != 2 or given.shape[1] != len(self.parts):
            raise ValueError(f"y must have {len(self.parts)} columns, one for each output; got shape {given.shape}.")
        return given.T


class AbstractSeveral(AbstractLikelihood):
    """A response of several numbers for each row; y has shape (row, output).

    A frozen dataclass with a field `names`: what the outputs are called, () for y0, y1 and so on.
    """

    task = "regression"
    names: tuple[str, ...]

    @classmethod
    @abstractmethod
    def of_size(cls, n_responses: int) -> "AbstractSeveral":
        """Return this likelihood with its defaults for so many outputs."""

    @property
    @abstractmethod
    def marginals(self) -> tuple[Marginal, ...]:
        """The distribution of each output alone."""

    @abstractmethod
    def joint_log_prob(
        self, outputs: OutputsOfDraws, parts: Sequence[AbstractResponse], y: Float[np.ndarray, "output row"]
    ) -> PerDraw:
        """Return the log density of one response per row under each draw, on the scale of y."""

    @abstractmethod
    def joint_sample(
        self, outputs: OutputsOfDraws, parts: Sequence[AbstractResponse], rng: np.random.Generator
    ) -> Float[np.ndarray, "output row"]:
        """Return one response for each row of the outputs of a single draw."""

    @abstractmethod
    def noise_correlation(self, outputs: OutputsOfDraws, one: int, other: int) -> PerDraw:
        """Return the correlation of two outputs under each draw."""

    @property
    def output_names(self) -> tuple[str, ...]:
        """What the outputs are called."""
        return self.names or tuple(f"y{place}" for place in range(len(self.marginals)))

    @abstractmethod
    def called(self, names: tuple[str, ...]) -> "AbstractSeveral":
        """Return this likelihood with the names that y came with; () changes nothing."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The same as parts of the names of scores: letters, digits and underscores, all of them different."""
        found = [re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") for name in self.output_names]
        return tuple(
            key if key and found.count(key) == 1 and "__" not in key else f"y{place}" for place, key in enumerate(found)
        )

    @classmethod
    def for_response(cls, y: np.ndarray) -> "AbstractSeveral":
        """Return this likelihood for as many outputs as y has columns."""
        return cls.of_size(np.asarray(y).shape[1])

    @classmethod
    def check(cls, y: np.ndarray) -> np.ndarray:
        """Return the response in float64; each family checks its column when it learns it."""
        given = np.asarray(y)
        if given.ndim != 2 or given.shape[1] < 2:
            raise ValueError(f"y must have at least two columns for a {cls.__name__}; got shape {given.shape}.")
        for column in given.T:
            refuse_rounded(column)
            refuse_extreme(column)
        return given.astype(np.float64)

    @classmethod
    def parse(cls, values: np.ndarray, name: str) -> np.ndarray:
        """Return numbers."""
        return values.astype(np.float64)

    @classmethod
    def read(cls, table: Table, name: str) -> np.ndarray:
        """Return columns of numbers, whose names are separated by commas."""
        try:
            return table.matrix(split_names(name))
        except ValueError as error:
            raise ValueError(f"The targets must be numbers in every row: {error}") from None

    def learn(self, y: np.ndarray, rows: Int[np.ndarray, " chosen"], weight: PerRow | None = None) -> SeveralResponse:
        """Learn how each column is encoded."""
        parts = [
            named(name, lambda one=one, column=column: one.learn(one.check(column), rows, weight))
            for name, one, column in zip(self.output_names, self._families, y.T, strict=True)
        ]
        return self._response(parts)

    def plain_response(self) -> SeveralResponse:
        """Return the encoding of values that are encoded already."""
        return self._response([one.plain_response() for one in self._families])

    def restore_response(self, tensors: Tensors) -> SeveralResponse:
        """Return the response whose tensors a file has kept."""
        below: list[dict[str, np.ndarray]] = [{} for _ in self._families]
        for name, array in tensors.items():
            place, _, rest = name.partition(".")
            require(place.isdecimal() and int(place) < len(below), "there must be one response for each output.")
            below[int(place)][rest] = array
        return self._response([one.restore_response(own) for one, own in zip(self._families, below, strict=True)])

    def check_encoded(self, y: Encoded, name: str) -> None:
        """Refuse what is not one possible number for each output."""
        families = self._families
        if y.dtype.kind != "f" or y.ndim != 2 or y.shape[1] != len(families):
            raise ValueError(f"{name} must hold {len(families)} numbers for each row; it has {y.dtype} {y.shape}.")
        for place, one in enumerate(families):
            one.check_encoded(y[:, place].astype(one.dtype), f"column {place} of {name}")

    def cautions(self, y: np.ndarray, number: Int[np.ndarray, " row"]) -> list[str]:
        """Return what each family has to say before a fit."""
        named = zip(self.output_names, self._families, y.T, strict=True)
        return [f"Output {name!r}: {text}" for name, one, column in named for text in one.cautions(column, number)]

    def remarks(self, outputs: Callable[[], OutputsOfDraws], y: Encoded) -> list[str]:
        """Return what each family has to say about a fit."""
        found = []
        for name, (one, places), column in zip(self.output_names, self.marginals, y.T, strict=True):

            def own(places: np.ndarray = places) -> OutputsOfDraws:
                return outputs()[:, places]

            found += [f"Output {name!r}: {text}" for text in one.remarks(own, column.astype(one.dtype))]
        return found

    def predictive(self, mixture: Mixture, response: AbstractResponse) -> JointPredictive:
        """Return the joint predictive distribution."""
        assert isinstance(response, SeveralResponse)
        return JointPredictive(mixture, self, response)

    def aim(self, target: str) -> str:
        """Say how many numbers are predicted together."""
        names = self.output_names
        shown = ", ".join(names[:5]) + (" and more" if len(names) > 5 else "")
        return f"{len(names)} outputs together ({shown}) and their noise"

    @property
    def _families(self) -> tuple[AbstractLikelihood, ...]:
        return tuple(one.likelihood for one in self.marginals)

    def _response(self, parts: Sequence[AbstractResponse]) -> SeveralResponse:
        return SeveralResponse(tuple(parts), tuple(one.dtype for one in self._families))


def check_names(names: Sequence[str], n_responses: int) -> None:
    """Check what outputs are called.

    Raises
    ------
    ValueError
        If there is not one different text for each of them, or there are too few or too many.
    """
    if not 2 <= n_responses <= MOST_OUTPUTS:
        raise ValueError(f"there must be 2 to {MOST_OUTPUTS} outputs; got {n_responses}.")
    is_right = all(isinstance(name, str) for name in names) and len(set(names)) == len(names)
    if names and (not is_right or len(names) != n_responses):
        raise ValueError(f"names must be {n_responses} different texts, or (); got {names!r}.")


def named(name: str, call: Callable[[], AbstractResponse]) -> AbstractResponse:
    """Call a function of one output, and begin its error with the output's name."""
    try:
        return call()
    except ValueError as error:
        raise ValueError(f"output {name!r}: {error}") from None


def names_of(y: object, target: object = None) -> tuple[str, ...]:
    """Return the names of several outputs: of the columns of a frame, or those in `target`, separated by commas.

    () where y has one column, or nobody knows their names.
    """
    columns: Sequence[object] = () if isinstance(y, Mapping) else getattr(y, "columns", ())
    names = tuple(str(name) for name in columns)
    if not names and isinstance(target, str):
        names = tuple(split_names(target))
    n_columns = np.shape(np.asarray(y))[1:]
    return names if len(names) > 1 and n_columns == (len(set(names)),) else ()


def split_names(text: str) -> list[str]:
    """Return names that are separated by commas."""
    return [part.strip() for part in text.split(",") if part.strip()]
