"""Adjusted MCLMC: trajectories and adaptation against BlackJAX, its units, its statuses and its arguments."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.adaptation.step_size import dual_averaging_adaptation
from blackjax.mcmc import integrators
from blackjax.mcmc.adjusted_mclmc import adjusted_mclmc_proposal, rescale

import mile
from mile import Status, _types
from mile.samplers import _mclmc, _trajectories
from mile.samplers._adjusted_phases import AdjustedSamplingPhase
from mile.samplers.adjusted import Adjusted
from mile.sampling.chains import run_chains

SCALES = np.geomspace(0.1, 10.0, 8).astype(np.float32)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Target(_types.Target):
    """Tails lighter than a normal's, and NaN outside a box; its size is data, so that all share their programs."""

    half_width: float = np.inf  # in units of SCALES

    def logdensity(self, x):
        x = x / SCALES
        inside = jnp.all(jnp.abs(x) < self.half_width)
        return jnp.where(inside, -0.5 * jnp.sum(jnp.square(x)) - 0.02 * jnp.sum(x**4), jnp.nan)

    def value_and_grad(self, x):
        return jax.value_and_grad(self.logdensity)(x)


TARGET = Target()
SHORT = Adjusted(warmup_steps=2_000, sampling_steps=1_000, n_draws=500, step_size=0.5)


def walk_from(state, unit, n_steps):
    """Return a trajectory that begins at `state` and has `n_steps` to go."""
    zero, count = jnp.zeros_like(state.logdensity), jnp.zeros((), jnp.int32)
    return _trajectories.Walk(
        draw=state,
        moving=state,
        energy_change=zero,
        finite=jnp.ones((), bool),
        steps_left=jnp.asarray(n_steps, jnp.int32),
        last_energy_change=zero,
        unit=unit,
        start_logdensity=state.logdensity,
        tally=_trajectories.ProposalTally(count, count, count, zero, zero),
    )


def test_a_proposal_in_units_is_blackjaxs_with_that_metric():
    """The same velocity, five steps, in double precision; the larger step has an energy error of order one."""

    @jax.jit
    def both(step_size):
        unit, key = jnp.asarray(SCALES, jnp.float64), jax.random.key(3)
        ours = _mclmc.init(key, 0.7 * jnp.ones(8), mile.posterior.RescaledTarget(target=TARGET, scale=unit))
        kernel = integrators.isokinetic_mclachlan(lambda x: TARGET.logdensity(unit * x))
        proposal = adjusted_mclmc_proposal(integrators.with_isokinetic_maruyama(kernel), step_size, jnp.inf, 5, 1000.0)
        _, info, _ = proposal(key, integrators.IntegratorState(*ours))

        def advance(walk, index):
            walk, ended, probability = _trajectories.advance(
                jax.random.key(index), walk, TARGET, step_size, jnp.asarray(5.0)
            )
            return walk, (ended, probability)

        walk, (ended, probability) = jax.lax.scan(advance, walk_from(ours, unit, 5), jnp.arange(5))
        return walk.tally, ended, probability[-1], info.acceptance_rate

    with jax.enable_x64(True):
        for step_size in (0.3, 2.0):
            tally, ended, probability, theirs = both(step_size)
            assert ended.tolist() == [False] * 4 + [True]
            assert tally.proposals == 1
            assert tally.acceptance == probability
            np.testing.assert_allclose(tally.acceptance, theirs, rtol=1e-9)


def test_the_number_of_steps_has_the_mean_that_is_wanted():
    uniform = ((np.arange(200_000) + 0.5) / 200_000).astype(np.float32)
    both = jax.jit(lambda mean: (_trajectories._number_of_steps(uniform, mean), rescale(mean)))
    for mean in (1.0, 1.2, 2.0, 7.5, 100.0):
        numbers, rescaled = map(np.asarray, both(mean))
        assert numbers.min() == 1
        np.testing.assert_allclose(numbers.mean(), mean, rtol=1e-3)
        np.testing.assert_array_equal(numbers, np.maximum(np.ceil(uniform * rescaled), 1))


def test_dual_averaging_is_blackjaxs():
    """But for its gain, and for the point to which it is drawn."""
    init, update, _ = dual_averaging_adaptation(0.9, t0=10, gamma=0.2, kappa=0.75)
    update, average = jax.jit(update), jax.jit(_trajectories.average)
    theirs = init(0.3)
    ours = _trajectories.start_averaging(jnp.asarray(0.3))._replace(center=jnp.log(3.0))
    for acceptance in np.random.default_rng(0).uniform(size=30):
        theirs = update(theirs, acceptance)
        previous, ours = ours, average(ours, np.float32(0.9 - acceptance))
        np.testing.assert_allclose(ours.log_step_size, theirs.log_step_size, rtol=1e-4)
        # Its average lags behind by one step; Hoffman and Gelman's includes the newest.
        share = float(ours.count) ** -0.75
        expected = share * ours.log_step_size + (1.0 - share) * previous.log_average
        np.testing.assert_allclose(ours.log_average, expected, rtol=1e-4)


