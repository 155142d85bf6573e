"""What layers of all networks share: activations, and the distribution of starting weights."""

import math
from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
import numpy as np

from mile._types import Key, Position

ACTIVATIONS: dict[str, Callable] = {
    "relu": jax.nn.relu,  # slope 0 at 0, and NaN stays NaN
    "tanh": jnp.tanh,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "sigmoid": jax.nn.sigmoid,
}

# Variance of a weight as a function of fan-in and fan-out, and whether it is uniform or normal cut at two deviations
# (LeCun et al. 1998, Glorot and Bengio 2010, He et al. 2015).
_VARIANCES: dict[str, Callable[[int, int], float]] = {
    "lecun": lambda fan_in, fan_out: 1.0 / fan_in,
    "glorot": lambda fan_in, fan_out: 2.0 / (fan_in + fan_out),
    "he": lambda fan_in, fan_out: 2.0 / fan_in,
}
INITIALIZERS = tuple(f"{name}_{shape}" for name in _VARIANCES for shape in ("normal", "uniform"))
_CUT_NORMAL_DEVIATION = 0.87962566103423978  # of a standard normal cut at two


def draw_start(key: Key, initializer: str, layers: Iterable[tuple[int, int, int, int]]) -> Position:
    """Draw starting weights; biases start at zero.

    Parameters
    ----------
    key
        Consumed here.
    initializer
        One of `INITIALIZERS`.
    layers
        Fan-in, fan-out, number of weights and number of biases of each.
    """
    layers = tuple(layers)
    dimension = sum(n_weights + n_biases for _, _, n_weights, n_biases in layers)
    # One draw for all layers: a program with one per layer takes three times as long to compile.
    name, shape = initializer.split("_")
    if shape == "normal":
        noise = jax.random.truncated_normal(key, -2.0, 2.0, (dimension,)) / _CUT_NORMAL_DEVIATION
    else:
        noise = jax.random.uniform(key, (dimension,), minval=-math.sqrt(3.0), maxval=math.sqrt(3.0))
    scales = []
    for fan_in, fan_out, n_weights, n_biases in layers:
        deviation = math.sqrt(_VARIANCES[name](fan_in, fan_out))
        scales += [np.full(n_weights, deviation), np.zeros(n_biases)]
    return noise * jnp.asarray(np.concatenate(scales), noise.dtype)
