"""BlackJAX's MCLMC on the posterior of `samplers.py`, written the way its users would; knows nothing of this library.

Usage: _peer_blackjax.py {vmapped,devices} N_STEPS. Compiles, prints a line, then makes one run of N_STEPS steps for
every line on its input and prints the seconds. No draws are kept, which can only help it.
"""

import sys
import time
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
from _common import AIRFOIL, N_CHAINS, regression_data
from jax.flatten_util import ravel_pytree

HIDDEN = (16, 16)
STEP_SIZE = 0.05
LARGEST_LOG_SCALE = 13.8  # standard deviations from 1e-6 to 1e6, as ours


def main(layout: str, n_steps: int) -> None:
    n_devices = jax.device_count()
    if N_CHAINS % n_devices:
        raise SystemExit(f"{N_CHAINS} chains do not spread evenly over {n_devices} devices")
    x, y = map(jnp.asarray, regression_data(*AIRFOIL))
    example = init_network(jax.random.key(0))
    flat, unravel = ravel_pytree(example)

    def log_density(position: jax.Array) -> jax.Array:
        hidden = x
        *layers, (weights, bias) = unravel(position)
        for layer_weights, layer_bias in layers:
            hidden = jax.nn.relu(hidden @ layer_weights + layer_bias)
        location, log_scale = (hidden @ weights + bias).T
        log_scale = jnp.clip(log_scale, -LARGEST_LOG_SCALE, LARGEST_LOG_SCALE)
        log_likelihood = jax.scipy.stats.norm.logpdf(y, location, jnp.exp(log_scale))
        return jnp.sum(log_likelihood) - 0.5 * jnp.sum(jnp.square(position))

    sampler: Any = blackjax.mclmc(log_density, L=jnp.sqrt(flat.size), step_size=STEP_SIZE)

    def run_chain(key: jax.Array, position: jax.Array) -> jax.Array:
        start_key, steps_key = jax.random.split(key)
        state = sampler.init(position, start_key)

        def step(state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
            state, info = sampler.step(key, state)
            return state, ~info.nonans

        _, bad = jax.lax.scan(step, state, jax.random.split(steps_key, n_steps))
        return jnp.sum(bad)

    keys = jax.random.split(jax.random.key(1), N_CHAINS)
    positions = jnp.stack([ravel_pytree(init_network(key))[0] for key in jax.random.split(jax.random.key(2), N_CHAINS)])
    if layout == "vmapped":
        run = jax.jit(jax.vmap(run_chain))
    else:
        # One chain at a time on each device, as the method's reference implementation lays them out.
        keys, positions = (array.reshape(n_devices, -1, *array.shape[1:]) for array in (keys, positions))
        run = jax.pmap(lambda keys, positions: jax.lax.map(lambda pair: run_chain(*pair), (keys, positions)))
    bad = run(keys, positions)
    if jnp.sum(bad) > 0.05 * N_CHAINS * n_steps:
        raise SystemExit(f"chains broke down: {bad} bad steps of {n_steps}")
    print("ready", flush=True)
    for _ in sys.stdin:
        began = time.perf_counter()
        jax.block_until_ready(run(keys, positions))
        print(time.perf_counter() - began, flush=True)


def init_network(key: jax.Array) -> list[tuple[jax.Array, jax.Array]]:
    sizes = (AIRFOIL[1], *HIDDEN, 2)
    return [
        (jax.random.normal(layer_key, (fan_in, fan_out)) / jnp.sqrt(fan_in), jnp.zeros(fan_out))
        for layer_key, fan_in, fan_out in zip(jax.random.split(key, len(sizes) - 1), sizes[:-1], sizes[1:], strict=True)
    ]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
