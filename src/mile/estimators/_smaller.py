"""What a fitted estimator gives for places where 12,000 draws are too many: fewer draws, or a few trained networks."""

from abc import abstractmethod
from copy import copy
from typing import Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from mile.estimators._arguments import AbstractArguments
from mile.features.accepted import InputLike, ResponseLike
from mile.features.base import Encoded
from mile.fitting.compression import Compression, compress_fit
from mile.fitting.distillation import LOSS, Distillation, distill_fit
from mile.fitting.result import Fit


class AbstractModelToShrink(AbstractArguments):
    """An estimator that is fitted, and its smaller copies."""

    fit_: Fit
    compression_: Compression  # of a model that `compress` made
    distillation_: Distillation  # of one that `distill` made

    @abstractmethod
    def _encoded(self, X: InputLike) -> Encoded:
        """Return rows to predict as the network takes them."""

    def compress(
        self,
        X: InputLike,
        y: ResponseLike | None = None,
        *,
        n_draws: int | None = None,
        loss: float | None = None,
        random_state: int = 0,
    ) -> Self:
        """Return a smaller fitted model, by few draws that predict as all of them do together.

        The draws are chosen by what they predict, on given rows and between them. This model stays as it is. The
        smaller one has `compression_`, which says what it loses, and neither diagnostics of chains nor out-of-fold
        predictions: take both from this one. docs/serving.md has what to expect.

        Parameters
        ----------
        X, y
            Rows like those to predict, best those of the fit. With their y the loss in LPPD is also observed: on the
            rows of the fit by the draws of chains that left them out, where it has folds.
        n_draws
            How many draws to keep; None: 128, or as few as `loss` allows.
        loss
            Largest expected loss of LPPD per row, such as 0.005, instead of a number of draws.
        random_state
            Seed of the choice.

        Raises
        ------
        ValueError
            If both `n_draws` and `loss` are given, or there are not so many draws.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from mile import MileRegressor
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = MileRegressor(preset="quick", n_chains=2, random_state=0).fit(X, y)
        >>> small = model.compress(X, y, n_draws=20)
        >>> small.compression_.n_draws, small.compression_.of_draws
        (20, 400)
        """
        check_is_fitted(self)
        smaller = copy(self)
        smaller.fit_, smaller.compression_ = compress_fit(
            self.fit_,
            self._encoded(X),
            None if y is None else np.asarray(y),
            n_draws=n_draws,
            loss=loss,
            random_state=random_state,
        )
        return smaller

    def distill(
        self,
        X: InputLike,
        y: ResponseLike | None = None,
        *,
        width: int | None = None,
        n_networks: int | None = None,
        loss: float | None = LOSS,
        random_state: int = 0,
    ) -> Self:
        """Return a student: a few networks, trained to predict together as all draws do.

        Each network is one component of the predictive distribution, so that the student has the methods of this model,
        keeps noise and ignorance apart, and is saved, loaded and exported like it. It is trained on given rows, between
        and beyond them. `distillation_` says what it loses, on rows that a student of the same kind was not taught. It
        has neither diagnostics of chains nor out-of-fold predictions: take both from this model. docs/distill.md has
        what to expect.

        Parameters
        ----------
        X, y
            Rows like those to predict, best those of the fit. With the rows of the fit and their y the loss is measured
            on rows that neither the student nor the draws that it imitates have seen, where the fit has folds.
        width
            Units of each hidden layer; None: as in this model, from whose draws the networks then begin.
        n_networks
            How many networks; None: 24.
        loss
            Largest loss of LPPD per row. Where the student loses more, a model of as few draws as keep to it is
            returned instead, with a warning that says so. None: the student in any case.
        random_state
            Seed of rows and training.

        Raises
        ------
        ValueError
            If there are too few rows or draws, the network can have no other width, or no smaller model keeps to
            `loss`.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from mile import MileRegressor
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = MileRegressor(preset="quick", n_chains=2, random_state=0).fit(X, y)
        >>> student = model.distill(X, n_networks=8, loss=None)
        >>> student.distillation_.n_networks, student.distillation_.of_draws
        (8, 400)
        """
        check_is_fitted(self)
        student = copy(self)
        student.fit_, student.distillation_ = distill_fit(
            self.fit_,
            self._encoded(X),
            None if y is None else np.asarray(y),
            width=width,
            n_networks=n_networks,
            loss=loss,
            random_state=random_state,
        )
        return student
