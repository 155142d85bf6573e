"""The layers of a network's flat vector, in order."""

from typing import NamedTuple

import numpy as np


class Layer(NamedTuple):
    """One run of the flat vector: weights, then biases."""

    name: str
    n_weights: int
    n_biases: int
    fan_in: int  # inputs that one unit adds up; 1 for an embedding, of which one row is taken

    @property
    def size(self) -> int:
        """Number of parameters."""
        return self.n_weights + self.n_biases


def places(layers: tuple[Layer, ...]) -> list[slice]:
    """Return where the parameters of each layer are."""
    ends = np.cumsum([layer.size for layer in layers]).tolist()
    return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
