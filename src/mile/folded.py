"""Targets that leave rows out: each chain has the posterior of its own rows, and all share one table."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from mile._types import ChainNumber, Position, Scalar, Target
from mile.networks.base import Network
from mile.padded_rows import PaddedRows, row_bucket
from mile.posterior import Posterior


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class ChosenRows:
    """Selections of rows from one table; each chain has one of them."""

    table: PaddedRows
    rows: Int[Array, "selection slot"]  # where the rows of a selection are in the table; padded
    counts: Int[Array, " selection"]
    selection: Int[Array, " chain"]  # by the number of the chain

    @property
    def count(self) -> Int[Array, ""]:
        """Rows of the smallest selection."""
        return jnp.min(self.counts)

    def for_chain(self, chain: ChainNumber) -> PaddedRows:
        """Return the rows of one chain as a table of their own."""
        chosen = self.selection[chain]
        count = self.counts[chosen]
        taken = self.table.take(self.rows[chosen])
        within = jnp.arange(self.rows.shape[1]) < count
        return replace(taken, weight=jnp.where(within, taken.weight, 0.0), count=count)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class FoldedPosterior(Target):
    """The posterior of the rows that a chain has: `for_chain` gives it."""

    posterior: Posterior  # of all rows
    chosen: ChosenRows

    def for_chain(self, chain: ChainNumber) -> Posterior:
        """Return the target of a chain."""
        return replace(self.posterior, rows=self.chosen.for_chain(chain))

    def tempered(self, temperature: float) -> "FoldedPosterior":
        """Return the targets whose densities are these to the power 1 / temperature."""
        posterior = self.posterior.tempered(temperature)
        return FoldedPosterior(posterior=posterior, chosen=replace(self.chosen, table=posterior.rows))

    @property
    def network(self) -> Network:
        """The network, which all chains have."""
        return self.posterior.network

    @property
    def n_slots(self) -> int:
        """Rows of a chain and padding."""
        return self.chosen.rows.shape[1]

    def logdensity(self, position: Position) -> Scalar:
        """Return the unnormalized log posterior of all rows."""
        return self.posterior.logdensity(position)

    def value_and_grad(self, position: Position) -> tuple[Scalar, Position]:
        """Return the same and its gradient."""
        return self.posterior.value_and_grad(position)


def choose_rows(
    table: PaddedRows, masks: Sequence[Bool[np.ndarray, " row"]], selection: Int[np.ndarray, " chain"]
) -> ChosenRows:
    """Return selections by masks over the rows of a table; `selection` says which of them each chain has."""
    counts = np.array([int(mask.sum()) for mask in masks], np.int32)
    # An empty slot repeats a row, whose response the likelihood allows.
    rows = np.zeros((len(masks), row_bucket(int(counts.max()))), np.int32)
    for row, mask in zip(rows, masks, strict=True):
        chosen = np.flatnonzero(mask)
        row[: len(chosen)] = chosen
    return ChosenRows(
        table=table,
        rows=jax.device_put(rows),
        counts=jax.device_put(counts),
        selection=jax.device_put(np.asarray(selection, np.int32)),
    )
