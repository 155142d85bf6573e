"""Path-guided particle sampling: its formulas against automatic derivatives, its clouds against known moments."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from targets import small_dataset

import mile
from mile import MLP, Categorical, Gaussian, Normal, Status, _registry, configuration
from mile._types import Target
from mile.padded_rows import pad_rows
from mile.posterior import FunctionTarget, Posterior
from mile.samplers._path import Field, Langevin, Route, Slope, field_loss, init_field, train_field
from mile.samplers.pgps import Emitting, Pgps
from mile.sampling.chains import run_chains

NORMAL = FunctionTarget(lambda x: -0.5 * jnp.sum(jnp.square((x - 1.0) / jnp.array([0.5, 1.0, 1.5]))))
MEAN, DEVIATION = 1.0, np.array([0.5, 1.0, 1.5])


def route(**changes):
    given = {"start_scale": 0.7, "start_widening": 0.4, "target_shrinkage": 0.6, "batch_size": 32}
    return Route(**given | {"rescale_batches": True} | changes)


def positions(n_chains=1, dimension=3):
    return np.zeros((n_chains, dimension), np.float32)


class TestPath:
    def test_derivatives_of_the_density_are_the_automatic_ones(self):
        path, target = route(), FunctionTarget(lambda x: -jnp.sum(jnp.cosh(x - 0.2)) + x[0] * x[1])

        def logdensity(x, t):
            """Write down the definition."""
            start = -0.5 * jnp.sum(jnp.square((1 - 0.4 * t) * x / 0.7))
            return (1 - t) * start + t * target.logdensity(x / (0.6 + 0.4 * t))

        with jax.enable_x64(True):
            x = np.array([0.3, -1.2, 0.8])
            automatic = jax.jit(jax.value_and_grad(logdensity, argnums=(0, 1)))
            slope = jax.jit(path.slope)
            for time in (0.0, 0.3, 1.0):
                found, (value, (gradient, rate)) = slope(x, time, target), automatic(x, time)
                np.testing.assert_allclose(found.logdensity, value, rtol=1e-12)
                np.testing.assert_allclose(found.gradient, gradient, rtol=1e-12)
                np.testing.assert_allclose(found.rate, rate, rtol=1e-12)

    def test_leads_from_the_normal_to_the_target(self):
        x, slope = np.array([0.3, -1.2, 0.8], np.float32), jax.jit(route().slope)
        np.testing.assert_allclose(slope(x, 0.0, NORMAL).gradient, -x / 0.7**2, rtol=1e-5)
        np.testing.assert_allclose(slope(x, 1.0, NORMAL).gradient, (MEAN - x) / DEVIATION**2, rtol=1e-5)


@pytest.fixture(scope="module")
def cloud():
    """Return particles on their way, the density there, and a field that knows nothing."""

    @jax.jit
    def make(key):
        particles = 0.7 * jax.random.normal(key, (30, 3))
        return particles, *route().slopes(particles, 0.2, NORMAL), init_field(key, 16, particles[0])

    return make(jax.random.key(0))


class TestField:
    loss = staticmethod(jax.jit(jax.value_and_grad(field_loss)))

    def test_divergence_is_the_trace_of_the_jacobian(self):
        @jax.jit
        def both(key):
            field = init_field(key, 16, jnp.zeros(5))
            particles = jax.random.normal(key, (7, 5))
            jacobians = jax.vmap(jax.jacfwd(lambda x: field.at(x[None])[0][0]))(particles)
            return field.at(particles)[1], jnp.trace(jacobians, axis1=1, axis2=2)

        with jax.enable_x64(True):
            np.testing.assert_allclose(*both(jax.random.key(0)), rtol=1e-10)

    def test_loss_is_zero_for_the_exact_flow(self):
        """Shifting N(t, 1) takes the constant field 1: gradient t - x, rate x - t, and no divergence."""
        particles = np.linspace(-2.0, 3.0, 20, dtype=np.float32)[:, None]
        # The loss subtracts the mean rate of these particles, which the flow sees as a change of the constant.
        slope = Slope(np.zeros(20), particles.mean() - particles, particles[:, 0] - np.float32(0.4))
        zeros = [np.zeros(shape, np.float32) for shape in ((1, 4), 4, (4, 1))]
        everywhere = np.ones(20, bool)
        constant = {value: Field(*zeros, np.full(1, value, np.float32)) for value in (0.0, 1.0)}
        assert self.loss(constant[1.0], particles, slope, everywhere)[0] < 1e-10
        assert self.loss(constant[0.0], particles, slope, everywhere)[0] > 1.0

    def test_training_lowers_the_loss_and_stops_when_it_is_small(self, cloud):
        particles, slope, finite, field = cloud
        optimizer = jax.jit(optax.adam(1e-2).init)(field)
        train = jax.jit(train_field)
        options = {"updates": 300, "learning_rate": 1e-2}
        before = float(self.loss(field, particles, slope, finite)[0])
        trained, _, loss, updates = train(field, optimizer, particles, slope, finite, tolerance=0.0, **options)
        assert updates == 300
        assert self.loss(trained, particles, slope, finite)[0] < 0.1 * before
        *_, loss, updates = train(field, optimizer, particles, slope, finite, tolerance=0.5 * before, **options)
        assert 1 < updates < 300
        assert loss < 0.5 * before

    def test_particles_without_a_finite_density_have_no_say(self, cloud):
        particles, slope, _, field = jax.tree.map(np.array, cloud)
        others = np.arange(30) != 3
        rest = jax.tree.map(lambda leaf: leaf[others], slope)
        expected, _ = self.loss(field, particles[others], rest, np.ones(29, bool))
        slope.gradient[3], slope.rate[3] = np.nan, np.inf
        loss, gradient = self.loss(field, particles, slope, others)
        np.testing.assert_allclose(loss, expected, rtol=1e-5)
        assert all(np.isfinite(leaf).all() for leaf in gradient)


class TestCloud:
    """All with the shapes and the target of the first, so that they share its programs."""

    def test_of_the_paper_preset_has_the_moments_of_a_normal(self):
        """Four clouds of 100 particles; five standard errors, false once in 200,000.

        Langevin steps on a variance v have v / (1 - step / (2 v)) instead: 5/4 of it for the narrowest coordinate.
        """
        chains = mile.sample(NORMAL.function, np.zeros((4, 3)), Pgps.presets()["paper"], random_state=0)
        draws = chains.draws.reshape(-1, 3).astype(float)
        assert chains.ok.all()
        np.testing.assert_allclose((draws.mean(axis=0) - MEAN) / DEVIATION, 0.0, atol=5 * np.sqrt(1.25 / 400))
        inflation = 1 / (1 - 0.1 / (2 * DEVIATION**2))
        np.testing.assert_allclose(draws.var(axis=0) / DEVIATION**2, inflation, atol=5 * 1.25 * np.sqrt(2 / 400))
        assert not chains.info["langevin"]["limited_steps"].any()

    def test_follows_the_path_even_without_langevin_steps(self):
        """The field alone must bring the cloud most of the way from N(0, 0.5) to the mean of the target."""
        sampler = Pgps(adjustment_steps=0, langevin_steps=1, step_size=1e-6, field_learning_rate=1e-2)
        chains = run_chains(sampler, NORMAL, positions(), seed=0)
        np.testing.assert_allclose(chains.draws[0].mean(axis=0), MEAN, atol=0.3)
        history = chains.history["path"]
        assert np.all(np.diff(history.time[0]) > 0)
        assert history.time[0, -1] == 1.0

    def test_stays_when_the_path_has_ended(self):
        few = {"field_updates": 5, "adjustment_steps": 10, "langevin_steps": 1}
        short, long = (run_chains(Pgps(path_steps=n, **few), NORMAL, positions(), seed=0) for n in (50, 55))
        np.testing.assert_array_equal(short.history["path"].loss[0], long.history["path"].loss[0, :50])
        assert np.isinf(long.history["path"].loss[0, 50:]).all()  # no update
        np.testing.assert_array_equal(short.draws, long.draws)
        assert short.gradient_evaluations.tolist() == [100 * (50 + 10 * 10 + 1)]
        assert Pgps(**few).gradient_evaluations() == 100 * (50 + 10 * 10 + 1)

    def test_that_does_not_reach_the_end_of_the_path_is_a_status(self):
        """A displacement this small allows for a ten-thousandth of the path."""
        sampler = Pgps(largest_displacement=1e-6, field_updates=1, langevin_steps=1)
        chains = run_chains(sampler, NORMAL, positions(), seed=0)
        assert chains.status == (Status.FROZEN,)
        assert chains.info["path"]["time"][0] < 0.01

    def test_is_random_and_ignores_the_trained_network(self):
        sampler = Pgps(field_updates=1, langevin_steps=1)
        one, other = (run_chains(sampler, NORMAL, positions() + shift, seed=0).draws for shift in (0.0, 5.0))
        np.testing.assert_array_equal(one, other)
        assert len(np.unique(one)) == one.size


@pytest.mark.slow
def test_of_a_banana_has_its_moments():
    """x0 ~ N(0, 1), x1 ~ N(x0^2, 1): the means are 0 and 1, the variance of x1 is 3. Five standard errors."""
    banana = FunctionTarget(lambda x: -0.5 * (x[0] ** 2 + (x[1] - x[0] ** 2) ** 2))
    sampler = Pgps(n_draws=200, step_size=0.02)
    draws = run_chains(sampler, banana, positions(4, 2), seed=0).draws.reshape(-1, 2).astype(float)
    np.testing.assert_allclose(draws.mean(axis=0), [0.0, 1.0], atol=5 * np.sqrt(3 / 800) + 0.05)
    assert 0.8 < draws[:, 0].var() < 1.25
    assert np.corrcoef(draws[:, 0] ** 2, draws[:, 1])[0, 1] > 0.6


@pytest.fixture(scope="module")
def posterior():
    dataset = small_dataset(n_rows=128, classes=3)
    network = MLP(n_inputs=3, hidden=(4,), n_outputs=3, activation="sigmoid")
    rows = pad_rows(dataset.x_train, dataset.y_train)  # 96 rows
    return Posterior(rows=rows, network=network, likelihood=Categorical(3), prior=Normal())


class TestBatches:
    def test_of_all_orders_average_to_the_whole_gradient(self, posterior):
        position = np.random.default_rng(0).standard_normal(posterior.dimension).astype(np.float32)

        @jax.jit
        def gradients(keys):
            batch = lambda key: route().batch(key, posterior)[0].value_and_grad(position)[1]  # noqa: E731
            return jax.lax.map(batch, keys).mean(axis=0), posterior.value_and_grad(position)[1]

        found, whole = gradients(jax.random.split(jax.random.key(0), 300))
        assert np.linalg.norm(found - whole) < 0.1 * np.linalg.norm(whole)

    def test_reach_the_langevin_step_and_are_counted_by_their_share_of_the_rows(self, posterior):
        """With the same key, two steps differ by what rescaling makes of the drift: the rest of the rows.

        A third of the rows has a third of the log likelihood without rescaling; the prior stays.
        """
        phase = Pgps(n_draws=10).phases[0]
        paths = [route(rescale_batches=rescale) for rescale in (True, False)]

        @jax.jit
        def step(key):
            cloud = phase.init(key, jnp.zeros(posterior.dimension), posterior)._replace(time=jnp.ones(()))
            langevin = Langevin(step_size=0.01, limit_drift=False)
            ends = [langevin.step(key, cloud, path, posterior)[0] for path in paths]
            (scaled, share), (plain, _) = (path.batch(jax.random.split(key)[0], posterior) for path in paths)
            slopes = [jax.vmap(batch.value_and_grad)(cloud.particles) for batch in (scaled, plain)]
            return ends, slopes, share, jax.vmap(posterior.prior.log_prob)(cloud.particles)

        (one, other), (scaled, plain), share, prior = step(jax.random.key(1))
        drift = 0.01 * (scaled[1] - plain[1])
        np.testing.assert_allclose(one.particles - other.particles, drift, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(one.tally.gradients, 10 / 3, rtol=1e-6)
        np.testing.assert_allclose(share, 1 / 3, rtol=1e-6)
        np.testing.assert_allclose((plain[0] - prior) / (scaled[0] - prior), 1 / 3, rtol=1e-3)

    def test_of_its_own_differ_from_particle_to_particle_as_chance_has_it(self, posterior):
        """At one place only the rows differ; a batch of m of n rows has the variance s^2 n^2 (1 - m/n) / m.

        With 400 particles and 15 coordinates the summed variance is known to a few percent; the bound is a fifth.
        """
        place = np.random.default_rng(0).standard_normal(posterior.dimension).astype(np.float32)
        together, apart = (route(own_batches=own, batch_size=24) for own in (False, True))

        @jax.jit
        def gradients(key):
            cloud = jnp.tile(place, (400, 1))
            found = [
                path.slopes_by_batches(key, cloud, jnp.ones(()), posterior, for_field=False)[0].gradient
                for path in (together, apart)
            ]
            rows = posterior.rows
            single = lambda row: replace(posterior, rows=rows.take(row[None])).value_and_grad(place)[1]  # noqa: E731
            return *found, jax.lax.map(single, jnp.arange(96)), posterior.value_and_grad(place)[1]

        shared, own, single, whole = gradients(jax.random.key(2))
        assert not np.ptp(shared, axis=0).any()
        expected = single.var(axis=0, ddof=1).sum() * 96**2 * (1 - 24 / 96) / 24
        assert 0.8 < own.var(axis=0, ddof=1).sum() / expected < 1.2
        np.testing.assert_allclose((own.mean(axis=0) - whole) / np.sqrt(expected / 400), 0.0, atol=4.0)

    def test_of_its_own_count_rows_once_and_draw_anew_for_the_rate(self, posterior):
        """Without rescaling the likelihood is that of 24 rows, each with its weight or not at all."""
        place = np.zeros(posterior.dimension, np.float32)

        @jax.jit
        def found(key):
            rows = posterior.random_rows(key, 24, scaled=False).rows
            cloud, path = jnp.tile(place, (2, 1)), route(own_batches=True, batch_size=24, rescale_batches=False)
            slopes, _, share, _ = path.slopes_by_batches(key, cloud, jnp.zeros(()), posterior, for_field=True)
            return rows, posterior.random_share(24), share, slopes

        rows, share, used, slopes = found(jax.random.key(0))
        np.testing.assert_array_equal(np.sort(rows.weight), [0.0] * 8 + [1.0] * 24)
        assert int(rows.count) == 24
        assert share == used == 0.25
        drawn = {tuple(column) for column in np.asarray(rows.x).T[:24]}
        assert len(drawn) == 24
        assert drawn <= {tuple(column) for column in np.asarray(posterior.rows.x).T}
        # At zero weights each of 24 rows has log probability -log 3; p_0 and the prior are at their maximum.
        prior = float(posterior.prior.log_prob(place))
        np.testing.assert_allclose(slopes.rate, prior - 24 * np.log(3), rtol=1e-5)
        assert posterior.random_rows(jax.random.key(0), 96) is posterior

    def test_that_hold_all_rows_are_the_posterior(self, posterior):
        batch, share = route(batch_size=96).batch(jax.random.key(0), posterior)
        assert batch is posterior
        assert share == 1.0


class TestSoftmaxTwice:
    def test_is_the_softmax_of_probabilities(self):
        """Two classes, logits (z, 0): log of 1 / (1 + exp(-tanh(z / 2))), as p - (1 - p) = tanh(z / 2)."""
        logits = np.array([[-30.0, -1.0, 0.0, 2.0, 30.0], np.zeros(5)], np.float32)
        found = jax.jit(Categorical(2).with_softmax_twice().log_prob)(logits, np.zeros(5, np.int32))
        np.testing.assert_allclose(found, -np.log1p(np.exp(-np.tanh(logits[0] / 2))), rtol=1e-5)
        # No row is better than this, however sure the network is: the NLL of 7 classes stays above 1.165.
        sure = np.where(np.arange(7) == 3, 50.0, 0.0).astype(np.float32)[:, None]
        best = jax.jit(Categorical(7).with_softmax_twice().log_prob)(sure, np.array([3]))[0]
        assert float(best) == pytest.approx(1.0 - np.log(np.e + 6.0), rel=1e-6)

    def test_reaches_the_gradient_and_spares_the_draws(self, posterior):
        """At zero weights the softmax of C probabilities of 1 / C has 1 / C of the slope in the logits."""
        place = jnp.zeros((1, posterior.dimension))

        @jax.jit
        def found(key):
            once, twice = (route(softmax_twice=twice, batch_size=96) for twice in (False, True))
            slopes = [
                path.slopes_by_batches(key, place, jnp.ones(()), posterior, for_field=False)[0].gradient[0]
                for path in (once, twice)
            ]
            return *slopes, posterior.logdensity(place[0])

        once, twice, logdensity = found(jax.random.key(0))
        np.testing.assert_allclose(twice, once / 3, rtol=1e-4, atol=1e-4)
        assert float(logdensity) == pytest.approx(float(posterior.prior.log_prob(place[0])) - 96 * np.log(3), rel=1e-5)

    def test_gradients_add_up_where_they_are_never_cleared(self, posterior):
        """A step has two of them and uses the first: with all rows, at rest, the k-th moves by 2 k - 1 of them."""
        place = np.random.default_rng(0).standard_normal((2, posterior.dimension)).astype(np.float32)
        path = route(own_batches=True, accumulate_gradients=True, batch_size=96)

        @jax.jit
        def found(key, place):
            sums, gradients = jnp.zeros_like(place), []
            for _ in range(3):
                slope, *_, sums = path.slopes_by_batches(key, place, jnp.ones(()), posterior, sums, for_field=False)
                gradients.append(slope.gradient)
            return gradients, jax.vmap(posterior.value_and_grad)(place)[1], jax.vmap(posterior.prior_gradient)(place)

        gradients, whole, prior = found(jax.random.key(0), place)
        for count, gradient in zip((1, 3, 5), gradients, strict=True):
            np.testing.assert_allclose(gradient, prior + count * (whole - prior), rtol=1e-4, atol=1e-3)

    def test_needs_classes(self):
        for target in (NORMAL, Gaussian()):
            with pytest.raises(ValueError, match="predicts classes"):
                target.with_softmax_twice()


class TestFailure:
    def test_moves_that_are_not_finite_are_reverted_and_counted(self):
        """Curvature 10,000 and steps of 0.1: the drift overshoots a thousandfold, beyond any float in twenty steps."""
        ended, draws, _ = settle(sharpness=1e4, limit_drift=False)
        assert int(ended.status) == Status.BAD_STEPS
        assert np.isfinite(draws.particles).all()
        assert np.isfinite(draws.logdensity).all()
        assert float(ended.report["bad_steps"]) > 50

    def test_a_limited_drift_keeps_a_sharp_target_in_reach(self):
        ended, draws, _ = settle(sharpness=1e4, limit_drift=True)
        assert np.abs(draws.particles).max() < 20.0
        assert float(ended.report["bad_steps"]) == 0
        assert float(ended.report["limited_steps"]) > 500

    def test_particles_return_from_where_the_density_is_not_finite(self):
        ended, draws, _ = settle(half_width=1.5, start_scale=0.2, limit_drift=True)
        assert np.abs(draws.particles).max() < 1.5
        assert np.isfinite(draws.logdensity).all()
        assert int(ended.status) == Status.BAD_STEPS
        assert float(ended.report["bad_steps"]) > 0

    def test_a_start_that_is_not_finite_for_one_particle_is_a_status(self):
        assert settle(half_width=1.5, start_scale=0.2, limit_drift=True)[2] == Status.OK
        assert settle(half_width=1.5, start_scale=0.8, limit_drift=True)[2] == Status.NON_FINITE_START

    def test_a_cloud_that_fell_or_left_the_finite_is_a_status(self):
        finish = jax.jit(Pgps(n_draws=4).phases[-1].finish)
        cases = {(-1.0, -2.0): Status.OK, (-1.0, -50.0): Status.DIVERGED, (-1.0, np.nan): Status.NON_FINITE}
        for (first, last), expected in cases.items():
            numbers = np.full(4, last, np.float32), np.float32(first), np.int32(0)
            assert finish(Emitting(np.zeros((4, 3), np.float32), *numbers)).status == expected


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sharp(Target):
    """A normal of this precision, NaN outside of a box; both are data, so that its programs are shared."""

    sharpness: float
    half_width: float

    def logdensity(self, x):
        return jnp.where(jnp.max(jnp.abs(x)) < self.half_width, -0.5 * self.sharpness * x @ x, jnp.nan)

    def value_and_grad(self, x):
        value = self.logdensity(x)
        return value, jnp.where(jnp.isnan(value), jnp.nan, -self.sharpness * x)


N_STEPS = 100


@jax.jit
def settle_in(phases, target, key):
    path, phase, emit = phases
    start = path.init(key, jnp.zeros(3), target)
    cloud = phase.init(key, start, target)
    step = lambda index, cloud: phase.step(jax.random.fold_in(key, index), cloud, target)[0]  # noqa: E731
    cloud = jax.lax.fori_loop(0, N_STEPS, step, cloud)
    return phase.finish(cloud), emit.init(key, cloud, target), path.finish(start._replace(time=jnp.ones(()))).status


def settle(sharpness=1.0, half_width=np.inf, **options):
    """Make Langevin steps on a target from random points; return how that ended, the draws and the first status."""
    phases = Pgps(n_draws=10, langevin_steps=N_STEPS, **options).phases
    return settle_in(phases, Sharp(sharpness, half_width), jax.random.key(0))


def test_files_of_earlier_versions_are_of_shared_batches():
    """They name neither field; what they describe keeps its draws."""
    known = configuration.describe(Pgps(own_batches=False))
    assert not {"own_batches", "softmax_twice"} & set(known)
    assert configuration.build(known, _registry.sampler) == Pgps(own_batches=False)
    assert configuration.describe(Pgps())["own_batches"] is True
    assert configuration.build(configuration.describe(Pgps.presets()["published"]), _registry.sampler).softmax_twice


def test_impossible_arguments_are_named():
    for arguments in (
        {"n_draws": 0},
        {"start_scale": 0.0},
        {"start_widening": 1.5},
        {"target_shrinkage": 0.0},
        {"path_steps": 49},
        {"step_size": -0.1},
        {"adjustment_interval": 2.0},
        {"rescale_batches": 1},
        {"limit_drift": None},
        {"own_batches": 0},
        {"softmax_twice": "yes"},
        {"accumulate_gradients": True, "own_batches": False},
    ):
        with pytest.raises(ValueError, match=next(iter(arguments))):
            Pgps(**arguments)


def test_presets_are_of_its_name():
    assert set(Pgps.presets()) == {"paper", "published", "quick", "accurate"}
    assert all(preset.with_start(0.1).name == "pgps" for preset in Pgps.presets().values())
