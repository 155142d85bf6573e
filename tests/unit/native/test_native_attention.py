"""The native form of attention gives XLA's numbers up to rounding, and the same bits on any number of threads."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from perceptrons import close
from targets import assert_same_bits

from mile import Categorical, Normal, native
from mile.native import _attention
from mile.networks import ATT_V2, Attention, FixedArray, _pooling
from mile.padded_rows import pad_rows
from mile.posterior import Posterior

pytestmark = pytest.mark.skipif(native.kernel_name() == "xla", reason="the native kernel was not built")
SMALL = Attention(vocabulary=30, context=9, width=6, heads=2, attention_width=6, hidden=(5,), n_outputs=3)


def problem(heads, width, n_texts, context, vocabulary, *, masked=True, seed=0):
    """Return the arguments of attention, and numbers to multiply its result with."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, context + 1, (n_texts, 1)) if masked else np.full((n_texts, 1), context)
    weights = (np.arange(context) < lengths) / np.maximum(lengths, 1)
    tables = [rng.standard_normal((n, 3 * heads * width)) for n in (vocabulary, context)]
    index = rng.integers(vocabulary, size=(n_texts, context))
    arguments = [jnp.asarray(array, jnp.float32) for array in (*tables, weights)]
    return heads, *arguments[:2], jnp.asarray(index, jnp.int32), arguments[2]


def value_and_slopes(attend, heads, tokens, positions, index, weights):
    def value(tokens, positions):
        pooled = attend(heads, tokens, positions, index, weights)
        return jnp.sum(pooled * jnp.cos(jnp.arange(pooled.size).reshape(pooled.shape))), pooled

    (_, pooled), slopes = jax.jit(jax.value_and_grad(value, argnums=(0, 1), has_aux=True))(tokens, positions)
    return pooled, slopes


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(
    "sizes", [(8, 8, 7, 70, 50), (10, 10, 3, 70, 200), (2, 3, 5, 7, 11), (1, 17, 4, 33, 9), (3, 1, 4, 2, 5)], ids=str
)
@pytest.mark.parametrize("masked", [True, False])
def test_it_agrees_with_xla(sizes, masked):
    arguments = problem(*sizes, masked=masked)
    close(
        value_and_slopes(_attention.pooled_attention, *arguments),
        value_and_slopes(_pooling.pooled_attention, *arguments),
    )


def test_threads_change_no_bit(helpers):
    arguments, found = problem(8, 8, 20, 70, 50), []
    for n_helpers in (0, 1, 5):
        helpers(n_helpers)
        found.append(value_and_slopes(_attention.pooled_attention, *arguments))
    assert_same_bits(found[0], found[1])
    assert_same_bits(found[0], found[2])


def test_a_text_without_tokens_gives_zero_and_no_slope():
    heads, tokens, positions, index, weights = problem(2, 4, 6, 5, 7)
    pooled, slopes = value_and_slopes(
        _attention.pooled_attention, heads, tokens, positions, index, jnp.zeros_like(weights)
    )
    assert not np.asarray(pooled).any()
    assert not any(np.asarray(slope).any() for slope in slopes)


def test_tokens_beyond_the_table_are_its_last():
    heads, tokens, positions, index, weights = problem(2, 4, 6, 5, 7, masked=False)
    beyond = value_and_slopes(
        _attention.pooled_attention, heads, tokens, positions, jnp.where(index == 6, 10**9, index), weights
    )
    assert_same_bits(beyond, value_and_slopes(_attention.pooled_attention, heads, tokens, positions, index, weights))


def test_what_is_not_finite_comes_out_as_such():
    heads, tokens, positions, index, weights = problem(2, 4, 6, 5, 7, masked=False)
    pooled, _ = value_and_slopes(
        _attention.pooled_attention, heads, tokens.at[index[0, 0], 0].set(jnp.nan), positions, index, weights
    )
    assert not np.isfinite(pooled[0]).all()


def test_the_posterior_uses_it_for_networks_with_free_and_with_fixed_embeddings():
    ids = np.random.default_rng(0).integers(0, 30, (20, 9)).astype(np.float32)
    rows = pad_rows(ids, np.arange(20).astype(np.int32) % 3)
    table = FixedArray(np.random.default_rng(1).standard_normal((39, 6)).astype(np.float32))
    for network in (SMALL, replace(SMALL, embedding=table)):
        posterior = Posterior(rows=rows, network=network, likelihood=Categorical(3), prior=Normal())
        text = jax.jit(posterior.value_and_grad).lower(network.init(jax.random.key(0))).as_text()
        assert "mile_attend_slopes" in text


def test_it_stands_aside_for_other_precisions_and_networks():
    class Other(Attention):
        pass

    assert native.accelerates(ATT_V2, jnp.float32)
    assert not native.accelerates(ATT_V2, jnp.float64)
    assert not native.accelerates(Other(vocabulary=5, width=4, attention_width=8), jnp.float32)
