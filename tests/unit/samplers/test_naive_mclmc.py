"""MCLMC as published: its tuner against BlackJAX's, each weakness that kills chains, and that the dead are counted."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.adaptation.mclmc_adaptation import MCLMCAdaptationState, mclmc_find_L_and_step_size
from blackjax.mcmc import mclmc as blackjax_mclmc
from targets import Box, StandardNormal, assert_same_bits

from mile import Status
from mile.posterior import FunctionTarget
from mile.samplers import _mclmc, _published
from mile.samplers._naive_phases import NaiveChain, _open_journal
from mile.samplers._published import Guarded, Unguarded
from mile.samplers.naive_mclmc import NaiveMclmc
from mile.sampling.chains import run_chains

SCALES = np.geomspace(0.2, 5.0, 20).astype(np.float32)
STANDARD = FunctionTarget(StandardNormal())
NORMAL = FunctionTarget(lambda x: -0.5 * jnp.sum(jnp.square(x / SCALES)))
# Outside of |x_i| < 3 the log density is NaN, or so low that the square of an energy change overflows.
BOX = FunctionTarget(Box(3.0))
CLIFF = FunctionTarget(lambda x: -0.5 * x @ x - 1e25 * jnp.any(jnp.abs(x) > 3.0))
N_CHAINS = 12
LONGER = {"warmup_steps": 2_000, "sampling_steps": 6_000, "n_draws": 1_000}
SHORT = {"warmup_steps": 300, "sampling_steps": 100, "n_draws": 20}
STUDY, BLACKJAX = (replace(NaiveMclmc.presets()[preset], **SHORT) for preset in ("paper", "accurate"))


@pytest.fixture(scope="module")
def chains():
    """Return twelve chains of BlackJAX's defaults on a normal; its tuner takes a third of the steps that follow."""
    return run_chains(replace(BLACKJAX, **LONGER), NORMAL, np.ones((N_CHAINS, 20), np.float32), seed=3)


class TestConfiguration:
    def test_phases_add_up_to_the_budget(self):
        for configured in NaiveMclmc.presets().values():
            *tuning, sampling = configured.phases
            assert sum(phase.n_steps for phase in tuning) == configured.warmup_steps
            assert sampling.n_records == configured.n_draws
            assert configured.with_start(0.001) == configured

    def test_phases_of_blackjaxs_defaults_are_tenths_of_the_sampling_steps(self):
        phases = NaiveMclmc.presets()["accurate"].phases
        assert [phase.n_steps for phase in phases] == [4_500, 4_500, 1_500, 4_500, 45_000]

    def test_impossible_arguments_are_named(self):
        for arguments in (
            {"warmup_steps": 5},
            {"n_draws": 20, "sampling_steps": 10},
            {"fractions": (0.5, 0.5)},
            {"fractions": (0.5, 0.4, 0.3)},
            {"step_size": 0.0},
            {"energy_variance": -1.0},
            {"shortest_length": -1.0},
        ):
            with pytest.raises(ValueError, match=next(iter(arguments))):
                NaiveMclmc(**arguments)

    def test_the_first_step_size_is_the_root_of_the_dimension_or_what_was_asked_for(self):
        for configured, expected in [(STUDY, 4.0), (BLACKJAX, 1.0), (replace(STUDY, step_size=0.5), 0.5)]:
            start = jax.jit(lambda key, first=configured.phases[0]: first.init(key, jnp.zeros(16), STANDARD).step_size)
            assert start(jax.random.key(0)) == expected


