"""The target: its value against plain sums, its gradient against finite differences, its padding, its programs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import log_softmax
from targets import Box, IllConditioned, StandardNormal

from mile import MLP, Categorical, FanIn, Gaussian, Laplace, Normal, PerLayer, StudentT, native
from mile.native import _ops
from mile.networks.mlp import ACTIVATIONS
from mile.padded_rows import PaddedRows, pad_rows, row_bucket
from mile.posterior import FunctionTarget, Posterior, _plain, value_by_xla

COUNTS = [0, 1, 15, 16, 17, 100]
# Each with the family and the scales of weights and biases of both layers of a network 3-4-n.
PRIORS = {
    "normal": (Normal(scale=0.5), stats.norm, (0.5, 0.5, 0.5, 0.5)),
    "laplace": (Laplace(scale=0.5), stats.laplace, (0.5, 0.5, 0.5, 0.5)),
    "student t": (StudentT(df=4.0, scale=0.5), stats.t(4.0), (0.5, 0.5, 0.5, 0.5)),
    "fan-in": (FanIn(bias=0.3), stats.norm, (np.sqrt(2 / 3), 0.3, np.sqrt(2 / 4), 0.3)),
    "fan-in student t": (FanIn(family=StudentT(), gain=1.0), stats.t(3.0), (np.sqrt(1 / 3), 1.0, np.sqrt(1 / 4), 1.0)),
    "per layer": (PerLayer(scales=(0.2, 3.0)), stats.norm, (0.2, 0.2, 3.0, 3.0)),
    "per layer laplace": (PerLayer(scales=(0.2, 3.0), family=Laplace()), stats.laplace, (0.2, 0.2, 3.0, 3.0)),
}
TEMPERATURES = [0.25, 1.0, 2.5]
LIKELIHOODS = {"regression": Gaussian(), "3 classes": Categorical(3)}


@pytest.fixture(scope="module", params=["native", "xla"])
def path(request):
    """Run the tests in single precision by each path; in double precision there is one."""
    if request.param == "native":
        if native.kernel_name() == "xla":
            pytest.skip("the native kernel was not built")
        yield request.param
        return
    # Compiled programs have chosen their path.
    jax.clear_caches()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_ops, "library", lambda: None)
        yield request.param
    jax.clear_caches()


on_both_paths = pytest.mark.usefixtures("path")


def table(likelihood, count, dtype=np.float64, n_features=3, seed=0):
    """Return features and a response that fits the likelihood."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, n_features)).astype(dtype)
    if isinstance(likelihood, Categorical):
        return x, rng.integers(likelihood.n_classes, size=count).astype(np.int32)
    return x, rng.standard_normal(count).astype(dtype)


def build(likelihood, rows, hidden=(4,), activation="tanh", scale=1.0, prior=None):
    network = MLP(n_inputs=3, hidden=hidden, n_outputs=likelihood.n_outputs, activation=activation)
    prior = (prior or Normal(scale=scale)).bind(network)
    return Posterior(rows=rows, network=network, likelihood=likelihood, prior=prior)


def random_position(posterior, seed=1):
    return 0.7 * np.random.default_rng(seed).standard_normal(posterior.dimension)


def plain_logdensity(posterior, position, x, y):
    """Evaluate a tanh network and its posterior with nothing but float64 numpy and scipy."""
    return plain_likelihood(posterior, position, x, y) - 0.5 * np.sum(np.square(position / posterior.prior.scale))


def plain_prior(posterior, position, family, scales):
    """Return the log density of the prior relative to that of zero, from scipy's family and each part's scale."""
    sizes = [size for fan_in, fan_out in posterior.network.layer_sizes for size in (fan_in * fan_out, fan_out)]
    return np.sum(family.logpdf(position / np.repeat(scales, sizes)) - family.logpdf(0.0))


