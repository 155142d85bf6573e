"""Networks of other libraries: the same outputs, exact gradients, own starting weights, and clear refusals."""

import copy
import json
import subprocess
import sys

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from own_networks import LIBRARIES, EquinoxNet, LinenNet, make, make_pair

from mile import UntrustedFileError
from mile.networks._signature import read_signature
from mile.networks.adapters import adapt

SHAPES = [(5,), (3, 2)]


def sized(library, input_shape=(5,), n_outputs=2):
    return adapt(make(library, input_shape, n_outputs)).sized(input_shape, n_outputs)


@pytest.mark.parametrize("input_shape", SHAPES, ids=str)
@pytest.mark.parametrize("library", LIBRARIES)
def test_gradient_equals_finite_differences(library, input_shape):
    network = sized(library, input_shape)
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        position = jnp.asarray(rng.normal(size=network.dimension))
        x, wanted = jnp.asarray(rng.normal(size=(network.n_inputs, 7))), jnp.asarray(rng.normal(size=(2, 7)))

        @jax.jit
        def loss(position):
            outputs = network.apply(position, x)
            assert outputs.dtype == jnp.float64
            return jnp.sum((outputs - wanted) ** 2)

        gradient, step = jax.grad(loss)(position), 1e-5
        ends = jax.vmap(loss)(position + step * jnp.concatenate([jnp.eye(len(position)), -jnp.eye(len(position))]))
        numeric = (ends[: len(position)] - ends[len(position) :]) / (2 * step)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-6 * np.abs(gradient).max())


def own_outputs(library, module, weights, batch):
    """Call a module the way its library says."""
    if library == "linen":
        return module.apply({"params": weights}, batch)
    if library == "nnx":
        copied = nnx.clone(module)
        nnx.update(copied, weights)
        return copied(batch)
    if library == "equinox":
        return jax.vmap(eqx.combine(weights, module))(batch)
    return module[1](weights, batch)


@pytest.mark.parametrize("input_shape", SHAPES, ids=str)
@pytest.mark.parametrize("library", LIBRARIES)
def test_outputs_are_those_of_the_module(library, input_shape):
    module = make(library, input_shape, 2)
    network = adapt(module).sized(input_shape, 2)
    position = network.init(jax.random.key(1))
    assert position.dtype == jnp.float32
    assert position.shape == (network.dimension,)
    batch = np.random.default_rng(0).normal(size=(9, *input_shape)).astype(np.float32)
    sizes = [leaf.size for leaf in network.form.leaves]
    pieces = np.split(np.asarray(position), np.cumsum(sizes)[:-1])
    leaves = [piece.reshape(leaf.shape) for piece, leaf in zip(pieces, network.form.leaves, strict=True)]
    expected = own_outputs(
        library, module, jax.tree.unflatten(jax.tree.structure(network.nested), map(jnp.asarray, leaves)), batch
    )
    outputs = network.apply(position, jnp.asarray(batch.reshape(9, -1).T))
    assert outputs.dtype == jnp.float32
    np.testing.assert_allclose(outputs, expected.T, rtol=1e-5, atol=1e-5)


def test_linen_draws_the_weights_that_flax_draws():
    module, key = LinenNet(2), jax.random.key(3)
    network = adapt(module).sized((5,), 2)
    flat, _ = jax.flatten_util.ravel_pytree(module.init(key, jnp.zeros((1, 5)))["params"])
    np.testing.assert_array_equal(network.init(key), flat)


@pytest.mark.parametrize("library", LIBRARIES)
def test_members_start_apart_and_the_same_key_draws_the_same(library):
    network = sized(library)
    one, two = jax.vmap(network.init)(jax.random.split(jax.random.key(0)))
    assert (one != two).mean() > 0.5
    np.testing.assert_array_equal(network.init(jax.random.key(7)), network.init(jax.random.key(7)))