class TestAgainstBlackJAX:
    def test_the_step_size_follows_theirs_from_the_same_energy_changes(self):
        """One phase of theirs on a kernel that only plays back given energy changes, some of them NaN."""
        numbers = {"dimension": 2, "target": 5e-4, "memory": 150.0, "trust": 1.5}

        @jax.jit
        def ours(changes):
            def update(carry, change):
                kept, (average, step_size) = jnp.isfinite(change), carry
                step_size, average = _published.update_step_size(
                    average, step_size, energy_change=jnp.where(kept, change, 0.0), kept=kept, **numbers
                )
                return (average, step_size), step_size

            first = jnp.asarray(0.5)
            return jax.lax.scan(update, (_published.init_average(first), first), changes)[1]

        found = []
        for seed, bad in enumerate(([0, 7, 30], [59], list(range(1, 60)))):
            changes = 0.03 * np.random.default_rng(seed).normal(size=60).astype(np.float32)  # near the wanted level
            changes[bad] = np.nan
            step_sizes = np.asarray(ours(changes))
            assert 0.0 < step_sizes.min() < step_sizes.max()
            found.append(step_sizes[-1])
            np.testing.assert_allclose(found[-1], playback(changes), rtol=1e-5)
        assert len(set(found)) == 3

    @pytest.mark.slow
    def test_tuning_of_a_normal_agrees_with_theirs(self, chains):
        """Means of step size and L over the chains, within five standard errors: one failure in 1.7 million."""
        keys = jax.random.split(jax.random.key(5), N_CHAINS)
        theirs = jax.vmap(lambda key: blackjax_tuning(key, LONGER["sampling_steps"]))(keys)
        for ours, other in [(chains.tuned.step_size, theirs.step_size), (chains.tuned.L, theirs.L)]:
            assert abs(ours.mean() - other.mean()) < 5.0 * np.sqrt((ours.var() + other.var()) / (N_CHAINS - 1))

    def test_new_units_reach_the_sampler(self, chains):
        """Where scales differ by a factor of 25, steps in units of the coordinates are several times as large."""
        *_, before, after, _, sampling = chains.info.values()
        assert np.all(after["step_size"] > 1.5 * before["step_size"])
        np.testing.assert_array_equal(sampling["step_size"], after["step_size"])

    def test_moments_of_the_normal_are_right(self, chains):
        """Five standard errors with a fifth of the draws effective, plus the bias.

        At an energy variance of 5e-4 second moments come out up to 4 % low (SCIENCE, section 4.1).
        """
        draws = chains.draws.astype(float).reshape(-1, 20) / SCALES
        assert chains.ok.all()
        n_effective = len(draws) / 5
        np.testing.assert_allclose(draws.mean(axis=0), 0.0, atol=5 / np.sqrt(n_effective))
        np.testing.assert_allclose(draws.var(axis=0), 0.98, atol=0.04 + 5 * np.sqrt(2 / n_effective))


@jax.jit
def playback(changes):
    """Return BlackJAX's step size after a phase whose kernel reports these energy changes."""
    key, position = jax.random.key(0), jnp.zeros(2)
    keys = jax.random.split(jax.random.split(key)[0], len(changes) + 1)[:-1]
    names = jax.random.key_data(jax.vmap(lambda key: jax.random.split(key)[0])(keys))  # what the kernel is called with

    def kernel(rng_key, state, logdensity_fn, inverse_mass_matrix, L, step_size):
        change = changes[jnp.argmax(jnp.all(names == jax.random.key_data(rng_key), axis=1))]
        return state, blackjax_mclmc.MCLMCInfo(state.logdensity, change, change, jnp.isfinite(change))

    state = blackjax_mclmc.IntegratorState(position, position, jnp.zeros(()), position)
    start = MCLMCAdaptationState(1.0, jnp.asarray(0.5), jnp.ones(2))
    options = {"frac_tune1": 1.0, "frac_tune2": 0.0, "frac_tune3": 0.0, "diagonal_preconditioning": False}
    _, found, _ = mclmc_find_L_and_step_size(kernel, len(changes), state, key, lambda x: 0.0, params=start, **options)
    return found.step_size


def blackjax_tuning(key, n_steps):
    """Return what BlackJAX's tuner finds on the normal target with its defaults."""
    init_key, tune_key = jax.random.split(key)
    state = blackjax_mclmc.init(jnp.ones(20), NORMAL.logdensity, init_key)
    _, found, _ = mclmc_find_L_and_step_size(blackjax_mclmc.build_kernel(), n_steps, state, tune_key, NORMAL.logdensity)
    return found


def tune(target, rule, kind="tune"):
    """Make one step, longer than the width of the box, from the middle of a target in ten dimensions."""
    state = _mclmc.init(jax.random.key(0), jnp.zeros(10), target)
    return getattr(rule, kind)(jax.random.key(1), state, target, jnp.ones(10), jnp.asarray(20.0), jnp.asarray(5.0))


