"""Priors with unknown scales: the closed form is the integral over the scale, in density, draws and learned scales."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from mile import MLP, Hierarchical
from mile.networks import LENET5
from mile.networks._layers import Layer
from mile.priors import FlatPrior

NETWORK = MLP(n_inputs=5, hidden=(4, 3), n_outputs=2)
# Of each parameter the number of its group, by the layout alone; biases have none.
LAYOUT = [(5, 4), (4, 3), (3, 2)]
GROUPS = {
    "layer": [np.full(shape, place) for place, shape in enumerate(LAYOUT)],
    "unit": [np.tile(np.arange(m), (n, 1)) + start for (n, m), start in zip(LAYOUT, (0, 4, 7), strict=True)],
    "input": [np.repeat(np.arange(5)[:, None], 4, axis=1), np.full((4, 3), 5), np.full((3, 2), 6)],
}
every_grouping = pytest.mark.parametrize("groups", GROUPS)


def group_numbers(groups):
    parts = [np.concatenate([part.ravel(), np.full(part.shape[1], -1)]) for part in GROUPS[groups]]
    return np.concatenate(parts)


def exact_log_prob(prior, position):
    """Return the density with its constant by scipy's multivariate Student-t, group by group."""
    numbers = group_numbers(prior.groups)
    total = stats.norm(scale=prior.bias).logpdf(position[numbers < 0]).sum()
    for number in range(numbers.max() + 1):
        weights = position[numbers == number]
        shape = prior.scale**2 * np.eye(len(weights))
        total += stats.multivariate_t(shape=shape, df=prior.degrees).logpdf(weights)
    return total


def positions(count=2, size=1.5):
    return size * np.random.default_rng(0).standard_normal((count, NETWORK.dimension))


def log_prob(prior, position):
    with jax.enable_x64(True):
        return float(jax.jit(prior.log_prob)(jnp.asarray(position, jnp.float64)))


@every_grouping
class TestDensity:
    def prior(self, groups):
        return Hierarchical(groups=groups, degrees=3.0, scale=0.5, bias=2.0)

    def test_is_a_student_t_distribution_of_each_group(self, groups):
        prior, (one, other) = self.prior(groups), positions()
        bound = prior.bind(NETWORK)
        expected = exact_log_prob(prior, one) - exact_log_prob(prior, other)
        assert log_prob(bound, one) - log_prob(bound, other) == pytest.approx(expected, rel=1e-10)

    def test_has_the_slope_of_finite_differences(self, groups):
        bound, point = self.prior(groups).bind(NETWORK), positions()[0]
        with jax.enable_x64(True):
            gradient = jax.jit(jax.grad(bound.log_prob))(jnp.asarray(point))
            moved = jnp.asarray(point + 1e-6 * np.concatenate([np.eye(len(point)), -np.eye(len(point))]))
            ahead, behind = np.split(np.asarray(jax.jit(jax.vmap(bound.log_prob))(moved)), 2)
        np.testing.assert_allclose(gradient, (ahead - behind) / 2e-6, rtol=1e-6, atol=1e-8)

    def test_to_a_power_is_the_tempered_one(self, groups):
        bound, point = self.prior(groups).bind(NETWORK), positions()[0]
        for temperature in (0.25, 1.05):
            tempered = bound.tempered(temperature)
            assert log_prob(tempered, point) == pytest.approx(log_prob(bound, point) / temperature, rel=1e-12)

    def test_keeps_single_precision_and_is_static(self, groups):
        bound = self.prior(groups).bind(NETWORK)
        assert isinstance(bound, FlatPrior)
        assert bound == self.prior(groups).bind(NETWORK)
        assert hash(bound) == hash(self.prior(groups).bind(NETWORK))
        with jax.enable_x64(True):
            single = jax.ShapeDtypeStruct((NETWORK.dimension,), jnp.float32)
            assert jax.eval_shape(bound.log_prob, single).dtype == jnp.float32
        assert math.isnan(log_prob(bound, np.full(NETWORK.dimension, np.nan)))

    def test_is_that_of_the_draws(self, groups):
        """Levels of |w|, whose share of v is Beta-distributed; limit 5 standard errors each. False failure: 1e-4."""
        temperature = 0.5 if groups == "unit" else 1.0
        bound = self.prior(groups).bind(NETWORK).tempered(temperature)
        draw = jax.jit(jax.vmap(lambda key: bound.sample(key, NETWORK.dimension)))
        draws, numbers = np.asarray(draw(jax.random.split(jax.random.key(1), 4_000))), group_numbers(groups)
        for number in range(numbers.max() + 1):
            weights = draws[:, numbers == number]
            n, power = weights.shape[1], (3.0 + weights.shape[1]) / temperature
            share = np.square(weights).sum(axis=1) / (3.0 * 0.25 + np.square(weights).sum(axis=1))
            levels = stats.beta(n / 2, (power - n) / 2).cdf(share)
            assert stats.kstest(levels, "uniform").pvalue > 1e-6
            # All directions are equally likely, so each weight has the same mean square and no sign.
            assert np.abs(np.sign(weights).mean(axis=0)).max() < 5 / math.sqrt(4_000)
            assert abs((weights[:, 0] / np.linalg.norm(weights, axis=1)).std() * math.sqrt(n) - 1) < 5 / math.sqrt(
                4_000
            )
        np.testing.assert_allclose(draws[:, numbers < 0].std() / math.sqrt(temperature), 2.0, rtol=0.03)


