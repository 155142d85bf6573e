"""The contract of a network: a pure function of one flat vector, and what the rest of the library must know of it.

To add one, write one file with a class derived from `AbstractNetwork`, a frozen dataclass: networks are static in
compiled programs, which are looked up by them.
"""

import math
from abc import ABC, abstractmethod
from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Array, Float, Int

from mile._types import Features, Key, Outputs, Position
from mile.networks._layers import Layer

Shape = tuple[int, ...]


@runtime_checkable
class Attend(Protocol):
    """Multi-head attention averaged over positions; see `pooled_attention` in `_pooling.py`."""

    def __call__(
        self,
        heads: int,
        tokens: Float[Array, "token three_widths"],
        positions: Float[Array, "position three_widths"],
        index: Int[Array, "text position"],
        weights: Float[Array, "text position"],
        /,
    ) -> Float[Array, "text width"]:
        """Return the weighted mean over positions of what each attends to."""
        ...


class NativeForm(NamedTuple):
    """What the native kernel must know of a network: dense layers, and convolutions before them if there are any."""

    sizes: Shape  # features that the dense layers begin with, their widths, and the outputs
    activation: str
    image: Shape = ()  # height, width, channels, then filters, kernel, padding and pool of each convolution
    largest_image: int = 0  # numbers that go into or come out of some convolution, borders of zeros included


@runtime_checkable
class Template(Protocol):
    """A network whose sizes may still be open."""

    def sized(self, input_shape: Shape, n_outputs: int) -> "Network":
        """Return the network for rows of a shape.

        Raises
        ------
        ValueError
            If it cannot take such rows, or its sizes are set and differ.
        """
        ...


@runtime_checkable
class Network(Template, Protocol):
    """What the library asks of a network.

    A class derived from `AbstractNetwork` only has to say what has no default there.
    """

    @property
    def n_inputs(self) -> int:
        """Features of a row."""
        ...

    @property
    def n_outputs(self) -> int | None:
        """Outputs for a row; None while that is open."""
        ...

    @property
    def input_shape(self) -> Shape:
        """Shape of one row's features."""
        ...

    @property
    def dimension(self) -> int:
        """Number of parameters."""
        ...

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The runs of the flat vector."""
        ...

    @property
    def row_floats(self) -> int:
        """Floats of intermediate results per row; they decide how many rows are computed at a time."""
        ...

    def init(self, key: Key) -> Position:
        """Draw starting weights."""
        ...

    def apply(self, position: Position, x: Features) -> Outputs:
        """Evaluate the network on every row."""
        ...

    @property
    def attends(self) -> bool:
        """Whether `apply_with` uses the attention that it is given."""
        ...

    def apply_with(self, attend: Attend, position: Position, x: Features) -> Outputs:
        """Evaluate the network on every row with another implementation of attention."""
        ...

    def native_form(self) -> NativeForm | None:
        """Return what the native kernel must know, or None if it cannot compute this network."""
        ...

    def describe_layers(self) -> str:
        """Say what is between inputs and outputs, as in "hidden layers of 16 and 16 relu units"; may be empty."""
        ...

    def describe_rows(self) -> str | None:
        """Say what a row is, as in "images of 28 x 28"; None for a row of a table, whose columns have names."""
        ...


class AbstractNetwork(ABC):
    """The optional parts of `Network`, each with its default."""

    @property
    @abstractmethod
    def input_shape(self) -> Shape:
        """Shape of one row's features."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Number of parameters."""

    @abstractmethod
    def sized(self, input_shape: Shape, n_outputs: int) -> Network:
        """Return the network for rows of a shape."""

    @abstractmethod
    def init(self, key: Key) -> Position:
        """Draw starting weights."""

    @abstractmethod
    def apply(self, position: Position, x: Features) -> Outputs:
        """Evaluate the network on every row."""

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The runs of the flat vector; by default one, with a fan-in of 1 because nothing is known of its units."""
        return (Layer("all weights", self.dimension, 0, 1),)

    @property
    def row_floats(self) -> int:
        """Floats of intermediate results per row; by default those of the row itself."""
        return math.prod(self.input_shape)

    @property
    def attends(self) -> bool:
        """Whether `apply_with` uses the attention that it is given."""
        return False

    def apply_with(self, attend: Attend, position: Position, x: Features) -> Outputs:
        """Evaluate the network on every row; without attention there is nothing to replace."""
        return self.apply(position, x)

    def native_form(self) -> NativeForm | None:
        """Return None: the native kernel cannot compute this network."""
        return None

    def describe_layers(self) -> str:
        """Return nothing: there is no short description."""
        return ""

    def describe_rows(self) -> str | None:
        """Return None: rows come from a table."""
        return None


def describe_hidden(widths: Shape, activation: str) -> str:
    """Say which hidden layers there are; nothing if there are none."""
    return f"hidden layers of {' and '.join(map(str, widths))} {activation} units" if widths else ""
