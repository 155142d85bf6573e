"""A run that leaves nothing behind: draws are kept in memory, states are not kept at all."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mile._errors import Status
from mile.storage._draw_files import Recorded
from mile.storage._run import Record


class Unsaved:
    """Stands for a run directory where there is none."""

    is_saved = False
    plan: dict[str, Any] | None = None  # a time limit's budgets are for now only

    def set_plan(self, plan: dict[str, Any]) -> None:
        """Forget."""

    def finish(self, status: Mapping[int, Status]) -> None:
        """Have nothing to close."""

    def load(self, chain: int, kind: str) -> Record | None:
        """Remember nothing."""
        return None

    def due(self, chains: Sequence[int]) -> bool:
        """Never save."""
        return False

    def save(self, records: Mapping[tuple[int, str], Record]) -> None:
        """Forget."""

    def check(self) -> None:
        """Have nothing to wait for."""

    def settle(self) -> None:
        """Have nothing to wait for."""

    def draws(self, chain_ids: Sequence[int], n_draws: int, dimension: int, dtype: Any) -> "DrawsInMemory":
        """Return room for draws."""
        return DrawsInMemory(len(chain_ids), n_draws, dimension, dtype)


class DrawsInMemory:
    """Draws of all chains in one array, filled as they come."""

    def __init__(self, n_chains: int, n_draws: int, dimension: int, dtype: Any) -> None:
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

    def write(self, index: int, draws: Any) -> None:
        """Append the draws (position, log density, energy change) of a chain."""
        start, count = self._counts[index], len(draws[0])
        for array, values in zip(self._arrays, draws, strict=True):
            array[index, start : start + count] = values
        self._counts[index] += count

    def count(self, index: int) -> int:
        """Return how many draws of a chain there are."""
        return self._counts[index]

    def pending(self, index: int) -> list[np.ndarray]:
        """Return nothing: no state of this run is ever saved."""
        return []

    def restore(self, index: int, count: int, pending: Sequence[np.ndarray]) -> None:
        """Have nothing to go on from."""

    def cut(self, n_draws: int) -> None:
        """End with fewer draws than planned."""
        self._arrays = [array[:, :n_draws] for array in self._arrays]

    def result(self) -> Recorded:
        """Return all draws."""
        return Recorded(*self._arrays)
