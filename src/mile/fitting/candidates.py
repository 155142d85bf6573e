"""What predicts: the chains, then the members of the ensemble that they start from, each with a weight."""

import numpy as np
from jaxtyping import Bool, Float

from mile.likelihoods.weights import DrawWeights
from mile.predict import JoinedDraws
from mile.storage import FlatDraws, StoredDraws

_SUM_TOLERANCE = 1e-9  # float64 sums of a few hundred weights are far closer to one


def check_candidate_weights(weights: Float[np.ndarray, " candidate"], ok: Bool[np.ndarray, " chain"]) -> None:
    """Check weights of the chains and then of their members; `ok` says which chains are good.

    Raises
    ------
    ValueError
        If there is not one for each, they are negative or not finite, do not sum to one, or count a chain that failed.
    """
    if weights.shape != (2 * len(ok),):
        raise ValueError(
            f"weights must have one entry for each of {len(ok)} chains and then one for each of their members, shape "
            f"({2 * len(ok)},); got shape {weights.shape}."
        )
    if not (np.isfinite(weights).all() and (weights >= 0.0).all()):
        raise ValueError(f"weights must be finite and not negative; got {weights.tolist()}.")
    if abs(weights.sum() - 1.0) > _SUM_TOLERANCE:
        raise ValueError(f"weights must sum to 1; they sum to {weights.sum()}.")
    failed = np.flatnonzero(~np.tile(ok, 2) & (weights > 0.0)) % len(ok)
    if failed.size:
        raise ValueError(f"chain {failed[0]} failed, so that it and its member must have the weight 0.")


def weighted_draws(
    draws: np.ndarray | StoredDraws, positions: Float[np.ndarray, "chain d"], weights: Float[np.ndarray, " candidate"]
) -> tuple[np.ndarray | FlatDraws | JoinedDraws, DrawWeights]:
    """Return the draws that count and their weights: a chain's is spread equally over its draws, a member is one draw.

    What has the weight 0 is left out and costs nothing.
    """
    n_chains, n_draws, _ = draws.shape
    pieces: list[np.ndarray | FlatDraws] = []
    spread = []
    for source, of_source, count in (
        (draws, weights[:n_chains], n_draws),
        (positions[:, None], weights[n_chains:], 1),
    ):
        chosen = of_source > 0.0
        if chosen.any():
            pieces.append(flat_draws(source, chosen))
            spread.append(np.repeat(of_source[chosen] / count, count))
    return pieces[0] if len(pieces) == 1 else JoinedDraws(pieces), DrawWeights.of(np.concatenate(spread))


def flat_draws(draws: np.ndarray | StoredDraws, ok: np.ndarray) -> np.ndarray | FlatDraws:
    """Return the draws of the chosen chains one after another. Draws on disk stay there."""
    if isinstance(draws, np.memmap):
        _, n_draws, dimension = draws.shape
        mapped = StoredDraws([[chain] for chain in draws], n_draws, n_draws, dimension, draws.dtype)
        return mapped.select(ok).flat
    if isinstance(draws, StoredDraws):
        return draws.select(ok).flat
    kept = draws if ok.all() else draws[ok]  # a copy of all draws takes longer than predicting one row
    return kept.reshape(-1, kept.shape[-1])
