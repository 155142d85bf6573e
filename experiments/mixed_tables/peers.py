"""What users would pick instead of MILE, each at its own defaults; runs in the environment of `requirements.txt`.

Usage: peers.py METHOD TABLE DATA_DIR MOST_ROWS RESULT --seed N --threads N --scale S --chains N, see `task.py`.
"""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "alternatives"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import scores
from columns import as_categories, as_numbers, as_texts, one_hot, with_target_means
from scores import KNOTS, LEVELS, Normal, Prediction, Quantiles
from tables import MixedTable
from task import Options, class_scores, command_line

_N_FOLDS = 5  # of the residuals outside the fold, as scikit-learn's cross_val_predict


def main() -> None:
    command_line({name: functools.partial(_scored, method) for name, method in METHODS.items()})


def _scored(method: Callable[..., Callable], options: Options, table: MixedTable) -> Callable:
    fit_and_predict = method(options, table)

    def run(x: pd.DataFrame, y: np.ndarray, x_test: pd.DataFrame) -> Callable:
        x, x_test = as_numbers(x, x_test, table)
        if table.is_regression:
            prediction: Prediction = fit_and_predict(x, y, x_test)
            return functools.partial(scores.score, prediction)
        classes, codes = np.unique(y.astype(str), return_inverse=True)
        probs = fit_and_predict(x, codes, x_test)
        return lambda y_test, unit: class_scores(probs, classes, y_test)

    return run


def catboost(options: Options, table: MixedTable) -> Callable:
    from catboost import CatBoostClassifier

    def classify(x, y, x_test):
        x, x_test, texts = as_texts(x, x_test)
        return CatBoostClassifier(cat_features=texts, **_of_catboost(options)).fit(x, y).predict_proba(x_test)

    def regress(x, y, x_test):
        mean, variance = _catboost_numbers(options, "RMSEWithUncertainty", x, y, x_test).T
        return Normal(mean=mean, std=np.sqrt(variance))

    return regress if table.is_regression else classify


def catboost_quantile(options: Options, table: MixedTable) -> Callable:
    def regress(x, y, x_test):
        loss = f"MultiQuantile:alpha={','.join(map(str, KNOTS))}"
        return _from_knots(_catboost_numbers(options, loss, x, y, x_test), y)

    return regress


def _catboost_numbers(options: Options, loss: str, x: Any, y: np.ndarray, x_test: Any) -> np.ndarray:
    from catboost import CatBoostRegressor

    x, x_test, texts = as_texts(x, x_test)
    model = CatBoostRegressor(loss_function=loss, cat_features=texts, **_of_catboost(options))
    return model.fit(x, y).predict(x_test)


def _of_catboost(options: Options) -> dict[str, Any]:
    files = {"verbose": False, "allow_writing_files": False}
    return {"random_seed": options.seed, "thread_count": options.threads} | files


def hist_gradient_boosting(options: Options, table: MixedTable) -> Callable:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.model_selection import cross_val_predict

    def classify(x, y, x_test):
        model = with_target_means(HistGradientBoostingClassifier(random_state=options.seed), x)
        return model.fit(x, y).predict_proba(x_test)

    def regress(x, y, x_test):
        model = with_target_means(HistGradientBoostingRegressor(random_state=options.seed), x)
        residuals = y - cross_val_predict(model, x, y, cv=_N_FOLDS)
        std = np.sqrt(np.mean(np.square(residuals)))
        return Normal(mean=model.fit(x, y).predict(x_test), std=np.full(len(x_test), std))

    return _on_categories(regress if table.is_regression else classify)


def hist_gradient_boosting_quantile(options: Options, table: MixedTable) -> Callable:
    from sklearn.ensemble import HistGradientBoostingRegressor

    def regress(x, y, x_test):
        found = []
        for level in KNOTS:
            booster = HistGradientBoostingRegressor(loss="quantile", quantile=level, random_state=options.seed)
            found.append(with_target_means(booster, x).fit(x, y).predict(x_test))
        return _from_knots(np.stack(found, axis=1), y)

    return _on_categories(regress)


def xgboost(options: Options, table: MixedTable) -> Callable:
    from xgboost import XGBClassifier, XGBRegressor

    common: dict[str, Any] = {"enable_categorical": True, "n_jobs": options.threads, "random_state": options.seed}

    def classify(x, y, x_test):
        return XGBClassifier(**common).fit(x, y).predict_proba(x_test)

    def regress(x, y, x_test):
        model = XGBRegressor(objective="reg:quantileerror", quantile_alpha=LEVELS, **common)
        values = model.fit(x, y).predict(x_test).astype(np.float64)
        return Quantiles(values=values, resolution=scores.resolution(y), mean=values.mean(axis=1))

    return _on_categories(regress if table.is_regression else classify)


def ngboost(options: Options, table: MixedTable) -> Callable:
    from ngboost import NGBClassifier, NGBRegressor
    from ngboost.distns import k_categorical

    settings: dict[str, Any] = {"random_state": options.seed, "verbose": False}

    def classify(x, y, x_test):
        encoder = one_hot(x).fit(x)
        kind = k_categorical(int(y.max()) + 1)  # its default knows two classes
        model = NGBClassifier(Dist=kind, **settings).fit(encoder.transform(x), y)
        return model.predict_proba(encoder.transform(x_test))

    def regress(x, y, x_test):
        encoder = one_hot(x).fit(x)
        found = NGBRegressor(**settings).fit(encoder.transform(x), y).pred_dist(encoder.transform(x_test)).params
        return Normal(mean=found["loc"], std=found["scale"])

    return regress if table.is_regression else classify


def _on_categories(fit_and_predict: Callable) -> Callable:
    """Give texts as the categories of pandas, those of the training rows."""

    def run(x: pd.DataFrame, y: np.ndarray, x_test: pd.DataFrame) -> Any:
        x, x_test = as_categories(x, x_test)
        return fit_and_predict(x, y, x_test)

    return run


def _from_knots(values: np.ndarray, y: np.ndarray) -> Quantiles:
    """Return the distribution that is linear between the quantiles at `KNOTS`; its point is the mean of all 99."""
    ordered = np.sort(values, axis=1)
    all_levels = np.stack([np.interp(LEVELS, KNOTS, row) for row in ordered])
    return Quantiles(values=all_levels, resolution=scores.resolution(y), mean=all_levels.mean(axis=1))


METHODS = {
    "catboost": catboost,
    "catboost-quantile": catboost_quantile,
    "hist-gradient-boosting": hist_gradient_boosting,
    "hist-gradient-boosting-quantile": hist_gradient_boosting_quantile,
    "xgboost": xgboost,
    "ngboost": ngboost,
}

if __name__ == "__main__":
    main()
