"""One ensemble with its chains, and putting the chains of another in the place of those that failed."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from mile._errors import FitFailedError, FitWarning, Status
from mile.ensemble.members import Members
from mile.samplers import Sampler
from mile.sampling.chains import Chains, describe_failures
from mile.storage import StoredDraws


@dataclass(frozen=True, eq=False)
class SampledEnsemble:
    """One ensemble and its chains."""

    chain_ids: np.ndarray
    members: Members
    chains: Chains
    sampler: Sampler

    @property
    def status(self) -> tuple[Status, ...]:
        """A chain is as good as its member and its sampling."""
        pairs = zip(self.members.status, self.chains.status, strict=True)
        return tuple(sampled if trained == Status.OK else trained for trained, sampled in pairs)

    @property
    def ok(self) -> np.ndarray:
        """Which chains are good."""
        return np.array([code == Status.OK for code in self.status])

    def replace(self, slots: np.ndarray, reserve: "SampledEnsemble") -> "SampledEnsemble":
        """Put the reserve's chains in the given slots; the arrays are this attempt's own and are changed."""

        def put(ours: Any, theirs: Any) -> Any:
            if isinstance(ours, StoredDraws):
                return ours.replace(slots, theirs)
            if isinstance(ours, np.ndarray):
                ours[slots] = theirs  # in place: a copy of the draws may be too much
                return ours
            if isinstance(ours, dict):
                return {name: put(value, theirs[name]) for name, value in ours.items()}
            if hasattr(ours, "_fields"):
                return type(ours)(*map(put, ours, theirs))
            if isinstance(ours, tuple):
                return tuple(put(np.array(ours, object), np.array(theirs, object)))
            return ours

        return SampledEnsemble(
            put(self.chain_ids, reserve.chain_ids),
            put(self.members, reserve.members),
            put(self.chains, reserve.chains),
            self.sampler,
        )


def report_failures(result: SampledEnsemble, first_reasons: str, n_chains: int, *, replaced: bool = True) -> None:
    """Say which chains were replaced; raise if none is left."""
    if not replaced:
        warnings.warn(
            f"Some of {n_chains} chains failed and are left out; there was no time to replace them. {first_reasons}",
            FitWarning,
            stacklevel=4,
        )
        return
    second_reasons = describe_failures(result.status, result.chain_ids)
    if not result.ok.any():
        raise FitFailedError(
            f"All {n_chains} chains failed, and so did their replacements. {first_reasons} {second_reasons} "
            "Look for extreme values in X and y, or lower learning_rate."
        )
    lost = (
        f" {int((~result.ok).sum())} could not be replaced and are left out: {second_reasons}" if second_reasons else ""
    )
    warnings.warn(
        f"{len(first_reasons.split('Chain ')) - 1} of {n_chains} chains failed and were replaced by fresh members. "
        f"{first_reasons}{lost}",
        FitWarning,
        stacklevel=4,
    )