update_step_size = jax.jit(_published.update_step_size)
update_moments = jax.jit(lambda rule, *arguments: rule.update_moments(*arguments), static_argnums=0)


class TestWeaknesses:
    """Each is the original's, kept on purpose; see `samplers/_published.py`."""

    def update(self, average, step_size, energy_change, kept=True):
        numbers = {"dimension": 2, "target": 0.5, "memory": 100.0, "trust": 1.5}
        step_size, energy_change = np.float32(step_size), np.float32(energy_change)
        return update_step_size(average, step_size, energy_change=energy_change, kept=kept, **numbers)

    def test_an_energy_change_whose_square_overflows_sets_the_step_size_to_zero_for_good(self):
        step_size, average = self.update(_published.init_average(jnp.zeros(())), 26.0, 1e20)
        assert step_size == 0.0
        assert self.update(average, step_size, 1.0)[0] == 0.0

    def test_a_step_size_equal_to_its_cap_becomes_zero(self):
        average = _published.init_average(jnp.zeros(()))
        assert self.update(average, 1.0, 1.0)[0] == 1.0
        assert self.update(average._replace(largest=jnp.ones(())), 1.0, 1.0)[0] == 0.0

    def test_a_bad_step_enters_the_average_with_an_eighth_of_full_weight(self):
        step_size, average = self.update(_published.init_average(jnp.zeros(())), 2.0, 0.0, kept=False)
        np.testing.assert_allclose(average.weight, np.exp(-0.5 * (np.log(1e-8) / 9.0) ** 2), rtol=1e-5)
        np.testing.assert_allclose(step_size, 1.6)

    @pytest.mark.parametrize(("rule", "dies"), [(Unguarded(), True), (Guarded(), False)])
    def test_a_phase_that_begins_with_a_bad_step_has_no_variances(self, rule, dies):
        ones = np.ones(50, np.float32)
        moments = update_moments(rule, _published.init_moments(jnp.ones(50)), ones, np.float32(0.0))
        moments = update_moments(rule, moments, ones, np.float32(1.0))
        assert np.isnan(moments.variance).all() == dies

    def test_variances_become_negative_where_the_mean_dwarfs_the_spread(self):
        moments, rng = _published.init_moments(jnp.zeros(50)), np.random.default_rng(0)
        for _ in range(20):
            position = (1e3 + 1e-3 * rng.normal(size=50)).astype(np.float32)
            moments = update_moments(Unguarded(), moments, position, np.float32(1.0))
        assert np.any(np.asarray(moments.variance) < 0.0)

    def test_one_coordinate_without_an_autocorrelation_time_takes_the_length_away(self):
        times, one = np.array([2.0, np.nan, 4.0], np.float32), np.float32(1.0)
        guarded = jax.jit(Guarded().length)
        assert np.isnan(jax.jit(Unguarded().length)(times, one, one))
        assert guarded(times, one, one) == 3.0
        assert guarded(np.full(3, np.inf, np.float32), one, 7.0 * one) == 7.0

    def test_while_tuning_only_positions_are_checked(self):
        """A step out of the box ends at a finite position of log density NaN, which is then called zero."""
        moved = tune(BOX, Unguarded())
        assert not moved.finite
        assert moved.kept == np.isfinite(moved.state.position).all()
        assert moved.state.logdensity == 0.0
        assert not moved.lost
        assert tune(BOX, Unguarded(), "sample").lost
        reverted = tune(BOX, Guarded())
        assert not reverted.kept
        np.testing.assert_array_equal(reverted.state.position, 0.0)


def test_the_published_step_is_ours_where_nothing_overflows():
    step_size, length = jnp.float32(0.7), jnp.float32(3.0)

    @jax.jit
    def both(key):
        def step(states, index):
            step_key = jax.random.fold_in(key, index)
            noise = jax.random.normal(step_key, (2, 10))
            ours, _ = _mclmc.integrate(noise, states[0], STANDARD, step_size, length)
            theirs = Unguarded().tune(step_key, states[1], STANDARD, jnp.ones(10), step_size, length).state
            return (ours, theirs), (ours.position, theirs.position)

        start = _mclmc.init(key, jax.random.normal(key, (10,)), STANDARD)
        return jax.lax.scan(step, (start, start), jnp.arange(20))[1]

    ours, theirs = both(jax.random.key(0))
    np.testing.assert_allclose(theirs, ours, atol=1e-4)
    assert np.ptp(ours, axis=0).min() > 0.1  # it moved


