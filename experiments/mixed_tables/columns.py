"""What each peer needs of the columns: texts as categories of pandas, as texts without gaps, or one-hot."""

from typing import Any

import numpy as np
import pandas as pd
from tables import MixedTable

MOST_NATIVE = 255  # levels of a category that HistGradientBoosting takes
# Indicators of a column; the other levels share one. NGBoost takes no sparse matrix, and 4,000 numbers of planes would
# take it hours.
MOST_INDICATORS = 30
_MISSING = "missing"

Frames = tuple[pd.DataFrame, pd.DataFrame]


def as_numbers(x: pd.DataFrame, x_test: pd.DataFrame, table: MixedTable) -> Frames:
    """Leave out texts that differ in every training row, as anybody would, and turn time stamps into days.

    MILE gets neither of these favors: it finds out by itself.
    """
    names = [name for name in text_columns(x) if name not in table.dates and x[name].nunique() == len(x)]
    return _with_days(x.drop(columns=names), table), _with_days(x_test.drop(columns=names), table)


def as_categories(x: pd.DataFrame, x_test: pd.DataFrame) -> Frames:
    """Return texts as categories; one that no training row has is missing."""
    levels = {name: sorted(x[name].dropna().unique()) for name in text_columns(x)}
    known = x_test.assign(**{name: x_test[name].where(x_test[name].isin(found)) for name, found in levels.items()})
    kinds = {name: pd.CategoricalDtype(found) for name, found in levels.items()}
    return x.astype(kinds), known.astype(kinds)


def as_texts(x: pd.DataFrame, x_test: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """Return texts in which a word stands for a gap, and the names of their columns."""
    names = text_columns(x)
    filled = [frame.assign(**{name: _filled(frame[name]) for name in names}) for frame in (x, x_test)]
    return filled[0], filled[1], names


def with_target_means(booster: Any, x: pd.DataFrame) -> Any:
    """Return a pipeline that gives categories of too many levels as means of the target, cross-fitted."""
    from sklearn.base import is_regressor
    from sklearn.compose import make_column_transformer
    from sklearn.model_selection import KFold, StratifiedKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import TargetEncoder

    many = [name for name in x if x[name].dtype == "category" and len(x[name].cat.categories) > MOST_NATIVE]
    if not many:
        return booster
    # Whole numbers would be taken for classes. The folds are its defaults, with a seed.
    kind, folds = ("continuous", KFold) if is_regressor(booster) else ("binary", StratifiedKFold)
    means = TargetEncoder(target_type=kind, cv=folds(5, shuffle=True, random_state=booster.random_state))
    encoder = make_column_transformer((means, many), remainder="passthrough")
    return make_pipeline(encoder.set_output(transform="pandas"), booster)


def one_hot(x: pd.DataFrame) -> Any:
    """Return a transformer to indicators of texts and numbers without gaps."""
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder

    indicators = OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=MOST_INDICATORS, sparse_output=False
    )
    return make_column_transformer((indicators, text_columns(x)), remainder=SimpleImputer(strategy="median"))


def text_columns(x: pd.DataFrame) -> list[str]:
    """Return the names of the columns that are not numbers."""
    return [name for name in x if not pd.api.types.is_numeric_dtype(x[name])]


def _filled(column: pd.Series) -> pd.Series:
    return column.astype(object).where(column.notna(), _MISSING)


def _with_days(x: pd.DataFrame, table: MixedTable) -> pd.DataFrame:
    seconds = {name: pd.to_datetime(x[name], utc=True) for name in table.dates}
    start = pd.Timestamp("1970-01-01", tz="UTC")
    return x.assign(**{name: np.asarray((when - start).dt.total_seconds()) / 86_400 for name, when in seconds.items()})