@pytest.fixture(scope="module")
def chains():
    start = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    return run_chains(SHORT, TARGET, start, seed=1)


class TestAChain:
    def test_records_draws_in_the_targets_units(self, chains):
        expected = jax.jit(jax.vmap(jax.vmap(TARGET.logdensity)))(chains.draws)
        np.testing.assert_allclose(chains.logdensity, expected, rtol=1e-4, atol=1e-4)

    def test_learns_units_in_which_all_coordinates_are_alike(self, chains):
        """Over seeds the ratio to the largest has a spread of about 10 %."""
        ratio = np.sqrt(chains.tuned.inverse_mass) / SCALES
        np.testing.assert_allclose(ratio / ratio.mean(axis=1, keepdims=True), 1.0, atol=0.5)

    def test_accepts_as_often_as_it_was_told(self, chains):
        np.testing.assert_allclose(chains.info["sampling"]["acceptance"], 0.9, atol=0.07)

    def test_costs_two_gradients_a_step(self, chains):
        assert (chains.gradient_evaluations == 2 * 3_000 + 1).all()

    def test_has_a_virial_of_one(self, chains):
        """Its standard error is about 0.1: 24 numbers from 500 draws each, of which a fifth count."""
        np.testing.assert_allclose(chains.virial.mean(), 1.0, atol=0.3)

    def test_stays_where_it_was_when_a_proposal_is_rejected(self, chains):
        still = np.all(np.diff(chains.draws, axis=1) == 0.0, axis=2)
        np.testing.assert_array_equal(still, np.diff(chains.logdensity) == 0.0)
        assert 0.0 < still.mean() < 0.9


def test_proposals_that_leave_the_support_are_rejected_and_counted():
    start = SCALES * np.random.default_rng(1).uniform(-0.5, 0.5, (2, 8)).astype(np.float32)
    chains = run_chains(SHORT, Target(half_width=1.5), start, seed=0)
    assert chains.ok.all()
    assert np.isfinite(chains.draws).all()
    assert np.abs(chains.draws / SCALES).max() < 1.5
    bad = [report["bad_proposals"] for report in chains.info.values() if "bad_proposals" in report]
    assert np.all(np.sum(bad, axis=0) > 0)
    np.testing.assert_allclose(chains.info["sampling"]["acceptance"], 0.9, atol=0.1)


def test_a_chain_that_hardly_moves_is_frozen():
    """The status of sampling is judged by moves, so that accepted steps too small for the precision do not count."""
    phase = AdjustedSamplingPhase(name="sampling", n_steps=50, n_records=10, longest=3)
    from_adaptation = jax.eval_shape(
        lambda key: SHORT.phases[2].init(key, SHORT.phases[1].init(key, jnp.ones(8), TARGET), TARGET),
        jax.random.key(0),
    )

    @jax.jit
    def run(step_size):
        adapting = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), from_adaptation)
        walk = walk_from(_mclmc.init(jax.random.key(0), jnp.ones(8), TARGET), jnp.ones(8), 1)
        averaging = _trajectories.start_averaging(step_size)
        carry = phase.init(jax.random.key(1), adapting._replace(walk=walk, averaging=averaging, L=jnp.ones(())), TARGET)
        step = lambda index, carry: phase.step(jax.random.key(index), carry, TARGET)[0]  # noqa: E731
        return phase.finish(jax.lax.fori_loop(0, 50, step, carry)).status

    assert run(jnp.float32(1e-12)) == Status.FROZEN
    assert run(jnp.float32(0.3)) == Status.OK


def test_impossible_arguments_are_named():
    for name, arguments in (
        ("warmup_steps", {"warmup_steps": 5}),
        ("n_draws", {"n_draws": 20, "sampling_steps": 10}),
        ("target_acceptance", {"target_acceptance": 1.0}),
        ("length_factor", {"length_factor": 0.0}),
        ("step_size", {"step_size": -1.0}),
        ("n_fft_samples", {"n_fft_samples": 3}),
        ("fractions", {"fractions": (0.5, 0.5)}),
        ("fractions", {"fractions": (0.5, 0.1, 0.1, 0.1, 0.1, 0.2)}),
        ("phase I", {"warmup_steps": 8, "fractions": (0.01, 0.19, 0.2, 0.2, 0.2, 0.2)}),
    ):
        with pytest.raises(ValueError, match=name):
            Adjusted(**arguments)


def test_an_open_step_size_is_refused_until_it_is_filled_in():
    with pytest.raises(ValueError, match="with_start"):
        _ = Adjusted().phases
    assert Adjusted().with_start(0.1).with_start(0.2).step_size == 0.1


def test_presets_cost_three_times_miles():
    for name, preset in Adjusted.presets().items():
        ratio = preset.gradient_evaluations() / mile.samplers.configure("mile", name).gradient_evaluations()
        assert 2.9 < ratio < 3.1
        assert sum(phase.n_steps for phase in preset.with_start(0.1).phases) * 2 + 1 == preset.gradient_evaluations()
