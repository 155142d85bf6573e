"""For a likelihood without a head the kernel computes outputs and takes their slopes from JAX."""

from dataclasses import dataclass
from functools import partial
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import runs
from perceptrons import close, make_network, make_positions, make_posterior, make_rows
from targets import assert_same_bits

import mile
from mile import Mile, Normal, _registry, native, posterior
from mile.ensemble.training import Training
from mile.likelihoods import AbstractNumberLikelihood
from mile.native import _outputs
from mile.networks import ConvNet, Convolution
from mile.padded_rows import PaddedRows
from mile.posterior import Posterior, log_likelihood, value_and_grad_by_xla
from mile.storage import _platform, read_manifest

pytestmark = pytest.mark.skipif(native.kernel_name() == "xla", reason="the native kernel was not built")
WEIGHTS = (0.0, 0.25, 1.0, 1.75)
TWO_CHUNKS = 1_000  # rows: enough for the kernel to cut them up, with an incomplete tile at the end


@_registry.likelihood("laplace_without_head")
@dataclass(frozen=True)
class LaplaceWithoutHead(AbstractNumberLikelihood):
    n_outputs = 2

    def log_prob(self, outputs, y):
        return -jnp.abs(y - outputs[0]) * jnp.exp(-outputs[1]) - outputs[1] - jnp.log(2.0)

    def components(self, outputs):
        raise NotImplementedError


@dataclass(frozen=True)
class SkewedLogistic(AbstractNumberLikelihood):
    """Location, scale and shape."""

    n_outputs = 3

    def log_prob(self, outputs, y):
        location, log_scale, log_shape = outputs
        z = (y - location) * jnp.exp(-log_scale)
        return log_shape - log_scale - z - (jnp.exp(log_shape) + 1.0) * jax.nn.softplus(-z)

    def components(self, outputs):
        raise NotImplementedError


LIKELIHOODS = {"2 outputs": LaplaceWithoutHead(), "3 outputs": SkewedLogistic()}
every_likelihood = pytest.mark.parametrize("likelihood", LIKELIHOODS.values(), ids=LIKELIHOODS)


def value_and_grad(network, likelihood, position, rows):
    return Posterior(rows=rows, network=network, likelihood=likelihood, prior=FLAT).value_and_grad(position)


class Flat(Normal):
    """No prior, so that the numbers are those of the data."""

    def log_prob(self, position):
        return 0.0 * jnp.sum(position)


FLAT = Flat(scale=1.0)
by_kernel = jax.jit(value_and_grad, static_argnums=(0, 1))
value_by_kernel = jax.jit(log_likelihood, static_argnums=(0, 1))
by_xla = jax.jit(value_and_grad_by_xla, static_argnums=(0, 1))


def in_double(network, likelihood, position, rows):
    """Return value, its scale (the sum without signs) and gradient of the rows that are not padding, by XLA."""
    with jax.enable_x64(True):
        n = int(rows.count)
        x, y, weight = (jnp.asarray(np.asarray(array)[..., :n], jnp.float64) for array in (rows.x, rows.y, rows.weight))
        position = jnp.asarray(np.asarray(position), jnp.float64)
        real = PaddedRows(x=x, y=y, weight=weight, count=rows.count)
        value, gradient = by_xla(network, likelihood, position, real)
        terms = weight * likelihood.log_prob(network.apply(position, x), y)
        return float(value), float(jnp.sum(jnp.abs(terms))), np.asarray(gradient)


def check_against_double(network, likelihood, position, rows, tolerance=1e-5):
    value, gradient = by_kernel(network, likelihood, position, rows)
    alone = value_by_kernel(network, likelihood, position, rows)
    expected, scale, expected_gradient = in_double(network, likelihood, position, rows)
    assert scale > 0
    assert max(abs(float(value) - expected), abs(float(alone) - expected)) <= tolerance * scale
    close(gradient, expected_gradient, tolerance)


def uses_kernel(function, *arguments):
    program = jax.jit(function).lower(*arguments).as_text()
    return "mile_forward" in program and "mile_backward" in program


