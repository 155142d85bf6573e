"""Networks so large that products of their sizes pass 32 bits, on few rows; run as a program, for memory of its own.

Takes the names of cases and prints how far each build of the native kernel is from float64, or from XLA, by norm.
"""

import json
import sys
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from optax.tree_utils import tree_get
from perceptrons import OtherMLP, make_network, make_positions, make_rows, reference

from mile import MLP, Categorical, Gaussian, Normal, native
from mile.ensemble.training import Training, _native_update, _update
from mile.native._library import library
from mile.networks import ConvNet, Convolution
from mile.padded_rows import PaddedRows
from mile.posterior import Posterior, _plain
from mile.samplers import _mclmc

N_ROWS = 5
# The first overflow of 32 bits was at 113,500 or 160,500 inputs of a layer, by the build.
PERCEPTRONS = {
    "170,000 inputs": (Gaussian(), 170_000, (3,)),
    "300,000 inputs": (Categorical(3), 300_000, (3,)),
    "1,000,000 inputs": (Gaussian(), 1_000_000, (2,)),
    "1,000,000 inputs of the head": (Gaussian(), 1_000_000, ()),
    "200,000 hidden units": (Categorical(3), 3, (200_000,)),
    "200,000 hidden units below another layer": (Gaussian(), 2, (200_000, 3)),
    "200,000 hidden units above another layer": (Gaussian(), 2, (3, 200_000)),
}
LARGE_IMAGE = ConvNet(convolutions=(Convolution(filters=1, kernel=1),), hidden=(3,), image=(420, 420, 1), n_outputs=2)


def away(numbers: Any, expected: Any) -> float:
    numbers, expected = np.asarray(numbers, np.float64), np.asarray(expected, np.float64)
    return float(np.linalg.norm(numbers - expected) / np.linalg.norm(expected))


def by_kernel(network: Any, likelihood: Any, position: jax.Array, rows: PaddedRows) -> dict[str, Any]:
    """Return everything that the kernel says of a network."""
    spec = native.specify(network, likelihood, position.dtype, rows)
    assert spec is not None
    data = native.Data(rows.x, rows.y, rows.weight, rows.count)
    value, gradient = jax.jit(partial(native.value_and_grad, spec))(position, data)
    draws, x = np.asarray(position)[None], np.asarray(rows.x)[:, :N_ROWS]
    outputs = native.outputs(spec, draws, x)[0]
    return {
        "value": value,
        "gradient": gradient,
        "value alone": jax.jit(partial(native.value, spec))(position, data),
        "outputs": outputs,
        "output of one row": native.outputs(spec, draws, x[:, :1])[0, :, 0],
        "summary": native.summarize(spec, draws, x, np.zeros(N_ROWS))[0],
    }


def summary_of(likelihood: Any, outputs: np.ndarray) -> np.ndarray:
    """Return the first number of the summary: the location, or the probability of the first class."""
    return outputs[0] if isinstance(likelihood, Gaussian) else np.asarray(jax.nn.softmax(outputs, axis=0))[0]


def errors_by_kernel(
    kernels: list[bytes],
    network: Any,
    likelihood: Any,
    position: jax.Array,
    rows: PaddedRows,
    value: Any,
    gradient: Any,
) -> dict[str, dict]:
    outputs = np.asarray(jax.jit(network.apply)(position, rows.x))[:, :N_ROWS]
    expected = {
        "value": value,
        "gradient": gradient,
        "value alone": value,
        "outputs": outputs,
        "output of one row": outputs[:, 0],
        "summary": summary_of(likelihood, outputs),
    }
    found = {}
    for kernel in kernels:
        library().mile_use_kernel(kernel)
        numbers = by_kernel(network, likelihood, position, rows)
        found[kernel.decode()] = {name: away(numbers[name], expected[name]) for name in expected}
    return found


def perceptron(case: tuple[Any, int, tuple[int, ...]], kernels: list[bytes]) -> dict[str, dict]:
    likelihood, n_inputs, hidden = case
    network = make_network(likelihood, hidden, n_inputs=n_inputs)
    rows, position = make_rows(likelihood, N_ROWS, n_inputs), make_positions(network)
    value, _, gradient, _ = reference(network, likelihood, position, rows)
    return errors_by_kernel(kernels, network, likelihood, position, rows, value, gradient)


def images(kernels: list[bytes]) -> dict[str, dict]:
    likelihood, network = Gaussian(), LARGE_IMAGE
    rows = make_rows(likelihood, N_ROWS, 420 * 420)
    rng = np.random.default_rng(1)
    weights = rng.standard_normal(network.dimension) / 420
    weights[:2], weights[-8:] = 0.5, rng.standard_normal(8)  # the convolution and the head
    position = jnp.asarray(weights, jnp.float32)
    value, gradient = jax.jit(jax.value_and_grad(partial(_plain, network, likelihood)))(position, rows)
    return errors_by_kernel(kernels, network, likelihood, position, rows, value, gradient)


def steps(kernels: list[bytes]) -> dict[str, dict]:
    """Compare a step of the sampler, with the noise of its 900,000 dimensions, and an epoch with those of XLA."""
    likelihood, n_inputs = Gaussian(), 300_000
    rows = make_rows(likelihood, N_ROWS, n_inputs)
    ours, theirs = (
        Posterior(rows=rows, network=network, likelihood=likelihood, prior=Normal())
        for network in (make_network(likelihood, (3,), n_inputs=n_inputs, kind=kind) for kind in (MLP, OtherMLP))
    )
    position, key = make_positions(ours.network), jax.random.key(0)
    training = Training(batch_size=2, learning_rate=1e-5)  # with the usual one a batch magnifies errors of the last
    state = jax.jit(_mclmc.init)(key, position, theirs)
    step = jax.jit(lambda posterior: _mclmc.step(key, state, posterior, jnp.float32(0.5), jnp.float32(1.0))[0])
    shuffle, optimizer = jax.random.uniform(key, rows.y.shape), training.optimizer.init(position)
    update = jax.jit(lambda: _update(training, theirs.network, likelihood, position, optimizer, shuffle, rows))
    spec = native.specify(ours.network, likelihood, jnp.float32, rows)
    assert spec is not None
    native_update = jax.jit(lambda: _native_update(training, spec, position, optimizer, shuffle, rows))
    # The first moments, a mean of gradients: the move divides by roots of numbers near zero.
    stepped, moments = step(theirs), tree_get(update()[1], "mu")
    found = {}
    for kernel in kernels:
        library().mile_use_kernel(kernel)
        mine = step(ours)
        found[kernel.decode()] = {
            "position of a step": away(mine.position - position, stepped.position - position),
            "velocity of a step": away(mine.velocity, stepped.velocity),
            "gradient of a step": away(mine.gradient, stepped.gradient),
            "epoch": away(tree_get(native_update()[1], "mu"), moments),
        }
    return found


CASES = {name: partial(perceptron, case) for name, case in PERCEPTRONS.items()} | {
    "an image of 176,400 pixels": images,
    "steps with 300,000 inputs": steps,
}


def main(names: list[str]) -> None:
    builds = (b"portable", b"avx2", b"avx512")
    kernels = sorted({library().mile_use_kernel(build) for build in builds})  # those that this machine has
    json.dump({name: CASES[name](kernels) for name in names}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
