"""Weights of chains and of the members that they start from, by stacking on the rows that they left out."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import logsumexp

from mile.fitting.stacking import stack

# What the candidates are: nothing is weighed; all chains against the whole ensemble; the slots of both, where a slot
# is one chain, or one member, for each fold.
STACKING = ("none", "ensemble", "slots")
# On the inner splits of experiments/suite, slots with these two gained 0.004 to 0.007 per row over equal weights and
# lost at most 0.023; a tenth for the members, or a pull of a fifth of a row, lost up to 0.17 on the smallest tables.
MEMBERS_SHARE = 0.01  # of the prior weights that members have together: chains are favored where rows do not decide
_STRENGTH = 2.0  # of the pull, in rows for each candidate


class LeftOut(NamedTuple):
    """Log densities of rows under those that left them out, as `OutOfFold` has them."""

    chains: Float[np.ndarray, "slot row"]
    members: Float[np.ndarray, "slot row"]
    fold: Int[np.ndarray, " row"]
    weight: Float[np.ndarray, " row"]


def weigh(
    scheme: str, found: LeftOut, ok: Bool[np.ndarray, " chain"], n_folds: int, *, without_fold: int | None = None
) -> Float[np.ndarray, " candidate"]:
    """Return the weights of all chains and then of all members; they sum to one, and what failed has none.

    Parameters
    ----------
    scheme
        One of `STACKING`.
    found
        Log densities of rows.
    ok
        Which chains are good.
    n_folds
        That rotate.
    without_fold
        A fold whose rows shall not count, so that they can be scored under the weights.
    """
    if scheme == "none":
        return np.concatenate([ok / ok.sum(), np.zeros(len(ok))])
    rows = np.ones(len(found.fold), bool) if without_fold is None else found.fold != without_fold
    chains, members = found.chains[:, rows], found.members[:, rows]
    if scheme == "ensemble":
        chains, members = _together(chains)[None], _together(members)[None]
    n_slots = len(chains)
    prior = np.repeat([1.0 - MEMBERS_SHARE, MEMBERS_SHARE], n_slots) / n_slots
    weights = stack(np.concatenate([chains, members]), found.weight[rows], strength=_STRENGTH, prior=prior).weights
    slots = np.arange(len(ok)) // n_folds if scheme == "slots" else np.zeros(len(ok), int)
    return np.concatenate([_spread(part, slots, ok) for part in np.split(weights, 2)])


def within_fold(
    weights: Float[np.ndarray, " candidate"], fold: int, ok: Bool[np.ndarray, " chain"], n_folds: int
) -> Float[np.ndarray, " candidate"]:
    """Return the weights of those that left a fold out, renormalized; if none of them has any, its chains are equal."""
    left_out = ok & (np.arange(len(ok)) % n_folds == fold)
    kept = np.where(np.tile(left_out, 2), weights, 0.0)
    if not kept.any():
        kept[: len(ok)] = left_out
    return kept / kept.sum()


def _together(log_density: Float[np.ndarray, "slot row"]) -> Float[np.ndarray, " row"]:
    """Return the log density under all slots that there are."""
    known = ~np.isnan(log_density)
    total = logsumexp(np.where(known, log_density, -np.inf), axis=0)
    return np.where(known.any(axis=0), total - np.log(np.maximum(known.sum(axis=0), 1)), np.nan)


def _spread(
    weights: Float[np.ndarray, " slot"], slots: Int[np.ndarray, " chain"], ok: Bool[np.ndarray, " chain"]
) -> Float[np.ndarray, " chain"]:
    """Share the weight of each slot equally among its good chains."""
    count = np.bincount(slots[ok], minlength=len(weights))
    return np.where(ok, weights[slots] / np.maximum(count[slots], 1), 0.0)
