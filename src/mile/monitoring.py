"""What is watched while a fit runs and right after it: a running score, and noise that collapses to spikes."""

import warnings
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from mile._errors import FitWarning
from mile.data import Dataset
from mile.likelihoods import Categorical, Gaussian
from mile.posterior import Posterior
from mile.predict import ClassPredictive, Predictive

_SCORED_ROWS = 256  # validation rows of the running score
# When a response counts as discrete, and how narrow a predicted scale must be to count as a spike.
_SPIKE_LARGEST_SHARE = 0.1  # distinct values per row
_SPIKE_WIDTH = 0.1  # of the median gap between values
_SPIKE_SMALLEST_SHARE = 0.1  # of the predictions
_SPIKE_ROWS = 512


class RunningScore:
    """LPPD on validation rows of the newest draw of each chain at every block so far: a glimpse, not the result."""

    def __init__(self, network: Any, likelihood: Gaussian | Categorical, dataset: Dataset, good: np.ndarray) -> None:
        n_rows = min(len(dataset.y_valid), _SCORED_ROWS)
        rows = np.linspace(0, len(dataset.y_valid) - 1, n_rows).astype(int)
        self._network, self._likelihood, self._good = network, likelihood, good
        self._x, self._y, self._y_scale = dataset.x_valid[rows], dataset.y_valid[rows], dataset.y_scale
        self._total, self._count = np.full(n_rows, -np.inf), 0

    def __call__(self, positions: Float[np.ndarray, "chain d"]) -> str:
        """Take in one draw of each chain and say how well all so far predict."""
        draws = positions[self._good & np.isfinite(positions).all(axis=1)]
        if len(draws):
            y = self._y
            if isinstance(self._likelihood, Categorical):
                classes = np.arange(self._likelihood.n_classes)
                predictive = ClassPredictive(self._network, self._likelihood, draws, self._x, classes)
            else:
                y = self._y_scale.undo(y)
                predictive = Predictive(self._network, self._likelihood, draws, self._x, self._y_scale)
            self._total = np.logaddexp(self._total, predictive.log_prob(y) + np.log(len(draws)))
            self._count += len(draws)
        score = float(np.mean(self._total - np.log(max(self._count, 1))))
        return f"validation LPPD {score:.3f}"


def warn_of_spikes(draws: Any, ok: np.ndarray, posterior: Posterior, dataset: Dataset) -> None:
    """Warn when the predicted noise falls below the spacing of a response with few distinct values.

    The density of such a response can be driven up without limit by placing a spike on each value, so a high
    LPPD then says little.
    """
    y = dataset.y_train
    values = np.unique(y)
    if not 2 <= len(values) <= _SPIKE_LARGEST_SHARE * len(y):
        return
    outputs = np.asarray(_outputs(posterior, draws[ok, -1]))
    scales = np.exp(outputs[:, 1, : len(y)])
    spacing = float(np.median(np.diff(values)))
    share = float(np.mean(scales < _SPIKE_WIDTH * spacing))
    if share > _SPIKE_SMALLEST_SHARE:
        warnings.warn(
            f"y has only {len(values)} distinct values and for {share:.0%} of the predictions the noise is below a "
            "tenth of the gap between them: the model puts spikes on the values, and LPPD rewards that without "
            "limit. Judge the fit by RMSE and coverage, or use a classifier if the values are categories.",
            FitWarning,
            stacklevel=4,
        )


@jax.jit
def _outputs(posterior: Posterior, draws: Float[Array, "chain d"]) -> Float[Array, "chain output row"]:
    """Return what the networks say of the first rows."""
    x = posterior.rows.x[:, :_SPIKE_ROWS]
    return jax.vmap(lambda draw: posterior.network.apply(draw, x))(draws)
