"""Steps of chains by the native kernel, from the same states for every test."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from perceptrons import make_positions

from mile import native
from mile._types import Target
from mile.posterior import Posterior, _plain
from mile.samplers import _mclmc


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class XlaTarget(Target):
    """The same posterior, all of it by XLA."""

    posterior: Posterior

    def value_and_grad(self, position):
        def logdensity(position):
            value = _plain(self.posterior.network, self.posterior.likelihood, position, self.posterior.rows)
            return value + self.posterior.prior.log_prob(position)

        return jax.value_and_grad(logdensity)(position)


@jax.jit
def start(posterior, position):
    """Return a state with any direction; what the kernel says there is another file's subject."""
    rows = posterior.rows
    spec = native.specify(posterior.network, posterior.likelihood, position.dtype, rows)
    value, gradient = native.value_and_grad(spec, position, native.Data(rows.x, rows.y, rows.weight, rows.count))
    prior, prior_gradient = jax.value_and_grad(posterior.prior.log_prob)(position)
    direction = jnp.sin(1.0 + jnp.arange(posterior.dimension))
    velocity = direction / jnp.linalg.norm(direction)
    return _mclmc.State(position, velocity, value + prior, gradient + prior_gradient)


def start_of(posterior):
    return start(posterior, make_positions(posterior.network))


def chain_states(posterior, n_chains):
    """Return keys, states and step sizes."""
    keys = jax.random.split(jax.random.key(3), n_chains)
    states = jax.jit(jax.vmap(start, (None, 0)))(posterior, make_positions(posterior.network, n_chains))
    return keys, states, jnp.linspace(0.01, 0.1, n_chains)


@jax.jit
def many_steps(posterior, keys, states, step_sizes):
    """Make a step of each chain in one native call."""

    def one_chain(key, state, step_size):
        *state, energy_change, finite = posterior.native_step(key, state.position)(
            key, state, step_size, jnp.float32(2.0)
        )
        return _mclmc.State(*state), _mclmc.Info(energy_change, finite)

    return jax.vmap(one_chain)(keys, states, step_sizes)
