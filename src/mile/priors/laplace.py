"""Laplace priors, which hold many weights near zero and let a few be large."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from mile import _registry
from mile._checks import check_scale
from mile._types import Key, Position, Scalar
from mile.priors.base import Layered, NativePrior


@_registry.prior("laplace")
@dataclass(frozen=True, kw_only=True)
class Laplace:
    """Independent Laplace distributions around zero; the standard deviation is sqrt(2) times `scale`."""

    scale: float = 1.0

    def __post_init__(self) -> None:
        check_scale("scale", self.scale)

    @classmethod
    def of_scale(cls, scale: float) -> "Laplace":
        """Return the prior of that scale."""
        return Laplace(scale=scale)

    def bind(self, network: Layered) -> "Laplace":
        """Return this prior: it is the same for every network."""
        return self

    def log_prob(self, position: Position) -> Scalar:
        """Return the log density up to a constant."""
        standard = position / self.scale
        return -jnp.sum(standard * jnp.sign(standard))  # jnp.abs would have the slope 1 at zero, this has 0

    def sample(self, key: Key, dimension: int) -> Position:
        """Draw one parameter vector."""
        return self.scale * jax.random.laplace(key, (dimension,))

    def tempered(self, temperature: float) -> "Laplace":
        """Return the prior whose density is this one's to the power 1 / temperature."""
        return Laplace(scale=self.scale * temperature)

    def native_form(self) -> NativePrior | None:
        """Return what the native kernel must know; a class derived from this one may compute something else."""
        return NativePrior("laplace", np.array([self.scale], float)) if type(self) is Laplace else None
