"""When more draws stop paying: a rule that ends sampling by how well rows are predicted that chains have not seen.

It decides at fixed numbers of draws and by the draws alone, so that it gives the same answer on any machine, for any
number of threads, and in a run that was stopped and resumed.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from mile._checks import check_choice
from mile.fitting.monitoring import UnseenRows
from mile.samplers import Sampler, alternatives, budgets_of, resized

FLAT = "flat"
RULES = (FLAT,)
SMALLEST_GAIN = 0.002  # in LPPD, of the last third of the draws
_DECISIONS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # shares of the draws
_FEWEST_DRAWS = 10  # of each chain

Read = Callable[[int, int, int], np.ndarray]  # draws of a chain, from one number up to another


def check_stop_when(stop_when: str | None, sampler: Sampler) -> str | None:
    """Return a rule that a sampler can follow.

    Raises
    ------
    ValueError
        If there is none of that name, or chains of the sampler cannot end early and be the same up to there.
    """
    if stop_when is not None:
        check_choice("stop_when", stop_when, RULES)
        for one in alternatives(sampler):
            resized(one, budgets_of(one).get("n_draws", 1))
    return stop_when


class Flat:
    """Sampling ends if the last third of the draws gained less than `SMALLEST_GAIN` in LPPD on rows not seen.

    Parameters
    ----------
    rows
        Those to predict, each by the chains that have not seen it.
    sampler
        Decides after which numbers of draws the chains are still those of a sampler with fewer draws.
    """

    def __init__(self, rows: UnseenRows, sampler: Sampler) -> None:
        self._rows, self._sampler = rows, sampler
        self._sums: dict[tuple[int, int], np.ndarray] = {}  # of chains and rows, by the draws that they are of

    def decisions(self, n_draws: int) -> list[int]:
        """Return after how many draws to decide."""
        return [count for count in self._counts(n_draws) if self._is_possible(count)]

    @staticmethod
    def _counts(n_draws: int) -> list[int]:
        counts = {int(np.ceil(share * n_draws)) for share in _DECISIONS}
        return sorted(count for count in counts if _FEWEST_DRAWS <= count < n_draws)

    def _is_possible(self, n_draws: int) -> bool:
        try:
            resized(self._sampler, n_draws)
        except ValueError:
            return False
        return True

    def is_over(self, n_draws: int, read: Read) -> bool:
        """Say whether the last third of so many draws gained nothing to speak of."""
        now, before = self._score(n_draws, read), self._score(self._earlier(n_draws), read)
        return bool(now - before < SMALLEST_GAIN)

    @staticmethod
    def _earlier(n_draws: int) -> int:
        return 2 * n_draws // 3

    def _score(self, n_draws: int, read: Read) -> float:
        """Return the LPPD by the first draws of all chains."""
        total = self._rows.nothing()
        # Pieces between fixed numbers, whoever asks first: sums of them have the same bits in every process.
        counts = self._counts(budgets_of(self._sampler)["n_draws"])
        bounds = sorted({0, *counts, *map(self._earlier, counts)})
        for start, stop in zip(bounds, [*bounds[1:], n_draws], strict=True):
            if stop <= n_draws and start < stop:
                total = np.logaddexp(total, self._sum(start, stop, read))
        return self._rows.score(total, n_draws)

    def _sum(self, start: int, stop: int, read: Read) -> Float[np.ndarray, "chain row"]:
        """Return the log of the sum of densities over some draws."""
        if (start, stop) not in self._sums:
            found = self._rows.nothing()
            for chain in self._rows.chains:
                draws = read(chain, start, stop)
                if np.isfinite(draws).all():
                    self._rows.add(found[chain], draws, chain)
            self._sums[start, stop] = found
        return self._sums[start, stop]
