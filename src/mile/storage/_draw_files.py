"""The draws of a run as they are written to its store, in whole chunks, and read back from it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from mile.storage import _draws
from mile.storage._draws import Layout, StoredDraws
from mile.storage._inside import inside

if TYPE_CHECKING:
    from mile.storage._run import Run

DRAWS_IN_MEMORY = 1 << 28  # bytes of draws that are read into memory; more stay on disk


class Recorded(NamedTuple):
    """Draws of a run."""

    position: np.ndarray  # `StoredDraws` if they stay on disk, which have shape, type and indexing of an array
    logdensity: np.ndarray
    energy_change: np.ndarray


class DrawWriter:
    """Takes the draws of chains as they are made and writes whole chunks."""

    def __init__(self, run: "Run", layout: Layout, rows: Sequence[int]) -> None:
        self._run = run
        self._layout = layout
        self._rows = list(rows)
        self._pending: list[list[Sequence[np.ndarray]]] = [[] for _ in rows]  # parts of chunks that are not complete
        self._counts = [0] * len(self._rows)

    @property
    def n_bytes(self) -> tuple[int, int]:
        """What the draws take: memory, disk."""
        chunks = self._layout._replace(n_draws=self._layout.chunk).n_bytes
        kept = self._layout.n_bytes if self._layout.n_bytes <= DRAWS_IN_MEMORY else 0
        return max(chunks, kept), self._layout.n_bytes

    def write(self, index: int, draws: Sequence[np.ndarray]) -> None:
        """Append the draws (position, log density, energy change) of a chain."""
        if not len(draws[0]):
            return
        self._pending[index].append(draws)
        self._counts[index] += len(draws[0])
        chunk = self._layout.chunk
        held = sum(len(part[0]) for part in self._pending[index])
        first = (self._counts[index] - held) // chunk
        if held < chunk and self._counts[index] < self._layout.n_draws:
            return
        arrays = self.pending(index)
        n_whole = held // chunk if self._counts[index] < self._layout.n_draws else -(-held // chunk)
        for number in range(n_whole):
            piece = [array[number * chunk : (number + 1) * chunk] for array in arrays]
            self._write_chunk(index, first + number, piece)
        rest = [array[n_whole * chunk :].copy() for array in arrays]
        self._pending[index] = [rest] if len(rest[0]) else []

    def count(self, index: int) -> int:
        """Return how many draws of a chain there are."""
        return self._counts[index]

    def pending(self, index: int) -> list[np.ndarray]:
        """Return the draws of a chain that are in no chunk yet."""
        parts = self._pending[index]
        shapes = [(0, self._layout.dimension), (0,), (0,)]
        empty = [np.empty(shape, self._layout.dtype) for shape in shapes]
        return [np.concatenate([part[which] for part in [empty, *parts]]) for which in range(3)]

    def restore(self, index: int, count: int, pending: Sequence[np.ndarray]) -> None:
        """Continue after `count` draws. `pending` are those of them that are in no chunk yet."""
        self._counts[index] = count
        self._pending[index] = [list(pending)] if len(pending[0]) else []

    def positions(self, index: int, start: int, stop: int) -> np.ndarray:
        """Return positions of some of the draws of a chain."""
        self._run.settle()
        rest = self.pending(index)[0]
        n_stored = self._counts[index] - len(rest)
        stored = read_draws(self._run.folder, self._layout, self._rows[index : index + 1], n_stored).position
        return np.concatenate([np.asarray(stored[0]), rest])[start:stop]

    def cut(self, n_draws: int) -> None:
        """End with fewer draws than planned. Write the pending draws of each chain that has reached the new number."""
        for index, count in enumerate(self._counts):
            if count < n_draws:
                continue
            arrays = self.pending(index)
            if len(arrays[0]):
                self._write_chunk(index, (count - len(arrays[0])) // self._layout.chunk, arrays)
            self._pending[index] = []
        self._layout = self._layout._replace(n_draws=n_draws)
        self._run.shorten(n_draws)

    def result(self) -> Recorded:
        """Return all draws once they are on disk."""
        self._run.settle()
        return read_draws(self._run.folder, self._layout, self._rows, self._layout.n_draws)

    def _write_chunk(self, index: int, number: int, arrays: Sequence[np.ndarray]) -> None:
        for variable, values in zip(("weights", "lp", "energy_change"), arrays, strict=True):
            name = self._layout.path(variable, self._rows[index], number)
            self._run.write_chunk(name, _draws.encode(values, self._layout.chunk))


def _read_chunk(folder: Path, layout: Layout, row: int, number: int) -> list[np.ndarray]:
    shapes = {"weights": (layout.chunk, layout.dimension), "lp": (layout.chunk,), "energy_change": (layout.chunk,)}
    return [
        _draws.decode(inside(folder, layout.path(variable, row, number)), shape, np.dtype(layout.dtype))
        for variable, shape in shapes.items()
    ]


def read_draws(
    folder: Path,
    layout: Layout,
    rows: Sequence[int],
    n_draws: int,
    pending: Sequence[list[np.ndarray] | None] | None = None,
) -> Recorded:
    """Read the first draws of some rows of the store; positions stay on disk when they are many.

    `pending` are draws of each row that came after its last whole chunk, None where the next chunk holds them. They are
    left out if the others stay on disk.
    """
    if pending is not None:
        n_whole = n_draws // layout.chunk * layout.chunk
        whole = read_draws(folder, layout, rows, n_whole)
        if isinstance(whole.position, StoredDraws):
            return whole
        newest = [
            part if part is not None else _read_chunk(folder, layout, row, n_whole // layout.chunk)
            for row, part in zip(rows, pending, strict=True)
        ]
        rest = [np.stack([part[which][: n_draws - n_whole] for part in newest]) for which in range(3)]
        return Recorded(*(np.concatenate(pair, axis=1) for pair in zip(whole, rest, strict=True)))
    dtype = np.dtype(layout.dtype)
    chunks = range(-(-n_draws // layout.chunk))

    def scalars(variable: str) -> np.ndarray:
        found = np.empty((len(rows), len(chunks) * layout.chunk), dtype)
        for index, row in enumerate(rows):
            for number in chunks:
                part = _draws.decode(inside(folder, layout.path(variable, row, number)), (layout.chunk,), dtype)
                found[index, number * layout.chunk : (number + 1) * layout.chunk] = part
        return found[:, :n_draws]

    paths = [[inside(folder, layout.path("weights", row, number)) for number in chunks] for row in rows]
    stored = StoredDraws(paths, n_draws, layout.chunk, layout.dimension, dtype)
    positions = np.asarray(stored) if stored.nbytes <= DRAWS_IN_MEMORY else cast("np.ndarray", stored)
    return Recorded(positions, scalars("lp"), scalars("energy_change"))