def plain_likelihood(posterior, position, x, y):
    hidden, start = x.astype(float), 0
    for index, (fan_in, fan_out) in enumerate(posterior.network.layer_sizes):
        weights = position[start : start + fan_in * fan_out].reshape(fan_in, fan_out)
        start += fan_in * fan_out
        hidden = (np.tanh(hidden) if index else hidden) @ weights + position[start : start + fan_out]
        start += fan_out
    if isinstance(posterior.likelihood, Categorical):
        rows = log_softmax(hidden, axis=1)[np.arange(len(y)), y]
    else:
        rows = stats.norm.logpdf(y, hidden[:, 0], np.exp(hidden[:, 1]))
    return rows.sum()


@jax.jit
def evaluate(target, position):
    return target.value_and_grad(position)


def check_gradient(target, position, step=1e-5):
    """Compare with central differences, good to about 1e-9 in float64; the error is relative to the gradient's norm."""
    shifts = step * np.eye(len(position))
    points = jnp.asarray(np.concatenate([position[None], position + shifts, position - shifts]))
    values = np.asarray(jax.jit(jax.vmap(target.logdensity))(points))
    _, up, down = np.split(values, [1, 1 + len(position)])
    expected = (up - down) / (2 * step)
    value, gradient = evaluate(target, jnp.asarray(position))
    assert gradient.dtype == jnp.float64
    assert float(value) == pytest.approx(values[0], rel=1e-12)
    assert np.linalg.norm(gradient - expected) < 1e-6 * np.linalg.norm(expected)


class TestGradient:
    """A18."""

    @pytest.mark.parametrize("likelihood", LIKELIHOODS.values(), ids=LIKELIHOODS)
    @pytest.mark.parametrize("hidden", [(), (6,), (5, 4, 3)], ids=str)
    def test_equals_finite_differences_at_every_depth(self, likelihood, hidden):
        with jax.enable_x64(True):
            posterior = build(likelihood, pad_rows(*table(likelihood, 21)), hidden)
            check_gradient(posterior, random_position(posterior))

    @pytest.mark.parametrize("activation", ACTIVATIONS)
    def test_equals_finite_differences_with_every_activation(self, activation):
        with jax.enable_x64(True):
            posterior = build(Gaussian(), pad_rows(*table(Gaussian(), 21)), (5, 4), activation)
            check_gradient(posterior, random_position(posterior))

    @pytest.mark.parametrize("scale", [0.1, 3.0])
    def test_equals_finite_differences_for_the_prior_alone(self, scale):
        with jax.enable_x64(True):
            posterior = build(Gaussian(), pad_rows(*table(Gaussian(), 0)), scale=scale)
            position = random_position(posterior)
            check_gradient(posterior, position)
            _, gradient = evaluate(posterior, jnp.asarray(position))
            np.testing.assert_allclose(gradient, -position / scale**2, rtol=1e-12)

    @pytest.mark.parametrize(
        "function",
        [StandardNormal(), Box(10.0), lambda x: -jnp.sum(jnp.cosh(x)) + x[0] * x[1]],
        ids=["normal", "box", "cosh"],
    )
    def test_equals_finite_differences_for_any_function(self, function):
        with jax.enable_x64(True):
            check_gradient(FunctionTarget(function), np.random.default_rng(2).standard_normal(6))

    def test_equals_finite_differences_for_a_correlated_normal(self):
        with jax.enable_x64(True):
            target = FunctionTarget(IllConditioned(6, 100.0, np.float64))
            check_gradient(target, np.random.default_rng(2).standard_normal(6))


