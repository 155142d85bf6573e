"""Models to serve: one of random numbers that needs no fit, and small ones of every kind of response."""

import numpy as np
import pandas as pd
import pytest
from models import made_estimator

import mile

QUICK = {"sampler": "deep_ensemble", "n_chains": 2, "max_epochs": 3, "n_folds": 0, "random_state": 0}
N = 80


def mixed_table():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "size": np.where(rng.random(N) < 0.1, np.nan, 60 + 20 * rng.normal(size=N)),
            "city": rng.choice(["Oslo", "Rome", "Bern"], N, p=[0.6, 0.3, 0.1]),
            "sold": rng.choice(["yes", "no"], N),
            "day": pd.date_range("2024-01-01", periods=N).strftime("%Y-%m-%d"),
            "id": [f"house {place}" for place in range(N)],
        }
    )


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """Paths of models by name."""
    folder = tmp_path_factory.mktemp("models")
    rng = np.random.default_rng(1)
    X, table = rng.normal(size=(N, 3)), mixed_table()
    rent = pd.Series(table["size"].fillna(50) + 30 * (table["city"] == "Oslo"), name="rent")
    models = {
        "numbers": made_estimator(feature_names=["a", "b", "c"]),
        "mixed": mile.MileRegressor(**QUICK).fit(table, rent),
        "classes": mile.MileClassifier(**QUICK).fit(table, np.where(rent > 70, "high", "low")),
        "counts": mile.MileRegressor(likelihood="poisson", **QUICK).fit(X, rng.poisson(2.0, N)),
        "times": mile.MileRegressor(**QUICK).fit(
            X, mile.censored(np.exp(X[:, 0]), np.where(X[:, 1] > 1, "right", "none"))
        ),
    }
    for name, model in models.items():
        model.save(folder / f"{name}.mile")
    return {name: folder / f"{name}.mile" for name in models}