class TestAgreement:
    """By norm, to 1e-5, with float64."""

    @every_likelihood
    def test_of_perceptrons(self, kernel, likelihood):
        for hidden, activation, n_inputs, count in (
            ((16, 16), "relu", 5, 1),
            ((16, 16), "tanh", 5, 97),
            ((7, 33, 5), "gelu", 3, 301),
            ((64, 64), "silu", 4, TWO_CHUNKS),
            ((4,), "sigmoid", 3, 13),
            ((), "relu", 6, 50),
        ):
            network = make_network(likelihood, hidden, activation, n_inputs)
            rows = make_rows(likelihood, count, n_inputs, weights=WEIGHTS[2:] if count == 1 else WEIGHTS)
            check_against_double(network, likelihood, make_positions(network), rows)

    @every_likelihood
    def test_of_convolutions(self, kernel, likelihood):
        network = ConvNet(
            image=(6, 6, 1),
            convolutions=(Convolution(filters=3, kernel=3, padding=1, pool=2),),
            hidden=(5,),
            n_outputs=likelihood.n_outputs,
            activation="gelu",
        )
        position = 0.3 * jax.random.normal(jax.random.key(0), (network.dimension,))
        rows = make_rows(likelihood, 61, 36, weights=WEIGHTS)
        assert uses_kernel(partial(value_and_grad, network, likelihood), position, rows)
        check_against_double(network, likelihood, position, rows)

    def test_of_mini_batches(self, kernel):
        target = make_posterior(LaplaceWithoutHead(), 100, weights=WEIGHTS)
        position = make_positions(target.network)
        batch = target.minibatch(target.shuffled(jax.random.key(0)), jnp.int32(1), 32)
        gradient = jax.jit(jax.grad(log_likelihood, argnums=2), static_argnums=(0, 1))
        _, _, expected = in_double(batch.network, batch.likelihood, position, batch.rows)
        close(gradient(batch.network, batch.likelihood, position, batch.rows), expected)

    def test_of_blocks_of_rows(self, kernel, monkeypatch):
        monkeypatch.setattr(posterior, "_XLA_ROWS", 64)
        network, rows = make_network(LaplaceWithoutHead(), (4, 3)), make_rows(LaplaceWithoutHead(), 1_003)
        assert rows.y.shape[0] >= posterior._FEWEST_BLOCKS * 64
        in_blocks = jax.jit(partial(value_and_grad, network, LaplaceWithoutHead()))
        position = make_positions(network)
        assert "while" in in_blocks.lower(position, rows).as_text()
        value, gradient = in_blocks(position, rows)
        expected, scale, expected_gradient = in_double(network, LaplaceWithoutHead(), position, rows)
        assert abs(float(value) - expected) <= 1e-6 * scale
        close(gradient, expected_gradient)

    def test_of_large_sums_is_to_the_last_bit(self, kernel):
        likelihood = LaplaceWithoutHead()
        network, rows = make_network(likelihood), make_rows(likelihood, 20_000)
        positions = make_positions(network, 16)
        values = [by_kernel(network, likelihood, position, rows)[0] for position in positions]
        expected = np.array([in_double(network, likelihood, position, rows)[0] for position in positions])
        errors = (np.asarray(values, np.float64) - expected) / np.spacing(np.abs(expected).astype(np.float32))
        assert np.sqrt(np.mean(errors**2)) < 0.5  # rounding the result alone makes 0.29


class TestBits:
    """A chain has the same ones however it is called."""

    @every_likelihood
    def test_whatever_chains_and_threads_share_the_call(self, kernel, helpers, likelihood):
        network = make_network(likelihood, (8, 5), "silu")
        rows, positions = make_rows(likelihood, TWO_CHUNKS, weights=WEIGHTS), make_positions(network, 7)
        alone = [by_kernel(network, likelihood, position, rows) for position in positions]
        for n_helpers in (0, 1, 100):
            helpers(n_helpers)
            for n_chains in (1, 2, 7):
                together = jax.jit(jax.vmap(lambda position: value_and_grad(network, likelihood, position, rows)))
                values, gradients = together(positions[:n_chains])
                for chain in range(n_chains):
                    assert_same_bits((values[chain], gradients[chain]), alone[chain])

    @pytest.mark.parametrize("activation", ["tanh", "gelu"])
    def test_whether_hidden_layers_are_kept_or_computed_again(self, kernel, monkeypatch, activation):
        likelihood = LaplaceWithoutHead()
        network = make_network(likelihood, (8, 40), activation)
        rows, position = make_rows(likelihood, TWO_CHUNKS), make_positions(network)
        kept = by_kernel(network, likelihood, position, rows)
        monkeypatch.setattr(_outputs, "_MOST_KEPT", 0)
        again = jax.jit(lambda position: value_and_grad(network, likelihood, position, rows))
        assert f"tensor<1x{native.specify(network, likelihood, jnp.float32).kept_floats(rows.y.shape[0])}xf32>" not in (
            again.lower(position).as_text()
        )
        assert_same_bits(again(position), kept)

    def test_of_several_data_sets_at_once(self):
        likelihood = LaplaceWithoutHead()
        network = make_network(likelihood)
        folds = [make_rows(likelihood, 30, seed=seed) for seed in (1, 2)]
        positions, rows = make_positions(network, 2), jax.tree.map(lambda *leaves: jnp.stack(leaves), *folds)
        values, gradients = jax.vmap(partial(value_and_grad, network, likelihood))(positions, rows)
        for chain in (0, 1):
            expected = by_kernel(network, likelihood, positions[chain], folds[chain])
            assert_same_bits((values[chain], gradients[chain]), expected)


