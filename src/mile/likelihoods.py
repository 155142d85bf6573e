"""Likelihoods: what the network's outputs say about y.

Each has one side in JAX, for optimizing and sampling (`log_prob`), and one in float64 numpy, for
prediction: the outputs of many draws become the components of a mixture. On both sides the first
axis of one evaluation is the network's output; draws come in front of it.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.special import log_softmax, ndtr

from mile._types import Outputs

# Standard deviations stay in [1e-6, 1e6] with zero gradient outside, as in the reference.
LOG_SCALE_LIMIT = math.log(1e6)
_LOG_SQRT_TWO_PI = 0.5 * math.log(2.0 * math.pi)

Components = Float[np.ndarray, "draw output row"]
PerDraw = Float[np.ndarray, "draw row"]


@dataclass(frozen=True)
class Gaussian:
    """Normal response with a network output for its location and one for its log standard deviation."""

    n_outputs: ClassVar[int] = 2

    def log_prob(self, outputs: Outputs, y: Float[Array, " row"]) -> Float[Array, " row"]:
        """Return the log density of each row."""
        log_scale = jnp.clip(outputs[1], -LOG_SCALE_LIMIT, LOG_SCALE_LIMIT)
        standardized = (y - outputs[0]) * jnp.exp(-log_scale)
        return -log_scale - 0.5 * jnp.square(standardized) - _LOG_SQRT_TWO_PI

    def component_log_prob(self, components: Components, y: Float[np.ndarray, " row"]) -> PerDraw:
        """Return the log density of each row under each draw."""
        location, scale = self.moments(components)
        return -np.log(scale) - 0.5 * np.square((y - location) / scale) - _LOG_SQRT_TWO_PI

    def moments(self, components: Components) -> tuple[PerDraw, PerDraw]:
        """Return mean and standard deviation of each row under each draw."""
        location, log_scale = np.moveaxis(components.astype(np.float64), 1, 0)
        return location, np.exp(np.clip(log_scale, -LOG_SCALE_LIMIT, LOG_SCALE_LIMIT))

    def cdf(self, location: PerDraw, scale: PerDraw, y: Float[np.ndarray, " row"]) -> PerDraw:
        """Return P(Y <= y) of each row under each draw."""
        return ndtr((y - location) / scale)

    def density(self, location: PerDraw, scale: PerDraw, y: Float[np.ndarray, " row"]) -> PerDraw:
        """Return the density of each row under each draw."""
        return np.exp(-0.5 * np.square((y - location) / scale) - _LOG_SQRT_TWO_PI) / scale

    def sample(self, rng: np.random.Generator, location: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """Draw one response for each pair of location and scale."""
        return location + scale * rng.standard_normal(location.shape)


@dataclass(frozen=True)
class Categorical:
    """Class label with one logit per class."""

    n_classes: int

    def __post_init__(self) -> None:
        if isinstance(self.n_classes, bool) or not isinstance(self.n_classes, int) or self.n_classes < 2:
            raise ValueError(f"a classifier needs at least 2 classes; got {self.n_classes!r}.")

    @property
    def n_outputs(self) -> int:
        """One logit per class, also for two classes."""
        return self.n_classes

    def log_prob(self, outputs: Outputs, y: Int[Array, " row"]) -> Float[Array, " row"]:
        """Return the log probability of each row's class."""
        return jnp.take_along_axis(jax.nn.log_softmax(outputs, axis=0), y[None], axis=0)[0]

    def component_log_probs(self, components: Components) -> Components:
        """Return the log probability of every class for each row under each draw."""
        return log_softmax(components.astype(np.float64), axis=1)
