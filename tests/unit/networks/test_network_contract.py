"""What every network offers, and what one of your own may leave out."""

import ast
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mile import native
from mile.likelihoods import Gaussian
from mile.networks import CNN_V1, MLP, Attention, adapt
from mile.networks.base import AbstractNetwork
from mile.padded_rows import pad_rows
from mile.posterior import Posterior
from mile.priors import Normal

SOURCE = Path(__file__).parents[3] / "src" / "mile"


@dataclass(frozen=True)
class Line(AbstractNetwork):
    """A straight line, which says no more of itself than it must."""

    n_inputs: int
    n_outputs: int = 2

    @property
    def input_shape(self):
        return (self.n_inputs,)

    @property
    def dimension(self):
        return self.n_inputs * self.n_outputs

    def sized(self, input_shape, n_outputs):
        return Line(*input_shape, n_outputs)

    def init(self, key):
        return jax.random.normal(key, (self.dimension,))

    def apply(self, position, x):
        return position.reshape(self.n_outputs, self.n_inputs) @ x


def pair():
    return lambda key: jax.random.normal(key, (3, 2)), lambda weights, batch: batch @ weights


NETWORKS = [
    MLP(n_inputs=3, hidden=(4,)),
    CNN_V1.sized((8, 8), 2),
    Attention(vocabulary=9, context=4, width=6, heads=1, attention_width=2, hidden=()).sized((4,), 2),
    adapt(pair()).sized((3,), 2),
    Line(3),
]


def test_every_network_keeps_the_contract():
    for network in NETWORKS:
        assert network.n_inputs == np.prod(network.input_shape)
        assert sum(layer.size for layer in network.layers) == network.dimension
        assert network.row_floats >= 1
        position = network.init(jax.random.key(0))
        assert position.shape == (network.dimension,)
        x = jnp.ones((network.n_inputs, 5))
        outputs = network.apply(position, x)
        assert outputs.shape == (network.n_outputs, 5)
        np.testing.assert_allclose(native.apply(network, position, x), outputs, rtol=1e-5, atol=1e-6)
        assert network.sized(network.input_shape, network.n_outputs) == network
        assert hash(network) == hash(network.sized(network.input_shape, network.n_outputs))


def test_networks_describe_themselves():
    mlp, images, texts, own, line = NETWORKS
    assert mlp.describe_layers() == "hidden layers of 4 relu units"
    assert images.describe_layers() == "convolutions with 1 filter, hidden layers of 8 and 8 and 8 relu units"
    assert texts.describe_layers() == own.describe_layers() == line.describe_layers() == ""
    assert images.describe_rows() == "images of 8 x 8"
    assert texts.describe_rows() == "texts of up to 4 tokens"
    assert mlp.describe_rows() is own.describe_rows() is line.describe_rows() is None


def test_a_network_may_leave_out_what_has_a_default():
    network = Line(3)
    assert [layer.name for layer in network.layers] == ["all weights"]
    assert network.row_floats == 3
    rng = np.random.default_rng(0)
    rows = pad_rows(rng.standard_normal((20, 3)).astype(np.float32), rng.standard_normal(20).astype(np.float32))
    posterior = Posterior(rows=rows, network=network, likelihood=Gaussian(), prior=Normal())
    position = network.init(jax.random.key(0))
    value, gradient = jax.jit(posterior.value_and_grad)(position)
    assert np.isfinite(value)
    np.testing.assert_allclose(gradient, jax.grad(posterior.logdensity)(position), rtol=1e-4)
    assert native.specify(network, Gaussian(), jnp.float32) is None


def test_a_perceptron_takes_only_its_own_sizes():
    network = MLP(n_inputs=3, n_outputs=2)
    assert network.sized((3,), 2) is network
    with pytest.raises(ValueError, match="takes 3 features; got rows of shape"):
        network.sized((4,), 2)
    with pytest.raises(ValueError, match="has 2 outputs but 5 are needed"):
        network.sized((3,), 5)


def test_the_kernel_asks_for_no_class_of_networks():
    for path in (SOURCE / "native").glob("*.py"):
        names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
        assert not names & {"MLP", "ConvNet", "Attention"}, path.name
