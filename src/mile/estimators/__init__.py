"""The scikit-learn face: MileRegressor and MileClassifier."""

from mile.estimators._classifier import MileClassifier
from mile.estimators._regressor import MileRegressor
from mile.estimators._restore import restore_estimator

__all__ = ["MileClassifier", "MileRegressor", "restore_estimator"]
