"""Posteriors of each chain's own rows: the numbers of a posterior that has only those rows."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from targets import assert_same_bits

from mile import MLP, Gaussian, Normal
from mile.folded import FoldedPosterior, choose_rows
from mile.padded_rows import pad_rows
from mile.posterior import Posterior

NETWORK = MLP(n_inputs=3, hidden=(4,))
POSITION = jnp.asarray(np.random.default_rng(1).standard_normal(NETWORK.dimension), jnp.float32)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    return rng.standard_normal((50, 3)).astype(np.float32), rng.standard_normal(50).astype(np.float32)


def posterior_of(x, y, weight=None):
    return Posterior(rows=pad_rows(x, y, weight), network=NETWORK, likelihood=Gaussian(), prior=Normal())


@jax.jit
def evaluate(target, chain):
    return target.for_chain(chain).value_and_grad(POSITION)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_a_chain_has_the_posterior_of_its_rows_alone(table, temperature):
    x, y = table
    weight = np.linspace(0.5, 2.0, len(y)).astype(np.float32)
    whole, masks = posterior_of(x, y, weight), [np.arange(50) % 5 != fold for fold in (0, 3)] + [np.arange(50) < 7]
    folded = FoldedPosterior(posterior=whole, chosen=choose_rows(whole.rows, masks, np.array([0, 1, 1, 2])))
    assert folded.n_slots >= 40
    for chain, selection in enumerate([0, 1, 1, 2]):
        chosen = masks[selection]
        own = posterior_of(x[chosen], y[chosen], weight[chosen]).tempered(temperature)
        found, expected = evaluate(folded.tempered(temperature), np.uint32(chain)), evaluate(own, np.uint32(chain))
        for ours, theirs in zip(found, expected, strict=True):  # the smallest has other padding, so other sums
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
        if chosen.sum() == 40:
            assert_same_bits(found, expected)


def test_other_targets_are_the_same_for_every_chain(table):
    whole = posterior_of(*table)
    assert whole.for_chain(np.uint32(3)) is whole
    assert whole.rows.for_chain(np.uint32(3)) is whole.rows


def test_one_program_serves_all_chains(table, compilations):
    whole = posterior_of(*table)
    chosen = choose_rows(whole.rows, [np.arange(50) % 2 == fold for fold in range(2)], np.arange(2))
    folded = FoldedPosterior(posterior=whole, chosen=chosen)
    evaluate(folded, np.uint32(0))
    compilations.clear()
    evaluate(folded, np.uint32(1))
    other = replace(folded, chosen=replace(chosen, selection=np.array([1, 0], np.int32)))
    evaluate(other, np.uint32(1))
    assert compilations == []
