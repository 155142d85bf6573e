"""A mixture over draws: the outputs of the network for each draw and row, computed in blocks of rows."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from mile import native
from mile._types import Features
from mile.execution import InProcess
from mile.likelihoods import AbstractLikelihood, AbstractPredictive, AbstractResponse
from mile.likelihoods.base import Evaluate, PerDraw
from mile.likelihoods.weights import EQUAL, DrawWeights, EqualDraws
from mile.networks.base import Network
from mile.predict._joined import JoinedDraws
from mile.storage import FlatDraws

DEFAULT_MEMORY = 1 << 30
# Rows of one block: with many draws more rows are not faster, and one row costs a whole block; with few draws
# the overhead of a block counts.
_SMALLEST_BLOCK, _LARGEST_BLOCK = 64, 1024
_BLOCK_COMPONENTS = 1 << 18  # rows x draws
# Intermediate results of XLA's forward pass, in floats: of the rows of a block under one draw, and under all draws that
# are worked on at once.
_BLOCK_FLOATS, _BATCH_FLOATS = 1 << 22, 1 << 24
_FEWEST_ROWS, _MOST_DRAWS = 16, 256
_COPIES = 8  # float64 arrays of one block's size that a quantile search holds at once
# Sums over draws are made of parts of this many draws, added in order: the numbers of a row depend neither on the
# threads nor on the other rows.
_PART_DRAWS = 1024
_FEWEST_COLUMNS = 8
_SUMMARY_ROWS = 960  # ten tiles of the native kernel

Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class DrawMixture:
    """Draws of a network and the rows to predict, in blocks."""

    network: Network
    likelihood: AbstractLikelihood
    draws: Float[np.ndarray, "draw d"] | FlatDraws | JoinedDraws
    x: Float[np.ndarray, "row feature"]
    memory: int
    weights: DrawWeights = EQUAL

    @cached_property
    def kernel(self) -> native.Specification | None:
        """What the native kernel must know, if it is the one to use."""
        on_cpu = jax.default_backend() == "cpu"
        return native.specify(self.network, self.likelihood, self.draws.dtype) if on_cpu else None

    @property
    def n_rows(self) -> int:
        return len(self.x)

    @property
    def n_draws(self) -> int:
        """Components of the mixture."""
        return len(self.draws)

    def head(self, n: int) -> "DrawMixture":
        """Return the same draws with the first rows to predict."""
        return replace(self, x=self.x[:n])

    @property
    def row_bytes(self) -> int:
        return _COPIES * 8 * self.likelihood.n_outputs * len(self.draws)

    @property
    def block_rows(self) -> int:
        """Rows of a block; the number of threads does not matter, so that results do not depend on it."""
        wanted = int(np.clip(_BLOCK_COMPONENTS // len(self.draws), _SMALLEST_BLOCK, _LARGEST_BLOCK))
        if not self.kernel:
            wanted = min(wanted, max(_FEWEST_ROWS, _BLOCK_FLOATS // self.network.row_floats))
        return int(np.clip(self.memory // self.row_bytes, 1, wanted))

    @property
    def backend(self) -> InProcess:
        """As many threads as there are cores and as blocks fit the memory side by side."""
        return InProcess(n_threads=max(1, min(os.cpu_count() or 1, self.memory // (self.block_rows * self.row_bytes))))

    def over_blocks(self, function: Callable[..., Result], *row_arrays: np.ndarray) -> Result:
        """Apply `function(components, *rows)` to each block and join its results along the rows.

        `components` has shape (draw, output, row). Results are arrays or tuples of arrays whose last axis is
        the row.
        """
        size = self.block_rows
        kernel = self.kernel
        whole: np.ndarray | Array | None = None  # where the draws are on disk
        if isinstance(self.draws, np.ndarray):
            whole = self.draws if kernel else jnp.asarray(self.draws)
        parts = _parts(slice(0, len(self.draws)))

        def evaluate(draws: np.ndarray | Array, x: np.ndarray) -> np.ndarray:
            if kernel:
                return native.outputs(kernel, np.asarray(draws), x)
            return np.asarray(_forward(self.network, draws, x))

        starts = range(0, max(self.n_rows, 1), size)

        def one_block(start: int) -> Result:
            rows = slice(start, min(start + size, self.n_rows))
            n_real = rows.stop - rows.start
            # XLA's programs have one width. Numpy adds a single column up in another order than several.
            width = max(_FEWEST_COLUMNS, n_real) if kernel else size
            padded = np.zeros((self.x.shape[1], width), np.float32)
            padded[:, :n_real] = self.x[rows].T
            if whole is None:
                components = np.concatenate([evaluate(self.draws[part], padded) for part in parts])
            else:
                components = evaluate(whole, padded)
            arguments = [_pad_last(array[..., rows], width) for array in row_arrays]
            result = function(components, *arguments)
            return jax.tree.map(lambda leaf: leaf[..., :n_real], result)

        results = self.backend.map(one_block, list(starts))
        return jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=-1), *results)

    def native_means(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the native kernel's means over draws, and the center of the first output that they refer to.

        None if the kernel is not in use or does not have the likelihood's head.

        With a single block of rows the parts of the draws run side by side, otherwise the blocks do. One row takes
        less time than starting threads.
        """
        kernel = self.kernel
        if kernel is None or not kernel.has_sums:
            return None
        blocks = [slice(start, start + _SUMMARY_ROWS) for start in range(0, self.n_rows, _SUMMARY_ROWS)]
        groups = self.weights.groups(len(self.draws))
        parts = [part for group in groups for part in _parts(group.draws)]
        threads, alone = InProcess(), InProcess(n_threads=1)
        outer, inner = (alone, threads if self.n_rows > 1 else alone) if len(blocks) == 1 else (threads, alone)

        def one_block(rows: slice) -> tuple[np.ndarray, np.ndarray]:
            x = np.ascontiguousarray(self.x[rows].T)
            center = native.outputs(kernel, self.draws[:1], x)[0, 0]
            sums = inner.map(lambda part: native.summarize(kernel, self.draws[part], x, center), parts)
            return center, _mean_of_sums(groups, sums)

        centers, means = zip(*outer.map(one_block, blocks or [slice(0, 0)]), strict=True)
        return np.concatenate(centers), np.concatenate(means, axis=1)

    def native_normals(self, location: PerDraw, scale: PerDraw, weight: PerDraw | None = None) -> Evaluate | None:
        """Return the native distribution function and density of mixtures of normals, if the kernel is in use.

        Without a weight for each of them, they are one for each draw and count as their draws do.
        """
        if self.kernel is None:
            return None
        by_row, precision = np.ascontiguousarray(location.T), np.ascontiguousarray(1.0 / scale.T)
        if weight is not None:
            shares = np.ascontiguousarray(weight.T)
            return lambda y: native.weighted_mixture(by_row, precision, shares, y)
        groups = self.weights.groups(len(location))
        return lambda y: native.mixture(by_row, precision, groups, y)


