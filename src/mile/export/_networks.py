"""Networks as graphs: the outputs of every draw for every row, by products of stacked matrices."""

import math

import numpy as np
from jaxtyping import Float

from mile.export._exact import ByClass
from mile.export._graph import FLOAT, Graph, Value
from mile.networks.base import Network
from mile.networks.mlp import MLP


@ByClass
def outputs_of(network: Network, features: Value, draws: Float[np.ndarray, "draw d"], *, half: bool) -> Value:
    """Return outputs in float64, shape (draws, rows, outputs), from features in float32.

    With `half` the weights are kept as float16; arithmetic stays in float32.
    """
    raise ValueError(
        f"an .onnx file cannot hold a {type(network).__name__}: it can hold perceptrons. A .stablehlo file holds "
        "every network."
    )


@outputs_of.of(MLP)
def _(network: MLP, features: Value, draws: np.ndarray, *, half: bool) -> Value:
    graph, start, hidden = features.graph, 0, features
    for place, (fan_in, fan_out) in enumerate(network.layer_sizes):
        stop = start + (fan_in + 1) * fan_out
        layer = draws[:, start:stop].reshape(len(draws), fan_in + 1, fan_out)
        if place:
            hidden = _ACTIVATIONS[network.activation](hidden)
        product = graph.op("MatMul", hidden, _weights(graph, layer[:, :-1], half))
        hidden = product + _weights(graph, layer[:, -1:], half)
        start = stop
    return hidden.double


def _weights(graph: Graph, values: np.ndarray, half: bool) -> Value:
    if not half:
        return graph.constant(values)
    largest = float(np.finfo(np.float16).max)
    return graph.constant(np.clip(values, -largest, largest).astype(np.float16)).cast(FLOAT)


def _single(number: float) -> np.ndarray:
    return np.array(number, np.float32)


def _gelu(x: Value) -> Value:
    """Return GELU by its approximation with tanh, as JAX has it."""
    graph = x.graph
    half, cubic, root = (graph.constant(_single(value)) for value in (0.5, 0.044715, math.sqrt(2.0 / math.pi)))
    inner = root * (x + cubic * x * x * x)
    return half * x * (graph.op("Tanh", inner) + graph.constant(_single(1.0)))


_ACTIVATIONS = {
    "relu": lambda x: x.graph.op("Relu", x),
    "tanh": lambda x: x.graph.op("Tanh", x),
    "sigmoid": lambda x: x.graph.op("Sigmoid", x),
    "silu": lambda x: x * x.graph.op("Sigmoid", x),
    "gelu": _gelu,
}
