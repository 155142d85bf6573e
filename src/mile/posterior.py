"""The target: unnormalized log posterior of a network given data, a pytree with the data as leaves."""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from mile._types import Features, Position, Response, Scalar


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Rows:
    """Data in the layout of compiled code: rows last, padded to a bucket with rows of weight zero.

    Data of similar size thereby share compiled programs.
    """

    x: Features
    y: Response
    weight: Float[Array, " row"]
    count: Int[Array, ""]  # real rows; they come first

    def take(self, indices: Int[Array, " batch"]) -> "Rows":
        """Return the rows at `indices`, a mini-batch."""
        weight = self.weight[indices]
        return Rows(x=self.x[:, indices], y=self.y[indices], weight=weight, count=self.count)


def pad_rows(x: Float[np.ndarray, "row feature"], y: np.ndarray) -> Rows:
    """Lay out a table for compiled code; zero rows are allowed and stand for no data at all."""
    count = len(x)
    padding = row_bucket(count) - count
    return Rows(
        x=jnp.asarray(np.pad(x.T, ((0, 0), (0, padding)))),
        y=jnp.asarray(np.pad(y, (0, padding))),
        weight=jnp.asarray(np.pad(np.ones(count, x.dtype), (0, padding))),
        count=jnp.asarray(count, jnp.int32),
    )


def row_bucket(count: int) -> int:
    """Round a row count up to a multiple of 16 and to within 1/16 of its size."""
    step = max(16, (1 << max(count, 1).bit_length()) // 32)
    return -(-max(count, 1) // step) * step


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Posterior:
    """Log likelihood summed over rows plus log prior, as a function of one flat vector."""

    rows: Rows
    network: Any = field(metadata={"static": True})
    likelihood: Any = field(metadata={"static": True})
    prior: Any = field(metadata={"static": True})

    @property
    def dimension(self) -> int:
        """Number of parameters."""
        return self.network.dimension

    def logdensity(self, position: Position) -> Scalar:
        """Return the unnormalized log posterior."""
        return log_likelihood(self.network, self.likelihood, position, self.rows) + self.prior.log_prob(position)

    def value_and_grad(self, position: Position) -> tuple[Scalar, Position]:
        """Return the unnormalized log posterior and its gradient."""
        return jax.value_and_grad(self.logdensity)(position)


def log_likelihood(network: Any, likelihood: Any, position: Position, rows: Rows) -> Scalar:
    """Return the weighted sum of the rows' log likelihoods; a row that is not finite makes it so."""
    outputs = network.apply(position, rows.x)
    return jnp.sum(rows.weight * likelihood.log_prob(outputs, rows.y))


@dataclass(frozen=True)
class FunctionTarget:
    """Any JAX log density as a target; it has no rows, so only samplers that need none accept it."""

    function: Any

    def logdensity(self, position: Position) -> Scalar:
        """Return the unnormalized log density."""
        return self.function(position)

    def value_and_grad(self, position: Position) -> tuple[Scalar, Position]:
        """Return the unnormalized log density and its gradient."""
        return jax.value_and_grad(self.function)(position)


jax.tree_util.register_static(FunctionTarget)
