"""The native kernel gives XLA's numbers up to rounding and the same bits however it is called, or stands aside."""

import os
import subprocess
import sys
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jax import export
from perceptrons import (
    LOG_SCALE_LIMIT,
    OtherMLP,
    close,
    make_network,
    make_positions,
    make_posterior,
    make_rows,
    reference,
)
from targets import assert_same_bits

from mile import Categorical, Gaussian, native
from mile.native import _library
from mile.native._library import library
from mile.networks.mlp import ACTIVATIONS
from mile.padded_rows import PaddedRows, pad_rows
from mile.posterior import _plain, log_likelihood
from mile.samplers import _mclmc

needs_kernel = pytest.mark.skipif(native.kernel_name() == "xla", reason="the native kernel was not built")
HEADS = {"regression": Gaussian(), "3 classes": Categorical(3)}
every_head = pytest.mark.parametrize("likelihood", HEADS.values(), ids=HEADS)
every_activation = pytest.mark.parametrize("activation", ACTIVATIONS)
TWO_CHUNKS = 1_000  # rows: enough for the kernel to cut them up, with an incomplete tile at the end
UNLIMITED = 1 << 20


@partial(jax.jit, static_argnums=(0, 1))
def by_kernel(network, likelihood, position, rows):
    """Return value and gradient of one chain or several, and the value of the form without gradient."""
    spec = native.specify(network, likelihood, position.dtype, rows)
    data = native.Data(rows.x, rows.y, rows.weight, rows.count)

    def one_chain(position):
        return native.value_and_grad(spec, position, data), native.value(spec, position, data)

    return (one_chain if position.ndim == 1 else jax.vmap(one_chain))(position)


@partial(jax.jit, static_argnums=(0, 1))
def by_xla(network, likelihood, position, rows):
    return jax.value_and_grad(partial(_plain, network, likelihood))(position, rows)


def replaced(rows, **fields):
    return PaddedRows(**{name: getattr(rows, name) for name in ("x", "y", "weight", "count")} | fields)


def run_python(script, **environment):
    """Return what a new process prints on both streams; it must end well."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


# -- agreement ----------------------------------------------------------------------------------------


def check_against_reference(network, likelihood, position, rows, value, gradient, tolerance=1e-5):
    expected, scale, expected_gradient, _ = reference(network, likelihood, position, rows)
    assert abs(float(value) - expected) <= tolerance * scale
    error = np.linalg.norm(np.asarray(gradient, np.float64) - expected_gradient)
    assert error <= tolerance * np.linalg.norm(expected_gradient)
    return expected


def problem_of(problem):
    """Turn hypothesis' choices into a network, its likelihood, parameters and rows."""
    likelihood, n_inputs, seed = problem["likelihood"], problem["n_inputs"], problem["seed"]
    network = make_network(likelihood, problem["hidden"], problem["activation"], n_inputs)
    rows = make_rows(likelihood, problem["count"], n_inputs, seed, problem["weights"])
    position = make_positions(network, seed=seed + 1)
    *_, nearest = reference(network, likelihood, position, rows)
    assume(network.activation != "relu" or nearest > 1e-6)  # rounding may put a unit on the other side of its kink
    return network, likelihood, position, rows


