"""What a fitted estimator can be given more of: draws and chains by another fit, rows by `update`."""

import time
from pathlib import Path
from typing import Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from mile._progress import show_progress
from mile.estimators._continuing import Previous, continued, extend_folder
from mile.estimators._fitted import AbstractFittedModel
from mile.estimators._foldings import Labels
from mile.estimators._task import check_weights
from mile.estimators._updating import Earlier, earlier_in, no_rows, plan_new_rows, run_update
from mile.features.accepted import InputLike, ResponseLike, WeightsLike
from mile.features.base import Table
from mile.fitting.job import Job
from mile.fitting.updating import Moved
from mile.storage import Remembered


class AbstractGrowingModel(AbstractFittedModel):
    """An estimator that continues what it has fitted."""

    updated_: Moved  # by `update`
    _previous: Previous | None = None  # the fit that another one may add to

    def update(
        self,
        X: InputLike,
        y: ResponseLike,
        sample_weight: WeightsLike | None = None,
        *,
        groups: Labels | None = None,
        earlier_groups: Labels | None = None,
        order: Labels | None = None,
        earlier: str | Path | None = None,
        run_dir: str | Path | None = None,
    ) -> Self:
        """Add rows: the chains continue from their last draws on all rows, after a short tuning.

        Encodings of X and y stay, so that texts which the fit did not have count as rare ones. `updated_` says how far
        the rows have moved the posterior; a warning says when a fit from the start is due. docs/runs.md has what to
        expect.

        Parameters
        ----------
        X, y, sample_weight
            New rows, as for `fit`. Rows of the fit must be kept: in its `run_dir`, or in memory with `warm_start`.
        groups, order
            As for `fit`, of the new rows.
        earlier_groups
            The `groups` of all rows that the model was fitted on, so that new rows of these groups come into their
            folds.
        earlier
            Run directory of the fit; None: `run_dir` of this estimator.
        run_dir
            Another folder, for the run with all rows; None keeps no files.

        Raises
        ------
        ValueError
            If a row cannot be used, or the rows of the fit are not kept.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from mile import MileRegressor
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = MileRegressor(preset="quick", n_chains=3, random_state=0, warm_start=True).fit(X[:400], y[:400])
        >>> model.update(X[400:], y[400:]).updated_.n_new
        42
        """
        check_is_fitted(self)
        began = time.perf_counter()
        found = self._earlier(earlier)
        weight = (
            sample_weight
            if sample_weight is None
            else self._row_weights(sample_weight, self._features(X), np.asarray(y))
        )
        update = plan_new_rows(
            self.fit_,
            found,
            self._features(X),
            y,
            weight,
            groups=groups,
            earlier_groups=earlier_groups,
            order=order,
        )
        with show_progress(self.verbose > 0) as progress:
            self.fit_ = run_update(
                update,
                self._backend(),
                progress=progress,
                run_dir=run_dir,
                origin=self._origin(update.job.seed),
                time_limit=self.time_limit,
            )
        self.updated_, self.fit_seconds_ = update.moved, time.perf_counter() - began
        self._previous = Previous(update.job, self.fit_, None)
        return self

    def _earlier(self, folder: str | Path | None) -> Earlier:
        """Return the rows of the fit."""
        if folder is None and self._previous is not None:
            return Earlier(dataset=self._previous.job.dataset, stacking=self._previous.job.stacking)
        folder = self.run_dir if folder is None else folder
        if folder is None:
            raise no_rows()
        return earlier_in(Path(folder), self.fit_)

    def _warmed(self, asked: Job, previous: Previous | None) -> tuple[Job, Remembered | None]:
        """Return the job to do, and what is remembered of a fit that it adds to."""
        found = None if previous is None else continued(self, previous, asked)
        if previous is not None and found is not None:
            job, memory = found
            if self.run_dir is not None:
                extend_folder(Path(self.run_dir), job, previous, self._origin(asked.seed))
            return job, memory
        is_remembered = self.warm_start and self.run_dir is None
        return asked, Remembered() if is_remembered else None

    def _row_weights(self, sample_weight: WeightsLike | None, x: Table, y: np.ndarray) -> np.ndarray | None:
        """Return how many times each row counts; None: once."""
        return check_weights(sample_weight, x)