class TestNumbersThatAreNotFinite:
    """They come out as they went in, and padding does not count."""

    network = make_network(LaplaceWithoutHead(), (4, 4), "relu")
    position = make_positions(network)

    def rows(self, weights=(1.0,)):
        return make_rows(LaplaceWithoutHead(), 50, weights=weights)

    def test_nan_among_the_weights_is_nan(self, kernel):
        value, gradient = by_kernel(self.network, LaplaceWithoutHead(), self.position.at[3].set(jnp.nan), self.rows())
        assert np.isnan(value)
        assert np.isnan(gradient).any()

    @pytest.mark.parametrize("weights", [(1.0,), (0.0,)], ids=["that counts", "of weight zero"])
    def test_nan_in_a_row_is_nan(self, kernel, weights):
        rows = self.rows(weights)
        rows = PaddedRows(x=rows.x.at[0, 7].set(jnp.nan), y=rows.y, weight=rows.weight, count=rows.count)
        value, gradient = by_kernel(self.network, LaplaceWithoutHead(), self.position, rows)
        assert np.isnan([value, value_by_kernel(self.network, LaplaceWithoutHead(), self.position, rows)]).all()
        assert np.isnan(gradient).any()

    def test_nan_in_padding_does_not_count(self, kernel):
        rows = self.rows()
        padded = PaddedRows(
            x=rows.x.at[:, 50:].set(jnp.nan), y=rows.y.at[50:].set(jnp.nan), weight=rows.weight, count=rows.count
        )
        assert rows.y.shape[0] > 50
        expected = by_kernel(self.network, LaplaceWithoutHead(), self.position, rows)
        assert_same_bits(by_kernel(self.network, LaplaceWithoutHead(), self.position, padded), expected)

    def test_no_rows_are_zero(self, kernel):
        rows = make_rows(LaplaceWithoutHead(), 0)
        value, gradient = by_kernel(self.network, LaplaceWithoutHead(), self.position, rows)
        assert float(value) == 0.0
        assert not np.asarray(gradient).any()


class TestUse:
    """Where the kernel computes, and what a run says of it."""

    network = runs.NETWORK
    options = (
        ("likelihood", LaplaceWithoutHead()),
        ("sampler", Mile(warmup_steps=60, sampling_steps=40, n_draws=20)),
        ("training", Training(max_epochs=5)),
        ("n_chains", 2),
    )

    def test_networks_of_the_kernel_use_it_and_others_do_not(self):
        likelihood = LaplaceWithoutHead()
        rows, position = make_rows(likelihood, 20), make_positions(self.network)
        assert uses_kernel(partial(value_and_grad, self.network, likelihood), position, rows)
        with jax.enable_x64(True):
            assert not uses_kernel(
                partial(value_and_grad, self.network, likelihood), position.astype(jnp.float64), rows
            )

    def test_the_calls_of_a_head_are_refused(self):
        rows, position = make_rows(LaplaceWithoutHead(), 20), make_positions(self.network)
        spec = native.specify(self.network, LaplaceWithoutHead(), jnp.float32, rows)
        assert not spec.has_head
        data = native.Data(rows.x, rows.y, rows.weight, rows.count)
        with pytest.raises(jax.errors.JaxRuntimeError, match="does not have the head"):
            jax.block_until_ready(native.value(spec, position, data))

    def test_a_whole_fit_uses_it_and_says_so(self, tmp_path, monkeypatch):
        traced, original = [], native.value_and_grad_of_outputs
        counted = lambda *arguments: traced.append(arguments) or original(*arguments)  # noqa: E731
        monkeypatch.setattr(native, "value_and_grad_of_outputs", counted)
        fit = runs.begin(tmp_path / "whole.run", **dict(self.options))
        assert np.isfinite(fit.chains.draws).all()
        assert traced
        assert read_manifest(tmp_path / "whole.run").fingerprint["path"].startswith(native.kernel_name())

    def test_a_run_that_xla_began_is_refused(self, tmp_path):
        described = _platform.fingerprint
        as_before = lambda **kind: described(**(kind | {"is_native": False}))  # noqa: E731
        patch = mock.patch("mile.fitting.job.fingerprint", as_before)
        with patch, runs.interrupted("phase I", 1), pytest.raises(KeyboardInterrupt):
            runs.begin(tmp_path / "older.run", **dict(self.options))
        with pytest.raises(mile.RunMismatchError, match=r"^fingerprint\.path differs.*'?xla'?.*force=True"):
            runs.begin(tmp_path / "older.run", **dict(self.options))
