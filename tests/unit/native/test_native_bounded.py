"""The native kernel's head of the bounded link: gradients, steps, epochs and sums over draws are XLA's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from native_steps import XlaTarget, chain_states, many_steps
from perceptrons import OtherMLP, close, make_network, make_positions, make_posterior, make_rows, reference

from mile import Gaussian, native
from mile.ensemble import training as optimize
from mile.ensemble.training import Training
from mile.posterior import _plain
from mile.samplers import _mclmc

pytestmark = pytest.mark.skipif(native.kernel_name() == "xla", reason="the native kernel was not built")
TINY, WIDE = Gaussian(link="bounded"), Gaussian(link="bounded", floor=0.5)
every_floor = pytest.mark.parametrize("likelihood", [TINY, WIDE], ids=["tiny floor", "wide floor"])


@jax.jit
def by_kernel(posterior, position):
    rows = posterior.rows
    spec = native.specify(posterior.network, posterior.likelihood, position.dtype, rows)
    data = native.Data(rows.x, rows.y, rows.weight, rows.count)
    return native.value_and_grad(spec, position, data), native.value(spec, position, data)


@jax.jit
def by_xla(posterior, position):
    network, likelihood = posterior.network, posterior.likelihood
    return jax.value_and_grad(lambda position: _plain(network, likelihood, position, posterior.rows))(position)


@every_floor
class TestGradient:
    @pytest.mark.parametrize("bias", [-80.0, -6.0, 0.0, 6.0, 80.0])
    def test_is_that_of_double_precision_also_where_the_link_bends(self, kernel, likelihood, bias):
        posterior = make_posterior(likelihood, 130, hidden=(5,), weights=(0.0, 0.5, 1.0))
        position = make_positions(posterior.network).at[-1].set(bias)
        (value, gradient), alone = by_kernel(posterior, position)
        expected, size, slope, _ = reference(posterior.network, likelihood, position, posterior.rows)
        for found in (value, alone, by_xla(posterior, position)[0]):
            assert abs(float(found) - expected) <= 1e-5 * size
        close(gradient, slope)
        close(by_xla(posterior, position)[1], slope)

    def test_of_nan_is_nan(self, likelihood):
        posterior = make_posterior(likelihood, 130, hidden=(5,), weights=(0.0, 0.5, 1.0))
        (value, gradient), alone = by_kernel(posterior, make_positions(posterior.network).at[-1].set(jnp.nan))
        assert np.isnan(value)
        assert np.isnan(alone)
        assert np.isnan(gradient[-1])


def test_a_step_is_that_of_jax():
    posterior = make_posterior(WIDE, 60, hidden=(5,))
    chains, target = chain_states(posterior, 2), XlaTarget(posterior)
    step = jax.jit(jax.vmap(lambda key, state, size: _mclmc._step(key, state, target, size, jnp.float32(2.0))))
    close(many_steps(posterior, *chains)[0], step(*chains)[0])


def test_an_epoch_of_training_is_that_of_xla():
    network, training = make_network(WIDE, (5,), "silu"), Training(learning_rate=0.01, weight_decay=0.1, batch_size=32)
    rows, position = make_rows(WIDE, 70), make_positions(network)
    optimizer = training.optimizer.init(position)
    shuffle = jnp.asarray(np.random.default_rng(0).random(rows.y.shape), jnp.float32)
    spec = native.specify(network, WIDE, jnp.float32, rows)
    ours, _ = optimize._native_update(training, spec, position, optimizer, shuffle, rows)
    other = OtherMLP(**vars(network))
    theirs, _ = optimize._update(training, other, WIDE, position, optimizer, shuffle, rows)
    assert np.abs(ours - position).max() > 0.01
    close(ours, theirs)


@every_floor
def test_sums_over_draws_are_those_of_the_components(kernel, likelihood):
    network = make_network(likelihood, (5,))
    draws = np.array(make_positions(network, 7))
    draws[:, -1] += np.linspace(-30.0, 30.0, 7)
    x = np.random.default_rng(3).standard_normal((3, 101)).astype(np.float32)
    spec = native.specify(network, likelihood, draws.dtype)
    outputs = native.outputs(spec, draws, x)
    components = likelihood.components(outputs)
    center = outputs[0, 0]
    away = components.mean - center
    expected = [away.sum(axis=0), np.square(away).sum(axis=0), np.square(components.std).sum(axis=0)]
    np.testing.assert_allclose(native.summarize(spec, draws, x, center), expected, rtol=1e-5, atol=1e-5)
