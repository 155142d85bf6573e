"""The attention network: counts of the paper, agreement with a plain implementation, padding, gradients."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mile.likelihoods import Categorical
from mile.networks import ATT_V1, ATT_V2, ATT_V3, TEXT_TEMPLATES, Attention, FixedArray, _pooling, places
from mile.padded_rows import pad_rows
from mile.posterior import log_likelihood

SMALL = Attention(vocabulary=11, context=6, width=5, heads=2, attention_width=4, hidden=(3,), n_outputs=2)


def with_table(network, seed=0):
    shape = (network.vocabulary + network.context, network.width)
    return replace(network, embedding=FixedArray(np.random.default_rng(seed).normal(size=shape)))


VARIANTS = {
    "sampled": SMALL,
    "fixed": with_table(SMALL),
    "no biases": replace(SMALL, biases=False),
    "one head": replace(SMALL, heads=1),
    "two dense layers": replace(with_table(SMALL), hidden=(7, 3)),
    "no dense layer": replace(SMALL, hidden=()),
    "everything attended": replace(SMALL, masked=False),
    "eight heads": replace(SMALL, heads=8, attention_width=64),
    "ten heads": replace(with_table(SMALL), heads=10, attention_width=100),
}


def some_texts(network, n_texts, seed=1):
    """Token numbers [text, position] of every length, the empty text included; padding comes last."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(1, network.vocabulary, (n_texts, network.context))
    lengths = np.arange(n_texts) % (network.context + 1)
    return np.where(np.arange(network.context) < lengths[:, None], ids, 0)


def some_position(network, seed=2):
    return np.random.default_rng(seed).normal(size=network.dimension)


def plain_outputs(network, position, ids):
    """Evaluate one text after another, as the formulas are written: scores, softmax, values, projection, mean."""
    matrices = []
    for layer, where in zip(network.layers, places(network.layers), strict=True):
        run = position[where]
        n_inputs = network.width if layer.name in ("tokens", "positions") else layer.fan_in
        columns = network.width if layer.name in ("tokens", "positions") else layer.n_weights // n_inputs
        bias = run[layer.n_weights :] if layer.n_biases else np.zeros(columns)
        matrices.append((run[: layer.n_weights].reshape(-1, columns), bias))
    if network.embedding is None:
        (tokens, _), (positions, _) = matrices[:2]
        matrices = matrices[2:]
    else:
        table = network.embedding.values.astype(np.float64)
        tokens, positions = table[: network.vocabulary], table[network.vocabulary :]
    *projections, (output, output_bias) = matrices[:4]
    found = []
    for text in ids:
        x = tokens[text] + positions
        query, key, value = (np.split(x @ matrix + bias, network.heads, axis=1) for matrix, bias in projections)
        seen = text != 0 if network.masked else np.ones(len(text), bool)
        mean = np.zeros(network.width)
        if seen.any():
            heads = []
            for head in range(network.heads):
                scores = query[head] @ key[head].T / np.sqrt(key[head].shape[1])
                weights = np.exp(scores - scores.max()) * seen
                heads.append(weights / weights.sum(axis=1, keepdims=True) @ value[head])
            mean = (np.concatenate(heads, axis=1) @ output + output_bias)[seen].mean(axis=0)
        hidden = mean
        for index, (matrix, bias) in enumerate(matrices[4:]):
            hidden = (np.asarray(jax.nn.gelu(hidden)) if index else hidden) @ matrix + bias
        found.append(hidden)
    return np.array(found).T


def outputs_in_double(network, position, ids):
    with jax.enable_x64(True):
        found = jax.jit(network.apply)(jnp.asarray(position), jnp.asarray(ids.T, jnp.float32))
        assert found.dtype == jnp.float64
        return np.asarray(found)


@pytest.mark.parametrize(
    ("name", "count", "is_fixed"), [("att_v1", 68_448, False), ("att_v2", 55_778, True), ("att_v3", 106_190, True)]
)
def test_parameter_counts_are_the_papers(name, count, is_fixed):
    network = TEXT_TEMPLATES[name].sized((70,), 2)
    assert network.dimension == count == sum(layer.size for layer in network.layers)
    assert network.init(jax.random.key(0)).shape == (count,)
    assert network.has_fixed_embedding == is_fixed
    assert network.n_inputs == 70


