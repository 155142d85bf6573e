"""A run without a directory: draws stay in memory, and there are no checkpoints but the last."""

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
    plan: dict[str, int] | None = None  # budgets that a time limit or a rule led to
    weights: np.ndarray | None = None  # of the chains and then of their members in predictions
    begun: int | None = None  # how many chains there were before there were more

    def set_plan(self, plan: dict[str, int]) -> None:
        """Keep the budgets for chains that replace failed ones."""
        self.plan = plan

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


class Remembered(Unsaved):
    """A run in memory that can be given more draws and chains: it remembers how its chains ended.

    Attributes
    ----------
    records
        By chain and kind: trained networks, last states, and how chains ended.
    drawn
        Draws of chains that there are already, by chain.
    """

    is_saved = True
    _REMEMBERED = ("member", "last", "final")

    def __init__(
        self,
        records: Mapping[tuple[int, str], Record] | None = None,
        drawn: Mapping[int, Sequence[np.ndarray]] | None = None,
        begun: int | None = None,
    ) -> None:
        self.records, self.drawn, self.begun = dict(records or {}), dict(drawn or {}), begun

    def longer(self, drawn: Mapping[int, Sequence[np.ndarray]], n_chains: int, *, more_draws: bool) -> "Remembered":
        """Return the run of so many chains that continues this one, given its draws (position, log density, energy)."""
        kinds = {"member": "member", "last": "state"} if more_draws else {kind: kind for kind in self._REMEMBERED}
        records = {
            (chain, kinds[kind]): record
            for (chain, kind), record in self.records.items()
            if kind in kinds and chain in drawn
        }
        return Remembered(records, drawn, len(drawn) if n_chains > len(drawn) else None)

    def load(self, chain: int, kind: str) -> Record | None:
        """Return the newest record of a chain and kind."""
        return self.records.get((chain, kind))

    def save(self, records: Mapping[tuple[int, str], Record]) -> None:
        """Remember trained networks, last states and ends."""
        self.records |= {(chain, kind): one for (chain, kind), one in records.items() if kind in self._REMEMBERED}

    def draws(self, chain_ids: Sequence[int], n_draws: int, dimension: int, dtype: np.dtype) -> "DrawsInMemory":
        """Return a store that has the draws that there are already."""
        store = super().draws(chain_ids, n_draws, dimension, dtype)
        for index, chain in enumerate(chain_ids):
            if chain in self.drawn:
                store.write(index, self.drawn[chain])
        return store


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
        """Return no draws: none need be in a checkpoint."""
        return [array[index, :0] for array in self._arrays]

    def restore(self, index: int, count: int, pending: Sequence[np.ndarray]) -> None:
        """Do nothing."""

    def positions(self, index: int, start: int, stop: int) -> np.ndarray:
        """Return some of the draws of a chain."""
        return self._arrays[0][index, start:stop]

    def cut(self, n_draws: int) -> None:
        """End with fewer draws than planned."""
        self._arrays = [array[:, :n_draws] for array in self._arrays]

    def result(self) -> Recorded:
        """Return all draws."""
        return Recorded(*self._arrays)
