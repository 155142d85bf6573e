"""The collapsed hierarchical prior against the same model with its scales as parameters, sampled jointly.

A network of two inputs, of which one does not matter, and three hidden units on 16 rows. Both forms are sampled by
NUTS; with scales, weights are scale times a standard normal number, and logarithms of variances are parameters.
Moments of the network's function are compared, and of the scales, which the collapsed form knows given the weights.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mile
from mile import MLP, Gaussian, Hierarchical, Nuts
from mile.priors.hierarchical import NORMAL

NETWORK = MLP(n_inputs=2, hidden=(3,), activation="tanh")
LIKELIHOOD = Gaussian(link="bounded", floor=0.01)
N_CHAINS = 16
SAMPLER = Nuts(warmup_steps=500, sampling_steps=2_000, n_draws=2_000, target_acceptance=0.9)


def data():
    rng = np.random.default_rng(3)
    x = rng.standard_normal((2, 16))
    return jnp.asarray(x, jnp.float32), jnp.asarray(np.tanh(2 * x[0]) + 0.2 * rng.standard_normal(16), jnp.float32)


def log_likelihood(weights):
    x, y = data()
    return jnp.sum(LIKELIHOOD.log_prob(NETWORK.apply(weights, x), y))


class Joint:
    """The model with its scales: first one number for each weight and bias, then the log variance of each group."""

    def __init__(self, prior):
        self._prior, self._bound = prior, prior.bind(NETWORK)
        numbers, count = [], 0
        for block in self._bound.blocks:
            numbers.append(np.full(block.size, -1) if block.kind == NORMAL else count + block.numbers)
            count += block.n_groups
        self._group, self.n_groups = np.concatenate(numbers), count

    def weights(self, position):
        deviation = jnp.exp(0.5 * position[NETWORK.dimension :])
        return position[: NETWORK.dimension] * jnp.append(deviation, self._prior.bias)[self._group]

    def logdensity(self, position):
        standard, log_variance = position[: NETWORK.dimension], position[NETWORK.dimension :]
        degrees, scale = self._prior.degrees, self._prior.scale
        # Inverse-gamma of shape degrees / 2 and scale degrees * scale^2 / 2, with the Jacobian of the logarithm.
        of_scales = -0.5 * degrees * (log_variance + scale**2 * jnp.exp(-log_variance))
        return log_likelihood(self.weights(position)) - 0.5 * standard @ standard + jnp.sum(of_scales)


def chain_means(logdensity, dimension, quantities):
    """Return the means of some quantities in each chain."""
    starts = 0.5 * np.random.default_rng(0).standard_normal((N_CHAINS, dimension)).astype(np.float32)
    draws = mile.sample(logdensity, starts, SAMPLER, random_state=1).draws
    return np.asarray(jax.lax.map(lambda chain: jax.vmap(quantities)(chain).mean(axis=0), jnp.asarray(draws)))


def functions(weights):
    """Return first and second moments of the outputs at five points, the last two outside the data."""
    points = jnp.array([[-1.0, 0.0, 1.0, 3.0, -3.0], [0.0, 1.0, -1.0, 3.0, 0.0]])
    outputs = jnp.concatenate([NETWORK.apply(weights, points)[0], NETWORK.apply(weights, points)[1]])
    bounded = jnp.tanh(outputs / 5.0)  # tails of outputs are heavy; their moments need not exist
    return jnp.concatenate([bounded, jnp.square(bounded)])


@pytest.mark.slow
@pytest.mark.parametrize("groups", ["layer", "unit", "input"])
def test_has_the_function_moments_and_scales_of_the_joint_form(groups):
    """Differences in standard errors between chains, 15 degrees of freedom each. False failure: below 1e-3 in all."""
    prior = Hierarchical(groups=groups, degrees=3.0, scale=0.7)
    bound, joint = prior.bind(NETWORK), Joint(prior)

    def of_joint(position):
        # The logarithm, because the mean of a scale with few degrees converges slowly.
        return jnp.concatenate([functions(joint.weights(position)), 0.5 * position[NETWORK.dimension :]])

    def of_collapsed(weights):
        return jnp.concatenate([functions(weights), mean_log_scales(bound, weights)])

    ours = chain_means(
        lambda weights: log_likelihood(weights) + bound.log_prob(weights), NETWORK.dimension, of_collapsed
    )
    theirs = chain_means(joint.logdensity, NETWORK.dimension + joint.n_groups, of_joint)
    error = np.sqrt((ours.var(axis=0, ddof=1) + theirs.var(axis=0, ddof=1)) / N_CHAINS)
    assert error.max() < 0.1
    assert np.abs((ours.mean(axis=0) - theirs.mean(axis=0)) / error).max() < 5.5


def mean_log_scales(bound, weights):
    """Return the mean of each group's log scale given the weights: that of an inverse-gamma variable is known."""
    found, start = [], 0
    for block in bound.blocks:
        part = weights[start : start + block.size]
        start += block.size
        if block.kind != NORMAL:
            squares = jnp.zeros(block.n_groups).at[block.numbers].add(jnp.square(part))
            shape, scale = 0.5 * (bound.degrees + block.group_size), 0.5 * (bound.degrees * bound.scale**2 + squares)
            found.append(0.5 * (jnp.log(scale) - jax.scipy.special.digamma(shape)))
    return jnp.concatenate(found)