class TestValue:
    @pytest.mark.parametrize("likelihood", LIKELIHOODS.values(), ids=LIKELIHOODS)
    @pytest.mark.parametrize("count", COUNTS)
    def test_is_the_plain_sum_over_rows_and_parameters(self, likelihood, count):
        x, y = table(likelihood, count)
        with jax.enable_x64(True):
            posterior = build(likelihood, pad_rows(x, y), scale=0.5)
            position = random_position(posterior)
            expected = plain_logdensity(posterior, position, x, y)
            # Up to the constant of the prior.
            value, _ = evaluate(posterior, jnp.asarray(position))
            assert float(value) == pytest.approx(expected, rel=1e-11)

    def test_empty_slots_have_a_response_that_the_likelihood_allows(self):
        rows = pad_rows(np.ones((3, 2)), np.array([2.0, 5.0, 7.0]))
        assert rows.y.shape == (16,)
        assert set(np.asarray(rows.y)) == {2.0, 5.0, 7.0}
        assert np.asarray(rows.weight)[3:].tolist() == [0.0] * 13

    def test_is_precise_in_float32(self, path):
        x, y = table(Gaussian(), 100, np.float32)
        posterior = build(Gaussian(), pad_rows(x, y))
        position = random_position(posterior).astype(np.float32)
        value, _ = evaluate(posterior, jnp.asarray(position))
        assert value.dtype == jnp.float32
        expected = plain_logdensity(posterior, position.astype(float), x.astype(float), y.astype(float))
        assert float(value) == pytest.approx(expected, rel=1e-5)
        assert ("mile_" in evaluate.lower(posterior, jnp.asarray(position)).as_text()) == (path == "native")

    @pytest.mark.parametrize("temperature", TEMPERATURES)
    @pytest.mark.parametrize("likelihood", LIKELIHOODS.values(), ids=LIKELIHOODS)
    @pytest.mark.parametrize("prior", PRIORS)
    def test_of_every_prior_and_temperature_is_the_plain_one(self, prior, likelihood, temperature):
        x, y = table(likelihood, 21)
        prior, family, scales = PRIORS[prior]
        with jax.enable_x64(True):
            posterior = build(likelihood, pad_rows(x, y), prior=prior).tempered(temperature)
            position = random_position(posterior)
            plain = plain_likelihood(posterior, position, x, y) + plain_prior(posterior, position, family, scales)
            value, _ = evaluate(posterior, jnp.asarray(position))
            assert float(value) == pytest.approx(plain / temperature, rel=1e-11)
            check_gradient(posterior, position)

    @pytest.mark.parametrize("temperature", TEMPERATURES)
    @pytest.mark.parametrize("prior", PRIORS)
    def test_of_every_prior_and_temperature_is_precise_in_float32(self, path, prior, temperature):
        x, y = table(Gaussian(), 100, np.float32)
        prior, family, scales = PRIORS[prior]
        posterior = build(Gaussian(), pad_rows(x, y), prior=prior).tempered(temperature)
        position = random_position(posterior).astype(np.float32)
        value, gradient = evaluate(posterior, jnp.asarray(position))
        assert value.dtype == gradient.dtype == jnp.float32
        wide = position.astype(float)
        plain = plain_likelihood(posterior, wide, x.astype(float), y.astype(float))
        plain += plain_prior(posterior, wide, family, scales)
        assert float(value) == pytest.approx(plain / temperature, rel=1e-5)
        assert ("mile_" in evaluate.lower(posterior, jnp.asarray(position)).as_text()) == (path == "native")
        with jax.enable_x64(True):
            rows = pad_rows(x.astype(float), y.astype(float))
            exact = build(Gaussian(), rows, prior=prior).tempered(temperature)
            expected = np.asarray(evaluate(exact, jnp.asarray(wide))[1])
        assert expected.dtype == np.float64
        assert np.linalg.norm(np.asarray(gradient) - expected) < 1e-5 * np.linalg.norm(expected)

    def test_at_temperature_one_is_the_same_object(self):
        posterior = build(Gaussian(), pad_rows(*table(Gaussian(), 20, np.float32)), prior=FanIn())
        assert posterior.tempered(1.0) is posterior

    @pytest.mark.parametrize("temperature", TEMPERATURES)
    @pytest.mark.parametrize("prior", PRIORS)
    def test_has_a_native_step_under_every_prior(self, path, prior, temperature):
        posterior = build(Gaussian(), pad_rows(*table(Gaussian(), 20, np.float32)), prior=PRIORS[prior][0])
        position = jnp.asarray(random_position(posterior), jnp.float32)
        step = posterior.tempered(temperature).native_step(jax.random.key(0), position)
        assert (step is not None) == (path == "native")

    def test_dimension_is_the_networks(self):
        posterior = build(Gaussian(), pad_rows(*table(Gaussian(), 3)))
        assert posterior.dimension == posterior.network.dimension == 3 * 4 + 4 + 4 * 2 + 2

    @on_both_paths
    @pytest.mark.parametrize("where", ["x", "y", "position"])
    def test_a_single_nan_makes_the_whole_log_density_nan(self, where):
        """A sum that skipped it would reward a region where the network breaks down."""
        x, y = table(Gaussian(), 20, np.float32)
        position = jnp.asarray(random_position(build(Gaussian(), pad_rows(x, y))), jnp.float32)
        if where == "x":
            x[7, 1] = np.nan
        elif where == "y":
            y[7] = np.nan
        else:
            position = position.at[3].set(jnp.nan)
        posterior = build(Gaussian(), pad_rows(x, y), activation="relu")
        value, gradient = evaluate(posterior, position)
        assert np.isnan(value)
        assert np.isnan(gradient).any()


