"""A run without a directory: draws stay in memory, and there are no checkpoints."""

from collections.abc import Mapping, Sequence

import numpy as np

from mile._errors import Status
from mile.storage._draw_files import Recorded
from mile.storage._draws import Layout
from mile.storage._records import Record


class Unsaved:
    """Has the methods of a run directory and writes no files."""

    is_saved = False
    layout: Layout | None = None  # of draws in files
    plan: dict[str, int] | None = None  # a time limit plans anew in each call
    weights: np.ndarray | None = None  # of the chains and then of their members in predictions

    def set_plan(self, plan: dict[str, int]) -> None:
        """Do nothing."""

    is_finished = False

    def recall(self, name: str) -> dict[str, np.ndarray] | None:
        """Return None: there are no files."""
        return None

    def finish(
        self,
        status: Mapping[int, Status],
        weights: np.ndarray | None = None,
        kept: Mapping[str, Mapping[str, np.ndarray]] | None = None,
    ) -> None:
        """Keep the weights of candidates."""
        self.weights = weights

    def load(self, chain: int, kind: str) -> Record | None:
        """Return None: there are no checkpoints."""
        return None

    def due(self, chains: Sequence[int]) -> bool:
        """Return False: there are no checkpoints."""
        return False

    def save(self, records: Mapping[tuple[int, str], Record]) -> None:
        """Do nothing."""

    def check(self) -> None:
        """Do nothing."""

    def settle(self) -> None:
        """Do nothing."""

    def draws(self, chain_ids: Sequence[int], n_draws: int, dimension: int, dtype: np.dtype) -> "DrawsInMemory":
        """Return a store for draws."""
        return DrawsInMemory(len(chain_ids), n_draws, dimension, dtype)


class DrawsInMemory:
    """Draws of all chains in one array, filled as they come."""

    def __init__(self, n_chains: int, n_draws: int, dimension: int, dtype: np.dtype) -> None:
        self._arrays = [
            np.empty((n_chains, n_draws, dimension), dtype),
            np.empty((n_chains, n_draws), dtype),
            np.empty((n_chains, n_draws), dtype),
        ]
        self._counts = [0] * n_chains

    @property
    def n_bytes(self) -> tuple[int, int]:
        """What the draws take: memory, disk."""
        return sum(array.nbytes for array in self._arrays), 0

    def write(self, index: int, draws: Sequence[np.ndarray]) -> None:
        """Append the draws (position, log density, energy change) of a chain."""
        start, count = self._counts[index], len(draws[0])
        for array, values in zip(self._arrays, draws, strict=True):
            array[index, start : start + count] = values
        self._counts[index] += count

    def count(self, index: int) -> int:
        """Return how many draws of a chain there are."""
        return self._counts[index]

    def pending(self, index: int) -> list[np.ndarray]:
        """Return an empty list: there are no checkpoints."""
        return []

    def restore(self, index: int, count: int, pending: Sequence[np.ndarray]) -> None:
        """Do nothing."""

    def cut(self, n_draws: int) -> None:
        """End with fewer draws than planned."""
        self._arrays = [array[:, :n_draws] for array in self._arrays]

    def result(self) -> Recorded:
        """Return all draws."""
        return Recorded(*self._arrays)