# Tiles have 96 or 48 rows, blocks 12: around them, and anywhere.
row_counts = st.sampled_from([0, 1, 11, 12, 13, 47, 48, 49, 95, 96, 97, 192, 193]) | st.integers(0, 700)
problems = st.fixed_dictionaries(
    {
        "hidden": st.lists(st.integers(1, 40), max_size=4).map(tuple),
        "activation": st.sampled_from(list(ACTIVATIONS)),
        "likelihood": st.sampled_from([Gaussian(), Gaussian(link="bounded"), Gaussian(link="bounded", floor=0.3)])
        | st.integers(2, 7).map(Categorical),
        "n_inputs": st.integers(1, 20),
        "count": row_counts,
        "weights": st.sampled_from([(1.0,), (0.0, 1.0), (0.0, 0.25, 1.0, 1.75)]),
        "seed": st.integers(0, 1 << 16),
    }
)
examples = partial(settings, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


@needs_kernel
class TestAgreement:
    """By norm, to 1e-5, with a float64 reference."""

    @examples(max_examples=40)
    @given(problems)
    def test_of_any_network_on_any_data_with_plain_numpy(self, problem):
        network, likelihood, position, rows = problem_of(problem)
        try:
            for name in (None, b"portable"):
                library().mile_use_kernel(name)
                (value, gradient), value_alone = by_kernel(network, likelihood, position, rows)
                check_against_reference(network, likelihood, position, rows, value, gradient)
                check_against_reference(network, likelihood, position, rows, value_alone, gradient)
        finally:
            library().mile_use_kernel(None)

    @examples(max_examples=5)
    @given(problems)
    def test_of_the_xla_path_with_plain_numpy(self, problem):
        network, likelihood, position, rows = problem_of(problem)
        value, gradient = by_xla(network, likelihood, position, rows)
        check_against_reference(network, likelihood, position, rows, value, gradient)

    @pytest.mark.parametrize(
        ("hidden", "n_inputs", "count"),
        [
            ((128, 128, 128), 30, 500),
            ((64, 64), 8, TWO_CHUNKS),
            ((256,), 1, 97),
            ((1,) * 6, 2, 300),
            ((33, 1, 65), 300, 200),
            ((16, 16), 5, 1),
            ((), 200, 1),
        ],
        ids=str,
    )
    @every_head
    def test_of_wide_deep_narrow_and_short_problems(self, kernel, likelihood, hidden, n_inputs, count):
        network = make_network(likelihood, hidden, "silu", n_inputs)
        rows, position = make_rows(likelihood, count, n_inputs), make_positions(network)
        (value, gradient), _ = by_kernel(network, likelihood, position, rows)
        check_against_reference(network, likelihood, position, rows, value, gradient)

    @pytest.mark.parametrize("count", [959, 960, 961, 3_169, 100_000])
    @every_head
    def test_of_large_sums_with_plain_numpy(self, kernel, likelihood, count):
        network = make_network(likelihood, (4,))
        rows, position = make_rows(likelihood, count), make_positions(network)
        (value, gradient), alone = by_kernel(network, likelihood, position, rows)
        expected = check_against_reference(network, likelihood, position, rows, value, gradient, 1e-6)
        assert [float(value), float(alone)] == pytest.approx([expected] * 2, rel=1e-6)

    @every_head
    def test_of_large_sums_is_to_the_last_bit(self, kernel, likelihood):
        """They are added in double precision: what is lost would drown the energy change of a step."""
        network, rows = make_network(likelihood, (4,)), make_rows(likelihood, 20_000)
        positions = make_positions(network, 16)
        (values, _), alone = by_kernel(network, likelihood, positions, rows)
        expected = np.array([reference(network, likelihood, position, rows)[0] for position in positions])
        # Rounding the result alone makes 0.29 units in the last place, a sum of 32 parts in single precision about 1.
        for numbers in (values, alone):
            errors = (np.asarray(numbers, np.float64) - expected) / np.spacing(np.abs(expected).astype(np.float32))
            assert np.sqrt(np.mean(errors**2)) < 0.5

    def test_of_the_deepest_network_with_plain_numpy_and_deeper_ones_are_left_to_xla(self):
        network, deeper = (make_network(Gaussian(), (2,) * depth) for depth in (63, 64))
        rows, position = make_rows(Gaussian(), 20), make_positions(network)
        (value, gradient), _ = by_kernel(network, Gaussian(), position, rows)
        check_against_reference(network, Gaussian(), position, rows, value, gradient)
        assert native.specify(deeper, Gaussian(), position.dtype, rows) is None

    def test_is_not_a_matter_of_chance(self):
        """The comparison notices 3e-5 in the value, and in a single derivative."""
        network = make_network(Gaussian(), (16, 16))
        rows, position = make_rows(Gaussian(), 300), make_positions(network)
        (value, gradient), _ = by_kernel(network, Gaussian(), position, rows)
        check = partial(check_against_reference, network, Gaussian(), position, rows)
        check(value, gradient)
        with pytest.raises(AssertionError):
            check(value * (1 + 3e-5), gradient)
        with pytest.raises(AssertionError):
            check(value, gradient.at[40].add(3e-5 * jnp.linalg.norm(gradient)))


# -- bits ---------------------------------------------------------------------------------------------


@needs_kernel
class TestBits:
    """The numbers of a chain depend neither on its companions nor on the threads."""

    @every_head
    @pytest.mark.parametrize("count", [100, TWO_CHUNKS])
    def test_do_not_depend_on_the_threads(self, kernel, helpers, likelihood, count):
        network, rows = make_network(likelihood, (16, 16)), make_rows(likelihood, count)
        positions = make_positions(network, 5)
        results = []
        for n_helpers in (0, 1, 3, UNLIMITED):
            helpers(n_helpers)
            for n_chains in (1, 2, 5):
                result = by_kernel(network, likelihood, positions[:n_chains], rows)
                results.append(jax.tree.map(lambda leaf: np.array(leaf[0]), result))
        for result in results[1:]:
            assert_same_bits(result, results[0])

    @pytest.mark.parametrize("count", [100, TWO_CHUNKS])
    def test_of_a_chain_are_the_same_alone_and_among_up_to_thirteen(self, count):
        network, rows = make_network(Gaussian(), (5, 7)), make_rows(Gaussian(), count)
        positions = make_positions(network, 13)
        expected = by_kernel(network, Gaussian(), positions, rows)
        for n_chains in range(1, 13):
            few = by_kernel(network, Gaussian(), positions[-n_chains:], rows)
            assert_same_bits(few, jax.tree.map(lambda leaf, n=n_chains: leaf[-n:], expected))
        alone = by_kernel(network, Gaussian(), positions[4], rows)
        assert_same_bits(alone, jax.tree.map(lambda leaf: leaf[4], expected))

    def test_are_the_same_for_calls_side_by_side(self):
        """Scratch memory belongs to a thread; networks of other sizes use it in between."""
        networks = [make_network(Gaussian(), hidden) for hidden in ((4,), (32,))]
        rows = [make_rows(Gaussian(), count) for count in (100, 2_000)]
        positions = [make_positions(network, 4) for network in networks]
        call = lambda k: by_kernel(networks[k], Gaussian(), positions[k], rows[k])  # noqa: E731
        expected = jax.block_until_ready([call(0), call(1)])
        for k, result in enumerate([call(k % 2) for k in range(40)]):
            assert_same_bits(result, expected[k % 2])


# -- transformations ----------------------------------------------------------------------------------

NETWORK = make_network(Gaussian())
OTHER_NETWORK = make_network(Gaussian(), kind=OtherMLP)
ROWS = make_rows(Gaussian(), 20, weights=(0.5, 1.0))
POSITION, DIRECTION = make_positions(NETWORK, 2)


def value(network, position, rows=ROWS):
    return log_likelihood(network, Gaussian(), position, rows)


def in_a_scan(network):
    def body(position, _):
        number, gradient = jax.value_and_grad(partial(value, network))(position)
        return position + 1e-4 * gradient, number

    return lambda position: jax.lax.scan(body, position, length=5)


def over_data(network):
    shifts = jnp.linspace(0.0, 1.0, 3)

    def shifted(position, shift):
        rows = replaced(ROWS, x=ROWS.x + shift, y=ROWS.y - shift)
        return jax.value_and_grad(partial(value, network))(position, rows)

    def both(position):
        positions = position * (1 + shifts[:, None])
        return jax.vmap(shifted, (None, 0))(position, shifts), jax.vmap(shifted)(positions, shifts)

    return both


def with_respect_to(name):
    def by_network(network):
        def of_field(field, position):
            return value(network, position, replaced(ROWS, **{name: field}))

        return lambda position: jax.value_and_grad(of_field, argnums=(0, 1))(getattr(ROWS, name), position)

    return by_network


def scaled(position, *shape):
    return position * jnp.linspace(0.5, 1.0, int(np.prod(shape))).reshape(*shape, 1)


# Each takes a network and gives a function of a position.
TRANSFORMATIONS = {
    "nothing": lambda network: partial(value, network),
    "value_and_grad": lambda network: jax.value_and_grad(partial(value, network)),
    "jvp": lambda network: lambda position: jax.jvp(partial(value, network), (position,), (DIRECTION,)),
    "linearize": lambda network: lambda position: jax.linearize(partial(value, network), position)[1](DIRECTION),
    "vmap": lambda network: lambda position: jax.vmap(partial(value, network))(scaled(position, 4)),
    "vmap of grad": lambda network: lambda position: jax.vmap(jax.grad(partial(value, network)))(scaled(position, 4)),
    "grad of vmap": lambda network: jax.grad(
        lambda position: jnp.sum(jax.vmap(partial(value, network))(scaled(position, 4)) ** 2)
    ),
    "vmap of vmap": lambda network: (
        lambda position: jax.vmap(jax.vmap(partial(value, network)))(scaled(position, 2, 3))
    ),
    "vmap over the last axis": lambda network: (
        lambda position: jax.vmap(partial(value, network), in_axes=1)(scaled(position, 4).T)
    ),
    "vmap over data": over_data,
    "scan": in_a_scan,
    "hessian": lambda network: jax.hessian(partial(value, network)),
    "jacrev of grad": lambda network: jax.jacrev(jax.grad(partial(value, network))),
    "checkpoint": lambda network: jax.grad(
        lambda position: jax.checkpoint(partial(value, network))(jnp.sin(position)) ** 2
    ),
    "grad of x": with_respect_to("x"),
    "grad of y": with_respect_to("y"),
    "grad of weight": with_respect_to("weight"),
}


@needs_kernel
class TestTransformations:
    @pytest.mark.parametrize("name", TRANSFORMATIONS)
    def test_give_what_they_give_of_the_xla_path(self, name):
        networks = (NETWORK, OTHER_NETWORK)
        ours, theirs = (jax.jit(TRANSFORMATIONS[name](network)).lower(POSITION) for network in networks)
        assert ("mile_value" in ours.as_text()) == (name not in ("hessian", "jacrev of grad"))
        assert "mile_value" not in theirs.as_text()
        close(ours.compile()(POSITION), theirs.compile()(POSITION))

    def test_are_not_needed(self):
        close(value(NETWORK, POSITION), by_xla(NETWORK, Gaussian(), POSITION, ROWS)[0])

    def test_of_no_chains_give_nothing(self):
        gradients = jax.jit(jax.vmap(jax.value_and_grad(partial(value, NETWORK))))(jnp.zeros((0, NETWORK.dimension)))
        assert [leaf.shape for leaf in gradients] == [(0,), (0, NETWORK.dimension)]

    def test_over_chains_make_one_call_for_all(self):
        text = jax.jit(jax.vmap(jax.grad(partial(value, NETWORK)))).lower(jnp.zeros((7, NETWORK.dimension))).as_text()
        assert text.count("mile_value_and_grad") == 1
        assert "stablehlo.while" not in text

    def test_over_devices_give_the_same_numbers(self):
        assert run_python(SHARDED).splitlines()[-1] == "the same"


SHARDED = """
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_num_cpu_devices", 2)
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from mile import MLP, Gaussian, Normal
from mile.padded_rows import PaddedRows, pad_rows
from mile.posterior import Posterior, log_likelihood
from mile.samplers import _mclmc

rng = np.random.default_rng(0)
rows = pad_rows(rng.standard_normal((50, 3)).astype(np.float32), rng.standard_normal(50).astype(np.float32))
network = MLP(n_inputs=3, hidden=(5,))
posterior = Posterior(rows=rows, network=network, likelihood=Gaussian(), prior=Normal())
positions = jnp.asarray(0.3 * rng.standard_normal((4, network.dimension)), jnp.float32)
assert len(jax.devices()) == 2
mesh = jax.make_mesh((2,), ("devices",), axis_types=(AxisType.Auto,))
over_chains, whole = NamedSharding(mesh, P("devices")), NamedSharding(mesh, P())

def same(one, other, tolerance=0.0):
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(np.asarray(left), np.asarray(right), rtol=tolerance, atol=tolerance)

def gradients(posterior, positions):
    return jax.vmap(posterior.value_and_grad)(positions)

expected = jax.jit(gradients)(posterior, positions)
compiled = jax.jit(gradients, in_shardings=(whole, over_chains), out_shardings=over_chains)
same(compiled(posterior, jax.device_put(positions, over_chains)), expected)
mapped = jax.shard_map(gradients, mesh=mesh, in_specs=(P(), P("devices")), out_specs=P("devices"))
assert "mile_value_and_grad" in jax.jit(mapped).lower(posterior, positions).as_text()
same(jax.jit(mapped)(posterior, positions), expected)

def data_term(rows, position):
    return jax.value_and_grad(log_likelihood, argnums=2)(network, Gaussian(), position, rows)

def part(rows, position):
    position = jax.lax.pcast(position, "devices", to="varying")
    return jax.lax.psum(data_term(rows, position), "devices")

# PaddedRows on two devices, padding on the second: by hand, and left to XLA.
whole_term = jax.jit(data_term)(rows, positions[0])
specs = PaddedRows(x=P(None, "devices"), y=P("devices"), weight=P("devices"), count=P())
summed = jax.shard_map(part, mesh=mesh, in_specs=(specs, P()), out_specs=P())
same(jax.jit(summed)(rows, positions[0]), whole_term, 1e-4)
spread = jax.tree.map(lambda leaf, spec: jax.device_put(leaf, NamedSharding(mesh, spec)), rows, specs)
same(jax.jit(data_term)(spread, positions[0]), whole_term)

keys = jax.random.split(jax.random.key(0), 4)
states = jax.jit(jax.vmap(lambda key, position: _mclmc.init(key, position, posterior)))(keys, positions)
def steps(keys, states):
    return jax.vmap(lambda key, state: _mclmc.step(key, state, posterior, jnp.float32(0.1), 1.0))(keys, states)
stepped = jax.shard_map(steps, mesh=mesh, in_specs=P("devices"), out_specs=P("devices"))
assert "mile_mclmc_step" in jax.jit(stepped).lower(keys, states).as_text()
same(jax.jit(stepped)(keys, states), jax.jit(steps)(keys, states))
print("the same")
"""


# -- extremes -----------------------------------------------------------------------------------------


@needs_kernel
class TestExtremes:
    @every_activation
    @every_head
    def test_a_nan_anywhere_in_the_parameters_makes_the_value_nan(self, kernel, likelihood, activation):
        network, rows = make_network(likelihood, (5, 3), activation), make_rows(likelihood, 20)
        broken = jnp.where(jnp.eye(network.dimension, dtype=bool), jnp.nan, make_positions(network))
        (values, gradients), alone = by_kernel(network, likelihood, broken, rows)
        assert np.isnan(values).all()
        assert np.isnan(alone).all()
        assert np.isnan(gradients).any(axis=1).all()

    @every_activation
    @pytest.mark.parametrize("row", [0, 47, 96, 99])
    def test_a_nan_in_a_row_makes_the_value_nan(self, activation, row):
        network, rows = make_network(Gaussian(), activation=activation), make_rows(Gaussian(), 100)
        for broken in (
            replaced(rows, x=rows.x.at[2, row].set(jnp.nan)),
            replaced(rows, y=rows.y.at[row].set(jnp.nan)),
            replaced(rows, weight=rows.weight.at[row].set(jnp.nan)),
        ):
            (value, gradient), alone = by_kernel(network, Gaussian(), make_positions(network), broken)
            assert np.isnan(value)
            assert np.isnan(alone)
            assert np.isnan(gradient).any()

    def test_a_nan_in_the_padding_does_not(self):
        broken = replaced(ROWS, x=ROWS.x.at[:, 20:].set(jnp.nan), y=ROWS.y.at[20:].set(jnp.nan))
        assert_same_bits(*(by_kernel(NETWORK, Gaussian(), POSITION, rows) for rows in (broken, ROWS)))

    @pytest.mark.parametrize("count", [5, 100, TWO_CHUNKS])
    def test_a_nan_in_one_chain_leaves_the_bits_of_the_others(self, helpers, count):
        network, rows = make_network(Gaussian(), (16,)), make_rows(Gaussian(), count)
        positions = make_positions(network, 7)
        usual = by_kernel(network, Gaussian(), positions, rows)
        others = np.array([0, 1, 3, 4, 5, 6])
        for n_helpers in (0, 1, UNLIMITED):
            helpers(n_helpers)
            broken = by_kernel(network, Gaussian(), positions.at[2].set(jnp.nan), rows)
            assert np.isnan(broken[1][2])
            assert_same_bits(*(jax.tree.map(lambda leaf: leaf[others], result) for result in (broken, usual)))
            # Nor does what a call leaves in its scratch memory change the next one.
            assert_same_bits(by_kernel(network, Gaussian(), positions, rows), usual)

    @pytest.mark.parametrize("sign", [-1, 1])
    def test_the_log_scale_is_clamped_with_zero_derivative(self, kernel, sign):
        """Without hidden layers and with x = 0 the outputs are the biases."""
        network = make_network(Gaussian(), (), n_inputs=1)
        rows = pad_rows(np.zeros((30, 1), np.float32), np.full(30, 0.5, np.float32))
        for raw in (0.999 * LOG_SCALE_LIMIT, 1.001 * LOG_SCALE_LIMIT, 100.0, 1e30):
            position = jnp.asarray([0.0, 0.0, 0.25, sign * raw], jnp.float32)
            (value, gradient), alone = by_kernel(network, Gaussian(), position, rows)
            expected, _, expected_gradient, _ = reference(network, Gaussian(), position, rows)
            assert [float(value), float(alone)] == pytest.approx([expected] * 2, rel=3e-6)
            np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-5)
            assert (gradient[3] != 0) == (raw < LOG_SCALE_LIMIT)
            assert gradient[2] != 0

    @pytest.mark.parametrize("n_classes", [2, 3, 5])
    def test_logits_of_ten_thousand_and_more_stay_finite(self, kernel, n_classes):
        likelihood = Categorical(n_classes)
        network, rows = make_network(likelihood, (), n_inputs=1), make_rows(likelihood, 50, 1)
        for high in (1e4, 1e30):
            position = jnp.asarray([*np.zeros(n_classes), *np.linspace(-high, high, n_classes)], jnp.float32)
            (value, gradient), alone = by_kernel(network, likelihood, position, rows)
            expected, _, expected_gradient, _ = reference(network, likelihood, position, rows)
            assert [float(value), float(alone)] == pytest.approx([expected] * 2, rel=1e-6)
            np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-5, atol=1e-5)

    def test_relu_has_slope_zero_at_zero_on_both_paths(self, kernel):
        network = make_network(Gaussian(), (3,), "relu", n_inputs=1)
        rows = pad_rows(np.ones((5, 1), np.float32), np.ones(5, np.float32))
        # Sums of exactly 0: 0 * 1 + 0, 1 * 1 - 1 and -0. The slope decides the first six derivatives.
        position = jnp.asarray([0.0, 1.0, -0.0, 0.0, -1.0, -0.0, *np.ones(6), 0.0, 0.0], jnp.float32)
        (_, gradient), _ = by_kernel(network, Gaussian(), position, rows)
        _, expected = by_xla(network, Gaussian(), position, rows)
        np.testing.assert_array_equal(gradient[:6], np.zeros(6))
        np.testing.assert_allclose(gradient, expected, rtol=1e-6)
        assert expected[-2] != 0

    @every_activation
    def test_activations_far_out_are_those_of_xla(self, kernel, activation):
        """From where a polynomial takes over, past where exp would overflow or wrap, to where squares almost do."""
        network = make_network(Gaussian(), (1,), activation, n_inputs=1)
        far = np.array([0.0, 1e-30, 1e-4, 0.624, 0.626, 1, 5, 9, 20, 43, 45, 87, 88, 89, 104, 200, 1e4, 1e9, 1e15])
        position = jnp.asarray([1.0, 0.0, 1e-3, 0.0, 0.5, 0.2], jnp.float32)
        for z in np.concatenate([far, -far]).astype(np.float32):
            rows = pad_rows(np.full((1, 1), z), np.ones(1, np.float32))
            (value, gradient), alone = by_kernel(network, Gaussian(), position, rows)
            expected, expected_gradient = by_xla(network, Gaussian(), position, rows)
            assert [float(value), float(alone)] == pytest.approx([float(expected)] * 2, rel=1e-5)
            np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-4, atol=1e-6)

    @pytest.mark.parametrize("activation", ["relu", "tanh"])
    @every_head
    def test_an_infinity_never_hides(self, likelihood, activation):
        """Where XLA has no finite number there is none here, and a finite number is the right one."""
        network, rows = make_network(likelihood, activation=activation), make_rows(likelihood, 20)
        position = make_positions(network)
        cases = []
        for infinity in (np.inf, -np.inf):
            cases += [(position.at[k].set(infinity), rows) for k in range(0, network.dimension, 3)]
            cases += [(position, replaced(rows, x=rows.x.at[1, 7].set(infinity)))]
            if isinstance(likelihood, Gaussian):
                cases += [(position, replaced(rows, y=rows.y.at[7].set(infinity)))]
        n_infinite = 0
        for position_here, rows_here in cases:
            (value, _), alone = by_kernel(network, likelihood, position_here, rows_here)
            expected, _ = by_xla(network, likelihood, position_here, rows_here)
            n_infinite += not np.isfinite(expected)
            for number in (value, alone):
                assert not np.isfinite(number) or float(number) == pytest.approx(float(expected), rel=1e-5)
        assert n_infinite > 0


