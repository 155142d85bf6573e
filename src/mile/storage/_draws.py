"""Draws on disk: a zarr store in ArviZ layout, one file per chain and block of draws, each written once.

    draws.zarr/posterior/weights              (chain, draw, weight)
    draws.zarr/sample_stats/lp, energy_change (chain, draw)
    draws.zarr/sample_stats/status            (chain)

Arrays have their final size from the start; what is not written yet reads as NaN. A chunk is its numbers, little
endian and uncompressed (random digits do not compress), and their CRC-32C, which is compared whenever it is read.
zarr makes the metadata; chunks are written by us because zarr does not force them to disk.
"""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from google_crc32c import value as crc32c

from mile._errors import CorruptFileError
from mile.storage._inside import open_plain
from mile.storage._mapped import MappedTensor

if TYPE_CHECKING:
    from zarr.storage import MemoryStore

FOLDER = "draws.zarr"
RUNNING = -1  # status of a chain that has not finished
_LARGEST_CHUNK = 1 << 22  # bytes
_SMALL_CHUNK = 1 << 19
_FEWEST_CHUNKS, _MOST_SMALL_CHUNKS = 4, 32  # of a chain: a reader sees draws arrive, small files are not many
_CHAIN_CHUNK = 1 << 10  # chains whose numbers share a file
VARIABLES = {
    "weights": ("posterior", ("chain", "draw", "weight")),
    "lp": ("sample_stats", ("chain", "draw")),
    "energy_change": ("sample_stats", ("chain", "draw")),
}


Shape = tuple[int, ...]
Index = int | slice | Sequence[int] | np.ndarray  # chooses along one axis, as in numpy


