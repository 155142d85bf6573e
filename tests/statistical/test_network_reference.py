"""A small network's posterior in function space against a long NUTS run (RELIABILITY A15, A16).

The network has 10 tanh units and the library's normal likelihood, whose scale is an output of the network too, so the
noise is not the same everywhere as in the matrix. All chains start at trained networks; the reference is computed here.
"""

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mile
from mile import MLP, Dataset, DeepEnsemble, Gaussian, Mile, Normal, Nuts
from mile.posterior import Posterior, pad_rows
from mile.samplers.adjusted import Adjusted
from mile.sampling import run_chains

NETWORK = MLP(n_inputs=1, hidden=(10,), activation="tanh")
N_CHAINS, N_INPUTS = 10, 50


class Summary(NamedTuple):
    """Of the location at each input: mean, standard deviation; that of a new response; and the LPPD."""

    mean: np.ndarray
    spread: np.ndarray
    predictive: np.ndarray
    lppd: float


def simulate(x, rng):
    return np.sin(2.0 * x) + np.where(x > 0.0, 0.25, 0.15) * rng.standard_normal(x.shape)


@cache
def problem():
    """Return posterior, trained starts, and 50 new inputs with responses."""
    rng = np.random.default_rng(5)
    x = rng.uniform(-2.0, 2.0, 100).astype(np.float32)
    y = simulate(x, rng).astype(np.float32)
    x_new = np.linspace(-2.5, 2.5, N_INPUTS)
    y_new = simulate(x_new, rng)
    posterior = Posterior(rows=pad_rows(x[:, None], y), network=NETWORK, likelihood=Gaussian(), prior=Normal())
    dataset = Dataset.from_arrays(x[20:, None], y[20:], x[:20, None], y[:20])
    trained = mile.fit(dataset, NETWORK, Gaussian(), sampler=DeepEnsemble(), n_chains=N_CHAINS, random_state=0)
    return posterior, np.asarray(trained.chains.draws)[:, 0], x_new, y_new


@cache
def summarize(sampler):
    posterior, start, x_new, y_new = problem()
    chains = run_chains(sampler.with_start(0.005), posterior, start, seed=1)
    assert chains.ok.all()
    inputs = jnp.asarray(x_new[None], jnp.float32)
    outputs = jax.jit(jax.vmap(lambda position: NETWORK.apply(position, inputs)))(
        jnp.asarray(chains.draws.reshape(-1, NETWORK.dimension))
    )
    outputs = np.asarray(outputs)
    location, scale = Gaussian().moments(outputs)
    density = np.exp(Gaussian().component_log_prob(outputs, y_new))
    return Summary(
        mean=location.mean(axis=0),
        spread=location.std(axis=0),
        predictive=np.sqrt(location.var(axis=0) + np.square(scale).mean(axis=0)),
        lppd=float(np.log(density.mean(axis=0)).mean()),
    )


def reference():
    return summarize(Nuts(warmup_steps=2_000, sampling_steps=20_000, n_draws=2_000))


@pytest.mark.slow
def test_adjusted_agrees_with_nuts_on_a_network():
    """A15."""
    wanted, found = reference(), summarize(Adjusted())
    assert np.max(np.abs(found.mean - wanted.mean) / wanted.predictive) <= 0.1
    ratio = found.spread / wanted.spread
    assert np.sum((ratio >= 0.9) & (ratio <= 1.1)) >= 48
    assert abs(found.lppd - wanted.lppd) <= 0.01


@pytest.mark.slow
def test_mile_is_close_to_nuts_on_a_network():
    """A16."""
    wanted, found = reference(), summarize(Mile())
    ratio = found.spread / wanted.spread
    assert np.sum((ratio >= 0.75) & (ratio <= 1.35)) >= 45
    assert abs(found.lppd - wanted.lppd) <= 0.03
