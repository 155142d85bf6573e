"""Mini-batch MCLMC: its noise estimate, its guards, its count of gradients, and that a whole batch is plain MCLMC."""

import warnings
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from noisy_targets import Noisy, noisy_normal
from perceptrons import OtherMLP, make_positions, make_posterior
from targets import assert_same_bits, small_dataset

import mile
from mile import MLP, Gaussian, Status
from mile.optimize import Training
from mile.samplers import _mclmc, _minibatches, _noise
from mile.samplers._minibatches import Fixed
from mile.samplers._step_size import Geometric
from mile.samplers.stochastic import PRESETS, Stochastic
from mile.sampling import run_chains

BUDGETS = {"warmup_steps": 300, "sampling_steps": 60, "n_draws": 20, "step_size": 0.01}


@pytest.fixture(scope="module")
def posterior():
    return make_posterior(Gaussian(), 200)


@pytest.fixture(scope="module")
def positions(posterior):
    return np.asarray(make_positions(posterior.network, 2))


def steps(phase, carry, target, n_steps, keep):
    """Make steps of a phase in one program; return the last carry and what `keep` takes of each."""

    def step(carry, index):
        carry, _ = phase.step(jax.random.fold_in(jax.random.key(5), index), carry, target)
        return carry, keep(carry)

    return jax.jit(lambda carry: jax.lax.scan(step, carry, jnp.arange(n_steps)))(carry)


class TestNoise:
    def test_is_measured_whatever_the_mean_gradient(self):
        """The released code gives (98, 1, 10) here. The average varies by 3 % from seed to seed."""
        target = Noisy(0.0, jnp.array([100.0, 1.0, 1.0]), jnp.array([1.0, 1.0, 10.0]))
        phase = Stochastic(**BUDGETS).phases[0]
        start = phase.init(jax.random.key(0), jnp.zeros(3), target)
        _, noise = steps(phase, start, target, 2_000, lambda carry: carry.noise)
        over_time = np.sqrt(np.asarray(noise.variance, np.float64)[100:]).mean(axis=0)
        np.testing.assert_allclose(over_time, [1.0, 1.0, 10.0], rtol=0.1)

    def test_forgets_where_the_chain_started(self):
        differences = np.random.default_rng(0).standard_normal((2_000, 50)) * np.sqrt(2.0)
        differences[:200] *= 10.0
        noise = _noise.init(jnp.zeros(50))
        noise, _ = jax.lax.scan(lambda noise, one: (_noise.update(noise, one), None), noise, jnp.asarray(differences))
        assert 1.0 < float(noise.mean) < 2.5  # a plain mean would be 10.9
        np.testing.assert_allclose(noise.mean, jnp.mean(noise.variance), rtol=1e-4)

    def test_gives_units_with_a_root_mean_square_of_one_within_bounds(self):
        variance = jnp.array([0.0, 1.0, 9.0, 90.0])
        known = _noise.Noise(variance, jnp.mean(variance), jnp.asarray(1_000))
        units = _noise.units(known)
        np.testing.assert_allclose(units, [0.1, 0.2, 0.6, np.sqrt(3.6)], rtol=1e-6)
        np.testing.assert_allclose(_noise.missing(known, units), [0.5, 0.0, 0.0, 0.0], atol=2e-3)
        np.testing.assert_array_equal(_noise.units(known._replace(count=jnp.asarray(99))), 1.0)
        np.testing.assert_array_equal(_noise.units(_noise.init(variance)._replace(count=known.count)), 1.0)
        np.testing.assert_allclose(_noise.level(known), 5.0)
        np.testing.assert_array_equal(_noise.missing(known._replace(count=jnp.asarray(99)), jnp.ones(4)), 0.0)

    def test_ignores_what_is_not_finite(self):
        noise = _noise.update(_noise.init(jnp.zeros(2)), jnp.array([1.0, 2.0]))
        assert_same_bits(_noise.update(noise, jnp.array([jnp.nan, 1.0])), noise)

    def test_and_refreshment_together_forget_over_the_wanted_length(self):
        assert _noise.missing_length(2.0, jnp.asarray(6.0)) == pytest.approx(3.0)
        assert _noise.missing_length(2.0, jnp.asarray(jnp.inf)) == 2.0
        assert _noise.missing_length(2.0, jnp.asarray(1.0)) == jnp.inf

    def test_alone_makes_the_velocity_forget_as_its_length_says(self):
        """A flat target: the cosine with the first velocity falls as exp(-distance / L_eff).

        The mean over 1,000 chains has a standard error of 0.004; the tolerance is five of them.
        """
        dimension, noise, step_size, n_steps = 50, 4.0, jnp.float32(0.1), 300
        level = jnp.float32(noise)
        target = Noisy(0.0, jnp.zeros(dimension), jnp.full(dimension, noise))
        length = _noise.length(level, dimension, step_size)
        fixed = Fixed(step_size, jnp.float32(jnp.inf), length, level, jnp.ones(dimension), jnp.zeros(dimension))

        def cosine(key):
            chain = _minibatches.init(key, jnp.zeros(dimension), target, 1)
            first = chain.state.velocity
            chain, _ = jax.lax.scan(
                lambda chain, key: (_minibatches.advance(key, chain, target, fixed, 1.0, 1, False)[0], None),
                chain,
                jax.random.split(key, n_steps),
            )
            return first @ chain.state.velocity

        found = jax.jit(jax.vmap(cosine))(jax.random.split(jax.random.key(0), 1_000)).mean()
        expected = np.exp(-n_steps * step_size / length)
        assert 0.2 < expected < 0.8
        np.testing.assert_allclose(found, expected, atol=0.02)


