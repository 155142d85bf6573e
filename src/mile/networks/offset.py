"""A network that hands on the last feature of a row untouched, for likelihoods that add it to what others predict."""

from dataclasses import dataclass

import jax.numpy as jnp

from mile import _registry
from mile._types import Features, Key, Outputs, Position
from mile.networks._layers import Layer
from mile.networks.base import AbstractNetwork, Network


@_registry.network("offset")
@dataclass(frozen=True, kw_only=True)
class Offset(AbstractNetwork):
    """Another network of all features but the last, which becomes the last output as it is.

    Parameters
    ----------
    network
        Of the other features; its sizes are set.
    """

    network: Network

    def __post_init__(self) -> None:
        if not isinstance(self.network, Network) or len(self.network.input_shape) != 1:
            raise ValueError(f"network must be one of rows of a table; got {self.network!r}.")

    def sized(self, input_shape: tuple[int, ...], n_outputs: int) -> "Offset":
        """Return this network if its sizes, which are set, are the given ones."""
        if tuple(input_shape) != self.input_shape:
            raise ValueError(f"the network takes {self.n_inputs} features; got rows of shape {tuple(input_shape)}.")
        return Offset(network=self.network.sized(self.network.input_shape, n_outputs - 1))

    @property
    def n_inputs(self) -> int:
        """Features of the network, and one."""
        return self.network.n_inputs + 1

    @property
    def n_outputs(self) -> int | None:
        """Outputs of the network, and one."""
        return None if self.network.n_outputs is None else self.network.n_outputs + 1

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one row's features."""
        return (self.n_inputs,)

    @property
    def dimension(self) -> int:
        """Number of parameters."""
        return self.network.dimension

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Those of the network."""
        return self.network.layers

    @property
    def row_floats(self) -> int:
        """Floats of intermediate results per row."""
        return self.network.row_floats + 2

    def init(self, key: Key) -> Position:
        """Draw starting weights."""
        return self.network.init(key)

    def apply(self, position: Position, x: Features) -> Outputs:
        """Evaluate the network on every row, and append the last feature."""
        return jnp.concatenate([self.network.apply(position, x[:-1]), x[-1:]])

    def describe_layers(self) -> str:
        """Say what the network has."""
        return self.network.describe_layers()

    def describe_rows(self) -> str | None:
        """Say what a row is to the network."""
        return self.network.describe_rows()
