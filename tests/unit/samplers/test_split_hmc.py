"""Split HMC: the integrator against its definition, the chain against a posterior in closed form, and its cost."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from targets import LARGEST_Z, small_positions, small_posterior, standard_errors

import mile
from mile import MLP, Gaussian, Normal, Status
from mile._types import Target
from mile.padded_rows import pad_rows
from mile.posterior import FunctionTarget, Posterior
from mile.samplers.split_hmc import SplitHmc, SplitHmcSamplingPhase, SplitHmcState, Trajectory
from mile.sampling.chains import run_chains

PART = 30  # rows of a part; 100 rows are padded to 112, four parts
N_PARTS = 4
NETWORK = MLP(n_inputs=3, hidden=(4,), activation="tanh")


def build(dtype=np.float64, n_rows=100):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((n_rows, 3)).astype(dtype), rng.standard_normal(n_rows).astype(dtype)
    return Posterior(rows=pad_rows(x, y), network=NETWORK, likelihood=Gaussian(), prior=Normal())


def trajectory(**changes):
    return Trajectory(
        **{"step_size": 0.01, "n_leapfrog": 5, "inverse_mass": 2.0, "part_size": PART, "shuffle": False} | changes
    )


def start(dimension, dtype=np.float64):
    rng = np.random.default_rng(1)
    return tuple(0.5 * rng.standard_normal(dimension).astype(dtype) for _ in range(2))


@jax.jit
def energy(target, position, momentum, inverse_mass=2.0):
    return 0.5 * inverse_mass * momentum @ momentum - target.logdensity(position)


gradient_of = jax.jit(lambda target, position: target.value_and_grad(position)[1])
integrate = jax.jit(lambda path, *arguments: path.integrate(*arguments))
part_gradient = jax.jit(lambda target, part, position: target.part(part, PART).value_and_grad(position)[1])


class TestIntegrator:
    @pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 0, 3, 1)], ids=str)
    def test_is_the_scheme_of_the_paper_with_all_its_gradients(self, order):
        """Nothing merged and nothing reused: 2M gradients a step, in the order and with the signs of the text."""
        with jax.enable_x64(True):
            target, path = build(), trajectory()
            position, momentum = start(target.dimension)
            found = integrate(path, position, momentum, np.array(order), target)
            drift = path.step_size / (2 * (N_PARTS - 1)) * path.inverse_mass
            for _ in range(path.n_leapfrog):
                for parts in (order, order[::-1]):
                    for number, part in enumerate(parts):
                        gradient = np.asarray(part_gradient(target, part, position))
                        momentum = momentum + 0.5 * path.step_size * gradient
                        if number < N_PARTS - 1:
                            position = position + drift * momentum
            np.testing.assert_allclose(found[0], position, rtol=1e-11)
            np.testing.assert_allclose(found[1], momentum, rtol=1e-10)

    @pytest.mark.parametrize("has_rows", [True, False], ids=["rows", "function"])
    def test_with_one_part_is_leapfrog_step_by_step(self, has_rows):
        with jax.enable_x64(True):
            posterior = build()
            target = posterior if has_rows else FunctionTarget(lambda x: -jnp.sum(jnp.cosh(x)) + x[0] * x[1])
            path = trajectory(part_size=1_024, n_leapfrog=1)
            assert path.n_parts(target) == 1
            position, momentum = start(posterior.dimension)
            for _ in range(5):
                found = integrate(path, position, momentum, np.arange(1), target)
                momentum = momentum + 0.5 * path.step_size * np.asarray(gradient_of(target, position))
                position = position + path.step_size * path.inverse_mass * momentum
                momentum = momentum + 0.5 * path.step_size * np.asarray(gradient_of(target, position))
                np.testing.assert_allclose(found[0], position, rtol=1e-12)
                np.testing.assert_allclose(found[1], momentum, rtol=1e-11)

    @pytest.mark.parametrize("part_size", [PART, 60, 1_024])
    def test_comes_back_when_the_momentum_is_reversed(self, part_size):
        with jax.enable_x64(True):
            target, path = build(), trajectory(part_size=part_size, n_leapfrog=20)
            order = np.arange(path.n_parts(target))
            position, momentum = start(target.dimension)
            there, end = map(np.asarray, integrate(path, position, momentum, order, target))
            assert np.linalg.norm(there - position) > 0.1
            back, reverse = integrate(path, there, -end, order, target)
            np.testing.assert_allclose(back, position, atol=1e-11)
            np.testing.assert_allclose(-np.asarray(reverse), momentum, atol=1e-10)

    @pytest.mark.parametrize("part_size", [PART, 60, 1_024])
    def test_energy_error_falls_as_the_square_of_the_step(self, part_size):
        with jax.enable_x64(True):
            target = build()
            position, momentum = start(target.dimension)
            errors = []
            for halving in range(3):
                path = trajectory(part_size=part_size, step_size=2e-3 / 2**halving, n_leapfrog=10 * 2**halving)
                end = integrate(path, position, momentum, np.arange(path.n_parts(target)), target)
                errors.append(abs(float(energy(target, *end)) - float(energy(target, position, momentum))))
            ratios = np.array(errors[:-1]) / errors[1:]
            assert np.all((ratios > 3.5) & (ratios < 4.5)), errors


class TestProposal:
    def test_without_a_finite_energy_is_rejected_and_counted(self):
        """A normal that is NaN beyond 1.5: half of the trajectories end there."""
        target = FunctionTarget(lambda x: jnp.where(jnp.abs(x[0]) < 1.5, -0.5 * x @ x, jnp.nan))
        sampler = SplitHmc(step_size=0.3, n_leapfrog=10, inverse_mass=1.0)
        chains = run_chains(sampler, target, np.zeros((2, 3), np.float32), seed=0)
        assert np.isfinite(chains.draws).all()
        assert np.isfinite(chains.energy_change).all()
        assert np.abs(chains.draws[..., 0]).max() < 1.5
        report = chains.info["sampling"]
        assert np.all(report["bad_steps"] > 0)
        assert chains.status == (Status.BAD_STEPS,) * 2
        moved = np.any(np.diff(chains.draws, axis=1) != 0, axis=2).sum(axis=1)
        assert np.all(np.abs(report["accepted"] - moved) <= 1)  # the first draw has no one before it
        assert np.all(report["accepted"] + report["bad_steps"] <= 200)

    def test_is_accepted_as_often_as_its_energy_allows(self):
        """Of many proposals from one point; five standard errors, so false once in two million."""
        target = FunctionTarget(lambda x: -0.5 * x @ x)
        path = trajectory(step_size=1.6, n_leapfrog=1, inverse_mass=1.0)
        position = np.array([1.0, -0.5, 0.3], np.float32)

        @jax.jit
        def propose(key):
            state = SplitHmcState(jnp.asarray(position), target.logdensity(position))
            return jax.vmap(lambda key: path.propose(key, state, target))(jax.random.split(key, 4_000))

        new, move = jax.tree.map(np.asarray, propose(jax.random.key(0)))
        assert 0.3 < move.probability.mean() < 0.95
        error = np.sqrt(np.mean(move.probability * (1 - move.probability)) / 4_000)
        assert abs(move.accepted.mean() - move.probability.mean()) < 5 * error
        stayed = np.all(new.position == position, axis=1)
        np.testing.assert_array_equal(stayed, ~move.accepted)

    def test_outcomes_decide_the_status(self):
        """Of 1,000 proposals in two dimensions from and to a log density of zero."""
        phase = SplitHmc.presets()["paper"].phases[0]
        finish = jax.jit(phase.finish)
        for changes, expected in (
            ({}, Status.OK),
            ({"accepted": 0}, Status.FROZEN),
            ({"bad_steps": 60}, Status.BAD_STEPS),
            ({"start_logdensity": 100.0}, Status.DIVERGED),
            ({"start_logdensity": np.nan, "accepted": 0}, Status.NON_FINITE_START),
        ):
            assert finish(after(phase, steps=1_000, **{"accepted": 500} | changes)).status == expected, changes

    def test_order_of_parts_changes_with_the_key_only_if_shuffled(self):
        with jax.enable_x64(True):
            posterior, key = build(), jax.random.key(5)
            position, _ = start(posterior.dimension)

            @jax.jit
            def propose(path, key):
                state = SplitHmcState(jnp.asarray(position), posterior.logdensity(position))
                drawn = jax.random.normal(jax.random.split(key, 3)[0], position.shape) / jnp.sqrt(2.0)
                return *path.propose(key, state, posterior), drawn

            for shuffle in (False, True):
                path = trajectory(shuffle=shuffle, step_size=2e-3)
                new, move, drawn = propose(path, key)
                assert bool(move.accepted)
                in_order = trajectory(step_size=2e-3)
                fixed, _ = integrate(in_order, position, drawn, np.arange(N_PARTS), posterior)
                assert np.allclose(new.position, fixed, rtol=1e-12) == (not shuffle)


def after(phase, **counts):
    """Return the carry of a phase from and to a log density of zero in two dimensions, with these counts."""
    carry = jax.eval_shape(lambda x: phase.init(jax.random.key(0), x, FLAT), np.zeros(2, np.float32))
    carry = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), carry)
    tally = {name: np.asarray(value, getattr(carry.tally, name).dtype) for name, value in counts.items()}
    return carry._replace(tally=carry.tally._replace(**tally))


FLAT = FunctionTarget(lambda x: 0.0 * x @ x)


class LinearModel:
    """Coefficients of a linear regression whose noise has deviation 1: as a posterior with rows, and in closed form."""

    def __init__(self):
        rng = np.random.default_rng(4)
        x = rng.standard_normal((90, 2)).astype(np.float32)
        x[:, 1] += x[:, 0]
        y = (x @ [1.0, -0.5] + 0.3 + rng.standard_normal(90)).astype(np.float32)
        # A network without hidden layers whose second output, the log scale, is ignored: only the prior acts on it.
        network = MLP(n_inputs=2, hidden=())
        self.posterior = Posterior(rows=pad_rows(x, y), network=network, likelihood=UnitNoise(), prior=Normal())
        design = np.column_stack([x, np.ones(90)]).astype(float)
        self.covariance = np.linalg.inv(design.T @ design + np.eye(3))
        self.mean = self.covariance @ design.T @ y
        self.coefficients = [0, 2, 4]  # weights [in, out] row by row, then the biases


class UnitNoise(Gaussian):
    """Normal noise of deviation 1."""

    def log_prob(self, outputs, y):
        return -0.5 * jnp.square(y - outputs[0])


@pytest.mark.parametrize("shuffle", [False, True], ids=["in order", "shuffled"])
def test_draws_from_parts_have_the_moments_of_the_closed_form(shuffle):
    """Four chains; z below 5.5 has a false-failure probability of 4e-8 for each of the 12 numbers."""
    model = LinearModel()
    sampler = SplitHmc(
        warmup_steps=100, sampling_steps=2_000, n_draws=2_000, step_size=0.06, n_leapfrog=7, inverse_mass=1.0,
        part_size=32, shuffle=shuffle,
    )  # fmt: skip
    chains = run_chains(sampler, model.posterior, np.zeros((4, 6), np.float32), seed=1)
    report = chains.info["sampling"]
    assert chains.ok.all()
    assert np.all(report["n_parts"] == 3)
    assert np.all((report["acceptance"] > 0.5) & (report["acceptance"] < 0.999))
    draws = chains.draws[..., model.coefficients].astype(float)
    z = (draws.mean(axis=(0, 1)) - model.mean) / standard_errors(draws)
    assert np.all(np.abs(z) < LARGEST_Z)
    squares = np.square(draws - model.mean)
    z = (squares.mean(axis=(0, 1)) - np.diag(model.covariance)) / standard_errors(squares)
    assert np.all(np.abs(z) < LARGEST_Z)


class Counting(Target):
    """A normal in several equal parts that counts its gradients; outside of compiled code only."""

    def __init__(self, n_parts):
        self.count, self.number = 0, n_parts

    def n_parts(self, size):
        return self.number

    def part(self, index, size):
        return self

    def value_and_grad(self, position):
        self.count += 1
        return -0.5 * position @ position / self.number, -position / self.number


def test_a_proposal_takes_as_many_gradients_as_are_counted():
    path = trajectory(n_leapfrog=4)
    for n_parts in (1, 2, 3, 7):
        target = Counting(n_parts)
        with jax.disable_jit():
            path.integrate(*map(jnp.asarray, start(5, np.float32)), np.arange(n_parts), target)
        assert target.count == (1 + 4 * (2 * n_parts - 2) if n_parts > 1 else 1 + 4)
        assert int(path.gradients(jnp.asarray(n_parts))) == target.count


def test_gradients_of_a_run_are_in_units_of_all_rows():
    """Rounded up in each phase; a proposal takes 17 gradients of one of three parts."""
    sampler = SplitHmc(warmup_steps=4, sampling_steps=5, n_draws=5, n_leapfrog=4, part_size=16)
    chains = run_chains(sampler, small_posterior(), small_positions(1), seed=0)
    assert chains.gradient_evaluations.tolist() == [23 + 29]
    assert sampler.gradient_evaluations() >= 23 + 29


def test_the_count_of_a_long_run_does_not_overflow():
    path = Trajectory(step_size=1.0, n_leapfrog=1_000, inverse_mass=1.0, part_size=1, shuffle=False)
    phase = SplitHmcSamplingPhase(trajectory=path, n_steps=1, n_records=1)
    carry = after(SplitHmc.presets()["paper"].phases[0], n_parts=10_000, steps=100_000)
    found = jax.jit(phase.finish)(carry).report["gradient_evaluations"]
    assert float(found) == pytest.approx(100_000 * (1 + 1_000 * 19_998) / 10_000, rel=1e-6)


def test_impossible_arguments_are_named():
    for arguments in (
        {"warmup_steps": 0},
        {"n_leapfrog": 0},
        {"part_size": 0},
        {"step_size": -1.0},
        {"inverse_mass": 0.0},
        {"shuffle": 1},
        {"n_draws": 20, "sampling_steps": 10},
    ):
        with pytest.raises(ValueError, match=next(iter(arguments))):
            SplitHmc(**arguments)


def test_defaults_sample_a_function_through_the_front_door_from_where_they_are_put():
    """Deviation 0.02 around 30: momentum alone carries a trajectory by no more than 0.5."""
    target = lambda x: -0.5 * jnp.sum(jnp.square((x - 30.0) / 0.02))  # noqa: E731
    chains = mile.sample(target, np.full((2, 3), 30.0), SplitHmc.presets()["paper"].with_start(0.5), random_state=0)
    assert chains.ok.all()
    assert chains.draws.shape == (2, 200, 3)
    assert np.abs(chains.draws - 30.0).max() < 0.2
    assert 0.01 < chains.draws.std() < 0.04
    assert chains.tuned.step_size[0] == np.float32(5e-4)
    assert set(SplitHmc.presets()) == {"paper", "quick", "accurate"}