def predict(
    network: Network,
    likelihood: AbstractLikelihood,
    draws: Float[np.ndarray, "draw d"] | FlatDraws | JoinedDraws,
    x: Float[np.ndarray, "row feature"],
    response: AbstractResponse,
    memory: int = DEFAULT_MEMORY,
    weights: DrawWeights = EQUAL,
) -> AbstractPredictive:
    """Return the predictive distribution of each row of encoded features."""
    return likelihood.predictive(DrawMixture(network, likelihood, draws, x, memory, weights), response)


def _parts(draws: slice) -> list[slice]:
    """Cut draws into parts."""
    starts = range(draws.start, draws.stop, _PART_DRAWS)
    return [slice(start, min(start + _PART_DRAWS, draws.stop)) for start in starts]


def _mean_of_sums(groups: list[EqualDraws], sums: list[np.ndarray]) -> np.ndarray:
    """Return the mean over all draws, from the sums over the parts of each group."""
    left, means = iter(sums), []
    for group in groups:
        first, *rest = islice(left, len(_parts(group.draws)))
        means.append(group.share * (sum(rest, start=first) / group.count))
    return sum(means[1:], start=means[0])


def _pad_last(array: np.ndarray, size: int) -> np.ndarray:
    missing = size - array.shape[-1]
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, missing)], mode="edge" if array.shape[-1] else "constant")


@partial(jax.jit, static_argnames="network")
def _forward(network: Network, draws: Float[Array, "draw d"], x: Features) -> Float[Array, "draw output row"]:
    most = int(np.clip(_BATCH_FLOATS // (x.shape[1] * network.row_floats), 1, _MOST_DRAWS))
    return jax.lax.map(lambda position: native.apply(network, position, x), draws, batch_size=min(len(draws), most))
