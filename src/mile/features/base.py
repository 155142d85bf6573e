"""The contract of a feature encoder: it turns what users have into rows of float32 numbers.

An encoder is an immutable value. `fit` returns a new one that has learned from the training
rows. What it has learned is kept in files as tensors and a few plain values, never as code.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from mile.features.frame import Frame

Plain = str | int | float | bool | None
Tensors = Mapping[str, np.ndarray]
Encoded = Float[np.ndarray, "row feature"]
Table = np.ndarray | Frame  # rows as an encoder takes them: most take arrays only


def as_array(x: Table) -> np.ndarray:
    """Return rows for an encoder that takes arrays only.

    Raises
    ------
    ValueError
        If they are a table of any kind of columns.
    """
    if isinstance(x, Frame):
        raise ValueError("this encoder takes arrays of numbers, not tables: leave encoder out, or give 'table'.")
    return np.asarray(x)


class ColumnReport(NamedTuple):
    """What became of a column, for people.

    Attributes
    ----------
    name
        Of the column.
    kind
        What it was taken for.
    values
        Its range, or its levels.
    missing
        Share of the training rows without a value.
    treatment
        What the network sees of it.
    reason
        Why it was left out; empty if it was not.
    is_running
        Whether it looks like a running number.
    """

    name: str
    kind: str
    values: str = ""
    missing: float = 0.0
    treatment: str = ""
    reason: str = ""
    is_running: bool = False


class ColumnFacts(NamedTuple):
    """What a column had in training, for programs; what is not known is None or empty.

    Attributes
    ----------
    name, kind
        Of the column.
    reason
        Why the network does not see it; empty if it does.
    low, high
        Range of numbers; of dates in days since 1970.
    center, spread
        A typical number, and about a standard deviation.
    has_median
        Whether the center is the median.
    edges
        Numbers that cut the range into pieces of equal shares.
    levels, shares
        Of a category the texts with features of their own, and the share of the rows that each had.
    rare
        Texts that were pooled.
    usual
        The most frequent level.
    missing
        Share of the rows without a value; None where there could be none.
    """

    name: str
    kind: str
    reason: str = ""
    low: float | None = None
    high: float | None = None
    center: float | None = None
    spread: float | None = None
    has_median: bool = False
    edges: tuple[float, ...] = ()
    levels: tuple[str, ...] = ()
    shares: tuple[float, ...] = ()
    rare: tuple[str, ...] = ()
    usual: str | None = None
    missing: float | None = None


class AbstractFeatureEncoder(ABC):
    """What all encoders can do; register a class with `mile._registry.encoder` to let files and users name it."""

    @property
    def takes_tables(self) -> bool:
        """Whether x may be a `Frame`, with columns of any kind."""
        return False

    @abstractmethod
    def fit(
        self,
        x: Table,
        rows: Int[np.ndarray, " chosen"] | None = None,
        weight: Float[np.ndarray, " row"] | None = None,
    ) -> Self:
        """Return an encoder that has learned from the given rows of x (default: all), rows counted by weight."""

    @abstractmethod
    def transform(self, x: Table, rows: Int[np.ndarray, " chosen"] | None = None) -> Encoded:
        """Return the given rows of x (default: all) as finite numbers in float32."""

    def fit_and_transform(
        self,
        x: Table,
        rows: Int[np.ndarray, " chosen"] | None = None,
        weight: Float[np.ndarray, " row"] | None = None,
        y: np.ndarray | None = None,
    ) -> tuple[Self, Encoded]:
        """Return an encoder that has learned from the given rows, and these rows as a network is trained on them.

        An encoder that learns from the response y overrides this, so that no training row shows its own response.
        """
        encoder = self.fit(x, rows, weight)
        return encoder, encoder.transform(x, rows)

    def transform_and_remark(self, x: Table) -> tuple[Encoded, list[str]]:
        """Return all rows of x, and a sentence for everything in them that training rows did not have."""
        return self.transform(x), []

    def unreadable(self, x: Frame) -> tuple[str, int] | None:
        """Return column and row of a cell that is not of its column's kind; None if there is none."""
        return None

    def share_unseen(self, x: Table) -> float:
        """Return the share of the rows of x that have a text which training rows did not have."""
        return 0.0

    @abstractmethod
    def tensors(self) -> dict[str, np.ndarray]:
        """Return the learned arrays that a file must keep, by name."""

    @classmethod
    @abstractmethod
    def restore(cls, tensors: Tensors, settings: Mapping[str, Plain], n_features: int) -> Self:
        """Return the encoder that a file has kept; `n_features` is what the network takes.

        Raises
        ------
        UntrustedFileError
            If anything is missing, unknown or impossible.
        """

    def joined(self, x: Table, exposure: ArrayLike | None) -> Table:
        """Return rows with what else they need; by default nothing.

        Raises
        ------
        ValueError
            If an exposure is given, or missing.
        """
        if exposure is not None:
            raise ValueError("exposure is for models that were fitted with one, and this was not: leave it out.")
        return x

    def column_names(self, given: Sequence[str] | None) -> Sequence[str] | None:
        """Return the names of the columns of `joined` rows, from those of the user's columns."""
        return given

    def check(self, x: np.ndarray) -> None:  # noqa: B027  by default every x is fine
        """Refuse rows to predict that cannot be on the scale of the training rows.

        Raises
        ------
        ValueError
            If they are not; the message says why.
        """

    def settings(self) -> dict[str, Plain]:
        """Return the plain values that a file must keep besides the tensors."""
        return {}

    def n_columns(self, n_features: int) -> int | None:
        """Return the number of columns of X that give this number of features; None if it is not known."""
        return None

    def origins(self, n_features: int) -> Int[np.ndarray, " feature"] | None:
        """Return the place of the column of X that each feature is made of; None if features mix columns."""
        return None

    def names(self, given: Sequence[str] | None, n_features: int) -> list[str]:
        """Return a name for each encoded feature, from those of the user's columns if there are any."""
        return list(given) if given is not None else [f"feature {place}" for place in range(n_features)]

    def facts(self, given: Sequence[str] | None, n_features: int) -> list[ColumnFacts] | None:
        """Return what each column of X had in training, by the user's names if there are any; None if X has none."""
        n_columns = self.n_columns(n_features)
        if n_columns is None or self.origins(n_features) is None:
            return None
        names = list(given) if given is not None else [f"x{place}" for place in range(n_columns)]
        return [ColumnFacts(name, "number") for name in names]

    def describe(self) -> list[ColumnReport]:
        """Return for each column what it is and what became of it; empty if all are numbers that stay as they are."""
        return []
