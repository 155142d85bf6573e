"""How well chains have mixed: effective sample sizes, R-hat, Monte Carlo errors, variances between and within chains.

All take draws of shape (chain, draw, *quantity) and answer for every quantity. ArviZ defines the standard ones and is
their oracle in the tests. They are written by hand because ArviZ goes through quantities one by one, which takes
minutes for a network's weights, and because it is optional here.
"""

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri
from scipy.stats import rankdata

Draws = Float[np.ndarray, "chain draw *quantity"]
PerQuantity = Float[np.ndarray, "*quantity"]
PerChain = Float[np.ndarray, "chain *quantity"]

_FEWEST_DRAWS = 4  # of a piece of a chain, below which nothing can be said
_CHAIN_PIECES = 4  # paper, "chainwise R-hat": split factor


class Mixing(NamedTuple):
    """All statistics of the same draws."""

    ess: PerChain  # of each chain alone
    rhat: PerChain  # chainwise
    pooled_ess: PerQuantity
    pooled_rhat: PerQuantity
    between: PerQuantity
    within: PerQuantity


def mixing(draws: Draws) -> Mixing:
    """Return all statistics together; sharing the sorting saves a third of the time."""
    draws = _checked(draws)
    normalized = rank_normalize(draws)
    # Of an odd number of draws the halves leave one out, and then the ranks are others.
    halves = _split(normalized, 2) if draws.shape[1] % 2 == 0 else None
    return Mixing(
        ess=np.stack([_effective(chain[None]) for chain in normalized]),
        rhat=chainwise_rhat(draws),
        pooled_ess=_pooled_ess(draws, "bulk", halves),
        pooled_rhat=_pooled_rhat(draws, halves),
        between=between_variance(draws),
        within=within_variance(draws),
    )


def ess(draws: Draws, kind: Literal["bulk", "mean"] = "bulk") -> PerQuantity:
    """Return the effective sample size of all chains together, which is small if they disagree.

    "bulk" uses ranks (Vehtari et al. 2021), "mean" the values themselves. Chains are split in half. A quantity that
    never changes counts as if its draws were independent, as in ArviZ.
    """
    return _pooled_ess(_checked(draws), kind)


def mcse(draws: Draws) -> PerQuantity:
    """Return the Monte Carlo standard error of the mean over all draws."""
    draws = _checked(draws)
    return draws.std(axis=(0, 1), ddof=1) / np.sqrt(ess(draws, "mean"))


def rhat(draws: Draws) -> PerQuantity:
    """Return the rank-normalized split R-hat, of location and spread the larger one; 1 if all chains agree.

    Chains of a network's weights stay near the solutions they started from, so values far above 1 are usual.
    """
    return _pooled_rhat(_checked(draws))


def chainwise_ess(draws: Draws) -> PerChain:
    """Return the effective sample size of each chain on its own, of ranks among the draws of all (as in the paper)."""
    normalized = rank_normalize(_checked(draws))
    return np.stack([_effective(chain[None]) for chain in normalized])


def chainwise_rhat(draws: Draws, n_pieces: int = _CHAIN_PIECES) -> PerChain:
    """Return R-hat of each chain on its own, cut into consecutive pieces; above 1 it still drifts (Sommer et al. 2024).

    Draws that do not fill the pieces are left out at the start.
    """
    found = []
    for chain in _checked(draws):
        length = len(chain) // n_pieces
        if length < _FEWEST_DRAWS:
            found.append(np.full(chain.shape[1:], np.nan))
            continue
        kept = rank_normalize(chain[None, len(chain) - length * n_pieces :])
        found.append(_potential_reduction(kept.reshape(n_pieces, length, *chain.shape[1:])))
    return np.stack(found)


def between_variance(draws: Draws) -> PerQuantity:
    """Return the variance of the chains' means; NaN for a single chain."""
    means = _checked(draws).mean(axis=1)
    return means.var(axis=0, ddof=1) if len(means) > 1 else np.full(means.shape[1:], np.nan)


def within_variance(draws: Draws) -> PerQuantity:
    """Return the mean of the chains' variances; NaN for a single draw."""
    draws = _checked(draws)
    return draws.var(axis=1, ddof=1).mean(axis=0) if draws.shape[1] > 1 else np.full(draws.shape[2:], np.nan)


def rank_normalize(draws: Draws) -> Draws:
    """Replace values by the normal quantiles of their ranks among all draws of all chains (Blom 1958)."""
    n_chains, n_draws, *quantity = draws.shape
    ranks = rankdata(draws.reshape(n_chains * n_draws, -1), axis=0)
    return ndtri((ranks - 0.375) / (n_chains * n_draws + 0.25)).reshape(n_chains, n_draws, *quantity)


