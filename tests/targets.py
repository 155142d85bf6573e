"""Known posteriors, and the measures by which tests compare draws with them."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mile import MLP, Dataset, Gaussian, Normal
from mile._ess import effective_sample_size
from mile.padded_rows import pad_rows
from mile.posterior import Posterior

# RELIABILITY section 5: 2 (1 - Phi(5.5)) = 3.8e-8 for each coordinate checked.
LARGEST_Z = 5.5
# The Monte-Carlo standard error is itself an estimate.
_MCSE_MARGIN = 1.1
_SMALLEST_ESS = 4.0


@dataclass(frozen=True)
class StandardNormal:
    """N(0, I) in any dimension."""

    def __call__(self, x: jax.Array) -> jax.Array:
        return -0.5 * x @ x


@dataclass(frozen=True)
class Box:
    """N(0, I) inside |x_i| < half_width, `outside` (NaN or infinite) elsewhere."""

    half_width: float
    outside: float = float("nan")

    def __call__(self, x: jax.Array) -> jax.Array:
        inside = jnp.all(jnp.abs(x) < self.half_width)
        return jnp.where(inside, -0.5 * x @ x, self.outside)


class IllConditioned:
    """N(0, C) with C rotated and eigenvalues spread evenly in the logarithm from 1 to `condition`."""

    def __init__(self, dimension: int, condition: float, dtype: Any = np.float32) -> None:
        rng = np.random.default_rng(11)
        axes, _ = np.linalg.qr(rng.standard_normal((dimension, dimension)))
        variances = np.geomspace(1.0, condition, dimension)
        self.covariance = (axes * variances) @ axes.T
        self._precision = jnp.asarray((axes / variances) @ axes.T, dtype)

    def __call__(self, x: jax.Array) -> jax.Array:
        return -0.5 * x @ self._precision @ x


class LinearRegression:
    """Coefficients of y = X b + noise of standard deviation 1, prior N(0, I): the posterior is normal.

    Columns 0 and 1 of X have correlation 0.995 (RELIABILITY A7).
    """

    def __init__(self, dimension: int = 20, n_rows: int = 500) -> None:
        rng = np.random.default_rng(7)
        x = rng.standard_normal((n_rows, dimension))
        x[:, 1] = 0.995 * x[:, 0] + np.sqrt(1 - 0.995**2) * x[:, 1]
        y = x @ rng.standard_normal(dimension) + rng.standard_normal(n_rows)
        self.covariance = np.linalg.inv(x.T @ x + np.eye(dimension))
        self.mean = self.covariance @ x.T @ y
        self.x_new = rng.standard_normal((200, dimension))
        self._x, self._y = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)

    def __call__(self, b: jax.Array) -> jax.Array:
        residuals = self._y - self._x @ b
        return -0.5 * (residuals @ residuals + b @ b)


@cache
def linear_regression() -> LinearRegression:
    """Return the one regression that all tests share, so that its programs are compiled once."""
    return LinearRegression()


def small_dataset(n_rows: int = 64, n_features: int = 3, classes: int = 0) -> Dataset:
    """Return a quarter of `n_rows` for validation, the rest for training; numbers, or codes of `classes` classes."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((n_rows, n_features))
    y = np.sin(x[:, 0]) + 0.5 * x[:, 1] + 0.1 * rng.standard_normal(n_rows)
    if classes:
        y = np.digitize(y, np.quantile(y, np.linspace(0, 1, classes + 1)[1:-1]))
    split = n_rows // 4
    return Dataset.from_arrays(x[split:], y[split:], x[:split], y[:split])


# The problem of all tests that need no other: each sampler's programs for it are compiled once in a run.
SMALL_NETWORK = MLP(n_inputs=3, hidden=(4,))


def small_posterior() -> Posterior:
    """Return the posterior that `mile.fit` makes of the small data set and the small network."""
    data = small_dataset()
    return Posterior(
        rows=pad_rows(data.x_train, data.y_train), network=SMALL_NETWORK, likelihood=Gaussian(), prior=Normal()
    )


def small_positions(n_chains: int = 2) -> np.ndarray:
    """Return weights of the small network for several chains, as training might leave them."""
    return 0.5 * np.random.default_rng(1).standard_normal((n_chains, SMALL_NETWORK.dimension)).astype(np.float32)


_effective_sample_size = jax.jit(effective_sample_size)


def standard_errors(draws: np.ndarray) -> np.ndarray:
    """Return the Monte-Carlo standard error of each coordinate's mean over chains (chain, draw, coordinate)."""
    n_draws = draws.shape[1]
    ess = np.stack([np.asarray(_effective_sample_size(chain)) for chain in draws])
    ess = np.clip(ess, _SMALLEST_ESS, n_draws)
    variance = draws.astype(np.float64).var(axis=1, ddof=1).mean(axis=0)
    return _MCSE_MARGIN * np.sqrt(variance / ess.sum(axis=0))


def squared_bias(draws: np.ndarray, variances: np.ndarray | float = 1.0) -> np.ndarray:
    """Return b2 of each coordinate, (E x^2 - truth)^2 / Var(x^2), for a normal target of mean zero."""
    second = np.square(draws.astype(np.float64)).mean(axis=(0, 1))
    return np.square(second - variances) / (2.0 * np.square(variances))


def assert_same_bits(left: Any, right: Any) -> None:
    """Compare every array of two trees, NaN equal to NaN, nothing else tolerated."""
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for one, other in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        one, other = np.asarray(one), np.asarray(other)
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
