"""Estimators on images: shapes, kinds of pixels and labels that are right or refused with a reason, files, runs."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score

import mile
from mile import MileClassifier, MileRegressor
from mile.networks import ConvNet, Convolution

DIGITS = load_digits()
FLOATS = DIGITS.images[:120]  # 8 x 8, whole numbers from 0 to 16 in float64
BYTES = (15 * FLOATS).astype(np.uint8)
CODES = DIGITS.target[:120]
WORDS = np.array([f"digit {code}" for code in CODES])
NETWORK = ConvNet(convolutions=(Convolution(filters=2, pool=2),), hidden=(6,))
BUDGET = {"n_chains": 2, "warmup_steps": 60, "sampling_steps": 20, "n_draws": 10, "max_epochs": 4, "random_state": 0}


def classifier(**changes):
    return MileClassifier(**{"network": NETWORK, **BUDGET, **changes})


@pytest.fixture(scope="module")
def fitted():
    return classifier().fit(BYTES, WORDS)


def test_labels_may_be_words(fitted):
    assert set(fitted.predict(BYTES[:20])) <= set(WORDS)
    assert fitted.predict_proba(BYTES[:20]).sum(axis=1) == pytest.approx(1.0)
    assert fitted.fit_.network.input_shape == (8, 8, 1)


def test_a_channel_axis_of_one_makes_no_difference(fitted):
    again = classifier().fit(BYTES[..., None], WORDS)
    assert (again.predict_proba(BYTES[:9]) == fitted.predict_proba(BYTES[:9, ..., None])).all()


def test_bytes_are_scaled_by_255_and_other_numbers_by_their_range(fitted):
    assert (fitted.fit_.encoder.low, fitted.fit_.encoder.high) == (0.0, 255.0)
    model = classifier(sampler="deep_ensemble").fit(FLOATS + 3.0, CODES)
    assert (model.fit_.encoder.low, model.fit_.encoder.high) == (3.0, 19.0)
    colored = classifier(sampler="deep_ensemble").fit(np.repeat(BYTES[..., None], 3, axis=3), CODES)
    assert colored.fit_.network.input_shape == (8, 8, 3)


def test_images_can_have_a_number_to_predict():
    model = MileRegressor(network=NETWORK, sampler="deep_ensemble", **BUDGET).fit(BYTES, CODES.astype(float))
    assert model.predict_interval(BYTES[:5]).shape == (5, 2)


def test_a_model_and_a_run_come_back_with_the_same_predictions(fitted, tmp_path):
    fitted.save(tmp_path / "model.mile")
    loaded = mile.load(tmp_path / "model.mile")
    assert type(loaded) is MileClassifier
    assert loaded.network == NETWORK
    assert (loaded.predict_proba(BYTES) == fitted.predict_proba(BYTES)).all()
    run = classifier(run_dir=tmp_path / "run").fit(BYTES, WORDS)
    assert (mile.load(tmp_path / "run").predict_proba(BYTES) == run.predict_proba(BYTES)).all()
    assert (mile.resume(tmp_path / "run").predict_proba(BYTES) == fitted.predict_proba(BYTES)).all()


def test_the_page_speaks_of_images(fitted, tmp_path):
    fitted.report(tmp_path / "page.html", BYTES[:40], WORDS[:40])
    page = (tmp_path / "page.html").read_text()
    assert "images of 8 x 8" in page
    assert "convolutions with 2 filters" in page
    assert 'id="surprises"' in page or "labeled" in page
    assert "most unusual feature" not in page


def test_they_are_at_home_in_cross_validation():
    assert len(cross_val_score(classifier(sampler="deep_ensemble"), BYTES, CODES, cv=2)) == 2


def test_a_forecast_counts_the_weights():
    assert classifier().forecast(BYTES, WORDS).n_weights == NETWORK.sized((8, 8), 10).dimension


@pytest.mark.parametrize(
    ("changes", "x", "words"),
    [
        ({"network": None}, BYTES, "images need a network"),
        ({}, BYTES.reshape(120, 64), "needs images, an array of shape"),
        ({"network": "lenet5"}, BYTES, "too small for these convolutions"),
        ({"network": "lenet"}, BYTES, "network must be one of"),
        ({"hidden_layer_sizes": (4,)}, BYTES, "hidden_layer_sizes and activation describe the default network"),
        ({"activation": "tanh"}, BYTES, "hidden_layer_sizes and activation describe the default network"),
        ({}, BYTES[:, None, :, :, None], "images must be an array of shape"),
        ({}, BYTES.astype(str), "pixels of images must be numbers"),
        ({}, np.where(np.arange(8) == 3, np.nan, FLOATS), r"image 0 has the value nan at \(0, 3\)"),
        ({}, BYTES[:100], "inconsistent numbers of samples"),
        ({}, BYTES[:, :0], "images must be an array of shape"),
    ],
)
def test_what_cannot_be_fitted_is_refused_with_the_reason(changes, x, words):
    with pytest.raises(ValueError, match=words):
        classifier(**changes).fit(x, WORDS)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (BYTES[:, :7], r"fitted to images of shape \(8, 8, 1\), but these have shape \(7, 8\)"),
        (np.repeat(BYTES[..., None], 3, axis=3), r"but these have shape \(8, 8, 3\)"),
        (BYTES.reshape(120, 64), "images must be an array of shape"),
        (BYTES / 255.0, "multiply them by 255"),
    ],
)
def test_images_unlike_those_at_fit_are_refused(fitted, x, words):
    with pytest.raises(ValueError, match=words):
        fitted.predict(x)


def test_whole_numbers_are_refused_where_pixels_were_fractions():
    model = classifier(sampler="deep_ensemble").fit(FLOATS / 16.0, CODES)
    with pytest.raises(ValueError, match="scale them as at fit"):
        model.predict(BYTES)


def test_no_images_give_no_predictions(fitted):
    assert fitted.predict_proba(BYTES[:0]).shape == (0, 10)
