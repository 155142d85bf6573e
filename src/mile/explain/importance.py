"""How much worse unseen rows are predicted when a column is shuffled."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import norm

from mile.explain._columns import ColumnTable
from mile.explain._thinned import ThinnedFit, resampled
from mile.likelihoods.base import PerDraw

LEVEL = 0.9  # of the intervals
_FALSE_ALARM = 0.05  # probability that any column of a table of noise is called important
_RESAMPLES = 50  # of the draws


class JudgedRows(NamedTuple):
    """Rows and the fit that may judge them: one that has not seen them."""

    fit: ThinnedFit
    rows: Int[np.ndarray, " chosen"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Importance:
    """What shuffling each column costs, in log density per row (nats).

    Attributes
    ----------
    names
        Of the columns.
    loss
        Mean log density of the rows as they are, less that with the column shuffled.
    standard_error
        Over rows, repeats of the shuffling, and draws.
    lppd
        Mean log density of the rows as they are.
    n_rows
        How many rows that is of.
    is_observed
        Whether the log density is that of what was observed; if not, it is that of what the model itself predicts.
    """

    names: tuple[str, ...]
    loss: Float[np.ndarray, " column"]
    standard_error: Float[np.ndarray, " column"]
    lppd: float
    n_rows: int
    is_observed: bool = True

    @property
    def interval(self) -> Float[np.ndarray, "column 2"]:
        """Ends of the 90 % intervals."""
        reach = norm.ppf(0.5 + LEVEL / 2) * self.standard_error
        return np.stack([self.loss - reach, self.loss + reach], axis=1)

    @property
    def important(self) -> Bool[np.ndarray, " column"]:
        """Columns that matter beyond chance: in a table of noise any is named with a probability of 5 % at most."""
        return self.loss > norm.ppf(1.0 - _FALSE_ALARM / len(self.names)) * self.standard_error

    @property
    def order(self) -> Int[np.ndarray, " column"]:
        """Places of the columns, the most important first."""
        return np.argsort(-self.loss, kind="stable")

    def frame(self) -> dict[str, np.ndarray]:
        """Return a table of the columns, the most important first."""
        order, (lower, upper) = self.order, self.interval.T
        found = {"column": np.array(self.names, object), "loss": self.loss, "lower_90": lower, "upper_90": upper}
        found |= {"standard_error": self.standard_error, "important": self.important}
        return {name: values[order] for name, values in found.items()}


def permutation_importance(
    judged: Sequence[JudgedRows],
    table: ColumnTable,
    y: np.ndarray,
    *,
    weight: Float[np.ndarray, " row"] | None = None,
    n_repeats: int = 5,
    rng: np.random.Generator,
    advance: Callable[[int], None] = lambda amount: None,
    is_observed: bool = True,
) -> Importance:
    """Shuffle each column among all rows and return what that costs.

    Parameters
    ----------
    judged
        All rows of the table, in parts, each with a fit that has not seen them.
    table
        The rows.
    y
        What was observed.
    weight
        How many times each row counts.
    n_repeats
        How often each column is shuffled.
    rng
        Source of randomness.
    advance
        Is told of each column and part that is done.
    is_observed
        Whether y was observed.
    """
    n_rows, n_columns = len(table), len(table.columns)
    share = np.full(n_rows, 1.0 / n_rows) if weight is None else weight / weight.sum(dtype=np.float64)
    shuffled = [[rng.permutation(n_rows) for _ in range(n_repeats)] for _ in table.columns]
    loss, lppd = np.empty((n_columns, n_rows)), 0.0
    by_draws = np.zeros((n_columns, _RESAMPLES))
    for fit, rows in judged:
        x, observed = table.x[rows], y[rows]
        base = fit.log_prob_per_draw(x, observed)
        weights = fit.weights(x)
        resamples = resampled(weights, len(base), fit.draws_of_chain, _RESAMPLES, rng)
        known, known_resampled = weights.log_mean_exp(base), _log_means(resamples, base)
        lppd += float(share[rows] @ known)
        for place, column in enumerate(table.columns):
            change, change_resampled = np.zeros(len(rows)), np.zeros((_RESAMPLES, len(rows)))
            for donors in shuffled[place]:
                changed = x.copy()
                changed[:, column.features] = table.x[np.ix_(donors[rows], column.features)]
                per_draw = fit.log_prob_per_draw(changed, observed)
                change += (known - weights.log_mean_exp(per_draw)) / n_repeats
                change_resampled += (known_resampled - _log_means(resamples, per_draw)) / n_repeats
            loss[place, rows] = change
            by_draws[place] += change_resampled @ share[rows]
            advance(1)
    mean = loss @ share
    of_rows = np.square(loss - mean[:, None]) @ np.square(share) * n_rows / max(n_rows - 1, 1)
    error = np.sqrt(of_rows + by_draws.var(axis=1))
    return Importance(
        names=table.names, loss=mean, standard_error=error, lppd=lppd, n_rows=n_rows, is_observed=is_observed
    )


def _log_means(weights: Float[np.ndarray, "time draw"], log_density: PerDraw) -> Float[np.ndarray, "time row"]:
    """Return the log density of mixtures of the same draws under several weights."""
    largest = log_density.max(axis=0)
    return largest + np.log(weights @ np.exp(log_density - largest))