# -- choice of path -----------------------------------------------------------------------------------


def path(network=NETWORK, likelihood=None, position=None, rows=ROWS):
    """Return by what a program computes, from the program itself."""
    position = make_positions(network) if position is None else position
    gradient = jax.grad(partial(log_likelihood, network, likelihood or Gaussian()))
    return "native" if "mile_value_and_grad" in jax.jit(gradient).lower(position, rows).as_text() else "xla"


@dataclass(frozen=True)
class OtherGaussian(Gaussian):
    """Computes the same but might not."""


@needs_kernel
class TestChoice:
    def test_is_the_kernel_for_perceptrons_in_single_precision(self):
        assert native.kernel_name().startswith("native-")
        assert path() == "native"
        assert path(make_network(Categorical(3)), Categorical(3), rows=make_rows(Categorical(3), 20)) == "native"

    def test_is_xla_for_subclasses(self):
        assert path(OTHER_NETWORK) == "xla"
        assert path(likelihood=OtherGaussian()) == "xla"

    def test_is_xla_in_double_precision_and_where_precisions_differ(self):
        with jax.enable_x64(True):
            rows = jax.tree.map(lambda leaf: leaf.astype(jnp.float64) if leaf.dtype == jnp.float32 else leaf, ROWS)
            position = POSITION.astype(jnp.float64)
            assert path(position=position, rows=rows) == "xla"
            assert path(position=position, rows=ROWS) == "xla"
            assert path(position=POSITION, rows=rows) == "xla"
            assert path(position=POSITION, rows=ROWS) == "native"
            evaluate = jax.jit(partial(value, NETWORK))
            assert float(evaluate(POSITION, rows)) == pytest.approx(float(evaluate(position, rows)), rel=1e-12)

    def test_is_xla_for_a_response_of_another_type(self):
        """Its bits would be taken for numbers."""
        codes = replaced(ROWS, y=jnp.arange(32, dtype=jnp.int32) % 3)
        numbers = replaced(ROWS, y=codes.y.astype(jnp.float32))
        assert path(rows=codes) == "xla"
        evaluate = jax.jit(partial(value, NETWORK))
        close(evaluate(POSITION, codes), evaluate(POSITION, numbers))
        with jax.enable_x64(True):
            wide = replaced(ROWS, y=codes.y.astype(jnp.int64))
            network = make_network(Categorical(3))
            assert path(network, Categorical(3), rows=wide) == "xla"
            evaluate = jax.jit(partial(log_likelihood, network, Categorical(3)))
            close(*(evaluate(make_positions(network), rows) for rows in (wide, codes)))

    @every_head
    @pytest.mark.parametrize("name", ["x", "y", "weight", "type of y"])
    def test_buffers_that_do_not_fit_are_refused_and_not_read(self, likelihood, name):
        network, rows = make_network(likelihood), make_rows(likelihood, 20)
        spec = native.specify(network, likelihood, jnp.float32, rows)
        if name == "type of y":
            rows = replaced(rows, y=jnp.zeros(32, jnp.int32 if rows.y.dtype == jnp.float32 else jnp.float32))
        else:
            rows = replaced(rows, **{name: getattr(rows, name)[:1]})
        data = native.Data(rows.x, rows.y, rows.weight, rows.count)
        with pytest.raises(jax.errors.JaxRuntimeError, match=r"mile: .* fit"):
            jax.block_until_ready(jax.jit(lambda: native.value_and_grad(spec, make_positions(network), data))())

    @pytest.mark.parametrize("platform", ["cuda", "tpu"])
    def test_is_xla_on_other_devices(self, platform):
        posterior = make_posterior(Gaussian(), 20)
        vector, number = jnp.ones(posterior.dimension), jnp.float32(0.1)
        functions = {
            "gradient": lambda state: posterior.value_and_grad(state.position),
            "value": lambda state: posterior.logdensity(state.position),
            "step": lambda state: _mclmc.step(jax.random.key(0), state, posterior, number, 1.0),
        }
        for name, function in functions.items():
            program = export.export(jax.jit(function), platforms=[platform])(
                _mclmc.State(vector, vector, number, vector)
            )
            assert "mile_" not in program.mlir_module(), name
        # Exporting would not let them pass: it refuses custom calls that it does not know.
        with pytest.raises(ValueError, match="mile_"):
            export.export(jax.jit(functions["value"]), platforms=["cpu"])(_mclmc.State(vector, vector, number, vector))

    def test_is_kept_when_its_name_is_asked_for(self, kernel):
        names = {native.kernel_name() for _ in range(3)}
        assert len(names) == 1
        assert ("native-portable" in names) == (kernel == "portable")

    def test_of_the_user_holds_for_the_process(self):
        asked = "from mile import native; print(native.kernel_name(), native.kernel_name())"
        assert run_python(asked, MILE_NATIVE="portable").split() == ["native-portable"] * 2
        assert run_python(SWITCHED_OFF, MILE_NATIVE="0").split() == ["xla"]

    def test_of_rows_counts_each_as_often_as_it_was_taken(self):
        """A mini-batch may be longer than the data."""
        batch = make_rows(Gaussian(), 2).take(jnp.array([0, 1, 0, 1, 1, 5]))
        close(jax.jit(partial(value, NETWORK))(POSITION, batch), by_xla(NETWORK, Gaussian(), POSITION, batch)[0])


