"""Saved models in a process without JAX: the kernel alone predicts as the estimator does."""

import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes

import mile
from mile.native._plain import NormalForm, NormalMixtures, WeightedDraws, plain_library
from mile.serving.model import FittedModel

pytestmark = pytest.mark.skipif(plain_library() is None, reason="there is no native kernel")
TINY = {"warmup_steps": 40, "sampling_steps": 40, "n_draws": 20, "max_epochs": 5, "random_state": 0}

CHILD = """
import sys, numpy as np, mile
X = np.load(sys.argv[2])
model = mile.load(sys.argv[1])
found = np.c_[model.predict(X), model.predict(X, return_std=True)[1], model.predict_interval(X),
              model.predict_quantiles(X, [0.5])]
assert not {"jax", "sklearn", "scipy"} & set(sys.modules), "too much was imported"
np.save(sys.argv[3], found)
assert isinstance(model, mile.MileRegressor)
assert model.seed_ == 0
"""


@pytest.fixture(scope="module")
def model():
    X, y = load_diabetes(return_X_y=True)
    return mile.MileRegressor(n_chains=3, **TINY).fit(X[:100], y[:100])


@pytest.fixture(scope="module")
def rows():
    return load_diabetes(return_X_y=True)[0][100:230]


def predicted(model, X):
    mean, std = model.predict(X, return_std=True)
    return np.c_[mean, std, model.predict_interval(X), model.predict_quantiles(X, [0.5])]


def test_a_process_predicts_without_jax_and_scikit_learn(model, rows, tmp_path):
    names = [tmp_path / name for name in ("model.mile", "rows.npy", "found.npy")]
    model.save(names[0])
    np.save(names[1], rows)
    done = subprocess.run([sys.executable, "-c", CHILD, *map(str, names)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    wanted = predicted(model, rows)
    assert (np.abs(np.load(names[2]) - wanted) / wanted[:, [1]]).max() < 5e-6


def test_weights_of_chains_and_members_count(model, rows, tmp_path):
    weights = np.array([0.5, 0.0, 0.2, 0.0, 0.3, 0.0])
    weighted = mile.MileRegressor(n_chains=3, **TINY)
    vars(weighted).update(vars(model))
    weighted.fit_ = replace(model.fit_, weights=weights, out_of_fold=None)
    weighted.save(tmp_path / "weighted.mile")
    light = FittedModel.read(tmp_path / "weighted.mile")
    wanted = predicted(weighted, rows)
    assert (np.abs(predicted(light, rows) - wanted) / wanted[:, [1]]).max() < 5e-6


def test_what_the_kernel_cannot_take_goes_to_the_estimator(model, rows, tmp_path):
    model.save(tmp_path / "model.mile")
    light = FittedModel.read(tmp_path / "model.mile")
    assert np.allclose(light.predict(rows[:3].tolist()), model.predict(rows[:3]))
    assert light.get_params() == model.get_params()
    with pytest.raises(ValueError, match="features"):
        light.predict(rows[:3, :4])
    with pytest.raises(ValueError, match="level"):
        light.predict_interval(rows[:3], level=1.5)
    with pytest.raises(ValueError, match="strictly between"):
        light.predict_quantiles(rows[:3], [0.0])


def test_changes_are_those_of_the_estimator(model, rows, tmp_path):
    model.save(tmp_path / "model.mile")
    light = FittedModel.read(tmp_path / "model.mile")
    copied = pickle.loads(pickle.dumps(light))
    assert type(copied) is mile.MileRegressor
    assert np.array_equal(copied.predict(rows), model.predict(rows))
    light.n_chains = 2
    assert light.get_params()["n_chains"] == clone(light).n_chains == 2
    light.fit(rows, 1e3 + rows[:, 0])
    assert light.predict(rows).min() > 900.0


def test_other_files_are_left_to_what_reads_all(model, tmp_path):
    path = tmp_path / "model.mile"
    model.fit_.save(path)  # without an estimator
    assert FittedModel.read(path) is None
    model.save(path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert FittedModel.read(path) is None
    with pytest.raises(mile.CorruptFileError):
        mile.load(path)


def mixtures_of(location, scale):
    """Return mixtures of given normal distributions: a network without hidden layers whose input has no effect."""
    weights = np.zeros((len(location), 4), np.float32)  # one input, two outputs; then the bias
    weights[:, 2], weights[:, 3] = location, np.log(scale)
    draws = WeightedDraws((weights,), np.array([len(weights)]), np.ones(1))
    return NormalMixtures(plain_library(), NormalForm((1, 2), 0, 0, 0.0), draws)


def test_quantiles_hold_their_level_in_gaps_and_tails():
    from scipy.special import ndtr

    rng = np.random.default_rng(0)
    cases = [
        (rng.normal(size=1000), np.exp(rng.normal(size=1000))),
        (np.r_[np.full(500, -50.0), np.full(500, 50.0)], np.full(1000, 0.01)),
        (np.zeros(7), np.geomspace(1e-5, 1e4, 7)),
        (np.array([3.0]), np.array([2.0])),
        (1e3 * rng.standard_cauchy(size=333), np.exp(2 * rng.normal(size=333))),
    ]
    levels = [1e-6, 0.01, 0.05, 0.4, 0.95, 0.999]
    for location, scale in cases:
        location, scale = location.astype(np.float32).astype(float), scale.astype(np.float32).astype(float)
        found = mixtures_of(location, scale).summarize(np.zeros((1, 1), np.float32), levels).quantiles[:, 0]
        assert (np.diff(found) >= 0.0).all()
        for level, y in zip(levels, found, strict=True):
            step = 2e-5 * np.sqrt(scale.var() + location.var() + np.square(scale).mean())
            below, above = (ndtr((at - location) / scale).mean() for at in (y - step, y + step))
            assert below <= level <= above, (level, y, below, above)


def test_rows_do_not_depend_on_their_neighbors(model, rows, tmp_path):
    model.save(tmp_path / "model.mile")
    light = FittedModel.read(tmp_path / "model.mile")
    whole = light.predict_interval(np.resize(rows, (200, rows.shape[1])))
    assert np.allclose(whole[:130], light.predict_interval(rows), rtol=1e-12)
    assert light.predict_interval(rows[:0]).shape == (0, 2)


def test_networks_that_overflow_predict_nan():
    found = mixtures_of(np.array([np.inf, 0.0]), np.ones(2)).summarize(np.zeros((2, 1), np.float32), [0.5])
    assert np.isnan(found.quantiles).all()
