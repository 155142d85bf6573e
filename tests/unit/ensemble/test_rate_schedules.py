"""Schedules of the learning rate: their formulas, and trainings that follow them, also when they are interrupted."""

from dataclasses import replace
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from perceptrons import OtherMLP, close, make_network, make_posterior
from targets import assert_same_bits, small_dataset

from mile import MLP, Gaussian, Normal, native
from mile._random import Stage, stream
from mile.ensemble import members as ensemble
from mile.ensemble import training as optimize
from mile.ensemble.members import train_members
from mile.ensemble.rate_schedules import Cosine, CosLog
from mile.ensemble.training import Patience, Training
from mile.padded_rows import pad_rows
from mile.posterior import Posterior

NETWORK = MLP(n_inputs=3, hidden=(4,))
SEED = 5
SCHEDULED = Training(learning_rate=0.05, batch_size=16, max_epochs=12, second_decay=0.95, stopping=Patience(epochs=12))


def rows(n_valid=20):
    data = small_dataset(100)
    x, y = data.x_train, data.y_train
    return pad_rows(x[:50], y[:50]), pad_rows(x[50 : 50 + n_valid], y[50 : 50 + n_valid])


def train(training, n_valid=20, n_members=2):
    learned, validation = rows(n_valid)
    posterior = Posterior(rows=learned, network=NETWORK, likelihood=Gaussian(), prior=Normal())
    return train_members(posterior, validation, training, range(n_members), seed=SEED)


class TestFactor:
    def test_of_the_cosine_falls_from_one_to_its_end(self):
        found = Cosine(end=0.1).factor(jnp.arange(20), 20)
        middle = (np.arange(20) + 0.5) / 20
        np.testing.assert_allclose(found, 0.1 + 0.9 * (1 + np.cos(np.pi * middle)) / 2, rtol=1e-5)

    def test_of_coslog_rises_from_zero_four_times_each_time_more_slowly(self):
        found = np.asarray(CosLog().factor(jnp.arange(1500), 1500))
        # A cycle is over where log2(1 + 15 t) is a whole number: at t = 1/15, 3/15, 7/15 and 1.
        ends = np.array([0, 100, 300, 700, 1499])
        tops = ((2 ** (np.arange(4) + 0.5) - 1) * 100).astype(int)
        np.testing.assert_allclose(found[ends], 0.0, atol=1e-3)
        np.testing.assert_allclose(found[tops], 1.0, atol=1e-3)
        turns = np.sort(np.concatenate([ends, tops]))
        for place, (first, last) in enumerate(pairwise(turns)):
            assert ((np.diff(found[first : last + 1]) > -1e-6) == (place % 2 == 0)).mean() > 0.95


class TestTraining:
    def test_equals_a_plain_loop_at_the_rate_of_each_epoch(self):
        training = replace(SCHEDULED, max_epochs=5, schedule=CosLog(cycles=1))
        learned, _ = rows()
        x, y = learned.x[:, :50], learned.y[:50]

        @jax.jit
        def step(position, state, chosen, rate):
            def loss(position):
                return -jnp.mean(Gaussian().log_prob(NETWORK.apply(position, x[:, chosen]), y[chosen]))

            optimizer = optax.adamw(rate, b2=0.95, weight_decay=training.weight_decay)
            updates, state = optimizer.update(jax.grad(loss)(position), state, position)
            return optax.apply_updates(position, updates), state

        position = NETWORK.init(stream(SEED, Stage.INITIALIZE, 0))
        state = optax.adamw(1.0).init(position)
        for epoch in range(5):
            key = jax.random.fold_in(stream(SEED, Stage.OPTIMIZE, 0), epoch)
            order = np.argsort(jax.random.uniform(key, (64,))[:50])
            middle = (epoch + 0.5) / 5
            rate = training.learning_rate * (1 - np.cos(2 * np.pi * np.log2(1 + middle))) / 2
            for batch in np.split(order, range(16, 50, 16)):
                position, state = step(position, state, batch, rate)
        found = train(training, n_valid=0).positions[0]
        np.testing.assert_allclose(found, position, rtol=1e-4, atol=1e-4)
        assert np.abs(found - train(replace(training, schedule=None), n_valid=0).positions[0]).max() > 0.01

    def test_does_not_depend_on_how_often_training_returns_to_the_host(self, monkeypatch):
        training = replace(SCHEDULED, schedule=CosLog())
        usual = train(training)
        monkeypatch.setattr(ensemble, "_FIRST_EPOCHS", 1)
        monkeypatch.setattr(ensemble, "_BLOCK_SHARE", 0.0)
        assert_same_bits(train(training), usual)


@pytest.mark.skipif(native.kernel_name() == "xla", reason="the native kernel was not built")
def test_an_epoch_of_the_kernel_is_that_of_xla_also_for_members_of_different_rates():
    likelihood = Gaussian(link="bounded")
    network, training = make_network(likelihood, (5,)), replace(SCHEDULED, weight_decay=0.1, batch_size=32)
    posterior = make_posterior(likelihood, 70, hidden=(5,))
    position = jnp.stack([network.init(jax.random.key(member)) for member in range(3)])
    shuffle = jnp.asarray(np.random.default_rng(0).random((3, *posterior.rows.y.shape)), jnp.float32)
    spec = native.specify(network, likelihood, jnp.float32, posterior.rows)
    paths = (
        lambda *state: optimize._native_update(training, spec, *state[:3], posterior.rows, state[3])[0],
        lambda *state: optimize._update(
            training, OtherMLP(**vars(network)), likelihood, *state[:3], posterior.rows, state[3]
        )[0],
    )
    optimizer = jax.vmap(training.optimizer.init)(position)
    factor = jnp.array([1.0, 0.3, 0.0])
    ours, theirs = (jax.jit(jax.vmap(path))(position, optimizer, shuffle, factor) for path in paths)
    close(ours, theirs)
    np.testing.assert_array_equal(ours[2], position[2])
    assert np.abs(ours[0] - position[0]).max() > 2.0 * np.abs(ours[1] - position[1]).max() > 0.01


def test_impossible_values_are_refused_by_name():
    for make, name in (
        (lambda: Cosine(end=-0.1), "end"),
        (lambda: Cosine(end=1.1), "end"),
        (lambda: CosLog(cycles=0), "cycles"),
        (lambda: CosLog(cycles=10_000), "cycles"),
        (lambda: Training(second_decay=1.0), "second_decay"),
        (lambda: Training(schedule=Patience()), "schedule"),
    ):
        with pytest.raises(ValueError, match=f"{name} must"):
            make()
