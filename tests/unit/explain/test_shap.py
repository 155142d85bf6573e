"""Fitted models as functions, which is how SHAP takes them."""

import numpy as np
import pytest

from mile import MileClassifier, MileRegressor, load

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 3))
TINY = {"sampler": "deep_ensemble", "n_chains": 2, "hidden_layer_sizes": (4,), "max_epochs": 20, "random_state": 0}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    regressor = MileRegressor(**TINY).fit(X, X[:, 0] + X[:, 1] * X[:, 2])
    path = tmp_path_factory.mktemp("shap") / "model.mile"
    regressor.save(path)
    return regressor, load(path), MileClassifier(**TINY).fit(X, X[:, 0] > 0)


def test_a_fitted_model_is_a_function_of_rows(models):
    regressor, loaded, classifier = models
    np.testing.assert_array_equal(regressor(X), regressor.predict(X))
    np.testing.assert_array_equal(loaded(X), loaded.predict(X))
    np.testing.assert_array_equal(classifier(X), classifier.predict_proba(X))


def test_shap_explains_models_with_rows_to_compare_with(models):
    shap = pytest.importorskip("shap")
    for model in models:
        found = shap.Explainer(model, X[:20])(X[:3])
        whole = found.base_values + found.values.sum(axis=1)
        np.testing.assert_allclose(whole, model(X[:3]), atol=1e-5)


def test_shap_and_explain_row_agree(models):
    shap = pytest.importorskip("shap")
    regressor = models[0]
    values = shap.Explainer(regressor, X[:20])(X[30:31]).values[0]
    found = regressor.explain_row(X[30], X[:20], n_draws=1_000)
    error = found.standard_error["mean"]
    assert (np.abs(values - found.contributions["mean"]) < 6 * error + 1e-4).all()
