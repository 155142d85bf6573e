"""CV+ intervals: their ends are order statistics, and they hold for a model that is wrong."""

from dataclasses import replace

import numpy as np
import pytest
from targets import small_dataset

import mile
from mile import MLP, Dataset, DeepEnsemble, Gaussian
from mile.data.folds import rotating_folds
from mile.ensemble.training import Training
from mile.fitting.conformal import conformal_interval, order_statistic

NETWORK = MLP(n_inputs=3, hidden=(4,))


def test_order_statistics_are_those_of_all_values_together():
    rng = np.random.default_rng(0)
    center, spread = rng.normal(size=(4, 50)), rng.uniform(0.1, 3.0, (4, 50))
    scores = [np.sort(rng.exponential(size=size)) for size in (7, 8, 0, 6)]
    parts = [at + by * score[:, None] for at, by, score in zip(center, spread, scores, strict=True)]
    ordered = np.sort(np.concatenate(parts), axis=0)
    for rank in (1, 2, 11, 20, 21):
        np.testing.assert_allclose(order_statistic(center, spread, scores, rank), ordered[rank - 1], rtol=1e-12)


@pytest.fixture(scope="module")
def fitted():
    """A model that is badly wrong: networks of few epochs, with normal noise of one width where tails are heavy."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2_400, 3))
    y = np.sin(3.0 * x[:, 0]) + 0.3 * rng.standard_t(2, len(x))
    train, folds = slice(0, 400), rotating_folds(400, 4, 0)
    dataset = Dataset.from_arrays(x[train], y[train], fold_train=folds)
    options = {"training": Training(max_epochs=30, learning_rate=0.01), "n_chains": 8, "random_state": 0}
    options |= {"sampler": DeepEnsemble()}
    return mile.fit(dataset, NETWORK, Gaussian(link="bounded"), **options), x[400:], y[400:]


def test_they_hold_what_they_promise_for_a_model_that_is_wrong(fitted):
    """Coverage varies with the training rows as Beta(n level, n (1 - level)) does, and with the test rows: within 3.5
    standard errors, so that this fails by chance less than once in a thousand."""
    fit, x, y = fitted
    for level in (0.5, 0.8, 0.9):
        ends = conformal_interval(fit, x, level)
        inside = np.mean((ends[:, 0] <= y) & (y <= ends[:, 1]))
        error = np.sqrt(level * (1.0 - level) * (1.0 / 400 + 1.0 / len(y)))
        assert abs(inside - level) < 3.5 * error, level
    own = fit.predictive(x).interval(0.8)
    error = np.sqrt(0.8 * 0.2 * (1.0 / 400 + 1.0 / len(y)))
    assert abs(np.mean((own[:, 0] <= y) & (y <= own[:, 1])) - 0.8) > 4.0 * error  # the model's own intervals do not


def test_too_few_rows_for_a_level_give_infinite_intervals(fitted):
    fit, x, _ = fitted
    assert np.isinf(conformal_interval(fit, x[:2], 0.999)).all()
    assert np.isfinite(conformal_interval(fit, x[:2], 0.99)).all()


def test_without_out_of_fold_predictions_they_are_refused_with_advice(fitted):
    fit, x, _ = fitted
    with pytest.raises(ValueError, match="n_folds=4 with n_chains=12"):
        conformal_interval(replace(fit, out_of_fold=None), x)
    with pytest.raises(ValueError, match="level must lie strictly between 0 and 1"):
        conformal_interval(fit, x, 1.0)
    train = small_dataset(120, classes=3).train
    dataset = Dataset.from_arrays(train.x, train.y, fold_train=rotating_folds(len(train), 3, 0))
    options = {"training": Training(max_epochs=1), "n_chains": 3, "random_state": 0, "sampler": DeepEnsemble()}
    classes = mile.fit(dataset, MLP(n_inputs=3, hidden=(4,), n_outputs=3), mile.Categorical(3), **options)
    with pytest.raises(ValueError, match="need means and standard deviations; this model has classes"):
        conformal_interval(classes, x)
