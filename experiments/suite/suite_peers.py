"""What users would pick instead of MILE, on the tables of the suite; runs in the environment of `requirements.txt`.

Usage: suite_peers.py METHOD TABLE DATA_DIR EXPORTED KEPT RESULT --seed N --threads N --scale S --chains N

The boosters are those of `mixed_tables`, at their defaults. Texts that differ in every training row are left out and
dates are days, as there.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "alternatives"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "mixed_tables"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import exact_gp
import scores
from columns import as_numbers, one_hot, text_columns
from job import Options
from peers import catboost, ngboost, xgboost
from scores import LEVELS, Normal, Quantiles
from suite_task import Job, Scored, Stopwatch, classification_scores, command_line, number_scores, outside
from tables import MixedTable

MOST_GP_ROWS = 2_000  # random training rows, where there are more
MOST_GP_CLASS_ROWS = 1_000  # of scikit-learn's, which is slower
MOST_TRAINING_ROWS = 1_000  # whose standard deviation is looked at
_MOST_CLASS_FOLDS = 5


def main() -> None:
    command_line(METHODS)


def _measured(method: Callable[[Options, MixedTable], Callable]) -> Callable[[Job], Scored]:
    def run(job: Job) -> Scored:
        x, x_test = as_numbers(job.rows.x, job.rows.x_test, job.table)
        # One call for all rows, because some methods fit and predict at once.
        others = {
            name: as_numbers(job.rows.x, frame.head(MOST_TRAINING_ROWS), job.table)[1]
            for name, frame in (outside(job) if job.table.is_regression else {}).items()
        }
        both = pd.concat([_plain(x_test), *map(_plain, others.values())], ignore_index=True)
        fit_and_predict = method(job.options, job.table)
        watch = Stopwatch()
        if not job.table.is_regression:
            classes, codes = np.unique(job.rows.y, return_inverse=True)
            probs = fit_and_predict(_plain(x), codes, both)
            seconds = watch.row()
            scored = classification_scores(probs, classes, job)
            return scored._replace(row=scored.row | seconds)
        prediction = fit_and_predict(_plain(x), job.rows.y, both)
        seconds = watch.row()
        scored, start = number_scores(prediction.take(slice(0, len(x_test))), job), len(x_test)
        for name, frame in others.items():
            std = prediction.take(slice(start, start + len(frame))).std
            scored.row[name], start = float(std.max()) / job.unit, start + len(frame)
        return scored._replace(row=scored.row | seconds)

    return run


def _plain(x: pd.DataFrame) -> pd.DataFrame:
    """Return true and false as numbers, which imputers need."""
    flags = [name for name in x if x[name].dtype == bool]
    return x.astype(dict.fromkeys(flags, float))


def ridge(options: Options, table: MixedTable) -> Callable:
    from sklearn.linear_model import BayesianRidge, LogisticRegressionCV
    from sklearn.model_selection import StratifiedKFold
    from sklearn.pipeline import make_pipeline

    def classify(x: pd.DataFrame, y: np.ndarray, x_test: pd.DataFrame) -> np.ndarray:
        n_folds = max(2, min(_MOST_CLASS_FOLDS, int(np.bincount(y).min())))
        folds = StratifiedKFold(n_folds, shuffle=True, random_state=options.seed)
        settings: dict[str, Any] = {"l1_ratios": (0.0,), "max_iter": 1_000, "use_legacy_attributes": False}
        regression = LogisticRegressionCV(cv=folds, scoring="neg_log_loss", **settings)
        return make_pipeline(_linear_features(x), regression).fit(x, y).predict_proba(x_test)

    def regress(x: pd.DataFrame, y: np.ndarray, x_test: pd.DataFrame) -> Normal:
        model = make_pipeline(_linear_features(x), BayesianRidge()).fit(x, (y - y.mean()) / y.std())
        mean, std = model.predict(x_test, return_std=True)
        return Normal(mean=y.mean() + y.std() * mean, std=y.std() * std)

    return regress if table.is_regression else classify


def _linear_features(x: pd.DataFrame) -> Any:
    """Return a transformer to indicators of all levels, and standardized numbers with indicators of gaps."""
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    indicators = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    return make_column_transformer((indicators, text_columns(x)), remainder=numbers)


def gp(options: Options, table: MixedTable) -> Callable:
    def chosen(x: pd.DataFrame, most: int) -> np.ndarray:
        return np.random.default_rng(options.seed).permutation(len(x))[:most]

    def features(x: pd.DataFrame, x_test: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        from sklearn.feature_selection import VarianceThreshold
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        encoder = make_pipeline(one_hot(x), VarianceThreshold(), StandardScaler()).fit(x)
        return encoder.transform(x), encoder.transform(x_test)

    def classify(x: pd.DataFrame, y: np.ndarray, x_test: pd.DataFrame) -> np.ndarray:
        from sklearn.gaussian_process import GaussianProcessClassifier
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel

        # Some of each class.
        ranks = np.concatenate([np.arange(count) / count for count in np.bincount(y)])
        rows = chosen(x, len(x))
        rows = rows[np.argsort(y[rows], kind="stable")][np.argsort(ranks, kind="stable")][:MOST_GP_CLASS_ROWS]
        known, asked = features(x.iloc[rows], x_test)
        kernel = ConstantKernel() * RBF(np.sqrt(known.shape[1]))
        model = GaussianProcessClassifier(kernel, random_state=options.seed)
        return model.fit(known, y[rows]).predict_proba(asked)

    def regress(x: pd.DataFrame, y: np.ndarray, x_test: pd.DataFrame) -> Normal:
        rows = chosen(x, MOST_GP_ROWS)
        known, asked = features(x.iloc[rows], x_test)
        center, unit = y[rows].mean(), y[rows].std()
        mean, std = exact_gp.fit(known, (y[rows] - center) / unit).predict(asked)
        return Normal(mean=center + unit * mean, std=unit * std)

    return regress if table.is_regression else classify


def quantile_forest(options: Options, table: MixedTable) -> Callable:
    def classify(x: pd.DataFrame, y: np.ndarray, x_test: pd.DataFrame) -> np.ndarray:
        from sklearn.ensemble import RandomForestClassifier

        encoder = one_hot(x).fit(x)
        model = RandomForestClassifier(n_jobs=options.threads, random_state=options.seed)
        probs = model.fit(encoder.transform(x), y).predict_proba(encoder.transform(x_test))
        # A share of trees cannot tell probabilities below half a tree from zero, which would cost an infinite loss.
        floored = np.maximum(probs, 0.5 / model.n_estimators)
        return floored / floored.sum(axis=1, keepdims=True)

    def regress(x: pd.DataFrame, y: np.ndarray, x_test: pd.DataFrame) -> Quantiles:
        from quantile_forest import RandomForestQuantileRegressor

        encoder = one_hot(x).fit(x)
        model = RandomForestQuantileRegressor(n_jobs=options.threads, random_state=options.seed)
        model.fit(encoder.transform(x), y)
        values, mean = (model.predict(encoder.transform(x_test), quantiles=wanted) for wanted in (list(LEVELS), "mean"))
        return Quantiles(values=values, resolution=scores.resolution(y), mean=mean)

    return regress if table.is_regression else classify


METHODS = {
    name: _measured(method)
    for name, method in {
        "ridge": ridge,
        "gp": gp,
        "ngboost": ngboost,
        "catboost": catboost,
        "xgboost": xgboost,
        "quantile-forest": quantile_forest,
    }.items()
}

if __name__ == "__main__":
    main()
