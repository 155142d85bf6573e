"""What users may pass as X, y and weights: the types of the estimators' arguments, before anything is checked."""

from collections.abc import Iterable
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, DTypeLike


@runtime_checkable
class Frame(Protocol):
    """A table whose columns have names, such as a DataFrame of pandas or polars."""

    @property
    def columns(self) -> Iterable[object]:
        """Names of the columns."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""
        ...

    def __array__(self, dtype: DTypeLike | None = None) -> np.ndarray:
        """Return all cells as one array."""
        ...


@runtime_checkable
class ClassWeights(Protocol):
    """A weight for each label: a dictionary, of keys of any type."""

    def items(self) -> Iterable[tuple[object, float]]:
        """Return pairs of a label and its weight."""
        ...


FeaturesLike: TypeAlias = ArrayLike | Frame  # tables, and images, which have more axes
TextsLike: TypeAlias = Iterable[str] | ArrayLike  # one text a row
ResponseLike: TypeAlias = ArrayLike  # numbers or labels, one a row; a column of a frame is an array to numpy
WeightsLike: TypeAlias = ArrayLike  # numbers that are not negative, one a row
InputLike: TypeAlias = FeaturesLike | TextsLike  # X of any estimator
