"""Stacking against closed forms, brute force and a direct optimizer."""

import numpy as np
import pytest
from scipy.optimize import minimize

from mile.fitting.stacking import STRENGTH, stack, stacked_log_density


def made(n_candidates, n_rows, spread=1.0, seed=0):
    """Log densities that differ from row to row, the first candidate's the best."""
    rng = np.random.default_rng(seed)
    return spread * rng.standard_normal((n_candidates, n_rows)) - 0.2 * np.arange(n_candidates)[:, None]


def in_folds(log_density, n_folds):
    """Leave each candidate the rows of its fold and of the next one."""
    n_candidates, n_rows = log_density.shape
    fold, own = np.arange(n_rows) % n_folds, np.arange(n_candidates) % n_folds
    return np.where((fold - own[:, None]) % n_folds < 2, log_density, np.nan)


def objective(log_density, weights, row_weight, strength):
    return row_weight @ stacked_log_density(log_density, weights) + strength * np.log(weights).sum()


def test_two_candidates_that_know_rows_alone_share_them_in_closed_form():
    """With densities 1 and 0 the weights are the shares of rows, and the strength adds rows to each."""
    log_density = np.where(np.arange(10) < 7, [[0.0], [-np.inf]], [[-np.inf], [0.0]])
    for strength in (0.0, 0.5, 4.0):
        expected = (np.array([7.0, 3.0]) + strength) / (10.0 + 2.0 * strength)
        np.testing.assert_allclose(stack(log_density, strength=strength).weights, expected, atol=1e-7)
    row_weight = np.repeat([2.0, 1.0], [7, 3])
    np.testing.assert_allclose(stack(log_density, row_weight, strength=0.0).weights, [14 / 17, 3 / 17], atol=1e-7)


def test_two_candidates_of_known_densities_have_the_weight_of_the_first_order_condition():
    """Densities (2, 1) in a share of 0.6 of the rows and (1, 3) in the others."""
    log_density = np.log(np.where(np.arange(10) < 6, [[2.0], [1.0]], [[1.0], [3.0]]))
    # 0.6 / (1 + w) = 0.8 / (3 - 2 w)
    np.testing.assert_allclose(stack(log_density, strength=0.0).weights, [0.5, 0.5], atol=1e-7)
    log_density[:, :1] += 50.0  # a factor of a row changes nothing
    np.testing.assert_allclose(stack(log_density, strength=0.0).weights, [0.5, 0.5], atol=1e-7)


def test_equal_candidates_stay_equal():
    one = made(1, 50)
    np.testing.assert_allclose(stack(np.repeat(one, 5, axis=0)).weights, 0.2, atol=1e-9)
    found = stack(np.concatenate([one, one, made(1, 50, seed=1)])).weights
    assert found[0] == pytest.approx(found[1], abs=1e-7)


def test_a_candidate_that_is_far_worse_in_every_row_gets_nothing_and_hurts_nobody():
    log_density = made(3, 2_000)
    worse = np.concatenate([log_density, log_density.min(axis=0, keepdims=True) - 20.0])
    alone, beside = stack(log_density), stack(worse)
    assert (alone.without, beside.without, beside.weights[3]) == ((), (3,), 0.0)
    np.testing.assert_allclose(beside.weights[:3], alone.weights, atol=1e-3)
    dominated = np.concatenate([log_density, log_density[:1] - 0.7])
    found = stack(dominated)
    assert found.weights[3] < 0.01
    before, after = stacked_log_density(log_density, alone.weights), stacked_log_density(dominated, found.weights)
    assert after.mean() > before.mean() - 1e-4


def test_weights_follow_a_permutation_of_candidates_and_not_that_of_rows():
    log_density, order = in_folds(made(8, 200), 4), np.random.default_rng(1).permutation(8)
    row_weight, rows = np.linspace(0.5, 2.0, 200), np.random.default_rng(2).permutation(200)
    found = stack(log_density, row_weight).weights
    np.testing.assert_allclose(stack(log_density[order], row_weight).weights, found[order], atol=1e-6)
    np.testing.assert_allclose(stack(log_density[:, rows], row_weight[rows]).weights, found, atol=1e-6)
    np.testing.assert_array_equal(stack(log_density, row_weight).weights, found)


def test_strength_pulls_toward_equal_weights():
    log_density = in_folds(made(6, 100), 3)
    away = [np.abs(stack(log_density, strength=strength).weights - 1 / 6).max() for strength in (0.1, 10.0, 1e3, 1e9)]
    assert away == sorted(away, reverse=True)
    assert away[-1] < 1e-6


def test_no_weights_on_a_fine_grid_are_better():
    for n_candidates in (2, 3):
        log_density, row_weight = made(n_candidates, 40, seed=3), np.linspace(0.5, 1.5, 40)
        first = np.arange(1, 200) / 200
        grid = np.stack(np.meshgrid(*[first] * (n_candidates - 1)), axis=-1).reshape(-1, n_candidates - 1)
        grid = grid[grid.sum(axis=1) < 0.999]
        grid = np.column_stack([grid, 1.0 - grid.sum(axis=1)])
        mixed = np.log(grid @ np.exp(log_density)) @ row_weight + STRENGTH * np.log(grid).sum(axis=1)
        found = stack(log_density, row_weight).weights
        assert np.abs(found - grid[np.argmax(mixed)]).max() < 0.01
        assert objective(log_density, found, row_weight, STRENGTH) >= mixed.max()