class Layout(NamedTuple):
    """Sizes of a store."""

    chain_ids: tuple[int, ...]
    n_draws: int
    dimension: int
    dtype: str
    chunk: int

    @classmethod
    def plan(cls, chain_ids: Sequence[int], n_draws: int, dimension: int, dtype: np.dtype) -> "Layout":
        """Choose how many draws share a file."""
        n_bytes = dimension * dtype.itemsize
        chunk = max(_SMALL_CHUNK // n_bytes, -(-n_draws // _MOST_SMALL_CHUNKS))
        chunk = max(1, min(chunk, -(-n_draws // _FEWEST_CHUNKS), _LARGEST_CHUNK // n_bytes))
        return cls(tuple(map(int, chain_ids)), n_draws, dimension, dtype.name, chunk)

    @property
    def n_chunks(self) -> int:
        """Files of one chain and variable."""
        return -(-self.n_draws // self.chunk)

    @property
    def n_bytes(self) -> int:
        """Space that all draws take."""
        row = self.n_chunks * self.chunk * (self.dimension + 2) * np.dtype(self.dtype).itemsize
        return len(self.chain_ids) * row

    def path(self, variable: str, row: int, chunk: int) -> str:
        """Return where a chunk is, relative to the run."""
        group, dims = VARIABLES[variable]
        return f"{FOLDER}/{group}/{variable}/c.{row}.{chunk}" + ".0" * (len(dims) - 2)


def metadata(layout: Layout, status: Sequence[int]) -> dict[str, bytes]:
    """Return the files of a store that hold no draws: descriptions, coordinates, the status of each chain."""
    import zarr
    from zarr.codecs import Crc32cCodec
    from zarr.storage import MemoryStore

    store = MemoryStore()
    zarr.create_group(store, attributes={"creator": "mile", "format": 1})
    crc = Crc32cCodec()
    n_chains = len(layout.chain_ids)

    def create(
        group: zarr.Group, name: str, dims: tuple[str, ...], shape: Shape, chunks: Shape, dtype: str, fill: float
    ) -> zarr.Array:
        return group.create_array(
            name,
            shape=shape,
            chunks=chunks,
            dtype=dtype,
            fill_value=fill,
            compressors=crc,
            filters=None,
            dimension_names=dims,
            chunk_key_encoding={"name": "default", "separator": "."},  # one folder for all chunks, not one for each
        )

    for group_name in ("posterior", "sample_stats"):
        group = zarr.create_group(store, path=group_name, attributes={"inference_library": "mile"})
        chain = create(group, "chain", ("chain",), (n_chains,), (_CHAIN_CHUNK,), "int64", 0)
        chain[:] = np.asarray(layout.chain_ids)
        draw = create(group, "draw", ("draw",), (layout.n_draws,), (layout.n_draws,), "int64", 0)
        draw[:] = np.arange(layout.n_draws)
        for name, (owner, dims) in VARIABLES.items():
            if owner == group_name:
                tail = (layout.dimension,) * (len(dims) - 2)
                shape, chunks = (n_chains, layout.n_draws, *tail), (1, layout.chunk, *tail)
                create(group, name, dims, shape, chunks, layout.dtype, np.nan)
    codes = create(group, "status", ("chain",), (n_chains,), (_CHAIN_CHUNK,), "int32", RUNNING)
    codes[:] = np.asarray(status)
    return asyncio.run(_contents(store))


async def _contents(store: "MemoryStore") -> dict[str, bytes]:
    from zarr.core.buffer import default_buffer_prototype

    found = {}
    async for key in store.list():
        buffer = await store.get(key, default_buffer_prototype())
        assert buffer is not None
        found[f"{FOLDER}/{key}"] = buffer.to_bytes()
    return found


def encode(values: np.ndarray, chunk: int) -> bytes:
    """Return the bytes of a chunk; the last one of a chain is filled up with NaN."""
    if len(values) < chunk:
        filler = np.full((chunk - len(values), *values.shape[1:]), np.nan, values.dtype)
        values = np.concatenate([values, filler])
    data = np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes()
    return data + crc32c(data).to_bytes(4, "little")


def decode(path: Path, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Read a chunk and check it."""
    with open_plain(path) as file:
        data = file.read()
    body, check = data[:-4], data[-4:]
    wanted = int(np.prod(shape)) * dtype.itemsize
    if len(body) != wanted or crc32c(body).to_bytes(4, "little") != check:
        raise CorruptFileError(f"{path}: the chunk was cut short or altered.")
    return np.frombuffer(body, dtype.newbyteorder("<")).reshape(shape)


class StoredDraws:
    """Draws (chain, draw, d) that stay on disk and are read, and checked again, where they are needed.

    Each row has the chunks of one chain: files, or arrays that are mapped already.
    """

    def __init__(
        self, rows: Sequence[Sequence[Path | np.ndarray]], n_draws: int, chunk: int, dimension: int, dtype: np.dtype
    ) -> None:
        self._rows = tuple(map(tuple, rows))
        self._chunk = chunk
        self.shape = (len(self._rows), n_draws, dimension)
        self.dtype = np.dtype(dtype)
        self.ndim = 3
        self._newest: tuple[Path, np.ndarray] | None = None  # the chunk that was read last

    def __len__(self) -> int:
        return len(self._rows)

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        array = np.empty(self.shape, self.dtype if dtype is None else dtype)
        for row in range(len(self)):
            for start in range(0, self.shape[1], self._chunk):
                array[row, start : start + self._chunk] = self._mapped(row, start // self._chunk)
        return array

    def __getitem__(self, key: Index | tuple[Index, ...]) -> np.ndarray:
        """Return a copy of the chosen chains, and with a second index of their chosen draws."""
        chains, *rest = key if isinstance(key, tuple) else (key,)
        chosen = np.arange(len(self))[chains]
        if chosen.ndim == 0:
            row = np.asarray(self.select([int(chosen)]))[0]
            return row[tuple(rest)] if rest else row
        if not len(chosen):
            return np.empty((1, *self.shape[1:]), self.dtype)[(slice(0), *rest)]
        return np.stack([self[int(row), *rest] for row in chosen])

    @property
    def nbytes(self) -> int:
        """Size of all draws."""
        return int(np.prod(self.shape)) * self.dtype.itemsize

    def select(self, chains: Sequence[int] | np.ndarray) -> "StoredDraws":
        """Return the draws of some chains (indices, or a mask)."""
        rows = [self._rows[row] for row in np.arange(len(self))[chains]]
        return StoredDraws(rows, self.shape[1], self._chunk, self.shape[2], self.dtype)

    def replace(self, slots: Sequence[int] | np.ndarray, other: "StoredDraws") -> "StoredDraws":
        """Return these draws with other chains in some places."""
        rows = dict(enumerate(self._rows)) | dict(zip(map(int, slots), other._rows, strict=True))
        return StoredDraws([rows[row] for row in range(len(self))], self.shape[1], self._chunk, *self._rest)

    def joined(self, other: "StoredDraws") -> "StoredDraws":
        """Return these draws and then those of other chains, in chunks of the same size."""
        return StoredDraws([*self._rows, *other._rows], self.shape[1], self._chunk, *self._rest)

    @property
    def _rest(self) -> tuple[int, np.dtype]:
        return self.shape[2], self.dtype

    @property
    def flat(self) -> "FlatDraws":
        """All draws in one row, chain after chain."""
        return FlatDraws(self)

    def pieces(self) -> Iterator[np.ndarray]:
        """Yield the bytes of all draws in order."""
        for row in range(len(self)):
            for chunk in range(len(self._rows[row])):
                yield np.ascontiguousarray(self._mapped(row, chunk)).reshape(-1).view(np.uint8)

    def _mapped(self, row: int, chunk: int) -> np.ndarray:
        left = self.shape[1] - chunk * self._chunk
        shape, source = (self._chunk, self.shape[2]), self._rows[row][chunk]
        if isinstance(source, np.ndarray):
            if isinstance(source, MappedTensor):
                source.check()
            return source[:left]
        newest = self._newest  # one assignment and one look: threads may share it
        if newest is None or newest[0] != source:
            newest = self._newest = (source, decode(source, shape, self.dtype))
        return newest[1][:left]


class FlatDraws:
    """A view (draw, d) on stored draws; slices are copied to memory."""

    def __init__(self, draws: StoredDraws) -> None:
        self._draws = draws
        self.shape = (draws.shape[0] * draws.shape[1], draws.shape[2])
        self.dtype = draws.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: slice) -> np.ndarray:
        start, stop, step = key.indices(len(self))
        if step != 1:
            raise IndexError("stored draws can be cut into runs of neighbors only.")
        per_chain, chunk = self._draws.shape[1], self._draws._chunk
        found = np.empty((max(stop - start, 0), self.shape[1]), self.dtype)
        at = start
        while at < stop:
            row, draw = divmod(at, per_chain)
            number, offset = divmod(draw, chunk)
            piece = self._draws._mapped(row, number)[offset:][: stop - at]
            found[at - start : at - start + len(piece)] = piece
            at += len(piece)
        return found
