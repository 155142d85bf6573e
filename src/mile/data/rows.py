"""Rows of a table on their way from the user to the posterior: features, response, weight, and where they came from."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

# How values are stored: whole numbers are codes, everything else is a number.
_STORED = {"i": np.int32, "u": np.int32, "b": np.int32}


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """Encoded rows.

    Attributes
    ----------
    x, y
        Features in float32, and the response as the likelihood encodes it: one number for each row, or several.
    weight
        How many times each row counts in the log likelihood.
    number
        Position of each row in the table that the user passed, from 0.
    """

    x: Float[np.ndarray, "row feature"]
    y: Float[np.ndarray, " row"] | Int[np.ndarray, " row"] | Float[np.ndarray, "row part"]
    weight: Float[np.ndarray, " row"]
    number: Int[np.ndarray, " row"]

    def __len__(self) -> int:
        return len(self.y)

    @classmethod
    def checked(
        cls, x: np.ndarray, y: np.ndarray, part: str, weight: np.ndarray | None = None, number: np.ndarray | None = None
    ) -> "Rows":
        """Return rows of arrays that are encoded already.

        Raises
        ------
        ValueError
            If shapes do not fit together, or a value is not finite; messages name `part`.
        """
        x, y = np.asarray(x), np.asarray(y)
        if x.ndim != 2 or x.shape[1] < 1 or y.shape[:1] != x.shape[:1] or y.shape[1:] == (1,) or y.ndim > 2:
            raise ValueError(
                f"x_{part} must have shape (rows, features) and y_{part} shape (rows,); got {x.shape} and {y.shape}."
            )
        with np.errstate(over="ignore"):  # infinity is refused below
            y = y.astype(_STORED.get(y.dtype.kind, np.float32))
            x = x.astype(np.float32)
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            raise ValueError(
                f"x_{part} and y_{part} must be finite in float32; remove or impute NaN and infinite values."
            )
        weight = np.ones(len(y), np.float32) if weight is None else np.asarray(weight, np.float32)
        number = np.arange(len(y)) if number is None else np.asarray(number, np.int64)
        if weight.shape != y.shape[:1] or number.shape != y.shape[:1]:
            raise ValueError(f"weight_{part} and row_{part} must have one entry for each of the {len(y)} rows.")
        if not (np.isfinite(weight).all() and (weight >= 0).all()):
            raise ValueError(f"weight_{part} must be finite and not negative.")
        return cls(x=x, y=y, weight=weight, number=number)

    @property
    def is_weighted(self) -> bool:
        """Whether a row counts other than once."""
        return bool((self.weight != 1.0).any())
