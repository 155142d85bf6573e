"""Small networks with data, and their log likelihood and its gradient in plain float64 numpy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit, log_softmax

from mile import MLP, Categorical, Gaussian, Normal
from mile.padded_rows import PaddedRows, pad_rows
from mile.posterior import Posterior

LOG_SCALE_LIMIT = np.log(1e6)


class OtherMLP(MLP):
    """Computes the same as its parent but might not, so the native kernel leaves it to XLA."""


def make_network(likelihood: Any, hidden: tuple = (4,), activation="tanh", n_inputs=3, kind=MLP) -> MLP:
    return kind(n_inputs=n_inputs, hidden=hidden, n_outputs=likelihood.n_outputs, activation=activation)


def make_rows(likelihood: Any, count: int, n_inputs=3, seed=0, weights=(1.0,)) -> PaddedRows:
    """Return random rows with weights drawn from `weights`, and in the padding numbers that must not count."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, n_inputs)).astype(np.float32)
    y = rng.standard_normal(count).astype(np.float32)
    if isinstance(likelihood, Categorical):
        y = rng.integers(likelihood.n_classes, size=count).astype(np.int32)
    rows = pad_rows(x, y)
    weight = rows.weight.at[:count].set(rng.choice(np.asarray(weights, np.float32), count))
    return PaddedRows(x=rows.x.at[:, count:].set(7.0), y=rows.y.at[count:].set(1), weight=weight, count=rows.count)


def make_positions(network: MLP, n_chains: int | None = None, seed=1) -> jax.Array:
    """Return biases and weights of the size that keeps features of order one."""
    rng = np.random.default_rng(seed)
    lead = () if n_chains is None else (n_chains,)
    parts = []
    for fan_in, fan_out in network.layer_sizes:
        parts += [rng.standard_normal((*lead, fan_in * fan_out)) / np.sqrt(fan_in)]
        parts += [0.5 * rng.standard_normal((*lead, fan_out))]
    return jnp.asarray(np.concatenate(parts, axis=-1), jnp.float32)


def make_posterior(likelihood: Any, count=50, n_inputs=3, scale=0.8, weights=(1.0,), **options: Any) -> Posterior:
    network = make_network(likelihood, n_inputs=n_inputs, **options)
    rows = make_rows(likelihood, count, n_inputs, weights=weights)
    return Posterior(rows=rows, network=network, likelihood=likelihood, prior=Normal(scale=scale))


def close(one: Any, other: Any, tolerance: float = 1e-5) -> None:
    """Compare two trees by norm, leaf for leaf; none of them is zero."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        left, right = np.asarray(left, np.float64), np.asarray(right, np.float64)
        assert left.shape == right.shape
        size, error = np.linalg.norm(right), np.linalg.norm(left - right)
        assert size > 0
        assert error <= tolerance * size


def _gelu(z):
    inner = np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)  # the form with tanh
    slope = np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * z**2)
    return 0.5 * z * (1 + np.tanh(inner)), 0.5 * (1 + np.tanh(inner)) + 0.5 * z * slope / np.cosh(inner) ** 2


VALUE_AND_SLOPE = {
    "relu": lambda z: (np.maximum(z, 0.0), 1.0 * (z > 0)),
    "tanh": lambda z: (np.tanh(z), np.cosh(z) ** -2.0),
    "sigmoid": lambda z: (expit(z), expit(z) * expit(-z)),
    "silu": lambda z: (z * expit(z), expit(z) * (1 + z * expit(-z))),
    "gelu": _gelu,
}


def _head(likelihood, outputs, y):
    """Return each row's log likelihood and its derivative with respect to the outputs [row, output]."""
    if isinstance(likelihood, Categorical):
        logs, chosen = log_softmax(outputs, axis=1), np.eye(likelihood.n_classes)[y]
        return np.sum(logs * chosen, axis=1), chosen - np.exp(logs)
    assert isinstance(likelihood, Gaussian)
    location, raw = outputs.T
    if likelihood.link == "bounded":
        floor, z = likelihood.floor or 1e-6, np.maximum(raw, -300.0)  # beyond it the floor is all there is
        s = 1.0 / (np.exp(-z) + 0.1)
        variance, residual = floor**2 + s**2, y - location
        slope = s**3 * np.exp(-z) / variance
        values = -0.5 * np.log(2 * np.pi * variance) - 0.5 * residual**2 / variance
        return values, np.stack([residual / variance, (residual**2 / variance - 1) * slope], axis=1)
    log_scale = np.clip(raw, -LOG_SCALE_LIMIT, LOG_SCALE_LIMIT)
    residual = (y - location) * np.exp(-log_scale)
    inside = np.abs(raw) <= LOG_SCALE_LIMIT
    values = -log_scale - 0.5 * residual**2 - 0.5 * np.log(2 * np.pi)
    return values, np.stack([residual * np.exp(-log_scale), (residual**2 - 1) * inside], axis=1)


def reference(network: MLP, likelihood: Any, position: Any, rows: PaddedRows) -> tuple[float, float, np.ndarray, float]:
    """Return the value, its scale (the sum without signs), the gradient, and how near a unit came to zero."""
    position = np.asarray(position, np.float64)
    real = slice(0, int(rows.count))
    weight = np.asarray(rows.weight, np.float64)[real]
    hidden, slopes, layers = [np.asarray(rows.x, np.float64).T[real]], [], []
    start, nearest = 0, np.inf
    for index, (fan_in, fan_out) in enumerate(network.layer_sizes):
        layers.append(position[start : start + fan_in * fan_out].reshape(fan_in, fan_out))
        start += (fan_in + 1) * fan_out
        sums = hidden[-1] @ layers[-1] + position[start - fan_out : start]
        if index < len(network.hidden):
            nearest = min(nearest, np.abs(sums).min(initial=np.inf))
            value, slope = VALUE_AND_SLOPE[network.activation](sums)
            hidden.append(value)
            slopes.append(slope)
    values, derivative = _head(likelihood, sums, np.asarray(rows.y)[real])
    derivative = derivative * weight[:, None]
    parts = []
    while layers:
        parts = [(hidden.pop().T @ derivative).ravel(), derivative.sum(axis=0), *parts]
        derivative = derivative @ layers.pop().T
        if slopes:
            derivative = derivative * slopes.pop()
    return np.sum(weight * values), np.sum(weight * np.abs(values)), np.concatenate(parts), nearest