SWITCHED_OFF = """
import jax, jax.numpy as jnp, numpy as np
from mile import MLP, Gaussian, Normal, native
from mile.padded_rows import pad_rows
from mile.posterior import Posterior
from mile.samplers import _mclmc

rows = pad_rows(np.ones((20, 3), np.float32), np.ones(20, np.float32))
posterior = Posterior(rows=rows, network=MLP(n_inputs=3, hidden=(4,)), likelihood=Gaussian(), prior=Normal())
state = jax.jit(_mclmc.init)(jax.random.key(0), jnp.ones(posterior.dimension), posterior)
step = jax.jit(lambda state: _mclmc.step(jax.random.key(0), state, posterior, jnp.float32(0.1), 1.0))
assert step(state)[1].finite
assert "mile_" not in step.lower(state).as_text()
print(native.kernel_name())
"""


class TestMissing:
    def test_library_is_reported_in_one_line_and_xla_does_the_work(self, tmp_path):
        script = FIT.format(file=str(tmp_path / "_native.so"))
        first, *others = run_python(script, MILE_NATIVE="").splitlines()
        assert "the native kernel was not built when the package was installed" in first
        assert "XLA computes everything" in first
        assert others == ["xla"]

    @pytest.mark.parametrize("content", ["", "this is no library", "\x7fELF"])
    def test_library_that_cannot_be_loaded_is_reported_and_not_raised(self, tmp_path, monkeypatch, caplog, content):
        file = tmp_path / "_native.so"
        file.write_text(content)
        monkeypatch.setattr(_library, "_FILE", file)
        monkeypatch.delenv("MILE_NATIVE", raising=False)
        with caplog.at_level("WARNING", logger="mile"):
            assert _library._library.__wrapped__() == (None, _library.KernelState.REFUSED)
        (report,) = caplog.messages
        assert "the native kernel cannot be used, so XLA computes everything" in report
        assert str(file) in report  # what the system's loader said of it


# Members are trained in several threads, each of which asks for the library.
FIT = """
import pathlib
from mile.native import _library
_library._FILE = pathlib.Path({file!r})
import mile, numpy as np
from mile import native
from mile.ensemble.training import Training
rng = np.random.default_rng(0)
x, y = rng.standard_normal((40, 2)), rng.standard_normal(40)
data = mile.Dataset.from_arrays(x[:30], y[:30], x[30:], y[30:])
network = mile.MLP(n_inputs=2, hidden=(2,))
options = dict(n_chains=3, random_state=0, sampler=mile.DeepEnsemble(), training=Training(max_epochs=2))
fit = mile.fit(data, network, mile.Gaussian(), **options)
assert fit.ok.all()
assert np.isfinite(fit.predictive(x).mean).all()
print(native.kernel_name())
"""
