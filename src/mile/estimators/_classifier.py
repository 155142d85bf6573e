"""Classification."""

from typing import Any, cast

import numpy as np
from jaxtyping import Float
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from mile.estimators._base import AbstractMileEstimator
from mile.estimators._problem import Problem
from mile.likelihoods import Categorical


class MileClassifier(ClassifierMixin, AbstractMileEstimator):
    """Classification with calibrated probabilities from a Microcanonical Langevin Ensemble.

    Arguments and attributes are those of `MileRegressor`; `classes_` holds the labels.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mile import MileClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MileClassifier(preset="quick", n_chains=2, random_state=0).fit(X, y)
    >>> model.predict_proba(X[:3]).shape
    (3, 3)
    """

    _kind = "classifier"

    def _prepare(self, X: Any, y: Any) -> Problem:
        x, y, learn = self._checked(X, y, numeric=False)
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"y must have at least 2 classes; it has only 1 class, {classes.tolist()[0]!r}.")
        return Problem(x, codes, Categorical(len(classes)), learn, classes)

    @property
    def classes_(self) -> np.ndarray:
        """The labels, sorted."""
        return cast(np.ndarray, self.fit_.classes)

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable label of each row."""
        return self.predictive(X).labels

    def predict_proba(self, X: Any) -> Float[np.ndarray, "row class"]:
        """Return the probability of each class, in the order of `classes_`."""
        return self.predictive(X).probs