@on_both_paths
class TestPadding:
    @pytest.mark.parametrize("likelihood", LIKELIHOODS.values(), ids=LIKELIHOODS)
    @pytest.mark.parametrize("count", COUNTS)
    def test_contributes_nothing(self, likelihood, count):
        x, y = table(likelihood, count, np.float32)
        padded = pad_rows(x, y)
        exact = PaddedRows(x=jnp.asarray(x.T), y=jnp.asarray(y), weight=jnp.ones(count), count=padded.count)
        # Whatever stands in the padding.
        disturbed = PaddedRows(
            x=padded.x.at[:, count:].set(7.0), y=padded.y.at[count:].set(2), weight=padded.weight, count=padded.count
        )
        position = jnp.asarray(random_position(build(likelihood, padded)), jnp.float32)
        expected = evaluate(build(likelihood, exact), position)
        for rows in (padded, disturbed):
            value, gradient = evaluate(build(likelihood, rows), position)
            np.testing.assert_allclose(value, expected[0], rtol=1e-6)
            np.testing.assert_allclose(gradient, expected[1], rtol=1e-6, atol=1e-6 * np.linalg.norm(expected[1]))

    @pytest.mark.parametrize("count", COUNTS)
    def test_real_rows_come_first_and_are_untouched(self, count):
        x, y = table(Gaussian(), count, np.float32)
        rows = pad_rows(x, y)
        assert rows.count == count
        assert rows.x.shape == (3, row_bucket(count))
        assert rows.y.shape == rows.weight.shape == (row_bucket(count),)
        np.testing.assert_array_equal(rows.x[:, :count], x.T)
        np.testing.assert_array_equal(rows.y[:count], y)
        np.testing.assert_array_equal(rows.weight, np.arange(row_bucket(count)) < count)

    def test_zero_rows_leave_the_prior(self):
        posterior = build(Gaussian(), pad_rows(*table(Gaussian(), 0, np.float32)), scale=2.0)
        position = jnp.asarray(random_position(posterior), jnp.float32)
        assert float(posterior.logdensity(position)) == pytest.approx(float(posterior.prior.log_prob(position)))

    @pytest.mark.parametrize(
        ("count", "bucket"), [(0, 16), (1, 16), (16, 16), (17, 32), (100, 112), (511, 512), (513, 544), (1_025, 1_088)]
    )
    def test_buckets_are_multiples_of_16_and_within_a_sixteenth(self, count, bucket):
        assert row_bucket(count) == bucket

    def test_buckets_hold_their_rows_with_little_waste(self):
        for count in range(1, 5_000):
            bucket = row_bucket(count)
            assert bucket % 16 == 0
            assert count <= bucket < count + max(16, count / 16 + 1)
            assert row_bucket(bucket) == bucket

    def test_a_mini_batch_takes_its_rows(self):
        x, y = table(Gaussian(), 20, np.float32)
        batch = pad_rows(x, y).take(jnp.array([3, 19, 20]))
        np.testing.assert_array_equal(batch.x[:, :2], x[[3, 19]].T)
        np.testing.assert_array_equal(batch.y[:2], y[[3, 19]])
        np.testing.assert_array_equal(batch.weight, [1.0, 1.0, 0.0])  # row 20 is padding


