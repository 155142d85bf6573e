"""Priors against scipy, in density, gradient and draws; a scale by layer lands on that layer's parameters alone."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import case
from scipy import stats

from mile import MLP, FanIn, Hierarchical, Laplace, Normal, PerLayer, StudentT, _registry
from mile.priors import FlatPrior, Prior, Scaled, choose_prior

# Each with its exact counterpart.
FAMILIES = {
    "normal": (Normal(), stats.norm()),
    "narrow normal": (Normal(scale=0.1), stats.norm(scale=0.1)),
    "wide normal": (Normal(scale=7.0), stats.norm(scale=7.0)),
    "laplace": (Laplace(), stats.laplace()),
    "narrow laplace": (Laplace(scale=0.1), stats.laplace(scale=0.1)),
    "student t": (StudentT(), stats.t(3.0)),
    "wide student t": (StudentT(df=1.5, scale=3.0), stats.t(1.5, scale=3.0)),
    "light student t": (StudentT(df=40.0, scale=0.2), stats.t(40.0, scale=0.2)),
}
NETWORK = MLP(n_inputs=5, hidden=(4, 3), n_outputs=2)
on_families = pytest.mark.parametrize(("prior", "exact"), FAMILIES.values(), ids=FAMILIES)


def positions(count=2, dimension=30):
    return 2.0 * np.random.default_rng(0).standard_normal((count, dimension))


@on_families
class TestFamilies:
    def test_density_is_the_exact_one_up_to_a_constant(self, prior, exact):
        points = positions()
        with jax.enable_x64(True):
            ours = [float(prior.log_prob(jnp.asarray(point))) for point in points]
        first, second = exact.logpdf(points).sum(axis=1)
        assert ours[0] - ours[1] == pytest.approx(first - second, rel=1e-10)

    def test_gradient_is_the_slope_of_the_exact_density(self, prior, exact):
        point, step = positions()[0], 1e-6
        slope = (exact.logpdf(point + step) - exact.logpdf(point - step)) / (2 * step)
        with jax.enable_x64(True):
            gradient = jax.grad(prior.log_prob)(jnp.asarray(point))
        np.testing.assert_allclose(gradient, slope, rtol=1e-6)

    def test_single_precision_stays_single_and_close(self, prior, exact):
        point = positions()[0].astype(np.float32)
        value = prior.log_prob(jnp.asarray(point))
        assert value.dtype == jnp.float32
        expected = (exact.logpdf(point.astype(float)) - exact.logpdf(0.0)).sum()
        assert float(value) == pytest.approx(expected, rel=1e-5)

    def test_draws_have_the_exact_quantiles(self, prior, exact):
        """The standard error of a level is at most 0.5 / sqrt(n). False failure: below 1e-5 in all."""
        draws = np.asarray(prior.sample(jax.random.key(0), 100_000))
        assert draws.shape == (100_000,)
        for level in (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99):
            below = np.mean(draws < exact.ppf(level))
            assert abs(below - level) < 5 * np.sqrt(level * (1 - level) / 1e5)

    def test_density_at_zero_has_no_slope(self, prior, exact):
        np.testing.assert_array_equal(jax.grad(prior.log_prob)(jnp.zeros(3)), np.zeros(3))

    def test_non_finite_position_has_no_finite_density(self, prior, exact):
        assert np.isnan(prior.log_prob(jnp.array([0.0, jnp.nan])))

    @pytest.mark.parametrize("temperature", [0.1, 1.0, 2.0])
    def test_tempering_divides_the_log_density(self, prior, exact, temperature):
        point = positions()[0]
        with jax.enable_x64(True):
            tempered = prior.tempered(temperature)
            assert float(tempered.log_prob(jnp.asarray(point))) == pytest.approx(
                float(prior.log_prob(jnp.asarray(point))) / temperature, rel=1e-12
            )
        assert type(tempered) is type(prior)

    def test_binds_to_itself(self, prior, exact):
        assert prior.bind(NETWORK) is prior


@pytest.mark.parametrize(
    ("prior", "ratio"),
    [
        (Normal(scale=0.1), 1.0),
        (Laplace(scale=0.1), math.sqrt(2.0)),
        (StudentT(df=20.0, scale=0.1), math.sqrt(20 / 18)),
    ],
    ids=str,
)
def test_standard_deviation_is_what_the_class_says(prior, ratio):
    """Kurtosis is at most 6, so the relative standard error is at most sqrt(5 / 4n). False failure: below 1e-6."""
    draws = np.asarray(prior.sample(jax.random.key(0), 100_000))
    assert abs(draws.std() / (ratio * prior.scale) - 1.0) < 5 * math.sqrt(5 / 4e5)
    assert abs(draws.mean()) < 5 * ratio * prior.scale / math.sqrt(1e5)


def test_defaults_are_standard():
    assert Normal().scale == Laplace().scale == StudentT().scale == 1.0
    assert StudentT().df == 3.0


@pytest.mark.parametrize("temperature", [4.0, 5.0, 1e300])
def test_a_student_t_is_not_tempered_until_it_is_improper(temperature):
    with pytest.raises(ValueError, match=r"temperature must be below df \+ 1 = 4 "):
        StudentT().tempered(temperature)


def by_hand(weight_scales, bias_scales):
    """Return the scale of every parameter from the layout alone: weights [in, out], then the bias, layer by layer."""
    layers = zip(NETWORK.layer_sizes, weight_scales, bias_scales, strict=True)
    parts = []
    for (fan_in, fan_out), weight, bias in layers:
        parts += [np.full((fan_in, fan_out), weight).ravel(), np.full(fan_out, bias)]
    return np.concatenate(parts)


FAN_IN = [math.sqrt(2 / 5), math.sqrt(2 / 4), math.sqrt(2 / 3)]
LAYERED = {
    "fan-in": (FanIn(), by_hand(FAN_IN, [1.0, 1.0, 1.0]), stats.norm()),
    "fan-in of one's own": (
        FanIn(family=Laplace(scale=3.0), gain=0.5, bias=0.1),
        3.0 * by_hand(0.5 / np.sqrt([5, 4, 3]), [0.1] * 3),
        stats.laplace(),
    ),
    "per layer": (PerLayer(scales=(0.1, 2.0, 5)), by_hand([0.1, 2.0, 5.0], [0.1, 2.0, 5.0]), stats.norm()),
    "per layer of a family": (
        PerLayer(scales=(0.1, 2.0, 5.0), family=StudentT(df=5.0, scale=0.5)),
        0.5 * by_hand([0.1, 2.0, 5.0], [0.1, 2.0, 5.0]),
        stats.t(5.0),
    ),
}


@pytest.mark.parametrize(("prior", "scales", "exact"), LAYERED.values(), ids=LAYERED)
class TestLayers:
    def test_every_parameter_has_the_scale_of_its_place(self, prior, scales, exact):
        bound = prior.bind(NETWORK)
        points = positions(2, NETWORK.dimension)
        with jax.enable_x64(True):
            ours = [float(bound.log_prob(jnp.asarray(point))) for point in points]
            gradient = jax.grad(bound.log_prob)(jnp.asarray(points[0]))
        first, second = exact.logpdf(points / scales).sum(axis=1)
        assert ours[0] - ours[1] == pytest.approx(first - second, rel=1e-10)
        up, down = (exact.logpdf((points[0] + step) / scales) for step in (1e-6, -1e-6))
        np.testing.assert_allclose(gradient, (up - down) / 2e-6, rtol=1e-5)

    def test_draws_have_the_scale_of_their_place(self, prior, scales, exact):
        """Share of draws inside the exact quartiles, per parameter; limit 6 standard errors. False failure: 1e-7."""
        keys = jax.random.split(jax.random.key(1), 4_000)
        draws = np.asarray(jax.vmap(lambda key: prior.bind(NETWORK).sample(key, NETWORK.dimension))(keys))
        inside = (np.abs(draws) < scales * exact.ppf(0.75)).mean(axis=0)
        np.testing.assert_allclose(inside, 0.5, atol=6 * 0.5 / math.sqrt(4_000))

    def test_bound_priors_are_static_and_keep_single_precision(self, prior, scales, exact):
        bound = prior.bind(NETWORK)
        assert bound == prior.bind(NETWORK)
        assert hash(bound) == hash(prior.bind(NETWORK))
        assert isinstance(bound, FlatPrior)
        with jax.enable_x64(True):
            assert bound.log_prob(jnp.ones(NETWORK.dimension, jnp.float32)).dtype == jnp.float32

    def test_tempering_divides_the_log_density(self, prior, scales, exact):
        point, bound = positions(1, NETWORK.dimension)[0], prior.bind(NETWORK)
        with jax.enable_x64(True):
            cold, plain = (float(one.log_prob(jnp.asarray(point))) for one in (bound.tempered(0.25), bound))
        assert cold == pytest.approx(4.0 * plain, rel=1e-12)


def test_every_registered_prior_is_compared_with_an_exact_one():
    cases = {type(case[0]) for case in (*FAMILIES.values(), *LAYERED.values())}
    cases.add(Hierarchical)  # in test_hierarchical.py
    assert cases == {kind for kind in _registry.prior.classes.values() if kind.__module__.startswith("mile.")}


def test_fan_in_is_the_published_one():
    assert FanIn() == FanIn(family=Normal(scale=1.0), gain=math.sqrt(2.0), bias=1.0)


@pytest.mark.parametrize("n_scales", [1, 2, 4])
def test_another_number_of_layers_is_refused_with_both_numbers(n_scales):
    with pytest.raises(ValueError, match=f"has {n_scales} scales but the network has 3 layers"):
        PerLayer(scales=(1.0,) * n_scales).bind(NETWORK)


@pytest.mark.parametrize("prior", [FanIn(), PerLayer(scales=(1.0,)), Hierarchical()], ids=str)
def test_a_network_that_lists_no_layers_is_refused(prior):
    with pytest.raises(ValueError, match="needs a network that lists its layers"):
        prior.bind(object())


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(
            (Normal, "scale"),
            (Laplace, "scale"),
            (StudentT, "scale"),
            (StudentT, "df"),
            (FanIn, "gain"),
            (FanIn, "bias"),
        ),
        *((Hierarchical, "degrees"), (Hierarchical, "scale"), (Hierarchical, "bias")),
    ],
)
def test_impossible_numbers_are_refused(kind, name):
    for value in (0.0, -1.0, np.nan, np.inf, "1", None, True):
        with case(value), pytest.raises(ValueError, match=f"^{name} must be a positive number"):
            kind(**{name: value})


@pytest.mark.parametrize("groups", ["column", "layers", None, 1, ("layer",)])
def test_other_groups_are_refused(groups):
    with pytest.raises(ValueError, match=r"groups must be one of \['input', 'layer', 'unit'\]"):
        Hierarchical(groups=groups)


@pytest.mark.parametrize("scales", [(), 1.0, [1.0], None, "1", (0.0,), (1.0, -1.0), (np.nan,), ("1",)])
def test_impossible_scales_are_refused(scales):
    with pytest.raises(ValueError, match="scales must be"):
        PerLayer(scales=scales)


@pytest.mark.parametrize(
    "family", [None, "normal", Normal, FanIn(), Scaled(family=Normal(), runs=((1, 1.0),))], ids=str
)
def test_only_a_family_has_scales_by_layer(family):
    for make in (lambda: FanIn(family=family), lambda: PerLayer(scales=(1.0,), family=family)):
        with pytest.raises(ValueError, match="family must be one of Laplace, Normal, StudentT"):
            make()


class TestWords:
    @pytest.mark.parametrize(
        ("word", "prior"),
        [
            ("normal", Normal(scale=0.5)),
            ("laplace", Laplace(scale=0.5)),
            ("student_t", StudentT(df=3.0, scale=0.5)),
            ("fan_in", FanIn(family=Normal(scale=0.5))),
            ("hierarchical", Hierarchical(groups="layer", degrees=2.0, scale=0.5, bias=1.0)),
        ],
    )
    def test_stand_for_a_prior_of_that_scale(self, word, prior):
        assert choose_prior(word, 0.5) == prior

    def test_of_a_prior_that_needs_more_than_one_scale_says_what_it_needs(self):
        with pytest.raises(ValueError, match=r"'per_layer' needs one scale for each layer: pass PerLayer"):
            choose_prior("per_layer")

    def test_an_object_stands_for_itself(self):
        prior = PerLayer(scales=(1.0, 2.0))
        assert isinstance(prior, Prior)
        assert choose_prior(prior) is prior

    def test_an_object_takes_no_scale_besides(self):
        with pytest.raises(ValueError, match=r"prior_scale must be 1\.0 with a prior object"):
            choose_prior(Normal(), 0.5)
