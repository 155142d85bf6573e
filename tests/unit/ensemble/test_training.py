"""The deep ensemble is plain AdamW on mini-batches of the training rows, stopped by the validation rows."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from targets import assert_same_bits, small_dataset

from mile import MLP, Gaussian, Normal, Status
from mile._random import Stage, stream
from mile.ensemble import members as ensemble
from mile.ensemble.members import train_members
from mile.ensemble.training import Patience, Training
from mile.padded_rows import pad_rows
from mile.posterior import Posterior, log_likelihood

NETWORK = MLP(n_inputs=3, hidden=(4,))
SEED = 5
EMPTY = pad_rows(np.zeros((0, 3), np.float32), np.zeros(0, np.float32))
# 50 rows in 64 slots: batches of 16, 16, 16 and 2. One program for most tests.
TWO_EPOCHS = Training(learning_rate=0.01, weight_decay=0.1, batch_size=16, max_epochs=2)
STOPPING = Training(learning_rate=0.05, batch_size=16, max_epochs=60, stopping=Patience(epochs=6))


def table(n_rows=50):
    data = small_dataset(2 * n_rows)
    return data.x_train[:n_rows], data.y_train[:n_rows]


def posterior_of(x, y, network=NETWORK, likelihood=None):
    return Posterior(rows=pad_rows(x, y), network=network, likelihood=likelihood or Gaussian(), prior=Normal())


def train(training, x, y, validation=EMPTY, n_members=1, likelihood=None, **options):
    return train_members(
        posterior_of(x, y, likelihood=likelihood), validation, training, range(n_members), seed=SEED, **options
    )


def first_weights(member=0):
    return NETWORK.init(stream(SEED, Stage.INITIALIZE, member))


def mean_loss(position, x, y):
    return -log_likelihood(NETWORK, Gaussian(), position, pad_rows(x, y)) / len(y)


def plain_training(training, x, y, batches_of_epoch, member=0):
    """Return the weights after AdamW steps on the given batches of rows, one at a time, without any padding."""

    def loss(position, x, y):
        return -jnp.mean(Gaussian().log_prob(NETWORK.apply(position, x.T), y))

    optimizer = optax.adamw(training.learning_rate, weight_decay=training.weight_decay)
    position = first_weights(member)
    state = optimizer.init(position)
    gradient = jax.jit(jax.grad(loss))
    for epoch in range(training.max_epochs):
        for batch in batches_of_epoch(epoch):
            updates, state = optimizer.update(gradient(position, x[batch], y[batch]), state, position)
            position = optax.apply_updates(position, updates)
    return position


class TestUpdate:
    # With 48 rows there is no padding behind them that could fill up the last batch.
    @pytest.mark.parametrize(("n_rows", "n_slots", "batch_size"), [(50, 64, 16), (48, 48, 20)])
    @pytest.mark.parametrize("member", [0, 3])
    def test_equals_a_plain_loop_over_the_same_batches(self, member, n_rows, n_slots, batch_size):
        x, y = table(n_rows)
        training = replace(TWO_EPOCHS, batch_size=batch_size)

        def batches(epoch):
            key = jax.random.fold_in(stream(SEED, Stage.OPTIMIZE, member), epoch)
            order = np.argsort(jax.random.uniform(key, (n_slots,))[:n_rows])
            return np.split(order, range(batch_size, n_rows, batch_size))

        members = train(training, x, y, n_members=4)
        expected = plain_training(training, x, y, batches, member)
        np.testing.assert_allclose(members.positions[member], expected, rtol=1e-5, atol=1e-5)
        assert np.abs(expected - first_weights(member)).max() > 0.03  # several steps of about 0.01

    @pytest.mark.parametrize("n_rows", [5, 16])
    def test_of_few_rows_is_one_batch_of_all(self, n_rows):
        x, y = table(n_rows)
        members = train(TWO_EPOCHS, x, y)
        expected = plain_training(TWO_EPOCHS, x, y, lambda epoch: [np.arange(n_rows)])
        np.testing.assert_allclose(members.positions[0], expected, rtol=1e-5, atol=1e-5)

    def test_of_a_batch_larger_than_the_table_is_one_batch_of_all(self):
        x, y = table()
        training = replace(TWO_EPOCHS, batch_size=1000)
        expected = plain_training(training, x, y, lambda epoch: [np.arange(50)])
        np.testing.assert_allclose(train(training, x, y).positions[0], expected, rtol=1e-5, atol=1e-5)

    def test_uses_every_row_also_those_of_the_incomplete_last_batch(self):
        x, y = table()
        weights = train(TWO_EPOCHS, x, y).positions
        for row in range(50):
            changed = y.copy()
            changed[row] += 1.0
            assert not np.array_equal(train(TWO_EPOCHS, x, changed).positions, weights), row

    def test_shrinks_weights_that_have_no_gradient_by_the_weight_decay(self):
        x, y = table()
        steps = 2 * 4
        decayed = train(TWO_EPOCHS, x, y, likelihood=Flat()).positions[0]
        np.testing.assert_allclose(decayed, first_weights() * (1 - 0.01 * 0.1) ** steps, rtol=1e-5)
        kept = train(replace(TWO_EPOCHS, weight_decay=0.0), x, y, likelihood=Flat()).positions[0]
        np.testing.assert_allclose(kept, first_weights(), rtol=1e-6)  # drawn by another program


@dataclass(frozen=True)
class Flat(Gaussian):
    """All responses are equally likely, whatever the network says."""

    def log_prob(self, outputs, y):
        return jnp.zeros_like(y)


class TestMembers:
    def test_differ_from_each_other(self):
        members = train(TWO_EPOCHS, *table(), n_members=4)
        assert len(np.unique(members.positions, axis=0)) == 4
        assert members.status == (Status.OK,) * 4

    def test_do_not_depend_on_how_many_there_are(self):
        x, y = table()
        many = train(TWO_EPOCHS, x, y, n_members=5)
        for n_members in (1, 3):
            few = train(TWO_EPOCHS, x, y, n_members=n_members)
            np.testing.assert_array_equal(few.positions, many.positions[:n_members])
        chosen = train_members(posterior_of(x, y), EMPTY, TWO_EPOCHS, [4, 1], seed=SEED)
        np.testing.assert_array_equal(chosen.positions, many.positions[[4, 1]])

    def test_follow_the_seed(self):
        x, y = table()
        posterior = posterior_of(x, y)
        first, again, other = (
            train_members(posterior, EMPTY, TWO_EPOCHS, [0], seed=seed).positions for seed in (SEED, SEED, SEED + 1)
        )
        np.testing.assert_array_equal(first, again)
        assert not np.array_equal(first, other)


class TestStopping:
    """Twenty noisy validation rows: the loss turns after a few epochs."""

    @pytest.fixture
    def data(self):
        x, y = table()
        rng = np.random.default_rng(2)
        x_valid = rng.standard_normal((20, 3)).astype(np.float32)
        return x, y, x_valid, rng.standard_normal(20).astype(np.float32)

    def test_keeps_the_weights_of_the_lowest_loss_and_waits_as_long_as_told(self, data):
        x, y, x_valid, y_valid = data
        members = train(STOPPING, x, y, pad_rows(x_valid, y_valid), n_members=3)
        for position, epochs, losses in zip(*members[:1], members.epochs, members.validation_loss, strict=True):
            assert 7 <= epochs < 60  # it did stop early, which is what this test is about
            assert np.isfinite(losses[:epochs]).all()
            assert np.isnan(losses[epochs:]).all()
            best = int(np.argmin(losses[:epochs]))
            assert epochs == best + 1 + 6
            np.testing.assert_allclose(mean_loss(position, x_valid, y_valid), losses[best], rtol=1e-5)
            assert np.sort(losses[:epochs])[1] > losses[best] * (1 + 1e-4)  # no other epoch would pass the line above

    def test_does_not_depend_on_how_often_training_returns_to_the_host(self, data, monkeypatch):
        x, y, x_valid, y_valid = data
        usual = train(STOPPING, x, y, pad_rows(x_valid, y_valid))
        monkeypatch.setattr(ensemble, "_FIRST_EPOCHS", 1)
        monkeypatch.setattr(ensemble, "_BLOCK_SHARE", 0.0)
        assert_same_bits(train(STOPPING, x, y, pad_rows(x_valid, y_valid)), usual)

    def test_without_validation_rows_trains_to_the_end_and_keeps_the_last_weights(self, data):
        x, y, *_ = data
        members = train(STOPPING, x, y)
        assert members.epochs.tolist() == [60]
        assert np.isnan(members.validation_loss).all()
        assert mean_loss(members.positions[0], x, y) < mean_loss(first_weights(), x, y) - 0.5
        # The last weights, not those of any epoch before: two epochs are those of the plain loop (TestUpdate).
        assert train(TWO_EPOCHS, x, y).epochs.tolist() == [2]

    def test_validation_rows_never_enter_the_gradient(self, data):
        x, y, x_valid, y_valid = data
        one_epoch = replace(STOPPING, max_epochs=1)
        without, given, changed = (
            train(one_epoch, x, y, validation, n_members=2)
            for validation in (
                pad_rows(x_valid[:0], y_valid[:0]),
                pad_rows(x_valid, y_valid),
                pad_rows(x_valid, 9 - y_valid),
            )
        )
        np.testing.assert_array_equal(given.positions, without.positions)
        np.testing.assert_array_equal(given.positions, changed.positions)
        assert (changed.validation_loss > given.validation_loss + 1.0).all()


@dataclass(frozen=True)
class Breaking(Gaussian):
    """Not a number once the rows are fitted well, as training makes them."""

    best: float = -1.0

    def log_prob(self, outputs, y):
        log_prob = super().log_prob(outputs, y)
        return log_prob * jnp.where(jnp.mean(log_prob) > self.best, jnp.nan, 1.0)


class TestNotANumber:
    def test_without_validation_rows_is_reported(self):
        members = train(STOPPING, *table(), likelihood=Breaking())
        assert members.status == (Status.NON_FINITE_START,)

    def test_with_validation_rows_brings_back_the_best_weights(self):
        x, y = table()
        members = train(STOPPING, x, y, pad_rows(x, y), likelihood=Breaking())
        assert members.status == (Status.OK,)
        for position, epochs, losses in zip(members.positions, members.epochs, members.validation_loss, strict=True):
            assert np.isnan(losses[epochs - 1])
            lowest = np.nanmin(losses)
            assert epochs == np.nanargmin(losses) + 1 + 6
            np.testing.assert_allclose(mean_loss(position, x, y), lowest, rtol=1e-5)

    def test_from_the_first_epoch_on_is_reported_and_not_hidden_behind_the_first_weights(self):
        x, y = table()
        members = train(STOPPING, x, y, pad_rows(x, y), likelihood=Breaking(best=-np.inf))
        assert np.isfinite(members.positions).all()
        assert members.status == (Status.UNTRAINED,)

    def test_in_one_member_leaves_the_others_alone(self):
        x, y = table()
        victim = tuple(jax.random.key_data(stream(SEED, Stage.INITIALIZE, 1)).tolist())
        members, intact = (
            train_members(
                posterior_of(x, y, Fragile(n_inputs=3, hidden=(4,), victim=key)), EMPTY, TWO_EPOCHS, range(3), seed=SEED
            )
            for key in (victim, (0, 0))
        )
        assert intact.status == (Status.OK, Status.OK, Status.OK)
        assert members.status == (Status.OK, Status.NON_FINITE_START, Status.OK)
        np.testing.assert_array_equal(members.positions[[0, 2]], intact.positions[[0, 2]])


@dataclass(frozen=True, kw_only=True)
class Fragile(MLP):
    """Starts from weights that are not numbers for one key."""

    victim: tuple[int, ...]

    def init(self, key):
        broken = jnp.all(jax.random.key_data(key) == jnp.asarray(self.victim, jnp.uint32))
        return jnp.where(broken, jnp.nan, super().init(key))


class TestConfiguration:
    def test_defaults_are_those_of_the_papers_chains(self):
        training = Training()
        assert (training.learning_rate, training.weight_decay, training.batch_size) == (1e-3, 1e-3, 32)
        assert (training.max_epochs, training.stopping) == (500, Patience(epochs=10))

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("learning_rate", 0.0),
            ("learning_rate", -1e-3),
            ("learning_rate", float("nan")),
            ("learning_rate", float("inf")),
            ("weight_decay", -1e-9),
            ("weight_decay", float("nan")),
            ("batch_size", 0),
            ("batch_size", -3),
            ("max_epochs", 0),
        ],
    )
    def test_impossible_values_are_refused_by_name(self, name, value):
        with pytest.raises(ValueError, match=f"{name} must"):
            Training(**{name: value})

    def test_is_immutable_and_hashable(self):
        assert hash(Training()) == hash(Training())
        with pytest.raises(AttributeError):
            Training().batch_size = 3
