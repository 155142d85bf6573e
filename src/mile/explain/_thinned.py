"""A fit by a few hundred of its draws, which is what explanations ask."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from mile.features.base import Encoded
from mile.fitting.result import Fit
from mile.likelihoods.base import PerDraw, PerRow
from mile.likelihoods.weights import DrawWeights

_MOST_CELLS = 1 << 22  # draws x rows that are answered at once


@dataclass(frozen=True, kw_only=True, eq=False)
class ThinnedFit:
    """Some of the draws of a fit, with their weights, for encoded rows.

    Attributes
    ----------
    fit
        For encoded rows, with as many draws of each chain.
    label
        Which class is followed, where there are classes.
    """

    fit: Fit
    label: object = None

    @classmethod
    def of(cls, fit: Fit, n_draws: int, label: object = None) -> "ThinnedFit":
        """Return about `n_draws` of those draws that count, evenly from each chain."""
        n_counting = max(1, int(np.count_nonzero(fit.chain_weights)))
        each = int(np.clip(-(-n_draws // n_counting), 1, fit.chains.draws.shape[1]))
        return cls(fit=fit.for_encoded.thinned(each), label=label)

    def per_draw(self, x: Encoded) -> tuple[PerDraw, PerDraw]:
        """Return the number that is followed, and the noise around it, under each draw."""
        found = [self.fit.predictive(x[rows]).explained(self.label) for rows in self._blocks(len(x))]
        return (
            np.concatenate([one.value for one in found], axis=1),
            np.concatenate([one.noise for one in found], axis=1),
        )

    def log_prob_per_draw(self, x: Encoded, y: np.ndarray) -> PerDraw:
        """Return the log density of one observed value per row under each draw."""
        found = [self.fit.predictive(x[rows]).log_prob_per_draw(y[rows]) for rows in self._blocks(len(x))]
        return np.concatenate(found, axis=1)

    def row_quantities(self, x: Encoded) -> dict[str, PerRow]:
        """Return what single predictions are explained by."""
        found = [self.fit.predictive(x[rows]).row_quantities(self.label) for rows in self._blocks(len(x))]
        return {name: np.concatenate([one[name] for one in found]) for name in found[0]}

    def weights(self, x: Encoded) -> DrawWeights:
        """Return how much each draw counts."""
        values = self.fit.predictive(x[:1]).draw_weights
        return DrawWeights(values)

    @property
    def draws_of_chain(self) -> int:
        """Draws that each chain has here."""
        return self.fit.chains.draws.shape[1]

    def _blocks(self, n_rows: int) -> Sequence[slice]:
        n_draws = self.fit.chains.draws.shape[0] * self.draws_of_chain
        size = max(1, _MOST_CELLS // n_draws)
        return [slice(start, start + size) for start in range(0, max(n_rows, 1), size)]


def resampled(
    weights: DrawWeights, n_draws: int, block: int, n_times: int, rng: np.random.Generator
) -> Float[np.ndarray, "time draw"]:
    """Return weights of draws by a Bayesian bootstrap of chains, and of the draws in each.

    Parameters
    ----------
    weights
        Of the draws.
    n_draws
        How many there are.
    block
        Neighbors that are of one chain.
    n_times
        How often to do it.
    rng
        Source of randomness.
    """
    chain: Int[np.ndarray, " draw"] = np.arange(n_draws) // block
    of_chain = rng.exponential(size=(n_times, chain[-1] + 1))
    found = rng.exponential(size=(n_times, n_draws)) * of_chain[:, chain]
    if weights.values is not None:
        found = found * weights.values
    return found / found.sum(axis=1, keepdims=True)
