"""Convolutional networks: the paper's sizes, a plain reference, exact derivatives, and one truth for both paths."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from perceptrons import VALUE_AND_SLOPE, close, make_rows
from scipy.special import log_softmax
from targets import assert_same_bits

from mile import Categorical, Gaussian, Normal, native
from mile import posterior as posterior_module
from mile.ensemble.training import Training, _native_update, _update
from mile.native._library import library
from mile.networks import CNN_V1, LENET5, ConvNet, Convolution, places
from mile.posterior import Posterior, _plain, log_likelihood

needs_kernel = pytest.mark.skipif(native.kernel_name() == "xla", reason="the native kernel was not built")
SMALL = ConvNet(
    convolutions=(Convolution(filters=3, kernel=3, padding=1, pool=2), Convolution(filters=5, kernel=2)),
    hidden=(6,),
    activation="gelu",
)


def reference(network, position, x):
    """Return the outputs [output, row] and the sums that came nearest to zero, in float64 and by plain loops."""
    position, activate = np.asarray(position, np.float64), VALUE_AND_SLOPE[network.activation]
    parts = [position[where] for where in places(network.layers)]
    images = np.asarray(x, np.float64).T.reshape(-1, *network.input_shape)
    nearest = np.inf
    for convolution in network.convolutions:
        part, k, p, pool = parts.pop(0), convolution.kernel, convolution.padding, convolution.pool
        n_rows, _, _, channels = images.shape
        weights = part[: -convolution.filters].reshape(k, k, channels, convolution.filters)
        padded = np.pad(images, ((0, 0), (p, p), (p, p), (0, 0)))
        height, width = padded.shape[1] - k + 1, padded.shape[2] - k + 1
        sums = np.zeros((n_rows, height, width, convolution.filters)) + part[-convolution.filters :]
        for row in range(height):
            for column in range(width):
                patch = padded[:, row : row + k, column : column + k]
                sums[:, row, column] += np.einsum("nyxc,yxco->no", patch, weights)
        nearest = min(nearest, np.abs(sums).min())
        values = activate(sums)[0]
        height, width = height // pool, width // pool
        images = np.stack(
            [
                values[:, row * pool : (row + 1) * pool, column * pool : (column + 1) * pool].mean(axis=(1, 2))
                for row in range(height)
                for column in range(width)
            ],
            axis=1,
        ).reshape(n_rows, height, width, -1)
    hidden = images.reshape(len(images), -1)
    for index, (fan_in, fan_out) in enumerate(zip(network.dense_sizes, network.dense_sizes[1:], strict=False)):
        part = parts[index]
        hidden = hidden @ part[: fan_in * fan_out].reshape(fan_in, fan_out) + part[fan_in * fan_out :]
        if index < len(network.hidden):
            nearest = min(nearest, np.abs(hidden).min())
            hidden = activate(hidden)[0]
    return hidden.T, nearest


def make_position(network, seed=1, scale=1.0):
    """Return weights that keep features of order one, and biases."""
    rng = np.random.default_rng(seed)
    parts = []
    for layer in network.layers:
        parts += [
            rng.standard_normal(layer.n_weights) / np.sqrt(layer.fan_in),
            0.3 * rng.standard_normal(layer.n_biases),
        ]
    return jnp.asarray(scale * np.concatenate(parts), jnp.float32)


def in_double(network, likelihood, position, rows):
    """Return value and gradient by XLA in float64."""
    with jax.enable_x64(True):
        wide = jax.tree.map(
            lambda leaf: jnp.asarray(np.asarray(leaf), jnp.float64 if leaf.dtype == jnp.float32 else leaf.dtype), rows
        )
        position = jnp.asarray(np.asarray(position), jnp.float64)
        return jax.tree.map(
            np.asarray, jax.jit(jax.value_and_grad(partial(_plain, network, likelihood)))(position, wide)
        )


@partial(jax.jit, static_argnums=(0, 1))
def by_kernel(network, likelihood, positions, rows):
    spec = native.specify(network, likelihood, positions.dtype, rows)
    data = native.Data(rows.x, rows.y, rows.weight, rows.count)
    return jax.vmap(lambda position: native.value_and_grad(spec, position, data))(positions)


class TestSizes:
    def test_are_the_papers(self):
        assert CNN_V1.sized((28, 28), 10).dimension == 7_452
        assert LENET5.sized((28, 28), 10).dimension == 61_706

    def test_layers_cover_the_vector(self):
        network = LENET5.sized((28, 28), 10)
        assert [layer.size for layer in network.layers] == [156, 2_416, 48_120, 10_164, 850]
        assert network.init(jax.random.key(0)).shape == (61_706,)

    def test_come_from_the_data(self):
        network = SMALL.sized((9, 7, 2), 4)
        assert (network.n_inputs, network.n_outputs, network.input_shape) == (126, 4, (9, 7, 2))
        assert SMALL.sized((9, 7), 4).input_shape == (9, 7, 1)

    @pytest.mark.parametrize(
        ("call", "words"),
        [
            (lambda: SMALL.sized((5,), 2), "needs images"),
            (lambda: SMALL.sized((3, 3), 2), "too small"),
            (lambda: LENET5.sized((28, 28), 10).sized((32, 32), 10), "is for images of shape"),
            (lambda: LENET5.sized((28, 28), 10).sized((28, 28), 2), "has 10 outputs but 2"),
            (lambda: SMALL.dimension, "image is open"),
            (lambda: replace(SMALL, image=(9, 9, 1)).dimension, "n_outputs is open"),
            (lambda: ConvNet(convolutions=()), "at least one Convolution"),
            (lambda: ConvNet(convolutions=(3,)), "must be a Convolution"),
            (lambda: Convolution(filters=0), "filters"),
            (lambda: Convolution(filters=1, padding=-1), "padding"),
            (lambda: Convolution(filters=1, pool=1.5), "pool"),
            (lambda: replace(SMALL, hidden=[3]), "hidden must be a tuple"),
            (lambda: replace(SMALL, activation="step"), "activation"),
        ],
    )
    def test_that_cannot_be_are_refused(self, call, words):
        with pytest.raises(ValueError, match=words):
            call()

    def test_starting_weights_have_the_variance_of_their_layer(self):
        network = LENET5.sized((28, 28), 10)
        weights = np.asarray(network.init(jax.random.key(3)))
        for layer, where in zip(network.layers, places(network.layers), strict=True):
            part = weights[where]
            assert np.std(part[: layer.n_weights]) * np.sqrt(layer.fan_in) == pytest.approx(1.0, abs=0.15)
            assert (part[layer.n_weights :] == 0).all()


@pytest.mark.parametrize("network", [CNN_V1, LENET5, SMALL], ids=["cnn_v1", "lenet5", "small"])
def test_xla_agrees_with_plain_loops(network):
    network = network.sized((28, 28), 10) if network is not SMALL else network.sized((9, 7, 2), 10)
    position, rows = make_position(network), make_rows(Categorical(10), 7, network.n_inputs)
    outputs, _ = reference(network, position, rows.x)
    close(network.apply(position, rows.x), outputs)


@pytest.mark.parametrize("network", [CNN_V1, LENET5], ids=["cnn_v1", "lenet5"])
def test_the_gradient_is_that_of_finite_differences(network):
    # GELU instead of ReLU: differences across a kink are not derivatives.
    network = replace(network, activation="gelu").sized((28, 28), 10)
    position, rows = np.asarray(make_position(network), np.float64), make_rows(Categorical(10), 3, network.n_inputs)
    y, x = np.asarray(rows.y)[:3], np.asarray(rows.x)[:, :3]

    def value(position):
        return log_softmax(reference(network, position, x)[0], axis=0)[y, np.arange(3)].sum()

    _, gradient = in_double(network, Categorical(10), position, rows)
    rng = np.random.default_rng(0)
    for where in places(network.layers):
        direction = np.zeros(len(position))
        direction[where] = rng.standard_normal(where.stop - where.start)
        step = 1e-5 * direction / np.linalg.norm(direction)
        difference = (value(position + step) - value(position - step)) / 2.0
        assert difference == pytest.approx(gradient @ step, rel=1e-5, abs=1e-12)


@pytest.mark.parametrize("network", [CNN_V1, LENET5], ids=["cnn_v1", "lenet5"])
def test_rows_in_blocks_add_up_to_all_at_once(monkeypatch, network):
    network, likelihood = network.sized((28, 28), 10), Categorical(10)
    position, rows = make_position(network), make_rows(likelihood, 500, network.n_inputs)
    blocked = partial(posterior_module.value_and_grad_by_xla, network, likelihood)
    assert posterior_module._block_rows(network.row_floats) < 500 // posterior_module._FEWEST_BLOCKS
    in_blocks = jax.jit(blocked)(position, rows)
    monkeypatch.setattr(posterior_module, "_XLA_FLOATS", 1 << 40)
    close(in_blocks, jax.jit(lambda *arguments: blocked(*arguments))(position, rows))


@st.composite
def networks(draw):
    image = draw(st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 4)))
    convolutions = tuple(
        Convolution(
            filters=draw(st.integers(1, 18)),
            kernel=draw(st.integers(1, 4)),
            padding=draw(st.integers(0, 3)),
            pool=draw(st.integers(1, 3)),
        )
        for _ in range(draw(st.integers(1, 3)))
    )
    likelihood = draw(st.just(Gaussian()) | st.integers(2, 5).map(Categorical))
    hidden = tuple(draw(st.lists(st.integers(1, 20), max_size=2)))
    activation = draw(st.sampled_from(["relu", "gelu", "tanh", "silu", "sigmoid"]))
    try:
        network = ConvNet(convolutions=convolutions, hidden=hidden, activation=activation)
        return network.sized(image, likelihood.n_outputs), likelihood
    except ValueError:
        assume(False)


@needs_kernel
class TestNative:
    @settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(networks(), st.sampled_from([1, 15, 16, 17, 33, 48, 49, 100]), st.integers(0, 1 << 16))
    def test_any_network_agrees_with_float64(self, chosen, count, seed):
        network, likelihood = chosen
        position = make_position(network, seed)
        rows = make_rows(likelihood, count, network.n_inputs, seed, (0.0, 0.5, 1.0))
        outputs, nearest = reference(network, position, np.asarray(rows.x)[:, :count])
        assume(network.activation != "relu" or nearest > 1e-6)
        expected, gradient = in_double(network, likelihood, position, rows)
        assume(np.linalg.norm(gradient) > 1e-6)
        scale = np.abs(np.asarray(rows.weight)).sum() + abs(expected)
        try:
            for name in (None, b"portable"):
                library().mile_use_kernel(name)
                (value,), (found,) = by_kernel(network, likelihood, position[None], rows)
                assert abs(value - expected) <= 1e-5 * scale
                close(found, gradient)
                spec = native.specify(network, likelihood, np.float32)
                close(native.outputs(spec, np.asarray(position)[None], np.asarray(rows.x)[:, :count])[0], outputs)
        finally:
            library().mile_use_kernel(None)

    def test_neither_threads_nor_other_chains_change_a_bit(self, helpers):
        network, likelihood = LENET5.sized((28, 28), 10), Categorical(10)
        rows = make_rows(likelihood, 1_000, network.n_inputs)
        positions = jnp.stack([make_position(network, seed) for seed in range(3)])
        found = []
        for n_helpers in (0, 1, 3):
            helpers(n_helpers)
            found.append(by_kernel(network, likelihood, positions, rows))
        alone = [by_kernel(network, likelihood, position[None], rows) for position in positions]
        for other in found[1:]:
            assert_same_bits(found[0], other)
        assert_same_bits(found[0], jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *alone))

    def test_what_is_not_finite_comes_out_as_such(self):
        network, likelihood = SMALL.sized((9, 7, 2), 4), Categorical(4)
        rows = make_rows(likelihood, 30, network.n_inputs)
        for where in (0, network.layers[0].size + 1, network.dimension - 1):
            value, gradient = by_kernel(
                network, likelihood, make_position(network)[None].at[0, where].set(jnp.nan), rows
            )
            assert not np.isfinite(value[0])
            assert not np.isfinite(gradient).all()

    def test_an_epoch_of_training_is_that_of_optax(self):
        network, likelihood, training = SMALL.sized((9, 7, 2), 4), Categorical(4), Training(batch_size=32)
        rows, position = make_rows(likelihood, 150, network.n_inputs), make_position(network)
        shuffle = jax.random.uniform(jax.random.key(0), rows.y.shape)
        state = training.optimizer.init(position)
        spec = native.specify(network, likelihood, position.dtype, rows)
        ours = jax.jit(partial(_native_update, training, spec))(position, state, shuffle, rows)
        theirs = jax.jit(partial(_update, training, network, likelihood))(position, state, shuffle, rows)
        close(ours[0] - position, theirs[0] - position, 1e-3)  # Adam divides by the gradient's own size

    def test_the_posterior_uses_it(self):
        network, likelihood = SMALL.sized((9, 7, 2), 4), Categorical(4)
        rows = make_rows(likelihood, 60, network.n_inputs)
        posterior = Posterior(rows=rows, network=network, likelihood=likelihood, prior=Normal())
        text = jax.jit(posterior.value_and_grad).lower(make_position(network)).as_text()
        assert "mile_value_and_grad" in text

    def test_a_mini_batch_of_rows_has_its_own_value(self):
        network, likelihood = SMALL.sized((9, 7, 2), 4), Categorical(4)
        rows, position = make_rows(likelihood, 200, network.n_inputs), make_position(network)
        posterior = Posterior(rows=rows, network=network, likelihood=likelihood, prior=Normal())
        order = posterior.shuffled(jax.random.key(0))
        parts = [posterior.minibatch(order, index, 16, scaled=False) for index in range(13)]
        total = sum(float(log_likelihood(network, likelihood, position, part.rows)) for part in parts)
        assert total == pytest.approx(float(log_likelihood(network, likelihood, position, rows)), rel=1e-5)


def test_other_kinds_of_convolutional_networks_are_left_to_xla():
    class Other(ConvNet):
        pass

    other = Other(convolutions=SMALL.convolutions, image=(9, 7, 2), n_outputs=4)
    assert native.specify(other, Categorical(4), jnp.float32) is None
