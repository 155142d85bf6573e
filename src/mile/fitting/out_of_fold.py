"""Honest scores without rows set aside: each row is predicted by the chains that left it out."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from mile.data import Dataset, Rows
from mile.fitting.result import Fit
from mile.fitting.rotation import Rotation
from mile.fitting.unseen import Estimate, OutOfFold
from mile.fitting.weighing import LeftOut, weigh, within_fold

__all__ = ["Estimate", "OutOfFold", "predict_out_of_fold", "weigh_and_predict"]

_MOST_CELLS = 24_000_000  # draws x rows; more would take longer than the end of a fit may
_FEWEST_ROWS = 1_000
# The score takes the square of them: with sixty it is larger than with all by about a sixtieth of half the distance
# between two draws' predictions.
_CRPS_DRAWS = 60


class Weighed(NamedTuple):
    """Predictions of left-out rows, and the weights that they lead to."""

    out_of_fold: OutOfFold
    weights: Float[np.ndarray, " candidate"] | None  # None: all good chains count the same


def predict_out_of_fold(fit: Fit, dataset: Dataset, *, stacking: str = "none") -> OutOfFold:
    """Predict every training row by the good chains that left it out.

    Parameters
    ----------
    fit
        Of this data set.
    dataset
        With rotating folds.
    stacking
        How chains and members are weighed, one of `mile.fitting.weighing.STACKING`. Rows of a fold are scored under
        weights that the rows of the other folds lead to.

    Raises
    ------
    ValueError
        If the data set has no folds, or no good chain has left one of them out.
    """
    return weigh_and_predict(fit, dataset, stacking).out_of_fold


def weigh_and_predict(fit: Fit, dataset: Dataset, stacking: str) -> Weighed:
    """Do the same and return also the weights of all chains and members; see `predict_out_of_fold`."""
    if dataset.folds is None:
        raise ValueError("dataset has no folds, so every chain has seen every row: prepare it with n_folds=4, say.")
    rotation, encoded = Rotation.of(dataset.folds), fit.for_encoded
    places = [_left_out(fit.ok, rotation.n_folds, fold) for fold in range(rotation.n_folds)]
    for fold, of_fold in enumerate(places):
        if not len(of_fold):
            raise ValueError(f"no good chain has left out fold {fold}, so its rows have no honest prediction.")
    chosen = _rows_used(fit, len(dataset.train), max(map(len, places)))
    rows, folds = dataset.train, dataset.folds[chosen]
    x, y = rows.x[chosen], fit.response.decode(rows.y[chosen])
    n_slots = -(-len(fit.status) // rotation.n_folds)
    chains, members = np.full((2, n_slots, len(y)), np.nan)
    found = LeftOut(chains, members, folds, _counted(rows, chosen))
    for fold, of_fold in enumerate(places):
        unseen = np.flatnonzero(folds == fold)
        for place in of_fold.tolist():
            slot = place // rotation.n_folds
            found.chains[slot, unseen] = encoded.predictive(x[unseen], chains=[place]).log_prob(y[unseen])
            found.members[slot, unseen] = encoded.ensemble_predictive(x[unseen], chains=[place]).log_prob(y[unseen])
    few, parts = encoded.thinned(_few_draws(fit, max(map(len, places)))), {}
    for fold, of_fold in enumerate(places):
        unseen = np.flatnonzero(folds == fold)
        weights = weigh(stacking, found, fit.ok, rotation.n_folds, without_fold=fold)
        own = within_fold(weights, fold, fit.ok, rotation.n_folds)
        alike, members = (
            method(x[unseen], chains=of_fold.tolist()) for method in (encoded.predictive, encoded.ensemble_predictive)
        )
        model, quick = (replace(one, weights=own).predictive(x[unseen]) for one in (encoded, few))
        model = alike if stacking == "none" else model
        for kind, values in (
            ("score", model.row_scores(y[unseen], quick)),
            ("ensemble", members.row_scores(y[unseen])),
            ("value", alike.row_values(y[unseen])),
        ):
            for name, of_rows in values.items():
                parts.setdefault((kind, name), np.empty(len(y)))[unseen] = of_rows

    def named(wanted: str) -> dict[str, np.ndarray]:
        return {name: values for (kind, name), values in parts.items() if kind == wanted}

    out_of_fold = OutOfFold(
        number=rows.number[chosen],
        weight=found.weight,
        fold=folds,
        n_folds=rotation.n_folds,
        chain_log_density=found.chains,
        member_log_density=found.members,
        row_scores=named("score"),
        ensemble_scores=named("ensemble"),
        values=named("value"),
    )
    return Weighed(out_of_fold, None if stacking == "none" else weigh(stacking, found, fit.ok, rotation.n_folds))


def _left_out(ok: Bool[np.ndarray, " chain"], n_folds: int, fold: int) -> Int[np.ndarray, " place"]:
    """Return the places of the good chains that left a fold out."""
    return np.flatnonzero(ok & (np.arange(len(ok)) % n_folds == fold))


def _rows_used(fit: Fit, n_rows: int, n_chains: int) -> Int[np.ndarray, " row"]:
    """Return all rows, or an even selection of very many."""
    most = max(_FEWEST_ROWS, _MOST_CELLS // (n_chains * fit.chains.logdensity.shape[1]))
    return np.linspace(0, n_rows - 1, min(n_rows, most)).round().astype(int)


def _counted(rows: Rows, chosen: np.ndarray) -> np.ndarray:
    return np.asarray(rows.weight[chosen], np.float32)


def _few_draws(fit: Fit, n_chains: int) -> int:
    return max(1, min(fit.chains.logdensity.shape[1], _CRPS_DRAWS // n_chains))
