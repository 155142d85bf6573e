"""Tables as the pipeline wants them: float32, standardized by their training rows, split once, order fixed."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, UInt8

# Rows needed before some are set aside to decide when to stop training.
_SMALLEST_SPLIT = 20
# Standardized inputs are cut here; beyond, a row is so far out that only finiteness matters.
_LARGEST_INPUT = 1e6
# Cells that are worked on in float64 at a time: a whole table of that kind would be the largest array of a fit.
_BLOCK_CELLS = 1 << 18


@dataclass(frozen=True, kw_only=True)
class Standardizer:
    """Shift and scale per column, in float64; a constant column has scale one."""

    shift: Float[np.ndarray, "*column"]
    scale: Float[np.ndarray, "*column"]

    @classmethod
    def learn(
        cls, values: Float[np.ndarray, "row *column"], rows: Int[np.ndarray, " chosen"] | None = None
    ) -> "Standardizer":
        """Learn mean and standard deviation of each column, from the given rows (default: all)."""
        values, rows = np.asarray(values), np.arange(len(values)) if rows is None else rows
        # Dividing by the largest magnitude first keeps squares of huge or tiny columns representable.
        size = np.max([np.max(np.abs(block), axis=0) for _, block in _blocks(values, rows)], axis=0)
        size = np.where(size > 0, size, 1.0)
        mean = sum(np.sum(block / size, axis=0) for _, block in _blocks(values, rows)) / len(rows)
        squares = sum(np.sum(np.square(block / size - mean), axis=0) for _, block in _blocks(values, rows))
        spread = np.sqrt(squares / len(rows))
        constant = spread <= 10 * np.finfo(np.float64).eps  # rounding of a constant, not variation
        return cls(shift=np.asarray(mean * size), scale=np.where(constant, 1.0, spread * size))

    @classmethod
    def identity(cls, n_columns: int | None = None) -> "Standardizer":
        """Leave values as they are."""
        shape = () if n_columns is None else (n_columns,)
        return cls(shift=np.zeros(shape), scale=np.ones(shape))

    def apply(
        self, values: Float[np.ndarray, "row *column"], rows: Int[np.ndarray, " chosen"] | None = None
    ) -> Float[np.ndarray, "chosen *column"]:
        """Return standardized values in float32, of the given rows (default: all)."""
        values, rows = np.asarray(values), np.arange(len(values)) if rows is None else rows
        standardized = np.empty((len(rows), *values.shape[1:]), np.float32)
        for where, block in _blocks(values, rows):
            with np.errstate(over="ignore"):  # infinity is cut below
                block = (block - self.shift) / self.scale
            standardized[where] = np.clip(block, -_LARGEST_INPUT, _LARGEST_INPUT)
        return standardized

    def undo(self, values: Float[np.ndarray, "row *column"]) -> Float[np.ndarray, "row *column"]:
        """Return standardized values on their own scale, in float64."""
        return self.shift + self.scale * np.asarray(values, np.float64)


def _blocks(values: np.ndarray, rows: Int[np.ndarray, " chosen"]) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield the rows of a table in float64 piece by piece, each with its place among them."""
    length = max(1, _BLOCK_CELLS // max(1, int(np.prod(values.shape[1:]))))
    for start in range(0, len(rows), length):
        where = slice(start, start + length)
        yield where, values[rows[where]].astype(np.float64)


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Training and validation rows, ready for the network, with the scales to undo at prediction.

    Build one with `prepare`, or directly from arrays that need no standardization (paper protocols do).
    The posterior uses the training rows only; validation rows decide when training stops.
    """

    x_train: Float[np.ndarray, "row feature"]
    y_train: np.ndarray
    x_valid: Float[np.ndarray, "valid feature"]
    y_valid: np.ndarray
    x_scale: Standardizer
    y_scale: Standardizer

    @classmethod
    def from_arrays(
        cls,
        x_train: np.ndarray,
        y_train: np.ndarray,
        x_valid: np.ndarray | None = None,
        y_valid: np.ndarray | None = None,
    ) -> "Dataset":
        """Take arrays as they are; integer `y` are class codes, anything else is a number.

        Raises
        ------
        ValueError
            If shapes do not fit together, there are no rows, or a value is not finite.
        """
        x_train, y_train = _as_columns(x_train, y_train, "train")
        if (x_valid is None) != (y_valid is None):
            raise ValueError("x_valid and y_valid must be given together.")
        if x_valid is None or y_valid is None:
            x_valid, y_valid = x_train[:0], y_train[:0]
        x_valid, y_valid = _as_columns(x_valid, y_valid, "valid")
        if x_valid.shape[1] != x_train.shape[1]:
            raise ValueError(f"x_valid has {x_valid.shape[1]} columns but x_train has {x_train.shape[1]}.")
        if len(x_train) == 0:
            raise ValueError("x_train has no rows.")
        return cls(
            x_train=x_train,
            y_train=y_train,
            x_valid=x_valid,
            y_valid=y_valid,
            x_scale=Standardizer.identity(x_train.shape[1]),
            y_scale=Standardizer.identity(),
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the rows by name."""
        return {name: getattr(self, name) for name in ("x_train", "y_train", "x_valid", "y_valid")}

    def sha256(self) -> str:
        """Return a hash of all rows: types, shapes and bytes."""
        digest = hashlib.sha256()
        for name, array in self.arrays().items():
            digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    @property
    def n_features(self) -> int:
        """Number of input columns."""
        return self.x_train.shape[1]


def prepare(
    x: Float[np.ndarray, "row feature"] | UInt8[np.ndarray, "row feature"],
    y: np.ndarray,
    *,
    validation_fraction: float = 0.125,
    seed: int,
    learn: Callable[[np.ndarray, np.ndarray], Standardizer] = Standardizer.learn,
) -> Dataset:
    """Split finite arrays into training and validation rows and standardize by the training rows.

    `learn` finds the scale of x from all values and the numbers of the training rows.

    Integer `y` are class codes: they are left alone and the split is stratified. Under 20 rows there is no
    validation part.
    """
    classes = y if np.issubdtype(y.dtype, np.integer) else None
    validation = split_rows(len(x), validation_fraction, seed, classes)
    train, valid = np.flatnonzero(~validation), np.flatnonzero(validation)
    x_scale = learn(x, train)
    if classes is None:
        y_scale = Standardizer.learn(y, train)
        y = y_scale.apply(y)
    else:
        y_scale = Standardizer.identity()
        y = y.astype(np.int32)
    return Dataset(
        x_train=x_scale.apply(x, train),
        y_train=y[train],
        x_valid=x_scale.apply(x, valid),
        y_valid=y[valid],
        x_scale=x_scale,
        y_scale=y_scale,
    )


def split_rows(n_rows: int, fraction: float, seed: int, classes: Int[np.ndarray, " row"] | None = None) -> np.ndarray:
    """Return a mask of the validation rows, each class in its share and with at least one training row."""
    validation = np.zeros(n_rows, bool)
    if n_rows < _SMALLEST_SPLIT or fraction == 0.0:
        return validation
    order = np.random.default_rng(seed).permutation(n_rows)
    if classes is not None:
        order = order[np.argsort(classes[order], kind="stable")]
        _, first = np.unique(classes[order], return_index=True)
        order = np.delete(order, first)
    # Every 1/fraction-th row of the order: with rows sorted by class, each class gives its share.
    n_validation = min(round(fraction * n_rows), len(order), n_rows - 1)
    chosen = np.floor((np.arange(n_validation) + 0.5) * len(order) / max(n_validation, 1)).astype(int)
    validation[order[chosen]] = True
    return validation


def _as_columns(x: np.ndarray, y: np.ndarray, part: str) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.asarray(x), np.asarray(y)
    if x.ndim != 2 or x.shape[1] < 1 or y.shape != x.shape[:1]:
        raise ValueError(
            f"x_{part} must have shape (rows, features) and y_{part} shape (rows,); got {x.shape} and {y.shape}."
        )
    with np.errstate(over="ignore"):  # infinity is refused below
        y = y.astype(np.int32 if np.issubdtype(y.dtype, np.integer) else np.float32)
        x = x.astype(np.float32)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError(f"x_{part} and y_{part} must be finite in float32; remove or impute NaN and infinite values.")
    return x, y
