"""Draws from several places as one sequence, without a copy."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from mile.storage import FlatDraws


class JoinedDraws:
    """A view (draw, d) on draws in memory or on disk, one after another."""

    def __init__(self, pieces: Sequence[Float[np.ndarray, "draw d"] | FlatDraws]) -> None:
        self._pieces = tuple(pieces)
        self.shape = (sum(map(len, self._pieces)), self._pieces[0].shape[1])
        self.dtype = self._pieces[0].dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: slice) -> np.ndarray:
        """Return neighbors; they are copied only where they come from several places."""
        start, stop, step = key.indices(len(self))
        if step != 1:
            raise IndexError("joined draws can be cut into runs of neighbors only.")
        found, first = [], 0
        for piece in self._pieces:
            here = slice(max(start - first, 0), min(stop - first, len(piece)))
            if here.start < here.stop:
                found.append(piece[here])
            first += len(piece)
        return found[0] if len(found) == 1 else np.concatenate([np.empty((0, self.shape[1]), self.dtype), *found])
