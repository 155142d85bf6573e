"""How the learning rate changes over the epochs of a member; it is constant within an epoch.

A schedule knows the number of epochs and means to spend them all: give it few, and a stopping rule that waits as long.
The weights of the lowest validation loss are kept all the same.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Int

from mile import _registry
from mile._checks import check_count, check_number
from mile._types import Scalar

_CYCLES_OF_COSLOG = 4  # Holzmüller et al., "Better by default" (RealMLP), 2024, appendix A
_MOST_CYCLES = 20  # the first of so many is a millionth of the training


@runtime_checkable
class RateSchedule(Protocol):
    """The learning rate of each epoch; pure and hashable."""

    def factor(self, epoch: Int[Array, ""], max_epochs: int) -> Scalar:
        """Return what the learning rate is multiplied by in an epoch, counted from 0."""
        ...


@_registry.rate_schedule("cosine")
@dataclass(frozen=True, kw_only=True)
class Cosine:
    """Fall by half a cosine from the learning rate to a share `end` of it at the last epoch."""

    end: float = 0.0

    def __post_init__(self) -> None:
        check_number("end", self.end, smallest=0.0, largest=1.0)

    def factor(self, epoch: Int[Array, ""], max_epochs: int) -> Scalar:
        """Return the factor in the middle of the epoch."""
        return self.end + (1.0 - self.end) * 0.5 * (1.0 + jnp.cos(jnp.pi * _middle(epoch, max_epochs)))


@_registry.rate_schedule("coslog")
@dataclass(frozen=True, kw_only=True)
class CosLog:
    """Rise from zero and fall back to it a few times, each time more slowly, as RealMLP's "coslog4" does."""

    cycles: int = _CYCLES_OF_COSLOG

    def __post_init__(self) -> None:
        if check_count("cycles", self.cycles) > _MOST_CYCLES:
            raise ValueError(f"cycles must be at most {_MOST_CYCLES}; got {self.cycles}.")

    def factor(self, epoch: Int[Array, ""], max_epochs: int) -> Scalar:
        """Return the factor in the middle of the epoch."""
        turn = jnp.log2(1.0 + (2.0**self.cycles - 1.0) * _middle(epoch, max_epochs))
        return 0.5 * (1.0 - jnp.cos(2.0 * jnp.pi * turn))


def _middle(epoch: Int[Array, ""], max_epochs: int) -> Scalar:
    return (epoch + 0.5) / max_epochs
