"""Every prior runs in the native step: there it is what JAX computes, and costs no chain its bits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from native_steps import XlaTarget, chain_states, many_steps
from perceptrons import close, make_posterior
from targets import assert_same_bits

from mile import FanIn, Gaussian, Hierarchical, Laplace, Normal, PerLayer, StudentT, _registry, native
from mile.posterior import Posterior
from mile.priors import Accelerated
from mile.samplers import _mclmc

pytestmark = pytest.mark.skipif(native.kernel_name() == "xla", reason="the native kernel was not built")
UNLIMITED = 1 << 20
PRIORS = {
    "normal": Normal(scale=0.8),
    "laplace": Laplace(scale=0.7),
    "student t": StudentT(df=2.5, scale=0.6),
    "fan-in": FanIn(),
    "fan-in laplace": FanIn(family=Laplace(scale=0.5)),
    "per layer student t": PerLayer(scales=(0.5, 2.0, 0.7), family=StudentT(scale=0.8)),
    "hierarchical by layer": Hierarchical(groups="layer", scale=0.5, bias=2.0),
    "hierarchical by unit": Hierarchical(groups="unit", degrees=3.0, scale=0.5),
    "hierarchical by input": Hierarchical(groups="input", degrees=0.7),
}
every_prior = pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)


def with_prior(prior, count=16, temperature=1.0):
    """Return a posterior whose layers fill whole vectors of the kernel, parts of one, and several."""
    known = make_posterior(Gaussian(), count, 5, hidden=(33, 4))
    bound = prior.bind(known.network).tempered(temperature)
    return Posterior(rows=known.rows, network=known.network, likelihood=known.likelihood, prior=bound)


def from_anywhere(posterior, n_chains=3):
    """Return keys, states and step sizes; positions have zeros, and numbers of every size."""
    keys, states, step_sizes = chain_states(posterior, n_chains)
    sizes = jnp.asarray(np.random.default_rng(5).choice([0.0, 0.01, 1.0, 3.0], states.position.shape), jnp.float32)
    return keys, states._replace(position=states.position * sizes), step_sizes


def test_every_registered_prior_is_among_the_cases():
    registered = {kind for kind in _registry.prior.classes.values() if kind.__module__.startswith("mile.")}
    assert {type(prior) for prior in PRIORS.values()} == registered


def in_double_precision(prior, position):
    with jax.enable_x64(True):
        return jax.jit(jax.value_and_grad(prior.log_prob))(jnp.asarray(np.asarray(position, np.float64)))


def of_the_step(prior, temperature=1.0):
    """Return the bound prior, and states with its value and slope; without rows a posterior is its prior."""
    posterior = with_prior(prior, 0, temperature)
    states, info = many_steps(posterior, *from_anywhere(posterior))
    assert info.finite.all()
    return posterior.prior, states


@every_prior
class TestPrior:
    def test_of_the_step_has_the_value_and_slope_of_double_precision(self, kernel, prior):
        bound, states = of_the_step(prior)
        for position, value, gradient in zip(states.position, states.logdensity, states.gradient, strict=True):
            close((value, gradient), in_double_precision(bound, position))

    def test_of_a_position_that_is_not_a_number_is_refused(self, prior):
        posterior = with_prior(prior, 0)
        keys, states, step_sizes = from_anywhere(posterior)
        # A weight of the first layer, a bias there, the last bias.
        position = states.position.at[jnp.arange(3), jnp.array([0, 170, -1])].set(jnp.nan)
        assert not many_steps(posterior, keys, states._replace(position=position), step_sizes)[1].finite.any()


# Families whose sums and slopes are computed in different ways; the rest of a step is the same for all.
@pytest.mark.parametrize("name", ["student t", "hierarchical by unit"])
class TestStep:
    def test_leads_to_the_step_in_jax(self, name):
        posterior = with_prior(PRIORS[name])
        keys, states, step_sizes = from_anywhere(posterior)
        ours, info = many_steps(posterior, keys, states, step_sizes)
        theirs, expected = by_jax(posterior, keys, states, step_sizes)
        assert info.finite.all()
        close(ours, theirs)
        rounding = 1e-6 * np.abs(theirs.logdensity).max()
        np.testing.assert_allclose(info.energy_change, expected.energy_change, rtol=1e-5, atol=rounding)

    def test_leaves_every_chain_its_bits_among_others_and_on_any_threads(self, helpers, name):
        posterior = with_prior(PRIORS[name])
        arguments = from_anywhere(posterior)
        expected = many_steps(posterior, *arguments)
        for n_helpers, n_chains in ((0, 3), (0, 1), (UNLIMITED, 1)):
            helpers(n_helpers)
            few, expected_few = jax.tree.map(lambda leaf, n=n_chains: leaf[-n:], (arguments, expected))
            assert_same_bits(many_steps(posterior, *few), expected_few)


@jax.jit
def by_jax(posterior, keys, states, step_sizes):
    target = XlaTarget(posterior)
    return jax.vmap(lambda key, state, size: _mclmc._step(key, state, target, size, jnp.float32(2.0)))(
        keys, states, step_sizes
    )


def test_a_power_of_it_has_the_value_and_slope_of_double_precision():
    for groups in ("layer", "unit"):
        bound, states = of_the_step(Hierarchical(groups=groups), temperature=0.3)
        expected = in_double_precision(bound, states.position[0])
        close((states.logdensity[0], states.gradient[0]), expected)


def test_one_scale_for_all_and_the_same_for_each_agree():
    one, each = (of_the_step(prior)[1] for prior in (Normal(scale=0.5), PerLayer(scales=(0.5, 0.5, 0.5))))
    close(one, each, 1e-6)


def test_a_prior_of_the_users_own_is_left_to_jax():
    class Own(StudentT):
        """May have another density."""

    for prior in (Own(), PerLayer(scales=(1.0, 1.0, 1.0), family=Laplace())):
        bound = prior.bind(with_prior(Normal()).network)
        assert isinstance(bound, Accelerated)
        assert (bound.native_form() is None) == isinstance(prior, Own)
