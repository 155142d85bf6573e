"""What users would pick instead of MILE, each at its own defaults; runs in the environment of `requirements.txt`.

Usage: peers.py METHOD ROWS RESULT --seed N --threads N, see `job.py`.

Everybody gets raw features and the raw target. What does not scale them itself gets what its own documentation shows.
"""

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import scores
from job import Options, command_line
from scores import LEVEL, LEVELS, Interval, Mixture, Normal, Prediction, Quantiles

MOST_GP_ROWS = 2_000  # random training rows, where there are more: its cost grows with their third power
BDE_DRAWS_AT_ONCE = 4_000_000  # times rows, two numbers each, in one call of its predict
# The regression example of its README; the defaults of the class are 2 members of 4-4 units, 20 steps of Adam, then
# 50 steps of warm-up and 10 of sampling.
BDE_README = {
    "hidden_layers": [16, 16], "n_members": 8, "epochs": 200, "validation_split": 0.15, "lr": 1e-3,
    "weight_decay": 1e-4, "warmup_steps": 5000, "n_samples": 2000, "n_thinning": 2, "patience": 10,
}  # fmt: skip


def main() -> None:
    command_line({name: functools.partial(_scored, method) for name, method in METHODS.items()})


def _scored(method: Callable[[Options], Callable[..., Prediction]], options: Options) -> Callable:
    fit_and_predict = method(options)

    def run(x: np.ndarray, y: np.ndarray, x_test: np.ndarray) -> Callable:
        return functools.partial(scores.score, fit_and_predict(x, y, x_test))

    return run


def ngboost(options: Options) -> Callable:
    from ngboost import NGBRegressor

    def run(x, y, x_test):
        model = NGBRegressor(random_state=options.seed, verbose=False).fit(x, y)
        found = model.pred_dist(x_test).params
        return Normal(mean=found["loc"], std=found["scale"])

    return run


def catboost(options: Options) -> Callable:
    from catboost import CatBoostRegressor

    def run(x, y, x_test):
        model = CatBoostRegressor(
            loss_function="RMSEWithUncertainty",
            random_seed=options.seed,
            thread_count=options.threads,
            verbose=False,
            allow_writing_files=False,
        )
        mean, variance = model.fit(x, y).predict(x_test).T
        return Normal(mean=mean, std=np.sqrt(variance))

    return run


def xgboost_quantile(options: Options) -> Callable:
    from xgboost import XGBRegressor

    def run(x, y, x_test):
        model = XGBRegressor(
            objective="reg:quantileerror", quantile_alpha=LEVELS, n_jobs=options.threads, random_state=options.seed
        )
        values = model.fit(x, y).predict(x_test).astype(np.float64)
        return Quantiles(values=values, resolution=scores.resolution(y), mean=values.mean(axis=1))

    return run


def quantile_forest(options: Options) -> Callable:
    from quantile_forest import RandomForestQuantileRegressor

    def run(x, y, x_test):
        model = RandomForestQuantileRegressor(n_jobs=options.threads, random_state=options.seed).fit(x, y)
        values, mean = (model.predict(x_test, quantiles=wanted) for wanted in (list(LEVELS), "mean"))
        return Quantiles(values=values, resolution=scores.resolution(y), mean=mean)

    return run


def gaussian_process(options: Options) -> Callable:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def run(x, y, x_test):
        chosen = np.random.default_rng(options.seed).permutation(len(x))[:MOST_GP_ROWS]
        kernel = ConstantKernel() * RBF(np.ones(x.shape[1])) + WhiteKernel()
        model = make_pipeline(
            StandardScaler(), GaussianProcessRegressor(kernel, normalize_y=True, random_state=options.seed)
        )
        mean, std = model.fit(x[chosen], y[chosen]).predict(x_test, return_std=True)
        return Normal(mean=mean, std=std)

    return run


def mapie(options: Options) -> Callable:
    from mapie.regression import ConformalizedQuantileRegressor
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.model_selection import train_test_split

    def run(x, y, x_test):
        # A quarter of the rows conformalizes, scikit-learn's default and the share in MAPIE's own example.
        x_train, x_rest, y_train, y_rest = train_test_split(x, y, random_state=options.seed)
        booster = HistGradientBoostingRegressor(loss="quantile", quantile=0.5, random_state=options.seed)
        model = ConformalizedQuantileRegressor(booster, confidence_level=LEVEL)
        model.fit(x_train, y_train).conformalize(x_rest, y_rest)
        points, intervals = model.predict_interval(x_test)
        return Interval(lower=intervals[:, 0, 0], upper=intervals[:, 1, 0], mean=points)

    return run


def bde(options: Options, **settings: Any) -> Callable:
    # Its README asks for one CPU device per core, which has to be set before JAX is imported.
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={options.threads}"
    from bde import BdeRegressor
    from sklearn.preprocessing import StandardScaler

    def run(x, y, x_test):
        features, target = StandardScaler().fit(x), StandardScaler().fit(y[:, None])
        model = BdeRegressor(seed=options.seed, **settings)
        model.fit(features.transform(x), target.transform(y[:, None])[:, 0])
        n_draws = model.n_members * max(1, model.n_samples // model.n_thinning)
        n_blocks = -(-len(x_test) * n_draws // BDE_DRAWS_AT_ONCE)
        blocks = np.array_split(features.transform(x_test), n_blocks)
        raw = np.concatenate([np.asarray(model.predict(block, raw=True)) for block in blocks], axis=2)
        location, unconstrained = raw.reshape(-1, *raw.shape[2:]).transpose(2, 0, 1)
        # Its scale is softplus(second output) + 1e-6, as in its own predictor.
        scale = np.logaddexp(0.0, unconstrained) + 1e-6
        unit = target.scale_[0]
        return Mixture(location=target.mean_[0] + unit * location, scale=unit * scale)

    return run


METHODS = {
    "ngboost": ngboost,
    "catboost": catboost,
    "xgboost-quantile": xgboost_quantile,
    "gaussian-process": gaussian_process,
    "quantile-forest": quantile_forest,
    "mapie": mapie,
    "bde": bde,
    "bde-readme": functools.partial(bde, **BDE_README),
}

if __name__ == "__main__":
    main()
