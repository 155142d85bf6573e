"""Weights of rows: a weight multiplies the row's log likelihood, from the estimator's boundary to the posterior."""

import jax
import numpy as np
import pytest
import runs
import sklearn
from sklearn.datasets import load_iris
from sklearn.model_selection import cross_validate

import mile
from mile import MLP, Gaussian, MileClassifier, MileRegressor, MileTextClassifier, Normal, RunMismatchError
from mile.networks import Attention
from mile.padded_rows import pad_rows
from mile.posterior import Posterior

SMALL = {
    "hidden_layer_sizes": (4,),
    "n_chains": 2,
    "warmup_steps": 100,
    "sampling_steps": 50,
    "n_draws": 10,
    "max_epochs": 20,
    "learning_rate": 0.01,
    "random_state": 0,
}
TEXT = {name: value for name, value in SMALL.items() if name != "hidden_layer_sizes"} | {
    "network": Attention(vocabulary=280, context=6, width=8, heads=2, attention_width=8, hidden=(4,)),
    "sampler": "deep_ensemble",
}
RNG = np.random.default_rng(0)
X = RNG.standard_normal((50, 3))
Y = X[:, 0] + 0.3 * RNG.standard_normal(50) + 2.0
WEIGHT = RNG.integers(0, 4, 50).astype(float)


def test_rows_of_weight_zero_change_no_bit_of_a_prediction():
    present = WEIGHT > 0
    assert 5 < present.sum() < 50
    junk, wild = X.copy(), Y.copy()
    junk[~present], wild[~present] = 1e6, -1e9
    weighted = MileRegressor(**SMALL).fit(junk, wild, sample_weight=WEIGHT)
    without = MileRegressor(**SMALL).fit(X[present], Y[present], sample_weight=WEIGHT[present])
    np.testing.assert_array_equal(weighted.predict_interval(X), without.predict_interval(X))


@pytest.mark.parametrize(("sampler", "native"), [("mile", False), ("stochastic", True), ("stochastic", False)])
def test_rows_of_weight_zero_change_no_bit_on_mini_batches_or_by_xla(sampler, native, monkeypatch):
    if not native:
        monkeypatch.setattr("mile.native.specify", lambda *_: None)
    present, options = WEIGHT > 0, SMALL | {"sampler": sampler, "batch_size": 16}
    weighted = MileRegressor(**options).fit(X, Y, sample_weight=WEIGHT)
    without = MileRegressor(**options).fit(X[present], Y[present], sample_weight=WEIGHT[present])
    np.testing.assert_array_equal(weighted.predict_interval(X), without.predict_interval(X))


def test_rows_of_weight_zero_change_no_bit_of_a_run_that_is_stopped_and_resumed(tmp_path):
    present = WEIGHT > 0
    with runs.interrupted("sampling"), pytest.raises(mile.Interrupted):
        MileRegressor(run_dir=tmp_path / "run", **SMALL).fit(X, Y, sample_weight=WEIGHT)
    resumed = mile.resume(tmp_path / "run")
    without = MileRegressor(**SMALL).fit(X[present], Y[present], sample_weight=WEIGHT[present])
    np.testing.assert_array_equal(resumed.predict_interval(X), without.predict_interval(X))


def test_equal_weights_of_one_are_no_weights():
    plain = MileRegressor(**SMALL).fit(X, Y)
    ones = MileRegressor(**SMALL).fit(X, Y, sample_weight=np.ones(50))
    np.testing.assert_array_equal(plain.predict(X), ones.predict(X))
    weighted = MileRegressor(**SMALL).fit(X, Y, sample_weight=np.maximum(WEIGHT, 1.0))
    assert not np.array_equal(plain.predict(X), weighted.predict(X))