class TestStep:
    @pytest.mark.parametrize("kind", [MLP, OtherMLP], ids=["native", "xla"])
    @pytest.mark.parametrize("precondition", [True, False])
    def test_on_a_batch_of_all_rows_is_that_of_mclmc_bit_for_bit(self, kind, precondition):
        posterior = make_posterior(Gaussian(), 50, kind=kind)
        phase = Stochastic(batch_size=64, precondition=precondition, **BUDGETS).phases[0]
        carry = phase.init(jax.random.key(0), make_positions(posterior.network), posterior)
        ours = jax.jit(lambda key, carry: phase.step(key, carry, posterior)[0])
        theirs = jax.jit(lambda key, state, step_size, L: _mclmc.step(key, state, posterior, step_size, L)[0])
        state = carry.chain.state
        for index in range(40):
            key = jax.random.fold_in(jax.random.key(1), index)
            state = theirs(key, state, carry.step_size.value, jnp.float32(15.0))
            carry = ours(key, carry)
            assert_same_bits(carry.chain.state, state)
        report = phase.finish(carry).report
        assert report["refused_steps"] + report["bad_steps"] == 0
        assert report["gradient_evaluations"] == 2 * phase.n_steps + 1
        assert report["L_eff"] == jnp.inf

    @pytest.mark.parametrize("precondition", [True, False])
    def test_that_changes_the_energy_too_much_is_taken_back_whole(self, precondition):
        target, d = noisy_normal(np.ones(20)), 20
        chain = _minibatches.init(jax.random.key(0), jnp.linspace(-1.0, 1.0, d), target, 1)
        fixed = Fixed(
            jnp.float32(50.0), jnp.float32(5.0), jnp.float32(jnp.inf), jnp.float32(0.0), jnp.full(d, 0.7), jnp.ones(d)
        )
        after, moved = jax.jit(_minibatches.advance, static_argnums=(5, 6))(
            jax.random.key(1), chain, target, fixed, 0.1, 1, precondition
        )
        batch = target.minibatch(after.order, jnp.asarray(0), 1)
        assert (after.refused_steps, after.bad_steps, moved.finite) == (1, 0, True)
        assert jnp.square(moved.energy_change) > 100 * 0.1 * d
        np.testing.assert_array_equal(after.state.position, chain.state.position)
        value, gradient = batch.value_and_grad(chain.state.position)
        np.testing.assert_allclose(after.state.logdensity, value, rtol=1e-6)
        np.testing.assert_allclose(after.state.gradient, gradient, rtol=1e-6)
        assert jnp.linalg.norm(after.state.velocity) == pytest.approx(1.0, abs=1e-5)
        assert abs(after.state.velocity @ chain.state.velocity) < 0.9

    def test_is_no_longer_than_noise_admits(self):
        target, largest_turn, dimension = noisy_normal(np.full(20, 100.0)), 0.1, 20
        sampler = Stochastic(largest_turn=largest_turn, **BUDGETS)
        report = run_chains(sampler, target, np.zeros((1, dimension), np.float32), seed=0).info["sampling"]
        turn = report["step_size"] * report["noise"] * np.sqrt(dimension) / (dimension - 1)
        np.testing.assert_allclose(turn, largest_turn, rtol=1e-5)
        expected = 2 * (dimension - 1) ** 2 / (dimension * report["step_size"] * report["noise"] ** 2)
        np.testing.assert_allclose(report["L_eff"], expected, rtol=1e-5)
        np.testing.assert_allclose(report["noise"], 100.0, rtol=0.1)
        assert np.all(report["L"] < 1.00001 * sampler.noise_share * report["L_eff"])


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Walled(Noisy):
    """`Noisy` whose log density is NaN where the first coordinate exceeds `wall`, on all rows or in batches too."""

    wall: float | jax.Array
    hidden: bool

    def logdensity(self, position):
        return jnp.where(position[0] < self.wall, super().logdensity(position), jnp.nan)

    def minibatch(self, order, index, batch_size):
        batch = super().minibatch(order, index, batch_size)
        visible = jnp.where(self.hidden, jnp.inf, self.wall)
        return Walled(batch.precision, batch.slope, self.deviations, visible, self.hidden)


