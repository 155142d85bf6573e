"""The contracts of a prior: what a fit takes, and what it becomes for the flat vector of one network."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from mile._types import Key, Position, Scalar


@runtime_checkable
class FlatPrior(Protocol):
    """A prior of a flat vector; static and hashable, because compiled programs are looked up by it."""

    def log_prob(self, position: Position) -> Scalar:
        """Return the log density up to a constant."""
        ...

    def sample(self, key: Key, dimension: int) -> Position:
        """Draw one parameter vector."""
        ...

    def tempered(self, temperature: float) -> "FlatPrior":
        """Return the prior whose density is this one's to the power 1 / temperature."""
        ...


class NativePrior(NamedTuple):
    """What the native kernel must know of a prior."""

    family: str  # normal, laplace, student_t or grouped
    scale: np.ndarray  # one for all parameters or one for each; grouped: of weights and of biases
    degrees: float = 0.0
    power: float = 1.0  # grouped: to which the density is raised
    blocks: tuple[tuple[str, int, int], ...] = ()  # grouped: what shares a scale, rows and columns of each run


@runtime_checkable
class Accelerated(FlatPrior, Protocol):
    """A prior that the native kernel may know."""

    def native_form(self) -> NativePrior | None:
        """Return what the kernel must know, or None if it cannot compute this prior."""
        ...


@runtime_checkable
class LearnsScales(FlatPrior, Protocol):
    """A prior with unknown scales, of which some may be those of single inputs."""

    @property
    def has_scales_of_inputs(self) -> bool:
        """Whether each input has a scale of its own."""
        ...

    def relevance(self, draws: np.ndarray) -> np.ndarray:
        """Return the posterior mean of each input's scale."""
        ...


def relevance_of_inputs(prior: FlatPrior, draws: np.ndarray) -> np.ndarray | None:
    """Return the posterior mean of each input's scale; None where inputs have none."""
    if not isinstance(prior, LearnsScales) or not prior.has_scales_of_inputs:
        return None
    return prior.relevance(draws)


@runtime_checkable
class LayerSizes(Protocol):
    """What a prior reads of a layer."""

    @property
    def n_weights(self) -> int:
        """Number of weights."""
        ...

    @property
    def n_biases(self) -> int:
        """Number of biases, which follow the weights."""
        ...

    @property
    def size(self) -> int:
        """Number of both."""
        ...

    @property
    def fan_in(self) -> int:
        """Inputs that one unit adds up."""
        ...


@runtime_checkable
class Layered(Protocol):
    """What a prior reads of a network."""

    @property
    def layers(self) -> Sequence[LayerSizes]:
        """The runs of the flat vector, in order."""
        ...


@runtime_checkable
class Prior(Protocol):
    """What a fit takes for a prior."""

    def bind(self, network: Layered) -> FlatPrior:
        """Return the prior of this network's flat vector."""
        ...


@runtime_checkable
class NamedPrior(Prior, Protocol):
    """What a registered prior can do besides: the word for it comes with one scale."""

    @classmethod
    def of_scale(cls, scale: float) -> "NamedPrior":
        """Return the prior that its name stands for.

        Raises
        ------
        ValueError
            If one scale is not enough; the message says what is.
        """
        ...


def layers_of(network: object) -> Sequence[LayerSizes]:
    """Return the layers of a network.

    Raises
    ------
    ValueError
        If it lists none.
    """
    if not isinstance(network, Layered):
        raise ValueError(f"a prior with a scale per layer needs a network that lists its layers; got {network!r}.")
    return network.layers