@pytest.mark.parametrize("native", [True, False])
def test_a_weight_of_two_is_the_row_twice_in_the_posterior(native, monkeypatch):
    if not native:
        monkeypatch.setattr("mile.native.specify", lambda *_: None)
    network, chosen = MLP(n_inputs=3, hidden=(4,)), WEIGHT > 0
    x, y, weight = X[chosen].astype(np.float32), Y[chosen].astype(np.float32), WEIGHT[chosen]
    times = weight.astype(int)
    rows = pad_rows(x, y, weight), pad_rows(np.repeat(x, times, axis=0), np.repeat(y, times))
    parts = {"network": network, "likelihood": Gaussian(), "prior": Normal()}
    weighted, repeated = (Posterior(rows=one, **parts) for one in rows)
    for seed in range(3):
        position = 0.5 * jax.random.normal(jax.random.key(seed), (network.dimension,))
        one, other = weighted.value_and_grad(position), repeated.value_and_grad(position)
        np.testing.assert_allclose(one[0], other[0], rtol=1e-5)
        np.testing.assert_allclose(one[1], other[1], rtol=1e-3, atol=1e-3)


def test_scales_are_learned_by_weight():
    weighted = MileRegressor(**(SMALL | {"validation_fraction": 0.0})).fit(X, Y, sample_weight=WEIGHT)
    repeated = np.repeat(Y, WEIGHT.astype(int))
    np.testing.assert_allclose(weighted.fit_.response.unit, repeated.std(), rtol=1e-12)
    np.testing.assert_allclose(weighted.fit_.encoder.shift, np.repeat(X, WEIGHT.astype(int), axis=0).mean(axis=0))


def test_a_run_keeps_the_weights_and_refuses_others(tmp_path):
    model = MileRegressor(run_dir=tmp_path / "run", **SMALL).fit(X, Y, sample_weight=WEIGHT)
    again = mile.resume(tmp_path / "run")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    other = np.where(WEIGHT > 0, WEIGHT + 1.0, 0.0)
    with pytest.raises(RunMismatchError, match="data"):
        MileRegressor(run_dir=tmp_path / "run", **SMALL).fit(X, Y, sample_weight=other)


def test_class_weight_equals_the_sample_weight_that_it_stands_for():
    x, y = load_iris(return_X_y=True)
    x, y = x[:110:2], y[:110:2]
    counts = np.bincount(y)
    assert len(set(counts)) > 1
    for class_weight, of_class in (
        ({0: 1.0, 1: 2.0, 2: 5.0}, np.array([1.0, 2.0, 5.0])),
        ("balanced", len(y) / (3 * counts)),
    ):
        own = np.linspace(0.5, 2.0, len(y))
        explicit = MileClassifier(**SMALL).fit(x, y, sample_weight=of_class[y] * own)
        by_class = MileClassifier(class_weight=class_weight, **SMALL).fit(x, y, sample_weight=own)
        np.testing.assert_array_equal(by_class.predict_proba(x), explicit.predict_proba(x))
        plain = MileClassifier(**SMALL).fit(x, y, sample_weight=own)
        assert not np.array_equal(by_class.predict_proba(x), plain.predict_proba(x))


def test_class_weight_of_texts_equals_the_sample_weight_that_it_stands_for():
    texts = ["a good film", "good fun", "a bad film", "dull"] * 6
    labels = np.array(["like", "like", "dislike", "like"] * 6)
    explicit = MileTextClassifier(**TEXT).fit(texts, labels, sample_weight=np.where(labels == "like", 24 / 36, 2.0))
    balanced = MileTextClassifier(class_weight="balanced", **TEXT).fit(texts, labels)
    plain = MileTextClassifier(**TEXT).fit(texts, labels)
    np.testing.assert_array_equal(balanced.predict_proba(texts), explicit.predict_proba(texts))
    assert not np.array_equal(balanced.predict_proba(texts), plain.predict_proba(texts))


def test_class_weight_is_kept_in_a_file(tmp_path):
    x, y = load_iris(return_X_y=True)
    labels = np.array(["a", "b", "c"])[y][::3]
    model = MileClassifier(class_weight={"a": 1.0, "b": 2.0, "c": 0.5}, **SMALL).fit(x[::3], labels)
    model.save(tmp_path / "model.mile")
    assert mile.load(tmp_path / "model.mile").class_weight == {"a": 1.0, "b": 2.0, "c": 0.5}


