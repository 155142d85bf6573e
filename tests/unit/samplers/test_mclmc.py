"""The kernel against BlackJAX's, its order, its precision, and what it does with steps that are not finite."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.mcmc import mclmc as blackjax_mclmc
from targets import IllConditioned, StandardNormal

from mile import MLP, Gaussian, Normal
from mile._types import Target
from mile.padded_rows import pad_rows
from mile.posterior import FunctionTarget, Posterior
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
            target, kernel = build(), blackjax_mclmc.build_kernel()

            def both(states, key):
                ours, theirs = states
                # The kernel splits its key in three, of which the refreshments share the first.
                halves = jax.random.split(jax.random.split(key, 3)[0])
                noise = jnp.stack([jax.random.normal(half, (dimension,)) for half in halves])
                before = ours.logdensity
                ours, kinetic = _mclmc.integrate(noise, ours, target, step_size, length)
                theirs, info = kernel(key, theirs, target.logdensity, 1.0, length, step_size)
                return (ours, theirs), (ours, theirs, kinetic - ours.logdensity + before, info)

            @jax.jit
            def run(key):
                start = random_state(target, dimension)
                return jax.lax.scan(both, (start, blackjax_mclmc.IntegratorState(*start)), jax.random.split(key, 100))

            _, (ours, theirs, energy_change, info) = jax.tree.map(np.asarray, run(jax.random.key(1)))
        assert info.nonans.all()
        assert np.ptp(ours.position, axis=0).min() > 0.1  # it moved
        assert np.abs(energy_change).max() > 1e-4
        for mine, other in zip((*ours, energy_change), (*theirs, info.energy_change), strict=True):
            np.testing.assert_allclose(mine, other, rtol=0, atol=1e-9)

    def test_a_step_is_the_integrator_fed_with_standard_normal_noise(self):
        @jax.jit
        def both(key):
            target, step_size = FunctionTarget(StandardNormal()), jnp.asarray(0.5)
            state = random_state(target, 4)
            expected, kinetic = _mclmc.integrate(jax.random.normal(key, (2, 4)), state, target, step_size, 3.0)
            energy_change = kinetic - expected.logdensity + state.logdensity
            return _mclmc.step(key, state, target, step_size, 3.0), (*expected, energy_change)

        with jax.enable_x64(True):
            (after, info), expected = both(jax.random.key(2))
            assert info.finite
            for mine, other in zip((*after, info.energy_change), expected, strict=True):
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

    change = staticmethod(jax.jit(_mclmc._kinetic_change))

    def test_is_precise_in_float32_for_kicks_of_any_size(self):
        """The result is a difference of numbers as large as delta, whose rounding is all that may be lost."""
        near = self.NEARLY_ONE
        for cosine in (-1.0, -near, -0.999, -0.9, -0.5, -1e-3, 0.0, 1e-6, 0.3, 0.9, near, 1.0):
            cosines = np.full_like(self.DELTAS, cosine)
            change = self.change(self.DELTAS, cosines)
            assert change.dtype == jnp.float32
            expected = exact_kinetic_change(self.DELTAS, cosines).astype(float)
            error = np.abs(np.asarray(change, float) - expected) / self.DELTAS
            assert error.max() < 12 * np.finfo(np.float32).eps, (cosine, self.DELTAS[np.argmax(error)])

    def test_along_the_gradient_the_whole_kick_becomes_kinetic_energy(self):
        moderate = self.DELTAS < 40
        for sign in (1.0, -1.0):
            change = np.asarray(self.change(self.DELTAS, np.full_like(self.DELTAS, sign)))
            np.testing.assert_allclose(change[moderate], sign * self.DELTAS[moderate], rtol=1e-6)


class TestVelocity:
    def test_stays_a_unit_vector_over_thousands_of_steps(self):
        target = FunctionTarget(StandardNormal())

        def advance(state, key):
            state, _ = _mclmc.step(key, state, target, jnp.float32(3.0), 5.0)
            return state, jnp.linalg.norm(state.velocity)

        @jax.jit
        def run(key):
            return jax.lax.scan(advance, random_state(target, 50), jax.random.split(key, 3_000))[1]

        np.testing.assert_allclose(run(jax.random.key(3)), 1.0, atol=1e-6)

    def test_first_direction_is_uniform(self):
        """False failure: 4e-8 for each of 6 numbers."""

        @jax.jit
        def draw(key):
            return jax.vmap(lambda key: _mclmc.random_direction(key, jnp.zeros(3)))(jax.random.split(key, 20_000))

        directions = np.asarray(draw(jax.random.key(4)), float)
        np.testing.assert_allclose(np.linalg.norm(directions, axis=1), 1.0, atol=1e-6)
        # On a sphere each coordinate is uniform on [-1, 1] (Archimedes): variances 1/3, and of its square 4/45.
        assert np.all(np.abs(directions.mean(axis=0)) < 5.5 * np.sqrt(1 / 3 / 20_000))
        assert np.all(np.abs(np.square(directions).mean(axis=0) - 1 / 3) < 5.5 * np.sqrt(4 / 45 / 20_000))

    def test_zero_gradient_lets_the_chain_fly_straight_on(self):
        state = STATE._replace(gradient=np.zeros(3, np.float32), logdensity=np.float32(0.0))
        after, info = scripted_step(state=state, step_size=0.5, L=np.inf)
        assert info.finite
        assert info.energy_change == 0.0
        np.testing.assert_allclose(after.velocity, state.velocity, rtol=1e-6)
        np.testing.assert_allclose(after.position, state.position + 0.5 * state.velocity, rtol=1e-5)

    def test_opposite_to_the_gradient_is_harmless(self):
        """Rounding may then put the cosine beyond -1, where the logarithm of the plain form has no value."""
        gradients = np.random.default_rng(7).standard_normal((500, 7)).astype(np.float32)
        gradients /= np.linalg.norm(gradients, axis=1, keepdims=True)
        kick = jax.jit(jax.vmap(lambda g, duration: _mclmc._kick(-g, g, duration), in_axes=(0, None)))
        for delta in (0.1, 1.0, 5.0, 9.0, 15.0):
            velocity, change = kick(gradients, np.float32(delta * 6))
            assert np.isfinite(velocity).all()
            assert np.isfinite(change).all()


NAN, INF = float("nan"), float("inf")
STATE = _mclmc.State(
    position=np.array([1.0, -2.0, 3.0], np.float32),
    velocity=np.array([0.6, 0.0, -0.8], np.float32),
    logdensity=np.float32(-4.5),
    gradient=np.array([0.1, 0.2, 0.3], np.float32),
)


class Scripted(Target):
    """A flat target until its last evaluation (`at` 2) or the one before (`at` 1), where it answers as told."""

    def __init__(self, logdensity, gradient, at):
        self.answer, self.at, self.n_evaluations = (logdensity, gradient), at, 0

    def value_and_grad(self, position):
        self.n_evaluations += 1
        return tuple(jnp.where(self.n_evaluations == self.at, told, 0.0) for told in self.answer)


@jax.jit
def step_as_told(key, state, logdensity, gradient, at, step_size, L):
    target = Scripted(logdensity, gradient, at)
    result = _mclmc.step(key, state, target, step_size, L)
    assert target.n_evaluations == _mclmc.GRADIENTS_PER_STEP
    return result


def scripted_step(logdensity=0.0, gradient=(0.0, 0.0, 0.0), at=2, state=STATE, step_size=0.1, L=1.0, seed=8):
    """Make one step on a scripted target; what it answers is data, so all of them share one program."""
    numbers = [np.float32(number) for number in (step_size, L)]
    gradient = np.array(gradient, np.float32)
    result = step_as_told(jax.random.key(seed), state, np.float32(logdensity), gradient, at, *numbers)
    return jax.tree.map(np.asarray, result)


class TestStepsThatAreNotFinite:
    def check_reverted(self, state, after, info):
        assert not info.finite
        assert info.energy_change == 0.0
        for name in ("position", "logdensity", "gradient"):
            np.testing.assert_array_equal(getattr(after, name), getattr(state, name))
        assert np.linalg.norm(after.velocity) == pytest.approx(1.0, abs=1e-6)
        assert np.abs(after.velocity - state.velocity).max() > 0.01

    @pytest.mark.parametrize(
        "answer",
        [
            pytest.param((NAN,), id="log density NaN"),
            pytest.param((INF,), id="log density +inf"),
            pytest.param((-INF,), id="log density -inf"),
            pytest.param((-1e25,), id="square of the energy change overflows"),
            pytest.param((1e25,), id="square of a fall in energy overflows"),
            pytest.param((0.0, (0.0, NAN, 1.0)), id="one entry of the gradient NaN"),
            pytest.param((0.0, (0.0, INF, 1.0)), id="one entry of the gradient infinite"),
            pytest.param((0.0, (1e30, 1e30, -1e30)), id="norm of the gradient overflows: no velocity"),
            pytest.param((0.0, (NAN,) * 3, 1), id="gradient NaN halfway"),
            pytest.param((0.0, (0.0, -INF, 0.0), 1), id="gradient infinite halfway"),
        ],
    )
    def test_chain_stays_where_it_was_and_takes_a_fresh_direction(self, answer):
        self.check_reverted(STATE, *scripted_step(*answer))

    def test_position_that_overflows_is_reverted_even_if_the_target_does_not_mind(self):
        # No gradient, so that the energy change is zero and shows nothing.
        state = STATE._replace(
            position=np.array([3e38, 0.0, 0.0], np.float32),
            logdensity=np.float32(0.0),
            gradient=np.zeros(3, np.float32),
        )
        self.check_reverted(state, *scripted_step(state=state, step_size=3e38, L=np.inf))

    def test_velocity_that_is_lost_is_replaced(self):
        after, info = scripted_step(state=STATE._replace(velocity=np.full(3, np.nan, np.float32)))
        assert not info.finite
        np.testing.assert_array_equal(after.position, STATE.position)
        assert np.linalg.norm(after.velocity) == pytest.approx(1.0, abs=1e-6)

    def test_large_energy_change_whose_square_is_finite_is_accepted(self):
        after, info = scripted_step(-1e18)
        assert info.finite
        assert info.energy_change == pytest.approx(1e18)
        assert after.logdensity == np.float32(-1e18)

    def test_fresh_directions_differ_from_step_to_step(self):
        velocities = [scripted_step(NAN, seed=seed)[0].velocity for seed in range(3)]
        assert all(np.abs(a - b).max() > 0.01 for a, b in itertools.pairwise(velocities))
