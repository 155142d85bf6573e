"""The scikit-learn face: MileRegressor, MileClassifier and MileTextClassifier."""

from mile.estimators._classifier import MileClassifier
from mile.estimators._regressor import MileRegressor
from mile.estimators._restore import restore_estimator
from mile.estimators._task import encode_rows
from mile.estimators._text import MileTextClassifier

# By the task that scikit-learn calls it.
ESTIMATORS = {kind._task: kind for kind in (MileRegressor, MileClassifier)}

__all__ = ["ESTIMATORS", "MileClassifier", "MileRegressor", "MileTextClassifier", "encode_rows", "restore_estimator"]