@pytest.mark.parametrize("library", ["nnx", "equinox"])
def test_arrays_of_a_built_module_keep_mean_and_deviation_and_constant_ones_stay(library):
    if library == "nnx":
        module = nnx.Sequential(nnx.Linear(30, 40, rngs=nnx.Rngs(0)), nnx.LayerNorm(40, rngs=nnx.Rngs(0)))
        leaves = jax.tree.leaves(nnx.state(module))
    else:
        linear = eqx.nn.Linear(30, 40, key=jax.random.key(0))
        linear = eqx.tree_at(lambda layer: layer.bias, linear, jnp.full(40, 0.25))
        module = eqx.nn.Sequential([linear, eqx.nn.LayerNorm(40)])
        leaves = [leaf for leaf in jax.tree.leaves(module) if eqx.is_array(leaf)]
    network = adapt(module).sized((30,), 40)
    position, start = network.init(jax.random.key(1)), 0
    for leaf in leaves:
        drawn, own = position[start : start + leaf.size], np.asarray(leaf).ravel()
        start += leaf.size
        if (own == own[0]).all():
            np.testing.assert_array_equal(drawn, own)
        else:
            assert (drawn != own).all()
            # 1,200 entries: four standard errors
            assert abs(drawn.mean() - own.mean()) < 4 * own.std() / np.sqrt(own.size)
            assert abs(drawn.std() / own.std() - 1) < 4 / np.sqrt(2 * own.size)
    assert start == network.dimension


@pytest.mark.parametrize("library", LIBRARIES)
def test_layers_name_every_run_of_the_flat_vector(library):
    network = sized(library, (5,), 2)
    assert sum(layer.size for layer in network.layers) == network.dimension
    assert len({layer.name for layer in network.layers}) == len(network.layers)
    assert sorted(layer.fan_in for layer in network.layers if layer.n_weights) == [5, 8]
    assert all(layer.fan_in == 1 for layer in network.layers if layer.n_biases)


def test_names_of_arrays_are_their_paths():
    assert [leaf.path for leaf in sized("linen").form.leaves][:2] == ["Dense_0/bias", "Dense_0/kernel"]
    assert [leaf.path for leaf in sized("nnx").form.leaves][:2] == ["first/bias", "first/kernel"]
    assert [leaf.path for leaf in sized("equinox").form.leaves][:2] == ["first/weight", "first/bias"]
    assert [leaf.path for leaf in sized("pair").form.leaves][:2] == ["first/0", "first/1"]
    alone = adapt((lambda key: jnp.zeros((3, 2)), lambda weights, batch: batch @ weights)).sized((3,), 2)
    assert [leaf.path for leaf in alone.form.leaves] == ["weights"]


def test_fan_in_of_convolutions_and_embeddings():
    conv = eqx.nn.Sequential([eqx.nn.Conv2d(3, 4, 5, key=jax.random.key(0)), eqx.nn.Lambda(lambda z: z.mean((1, 2)))])
    weights, bias = adapt(conv).sized((3, 8, 8), 4).layers
    assert (weights.fan_in, weights.n_weights, bias.n_biases, bias.fan_in) == (75, 300, 4, 1)

    class Flax(nn.Module):
        @nn.compact
        def __call__(self, batch):
            hidden = nn.Embed(11, 3)(batch[:, 0, 0].astype(int))
            return hidden + nn.Conv(3, (5, 5))(batch[..., None]).mean((1, 2))

    found = {layer.name: layer.fan_in for layer in adapt(Flax()).sized((8, 8), 3).layers}
    assert found == {"Conv_0/bias": 1, "Conv_0/kernel": 25, "Embed_0/embedding": 1}


def test_row_floats_count_what_grows_with_the_rows():
    def apply(weights, batch):
        table = weights @ jnp.ones((2, 1000))  # none of a row's
        hidden = batch @ table  # 1,000
        steps, _ = jax.lax.scan(lambda carry, _: (carry * 2.0, None), hidden, None, length=3)  # 3,000
        return steps[:, :2]  # 2

    network = adapt((lambda key: jnp.zeros((4, 2)), apply)).sized((4,), 2)
    assert network.row_floats == 4002


@pytest.mark.parametrize("library", LIBRARIES)
def test_adapters_of_one_module_share_compiled_programs(library):
    module = make(library, (5,), 2)
    one, two = adapt(module).sized((5,), 2), adapt(module).sized((5,), 2)
    traces = []

    def outputs(network, position, x):
        traces.append(network)
        return network.apply(position, x)

    program = jax.jit(outputs, static_argnums=0)
    for network in (one, two, adapt(one).sized((5,), 2), one.sized((5,), 2)):
        assert network == one
        assert hash(network) == hash(one)
        program(network, jnp.zeros(one.dimension), jnp.zeros((5, 3)))
    assert len(traces) == 1
    assert one != adapt(make(library, (5,), 2, width=9)).sized((5,), 2)
    assert one != sized("linen" if library == "pair" else "pair")


