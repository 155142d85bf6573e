"""Numbers that are zero with a chance of its own, and else as another distribution says."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np
from jaxtyping import Int

from mile.likelihoods._masses import with_zeros
from mile.likelihoods.base import PerDraw, PerRow
from mile.likelihoods.components import AbstractComponents

Base = TypeVar("Base", bound=AbstractComponents)
_FEWEST, _MOST = 0.01, 0.99  # of the chance where the output is zero


def start_of(share: float) -> float:
    """Return the log odds of a share of zeros, kept to two digits and within sight."""
    share = min(max(share, _FEWEST), _MOST)
    return float(f"{np.log(share / (1.0 - share)):.2g}")


@dataclass(frozen=True, eq=False)
class WithZeros(AbstractComponents, Generic[Base]):
    """Distributions of each row under each draw that have a chance of zero besides those of another family."""

    logit: PerDraw  # of the chance
    base: Base

    @property
    def chance(self) -> PerDraw:
        """The chance of a zero that the other distribution has not made."""
        return 1.0 / (1.0 + np.exp(-np.clip(self.logit, -700.0, 700.0)))

    @property
    def mean(self) -> PerDraw:
        """Means."""
        return (1.0 - self.chance) * self.base.mean

    @property
    def std(self) -> PerDraw:
        """Standard deviations."""
        chance = self.chance
        return np.sqrt((1.0 - chance) * (np.square(self.base.std) + chance * np.square(self.base.mean)))

    @property
    def spread(self) -> PerDraw:
        """Those of the other distribution."""
        return self.base.spread

    def log_prob(self, y: PerRow) -> PerDraw:
        """Return the log probability of zero, or density or probability of another value, one per row."""
        return with_zeros(np, self.logit, np.asarray(y) + 0.0 * self.logit, self.base.log_prob(y))

    def cdf(self, y: PerRow) -> PerDraw:
        """Return P(Y <= y) of one value per row."""
        return self._beside(np.asarray(y) >= 0.0, self.base.cdf(y))

    def cdf_below(self, y: PerRow) -> PerDraw:
        """Return P(Y < y) of one value per row."""
        return self._beside(np.asarray(y) > 0.0, self.base.cdf_below(y))

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Draw one value from each distribution."""
        is_zero = rng.uniform(size=self.logit.shape) < self.chance
        return np.where(is_zero, 0.0, self.base.sample(rng))

    def take(self, draws: Int[np.ndarray, "sample row"]) -> "WithZeros[Base]":
        """Return one distribution for each sample and row: that of the draw with the given number."""
        return replace(self, logit=np.take_along_axis(self.logit, draws, axis=0), base=self.base.take(draws))

    def parameters(self) -> tuple[PerDraw, ...]:
        """Return the log odds, and the arrays of the other distribution."""
        return self.logit, *self.base.parameters()

    def with_parameters(self, arrays: Sequence[np.ndarray]) -> "WithZeros[Base]":
        """Return distributions of the same kind that are made of other arrays."""
        return replace(self, logit=arrays[0], base=self.base.with_parameters(arrays[1:]))

    def _beside(self, counts_zero: np.ndarray, of_base: PerDraw) -> PerDraw:
        chance = self.chance
        return np.where(counts_zero, chance, 0.0) + (1.0 - chance) * of_base
