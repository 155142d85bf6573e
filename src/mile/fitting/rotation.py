"""Rotating folds: every chain leaves out one fold of the rows, so each row has chains that never saw it.

A member trains without the fold that its chain leaves out and without a second one, by which it stops early. Its chain
then samples with all rows but its own fold. So every row is in most posteriors, and is predicted by chains that used it
neither for sampling nor for stopping.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from mile.folded import ChosenRows, FoldedPosterior, choose_rows
from mile.posterior import Posterior


@dataclass(frozen=True, eq=False)
class Rotation:
    """The folds of a table and what each chain does with them; chains are counted by their place in the ensemble."""

    folds: Int[np.ndarray, " row"]
    n_folds: int

    @classmethod
    def of(cls, folds: Int[np.ndarray, " row"]) -> "Rotation":
        """Return the rotation of these folds."""
        return cls(folds, int(folds.max()) + 1)

    def left_out(self, place: int) -> int:
        """Return the fold that a chain never sees."""
        return place % self.n_folds

    def stopping(self, place: int) -> int:
        """Return the fold by which a member stops early; members that leave out the same fold get different ones."""
        return (place + 1 + (place // self.n_folds) % (self.n_folds - 1)) % self.n_folds

    def for_sampling(self, posterior: Posterior, places: Int[np.ndarray, " chain"]) -> FoldedPosterior:
        """Return the target of chains, given the place of each by its number."""
        masks = [self.folds != fold for fold in range(self.n_folds)]
        chosen = choose_rows(posterior.rows, masks, np.array([self.left_out(place) for place in places.tolist()]))
        return FoldedPosterior(posterior=posterior, chosen=chosen)

    def for_training(
        self, posterior: Posterior, places: Int[np.ndarray, " chain"]
    ) -> tuple[FoldedPosterior, ChosenRows]:
        """Return the rows that members learn from, and those by which they stop."""
        pairs = [(self.left_out(place), self.stopping(place)) for place in places.tolist()]
        known = sorted(set(pairs))
        selection = np.array([known.index(pair) for pair in pairs])
        learning = choose_rows(posterior.rows, [~np.isin(self.folds, pair) for pair in known], selection)
        stopping = choose_rows(posterior.rows, [self.folds == stop for _, stop in known], selection)
        return FoldedPosterior(posterior=posterior, chosen=learning), stopping