class TestTheDeadAreCounted:
    def test_a_chain_killed_by_overflow_says_so_and_what_killed_it(self):
        chains = run_chains(replace(STUDY, step_size=100.0), CLIFF, np.zeros((3, 10), np.float32), seed=0)
        assert chains.status == (Status.NON_FINITE,) * 3
        phases = chains.info
        assert np.all(phases["phase I"]["first_bad_step"] == 0)
        assert np.all(phases["phase I"]["step_size"] == 0.0)
        assert np.all(np.isnan(phases["phase II"]["L"]))
        assert np.all(phases["phase III"]["first_bad_step"] == 0)
        assert np.all(np.isnan(phases["sampling"]["first_bad_step"]))  # it was over before
        assert np.isfinite(chains.draws).all()
        assert np.all(chains.gradient_evaluations < 50)  # of 801: the dead make no steps

    def test_guards_do_not_notice_the_overflow_and_the_chain_is_frozen(self):
        """BlackJAX's guards keep everything finite, but the square of a finite energy change is not."""
        moved = tune(CLIFF, Guarded())
        assert moved.kept
        assert not moved.finite
        finished = BLACKJAX.phases[-1].finish(new_chain(moved.state, step_size=0.0))
        assert finished.status == Status.FROZEN

    def test_a_chain_that_dies_while_sampling_records_where_it_was_last_finite(self):
        box = FunctionTarget(Box(2.0))
        phase = replace(STUDY.phases[-1], n_steps=400)

        @jax.jit
        def run(key):
            start = new_chain(_mclmc.init(jax.random.key(0), jnp.zeros(4), box), step_size=0.5)
            keys = jax.random.split(key, 400)
            chain, draws = jax.lax.scan(lambda chain, key: phase.step(key, chain, box), start, keys)
            return phase.finish(chain), draws, jax.vmap(box.logdensity)(draws.position)

        finished, draws, logdensity = jax.tree.map(np.asarray, run(jax.random.key(1)))
        last = int(finished.report["first_bad_step"])
        assert finished.status == Status.NON_FINITE
        assert 5 < last < 399
        assert finished.report["gradient_evaluations"] == 1 + 2 * (last + 1)
        assert np.all(draws.position[last:] == draws.position[last - 1])
        assert np.all(draws.energy_change[last:] == 0.0)
        assert np.all(draws.energy_change[:last] != 0.0)
        np.testing.assert_allclose(draws.logdensity, logdensity, rtol=1e-5)

    def test_bits_do_not_depend_on_the_length_of_blocks(self):
        """Two chains that are dead from the first step on, and two that begin where no step leads over the cliff."""
        positions = np.zeros((4, 10), np.float32)
        sampler = replace(STUDY, step_size=2.0)
        whole = run_chains(sampler, CLIFF, positions, seed=2)
        assert_same_bits(run_chains(sampler, CLIFF, positions, seed=2, block_steps=7), whole)


def new_chain(state, step_size):
    number = jnp.asarray(step_size)
    return NaiveChain(state, jnp.ones_like(state.position), number, jnp.asarray(2.0), _open_journal(state.logdensity))


@pytest.mark.parametrize("sampler", [STUDY, BLACKJAX], ids=["study", "blackjax"])
def test_carries_keep_their_types_in_double_precision(sampler):
    with jax.enable_x64(True):
        target, key, carry = STANDARD, jax.random.key(0), np.zeros(6)
        for phase in sampler.phases:
            carry = jax.eval_shape(lambda carry, phase=phase: phase.init(key, carry, target), carry)
            after, _ = jax.eval_shape(lambda carry, phase=phase: phase.step(key, carry, target), carry)
            assert jax.tree.map(lambda leaf: leaf.dtype, after) == jax.tree.map(lambda leaf: leaf.dtype, carry)
            assert not any(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(after))
            carry = jax.eval_shape(phase.finish, after).carry
