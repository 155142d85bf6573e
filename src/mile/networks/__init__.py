"""Networks as pure functions of one flat parameter vector."""

from mile.networks.mlp import ACTIVATIONS, INITIALIZERS, MLP

__all__ = ["ACTIVATIONS", "INITIALIZERS", "MLP"]