@on_both_paths
class TestPrograms:
    def test_data_are_leaves_and_the_configuration_is_static(self):
        rows = pad_rows(*table(Gaussian(), 20, np.float32))
        posterior = build(Gaussian(), rows)
        leaves, structure = jax.tree.flatten(posterior)
        assert len(leaves) == 4
        assert all(leaf is row for leaf, row in zip(leaves, jax.tree.leaves(rows), strict=True))
        rebuilt = jax.tree.unflatten(structure, leaves)
        assert (rebuilt.network, rebuilt.likelihood, rebuilt.prior) == (
            posterior.network,
            posterior.likelihood,
            posterior.prior,
        )
        hash(structure)  # what compiled programs are looked up by

    def test_data_of_one_bucket_share_a_program(self):
        traces = []

        @jax.jit
        def value(target, position):
            traces.append(None)
            return target.logdensity(position)

        def check(count, seed, **options):
            x, y = table(Gaussian(), count, np.float32, seed=seed)
            posterior = build(Gaussian(), pad_rows(x, y), **options)
            position = random_position(posterior)
            expected = plain_logdensity(posterior, position, x, y)
            assert float(value(posterior, jnp.asarray(position, jnp.float32))) == pytest.approx(expected, rel=1e-4)

        check(17, seed=0)
        for count in (18, 25, 32):  # other numbers and another number of rows, same bucket
            check(count, seed=count)
        assert len(traces) == 1
        assert value._cache_size() == 1
        check(33, seed=0)
        check(20, seed=0, scale=0.5)
        assert len(traces) == 3

    def test_equal_functions_are_equal_targets(self):
        assert FunctionTarget(StandardNormal()) == FunctionTarget(StandardNormal())
        assert hash(FunctionTarget(StandardNormal())) == hash(FunctionTarget(StandardNormal()))
        assert FunctionTarget(Box(1.0)) != FunctionTarget(Box(2.0))
        assert not jax.tree.leaves(FunctionTarget(StandardNormal()))


class TestBlocksOfRows:
    """The XLA path works on so many rows at a time that memory is bounded; here, on sixteen."""

    @pytest.mark.parametrize("likelihood", [Gaussian(), Categorical(3)])
    @pytest.mark.parametrize("count", [300, 333, 384])
    def test_sum_to_what_all_rows_give_at_once(self, likelihood, count, monkeypatch):
        rows = pad_rows(*table(likelihood, count, np.float32))
        whole = build(likelihood, rows)
        position = random_position(whole).astype(np.float32)
        network, (value, gradient) = whole.network, evaluate(whole, position)
        monkeypatch.setattr("mile.posterior._XLA_ROWS", 16)
        programs = []
        monkeypatch.setattr("mile.posterior._plain", counting(programs))
        in_blocks = jax.value_and_grad(lambda position: value_by_xla(network, likelihood, position, rows))(position)
        assert 16 in programs  # besides all rows at once, for their shape alone
        prior = jax.value_and_grad(whole.prior.log_prob)(position)
        np.testing.assert_allclose(in_blocks[0] + prior[0], value, rtol=1e-5)
        scale = np.abs(gradient).max()
        np.testing.assert_allclose(in_blocks[1] + prior[1], gradient, atol=1e-5 * scale)


def counting(sizes):
    """Return the plain likelihood, which also notes how many rows it is given."""

    def plain(network, likelihood, position, rows):
        sizes.append(rows.y.shape[0])
        return _plain(network, likelihood, position, rows)

    return plain
