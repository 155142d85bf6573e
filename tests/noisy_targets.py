"""Log densities whose mini-batches have gradient noise of a known size, for samplers that need rows."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from mile._types import Target


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Tilted(Target):
    """A quadratic log density with a slope: precision times N(0, I) and then some."""

    precision: Any
    slope: jax.Array

    def logdensity(self, position: jax.Array) -> jax.Array:
        return self.slope @ position - 0.5 * self.precision * (position @ position)

    def value_and_grad(self, position: jax.Array) -> tuple[jax.Array, jax.Array]:
        return self.logdensity(position), self.slope - self.precision * position


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Noisy(Tilted):
    """The same, whose mini-batches have slopes with independent normal noise of these standard deviations.

    An epoch has one mini-batch, so that each step gets an order, which here is a key, of its own.
    """

    deviations: jax.Array

    def shuffled(self, key: jax.Array) -> jax.Array:
        return jax.random.key_data(key)

    def n_minibatches(self, batch_size: int) -> jax.Array:
        return jnp.asarray(1, jnp.int32)

    def minibatch(self, order: jax.Array, index: jax.Array, batch_size: int) -> Tilted:
        noise = jax.random.normal(jax.random.wrap_key_data(order), self.deviations.shape, self.deviations.dtype)
        return Tilted(self.precision, self.slope + self.deviations * noise)


def noisy_normal(deviations: Any) -> Noisy:
    """Return N(0, I) with this gradient noise."""
    deviations = jnp.asarray(deviations, jnp.float32)
    return Noisy(1.0, jnp.zeros_like(deviations), deviations)
