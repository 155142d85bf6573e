"""Normal priors."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from mile import _registry
from mile._checks import check_scale
from mile._types import Key, Position, Scalar
from mile.priors.base import Layered, NativePrior


@_registry.prior("normal")
@dataclass(frozen=True, kw_only=True)
class Normal:
    """Independent normal distributions around zero; `scale` is a standard deviation, never a variance."""

    scale: float = 1.0  # paper section 2: N(0, I)

    def __post_init__(self) -> None:
        check_scale("scale", self.scale)

    @classmethod
    def of_scale(cls, scale: float) -> "Normal":
        """Return the prior of that scale."""
        return Normal(scale=scale)

    def bind(self, network: Layered) -> "Normal":
        """Return this prior: it is the same for every network."""
        return self

    def log_prob(self, position: Position) -> Scalar:
        """Return the log density up to a constant."""
        return -0.5 * jnp.sum(jnp.square(position / self.scale))

    def sample(self, key: Key, dimension: int) -> Position:
        """Draw one parameter vector."""
        return self.scale * jax.random.normal(key, (dimension,))

    def tempered(self, temperature: float) -> "Normal":
        """Return the prior whose density is this one's to the power 1 / temperature."""
        return Normal(scale=self.scale * math.sqrt(temperature))

    def native_form(self) -> NativePrior | None:
        """Return what the native kernel must know; a class derived from this one may compute something else."""
        return NativePrior("normal", np.array([self.scale], float)) if type(self) is Normal else None
