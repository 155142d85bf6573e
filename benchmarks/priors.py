"""Steps under other priors and with the bounded link against steps under the normal prior, on the airfoil size.

All are native steps of twelve chains on one thread. Short runs take turns, and the ratio is the median of the ratios
within a turn. Seconds are those of the processor: other programs disturb the clock by more than the differences.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from _common import AIRFOIL, N_CHAINS, Row, command_line, progress, regression_data

from mile import native
from mile.likelihoods import Gaussian
from mile.networks import MLP
from mile.padded_rows import pad_rows
from mile.posterior import Posterior
from mile.priors import FanIn, Hierarchical, Laplace, Normal, Prior, StudentT
from mile.samplers import _mclmc

_HIDDEN = (16, 16, 16)
_N_STEPS = 20  # of a turn
_STEP_SIZE, _LENGTH = 0.01, 20.0
_LARGEST_RATIO = 1.05
_PEER = "normal"
CASES: dict[str, tuple[Prior, Gaussian]] = {
    _PEER: (Normal(), Gaussian()),
    "hierarchical by layer": (Hierarchical(groups="layer"), Gaussian()),
    "hierarchical by unit": (Hierarchical(groups="unit"), Gaussian()),
    "hierarchical by input": (Hierarchical(groups="input"), Gaussian()),
    "Laplace": (Laplace(), Gaussian()),
    "Student-t": (StudentT(), Gaussian()),
    "fan-in": (FanIn(), Gaussian()),
    "normal, bounded link": (Normal(), Gaussian(link="bounded")),
    "hierarchical by layer, bounded link": (Hierarchical(groups="layer"), Gaussian(link="bounded", floor=0.05)),
}


@jax.jit
def run(posterior: Posterior, keys: jax.Array, states: _mclmc.State) -> tuple[_mclmc.State, jax.Array]:
    """Make the steps of a turn; return also how many of them were finite."""

    def step(states: _mclmc.State, number: jax.Array) -> tuple[_mclmc.State, jax.Array]:
        folded = jax.vmap(jax.random.fold_in, (0, None))(keys, number)
        one_chain = partial(_mclmc.step, target=posterior, step_size=jnp.float32(_STEP_SIZE), L=_LENGTH)
        states, info = jax.vmap(one_chain)(folded, states)
        return states, jnp.mean(info.finite)

    states, finite = jax.lax.scan(step, states, jnp.arange(_N_STEPS))
    return states, jnp.mean(finite)


def turn_of(prior: Prior, likelihood: Gaussian) -> Callable[[], float]:
    """Return a function that gives the microseconds of a chain's step in one turn."""
    network = MLP(n_inputs=AIRFOIL[1], hidden=_HIDDEN)
    rows = pad_rows(*regression_data(*AIRFOIL))
    posterior = Posterior(rows=rows, network=network, likelihood=likelihood, prior=prior.bind(network))
    keys = jax.random.split(jax.random.key(0), N_CHAINS)
    starts = jax.vmap(lambda key: _mclmc.init(key, network.init(key), posterior))(keys)
    if "mile_mclmc_step" not in run.lower(posterior, keys, starts).as_text():
        raise RuntimeError(f"{prior} does not run in the native step")
    _, finite = run(posterior, keys, starts)
    if finite < 0.95:
        raise RuntimeError(f"chains broke down: {finite:.0%} of the steps were finite")

    def microseconds() -> float:
        began = time.process_time()
        jax.block_until_ready(run(posterior, keys, starts))
        return 1e6 * (time.process_time() - began) / (N_CHAINS * _N_STEPS)

    return microseconds


def main(quick: bool = False) -> list[Row]:
    progress("priors: compiling")
    turns = {name: turn_of(*case) for name, case in CASES.items()}
    progress("priors: taking turns")
    with native.sharing_cores(2, 2):  # a call has no thread besides its own
        found = [{name: turn() for name, turn in turns.items()} for _ in range(5 if quick else 200)]
    peer = statistics.median(values[_PEER] for values in found)
    return [
        Row(
            name=f"step, {name}",
            value=statistics.median(values[name] for values in found),
            unit="us",
            peer=peer,
            ratio=statistics.median(values[name] / values[_PEER] for values in found),
            high=_LARGEST_RATIO,
            note=f"{AIRFOIL[0]:,} rows x {AIRFOIL[1]}, 16-16-16, {N_CHAINS} chains; microseconds of one thread",
        )
        for name in CASES
        if name != _PEER
    ]


if __name__ == "__main__":
    command_line(main)
