"""Activations of the native kernel, tables or formulas, are what they stand for, on every instruction set."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from native_steps import XlaTarget, start_of
from perceptrons import VALUE_AND_SLOPE, make_posterior

from mile import MLP, Gaussian, native
from mile.native._library import library
from mile.networks.mlp import ACTIVATIONS
from mile.padded_rows import pad_rows
from mile.samplers import _mclmc

pytestmark = pytest.mark.skipif(native.kernel_name() == "xla", reason="the native kernel was not built")
SMOOTH = [name for name in ACTIVATIONS if name != "relu"]
KERNELS = (None, b"avx2", b"portable")  # None: the best; one that the machine lacks is replaced by the best
ONE_ROW = pad_rows(np.zeros((1, 1), np.float32), np.ones(1, np.float32))
SMALL = 2.0**-60  # a weight that leaves the outputs at zero
# Value, where it is below one in absolute and above in relative terms, and slope.
BOUNDS = {"gelu": (2e-7, 1e-5), "silu": (2e-7, 1e-5), "tanh": (2e-7, 5e-7), "sigmoid": (1e-7, 2e-7)}


@pytest.fixture
def each_kernel():
    """Give the kernels one after another, as a generator that switches."""

    def switch():
        for name in KERNELS:
            library().mile_use_kernel(name)
            yield native.kernel_name()

    yield switch
    library().mile_use_kernel(None)


def value_and_slope(activation, z):
    """Return both at all z: units of one wide layer, whose biases they are; x is zero."""
    n = len(z)
    network = MLP(n_inputs=1, hidden=(n,), n_outputs=2, activation=activation)
    spec = native.specify(network, Gaussian(), jnp.float32, ONE_ROW)
    weights = np.stack([np.full(n, SMALL), np.zeros(n)], axis=1)
    position = jnp.asarray(np.concatenate([np.zeros(n), z, weights.ravel(), np.zeros(2)]), jnp.float32)
    data = native.Data(ONE_ROW.x, ONE_ROW.y, ONE_ROW.weight, ONE_ROW.count)
    # The location is zero and y is one, so the derivative of the log likelihood with respect to it is one.
    _, gradient = jax.jit(lambda position: native.value_and_grad(spec, position, data))(position)
    gradient = np.asarray(gradient, np.float64)
    return gradient[2 * n : 4 * n : 2], gradient[n : 2 * n] / SMALL


@pytest.mark.parametrize("activation", SMOOTH)
def test_value_and_slope_are_within_their_bounds(activation, each_kernel):
    far = np.geomspace(1e-12, 1e5, 400)
    z = np.concatenate([np.linspace(-25, 25, 8_001), far, -far]).astype(np.float32)
    with np.errstate(over="ignore"):
        expected, expected_slope = VALUE_AND_SLOPE[activation](z.astype(np.float64))
    value_bound, slope_bound = BOUNDS[activation]
    for name in each_kernel():
        value, slope = value_and_slope(activation, z)
        errors = np.abs(value - expected) / np.maximum(1.0, np.abs(expected))
        assert errors.max() < value_bound, name
        assert np.abs(slope - expected_slope)[np.abs(z) < 100].max() < slope_bound, name
        # Far out there is nothing left of the slope to multiply a large number with.
        settled = z < -60
        assert not (np.abs(slope[settled]) > 1e-25).any(), name
        near = np.abs(z) < 0.1
        np.testing.assert_allclose(value[near], expected[near], rtol=5e-7, err_msg=name)


@pytest.mark.parametrize("activation", SMOOTH)
def test_nan_stays_and_infinities_go_where_the_function_goes(activation, each_kernel):
    limits = {"gelu": (np.inf, 0.0), "silu": (np.inf, 0.0), "tanh": (1.0, -1.0), "sigmoid": (1.0, 0.0)}[activation]
    network = MLP(n_inputs=1, hidden=(1,), n_outputs=2, activation=activation)
    spec = native.specify(network, Gaussian(), jnp.float32)
    sums = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0], np.float32)
    draws = np.zeros((len(sums), network.dimension), np.float32)  # x is zero, so the bias is the sum
    draws[:, 1], draws[:, 2] = sums, 1.0
    for name in each_kernel():
        location = native.outputs(spec, draws, np.zeros((1, 3), np.float32))[:, 0]
        assert np.isnan(location[:2]).all(), name
        np.testing.assert_allclose(location[2:4].T, [limits] * 3, atol=1e-30, err_msg=name)
        np.testing.assert_array_equal(location[4:], 0.5 if activation == "sigmoid" else 0.0, err_msg=name)


@pytest.mark.parametrize("activation", SMOOTH)
def test_steps_of_the_most_accurate_preset_change_the_energy_as_in_xla(activation, each_kernel):
    """Where tables meet, values do not jump: that would be a change of energy that no small step gets rid of."""
    posterior = make_posterior(Gaussian(), 400, 5, hidden=(16, 16, 16), activation=activation)
    keys = jax.random.split(jax.random.key(7), 20)

    def energy_changes(target, step_size):
        def body(state, key):
            state, info = _mclmc.step(key, state, target, step_size, jnp.float32(10.0))
            return state, info.energy_change

        return jax.lax.scan(body, start_of(posterior), keys)[1]

    run = jax.jit(energy_changes)
    rounding = 5e-7 * abs(float(start_of(posterior).logdensity))
    for step_size in (0.1, 0.02):
        expected = np.asarray(run(XlaTarget(posterior), jnp.float32(step_size)))
        for name in each_kernel():
            found = np.asarray(run(posterior, jnp.float32(step_size)))
            np.testing.assert_allclose(found, expected, atol=rounding, rtol=1e-3, err_msg=name)
