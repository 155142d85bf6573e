"""Rows that a fit was trained on: how to know them again, and which of its draws have not seen them."""

from dataclasses import replace

import numpy as np

from mile.features.base import Encoded
from mile.fitting.result import Fit
from mile.fitting.weighing import within_fold

_CHECKED_ROWS = 48
# Nats, for the median row: rounding is far below. A category that is encoded by the mean response has another code for
# a training row than for a new one, which changes its density a little; rows of another table are whole nats away.
_SAME = 0.05


def are_training_rows(fit: Fit, x: Encoded, y: np.ndarray | None) -> bool:
    """Say whether encoded rows have the log densities that the fit keeps of its training rows."""
    unseen = fit.out_of_fold
    if unseen is None or y is None or len(x) <= unseen.number.max():
        return False
    chosen = np.linspace(0, len(unseen) - 1, min(len(unseen), _CHECKED_ROWS)).round().astype(int)
    rows, folds = unseen.number[chosen], unseen.fold[chosen]
    if not fit.response.usable(y[rows]).all():
        return False
    distance = np.full(len(chosen), np.inf)
    for fold in np.unique(folds).tolist():
        place = int(np.flatnonzero(fit.ok & (np.arange(len(fit.ok)) % unseen.n_folds == fold))[0])
        here = np.flatnonzero(folds == fold)
        found = fit.for_encoded.predictive(x[rows[here]], chains=[place]).log_prob(y[rows[here]])
        distance[here] = np.abs(found - unseen.chain_log_density[place // unseen.n_folds, chosen[here]])
    return bool(np.median(distance) < _SAME)


def left_out(fit: Fit, fold: int, n_folds: int) -> Fit:
    """Return the fit by those chains, and members, that left a fold out."""
    equal = np.concatenate([fit.ok / fit.ok.sum(), np.zeros(len(fit.ok))])
    weights = equal if fit.weights is None else fit.weights
    return replace(fit, weights=within_fold(weights, fold, fit.ok, n_folds))
