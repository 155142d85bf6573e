"""Steps per second of families of likelihoods against those of the Gaussian head, on the airfoil size.

Steps of twelve chains of a 16-16-16 network with GELU, on one thread; with the bounded link. Families without a head of
the kernel take the derivatives of the outputs from JAX. Short runs take turns, and the ratio is the median of those
within a turn. Seconds are those of the processor: other programs disturb the clock by more than the differences.
"""

import statistics
import time
from collections.abc import Callable

import jax
import numpy as np
from _common import AIRFOIL, N_CHAINS, Row, command_line, progress, regression_data
from priors import _N_STEPS, run

from mile import _registry, native
from mile.likelihoods import AbstractLikelihood, Gaussian
from mile.networks import MLP
from mile.padded_rows import pad_rows
from mile.posterior import Posterior
from mile.priors import Normal
from mile.samplers import _mclmc

_PEER = "gaussian"
_HIDDEN = (16, 16, 16)
_LEAST, _LEAST_OTHER = 0.8, 0.4  # of the peer's speed: with a head, and without
# What y is of each family.
FAMILIES = {
    "gaussian": "numbers",
    "mixture": "numbers",
    "student_t": "numbers",
    "poisson": "counts",
    "negative_binomial": "counts",
    "ordinal": "grades",
    "laplace": "numbers",
    "skew": "numbers",
    "histogram": "numbers",
    "lognormal": "positive",
    "gamma": "positive",
    "weibull": "positive",
    "log_logistic": "positive",
    "zero_inflated_poisson": "counts",
    "zero_inflated_negative_binomial": "counts",
    "hurdle_gamma": "counts",
}


def responses(y: np.ndarray) -> dict[str, np.ndarray]:
    """Return the kinds of y that a table of real numbers can be turned into."""
    return {
        "numbers": y,
        "positive": np.exp(y),
        "counts": np.random.default_rng(0).poisson(np.exp(1.0 + 0.5 * y)).astype(float),
        "grades": np.digitize(y, np.quantile(y, [0.05, 0.2, 0.5, 0.8, 0.95])).astype(float),
    }


def prepared(name: str, y: np.ndarray) -> tuple[AbstractLikelihood, np.ndarray]:
    """Return a family with what it takes from y, and y as it encodes it."""
    kind = _registry.likelihood.classes[name]
    likelihood = Gaussian(link="bounded") if name == _PEER else kind.for_response(kind.check(y))
    encoded = likelihood.learn(y, np.arange(len(y))).encode(y)
    return likelihood.fitted(encoded), encoded


def turn_of(likelihood: AbstractLikelihood, x: np.ndarray, y: np.ndarray) -> Callable[[], float]:
    """Return a function that gives the steps of chains per second in one turn."""
    network = MLP(n_inputs=x.shape[1], hidden=_HIDDEN, n_outputs=likelihood.n_outputs, activation="gelu")
    posterior = Posterior(rows=pad_rows(x, y), network=network, likelihood=likelihood, prior=Normal().bind(network))
    keys = jax.random.split(jax.random.key(0), N_CHAINS)
    starts = jax.vmap(lambda key: _mclmc.init(key, network.init(key), posterior))(keys)
    _, finite = run(posterior, keys, starts)
    if finite < 0.95:
        raise RuntimeError(f"chains of {likelihood} broke down: {finite:.0%} of the steps were finite")

    def steps_per_second() -> float:
        began = time.process_time()
        jax.block_until_ready(run(posterior, keys, starts))
        return N_CHAINS * _N_STEPS / (time.process_time() - began)

    return steps_per_second


def main(quick: bool = False) -> list[Row]:
    progress("heads: compiling")
    x, y = regression_data(*AIRFOIL)
    known = responses(y.astype(float))
    likelihoods = {name: prepared(name, known[kind]) for name, kind in FAMILIES.items()}
    turns = {name: turn_of(likelihood, x, encoded) for name, (likelihood, encoded) in likelihoods.items()}
    progress("heads: taking turns")
    with native.sharing_cores(2, 2):  # a call has no thread besides its own
        found = [{name: turn() for name, turn in turns.items()} for _ in range(3 if quick else 60)]
    peer = statistics.median(values[_PEER] for values in found)
    rows = []
    for name in list(FAMILIES)[1:]:
        has_head = likelihoods[name][0].native_head() is not None
        rows.append(
            Row(
                name=f"steps, {name}",
                value=statistics.median(values[name] for values in found),
                unit="chain-steps/s",
                peer=peer,
                ratio=statistics.median(values[name] / values[_PEER] for values in found),
                low=_LEAST if has_head else _LEAST_OTHER,
                note=f"{likelihoods[name][0].n_outputs} outputs, {'native' if has_head else 'JAX'} head, "
                f"{native.kernel_name()}",
            )
        )
    return rows


if __name__ == "__main__":
    command_line(main)
