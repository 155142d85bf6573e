"""Rows in the layout of compiled code, padded so that tables of similar size share programs."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from mile._types import ChainNumber, Features, Response


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class PaddedRows:
    """Data in the layout of compiled code: rows last, padded to a bucket with rows of weight zero.

    Data of similar size thereby share compiled programs.
    """

    x: Features
    y: Response
    weight: Float[Array, " row"]
    count: Int[Array, ""]  # real rows; they come first

    def for_chain(self, chain: ChainNumber) -> "PaddedRows":
        """Return the rows of a chain: all."""
        return self

    def take(self, indices: Int[Array, " batch"]) -> "PaddedRows":
        """Return the rows at `indices`, a mini-batch."""
        count = jnp.asarray(len(indices), jnp.int32)
        return PaddedRows(x=self.x[:, indices], y=self.y[indices], weight=self.weight[indices], count=count)


def pad_rows(x: Float[np.ndarray, "row feature"], y: np.ndarray, weight: np.ndarray | None = None) -> PaddedRows:
    """Lay out a table for compiled code; no rows at all are allowed. Without `weight` each row counts once."""
    count, n_slots = len(x), row_bucket(len(x))

    def pad(values: np.ndarray) -> Array:
        # Neither np.pad, which makes a further copy of a transposed table, nor jnp.asarray, which compiles.
        padded = np.zeros((*values.shape[:-1], n_slots), values.dtype)
        padded[..., :count] = values
        return jax.device_put(padded)

    weight = np.ones(count, x.dtype) if weight is None else weight.astype(x.dtype)
    response = np.zeros((n_slots, *y.shape[1:]), y.dtype)
    response[:count], response[count:] = y, y[0] if count else 0.0  # where no likelihood is infinite
    return PaddedRows(
        x=pad(x.T), y=jax.device_put(response), weight=pad(weight), count=jax.device_put(np.asarray(count, np.int32))
    )


def row_bucket(count: int) -> int:
    """Round a row count up to a multiple of 16 and to within 1/16 of its size."""
    step = max(16, (1 << max(count, 1).bit_length()) // 32)
    return -(-max(count, 1) // step) * step
