"""The running score counts each chain on rows that it has not seen."""

from dataclasses import replace

import numpy as np
import pytest
from models import N_CHAINS, made_fit

from mile import MLP, FitWarning, Gaussian
from mile.data import Rows
from mile.fitting.monitoring import RunningScore, UnseenRows, warn_of_weightless
from mile.predict import predict

NETWORK, LIKELIHOOD = MLP(n_inputs=2, hidden=(3,)), Gaussian()
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(30, 2)), RNG.normal(size=30)
ROWS = Rows.checked(X, Y, "train")
BLOCKS = 0.3 * RNG.normal(size=(2, 4, NETWORK.dimension)).astype(np.float32)  # of four chains


def density(draws, rows):
    predictive = predict(NETWORK, LIKELIHOOD, np.asarray(draws), ROWS.x[rows], LIKELIHOOD.plain_response())
    return predictive.log_prob(ROWS.y[rows])


def test_with_folds_a_chain_is_scored_on_the_rows_that_it_left_out():
    folds, good = np.arange(30) % 3, np.array([True, True, False, True])
    score = RunningScore(
        UnseenRows(NETWORK, LIKELIHOOD, ROWS, LIKELIHOOD.plain_response(), good, folds, np.arange(4) % 3)
    )
    score(BLOCKS[0])
    text = score(BLOCKS[1])
    expected = np.concatenate(
        [density(BLOCKS[:, [0, 3]].reshape(4, -1), folds == 0), density(BLOCKS[:, 1], folds == 1)]
    )  # chain 2, alone with fold 2, has failed
    assert text.startswith("out-of-fold LPPD ")
    assert float(text.split()[-1]) == pytest.approx(expected.mean(), abs=6e-4)


def test_without_folds_all_good_chains_are_scored_on_all_rows():
    score = RunningScore(UnseenRows(NETWORK, LIKELIHOOD, ROWS, LIKELIHOOD.plain_response(), np.ones(4, bool)))
    text = score(BLOCKS[0])
    assert text.startswith("validation LPPD ")
    assert float(text.split()[-1]) == pytest.approx(density(BLOCKS[0], np.arange(30)).mean(), abs=6e-4)


def test_chains_without_a_weight_are_named():
    fit = made_fit()
    weights = np.zeros(2 * N_CHAINS)
    weights[0] = 1.0
    names = ", ".join(str(chain) for chain in range(1, N_CHAINS))
    with pytest.warns(FitWarning, match=f"Chains? {names} adds? nothing to the prediction of rows"):
        warn_of_weightless(replace(fit, weights=weights))
    warn_of_weightless(fit)  # all count the same, and nothing is said