def test_a_table_of_embeddings_does_not_count():
    assert with_table(ATT_V2).sized((70,), 2).dimension == 55_778
    assert ATT_V2.with_free_embedding().sized((70,), 2).dimension == 55_778 + 10_070 * 192


@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_outputs_equal_a_plain_implementation(variant):
    network = VARIANTS[variant]
    ids, position = some_texts(network, 9), some_position(network)
    with jax.enable_x64(True):  # for the activation of the plain one
        expected = plain_outputs(network, position, ids)
    np.testing.assert_allclose(outputs_in_double(network, position, ids), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("variant", sorted(VARIANTS))
@pytest.mark.parametrize("n_texts", [1, 8])  # fewer tokens than the vocabulary has, and more
def test_gradients_are_those_of_finite_differences(variant, n_texts):
    network = VARIANTS[variant]
    ids, start = some_texts(network, n_texts + 5)[5:], some_position(network)
    step = 1e-5
    directions = np.random.default_rng(3).normal(size=(8, network.dimension))
    with jax.enable_x64(True):
        x, factors = jnp.asarray(ids.T, jnp.float32), jnp.arange(1.0, 2 * n_texts + 1).reshape(2, n_texts)

        @jax.jit
        def total(position):
            return jnp.sum(network.apply(position, x) * factors)

        gradient = np.asarray(jax.jit(jax.grad(total))(jnp.asarray(start)))
        numeric = [(total(start + step * way) - total(start - step * way)) / (2 * step) for way in directions]
    np.testing.assert_allclose(directions @ gradient, numeric, rtol=1e-6, atol=1e-7 * np.abs(numeric).max())


def test_the_gradient_of_every_parameter_is_that_of_the_plain_formula():
    # Differentiated by JAX itself, without the rule that the fast form has.
    network = SMALL
    ids, start = some_texts(network, 20), some_position(network)
    shapes = [(layer.n_weights, layer.n_biases) for layer in network.layers]

    def plain(position):
        cuts = jnp.split(position, np.cumsum([sum(shape) for shape in shapes])[:-1])
        parts = [
            (cut[:n].reshape(layer.fan_in, -1), cut[n:])
            for cut, layer, (n, _) in zip(cuts, network.layers, shapes, strict=True)
        ]
        tokens, positions = (part.reshape(-1, network.width) for part, _ in parts[:2])
        x = tokens[ids] + positions
        query, key, value = ((x @ w + b).reshape(*ids.shape, network.heads, -1) for w, b in parts[2:5])
        seen = jnp.asarray(ids != 0)
        scores = jnp.einsum("rqhc,rkhc->rhqk", query, key) / jnp.sqrt(query.shape[-1])
        attention = jax.nn.softmax(jnp.where(seen[:, None, None], scores, -1e30), axis=-1)
        output = jnp.einsum("rhqk,rkhc->rqhc", attention, value).reshape(*ids.shape, -1) @ parts[5][0] + parts[5][1]
        hidden = jnp.sum(output * seen[..., None], axis=1) / jnp.maximum(seen.sum(1), 1)[:, None]
        hidden = jax.nn.gelu(hidden @ parts[6][0] + parts[6][1])
        return jnp.sum(jnp.sin(hidden @ parts[7][0] + parts[7][1]))

    with jax.enable_x64(True):
        x = jnp.asarray(ids.T, jnp.float32)
        fast = jax.jit(jax.value_and_grad(lambda one: jnp.sum(jnp.sin(network.apply(one, x)))))(jnp.asarray(start))
        expected = jax.jit(jax.value_and_grad(plain))(jnp.asarray(start))
    np.testing.assert_allclose(fast[0], expected[0], rtol=1e-12)
    np.testing.assert_allclose(fast[1], expected[1], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("variant", ["sampled", "fixed"])
def test_projecting_the_vocabulary_and_projecting_the_texts_agree(variant):
    few = VARIANTS[variant]
    # Tokens that never occur turn the first way into the second.
    many = replace(few, vocabulary=1_000, embedding=None)
    ids, rng = some_texts(few, 20), np.random.default_rng(4)
    assert few.vocabulary <= ids.size < many.vocabulary
    rest = some_position(replace(few, embedding=None))[(few.vocabulary + few.context) * few.width :]
    table = rng.normal(size=(few.vocabulary + few.context, few.width)).astype(np.float32)
    unused = rng.normal(size=(many.vocabulary - few.vocabulary, few.width)).astype(np.float32)
    wide = np.concatenate([table[: few.vocabulary], unused, table[few.vocabulary :]])
    found = []
    for network, rows in ((few, table), (many, wide)):
        if variant == "fixed":
            network, position = replace(network, embedding=FixedArray(rows)), rest
        else:
            position = np.concatenate([rows.ravel(), rest])
        with jax.enable_x64(True):
            x = jnp.asarray(ids.T, jnp.float32)
            total = jax.jit(
                jax.value_and_grad(lambda one, network=network, x=x: jnp.sum(jnp.sin(network.apply(one, x))))
            )
            value, gradient = total(jnp.asarray(position))
            found.append((value, gradient[-len(rest) :]))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-12)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("n_texts", [1, 7, 16, 21])
def test_the_size_of_blocks_changes_nothing(monkeypatch, n_texts):
    network = SMALL
    ids, position = some_texts(network, n_texts), some_position(network)

    def evaluate():
        with jax.enable_x64(True):
            x = jnp.asarray(ids.T, jnp.float32)
            return jax.jit(jax.value_and_grad(lambda one: jnp.sum(jnp.sin(network.apply(one, x)))))(position)

    at_once = evaluate()
    monkeypatch.setattr(_pooling, "_BLOCK_SCORES", 4 * network.heads * network.context**2)
    by_four = evaluate()
    np.testing.assert_allclose(at_once[0], by_four[0], rtol=1e-12)
    np.testing.assert_allclose(at_once[1], by_four[1], rtol=1e-10, atol=1e-12)


def test_padding_changes_nothing_unless_it_is_a_token_like_any_other():
    long = with_table(replace(SMALL, context=9))
    table = long.embedding.values
    short = replace(SMALL, context=6, embedding=FixedArray(np.delete(table, slice(-3, None), axis=0)))
    ids = some_texts(short, 12)
    padded = np.pad(ids, ((0, 0), (0, 3)))
    position = some_position(short)
    found = outputs_in_double(long, position, padded)
    np.testing.assert_allclose(found, outputs_in_double(short, position, ids), rtol=1e-12)
    reference = [replace(network, masked=False) for network in (long, short)]
    assert not np.allclose(
        outputs_in_double(reference[0], position, padded), outputs_in_double(reference[1], position, ids)
    )
    # Whatever stands for padding in the table.
    other = replace(long, embedding=FixedArray(np.concatenate([table[:1] + 100.0, table[1:]])))
    np.testing.assert_array_equal(found, outputs_in_double(other, position, padded))


def test_a_text_of_padding_alone_has_finite_outputs_that_depend_on_the_dense_layers_only():
    network = replace(with_table(SMALL), hidden=())
    position = some_position(network).astype(np.float32)
    x = jnp.zeros((network.context, 3))
    outputs = jax.jit(network.apply)(jnp.asarray(position), x)
    np.testing.assert_array_equal(outputs, np.repeat(position[-2:, None], 3, axis=1))  # the last biases
    gradient = jax.jit(jax.grad(lambda one: jnp.sum(network.apply(one, x))))(jnp.asarray(position))
    np.testing.assert_array_equal(gradient[:-2], 0.0)
    np.testing.assert_array_equal(gradient[-2:], 3.0)


@pytest.mark.parametrize("variant", ["sampled", "fixed", "everything attended"])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_values_and_gradients_are_finite_for_small_and_large_weights(variant, scale):
    network = VARIANTS[variant]
    position = jnp.asarray(scale * some_position(network), jnp.float32)
    x = jnp.asarray(some_texts(network, 8).T, jnp.float32)
    value, gradient = jax.jit(jax.value_and_grad(lambda one: jnp.sum(network.apply(one, x))))(position)
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


def test_a_weight_that_is_not_a_number_shows():
    position = jnp.asarray(some_position(SMALL), jnp.float32)
    x = jnp.asarray(some_texts(SMALL, 8)[1:].T, jnp.float32)
    apply = jax.jit(SMALL.apply)
    for layer, where in zip(SMALL.layers, places(SMALL.layers), strict=True):
        if layer.name != "tokens":
            assert np.isnan(apply(position.at[where.start].set(jnp.nan), x)).any(), layer.name


def test_evaluations_for_several_positions_at_once_are_those_of_each():
    network = with_table(SMALL)
    positions = jnp.asarray(np.random.default_rng(5).normal(size=(3, network.dimension)), jnp.float32)
    x = jnp.asarray(some_texts(network, 8).T, jnp.float32)
    gradient = jax.jit(jax.grad(lambda position: jnp.sum(network.apply(position, x) ** 2)))
    np.testing.assert_allclose(
        jax.vmap(gradient)(positions), jnp.stack([gradient(one) for one in positions]), rtol=1e-4, atol=1e-4
    )


def test_the_posterior_takes_the_network_and_its_gradient():
    network = with_table(SMALL)
    ids, y = some_texts(network, 40), (np.arange(40) % 2).astype(np.int32)
    rows, position = pad_rows(ids.astype(np.float32), y), jnp.asarray(some_position(network), jnp.float32)
    evaluate = jax.value_and_grad(lambda one: log_likelihood(network, Categorical(2), one, rows))
    value, gradient = jax.jit(evaluate)(position)
    logits = plain_outputs(network, np.asarray(position, np.float64), ids)
    expected = (logits - np.log(np.exp(logits).sum(axis=0)))[y, np.arange(40)].sum()
    np.testing.assert_allclose(value, expected, rtol=1e-4)
    assert gradient.shape == (network.dimension,)


def test_starting_weights_have_the_layers_variances():
    network = Attention(vocabulary=500, width=40, heads=5, attention_width=60, hidden=(50,), n_outputs=30, biases=True)
    start = np.asarray(network.init(jax.random.key(0)))
    for layer, where in zip(network.layers, places(network.layers), strict=True):
        weights, biases = np.split(start[where], [layer.n_weights])
        fan_in = 40 if layer.name in ("tokens", "positions") else layer.fan_in
        assert not biases.any()
        assert abs(weights.var() * fan_in - 1.0) < 5 * np.sqrt(2 / weights.size), layer.name


def test_the_papers_networks_are_described_in_full():
    assert (ATT_V1.vocabulary, ATT_V1.width, ATT_V1.hidden, ATT_V1.biases) == (1_000, 48, (96,), False)
    assert (ATT_V2.vocabulary, ATT_V2.width, ATT_V2.heads, ATT_V2.attention_width) == (10_000, 192, 8, 64)
    assert (ATT_V3.heads, ATT_V3.attention_width, ATT_V3.hidden) == (10, 100, (128, 32))
    assert all(network.context == 70 and network.masked for network in (ATT_V1, ATT_V2, ATT_V3))
    assert hash(with_table(SMALL)) == hash(with_table(SMALL)) != hash(with_table(SMALL, seed=1))


def test_a_network_that_waits_for_its_embedding_says_so():
    network = ATT_V2.sized((70,), 2)
    with pytest.raises(ValueError, match="pretrain"):
        network.apply(jnp.zeros(network.dimension), jnp.zeros((70, 1)))


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"vocabulary": 1}, "vocabulary"),
        ({"vocabulary": (1 << 24) + 1}, "vocabulary"),
        ({"context": 0}, "context"),
        ({"width": 2.5}, "width"),
        ({"heads": 3}, "multiple of heads"),
        ({"attention_width": 0}, "attention_width"),
        ({"hidden": (4, 0)}, "hidden"),
        ({"hidden": [4]}, "hidden"),
        ({"n_outputs": 0}, "n_outputs"),
        ({"biases": 1}, "biases"),
        ({"pretrained": None}, "pretrained"),
        ({"masked": "yes"}, "masked"),
        ({"activation": "softplus"}, "activation"),
        ({"initializer": "zeros"}, "initializer"),
        ({"embedding": FixedArray(np.zeros((11, 5)))}, "embedding"),
        ({"embedding": np.zeros((17, 5))}, "embedding"),
    ],
)
def test_impossible_networks_are_refused_by_name(arguments, name):
    with pytest.raises(ValueError, match=name):
        replace(SMALL, **arguments)


def test_other_shapes_and_outputs_are_refused():
    with pytest.raises(ValueError, match="6 tokens"):
        SMALL.sized((7,), 2)
    with pytest.raises(ValueError, match="2 outputs"):
        SMALL.sized((6,), 3)
    with pytest.raises(ValueError, match="sized"):
        _ = ATT_V1.dimension
