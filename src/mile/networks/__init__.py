"""Networks as pure functions of one flat parameter vector."""

from mile.networks._fixed import FixedArray
from mile.networks._layers import Layer, places
from mile.networks._units import ACTIVATIONS, INITIALIZERS
from mile.networks.adapters import adapt
from mile.networks.attention import ATT_V1, ATT_V2, ATT_V3, PADDING, Attention
from mile.networks.conv import CNN_V1, LENET5, ConvNet, Convolution
from mile.networks.mlp import MLP

# Networks by name; they take their number of inputs and outputs from the data.
TEMPLATES = {"cnn_v1": CNN_V1, "cnn_v2": LENET5, "lenet5": LENET5}
# Networks for texts, by the paper's names.
TEXT_TEMPLATES = {"att_v1": ATT_V1, "att_v2": ATT_V2, "att_v3": ATT_V3}

__all__ = [
    "ACTIVATIONS",
    "ATT_V1",
    "ATT_V2",
    "ATT_V3",
    "CNN_V1",
    "INITIALIZERS",
    "LENET5",
    "MLP",
    "PADDING",
    "TEMPLATES",
    "TEXT_TEMPLATES",
    "Attention",
    "ConvNet",
    "Convolution",
    "FixedArray",
    "Layer",
    "adapt",
    "places",
]