@pytest.mark.parametrize("library", LIBRARIES)
def test_copies_as_scikit_learn_makes_them_are_equal(library):
    module = make(library, (5,), 2)
    assert adapt(copy.deepcopy(module)).sized((5,), 2) == adapt(module).sized((5,), 2)


def test_a_module_changed_in_place_is_another_network():
    module = make("nnx", (5,), 2)
    before = adapt(module).sized((5,), 2)
    module.first.kernel[...] = module.first.kernel[...] * 3.0
    after = adapt(module).sized((5,), 2)
    assert before != after
    assert before.init(jax.random.key(0)).std() < after.init(jax.random.key(0)).std()


def test_modules_that_do_not_hash_can_be_used():
    class Scaled(nn.Module):
        scale: np.ndarray

        @nn.compact
        def __call__(self, batch):
            return nn.Dense(2)(batch * self.scale)

    module = Scaled(np.arange(5.0, dtype=np.float32))
    with pytest.raises(TypeError, match="unhashable"):
        hash(module)
    network = adapt(module).sized((5,), 2)
    assert network == adapt(module).sized((5,), 2)
    assert network != adapt(Scaled(np.ones(5, np.float32))).sized((5,), 2)
    jax.jit(network.apply)(network.init(jax.random.key(0)), jnp.ones((5, 3)))


@pytest.mark.parametrize("library", LIBRARIES)
def test_signature_survives_json_and_is_the_same_in_another_process(library):
    code = (
        "import json; from own_networks import make; from mile.networks.adapters import adapt\n"
        f"print(json.dumps(adapt(make({library!r}, (5,), 2)).sized((5,), 2).signature))"
    )
    environment = {"PYTHONPATH": ":".join(path for path in sys.path if path), "JAX_PLATFORMS": "cpu"}
    text = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    network = sized(library)
    assert json.loads(text.stdout) == network.signature
    assert read_signature(json.loads(text.stdout)) == network.form


def test_importing_mile_imports_no_other_library():
    code = (
        "import sys, mile; from mile.networks.adapters import adapt\n"
        "try: adapt(3)\n"
        "except TypeError: pass\n"
        "sys.exit(any(name in sys.modules for name in ('flax', 'equinox')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "network",
    [3, "flax", LinenNet, EquinoxNet, (1, 2), (lambda key: 0,), lambda key: 0, None, object()],
    ids=["number", "word", "linen class", "equinox class", "numbers", "one function", "function", "none", "object"],
)
def test_anything_else_is_refused_with_what_is_accepted(network):
    with pytest.raises(TypeError, match=r"must be a flax\.linen\.Module.*equinox\.Module.*\(init, apply\)"):
        adapt(network)


class BatchNormed(nn.Module):
    @nn.compact
    def __call__(self, batch):
        return nn.Dense(2)(nn.BatchNorm(use_running_average=False)(batch))


class WithDropout(nn.Module):
    @nn.compact
    def __call__(self, batch):
        return nn.Dense(2)(nn.Dropout(0.5, deterministic=False)(batch))


class WithFlag(nn.Module):
    @nn.compact
    def __call__(self, batch, train):
        return nn.Dense(2)(batch)


def active_dropout():
    module = make("nnx", (5,), 2)
    module.train()
    return module


def pair(weights, apply):
    return (lambda key: weights), apply


