"""Rows with an exposure each, such as days at risk, which counts are proportional to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self, cast

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from mile import _registry
from mile._schema import Tensor, Text, quote, require
from mile.features.accepted import InputLike
from mile.features.base import AbstractFeatureEncoder, ColumnReport, Encoded, Plain, Table, Tensors
from mile.features.frame import Frame
from mile.features.numbers import Standardizer

_NAME = "exposure"  # of the column that is added
_INNER = "inner"


@dataclass(frozen=True, eq=False)
class Exposed:
    """Rows and their exposures, which every method that takes X takes for it."""

    X: InputLike
    exposure: ArrayLike


def with_exposure(X: InputLike, exposure: ArrayLike) -> InputLike:
    """Return rows with their exposures, to pass as X to any method of a model of counts.

    Parameters
    ----------
    X
        Rows as an estimator takes them.
    exposure
        A positive number for each row, or one for all: what the mean count is proportional to, such as days at risk.

    Examples
    --------
    >>> import mile
    >>> mile.with_exposure([[1.0], [2.0]], exposure=[30.0, 365.0]).exposure
    [30.0, 365.0]
    """
    return cast(InputLike, Exposed(X, exposure))


def without_exposure(X: object) -> tuple[InputLike, ArrayLike | None]:
    """Return rows and their exposures, None if they have none."""
    return (X.X, X.exposure) if isinstance(X, Exposed) else (cast(InputLike, X), None)


def joined(x: Table, exposure: ArrayLike) -> Table:
    """Return rows with their exposures as the last column.

    Raises
    ------
    ValueError
        If they are not one positive finite number for each row, or rows are no table.
    """
    try:
        given = np.asarray(exposure, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"exposure must be one number for each row: {error}.") from None
    checked = np.full(len(x), given) if given.ndim == 0 else given
    if checked.shape != (len(x),):
        raise ValueError(f"exposure must be one number for each of the {len(x)} rows; got shape {given.shape}.")
    wrong = np.flatnonzero(~(np.isfinite(checked) & (checked > 0.0)))
    if wrong.size:
        raise ValueError(f"exposure must be positive and finite, but row {wrong[0]} has {checked[wrong[0]]:g}.")
    if isinstance(x, Frame):
        name = _free_name(x.names)
        column = Frame.of({name: checked}).columns
        return replace(x, names=(*x.names, name), columns=(*x.columns, *column))
    if x.ndim != 2:
        raise ValueError(f"exposure is for rows of tables; got rows of shape {x.shape[1:]}.")
    return np.column_stack([x.astype(np.float64), checked])


@_registry.encoder("with_exposure")
@dataclass(frozen=True, eq=False)
class WithExposure(AbstractFeatureEncoder):
    """Another encoder's features, and at their end the log of an exposure, which is the last column of the table.

    Parameters
    ----------
    inner
        Encodes the other columns.
    log_mean
        Log of the mean exposure of the training rows, which is subtracted; set by `fit`.
    """

    inner: AbstractFeatureEncoder = field(default_factory=Standardizer)
    log_mean: float = 0.0

    @property
    def takes_tables(self) -> bool:
        """Whether the other encoder takes frames."""
        return self.inner.takes_tables

    def fit(
        self,
        x: Table,
        rows: Int[np.ndarray, " chosen"] | None = None,
        weight: Float[np.ndarray, " row"] | None = None,
    ) -> Self:
        """Learn the mean exposure, and what the other encoder learns."""
        others, exposure = _split(x)
        return replace(self, inner=self.inner.fit(others, rows, weight), log_mean=_log_mean(exposure, rows, weight))

    def fit_and_transform(
        self,
        x: Table,
        rows: Int[np.ndarray, " chosen"] | None = None,
        weight: Float[np.ndarray, " row"] | None = None,
        y: np.ndarray | None = None,
    ) -> tuple[Self, Encoded]:
        """Do the same, and return the rows as a network is trained on them."""
        others, exposure = _split(x)
        inner, encoded = self.inner.fit_and_transform(others, rows, weight, y)
        found = replace(self, inner=inner, log_mean=_log_mean(exposure, rows, weight))
        return found, found._append(encoded, exposure if rows is None else exposure[rows])

    def transform(self, x: Table, rows: Int[np.ndarray, " chosen"] | None = None) -> Encoded:
        """Return the other encoder's features, then the log of the exposure over its mean."""
        others, exposure = _split(x)
        return self._append(self.inner.transform(others, rows), exposure if rows is None else exposure[rows])

    def transform_and_remark(self, x: Table) -> tuple[Encoded, list[str]]:
        """Return all rows, and the remarks of the other encoder."""
        others, exposure = _split(x)
        encoded, remarks = self.inner.transform_and_remark(others)
        return self._append(encoded, exposure), remarks

    def joined(self, x: Table, exposure: ArrayLike | None) -> Table:
        """Return rows with their exposures as the last column."""
        if exposure is None:
            raise ValueError(
                "this model was fitted with an exposure: give exposure=..., a number for each row or one for all (1.0 "
                "predicts rates), or pass mile.with_exposure(X, exposure) for X."
            )
        return joined(x, exposure)

    def _append(self, encoded: Encoded, exposure: np.ndarray) -> Encoded:
        offset = (np.log(exposure) - self.log_mean).astype(np.float32)
        return np.column_stack([encoded, offset])

    def tensors(self) -> dict[str, np.ndarray]:
        """Return the mean, and what the other encoder keeps."""
        inner = {f"{_INNER}.{name}": array for name, array in self.inner.tensors().items()}
        return {"log_mean": np.asarray(self.log_mean, np.float64)} | inner

    def settings(self) -> dict[str, Plain]:
        """Return name and settings of the other encoder.

        Raises
        ------
        TypeError
            If no file could name it.
        """
        name = _registry.encoder.name_of(type(self.inner))
        if name is None:
            raise TypeError(f"a file cannot hold the encoder {type(self.inner).__name__}: its class is not registered.")
        return {_INNER: name} | {f"{_INNER}.{key}": value for key, value in self.inner.settings().items()}

    @classmethod
    def restore(cls, tensors: Tensors, settings: Mapping[str, Plain], n_features: int) -> Self:
        """Return the encoder that a file has kept."""
        name = Text().read(settings.get(_INNER), place=(_INNER,))
        require(name in _registry.encoder, f"{quote(name)} is not an encoder that is known here.")
        kind = _registry.encoder[name]
        assert issubclass(kind, AbstractFeatureEncoder)
        require(not issubclass(kind, cls), "an exposure cannot be within another.")
        start = f"{_INNER}."
        own = {key.removeprefix(start): value for key, value in settings.items() if key.startswith(start)}
        below = {key.removeprefix(start): array for key, array in tensors.items() if key.startswith(start)}
        require(len(own) == len(settings) - 1 and len(below) == len(tensors) - 1, "an exposure has unknown entries.")
        mean = Tensor("float64", (), is_finite=True).read(tensors.get("log_mean"), place=("log_mean",))
        return cls(kind.restore(below, own, n_features - 1), float(mean))

    def n_columns(self, n_features: int) -> int | None:
        """Return the number of other columns."""
        return self.inner.n_columns(n_features - 1)

    def origins(self, n_features: int) -> Int[np.ndarray, " feature"] | None:
        """Return the columns of the features; the exposure is the last."""
        found = self.inner.origins(n_features - 1)
        if found is None:
            return None
        n_columns = self.inner.n_columns(n_features - 1) or len(self.inner.describe()) or int(found.max()) + 1
        return np.append(found, n_columns)

    def names(self, given: Sequence[str] | None, n_features: int) -> list[str]:
        """Return the names of the other features, and that of the exposure."""
        return [*self.inner.names(given, n_features - 1), f"log {_NAME}"]

    def column_names(self, given: Sequence[str] | None) -> list[str] | None:
        """Return the names of the columns, with that of the exposure."""
        return None if given is None else [*given, _free_name(given)]

    def describe(self) -> list[ColumnReport]:
        """Return what became of the other columns."""
        return self.inner.describe()


def _free_name(taken: Sequence[str]) -> str:
    name = _NAME
    while name in taken:
        name += "_"
    return name


def _split(x: Table) -> tuple[Table, Float[np.ndarray, " row"]]:
    if isinstance(x, Frame):
        others = replace(x, names=x.names[:-1], columns=x.columns[:-1])
        return others, np.asarray(x.columns[-1].numbers().values, np.float64)
    return x[:, :-1], np.asarray(x[:, -1], np.float64)


def _log_mean(exposure: np.ndarray, rows: np.ndarray | None, weight: np.ndarray | None) -> float:
    chosen = np.arange(len(exposure)) if rows is None else rows
    counted = None if weight is None else np.asarray(weight, np.float64)[chosen]
    return float(np.log(np.average(exposure[chosen], weights=counted)))
