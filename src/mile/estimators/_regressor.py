"""Regression."""

from typing import cast

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from mile import metrics
from mile._checks import check_flag
from mile.estimators._survival import AbstractSurvivalModel
from mile.estimators._task import check_weights
from mile.features.accepted import InputLike, ResponseLike, WeightsLike
from mile.features.exposure import with_exposure
from mile.fitting.conformal import conformal_interval
from mile.likelihoods import Predictive
from mile.predict import DEFAULT_MEMORY


class MileRegressor(RegressorMixin, AbstractSurvivalModel):
    """Regression with calibrated uncertainty from a Microcanonical Langevin Ensemble.

    A network with two outputs, location and log scale, gives each row its own noise level. K such networks
    are trained, one chain samples the weights around each, and all kept draws predict together. X and y are
    standardized inside, and every output is on the scale of y.

    Parameters
    ----------
    hidden_layer_sizes
        Widths of the hidden layers; None takes the preset's: two layers of 16, except for "paper" three from 1,000 rows
        on, and for "default" three of 32 from 5,000 rows on.
    activation
        "relu", "tanh", "gelu", "silu" or "sigmoid"; None takes the preset's, "gelu", or "relu" for "paper".
    n_chains
        Ensemble members and chains.
    preset
        "default", "paper" (network and steps of the paper), "quick" (a tenth of the paper's steps), "accurate" (smaller
        steps, four times as many as the paper) or "exact", the same as `sampler="adjusted"`. Each decides also what
        `prior`, `likelihood`, `n_folds` and `stacking` are where they are None; with `network` these are the paper's.
    warmup_steps, sampling_steps, n_draws
        Budgets per chain; None takes the preset's.
    prior
        None takes the preset's: "hierarchical", or "normal" for "paper". Names are "normal", "laplace", "student_t" (3
        degrees of freedom), "fan_in" (normal, narrower where a layer has many inputs) and "hierarchical" (learns a
        scale for each layer); objects are such as `StudentT(df=5.0)`, `FanIn(family=Laplace())`,
        `PerLayer(scales=(1.0, 0.5, 0.5))`, `Hierarchical(groups="input")`.
    prior_scale
        Scale of the prior that `prior` names, on all weights and biases. It is the standard deviation of "normal";
        that of "laplace" is sqrt(2) times as large, that of "student_t" sqrt(3) times. For "fan_in" it multiplies the
        scales sqrt(2 / fan_in) of weights and 1 of biases; for "hierarchical" it is where the scales of weights are
        expected, and biases keep 1. A prior object has its own scale, and this must be 1.
    temperature
        The chains sample the posterior to the power 1 / temperature, so below 1 it is narrower. The ensemble stays.
        Above 1 the preset's prior is "normal".
    learning_rate, weight_decay, batch_size, max_epochs, patience
        Training of the ensemble by AdamW; the learning rate is also the sampler's first step size. What is None is the
        preset's: for "paper" 0.001, 0.001, 32, 500 and 10, else a schedule of the learning rate that rises to 0.02 four
        times, over 200 epochs, fewer and in larger batches from 1,000 rows on. The weights of the best epoch are kept.
    validation_fraction
        Share of the rows that decides when training stops, where no folds rotate; under 20 rows there is none.
    n_folds
        Each chain leaves out one of so many folds of the rows, so that all rows are used, and each is predicted by
        chains that never saw it: `oof_`. 0 sets rows aside instead. None takes the preset's: twelve under 200 rows, six
        from there on, 0 for "paper", and fewer where there are fewer chains. Under two rows for each fold, rows are set
        aside.
    stacking
        How chains, and the networks that they start from, are weighed by the rows that they left out: "none" (all
        chains count the same), "ensemble" (all chains against all those networks) or "slots" (a slot has one chain for
        each fold). None takes the preset's; samplers other than "mile" and the preset "paper" weigh nothing.
    network
        None: a perceptron of `hidden_layer_sizes`. For images "lenet5" or "cnn_v1", or a `ConvNet(...)`. For anything a
        network of your own: a flax or equinox module, or a pair `(init, apply)`.
    likelihood
        Distribution of y given the network's outputs. None takes the preset's: normal with a noise level for each row
        that stays within sight of y, `Gaussian(link="bounded")`, or for "paper" the paper's, `Gaussian()`; so does
        "gaussian". "auto" recognizes counts, grades, amounts, shares and heavy tails in y, and takes a family that
        suits where short runs predict left-out rows clearly better by it. Or another name, such as
        "negative_binomial" for counts, or an object; `mile.likelihoods` has the contract for one of your own.
    encoder
        What turns X into numbers for the network: None standardizes arrays and frames of finite numbers, maps pixels
        to [0, 1], and takes a `TableEncoder` for all other tables. A name, or an object that follows the contract in
        `mile.features.base`.
    columns
        What columns of a table are where the rule shall not decide: a mapping of names to "number", "category",
        "boolean", "date", "text" or "ignore". docs/tables.md has the rule.
    sampler
        "mile", "adjusted" (without discretization error), "stochastic" (mini-batches), "auto" ("mile", or "stochastic"
        if the time limit asks for it), "deep_ensemble" (no sampling); for comparisons "nuts", "naive_mclmc",
        "split_hmc", "pgps"; or a sampler object such as `Mile(trust=2.0)`.
    run_dir
        Folder for draws and checkpoints, written while `fit` runs. Fitting again with the same data and arguments
        resumes a run that was stopped, and loads one that is finished. One folder serves one fit: leave it None in a
        search.
    store_data
        Whether the folder holds the prepared data too, so that `mile.resume` needs only the folder.
    time_limit
        Seconds that `fit` may take. Budgets that would take longer are cut, with a warning that says by how much.
    stop_when
        "flat": sampling ends when the last third of the draws has gained less than 0.002 in LPPD on rows that chains
        have not seen; `steps_saved_` says how much that saved. None: all steps are made.
    warm_start
        Whether another `fit` on the same rows adds to this one: with larger `n_draws` chains continue from their last
        states at the same spacing, with larger `n_chains` there are more of them. The draws are those of a fit that had
        asked for them from the start. Keeps the encoded rows in memory.
    backend, address
        Where the chains run. None or "threads": on the cores of this machine. "devices": on all devices of this
        process, such as several GPUs. "dask": on the cluster whose scheduler is at `address`, such as
        "tcp://scheduler:8786". Or an object of `mile.execution`. The draws have the same bits everywhere on one kind of
        machine.
    n_threads
        Cores to use on this machine; None takes all.
    random_state
        Seed; None draws one, which `seed_` then holds.
    verbose
        Above zero shows progress bars and forecasts.

    Attributes
    ----------
    chain_status_
        One word per chain; "ok" or what went wrong.
    tuned_
        Step size and L per chain.
    gradient_evaluations_
        Gradient evaluations per chain.
    columns_
        What each column of a table was taken for, and what became of it.
    likelihood_choice_
        What `likelihood="auto"` chose and why, in one line, with the table of what it compared; else None.
    oof_
        Out-of-fold scores with standard errors, and what they are made of, row by row.
    fit_
        The `Fit`: draws, ensemble, records.
    seed_
        The seed that reproduces this fit.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from mile import MileRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = MileRegressor(preset="quick", n_chains=2, random_state=0).fit(X, y)
    >>> model.predict_interval(X[:3], level=0.9).shape
    (3, 2)
    """

    _kind = "regressor"
    _task = "regression"

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def predictive(self, X: InputLike, memory: int = DEFAULT_MEMORY) -> Predictive:
        """Return the predictive distribution of each row.

        Parameters
        ----------
        X
            Rows as at fit.
        memory
            Bytes that intermediate results may take.
        """
        return cast(Predictive, super().predictive(X, memory))

    def predict(
        self, X: InputLike, return_std: bool = False, *, exposure: ArrayLike | None = None
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Return the predictive mean, with `return_std` also the standard deviation; (row, output) for several outputs.

        Where the distribution may have no mean, as those of survival times, it is the median. A model that was fitted
        with an `exposure` needs one for each row, or one for all; other methods take `mile.with_exposure(X, exposure)`.
        """
        predictive = self.predictive(_exposed(X, exposure))
        return (predictive.point, predictive.std) if return_std else predictive.point

    def __call__(self, X: InputLike) -> np.ndarray:
        """Return what `predict` does: `shap.Explainer(model, X)` explains functions."""
        return self.predictive(X).point

    def score(self, X: InputLike, y: ResponseLike, sample_weight: WeightsLike | None = None) -> float:
        """Return R squared of the predictions; of a response with limits, the concordance of the medians."""
        predictive = self.predictive(X)
        if "concordance" not in predictive.score_names:
            return super().score(X, y, sample_weight)
        timed = cast(metrics.ScoredTimes, predictive)
        return metrics.concordance(timed, np.asarray(y), check_weights(sample_weight, predictive.point))

    def predict_interval(
        self, X: InputLike, level: float = 0.9, *, conformal: bool = False, exposure: ArrayLike | None = None
    ) -> Float[np.ndarray, "row 2"]:
        """Return lower and upper end of the interval that holds y with probability `level`.

        Where y has several columns the shape is (row, output, 2), an interval for each output alone.

        Parameters
        ----------
        X
            Rows as at fit.
        level
            Such as 0.9.
        conformal
            False: the central interval of the predictive distribution, which is right if the model is. True: the CV+
            interval of the out-of-fold predictions (Barber et al. 2021), whatever the model is. For n training rows in
            K folds of one size, and a new row drawn as they were, it holds y with a probability of at least
            2 level - 1 - min(2 (1 - 1/K) / (n/K + 1), (1 - K/n) / (K + 1)), on average over training sets; in
            practice it is close to `level`. Sample weights change the model and not the guarantee, for which each
            row counts once. With `groups` or `order` rows are not exchangeable, and nothing is guaranteed.

        exposure
            What counts are proportional to, for a model that was fitted with an exposure.

        Raises
        ------
        ValueError
            If `conformal` is asked for and the model was fitted without folds.
        """
        X = _exposed(X, exposure)
        if not check_flag("conformal", conformal):
            return self.predictive(X).interval(level)
        check_is_fitted(self)
        return conformal_interval(self.fit_.for_encoded, self._encoded(X), level)

    def predict_quantiles(self, X: InputLike, q: ArrayLike = (0.05, 0.5, 0.95)) -> Float[np.ndarray, "row level"]:
        """Return the quantiles at levels `q`, one column each."""
        return self.predictive(X).quantile(np.atleast_1d(np.asarray(q, np.float64)))


def _exposed(X: InputLike, exposure: ArrayLike | None) -> InputLike:
    return X if exposure is None else with_exposure(X, exposure)
