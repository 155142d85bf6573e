"""Student-t priors, whose tails are heavy."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from mile import _registry
from mile._checks import check_number, check_scale
from mile._types import Key, Position, Scalar
from mile.priors.base import Layered, NativePrior


@_registry.prior("student_t")
@dataclass(frozen=True, kw_only=True)
class StudentT:
    """Independent Student-t distributions around zero; the standard deviation is sqrt(df / (df - 2)) times `scale`.

    With `df` of 2 or less there is none: the tails are too heavy.
    """

    df: float = 3.0  # Fortuin et al. 2022
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_number("df", self.df, positive=True)
        check_scale("scale", self.scale)

    @classmethod
    def of_scale(cls, scale: float) -> "StudentT":
        """Return the prior of that scale."""
        return StudentT(scale=scale)

    def bind(self, network: Layered) -> "StudentT":
        """Return this prior: it is the same for every network."""
        return self

    def log_prob(self, position: Position) -> Scalar:
        """Return the log density up to a constant."""
        return -0.5 * (self.df + 1.0) * jnp.sum(jnp.log1p(jnp.square(position / self.scale) / self.df))

    def sample(self, key: Key, dimension: int) -> Position:
        """Draw one parameter vector."""
        return self.scale * jax.random.t(key, self.df, (dimension,))

    def tempered(self, temperature: float) -> "StudentT":
        """Return the prior whose density is this one's to the power 1 / temperature.

        Raises
        ------
        ValueError
            If that has no finite integral: the tails fall with the power (df + 1) / temperature, which must exceed 1.
        """
        df = (self.df + 1.0) / temperature - 1.0
        if df <= 0.0:
            raise ValueError(
                f"temperature must be below df + 1 = {self.df + 1.0:g} with a Student-t prior, or its tempered density "
                f"has no finite integral; got {temperature!r}."
            )
        return StudentT(df=df, scale=self.scale * math.sqrt(self.df / df))

    def native_form(self) -> NativePrior | None:
        """Return what the native kernel must know; a class derived from this one may compute something else."""
        known = type(self) is StudentT
        return NativePrior("student_t", np.array([self.scale], float), float(self.df)) if known else None
