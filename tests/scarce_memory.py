"""Calls of the native kernel that ask for more memory than the system grants; run as a program, whose limit this is.

Prints what each call raised.
"""

import contextlib
import json
import resource
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mile import MLP, Gaussian, Normal, native
from mile.native import _outputs
from mile.native._attention import _backward, pooled_attention

MEGABYTE = 1 << 20
# By the build, a thread needs 0.4 to 0.6 GB for a tile of 96 rows of this network. The other has many parameters, of
# which each of 32 parts of the rows has a gradient, 0.1 GB together.
MANY_INPUTS = MLP(n_inputs=1_000_000, hidden=(1,))
MANY_PARTS, PART_ROWS = MLP(n_inputs=1, hidden=(200_000,)), 20_000
SMALL = MLP(n_inputs=3, hidden=(4,))
RULE = {"learning_rate": 1e-3, "weight_decay": 0.0, "decay_first": 0.9, "decay_second": 0.99, "epsilon": 1e-8}
N_TRIES = 50


@contextlib.contextmanager
def granted(n_bytes: int) -> Iterator[None]:
    """Let the process have so much memory beyond what it has."""
    with open("/proc/self/statm") as numbers:
        pages = int(numbers.read().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def specification(network: MLP) -> native.Specification:
    spec = native.specify(network, Gaussian(), jnp.float32)
    assert spec is not None
    return spec


def rows_for(network: MLP, n_rows: int = 1) -> native.Data:
    return native.Data(jnp.ones((network.n_inputs, n_rows)), jnp.ones(n_rows), jnp.ones(n_rows), jnp.int32(n_rows))


def raised(call: Callable[[], Any], extra: int = 100 * MEGABYTE) -> str:
    """Return what a call raises while there is little memory, or nothing."""
    with granted(extra):
        try:
            jax.block_until_ready(call())
        except (MemoryError, jax.errors.JaxRuntimeError) as error:
            return f"{type(error).__name__}: {error}"
    return ""


def compiled(function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    return partial(jax.jit(function).lower(*arguments).compile(), *arguments)


def plain_functions() -> dict[str, str]:
    spec, draws, x = specification(MANY_INPUTS), np.zeros((1, MANY_INPUTS.dimension)), np.zeros((1_000_000, 2))
    draws, x = draws.astype(np.float32), x.astype(np.float32)
    calls = {
        "outputs": lambda: native.outputs(spec, draws, x),
        "summarize": lambda: native.summarize(spec, draws, x, np.zeros(2, np.float32)),
    }
    return {name: raised(call) for name, call in calls.items()}


def custom_calls(n_chains: int) -> dict[str, Callable[[], Any]]:
    """Return the calls of compiled programs for one chain, on one thread, or several, on those of XLA's pool."""
    spec, data, prior = specification(MANY_INPUTS), rows_for(MANY_INPUTS), Normal().native_form()
    assert prior is not None
    positions, numbers = jnp.zeros((n_chains, MANY_INPUTS.dimension)), jnp.ones(n_chains)
    slopes = jnp.ones((n_chains, MANY_INPUTS.n_outputs, 1)), jnp.ones((n_chains, 0))  # and nothing kept
    keys, counts = jax.random.split(jax.random.key(0), n_chains), jnp.zeros(n_chains, jnp.int32)

    def step(key: jax.Array, position: jax.Array, number: jax.Array) -> Any:
        return native.mclmc_step(spec, key, (position, position, number, position), number, number, prior, data)

    def epoch(position: jax.Array, count: jax.Array) -> Any:
        return native.epoch(spec, (position, position, position, count), jnp.ones(()), jnp.ones(1), data, 1, **RULE)

    return {
        "value_and_grad": compiled(jax.vmap(lambda position: native.value_and_grad(spec, position, data)), positions),
        "forward": compiled(lambda positions: _outputs._forward(spec, positions, data, keeps=True), positions),
        "backward": compiled(partial(_outputs._backward, spec), positions, *slopes, data),
        "value": compiled(jax.vmap(lambda position: native.value(spec, position, data)), positions),
        "step": compiled(jax.vmap(step), keys, positions, numbers),
        "epoch": compiled(jax.vmap(epoch), positions, counts),
    }


def other_calls() -> dict[str, Callable[[], Any]]:
    spec, data = specification(MANY_PARTS), rows_for(MANY_PARTS, PART_ROWS)
    position = jnp.zeros(MANY_PARTS.dimension)
    context = 4_000_000
    text = (jnp.zeros((1, 3)), jnp.zeros((context, 3)), jnp.zeros((1, context), jnp.int32), jnp.zeros((1, context)))
    kept = (*text, *[jnp.zeros((1, 1, context))] * 2)  # of the forward pass

    return {
        "parts of the rows": compiled(partial(native.value_and_grad, spec), position, data),
        "attention": compiled(partial(pooled_attention, 1), *text),
        "slopes of attention": compiled(lambda kept, slope: _backward(1, kept, slope)[:2], kept, jnp.zeros((1, 1))),
    }


def still_works() -> bool:
    """Say whether the kernel computes, as if nothing had happened."""
    spec = specification(SMALL)
    value, gradient = jax.jit(partial(native.value_and_grad, spec))(jnp.zeros(SMALL.dimension), rows_for(SMALL, 5))
    outputs = native.outputs(spec, np.zeros((1, SMALL.dimension), np.float32), np.ones((3, 5), np.float32))
    return bool(np.isclose(value, -5 * (0.5 + 0.5 * np.log(2 * np.pi))) and gradient.any() and not outputs.any())


def main() -> None:
    messages = {f"plain: {name}": message for name, message in plain_functions().items()}
    of_one, of_four = custom_calls(1), custom_calls(4)
    messages |= {f"one chain: {name}": raised(call) for name, call in of_one.items()}
    messages |= {f"four chains: {name}": raised(call) for name, call in of_four.items()}
    for name, call in other_calls().items():
        messages[name] = raised(call, (40 if name == "parts of the rows" else 200) * MEGABYTE)
    # Memory for one thread but not for two: whoever comes second fails, most often one of the pool.
    call = of_four["value_and_grad"]
    tries = (raised(call, 750 * MEGABYTE if k == 0 else 100 * MEGABYTE) for k in range(N_TRIES))
    messages["the second thread"] = next(filter(None, tries), "")
    json.dump({"messages": messages, "still works": still_works()}, sys.stdout)


if __name__ == "__main__":
    main()