def test_closed_form_is_the_integral_over_the_scale():
    prior = Hierarchical(degrees=2.5, scale=0.7)
    bound, numbers = prior.bind(NETWORK), group_numbers("layer")
    variance = stats.invgamma(prior.degrees / 2, scale=prior.degrees * prior.scale**2 / 2)

    def by_integral(position):
        total = stats.norm().logpdf(position[numbers < 0]).sum()
        for number in range(3):
            weights = position[numbers == number]

            def density(log_v, weights=weights):
                v = math.exp(log_v)
                return math.exp(
                    stats.norm(scale=math.sqrt(v)).logpdf(weights).sum() + variance.logpdf(v) + log_v + 20.0
                )

            total += math.log(integrate.quad(density, -8.0, 12.0, epsabs=0.0, epsrel=1e-10, limit=200)[0])
        return total

    one, other = positions(size=0.8)
    assert log_prob(bound, one) - log_prob(bound, other) == pytest.approx(
        by_integral(one) - by_integral(other), rel=1e-8
    )


@every_grouping
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_learned_scales_are_the_means_of_the_scales_given_the_weights(groups, temperature):
    """Monte Carlo over the scale, which the closed form leaves out; limit 5 standard errors. False failure: 1e-5."""
    bound = Hierarchical(groups=groups, degrees=3.0, scale=0.5).bind(NETWORK).tempered(temperature)
    draws, numbers = positions(3), group_numbers(groups)
    found = bound.scales(draws[None])
    rng = np.random.default_rng(2)
    for number, scale in enumerate(found):
        squares = np.square(draws[:, numbers == number]).sum(axis=1)
        shape = (3.0 + np.sum(numbers == number)) / (2 * temperature)
        samples = np.sqrt(stats.invgamma(shape, scale=0.5 * (3.0 * 0.25 + squares)).rvs((20_000, 3), random_state=rng))
        assert abs(samples.mean() - scale) < 5 * samples.mean(axis=1).std() / math.sqrt(20_000)
    assert len(found) == numbers.max() + 1


def test_relevance_has_a_number_for_each_input_and_is_small_for_one_without_weight():
    bound = Hierarchical(groups="input").bind(NETWORK)
    draws = positions(10)
    draws[:, 8:12] = 0.0  # the third input
    relevance = bound.relevance(draws)
    assert relevance.shape == (5,)
    assert np.argmin(relevance) == 2
    np.testing.assert_array_equal(relevance, bound.scales(draws)[:5])


@pytest.mark.parametrize("groups", ["layer", "unit"])
def test_relevance_needs_groups_by_input(groups):
    with pytest.raises(ValueError, match=r"only under Hierarchical\(groups='input'\)"):
        Hierarchical(groups=groups).bind(NETWORK).relevance(positions())


def test_is_not_tempered_until_it_is_improper():
    bound = Hierarchical(groups="layer", degrees=2.0).bind(NETWORK)  # at most 20 weights in a group: below 1.1
    assert bound.tempered(1.09).temperature == 1.09
    for prior, temperature in ((bound, 1.1), (bound, 3.0), (bound.tempered(0.5), 2.2)):
        with pytest.raises(ValueError, match=r"temperature must be below .* and 20 weights in a group"):
            prior.tempered(temperature)


def test_networks_that_do_not_say_what_a_unit_or_an_input_is_are_refused():
    class Own:
        n_inputs = 3
        layers = (Layer("weights", 12, 0, 3), Layer("bias", 0, 4, 1))

    images = LENET5.sized((28, 28), 10)
    assert Hierarchical(groups="layer").bind(Own()).blocks == (("whole", 1, 12), ("normal", 1, 4))
    assert Hierarchical(groups="unit").bind(images).blocks[0] == ("columns", 25, 6)
    for groups in ("unit", "input"):
        with pytest.raises(ValueError, match=r"needs layers of weights .* layer 1 has 12 weights, 0 biases"):
            Hierarchical(groups=groups).bind(Own())
    with pytest.raises(ValueError, match="a weight for each input and unit"):
        Hierarchical(groups="input").bind(images)
