"""Regression."""

from typing import cast

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin

from mile.estimators._base import AbstractMileEstimator
from mile.features.accepted import InputLike
from mile.likelihoods import Predictive
from mile.predict import DEFAULT_MEMORY


class MileRegressor(RegressorMixin, AbstractMileEstimator):
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
        steps, four times as many as the paper) or "exact", the same as `sampler="adjusted"`. "default" was chosen
        on validation rows of six tables, where it predicts better than "paper" in the same time; with `network` it is
        "paper".
    warmup_steps, sampling_steps, n_draws
        Budgets per chain; None takes the preset's.
    prior
        "normal", "laplace", "student_t" (3 degrees of freedom), "fan_in" (normal, narrower where a layer has many
        inputs), "hierarchical" (learns a scale for each layer), or an object such as `StudentT(df=5.0)`,
        `FanIn(family=Laplace())`, `PerLayer(scales=(1.0, 0.5, 0.5))`, `Hierarchical(groups="input")`.
    prior_scale
        Scale of the prior that `prior` names, on all weights and biases. It is the standard deviation of "normal";
        that of "laplace" is sqrt(2) times as large, that of "student_t" sqrt(3) times. For "fan_in" it multiplies the
        scales sqrt(2 / fan_in) of weights and 1 of biases; for "hierarchical" it is where the scales of weights are
        expected, and biases keep 1. A prior object has its own scale, and this must be 1.
    temperature
        The chains sample the posterior to the power 1 / temperature, so below 1 it is narrower. The ensemble stays.
    learning_rate, weight_decay, batch_size, max_epochs, patience
        Training of the ensemble by AdamW with early stopping; the learning rate is also the sampler's first
        step size.
    validation_fraction
        Share of the rows that decides when training stops; under 20 rows there is none.
    network
        None: a perceptron of `hidden_layer_sizes`. For images "lenet5" or "cnn_v1", or a `ConvNet(...)`. For anything a
        network of your own: a flax or equinox module, or a pair `(init, apply)`.
    likelihood
        Distribution of y given the network's outputs: a name such as "gaussian" (the default: normal with a noise level
        for each row), or an object. `mile.likelihoods` has the contract for one of your own.
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
    _likelihood = "gaussian"

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

    def predict(self, X: InputLike, return_std: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Return the predictive mean, and with `return_std` also the standard deviation."""
        predictive = self.predictive(X)
        return (predictive.mean, predictive.std) if return_std else predictive.mean

    def predict_interval(self, X: InputLike, level: float = 0.9) -> Float[np.ndarray, "row 2"]:
        """Return lower and upper end of the central interval that holds y with probability `level`."""
        return self.predictive(X).interval(level)

    def predict_quantiles(self, X: InputLike, q: ArrayLike = (0.05, 0.5, 0.95)) -> Float[np.ndarray, "row level"]:
        """Return the quantiles at levels `q`, one column each."""
        return self.predictive(X).quantile(np.atleast_1d(np.asarray(q, np.float64)))
