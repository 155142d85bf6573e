"""MILE's two options: a diagonal metric that reaches the sampler, and the limit on the energy of a step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from targets import small_positions, small_posterior

import mile
from mile import Mile
from mile.posterior import FunctionTarget, RescaledTarget
from mile.samplers import _mclmc, _virial
from mile.samplers._phases import MileSampling, MileSamplingPhase, MileStepSizePhase
from mile.samplers._step_size import Geometric
from mile.sampling.chains import run_chains

SCALES = np.geomspace(0.01, 10.0, 12).astype(np.float32)
TARGET = FunctionTarget(lambda x: -0.5 * jnp.sum(jnp.square(x / SCALES)))
START = SCALES * np.random.default_rng(0).standard_normal((4, 12)).astype(np.float32)
BUDGETS = {"warmup_steps": 12_000, "sampling_steps": 8_000, "n_draws": 2_000, "fractions": (0.5, 0.3, 0.2)}


@pytest.fixture(scope="module")
def plain():
    return mile.sample(TARGET.function, START, Mile(schedule=Geometric(), **BUDGETS), random_state=1)


@pytest.fixture(scope="module")
def preconditioned():
    sampler = Mile(schedule=Geometric(), diagonal_metric=True, **BUDGETS)
    return mile.sample(TARGET.function, START, sampler, random_state=1)


class TestDiagonalMetric:
    def test_is_the_variances_of_phase_two_and_travels_to_the_end(self, preconditioned):
        metric = preconditioned.info["metric"]["inverse_mass"]
        assert metric.shape == (4, 12)
        # The variances span a factor of a million; of the widest coordinate phase II sees only a part.
        assert np.all(np.abs(np.log(np.median(metric, axis=0) / SCALES**2)) < np.log(8.0))
        for found in (preconditioned.info["sampling"]["inverse_mass"], preconditioned.tuned.inverse_mass):
            np.testing.assert_array_equal(found, metric)

    def test_makes_the_slowest_coordinate_mix(self, plain, preconditioned):
        """Scales from 0.01 to 10: without units of their own the wide ones need a thousand times the steps."""

        def worst(chains):
            second = np.square(chains.draws.astype(float) / SCALES).mean(axis=(0, 1))
            return np.max(np.abs(second - 1.0))

        assert worst(preconditioned) < 0.15
        assert worst(plain) > 2.0 * worst(preconditioned)

    def test_keeps_the_budget(self, plain, preconditioned):
        np.testing.assert_array_equal(plain.gradient_evaluations, preconditioned.gradient_evaluations)
        n_steps = [sum(phase.n_steps for phase in chains) for chains in (_phases(False), _phases(True))]
        assert n_steps[0] == n_steps[1] == 20_000
        assert [phase.name for phase in _phases(True)] == ["phase I", "phase II", "metric", "phase III", "sampling"]

    def test_a_step_is_one_on_the_target_in_those_units(self):
        phase = MileSamplingPhase(name="sampling", n_steps=10, n_records=10)

        @jax.jit
        def both(key):
            inverse_mass = jnp.asarray(SCALES**2)
            scaled = RescaledTarget(target=TARGET, scale=jnp.sqrt(inverse_mass))
            state = _mclmc.init(key, START[0] / SCALES, scaled)
            carry = MileSampling(state, _tuned(0.5, 2.0, inverse_mass), _health(state), _virial.init(state.position))
            return phase.step(key, carry, TARGET)[1], _mclmc.step(key, state, scaled, 0.5, 2.0)

        draw, (expected, info) = both(jax.random.key(1))
        np.testing.assert_allclose(draw.position, expected.position * SCALES, rtol=1e-6)
        np.testing.assert_allclose(draw.logdensity, -0.5 * np.square(draw.position / SCALES).sum(), rtol=1e-5)
        np.testing.assert_allclose(draw.energy_change, info.energy_change, rtol=1e-5)

    def test_a_coordinate_that_has_not_moved_gets_a_unit_that_can_be_divided_by(self):
        """From where the density is zero no chain moves: it fails as any other, without a division by zero."""
        sampler = Mile(schedule=Geometric(), diagonal_metric=True, **BUDGETS)
        with pytest.raises(mile.FitFailedError, match="its starting point"):
            mile.sample(TARGET.function, np.full((2, 12), 1e30), sampler, random_state=0)


class TestEnergyLimit:
    def test_takes_a_step_back_and_turns(self):
        level = 0.1

        @jax.jit
        def both(phase, key):
            carry = phase.init(key, jnp.asarray(START[0]), TARGET)
            free = _mclmc.step(key, carry.state, TARGET, jnp.float32(0.05), 15.0)
            return carry, phase.step(key, carry, TARGET), free

        for limit, goes_back in [(1e-9, True), (1e12, False)]:
            found = both(_tuning(energy_limit=limit), jax.random.key(1))
            carry, (after, record), (free, info) = jax.tree.map(np.asarray, found)
            assert (info.energy_change**2 > limit * level * 12) == goes_back
            expected = START[0] if goes_back else free.position
            np.testing.assert_allclose(after.state.position, expected, rtol=1e-5)
            assert after.health.refused_steps == goes_back
            assert (np.linalg.norm(after.state.velocity - carry.state.velocity) > 0.5) == goes_back
            assert record.logdensity == after.state.logdensity

    def test_is_counted_in_the_report_and_off_by_default(self, plain):
        assert "refused_steps" not in plain.info["sampling"]
        sampler = Mile(energy_limit=5.0, step_size=0.05, warmup_steps=1_000, sampling_steps=1_000, n_draws=100)
        chains = run_chains(sampler, small_posterior(), small_positions(), seed=1)
        refused = chains.info["sampling"]["refused_steps"]
        assert np.all((refused > 0) & (refused < 500))
        assert chains.ok.all()


def test_a_phase_two_that_cannot_be_cut_in_three_is_named():
    with pytest.raises(ValueError, match="phase II"):
        Mile(diagonal_metric=True, warmup_steps=20)


def _phases(diagonal_metric):
    return Mile(diagonal_metric=diagonal_metric, step_size=0.1, **BUDGETS).phases


def _tuning(**options) -> MileStepSizePhase:
    (first, *_) = Mile(step_size=0.05, **BUDGETS, **options).phases
    assert isinstance(first, MileStepSizePhase)
    return first


def _tuned(*numbers):
    return mile.samplers.Tuned(jnp.float32(numbers[0]), jnp.float32(numbers[1]), numbers[2])


def _health(state):
    zero = jnp.zeros((), jnp.int32)
    return mile.samplers.base.Health(state.logdensity, zero, jnp.zeros_like(state.logdensity), zero)