LINEAR = jnp.zeros((5, 2))
KEY = jax.random.key(0)
REFUSED = {
    "linen state": (BatchNormed, "keeps batch_stats besides its params.*LayerNorm"),
    "linen dropout": (WithDropout, "could not .*PRNG.*no key"),
    "linen flag": (WithFlag, "could not .*train.*no flag for training"),
    "nnx state": (lambda: nnx.BatchNorm(5, rngs=nnx.Rngs(0)), "keeps BatchStat besides its Params.*LayerNorm"),
    "nnx dropout": (active_dropout, "draws random numbers"),
    "equinox dropout": (
        lambda: eqx.nn.Sequential([eqx.nn.Linear(5, 2, key=KEY), eqx.nn.Dropout(0.5)]),
        "could not evaluate .*key",
    ),
    "equinox scalar": (lambda: eqx.nn.Linear(5, "scalar", key=KEY), r"shape \(rows, 2\).*\(3,\).*needs two outputs"),
    "equinox not callable": (lambda: eqx.nn.StateIndex(0), "must be callable|no weights"),
    "pair dropout": (
        lambda: pair(LINEAR, lambda w, x: (x * jax.random.bernoulli(KEY, 0.5, x.shape)) @ w),
        "draws random numbers",
    ),
    "wrong input": (lambda: make_pair(6, 2), "could not evaluate a batch of shape"),
    "one output": (lambda: pair(LINEAR, lambda w, x: (x @ w)[:, :1]), r"\(rows, 2\).*needs two outputs"),
    "flat output": (lambda: pair(LINEAR, lambda w, x: (x @ w)[:, 0]), r"\(rows, 2\).*needs two outputs"),
    "rows last": (lambda: pair(LINEAR, lambda w, x: (x @ w).T), r"returns float32 of shape \(2, 3\)"),
    "two arrays": (lambda: pair(LINEAR, lambda w, x: (x @ w, x)), "one array; got tuple"),
    "integers out": (lambda: pair(LINEAR, lambda w, x: (x @ w).astype(int)), "must return floats"),
    "no weights": (lambda: pair({}, lambda w, x: x[:, :2]), "no weights"),
    "integer weights": (lambda: pair(LINEAR.astype(int), lambda w, x: x @ w), "weights .* is of int32.*must be floats"),
    "an integer among floats": (
        lambda: pair({"w": LINEAR, "n": jnp.arange(3)}, lambda w, x: x @ w["w"]),
        "n of the .* is of int32",
    ),
    "complex weights": (lambda: pair(LINEAR + 0j, lambda w, x: (x @ w).real), "is of complex64"),
    "init that fails": (lambda: ((lambda: LINEAR), lambda w, x: x @ w), "could not draw weights"),
    "not finite": (
        lambda: eqx.tree_at(lambda m: m.bias, eqx.nn.Linear(5, 2, key=KEY), jnp.full(2, jnp.nan)),
        "not finite",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_networks_that_cannot_be_sampled_are_refused(case):
    build, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        adapt(build()).sized((5,), 2)


def test_a_sized_network_is_refused_for_rows_of_another_shape():
    with pytest.raises(ValueError, match="could not evaluate"):
        sized("nnx").sized((6,), 2)


def test_differences_between_signatures_are_all_named():
    kept, given = sized("linen").form, adapt(make("linen", (5,), 2, width=9)).sized((5,), 2).form
    kept.check_same(kept)
    with pytest.raises(
        ValueError, match=r"Dense_0/kernel has shape \(5, 8\) in the file but \(5, 9\) in the network you"
    ):
        kept.check_same(given)
    with pytest.raises(ValueError, match=r"library is flax linen in the file but init and apply.*more"):
        kept.check_same(sized("pair").form)


def test_malformed_signatures_are_refused():
    good = sized("pair").signature
    array = good["arrays"][0]
    bad = [
        *(None, [], "x", {}, good | {"more": 1}, {key: good[key] for key in list(good)[1:]}),
        *(good | {"library": value} for value in ("os", 3, None, ["flax linen"], {})),
        *(good | {"n_outputs": value} for value in (0, -1, 1.5, True, None, 10**30, "2")),
        *(good | {"input_shape": value} for value in ([], [0], [10**30], [2**16, 2**16], [1] * 1000, 5, [None], [[5]])),
        *(good | {"arrays": value} for value in ([], {}, None, [[]], [None], [array] * 2, [array] * 1_000_000)),
        *(good | {"arrays": [array | {"shape": value}]} for value in ([10**30], [-1], "x", None, [1.0])),
        *(good | {"arrays": [array | {"path": value}]} for value in (None, 3, "x" * 10_000, [])),
        *(good | {"arrays": [array | {"dtype": value}]} for value in (None, "x" * 100)),
    ]
    for description in bad:
        with pytest.raises(UntrustedFileError, match="not the signature of a network") as caught:
            read_signature(description)
        assert len(str(caught.value)) < 200