def test_scores_count_rows_by_weight():
    model = MileRegressor(**SMALL).fit(X, Y)
    density = model.predictive(X).log_prob(Y)
    assert model.lppd(X, Y, sample_weight=WEIGHT) == pytest.approx(np.average(density, weights=WEIGHT))
    assert model.score(X, Y, sample_weight=WEIGHT) != model.score(X, Y)


def test_weights_are_routed_by_scikit_learn():
    with sklearn.config_context(enable_metadata_routing=True):
        model = MileRegressor(**SMALL).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        found = cross_validate(model, X, Y, cv=2, params={"sample_weight": WEIGHT}, return_estimator=True)
    first = np.arange(50) >= 25
    alone = MileRegressor(**SMALL).fit(X[first], Y[first], sample_weight=WEIGHT[first])
    np.testing.assert_array_equal(found["estimator"][0].predict(X), alone.predict(X))


def test_classifiers_score_by_weight():
    labels = np.where(Y > 2.0, "high", "low")
    model = MileClassifier(sampler="deep_ensemble", **SMALL).fit(X, labels)
    right = model.predict(X) == labels
    weight = np.where(right, 1.0, 3.0)
    assert 0 < right.sum() < 50
    assert model.score(X, labels, sample_weight=weight) == pytest.approx(np.average(right, weights=weight))


def test_weights_that_cannot_be_used_are_refused_with_row_and_value():
    for wrong, words in (
        (np.r_[WEIGHT[:-1], -1.0], "row 49 has -1"),
        (np.r_[WEIGHT[:3], np.nan, WEIGHT[4:]], "row 3 has NaN"),
        (np.r_[WEIGHT[:3], -np.inf, WEIGHT[4:]], "row 3 has -inf"),
        (np.r_[1e300, WEIGHT[1:]], "row 0 has 1e"),
        (np.zeros(50), "all 50 rows have weight 0"),
        (WEIGHT[:-1], r"one number for each of the 50 rows; got shape \(49,\)"),
        (WEIGHT[:, None], r"one number for each of the 50 rows; got shape \(50, 1\)"),
        (["heavy"] * 50, "sample_weight must be one number for each row: .*heavy"),
    ):
        with pytest.raises(ValueError, match=words):
            MileRegressor(**SMALL).fit(X, Y, sample_weight=wrong)
    with pytest.raises(ValueError, match="class_weight must be"):
        MileClassifier(class_weight="heavy", **SMALL).fit(X, Y > 2.0)


def test_weights_that_leave_out_a_class_are_refused_with_the_class_and_its_first_row():
    labels = np.array(["a", "b", "c"])[np.arange(50) % 3]
    words = "all 16 rows of class 'c' have weight 0, the first in row 2"
    with pytest.raises(ValueError, match=words):
        MileClassifier(**SMALL).fit(X, labels, sample_weight=(labels != "c").astype(float))
    with pytest.raises(ValueError, match=words):
        MileClassifier(class_weight={"a": 1.0, "b": 2.0, "c": 0.0}, **SMALL).fit(X, labels)
    with pytest.raises(ValueError, match="all 17 rows of class 'b' have weight 0, the first in row 1"):
        MileTextClassifier(**TEXT).fit(["a text"] * 50, labels, sample_weight=(labels != "b").astype(float))


def test_reports_name_rows_by_their_place_in_the_users_table(tmp_path):
    model = MileRegressor(run_dir=tmp_path / "run", **SMALL).fit(X, Y, sample_weight=np.where(np.arange(50) < 9, 0, 1))
    from mile.estimators.loading import read_validation

    rows = read_validation(tmp_path / "run", model.fit_)
    assert rows is not None
    np.testing.assert_allclose(rows.y, Y[rows.numbers], rtol=1e-6)
    assert rows.numbers.min() >= 9
