"""Parts of a posterior: they add up to the whole, in value and gradient, on both compute paths."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mile import MLP, Categorical, Gaussian, Normal, _registry, native
from mile.native import _ops
from mile.padded_rows import pad_rows
from mile.posterior import Posterior
from mile.priors import choose_prior

NETWORKS = {
    "regression": (MLP(n_inputs=3, hidden=(4,)), Gaussian()),
    "3 classes": (MLP(n_inputs=3, hidden=(4,), n_outputs=3), Categorical(3)),
}


@pytest.fixture(scope="module", params=["native", "xla"])
def path(request):
    """Run the tests in single precision by each path."""
    if request.param == "native":
        if native.kernel_name() == "xla":
            pytest.skip("the native kernel was not built")
        yield request.param
        return
    jax.clear_caches()  # compiled programs have chosen their path
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_ops, "library", lambda: None)
        yield request.param
    jax.clear_caches()


def build(name, n_rows, prior=None, dtype=np.float32):
    network, likelihood = NETWORKS[name]
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n_rows, 3)).astype(dtype)
    is_regression = isinstance(likelihood, Gaussian)
    y = rng.standard_normal(n_rows).astype(dtype) if is_regression else rng.integers(3, size=n_rows).astype(np.int32)
    prior = (prior or Normal(scale=0.5)).bind(network)
    return Posterior(rows=pad_rows(x, y), network=network, likelihood=likelihood, prior=prior)


def position_of(posterior, dtype=np.float32):
    return jnp.asarray(0.7 * np.random.default_rng(1).standard_normal(posterior.dimension).astype(dtype))


@jax.jit
def whole(posterior, position):
    return posterior.value_and_grad(position)


def all_parts(posterior, size, position):
    """Return values and gradients of all parts, the index traced as a sampler has it."""
    each = jax.jit(jax.vmap(lambda index: posterior.part(index, size).value_and_grad(position)))
    return each(jnp.arange(posterior.n_parts(size)))


class TestSum:
    # Slots are 112: sizes that divide it, that leave a rest, that are all of it, that are more.
    @pytest.mark.parametrize("size", [1, 16, 30, 56, 100, 112, 5_000])
    @pytest.mark.parametrize("name", NETWORKS)
    def test_of_values_and_gradients_is_the_whole(self, path, name, size):
        posterior = build(name, 100)
        position = position_of(posterior)
        values, gradients = all_parts(posterior, size, position)
        value, gradient = whole(posterior, position)
        assert float(values.sum()) == pytest.approx(float(value), rel=1e-5)
        assert np.linalg.norm(gradients.sum(axis=0) - gradient) < 1e-5 * np.linalg.norm(gradient)

    @pytest.mark.parametrize("name", [name for name in _registry.prior if name != "per_layer"])
    def test_is_exact_in_double_precision(self, name):
        prior = choose_prior(name, 0.5)
        with jax.enable_x64(True):
            posterior = build("regression", 50, prior, np.float64)
            position = position_of(posterior, np.float64)
            values, gradients = all_parts(posterior, 20, position)
            value, gradient = whole(posterior, position)
            assert gradients.dtype == jnp.float64
            np.testing.assert_allclose(values.sum(), value, rtol=1e-12)
            np.testing.assert_allclose(gradients.sum(axis=0), gradient, rtol=1e-10)

    def test_holds_for_a_tempered_posterior(self, path):
        posterior = build("3 classes", 100).tempered(0.5)
        position = position_of(posterior)
        values, _ = all_parts(posterior, 30, position)
        assert float(values.sum()) == pytest.approx(float(whole(posterior, position)[0]), rel=1e-5)


@pytest.mark.parametrize(("size", "expected"), [(1, 112), (30, 4), (56, 2), (111, 2), (112, 1), (113, 1)])
def test_number_of_parts_is_that_of_the_slots(size, expected):
    assert build("regression", 100).n_parts(size) == expected


def test_each_part_has_its_own_rows_and_its_share_of_the_prior(path):
    """The last of four parts of 30 starts at slot 82: eight of its rows are those of the part before."""
    posterior, n_rows = build("regression", 100), 100
    position = position_of(posterior)
    outputs = posterior.network.apply(position, posterior.rows.x)
    per_row = np.asarray(posterior.likelihood.log_prob(outputs, posterior.rows.y))[:n_rows]
    share = float(posterior.prior.log_prob(position)) / 4
    for index in range(4):
        expected = per_row[30 * index : 30 * (index + 1)].sum() + share
        assert float(posterior.part(index, 30).logdensity(position)) == pytest.approx(expected, rel=1e-5)


def test_gradient_of_a_part_is_that_of_its_value():
    with jax.enable_x64(True):
        posterior = build("regression", 100, dtype=np.float64)
        position = position_of(posterior, np.float64)
        part = posterior.part(1, 30)
        value, gradient = jax.jit(part.value_and_grad)(position)
        assert float(part.logdensity(position)) == pytest.approx(float(value), rel=1e-13)
        direction = np.random.default_rng(2).standard_normal(posterior.dimension)
        ahead, behind = (float(part.logdensity(position + shift * direction)) for shift in (1e-5, -1e-5))
        assert (ahead - behind) / 2e-5 == pytest.approx(float(gradient @ direction), rel=1e-7)
