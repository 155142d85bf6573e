"""Convergence statistics against ArviZ and against their definitions written as loops."""

import numpy as np
import pytest
from cases import case
from scipy.signal import lfilter
from scipy.stats import norm, rankdata

from mile.diagnose import convergence

arviz_stats = pytest.importorskip("arviz_stats")


def random_draws(seed):
    """Return chains of one quantity that differ in number, length, memory, agreement and tails."""
    rng = np.random.default_rng(seed)
    n_chains, n_draws = int(rng.integers(1, 7)), int(rng.integers(4, 400))
    coefficient = rng.uniform(-0.9, 0.99)
    noise = rng.standard_t(rng.choice([2, 5, 100]), size=(n_chains, n_draws + 50))
    chains = lfilter([1.0], [1.0, -coefficient], noise, axis=1)[:, 50:]
    if rng.random() < 0.3:
        chains = np.round(chains)  # ties
    shift = rng.choice([0.0, 1.0, 10.0]) * rng.standard_normal((n_chains, 1))
    return rng.choice([1e-4, 1.0, 1e4]) * (chains + shift)


@pytest.mark.parametrize("first", range(0, 100, 50))
def test_ess_rhat_and_mcse_equal_arviz(first):
    for seed in range(first, first + 50):
        with case(f"seed {seed}"):
            check_statistics(random_draws(seed))


def check_statistics(draws):
    functions = {
        "bulk": (convergence.ess(draws), arviz_stats.ess(draws, method="bulk")),
        "mean": (convergence.ess(draws, "mean"), arviz_stats.ess(draws, method="mean")),
        "mcse": (convergence.mcse(draws), arviz_stats.mcse(draws, method="mean")),
        "rhat": (convergence.rhat(draws), arviz_stats.rhat(draws, method="rank")),
    }
    for name, (ours, theirs) in functions.items():
        np.testing.assert_allclose(ours, float(np.asarray(theirs)), rtol=1e-6, err_msg=name)


def test_chainwise_statistics_equal_arviz_on_prepared_chains():
    for seed in range(20):
        with case(f"seed {seed}"):
            check_chainwise_statistics(random_draws(seed))


def check_chainwise_statistics(draws):
    n_draws = draws.shape[1]
    pooled = norm.ppf((rankdata(draws).reshape(draws.shape) - 0.375) / (draws.size + 0.25))
    expected = [float(np.asarray(arviz_stats.ess(chain[None], method="identity"))) for chain in pooled]
    np.testing.assert_allclose(convergence.chainwise_ess(draws), expected, rtol=1e-6)
    length = n_draws // 4
    if length < 4:
        assert np.isnan(convergence.chainwise_rhat(draws)).all()
        return
    for chain, ours in zip(draws[:, n_draws - 4 * length :], convergence.chainwise_rhat(draws), strict=True):
        pieces = norm.ppf((rankdata(chain) - 0.375) / (chain.size + 0.25)).reshape(4, length)
        expected = float(np.asarray(arviz_stats.rhat(pieces, method="identity")))
        np.testing.assert_allclose(ours, expected, rtol=1e-6)


def test_every_quantity_is_judged_on_its_own():
    draws = np.stack([random_draws(3), 5 * random_draws(3) ** 3], axis=-1)[..., None]
    for statistic in (convergence.ess, convergence.rhat, convergence.mcse, convergence.between_variance):
        together = statistic(draws)
        assert together.shape == (2, 1)
        for quantity in range(2):
            np.testing.assert_allclose(together[quantity, 0], statistic(draws[..., quantity, 0]), rtol=1e-12)
    assert convergence.chainwise_ess(draws).shape == (len(draws), 2, 1)


def test_variances_between_and_within_chains_are_those_of_the_definition():
    draws = np.random.default_rng(0).normal(size=(5, 30, 2)) + np.arange(5)[:, None, None]
    for quantity in range(2):
        chains = draws[..., quantity]
        means = [sum(chain) / 30 for chain in chains]
        center = sum(means) / 5
        between = sum((mean - center) ** 2 for mean in means) / 4
        within = sum(
            sum((value - mean) ** 2 for value in chain) / 29 for chain, mean in zip(chains, means, strict=True)
        )
        np.testing.assert_allclose(convergence.between_variance(draws)[quantity], between, rtol=1e-12)
        np.testing.assert_allclose(convergence.within_variance(draws)[quantity], within / 5, rtol=1e-12)


def test_a_drifting_chain_is_found_by_its_chainwise_rhat_alone():
    rng = np.random.default_rng(0)
    steady, drifting = rng.normal(size=1_000), rng.normal(size=1_000) + np.linspace(0, 3, 1_000)
    found = convergence.chainwise_rhat(np.stack([steady, drifting]))
    assert found[0] < 1.01
    assert found[1] > 1.3


def test_too_few_draws_give_nan_and_no_error():
    for n_draws in (1, 2, 3):
        draws = np.random.default_rng(0).normal(size=(3, n_draws, 2))
        assert np.isnan(convergence.rhat(draws)).all()
        assert np.isnan(convergence.ess(draws)).all()
        assert convergence.chainwise_ess(draws).shape == (3, 2)
        assert np.isnan(convergence.chainwise_rhat(draws)).all()
    assert np.isnan(convergence.between_variance(np.zeros((1, 5, 2)))).all()
    assert np.isnan(convergence.within_variance(np.zeros((5, 1, 2)))).all()


def test_a_quantity_that_never_changes_counts_every_draw_and_has_no_rhat():
    draws = np.full((4, 100), 2.5)
    assert convergence.ess(draws) == 400
    assert np.isnan(convergence.rhat(draws))


def test_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match="chain, draw"):
        convergence.ess(np.zeros(10))
    with pytest.raises(ValueError, match="chain, draw"):
        convergence.rhat(np.zeros((3, 0)))


@pytest.mark.parametrize("n_draws", [1, 3, 17, 100])
def test_all_at_once_are_the_same_as_one_by_one(n_draws):
    draws = np.round(np.random.default_rng(0).normal(size=(3, n_draws, 4)), 1)  # with ties
    found = convergence.mixing(draws)
    np.testing.assert_array_equal(found.ess, convergence.chainwise_ess(draws))
    np.testing.assert_array_equal(found.rhat, convergence.chainwise_rhat(draws))
    np.testing.assert_allclose(found.pooled_ess, convergence.ess(draws), rtol=1e-12)
    np.testing.assert_allclose(found.pooled_rhat, convergence.rhat(draws), rtol=1e-12)
    np.testing.assert_array_equal(found.between, convergence.between_variance(draws))
    np.testing.assert_array_equal(found.within, convergence.within_variance(draws))
