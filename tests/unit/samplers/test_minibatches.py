"""Mini-batches of a posterior: which rows they hold, and that they estimate the whole without bias."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from perceptrons import OtherMLP, close, make_positions, make_posterior

from mile import Categorical, Gaussian, native
from mile.samplers import _mclmc

N_ROWS = 1_000  # 62 groups of 16 rows, one of 8, and one of padding
BATCH = 48


@pytest.fixture(scope="module")
def posterior():
    """Every row is known by its first feature, which is its number."""
    posterior = make_posterior(Gaussian(), N_ROWS)
    numbers = jnp.arange(posterior.rows.y.shape[0], dtype=jnp.float32)
    return replace(posterior, rows=replace(posterior.rows, x=posterior.rows.x.at[0].set(numbers)))


def rows_of(batch):
    """Return the numbers of the rows that count."""
    return np.asarray(batch.rows.x[0])[np.asarray(batch.rows.weight) > 0].astype(int)


def epoch(posterior, key, batch_size=BATCH):
    order = posterior.shuffled(key)
    return [posterior.minibatch(order, index, batch_size) for index in range(posterior.n_minibatches(batch_size))]


class TestEpoch:
    def test_orders_all_groups_at_random_with_the_padding_last(self, posterior):
        first, second = (np.asarray(posterior.shuffled(jax.random.key(seed))) for seed in range(2))
        assert first.dtype == np.int32
        for order in (first, second):
            np.testing.assert_array_equal(np.sort(order), np.arange(64))
            assert order[-1] == 63
        assert (first != second).sum() > 50

    def test_takes_no_row_twice_and_leaves_less_than_a_batch(self, posterior):
        batches = epoch(posterior, jax.random.key(0), 80)
        seen = np.concatenate([rows_of(batch) for batch in batches])
        assert len(batches) == 63 // 5
        assert len(np.unique(seen)) == len(seen)
        assert N_ROWS - len(seen) <= 80
        assert seen.max() < N_ROWS

    def test_takes_every_row_once_if_batches_divide_them(self, posterior):
        seen = np.concatenate([rows_of(batch) for batch in epoch(posterior, jax.random.key(0))])
        np.testing.assert_array_equal(np.sort(seen), np.arange(N_ROWS))

    def test_has_at_least_one_batch(self, posterior):
        assert posterior.n_minibatches(10**6) == 1
        assert posterior.n_minibatches(1) == 63


class TestBatch:
    def test_estimates_the_whole_without_bias(self, posterior):
        """Over the batches of an epoch that holds all groups the mean is that of the posterior, but for rounding."""
        position = 0.1 * make_positions(posterior.network)
        found = [batch.value_and_grad(position) for batch in epoch(posterior, jax.random.key(1))]
        mean = jax.tree.map(lambda *values: np.mean(values, axis=0, dtype=np.float64), *found)
        close(mean, posterior.value_and_grad(position), 1e-4)
        spread = np.std([value for value, _ in found])
        assert spread > 0.01 * abs(mean[0])  # they do differ

    def test_that_holds_all_rows_is_the_posterior_itself(self, posterior):
        order = posterior.shuffled(jax.random.key(0))
        assert posterior.minibatch(order, jnp.asarray(0), 1_024) is posterior
        assert posterior.minibatch(order, jnp.asarray(0), 10**6) is posterior

    def test_that_leaves_out_nothing_but_padding_gives_the_same_numbers(self, posterior):
        (batch,) = epoch(posterior, jax.random.key(0), 1_008)
        position = 0.1 * make_positions(posterior.network)
        close(batch.value_and_grad(position), posterior.value_and_grad(position))

    def test_weights_stay_relative(self):
        posterior = make_posterior(Gaussian(), 64, weights=(0.5, 2.0))
        batch = posterior.minibatch(jnp.arange(4, dtype=jnp.int32), jnp.asarray(1), 16)
        np.testing.assert_allclose(batch.rows.weight, 4.0 * posterior.rows.weight[16:32], rtol=1e-6)

    @pytest.mark.parametrize("likelihood", [Gaussian(), Categorical(3)], ids=str)
    def test_is_the_same_by_xla(self, likelihood):
        both = [make_posterior(likelihood, 200), make_posterior(likelihood, 200, kind=OtherMLP)]
        position = make_positions(both[0].network)
        ours, theirs = (epoch(each, jax.random.key(2), 40)[1].value_and_grad(position) for each in both)
        close(ours, theirs)

    @pytest.mark.skipif(native.kernel_name() == "xla", reason="the native kernel was not built")
    def test_takes_whole_native_steps(self, kernel):
        """A step in one call, on each kernel, is the step by parts."""
        posterior = make_posterior(Gaussian(), 200)
        batch = epoch(posterior, jax.random.key(3), 40)[1]
        key = jax.random.key(4)
        state = _mclmc.init(key, make_positions(posterior.network), batch)
        assert batch.native_step(key, state.position) is not None
        step_size, length = jnp.float32(0.05), jnp.float32(jnp.inf)
        ours, info = jax.jit(_mclmc.step)(key, state, batch, step_size, length)
        theirs, their_info = jax.jit(_mclmc._step)(key, state, batch, step_size, length)
        close(ours, theirs)
        assert info.finite
        np.testing.assert_allclose(info.energy_change, their_info.energy_change, atol=1e-3)