class TestFailure:
    start = np.zeros((2, 5), np.float32)

    def run(self, wall, hidden, **options):
        target = Walled(1.0, jnp.zeros(5), jnp.ones(5), wall, hidden)
        return run_chains(Stochastic(**BUDGETS | options), target, self.start, seed=0)

    def test_at_the_start_is_a_status(self):
        assert self.run(-1.0, False).status == (Status.NON_FINITE_START,) * 2

    def test_of_a_step_is_reverted_and_counted(self):
        chains = self.run(1.0, False, warmup_steps=1_000)
        assert np.all(chains.info["warm-up"]["bad_steps"] > 0)
        assert np.isfinite(chains.draws).all()
        assert np.isfinite(chains.logdensity).all()
        assert chains.draws[..., 0].max() < 1.0

    def test_that_the_mini_batches_do_not_show_is_a_status(self):
        chains = self.run(0.5, True, sampling_steps=600)
        assert Status.NON_FINITE in chains.status
        for status, logdensity in zip(chains.status, chains.logdensity, strict=True):
            assert status == Status.NON_FINITE or np.isfinite(logdensity).all()


class TestRun:
    sampler = Stochastic(batch_size=32, **BUDGETS)

    def test_records_log_densities_of_all_rows_and_counts_gradients(self, posterior, positions):
        chains = run_chains(self.sampler, posterior, positions, seed=3)
        assert chains.ok.all()
        expected = jax.vmap(jax.vmap(posterior.logdensity))(jnp.asarray(chains.draws))
        np.testing.assert_allclose(chains.logdensity, expected, rtol=1e-4)
        assert np.all(chains.gradient_evaluations == self.sampler.gradient_evaluations())
        report = chains.info["sampling"]
        np.testing.assert_allclose(report["batch_share"], 1 / 6, rtol=1e-6)  # 13 groups of 16 rows, two to a batch
        assert chains.tuned.inverse_mass.shape == positions.shape
        assert {"step_size", "L", "L_eff", "noise", "bad_steps", "refused_steps", "energy_variance"} < set(report)

    def test_of_another_length_of_blocks_or_alone_has_the_same_bits(self, posterior, positions):
        whole = run_chains(self.sampler, posterior, positions, seed=3)
        assert_same_bits(run_chains(self.sampler, posterior, positions, seed=3, block_steps=7), whole)
        alone = run_chains(self.sampler, posterior, positions[1:], seed=3, chain_ids=[1])
        np.testing.assert_array_equal(alone.draws[0], whole.draws[1])

    def test_needs_no_noise_to_forget(self):
        chains = run_chains(
            replace(self.sampler, noise_share=1e-6), noisy_normal(np.ones(5)), np.zeros((1, 5), np.float32), seed=0
        )
        assert chains.ok.all()
        np.testing.assert_allclose(chains.info["sampling"]["L"], 0.1 * chains.tuned.step_size, rtol=1e-5)

    def test_keeps_double_precision(self):
        with jax.enable_x64(True):
            target = Noisy(1.0, jnp.zeros(4), jnp.ones(4))
            chains = run_chains(replace(self.sampler, schedule=Geometric()), target, np.zeros((1, 4)), seed=0)
        assert chains.draws.dtype == np.float64
        assert chains.ok.all()

    def test_by_mile_fit_predicts(self):
        dataset = small_dataset(400)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fit = mile.fit(
                dataset,
                MLP(n_inputs=3, hidden=(4,)),
                Gaussian(),
                sampler=replace(self.sampler, step_size=None, warmup_steps=2_000, sampling_steps=500),
                training=Training(max_epochs=30),
                n_chains=2,
                random_state=0,
            )
        ours = mile.metrics.rmse(fit.predictive(dataset.x_valid), dataset.y_valid)
        assert ours < 0.5 * dataset.y_valid.std()


class TestConfiguration:
    @pytest.mark.parametrize(
        "arguments",
        [
            {"batch_size": 0},
            {"warmup_steps": 0},
            {"n_draws": 20, "sampling_steps": 10},
            {"precondition": 1},
            {"schedule": 0.1},
            {"step_size_memory": 0.5},
            {"trust": 0.0},
            {"largest_turn": -1.0},
            {"noise_share": 1.5},
            {"step_size": 0.0},
        ],
        ids=str,
    )
    def test_impossible_arguments_are_named(self, arguments):
        with pytest.raises(ValueError, match=next(iter(arguments))):
            Stochastic(**arguments)

    def test_open_step_size_must_be_filled_in(self):
        with pytest.raises(ValueError, match="step_size is open"):
            _ = Stochastic().phases
        assert Stochastic().with_start(0.1).phases[0].step_size == 0.1
        assert Stochastic(step_size=0.2).with_start(0.1).step_size == 0.2

    def test_presets_need_rows_and_cost_three_gradients_a_step(self):
        for preset in PRESETS.values():
            assert preset.needs_rows
            assert preset.name == "stochastic"
            assert preset.gradient_evaluations() == 3 * (preset.warmup_steps + preset.sampling_steps) + 1
