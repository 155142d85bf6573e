"""The kernel against BlackJAX's, its order, its precision, and what it does with steps that are not finite."""

import itertools
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.mcmc import mclmc as blackjax_mclmc
from targets import IllConditioned, StandardNormal

from mile import MLP, Gaussian, Normal
from mile.posterior import FunctionTarget, Posterior, pad_rows
from mile.samplers import _mclmc


def mlp_posterior():
    """Return the posterior of a 2-4-2 network given 40 rows, in the precision that is switched on."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((40, 2))
    network = MLP(n_inputs=2, hidden=(4,), activation="tanh")
    rows = pad_rows(x, np.sin(x[:, 0]) + 0.1 * rng.standard_normal(40))
    return Posterior(rows=rows, network=network, likelihood=Gaussian(), prior=Normal())


# Each target with its dimension, L, and a step size that turns the velocity by a fair angle at each step.
TARGETS = {
    "standard normal": (lambda: FunctionTarget(StandardNormal()), 2, 3.0, 0.5),
    "condition 100, no refreshment": (lambda: FunctionTarget(IllConditioned(20, 100.0, np.float64)), 20, np.inf, 2.0),
    "network": (mlp_posterior, MLP(n_inputs=2, hidden=(4,)).dimension, 3.0, 0.05),
}


def random_state(target, dimension, seed=0):
    key_position, key_velocity = jax.random.split(jax.random.key(seed))
    return _mclmc.init(key_velocity, jax.random.normal(key_position, (dimension,)), target)


class TestAgainstBlackJAX:
    @pytest.mark.parametrize("name", TARGETS)
    def test_hundred_steps_from_the_same_noise_agree(self, name):
        """Step size, L, dimension, velocity and sign of the energy change all mean the same in both kernels."""
        build, dimension, length, step_size = TARGETS[name]
        with jax.enable_x64(True):
            target = build()
            ours = random_state(target, dimension)
            theirs = blackjax_mclmc.IntegratorState(*ours)
            kernel = blackjax_mclmc.build_kernel()

            def both(states, key):
                ours, theirs = states
                # The kernel splits its key in three, of which the refreshments share the first.
                halves = jax.random.split(jax.random.split(key, 3)[0])
                noise = jnp.stack([jax.random.normal(half, (dimension,)) for half in halves])
                before = ours.logdensity
                ours, kinetic = _mclmc.integrate(noise, ours, target, step_size, length)
                theirs, info = kernel(key, theirs, target.logdensity, 1.0, length, step_size)
                return (ours, theirs), (ours, theirs, kinetic - ours.logdensity + before, info)

            keys = jax.random.split(jax.random.key(1), 100)
            _, (ours, theirs, energy_change, info) = jax.lax.scan(both, (ours, theirs), keys)
            assert info.nonans.all()
            assert np.ptp(ours.position, axis=0).min() > 0.1  # it moved
            assert np.abs(energy_change).max() > 1e-4
            for mine, other in zip((*ours, energy_change), (*theirs, info.energy_change), strict=True):
                np.testing.assert_allclose(mine, other, rtol=0, atol=1e-9)

    def test_a_step_is_the_integrator_fed_with_standard_normal_noise(self):
        with jax.enable_x64(True):
            target, key, step_size = FunctionTarget(StandardNormal()), jax.random.key(2), jnp.asarray(0.5)
            state = random_state(target, 4)
            after, info = _mclmc.step(key, state, target, step_size, 3.0)
            expected, kinetic = _mclmc.integrate(jax.random.normal(key, (2, 4)), state, target, step_size, 3.0)
            energy_change = kinetic - expected.logdensity + state.logdensity
            assert info.finite
            for mine, other in zip((*after, info.energy_change), (*expected, energy_change), strict=True):
                np.testing.assert_allclose(mine, other, rtol=1e-12, atol=1e-12)


def test_energy_error_is_of_third_order_in_the_step_size():
    """A13: its standard deviation falls by 8 for every halving, the sixth power that the step-size rule relies on.

    From exact draws, with the same noise for all step sizes: 8.42 and 8.11, each with a standard deviation of 0.03
    over seeds. False failure: far below 1e-9.
    """
    target, dimension = FunctionTarget(StandardNormal()), 100

    @jax.jit
    def spread(step_size):
        def energy_change(key):
            key_start, key_velocity, key_step = jax.random.split(key, 3)
            state = _mclmc.init(key_velocity, jax.random.normal(key_start, (dimension,)), target)
            return _mclmc.step(key_step, state, target, step_size, 10.0)[1].energy_change

        return jax.vmap(energy_change)(jax.random.split(jax.random.key(0), 10_000)).std()

    errors = [float(spread(step_size)) for step_size in (8.0, 4.0, 2.0)]
    assert errors[0] / errors[1] == pytest.approx(8.0, rel=0.1)
    assert errors[1] / errors[2] == pytest.approx(8.0, rel=0.1)


def exact_kinetic_change(delta, cosine):
    """The plain form in extended precision; its log1p form where the plain one would cancel."""
    delta, cosine = delta.astype(np.longdouble), cosine.astype(np.longdouble)
    shrinkage = -0.5 * (1 - cosine) * np.expm1(-2 * delta)
    with np.errstate(divide="ignore"):
        precise = delta + np.log1p(-shrinkage)
    plain = delta - np.log(np.longdouble(2)) + np.log(1 + cosine + (1 - cosine) * np.exp(-2 * delta))
    return np.where(shrinkage < 0.5, precise, plain)


class TestKineticChange:
    DELTAS = np.geomspace(1e-8, 50.0, 400).astype(np.float32)
    NEARLY_ONE = float(np.nextafter(np.float32(1), np.float32(0)))

    @pytest.mark.parametrize(
        "cosine", [-1.0, -NEARLY_ONE, -0.999, -0.9, -0.5, -1e-3, 0.0, 1e-6, 0.3, 0.9, NEARLY_ONE, 1.0]
    )
    def test_is_precise_in_float32_for_kicks_of_any_size(self, cosine):
        """The result is a difference of numbers as large as delta, whose rounding is all that may be lost."""
        cosines = np.full_like(self.DELTAS, cosine)
        change = _mclmc._kinetic_change(self.DELTAS, cosines)
        assert change.dtype == jnp.float32
        expected = exact_kinetic_change(self.DELTAS, cosines).astype(float)
        error = np.abs(np.asarray(change, float) - expected) / self.DELTAS
        assert error.max() < 12 * np.finfo(np.float32).eps, self.DELTAS[np.argmax(error)]

    @pytest.mark.parametrize(("cosine", "sign"), [(1.0, 1.0), (-1.0, -1.0)])
    def test_along_the_gradient_the_whole_kick_becomes_kinetic_energy(self, cosine, sign):
        delta = jnp.asarray(self.DELTAS[self.DELTAS < 40])
        change = _mclmc._kinetic_change(delta, jnp.full_like(delta, cosine))
        np.testing.assert_allclose(change, sign * delta, rtol=1e-6)


class TestVelocity:
    def test_stays_a_unit_vector_over_thousands_of_steps(self):
        target = FunctionTarget(StandardNormal())

        def advance(state, key):
            state, _ = _mclmc.step(key, state, target, jnp.float32(3.0), 5.0)
            return state, jnp.linalg.norm(state.velocity)

        start = random_state(target, 50)
        _, norms = jax.lax.scan(advance, start, jax.random.split(jax.random.key(3), 3_000))
        np.testing.assert_allclose(norms, 1.0, atol=1e-6)

    def test_first_direction_is_uniform(self):
        """False failure: 4e-8 for each of 6 numbers."""
        like = jnp.zeros(3)
        directions = np.asarray(
            jax.vmap(lambda key: _mclmc.random_direction(key, like))(jax.random.split(jax.random.key(4), 20_000)), float
        )
        np.testing.assert_allclose(np.linalg.norm(directions, axis=1), 1.0, atol=1e-6)
        # On a sphere each coordinate is uniform on [-1, 1] (Archimedes): variances 1/3, and of its square 4/45.
        assert np.all(np.abs(directions.mean(axis=0)) < 5.5 * np.sqrt(1 / 3 / 20_000))
        assert np.all(np.abs(np.square(directions).mean(axis=0) - 1 / 3) < 5.5 * np.sqrt(4 / 45 / 20_000))

    def test_zero_gradient_lets_the_chain_fly_straight_on(self):
        target = FunctionTarget(lambda x: 0.0 * x.sum())
        state = random_state(target, 5)
        after, info = _mclmc.step(jax.random.key(6), state, target, jnp.float32(0.5), jnp.inf)
        assert info.finite
        assert info.energy_change == 0.0
        np.testing.assert_allclose(after.velocity, state.velocity, rtol=1e-6)
        np.testing.assert_allclose(after.position, state.position + 0.5 * state.velocity, rtol=1e-5)

    @pytest.mark.parametrize("delta", [0.1, 1.0, 5.0, 9.0, 15.0])
    def test_opposite_to_the_gradient_is_harmless(self, delta):
        """Rounding may then put the cosine beyond -1, where the logarithm of the plain form has no value."""
        dimension = 7
        gradients = jax.random.normal(jax.random.key(7), (500, dimension))
        gradients /= jnp.linalg.norm(gradients, axis=1, keepdims=True)
        velocity, change = jax.vmap(lambda g: _mclmc._kick(-g, g, jnp.float32(delta * (dimension - 1))))(gradients)
        assert jnp.isfinite(velocity).all()
        assert jnp.isfinite(change).all()


@dataclass(frozen=True)
class Scripted:
    """A flat target until its last evaluation (`at` 2) or the one before (`at` 1), where it answers as told."""

    logdensity_answer: float = 0.0
    gradient_answer: tuple[float, ...] = (0.0, 0.0, 0.0)
    at: int = 2
    evaluations: list = field(default_factory=list)

    def value_and_grad(self, position):
        self.evaluations.append(position)
        told = len(self.evaluations) == self.at
        answer = (self.logdensity_answer, self.gradient_answer) if told else (0.0, (0.0, 0.0, 0.0))
        return jnp.asarray(answer[0], position.dtype), jnp.asarray(answer[1], position.dtype)


class TestStepsThatAreNotFinite:
    STATE = _mclmc.State(
        position=jnp.array([1.0, -2.0, 3.0]),
        velocity=jnp.array([0.6, 0.0, -0.8]),
        logdensity=jnp.float32(-4.5),
        gradient=jnp.array([0.1, 0.2, 0.3]),
    )

    def check_reverted(self, state, after, info):
        assert not info.finite
        assert info.energy_change == 0.0
        for name in ("position", "logdensity", "gradient"):
            np.testing.assert_array_equal(getattr(after, name), getattr(state, name))
        assert jnp.linalg.norm(after.velocity) == pytest.approx(1.0, abs=1e-6)
        assert jnp.abs(after.velocity - state.velocity).max() > 0.01

    @pytest.mark.parametrize(
        "target",
        [
            pytest.param(Scripted(float("nan")), id="log density NaN"),
            pytest.param(Scripted(float("inf")), id="log density +inf"),
            pytest.param(Scripted(float("-inf")), id="log density -inf"),
            pytest.param(Scripted(-1e25), id="square of the energy change overflows"),
            pytest.param(Scripted(1e25), id="square of a fall in energy overflows"),
            pytest.param(Scripted(0.0, (0.0, float("nan"), 1.0)), id="one entry of the gradient NaN"),
            pytest.param(Scripted(0.0, (0.0, float("inf"), 1.0)), id="one entry of the gradient infinite"),
            pytest.param(Scripted(0.0, (1e30, 1e30, -1e30)), id="norm of the gradient overflows: no velocity"),
            pytest.param(Scripted(0.0, (float("nan"),) * 3, at=1), id="gradient NaN halfway"),
            pytest.param(Scripted(0.0, (0.0, float("-inf"), 0.0), at=1), id="gradient infinite halfway"),
        ],
    )
    def test_chain_stays_where_it_was_and_takes_a_fresh_direction(self, target):
        after, info = _mclmc.step(jax.random.key(8), self.STATE, target, jnp.float32(0.1), 1.0)
        assert len(target.evaluations) == _mclmc.GRADIENTS_PER_STEP
        self.check_reverted(self.STATE, after, info)

    def test_position_that_overflows_is_reverted_even_if_the_target_does_not_mind(self):
        # No gradient, so that the energy change is zero and shows nothing.
        state = self.STATE._replace(
            position=jnp.array([3e38, 0.0, 0.0]), logdensity=jnp.float32(0.0), gradient=jnp.zeros(3)
        )
        after, info = _mclmc.step(jax.random.key(8), state, Scripted(), jnp.float32(3e38), jnp.inf)
        self.check_reverted(state, after, info)

    def test_velocity_that_is_lost_is_replaced(self):
        state = self.STATE._replace(velocity=jnp.full(3, jnp.nan))
        after, info = _mclmc.step(jax.random.key(8), state, Scripted(), jnp.float32(0.1), 1.0)
        assert not info.finite
        np.testing.assert_array_equal(after.position, state.position)
        assert jnp.linalg.norm(after.velocity) == pytest.approx(1.0, abs=1e-6)

    def test_large_energy_change_whose_square_is_finite_is_accepted(self):
        after, info = _mclmc.step(jax.random.key(8), self.STATE, Scripted(-1e18), jnp.float32(0.1), 1.0)
        assert info.finite
        assert info.energy_change == pytest.approx(1e18)
        assert after.logdensity == -1e18

    def test_fresh_directions_differ_from_step_to_step(self):
        velocities = [
            _mclmc.step(jax.random.key(seed), self.STATE, Scripted(float("nan")), jnp.float32(0.1), 1.0)[0].velocity
            for seed in range(3)
        ]
        assert all(jnp.abs(a - b).max() > 0.01 for a, b in itertools.pairwise(velocities))
