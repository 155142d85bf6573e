"""The estimators' common fit: from what users pass to a learning task, a network, and the fitted ensemble."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Self, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils import Tags

from mile._progress import Progress, show_progress
from mile.data import Dataset, prepare
from mile.ensemble.training import Training
from mile.estimators._arguments import Configuration
from mile.estimators._continuing import Previous
from mile.estimators._foldings import Labels, check_folding, choose_folds
from mile.estimators._growing import AbstractGrowingModel
from mile.estimators._inputs import check_features, check_training_data, check_training_images, refuse_infinite
from mile.estimators._likelihoods import settle_likelihood
from mile.estimators._networks import default_network
from mile.estimators._responses import split_missing, unmasked
from mile.estimators._tables import check_table, check_training_table, plain_rows, table_of
from mile.estimators._task import (
    CheckedRows,
    LearningTask,
    check_weights,
    choose_encoder,
    choose_likelihood,
    is_left_open,
    take_rows,
)
from mile.execution import Backend
from mile.features.accepted import InputLike, ResponseLike, WeightsLike
from mile.features.base import Table, as_array
from mile.features.exposure import WithExposure, joined, with_exposure, without_exposure
from mile.features.frame import Frame
from mile.features.numbers import Standardizer
from mile.features.pixels import PixelScale, check_images, is_images
from mile.features.table import TableEncoder
from mile.fitting.forecast import Forecast, forecast_fit
from mile.fitting.job import plan
from mile.fitting.running import run_job
from mile.likelihoods.independent import for_outputs
from mile.likelihoods.limits import censored as as_censored
from mile.likelihoods.limits import has_limits, limits_of
from mile.likelihoods.outputs import names_of
from mile.networks.base import Network
from mile.networks.offset import Offset
from mile.samplers import budgets_of
from mile.sampling.chains import seed_for

_FOLDS_OF_A_CHOICE = 6  # of a likelihood, where none rotate in the fit
_LEAST_SECONDS = 1.0  # of a time limit, left for the fit when preparing the rows has taken the rest


class AbstractMileEstimator(AbstractGrowingModel):
    """Fit an ensemble to rows."""

    def fit(
        self,
        X: InputLike,
        y: ResponseLike,
        sample_weight: WeightsLike | None = None,
        *,
        groups: Labels | None = None,
        order: Labels | None = None,
        censored: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
    ) -> Self:
        """Fit the ensemble.

        Parameters
        ----------
        X
            Table of shape (rows, features): an array of numbers, or a frame, a mapping of names to columns, an array
            of objects or a sparse matrix whose columns are numbers, texts, categories, dates or true and false, with
            cells missing. Or images of shape (images, height, width) or (images, height, width, channels) for a
            `network` that takes them, numeric and finite.
        y
            Shape (rows,): numbers, or for a classifier labels of any kind, at least two different ones. Rows without
            one are left out, with a warning. Or for a regressor survival times, as a structured array of
            (boolean event, time) that scikit-survival has, or what `mile.censored` returns. Or for a regressor several
            numbers to predict together, shape (rows, outputs): rows that lack one of them are left out.
        sample_weight
            How many times each row counts, shape (rows,): it multiplies the row's log likelihood, so a weight of 2
            equals the row twice, and a weight of 0 leaves it out. None: each row counts once.
        groups
            A label of any kind for each row. Rows with the same one stay in one fold, so that scores are those of new
            groups: customers, say, or patients.
        order
            A number or date for each row. Folds are then stretches of time.
        censored
            Which entries of y are limits: "none", "right" (the value is larger) or "left" for each row, or the upper
            ends of intervals whose lower ends are y. The same as passing `mile.censored(y, censored)` for y.
        exposure
            For counts, a positive number for each row that the mean is proportional to, such as days at risk. Then
            predictions need one too. The same as passing `mile.with_exposure(X, exposure)` for X.

        Returns
        -------
        MileRegressor or MileClassifier
            This estimator, fitted.

        Raises
        ------
        ValueError
            If an argument or the data cannot be used; nothing has been trained then.
        FitFailedError
            If every chain failed.
        """
        name, self.event_name_, self.exposure_name_ = getattr(y, "name", None), None, None
        y = y if censored is None else as_censored(y, censored)
        X = X if exposure is None else with_exposure(X, exposure)
        return self._fit_named(X, y, None, name, sample_weight, groups, order)

    def fit_columns(
        self,
        X: InputLike,
        y: ResponseLike,
        columns: Sequence[str],
        target: str | None = None,
        sample_weight: WeightsLike | None = None,
        *,
        event: str | None = None,
        exposure: str | None = None,
        groups: Labels | None = None,
        order: Labels | None = None,
    ) -> Self:
        """Fit an array whose columns have names, as they come from a file; files keep the names.

        Parameters
        ----------
        X, y, sample_weight, groups, order
            As in `fit`; X may also be a mapping of these names to columns.
        columns
            One name per column of X.
        target
            Name of y.
        event
            Name of the column that says which times are censored.
        exposure
            Name of the column that X was given with by `mile.with_exposure`.
        """
        rows = without_exposure(X)[0]
        n_columns = len(rows) if isinstance(rows, Mapping) else np.shape(np.asarray(rows))[1]
        if len(columns) != n_columns:
            raise ValueError(f"columns must be one name for each of the {n_columns} columns; got {len(columns)}.")
        self.event_name_, self.exposure_name_ = event, exposure
        return self._fit_named(X, y, columns, target, sample_weight, groups, order)

    def forecast(self, X: InputLike, y: ResponseLike) -> Forecast:
        """Say what `fit` would take in time, memory and disk, after timing a few epochs and steps; fits nothing."""
        self._configuration()
        self._backend()
        fresh = cast(Self, clone(self))
        task = fresh._prepare(X, y, None)
        configuration, dataset = self._configuration(len(task.x)), self._dataset(task, 0)
        network = fresh._untrained_network(task, dataset, configuration["training"])
        return forecast_fit(dataset, network, task.likelihood, **configuration)

    def _fit_named(
        self,
        X: InputLike,
        y: ResponseLike,
        columns: Sequence[str] | None,
        target: object,
        sample_weight: WeightsLike | None,
        groups: Labels | None = None,
        order: Labels | None = None,
    ) -> Self:
        self._configuration()
        backend = self._backend()
        names = names_of(y, target)
        task = self._prepare(X, y, sample_weight, groups, order, names)
        configuration = self._configuration(len(task.x))
        if columns is not None:
            self.feature_names_in_ = np.array([str(name) for name in columns], object)
        self.target_name_ = target if isinstance(target, str) else ",".join(names) or None
        self._fit(task, configuration, backend)
        return self

    def _prepare(
        self,
        X: InputLike,
        y: ResponseLike,
        sample_weight: WeightsLike | None,
        groups: Labels | None = None,
        order: Labels | None = None,
        names: tuple[str, ...] = (),
    ) -> LearningTask:
        """Check the data and return what is to be learned, without rows of weight zero."""
        y = limits_of(y) if has_limits(y) else y
        X, exposure = without_exposure(X)
        family = choose_likelihood(self.likelihood, self._usual(0).likelihood, self._task, y).family
        x, response, usual, known = self._checked(X, y, numeric=family.is_numeric and not has_limits(y))
        if exposure is not None:
            x = joined(x, exposure)
        sample_weight = check_weights(sample_weight, x)
        folding = check_folding(groups, order, len(x), may_rotate=self._folds(len(x)) > 0)
        number = np.arange(len(x)) if known is None else known
        if known is not None:
            x, response = take_rows(x, known), response[known]
            sample_weight = None if sample_weight is None else sample_weight[known]
            folding = folding.take(known)
        weight = self._row_weights(sample_weight, x, response)
        counted = np.arange(len(x)) if weight is None else np.flatnonzero(weight > 0)
        if len(counted) < len(x):
            x, response, number = take_rows(x, counted), response[counted], number[counted]
            weight, folding = None if weight is None else weight[counted], folding.take(counted)
        chosen = choose_likelihood(self.likelihood, self._usual(len(x)).likelihood, self._task, response)
        given = for_outputs(chosen.family, chosen.given, response, names) or chosen.given
        response = (given or chosen.family).check(response)
        likelihood = given or chosen.family.for_response(response)
        encoder = choose_encoder(self.encoder, usual)
        if exposure is not None:
            likelihood, encoder = likelihood.with_exposure(), WithExposure(encoder)
        return LearningTask(x, response, likelihood, encoder, weight, number, folding)

    def _checked(self, X: InputLike, y: ResponseLike, *, numeric: bool) -> CheckedRows:
        """Return rows, response, and the default encoder for such rows."""
        X = unmasked(X)
        y, known = split_missing(y)
        if is_images(X):
            return CheckedRows(*check_training_images(self, X, y, numeric=numeric), PixelScale(), known)
        table = self._table(X)
        if table is None:
            return CheckedRows(*check_training_data(self, X, y, numeric=numeric), Standardizer(), known)
        # The paper standardizes.
        squash, pieces = "none" if self.preset == "paper" else "smooth", self._usual(len(table)).pieces
        encoder = TableEncoder(kinds=self.columns or {}, squash=squash, pieces=pieces)
        return CheckedRows(*check_training_table(self, table, y, numeric=numeric), encoder, known)

    def _table(self, X: InputLike) -> Frame | None:
        """Return X as a table; None if it is an array of numbers, or is for an encoder that takes these only."""
        if not choose_encoder(self.encoder, TableEncoder()).takes_tables:
            return None
        return table_of(X, always=self.encoder is not None or bool(self.columns))

    def _features(self, X: InputLike) -> Table:
        X, exposure = without_exposure(X)
        return self.fit_.encoder.joined(self._checked_features(X), exposure)

    def _checked_features(self, X: InputLike) -> Table:
        X = unmasked(X)
        shape = self.fit_.network.input_shape
        if self.fit_.encoder.takes_tables:
            return check_table(self, X)
        if len(shape) == 1:
            plain = plain_rows(self, X)
            return check_features(self, X) if plain is None else refuse_infinite(self, plain)
        images = check_images(X, shape, self.fit_.encoder)
        return images.reshape(len(images), self.fit_.network.n_inputs)

    def _fit(self, task: LearningTask, configuration: Configuration, backend: Backend) -> None:
        previous = self._previous if self.warm_start else None
        is_again = previous is not None and self.random_state is None
        seed = previous.job.seed if previous and is_again else seed_for(self.run_dir, self.random_state)
        began = time.perf_counter()
        with show_progress(self.verbose > 0) as progress:
            task = self._with_likelihood(task, configuration["training"], seed)
            dataset = self._dataset(task, seed)
            network = self._network(task, dataset, configuration["training"], seed, progress)
            spent = time.perf_counter() - began
            asked = plan(dataset, network, task.likelihood, seed=seed, **configuration)
            job, memory = self._warmed(asked, previous)
            self.fit_ = run_job(
                job,
                backend,
                time_limit=_time_left(self.time_limit, spent),
                progress=progress,
                run_dir=self.run_dir,
                store_data=self.store_data,
                origin=self._origin(seed),
                memory=memory,
            )
        self.fit_seconds_ = time.perf_counter() - began
        # Only the sampler that ran says how far its chains are.
        self._previous = Previous(replace(job, sampler=asked.sampler), self.fit_, memory) if self.warm_start else None
        self._asked_steps = budgets_of(job.sampler).get("sampling_steps", 0)

    def _with_likelihood(self, task: LearningTask, training: Training, seed: int) -> LearningTask:
        """Return the task with the likelihood that the rows decide, if that is left to them."""
        self.likelihood_choice_ = None
        if not is_left_open(self.likelihood):
            return task
        chosen = settle_likelihood(
            task,
            lambda: self._dataset(task, seed, fewest_folds=_FOLDS_OF_A_CHOICE),
            lambda task, dataset: self._network(task, dataset, training, seed, None),
            training,
            seed=seed,
            run_dir=self.run_dir,
            time_limit=self.time_limit,
            n_threads=self.n_threads,
        )
        self.likelihood_choice_ = chosen.choice
        return task._replace(likelihood=chosen.likelihood)

    def _dataset(self, task: LearningTask, seed: int, fewest_folds: int = 0) -> Dataset:
        x = np.reshape(as_array(task.x), (len(task.x), -1)) if len(task.shape) > 1 else task.x
        n_rows, folding = len(task.x), task.folding
        wanted = max(self._folds(n_rows), fewest_folds)
        if self.warm_start and self._previous is not None and self.n_folds is None:
            wanted = self._previous.kept_folds(wanted)
        n_folds = choose_folds(wanted, n_rows, folding, is_asked=self.n_folds is not None)
        return prepare(
            x,
            task.y,
            task.likelihood,
            task.encoder,
            # Rows at random could be of a group that is in training, or later than it.
            validation_fraction=0.0 if folding.is_given else self.validation_fraction,
            seed=seed,
            weight=task.weight,
            number=task.number,
            n_folds=n_folds or None,
            groups=folding.groups,
            order=folding.order,
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        accepted = tags.input_tags
        accepted.allow_nan = accepted.string = accepted.categorical = accepted.sparse = True
        return tags

    def _network(
        self, task: LearningTask, dataset: Dataset, training: Training, seed: int, progress: Progress | None
    ) -> Network:
        """Return the network for encoded rows."""
        shape = task.shape if len(task.shape) > 1 else (dataset.n_features,)
        n_offsets = task.likelihood.n_offsets
        shape, n_outputs = (*shape[:-1], shape[-1] - n_offsets), task.likelihood.n_outputs - n_offsets
        if self.network is None:
            n_rows = len(task.x)
            usual = self._usual(n_rows).of_encoded(task.encoder.takes_tables)
            network = default_network(shape, n_outputs, n_rows, self.hidden_layer_sizes, self.activation, usual)
        else:
            network = self._template().sized(shape, n_outputs)
        return Offset(network=network) if n_offsets else network

    def _untrained_network(self, task: LearningTask, dataset: Dataset, training: Training) -> Network:
        """Return a network of the right size to measure time with."""
        return self._network(task, dataset, training, 0, None)


def _time_left(limit: float | None, spent: float) -> float | None:
    return None if limit is None else max(limit - spent, min(limit, _LEAST_SECONDS))