def test_rows_that_some_candidates_saw_are_scored_by_the_others_as_a_direct_optimizer_says():
    log_density, row_weight = in_folds(made(6, 90, seed=4), 3), np.linspace(0.5, 1.5, 90)
    best = minimize(
        lambda weights: -objective(log_density, weights / weights.sum(), row_weight, STRENGTH),
        np.full(6, 1 / 6),
        method="SLSQP",
        bounds=[(1e-6, 1.0)] * 6,
        constraints={"type": "eq", "fun": lambda weights: weights.sum() - 1.0},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    found = stack(log_density, row_weight).weights
    np.testing.assert_allclose(found, best.x, atol=1e-4)
    assert objective(log_density, found, row_weight, STRENGTH) >= -best.fun - 1e-9


def test_rows_and_candidates_that_compare_nothing_are_left_out():
    log_density = made(3, 60)
    expected = stack(log_density).weights
    nothing = np.full((3, 4), np.nan)
    nothing[1, 0], nothing[:, 1] = -5.0, -np.inf  # one candidate alone; impossible for all; two rows of no candidate
    np.testing.assert_allclose(stack(np.hstack([log_density, nothing])).weights, expected, atol=1e-9)
    failed = stack(np.vstack([log_density, np.full((1, 60), np.nan)]))
    assert failed.without == (3,)
    np.testing.assert_allclose(failed.weights[:3], expected, atol=1e-9)
    assert stack(np.zeros((1, 3))).weights.tolist() == [1.0]
    assert stack(np.zeros((2, 1))).weights.tolist() == [0.5, 0.5]


def test_the_density_of_a_row_is_that_of_the_candidates_that_left_it_out():
    log_density = np.log([[0.2, 0.4, np.nan, np.nan], [0.6, np.nan, 0.5, np.nan], [0.9, 0.9, 0.9, 0.9]])
    found = stacked_log_density(log_density, np.array([0.25, 0.75, 0.0]))
    np.testing.assert_allclose(np.exp(found), [0.5, 0.4, 0.5, np.nan], rtol=1e-12)


def test_weights_of_close_and_of_distant_candidates_beat_equal_ones_on_their_rows():
    for spread, folds in ((0.01, None), (0.3, 4), (30.0, 4)):
        log_density = made(24, 5_000, spread)
        log_density = log_density if folds is None else in_folds(log_density, folds)
        weights = stack(log_density).weights
        value = objective(log_density, np.maximum(weights, 1e-300), np.ones(5_000), 0.0)
        assert value >= objective(log_density, np.full(24, 1 / 24), np.ones(5_000), 0.0)
        assert weights.sum() == pytest.approx(1.0, abs=1e-12)


def gain_on_new_rows(spread, strength, n_rows=60, n_candidates=24, n_tables=30):
    """Return the mean gain over equal weights, where candidates err by up to about `spread` in their means."""
    gains = []
    for seed in range(n_tables):
        rng = np.random.default_rng(seed)
        error = spread * np.abs(rng.standard_normal((n_candidates, 1)))
        residual = 0.5 * rng.standard_normal(n_rows + 2_000) - error * rng.standard_normal(
            (n_candidates, n_rows + 2_000)
        )
        log_density = -0.5 * np.square(residual / 0.5)
        old, new = log_density[:, :n_rows], log_density[:, n_rows:]
        weights = [stack(old, strength=strength).weights, np.full(n_candidates, 1 / n_candidates)]
        found, equal = (stacked_log_density(new, one).mean() for one in weights)
        gains.append(found - equal)
    return np.mean(gains)


def test_the_default_strength_neither_follows_noise_nor_loses_what_stacking_gains():
    assert gain_on_new_rows(0.1, 0.001) < -0.005  # weak regularization follows the noise of 60 rows
    assert gain_on_new_rows(0.1, STRENGTH) > -0.001
    assert gain_on_new_rows(0.5, STRENGTH) > 0.8 * gain_on_new_rows(0.5, 0.04) > 0.02


def test_prior_weights_say_where_the_pull_goes():
    alike = np.zeros((3, 50))
    prior = np.array([0.6, 0.3, 0.1])
    np.testing.assert_allclose(stack(alike, prior=5.0 * prior).weights, prior, atol=1e-6)
    rng = np.random.default_rng(0)
    noisy = rng.normal(size=(3, 50))
    np.testing.assert_array_equal(stack(noisy, prior=np.ones(3)).weights, stack(noisy).weights)
    free = stack(np.stack([np.zeros(50), np.full(50, -1.0)]), prior=np.array([1.0, 0.0]))
    assert free.weights.tolist() == [1.0, 0.0]
    gain = stack(np.stack([np.full(50, -1.0), np.zeros(50)]), prior=np.array([1.0, 0.0]))
    assert gain.weights[1] > 0.95


def test_impossible_arguments_are_refused_by_name():
    good = np.zeros((2, 3))
    for arguments, options, words in [
        ((np.zeros(3),), {}, r"shape \(candidate, row\)"),
        ((good + np.inf,), {}, "plus infinity"),
        ((good * np.nan,), {}, "all are NaN"),
        ((good, np.ones(2)), {}, "one entry per row"),
        ((good, np.array([1.0, -1.0, 1.0])), {}, "row_weight must be finite and not negative"),
        ((good,), {"strength": -1.0}, "strength"),
        ((good,), {"prior": np.ones(3)}, "prior must have one entry per candidate"),
        ((good,), {"prior": np.zeros(2)}, "prior must be finite, not negative and not all zero"),
        ((good,), {"strength": np.nan}, "strength"),
    ]:
        with pytest.raises(ValueError, match=words):
            stack(*arguments, **options)
