"""MILE's two options: a diagonal metric that reaches the sampler, and the limit on the energy of a step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mile
from mile import Mile
from mile.posterior import FunctionTarget, Scaled
from mile.samplers import _mclmc, _virial
from mile.samplers._phases import Sample, Sampling, TuneStepSize
from mile.samplers._step_size import Geometric

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
        inverse_mass, position = jnp.asarray(SCALES**2), jnp.asarray(START[0])
        scaled = Scaled(target=TARGET, scale=jnp.sqrt(inverse_mass))
        state = _mclmc.init(jax.random.key(0), position / SCALES, scaled)
        phase = Sample(name="sampling", n_steps=10, n_records=10)
        carry = Sampling(state, _tuned(0.5, 2.0, inverse_mass), _health(state), _virial.init(state.position))
        _, draw = phase.step(jax.random.key(1), carry, TARGET)
        expected, info = _mclmc.step(jax.random.key(1), state, scaled, jnp.float32(0.5), jnp.float32(2.0))
        np.testing.assert_allclose(draw.position, expected.position * SCALES, rtol=1e-6)
        np.testing.assert_allclose(draw.logdensity, TARGET.logdensity(draw.position), rtol=1e-5)
        np.testing.assert_allclose(draw.energy_change, info.energy_change, rtol=1e-5)

    def test_a_coordinate_that_has_not_moved_gets_a_unit_that_can_be_divided_by(self):
        flat = FunctionTarget(lambda x: -0.5 * jnp.sum(jnp.square(x)) + jnp.nan)
        with pytest.raises(mile.FitFailedError):
            mile.sample(flat.function, np.zeros((2, 3)), Mile(diagonal_metric=True, **BUDGETS), random_state=0)


class TestEnergyLimit:
    def test_takes_a_step_back_and_turns(self):
        state = _mclmc.init(jax.random.key(0), jnp.asarray(START[0]), TARGET)
        level = 0.1
        for limit, goes_back in [(1e-6, True), (1e12, False)]:
            phase = _tuning(energy_limit=limit)
            carry = phase.init(jax.random.key(0), jnp.asarray(START[0]), TARGET)
            after, record = phase.step(jax.random.key(1), carry, TARGET)
            free, info = _mclmc.step(jax.random.key(1), carry.state, TARGET, jnp.float32(0.05), 15.0)
            assert bool(info.energy_change**2 > limit * level * 12) == goes_back
            expected = state.position if goes_back else free.position
            np.testing.assert_allclose(after.state.position, expected, rtol=1e-5)
            assert after.health.refused_steps == goes_back
            assert (np.linalg.norm(after.state.velocity - carry.state.velocity) > 0.5) == goes_back
            assert record.logdensity == after.state.logdensity

    def test_is_counted_in_the_report_and_off_by_default(self, plain):
        assert "refused_steps" not in plain.info["sampling"]
        sampler = Mile(energy_limit=5.0, warmup_steps=1_000, sampling_steps=1_000, n_draws=100)
        chains = mile.sample(TARGET.function, START, sampler, random_state=1)
        refused = chains.info["sampling"]["refused_steps"]
        assert np.all((refused > 0) & (refused < 500))
        assert chains.ok.all()


def test_a_phase_two_that_cannot_be_cut_in_three_is_named():
    with pytest.raises(ValueError, match="phase II"):
        Mile(diagonal_metric=True, warmup_steps=20)


def _phases(diagonal_metric):
    return Mile(diagonal_metric=diagonal_metric, step_size=0.1, **BUDGETS).phases


def _tuning(**options) -> TuneStepSize:
    (first, *_) = Mile(step_size=0.05, **BUDGETS, **options).phases
    assert isinstance(first, TuneStepSize)
    return first


def _tuned(*numbers):
    return mile.samplers.Tuned(jnp.float32(numbers[0]), jnp.float32(numbers[1]), numbers[2])


def _health(state):
    zero = jnp.zeros((), jnp.int32)
    return mile.samplers.base.Health(state.logdensity, zero, jnp.zeros_like(state.logdensity), zero)
