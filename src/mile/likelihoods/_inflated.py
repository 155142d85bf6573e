"""Counts with more zeros than another distribution of counts has."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool

from mile.likelihoods._integers import AbstractCountComponents
from mile.likelihoods._zeros import WithZeros
from mile.likelihoods.base import PerDraw, PerRow


@dataclass(frozen=True, eq=False)
class InflatedComponents(WithZeros[AbstractCountComponents], AbstractCountComponents):
    """Zero-inflated distributions of each row under each draw."""

    @property
    def countable(self) -> Bool[np.ndarray, " row"]:
        """Rows that are so without inflation."""
        return self.base.countable

    @property
    def reach(self) -> PerRow:
        """As without inflation."""
        return self.base.reach

    def smooth_cdf(self, y: PerRow) -> PerDraw:
        """Return P(Y <= y), between whole numbers too."""
        chance = self.chance
        return chance + (1.0 - chance) * self.base.smooth_cdf(y)

    def masses(self) -> Iterator[PerDraw]:
        """Yield the probability of 0, 1 and so on."""
        chance = self.chance
        for number, mass in enumerate(self.base.masses()):
            yield (1.0 - chance) * mass + (chance if number == 0 else 0.0)
