"""Small networks of each library that `adapt` knows, for rows of any shape: one hidden layer of eight units."""

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

WIDTH = 8


class LinenNet(nn.Module):
    n_outputs: int
    width: int = WIDTH

    @nn.compact
    def __call__(self, batch):
        hidden = nn.tanh(nn.Dense(self.width)(batch.reshape(len(batch), -1)))
        return nn.Dense(self.n_outputs)(nn.LayerNorm()(hidden))


class NnxNet(nnx.Module):
    def __init__(self, n_inputs, n_outputs, rngs, width=WIDTH):
        self.first = nnx.Linear(n_inputs, width, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, deterministic=True, rngs=rngs)
        self.last = nnx.Linear(width, n_outputs, rngs=rngs)

    def __call__(self, batch):
        return self.last(self.dropout(nnx.tanh(self.first(batch.reshape(len(batch), -1)))))


class EquinoxNet(eqx.Module):
    first: eqx.nn.Linear
    last: eqx.nn.Linear

    def __init__(self, n_inputs, n_outputs, key, width=WIDTH):
        keys = jax.random.split(key)
        self.first = eqx.nn.Linear(n_inputs, width, key=keys[0])
        self.last = eqx.nn.Linear(width, n_outputs, key=keys[1])

    def __call__(self, example):
        return self.last(jnp.tanh(self.first(example.ravel())))


def make_pair(n_inputs, n_outputs, width=WIDTH):
    def init(key):
        keys = jax.random.split(key)
        return {
            "first": [jax.random.normal(keys[0], (n_inputs, width)), jnp.zeros(width)],
            "last": [jax.random.normal(keys[1], (width, n_outputs)), jnp.zeros(n_outputs)],
        }

    def apply(weights, batch):
        (kernel, bias), (kernel_2, bias_2) = weights["first"], weights["last"]
        return jnp.tanh(batch.reshape(len(batch), -1) @ kernel + bias) @ kernel_2 + bias_2

    return init, apply


LIBRARIES = ("linen", "nnx", "equinox", "pair")


def make(library, input_shape, n_outputs, width=WIDTH):
    """Return the same network as another process would make it."""
    n_inputs = int(np.prod(input_shape))
    if library == "linen":
        return LinenNet(n_outputs, width)
    if library == "nnx":
        return NnxNet(n_inputs, n_outputs, nnx.Rngs(0), width)
    if library == "equinox":
        return EquinoxNet(n_inputs, n_outputs, jax.random.key(0), width)
    return make_pair(n_inputs, n_outputs, width)
