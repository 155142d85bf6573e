"""Compressed models: few draws that predict as all do, with what that loses."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes, make_classification

import mile
from mile.fitting._herding import crossed, evenly, expected_loss, herd
from mile.fitting.compression import compress_fit
from mile.likelihoods.weights import EQUAL, DrawWeights

TINY = {"warmup_steps": 60, "sampling_steps": 100, "n_draws": 50, "max_epochs": 10, "random_state": 0}


@pytest.fixture(scope="module")
def rows():
    X, y = load_diabetes(return_X_y=True)
    return X[:240], y[:240], X[240:], y[240:]


@pytest.fixture(scope="module")
def model(rows):
    return mile.MileRegressor(n_chains=4, n_folds=3, stacking="ensemble", **TINY).fit(rows[0], rows[1])


@pytest.fixture(scope="module")
def small(model, rows):
    return model.compress(rows[0], rows[1], n_draws=24)


def made_ratios(n_draws=600, n_cells=800, seed=0):
    """Densities of normal distributions with moving centers, over their mean."""
    rng = np.random.default_rng(seed)
    center = 0.7 * rng.normal(size=(n_draws, 1)) * np.linspace(0.2, 1.0, n_cells) + 0.3 * rng.normal(size=(n_draws, 1))
    y = np.take_along_axis(center, rng.integers(n_draws, size=(1, n_cells)), axis=0) + rng.normal(size=n_cells)
    density = np.exp(-0.5 * np.square(y - center))
    return (density / density.mean(axis=0)).astype(np.float32)


def test_chosen_draws_lose_less_than_random_and_evenly_spaced_ones():
    ratios, rng = made_ratios(), np.random.default_rng(1)
    learning, measuring = ratios[:, ::2], ratios[:, 1::2]
    for size in (8, 32, 64):
        chosen = expected_loss(measuring, herd(learning, size))
        even = [np.floor((np.arange(size) + shift) / size * len(ratios)).astype(int) for shift in rng.random(20)]
        others = [expected_loss(measuring, rng.integers(len(ratios), size=size)) for _ in range(20)]
        assert chosen.value < 0.5 * np.mean([one.value for one in others])
        assert chosen.value < 0.5 * np.mean([expected_loss(measuring, one).value for one in even])


def test_all_draws_lose_nothing():
    ratios = made_ratios(n_draws=50)
    loss = expected_loss(ratios, np.arange(50))
    assert abs(loss.value) < 1e-10
    assert loss.standard_error < 1e-10


def test_an_even_selection_follows_the_weights():
    assert evenly(EQUAL, 10, 20).tolist() == list(range(10))
    values = np.r_[np.full(10, 0.09), np.full(90, 0.1 / 90)]
    found = evenly(DrawWeights(values), 100, 50)
    assert np.count_nonzero(found < 10) == 45
    assert found.max() < 100


def test_crossed_rows_take_each_number_from_its_own_column():
    x = np.arange(12.0).reshape(4, 3)
    found = crossed(x, 100, np.random.default_rng(0))
    assert found.shape == (100, 3)
    assert (found % 3 == np.arange(3)).all()
    assert (found[:50] // 3 == found[:50, :1] // 3).all()
    assert not (found[50:] // 3 == found[50:, :1] // 3).all()


def test_a_compressed_model_predicts_as_before_and_the_model_stays(model, small, rows):
    before, after = model.predictive(rows[2]), small.predictive(rows[2])
    assert type(small) is type(model)
    assert after.n_draws == 24
    assert before.n_draws > 200
    assert np.abs(after.mean - before.mean).max() < 0.5 * before.std.min()
    assert abs(model.lppd(rows[2], rows[3]) - small.lppd(rows[2], rows[3])) < 0.05
    assert not hasattr(model, "compression_")


def test_the_loss_is_said_on_rows_that_chains_left_out(model, small, rows):
    found = small.compression_
    assert (found.n_draws, found.of_draws) == (24, model.predictive(rows[2][:1]).n_draws)
    assert 0.0 < found.expected.value < 0.1
    assert found.rows == "240 out-of-fold rows"
    assert found.observed is not None
    assert "out-of-fold" in repr(found)
    new = model.compress(rows[2], rows[3], n_draws=24).compression_
    assert new.rows == "202 rows given"
    assert model.compress(rows[2], n_draws=24).compression_.observed is None


def test_a_compressed_model_is_saved_small_and_read_again(small, rows, tmp_path):
    path = tmp_path / "small.mile"
    small.save(path)
    loaded = mile.load(path)
    assert np.array_equal(loaded.predict_interval(rows[2]), small.predict_interval(rows[2]))
    assert path.stat().st_size < 300_000


def test_a_compressed_model_explains_reports_and_can_be_cloned(small, rows, tmp_path):
    small.report(tmp_path / "page.html", rows[2], rows[3])
    assert small.explain(rows[2], rows[3], columns=[], n_repeats=1).frames()
    assert clone(small).get_params() == small.get_params()


def test_draws_are_chosen_as_often_as_their_chains_weigh(model, rows):
    fit = replace(model.fit_, weights=np.array([0.0, 0.75, 0.25, 0.0, 0.0, 0.0, 0.0, 0.0]), out_of_fold=None)
    x = fit.encoder.transform(rows[0])
    smaller, _ = compress_fit(fit, x, n_draws=32)
    origin = [
        next(chain for chain in range(4) if (fit.chains.draws[chain] == draw).all(axis=1).any())
        for draw in smaller.chains.draws[:, 0]
    ]
    assert set(origin) == {1, 2}
    assert 20 <= origin.count(1) <= 28
    assert smaller.weights is None


def test_members_that_count_can_be_chosen(model, rows):
    fit = replace(model.fit_, weights=np.r_[np.full(4, 0.05), np.full(4, 0.2)], out_of_fold=None)
    smaller, _ = compress_fit(fit, fit.encoder.transform(rows[0]), n_draws=20)
    is_member = np.isnan(smaller.chains.logdensity[:, 0])
    assert 12 <= is_member.sum() <= 20


def test_a_loss_finds_the_number_of_draws(model, rows):
    few, many = (model.compress(rows[0], loss=loss).compression_ for loss in (0.05, 0.01))
    assert few.expected.value <= 0.05
    assert many.expected.value <= 0.01
    assert few.n_draws < many.n_draws < many.of_draws


def test_impossible_requests_are_refused(model, rows):
    for wrong, sentence in (
        ({"n_draws": 10, "loss": 0.1}, "not both"),
        ({"n_draws": 100_000}, "n_draws must be less"),
        ({"loss": -1.0}, "loss"),
    ):
        with pytest.raises(ValueError, match=sentence):
            model.compress(rows[0], **wrong)
    with pytest.raises(ValueError, match="X has none"):
        model.compress(rows[0][:0])
    with pytest.raises(ValueError, match="still lose"):
        compress_fit(model.fit_.thinned(4), model.fit_.encoder.transform(rows[0]), loss=1e-9)
    with pytest.raises(ValueError, match="one entry for each"):
        model.compress(rows[0], rows[1][:5], n_draws=10)


def test_classes_and_tables_are_compressed_too():
    X, y = make_classification(120, 5, random_state=0)
    table = {f"c{place}": X[:, place] for place in range(4)} | {"kind": np.where(X[:, 4] > 0, "high", "low")}
    model = mile.MileClassifier(n_chains=2, **TINY).fit(table, y)
    small = model.compress(table, y, n_draws=16)
    assert np.abs(small.predict_proba(table) - model.predict_proba(table)).max() < 0.1
    assert small.compression_.observed is not None
