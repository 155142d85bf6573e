"""The MLP: layout of the flat vector, parameter counts of the paper, starting weights."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from mile import MLP
from mile.networks import ACTIVATIONS, INITIALIZERS

NUMPY_ACTIVATIONS = {
    "relu": lambda z: np.maximum(z, 0.0),
    "tanh": np.tanh,
    # The tanh approximation, JAX's default.
    "gelu": lambda z: 0.5 * z * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (z + 0.044715 * z**3))),
    "silu": lambda z: z * special.expit(z),
    "sigmoid": special.expit,
}


def numpy_forward(position, x, widths, activate):
    """Evaluate a plain network on rows x: per layer W[in, out] row-major, then the bias."""
    start, hidden = 0, x
    for index, (fan_in, fan_out) in enumerate(pairwise(widths)):
        weights = position[start : start + fan_in * fan_out].reshape(fan_in, fan_out)
        start += fan_in * fan_out
        bias = position[start : start + fan_out]
        start += fan_out
        hidden = (activate(hidden) if index else hidden) @ weights + bias
    assert start == len(position)
    return hidden


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
@pytest.mark.parametrize("hidden", [(), (1,), (5,), (16, 16), (3, 7, 4)], ids=str)
def test_forward_pass_equals_plain_numpy(activation, hidden):
    network = MLP(n_inputs=3, hidden=hidden, n_outputs=2, activation=activation)
    rng = np.random.default_rng(0)
    position, x = rng.normal(size=network.dimension), rng.normal(size=(9, 3))
    expected = numpy_forward(position, x, (3, *hidden, 2), NUMPY_ACTIVATIONS[activation])
    with jax.enable_x64(True):
        outputs = network.apply(jnp.asarray(position), jnp.asarray(x.T))
        assert outputs.dtype == jnp.float64
    np.testing.assert_allclose(outputs, expected.T, rtol=1e-12, atol=1e-12)


def test_every_activation_has_a_numpy_twin():
    assert set(ACTIVATIONS) == set(NUMPY_ACTIVATIONS)


@pytest.mark.parametrize(
    ("data", "n_inputs", "hidden", "count"),
    [
        ("airfoil", 5, (16, 16), 402),
        ("bikesharing", 12, (16, 16), 514),
        ("concrete and energy", 8, (16, 16), 450),
        ("protein", 9, (16, 16), 466),
        ("yacht", 6, (16, 16), 418),
        ("ionosphere", 33, (16, 16), 850),
        ("income", 95, (16, 16, 16, 16), 2386),
        ("ablation", 12, (48, 48, 48), 5426),
    ],
)
def test_parameter_counts_are_the_papers(data, n_inputs, hidden, count):
    network = MLP(n_inputs=n_inputs, hidden=hidden, n_outputs=2)
    assert network.dimension == count
    assert network.init(jax.random.key(0)).shape == (count,)


def test_default_network_is_the_papers():
    assert MLP(n_inputs=5).dimension == 402
    assert MLP(n_inputs=5) == MLP(n_inputs=5, hidden=(16, 16), n_outputs=2, activation="relu")


def split_layers(network, position):
    start = 0
    for fan_in, fan_out in network.layer_sizes:
        middle = start + fan_in * fan_out
        yield fan_in, fan_out, position[start:middle], position[middle : middle + fan_out]
        start = middle + fan_out


# Variance of a weight times this fan.
FANS = {
    "lecun_normal": lambda fan_in, fan_out: fan_in,
    "lecun_uniform": lambda fan_in, fan_out: fan_in,
    "glorot_normal": lambda fan_in, fan_out: (fan_in + fan_out) / 2,
    "glorot_uniform": lambda fan_in, fan_out: (fan_in + fan_out) / 2,
    "he_normal": lambda fan_in, fan_out: fan_in / 2,
    "he_uniform": lambda fan_in, fan_out: fan_in / 2,
}


@pytest.mark.parametrize("initializer", sorted(INITIALIZERS))
def test_starting_weights_have_the_initializers_variance_and_biases_are_zero(initializer):
    network = MLP(n_inputs=50, hidden=(80, 60), n_outputs=70, initializer=initializer)
    for fan_in, fan_out, weights, bias in split_layers(network, np.asarray(network.init(jax.random.key(0)))):
        assert not bias.any()
        # Kurtosis of a normal: the relative error of a variance is at most sqrt(2/n); 5 of them.
        assert abs(weights.var() * FANS[initializer](fan_in, fan_out) - 1.0) < 5 * np.sqrt(2 / weights.size)


def test_default_initializer_is_lecun_normal():
    assert MLP(n_inputs=2).initializer == "lecun_normal"


def test_layers_start_from_different_random_numbers_and_a_key_reproduces_them():
    network = MLP(n_inputs=4, hidden=(4, 4), n_outputs=4)
    first, second = network.init(jax.random.key(0)), network.init(jax.random.key(0))
    np.testing.assert_array_equal(first, second)
    weights = [layer[2] for layer in split_layers(network, np.asarray(first))]
    assert not np.allclose(weights[0], weights[1])
    assert not np.allclose(first, network.init(jax.random.key(1)))


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_nan_goes_through_every_activation(activation):
    network = MLP(n_inputs=1, hidden=(4,), n_outputs=2, activation=activation)
    position = jnp.ones(network.dimension)
    assert np.isnan(network.apply(position.at[0].set(jnp.nan), jnp.ones((1, 3)))).all()
    outputs = np.asarray(network.apply(position, jnp.array([[jnp.nan, 1.0, jnp.inf]])))
    assert np.isnan(outputs[:, 0]).all()
    assert np.isfinite(outputs[:, 1]).all()


def test_gradient_is_that_of_finite_differences():
    network = MLP(n_inputs=2, hidden=(3,), n_outputs=1, activation="tanh")
    rng = np.random.default_rng(1)
    position, x = rng.normal(size=network.dimension), rng.normal(size=(2, 5))
    with jax.enable_x64(True):

        def total(position):
            return jnp.sum(network.apply(position, jnp.asarray(x)))

        gradient = np.asarray(jax.grad(total)(jnp.asarray(position)))
        step = 1e-6
        numeric = [
            float(total(jnp.asarray(position + step * unit)) - total(jnp.asarray(position - step * unit))) / (2 * step)
            for unit in np.eye(len(position))
        ]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"n_inputs": 0}, "n_inputs"),
        ({"n_outputs": 0}, "n_outputs"),
        ({"hidden": (16, 0)}, "hidden"),
        ({"hidden": (16, -1)}, "hidden"),
        ({"hidden": (2.5,)}, "hidden"),
        ({"activation": "softplus"}, "activation"),
        ({"initializer": "zeros"}, "initializer"),
    ],
)
def test_impossible_networks_are_refused_by_name(arguments, name):
    with pytest.raises(ValueError, match=name):
        MLP(**{"n_inputs": 2, **arguments})
