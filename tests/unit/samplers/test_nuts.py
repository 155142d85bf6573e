"""NUTS: adaptation step by step against BlackJAX, its count of gradients, and a target whose moments are known."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax import nuts
from blackjax.adaptation.window_adaptation import WindowAdaptationState, base, build_schedule
from targets import small_dataset

import mile
from mile import Nuts
from mile.posterior import FunctionTarget
from mile.samplers.nuts import NutsAdaptationPhase, NutsAdapting

SCALES = np.array([0.5, 1.0, 2.0, 4.0], np.float32)
TARGET = FunctionTarget(lambda x: -0.5 * jnp.sum(jnp.square(x / SCALES)))


@pytest.fixture
def double_precision():
    """Two programs round differently, and a long trajectory amplifies that beyond what float32 lets compare."""
    with jax.enable_x64(True):
        yield


@pytest.mark.usefixtures("double_precision")
def test_adaptation_and_transitions_are_blackjaxs():
    """From the same keys and states, over all windows of Stan's schedule; each step of theirs begins where ours did."""
    phase = NutsAdaptationPhase(n_steps=200, target_acceptance=0.8, max_depth=10, step_size=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # there is no other oracle that goes step by step
        init, update, final = base(True, 0.8)
    kernel = nuts.build_kernel()
    schedule = np.asarray(build_schedule(200))
    assert schedule[:, 1].sum() >= 2  # several windows end

    @jax.jit
    def start(position):
        return nuts.init(position, TARGET.logdensity), init(position, 1.0)

    @jax.jit
    def theirs(key, state, adaptation, stage):
        state, info = kernel(key, state, TARGET.logdensity, adaptation.step_size, adaptation.inverse_mass_matrix, 10)
        return (state, update(adaptation, tuple(stage), state.position, info.acceptance_rate)), info

    ours = jax.jit(lambda key, carry: phase.step(key, carry, TARGET)[0])
    position = np.ones(4)
    expected = start(position)
    carry = jax.jit(phase.init)(jax.random.key(0), position, TARGET)
    assert isinstance(carry, NutsAdapting)
    n_gradients = 1
    _assert_alike(carry, expected)
    for index in range(200):
        key = jax.random.key(index)
        expected, info = theirs(key, *_as_blackjax(carry), schedule[index])
        carry = ours(key, carry)
        n_gradients += int(info.num_integration_steps)
        _assert_alike(carry, expected)
    finished = jax.jit(phase.finish)(carry)
    step_size, inverse_mass = jax.jit(final)(_as_blackjax(carry)[1])
    np.testing.assert_allclose(finished.carry.step_size, step_size, rtol=1e-12)
    np.testing.assert_allclose(finished.carry.inverse_mass, inverse_mass, rtol=1e-12)
    assert finished.report["gradient_evaluations"] == n_gradients


def _as_blackjax(carry):
    """Return the state of the chain and of the adaptation as BlackJAX's own functions take them."""
    return carry.state, WindowAdaptationState(carry.averaging, carry.matrix, carry.step_size, carry.inverse_mass)


def _assert_alike(carry, expected):
    """Compare everything that the next step needs: position, gradient, averages, step size and mass matrix."""
    for ours, theirs in zip(jax.tree.leaves(_as_blackjax(carry)), jax.tree.leaves(expected), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_moments_of_a_normal_are_right():
    """Eight chains of 1,000 draws; the tolerance is five standard errors with half of the draws effective."""
    chains = mile.sample(TARGET.function, np.zeros((8, 4)), "nuts", random_state=0, warmup_steps=300)
    draws = chains.draws.astype(float).reshape(-1, 4) / SCALES
    assert chains.ok.all()
    np.testing.assert_allclose(draws.mean(axis=0), 0.0, atol=5 / np.sqrt(4_000))
    np.testing.assert_allclose(draws.var(axis=0), 1.0, atol=5 * np.sqrt(2 / 4_000))
    assert np.all((chains.info["sampling"]["acceptance"] > 0.7) & (chains.info["sampling"]["acceptance"] < 0.97))


def test_impossible_arguments_are_named():
    for arguments in (
        {"warmup_steps": 0},
        {"max_depth": 0},
        {"target_acceptance": 1.0},
        {"step_size": -1.0},
        {"n_draws": 20, "sampling_steps": 10},
    ):
        with pytest.raises(ValueError, match=next(iter(arguments))):
            Nuts(**arguments)


def test_with_the_estimator_predicts_and_counts():
    data = small_dataset()
    x, y = data.x_train, data.x_train[:, 0]
    model = mile.MileRegressor(
        (4,), sampler="nuts", n_chains=2, warmup_steps=50, sampling_steps=50, n_draws=50, random_state=0
    ).fit(x, y)
    assert model.chain_status_ == ["ok", "ok"]
    assert np.sqrt(np.mean((model.predict(x) - y) ** 2)) < 0.5 * y.std()
    assert np.all(model.gradient_evaluations_ > 200)
