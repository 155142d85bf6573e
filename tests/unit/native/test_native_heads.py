"""The native kernel's heads of families beyond the normal one: values, slopes, steps and bits."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from native_steps import XlaTarget, chain_states, many_steps
from perceptrons import close, make_network, make_positions
from targets import assert_same_bits

from mile import (
    Gaussian,
    NegativeBinomial,
    NormalMixture,
    Ordinal,
    Poisson,
    StudentTNoise,
    ZeroInflatedNegativeBinomial,
    ZeroInflatedPoisson,
    native,
)
from mile.fitting.job import identify
from mile.networks import MLP
from mile.padded_rows import PaddedRows, pad_rows
from mile.posterior import Posterior, log_likelihood
from mile.priors import Normal
from mile.samplers import _mclmc

pytestmark = pytest.mark.skipif(native.kernel_name() == "xla", reason="the native kernel was not built")
N_ROWS = 130  # one more vector than whole tiles have, and an incomplete one
WEIGHTS = np.array([0.0, 0.5, 1.0, 2.0], np.float32)


def counts(mean, dispersion, n=N_ROWS):
    rng = np.random.default_rng(1)
    return rng.poisson(rng.gamma(1.0 / dispersion, mean * dispersion, n)).astype(np.float32)


def real_numbers():
    return (2.0 * np.random.default_rng(2).standard_t(2.0, N_ROWS)).astype(np.float32)


def grades(n):
    return np.random.default_rng(3).integers(0, n, N_ROWS).astype(np.float32)


def fitted(family, y):
    return family.fitted(y), y


CASES = {
    "mixture": (NormalMixture(floor=0.01), real_numbers()),
    "mixture of two": (NormalMixture(n_parts=2), real_numbers()),
    "mixture of eight": (NormalMixture(n_parts=8, floor=1e-6), real_numbers()),
    "student_t": (StudentTNoise(floor=0.1), real_numbers()),
    "student_t, tiny floor": (StudentTNoise(floor=1e-6), real_numbers()),
    "poisson": fitted(Poisson(), counts(0.3, 0.5)),
    "poisson, many": fitted(Poisson(), counts(300.0, 0.5)),
    "negative_binomial": fitted(NegativeBinomial(), counts(0.3, 0.5)),
    "negative_binomial, wide": fitted(NegativeBinomial(), counts(3.0, 20.0)),
    "negative_binomial, narrow": fitted(NegativeBinomial(), counts(50.0, 1e-3)),
    "negative_binomial, many": fitted(NegativeBinomial(), counts(1e5, 0.5)),
    "ordinal of two": (Ordinal(grades=(0.0, 1.0), cuts=(0.3,)), grades(2)),
    "ordinal, near cuts": (Ordinal(grades=(0.0, 1.0, 2.0), cuts=(-0.5, -0.49)), grades(3)),
    "ordinal": (Ordinal(grades=tuple(map(float, range(7)))), grades(7)),
}
# Relative to the norm: where a tiny difference of large numbers counts, float32 itself is no better.
TOLERANCE = 1e-5
EACH = ("mixture", "student_t", "poisson", "negative_binomial", "ordinal")
VANISHED = 1e-20  # beside weights of order one; of double precision such slopes may be zero
every_case = pytest.mark.parametrize("name", CASES)
one_of_each = pytest.mark.parametrize("name", EACH)


@jax.jit
def by_kernel(posterior, position):
    spec = native.specify(posterior.network, posterior.likelihood, position.dtype, posterior.rows)
    rows = posterior.rows
    data = native.Data(rows.x, rows.y, rows.weight, rows.count)
    return *native.value_and_grad(spec, position, data), native.value(spec, position, data)


def with_outputs(likelihood, y, outputs):
    """Return a posterior and a position whose outputs are given: one input for each row, and no hidden layer.

    The weights' gradient is then the slope of each output of each row.
    """
    network = MLP(n_inputs=len(y), hidden=(), n_outputs=likelihood.n_outputs)
    rows = pad_rows(np.eye(len(y), dtype=np.float32), y)
    weight = rows.weight.at[: len(y)].set(WEIGHTS[np.arange(len(y)) % len(WEIGHTS)])
    rows = PaddedRows(x=rows.x, y=rows.y, weight=weight, count=rows.count)
    position = jnp.concatenate([jnp.asarray(outputs, jnp.float32).T.ravel(), jnp.zeros(likelihood.n_outputs)])
    return Posterior(rows=rows, network=network, likelihood=likelihood, prior=Normal()), position


def slopes_of(gradient, likelihood, y):
    return np.asarray(gradient)[: len(y) * likelihood.n_outputs].reshape(len(y), -1).T


def in_double(likelihood, outputs, y):
    """Return weighted log densities and their slopes."""
    weight = WEIGHTS[np.arange(len(y)) % len(WEIGHTS)]
    with jax.enable_x64(True):
        outputs, y = (jnp.asarray(np.asarray(array), jnp.float64) for array in (outputs, y))
        values, pull_back = jax.vjp(lambda outputs: likelihood.log_prob(outputs, y) * weight, outputs)
        return np.asarray(values), np.asarray(pull_back(jnp.ones(len(y)))[0])


def random_outputs(likelihood, scale):
    shape = (likelihood.n_outputs, N_ROWS)
    return (scale * np.random.default_rng(4).standard_normal(shape)).astype(np.float32)


def network_posterior(name, hidden=(5,), activation="gelu", n_rows=N_ROWS):
    likelihood, y = CASES[name]
    x = np.random.default_rng(5).standard_normal((n_rows, 3)).astype(np.float32)
    network = make_network(likelihood, hidden, activation)
    rows = pad_rows(x, np.resize(y, n_rows))
    return Posterior(rows=rows, network=network, likelihood=likelihood, prior=Normal(scale=0.8))


@every_case
def test_values_and_slopes_are_those_of_double_precision(name, kernel):
    likelihood, y = CASES[name]
    for scale in (1.0, 6.0):
        outputs = random_outputs(likelihood, scale)
        posterior, position = with_outputs(likelihood, y, outputs)
        value, gradient, alone = by_kernel(posterior, position)
        values, slopes = in_double(likelihood, outputs, y)
        for found in (value, alone):
            assert abs(float(found) - values.sum()) <= TOLERANCE * np.abs(values).sum()
        found = slopes_of(gradient, likelihood, y)
        for output in range(likelihood.n_outputs):
            close(found[output], slopes[output], TOLERANCE)


@every_case
def test_outputs_far_out_give_finite_values_and_the_slopes_of_double_precision(name, kernel):
    likelihood, y = CASES[name]
    for reach in (-1e3, -50.0, 50.0, 1e3):
        outputs = np.zeros((likelihood.n_outputs, N_ROWS), np.float32)
        outputs[np.arange(N_ROWS) % likelihood.n_outputs, np.arange(N_ROWS)] = reach
        posterior, position = with_outputs(likelihood, y, outputs)
        value, gradient, _ = by_kernel(posterior, position)
        values, slopes = in_double(likelihood, outputs, y)
        assert abs(float(value) - values.sum()) <= TOLERANCE * np.abs(values).sum()
        away = np.linalg.norm(slopes_of(gradient, likelihood, y) - slopes)
        assert away <= TOLERANCE * np.linalg.norm(slopes) + VANISHED


@one_of_each
def test_a_step_is_that_of_jax(name, kernel):
    posterior = network_posterior(name, hidden=(5, 20))
    chains, target = chain_states(posterior, 2), XlaTarget(posterior)
    step = jax.jit(jax.vmap(lambda key, state, size: _mclmc._step(key, state, target, size, jnp.float32(2.0))))
    found, info = many_steps(posterior, *chains)
    assert info.finite.all()
    close(found, step(*chains)[0])


@one_of_each
def test_bits_are_the_same_for_any_chains_and_threads(name, kernel, helpers):
    posterior = network_posterior(name, (16, 16), n_rows=1_000)
    positions = make_positions(posterior.network, 3)
    alone = [by_kernel(posterior, position) for position in positions]
    together = jax.jit(jax.vmap(lambda position: by_kernel(posterior, position)))
    for n_helpers in (0, 100):
        helpers(n_helpers)
        found = together(positions)
        for chain in range(3):
            assert_same_bits(jax.tree.map(lambda leaf, chain=chain: leaf[chain], found), alone[chain])


@one_of_each
def test_nan_is_nan(name, kernel):
    likelihood, y = CASES[name]
    outputs = random_outputs(likelihood, 1.0)
    outputs[:, 2] = np.nan
    posterior, position = with_outputs(likelihood, y, outputs)
    # An input of zero times NaN is NaN as well: of all rows.
    assert np.isnan(by_kernel(posterior, position)[0])
    whole = network_posterior(name)
    value, gradient, _ = by_kernel(whole, make_positions(whole.network).at[0].set(jnp.nan))
    assert np.isnan(value)
    assert np.isnan(gradient).any()


@one_of_each
def test_the_derivative_of_a_log_likelihood_is_the_head_s(name):
    posterior = network_posterior(name)
    function = partial(log_likelihood, posterior.network, posterior.likelihood)
    program = jax.jit(jax.grad(function)).lower(make_positions(posterior.network), posterior.rows).as_text()
    assert "mile_value_and_grad" in program
    assert "mile_forward" not in program


def test_what_a_head_cannot_compute_is_left_to_jax():
    network = make_network(Poisson())
    assert native.specify(network, Poisson(), jnp.float32).has_head
    assert not native.specify(network, Poisson(center=0.0, spread=1.0, below=70.0), jnp.float32).has_head
    assert NegativeBinomial(dispersion=1e9).native_head() is None
    assert NegativeBinomial(least=1e-13).native_head() is None
    for other in (ZeroInflatedPoisson(), ZeroInflatedNegativeBinomial()):
        assert other.native_head() is None


def test_a_run_of_these_families_says_which_head_computed_it():
    network = make_network(StudentTNoise())
    assert identify(network, StudentTNoise())["path"].endswith("/student_t")
    path = identify(network, Gaussian())["path"]
    assert path.startswith(native.kernel_name())
    assert path.count("/") == 1


def test_outputs_that_do_not_fit_the_head_are_refused():
    posterior = network_posterior("mixture")
    spec = native.specify(posterior.network, posterior.likelihood, jnp.float32)
    rows = posterior.rows
    data = native.Data(rows.x, rows.y, rows.weight, rows.count)
    position = make_positions(posterior.network)
    for wrong in (spec._replace(numbers=(0.0,)), spec._replace(head=5), spec._replace(head=7)):
        with pytest.raises(jax.errors.JaxRuntimeError, match="outputs do not fit the head"):
            jax.block_until_ready(native.value(wrong, position, data))
