"""Networks as pure functions of one flat parameter vector."""

from mile.networks._fixed import FixedArray
from mile.networks._layers import Layer, places
from mile.networks._units import ACTIVATIONS, INITIALIZERS
from mile.networks.conv import CNN_V1, LENET5, ConvNet, Convolution
from mile.networks.mlp import MLP

NETWORKS = (MLP, ConvNet)  # that a file can describe
# Networks by name; they take their number of inputs and outputs from the data.
TEMPLATES = {"cnn_v1": CNN_V1, "cnn_v2": LENET5, "lenet5": LENET5}

__all__ = [
    "ACTIVATIONS",
    "CNN_V1",
    "INITIALIZERS",
    "LENET5",
    "MLP",
    "NETWORKS",
    "TEMPLATES",
    "ConvNet",
    "Convolution",
    "FixedArray",
    "Layer",
    "places",
]