def _pooled_ess(draws: np.ndarray, kind: str, normalized: np.ndarray | None = None) -> np.ndarray:
    """Return the effective sample size of all chains; `normalized` halves may be known already."""
    pieces = _split(draws, 2)
    if pieces.shape[1] < _FEWEST_DRAWS // 2:
        return np.full(pieces.shape[2:], np.nan)
    if kind == "mean":
        return _effective(pieces)
    return _effective(rank_normalize(pieces) if normalized is None else normalized)


def _pooled_rhat(draws: np.ndarray, normalized: np.ndarray | None = None) -> np.ndarray:
    """Return R-hat of all chains; `normalized` halves may be known already."""
    pieces = _split(draws, 2)
    if len(draws) < 2 or pieces.shape[1] < _FEWEST_DRAWS // 2:
        return np.full(pieces.shape[2:], np.nan)
    normalized = rank_normalize(pieces) if normalized is None else normalized
    folded = rank_normalize(np.abs(pieces - np.median(pieces, axis=(0, 1))))
    return np.maximum(_potential_reduction(normalized), _potential_reduction(folded))


def _checked(draws: np.ndarray) -> np.ndarray:
    draws = np.asarray(draws, np.float64)
    if draws.ndim < 2 or 0 in draws.shape[:2]:
        raise ValueError(f"draws must have shape (chain, draw, ...) with one of each at least; got {draws.shape}.")
    return draws


def _split(draws: np.ndarray, n_pieces: int) -> np.ndarray:
    """Cut each chain into pieces, which count as chains; of an odd number of draws the middle one is left out."""
    n_draws = draws.shape[1]
    length = n_draws // n_pieces
    return np.concatenate([draws[:, :length], draws[:, n_draws - length :]])


def _potential_reduction(pieces: np.ndarray) -> np.ndarray:
    n_draws = pieces.shape[1]
    within = pieces.var(axis=1, ddof=1).mean(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):  # nothing varies: there is no answer
        return np.sqrt(pieces.mean(axis=1).var(axis=0, ddof=1) / within + (n_draws - 1) / n_draws)


def _effective(pieces: np.ndarray) -> np.ndarray:
    """Return the effective sample size by Geyer's initial monotone sequence, with Stan's estimate of the variance."""
    n_pieces, n_draws = pieces.shape[:2]
    if n_draws < 2:
        return np.full(pieces.shape[2:], np.nan)
    covariance = _autocovariance(pieces).mean(axis=0)
    variance = covariance[0] * n_draws / (n_draws - 1)
    total = covariance[0] + (pieces.mean(axis=1).var(axis=0, ddof=1) if n_pieces > 1 else 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        correlation = 1.0 - (variance - covariance) / total
    correlation[0] = 1.0
    n_pairs = max(1, (n_draws - 1) // 2)
    even, odd = correlation[0 : 2 * n_pairs : 2], correlation[1 : 2 * n_pairs : 2]
    pairs = even + odd
    # Pairs count up to the first one that is not positive, or the last there is; of that one only the even term.
    ends = pairs <= 0.0
    ends[-1] = True
    last = np.argmax(ends, axis=0)[None]
    before = np.arange(n_pairs).reshape(-1, *[1] * (pairs.ndim - 1)) < last
    decreasing = np.where(before, np.minimum.accumulate(pairs, axis=0), 0.0).sum(axis=0)
    final_even = np.take_along_axis(even, last, axis=0)[0]
    final_pair = np.take_along_axis(pairs, last, axis=0)[0]
    final = np.where((final_pair >= 0.0) | (final_even > 0.0), final_even, 0.0)
    n_all = n_pieces * n_draws
    effective = n_all / np.maximum(2.0 * decreasing - 1.0 + final, 1.0 / np.log10(n_all))
    constant = np.ptp(pieces, axis=(0, 1)) < np.finfo(np.float64).resolution
    return np.where(constant, float(n_all), effective)


def _autocovariance(pieces: np.ndarray) -> np.ndarray:
    n_draws = pieces.shape[1]
    padded = 1 << (2 * n_draws - 1).bit_length()  # zeros keep the ends apart
    spectrum = np.fft.rfft(pieces - pieces.mean(axis=1, keepdims=True), n=padded, axis=1)
    return np.fft.irfft(np.square(np.abs(spectrum)), n=padded, axis=1)[:, :n_draws] / n_draws
