"""Searches and cross-validation over our estimators in other processes, and predictions there."""

import clusters
import dask.array
import joblib
import numpy as np
import pytest
from distributed import default_client
from sklearn.datasets import load_diabetes, load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score

import mile
from mile import MileClassifier, MileRegressor

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
SMALL = {"n_chains": 2, "warmup_steps": 60, "sampling_steps": 40, "n_draws": 5, "max_epochs": 10, "random_state": 0}
X, Y = load_diabetes(return_X_y=True)


@pytest.fixture(scope="module")
def client():
    with clusters.local_cluster(n_workers=1) as client, client.as_current():
        yield client


@pytest.fixture(scope="module")
def model():
    return MileRegressor((4,), **SMALL).fit(X, Y)


def search():
    grid = GridSearchCV(MileRegressor((4,), **SMALL), {"prior_scale": [0.5, 1.0]}, cv=2, error_score="raise", n_jobs=2)
    return grid.fit(X, Y).cv_results_["mean_test_score"]


@pytest.fixture(scope="module")
def scores_here():
    with joblib.parallel_config(backend="sequential"):
        return search()


def test_a_search_gives_the_same_scores_in_this_process_and_on_a_cluster(client, scores_here):
    assert default_client() is client
    with joblib.parallel_config(backend="dask"):
        np.testing.assert_array_equal(search(), scores_here)


@pytest.mark.slow
def test_a_search_gives_the_same_scores_with_loky(scores_here):
    """JAX has started here: forking it would hang or crash."""
    with joblib.parallel_config(backend="loky"):
        np.testing.assert_array_equal(search(), scores_here)


@pytest.mark.slow
def test_cross_validation_of_a_classifier_works_with_loky():
    x, y = load_iris(return_X_y=True)
    with joblib.parallel_config(backend="loky"):
        scores = cross_val_score(MileClassifier((4,), **SMALL), x, y, cv=2, n_jobs=2, error_score="raise")
    assert (scores > 0.2).all()


class TestPredictionsOnACluster:
    def test_are_those_of_this_process(self, client, model):
        np.testing.assert_array_equal(mile.map_rows(model, X, client=client, block_rows=100), model.predict(X))

    def test_of_a_dask_array_are_one_too(self, client, model):
        found = mile.map_rows(model, dask.array.from_array(X, chunks=(100, 4)))
        assert found.shape == (len(X),)
        np.testing.assert_array_equal(client.compute(found).result(), model.predict(X))

    def test_of_classes_have_a_column_each(self, client):
        x, y = load_iris(return_X_y=True)
        model = MileClassifier((4,), **SMALL).fit(x, y)
        table = dask.array.from_array(x, chunks=(60, 4))
        found = mile.map_rows(model, table, "predict_proba")
        assert found.shape == (len(x), 3)
        np.testing.assert_array_equal(client.compute(found).result(), model.predict_proba(x))
        np.testing.assert_array_equal(mile.map_rows(model, x, client=client, block_rows=70), model.predict(x))

    def test_refuse_what_is_no_method(self, model):
        with pytest.raises(ValueError, match="method must be one of the model's"):
            mile.map_rows(model, X, "guess")
