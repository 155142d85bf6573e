"""One ensemble with its chains, and how the chains of another replace those that failed."""

from dataclasses import dataclass

import numpy as np

from mile._errors import FitFailedError, Status, warn
from mile.ensemble.members import Members
from mile.samplers import Sampler
from mile.sampling.chains import Chains, describe_failures


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

    def joined(self, others: "SampledEnsemble") -> "SampledEnsemble":
        """Return this ensemble with the members and chains of another one after its own."""
        ids = np.concatenate([self.chain_ids, others.chain_ids])
        members, chains = self.members.joined(others.members), self.chains.joined(others.chains)
        return SampledEnsemble(ids, members, chains, self.sampler)

    def replace(self, slots: np.ndarray, reserve: "SampledEnsemble") -> "SampledEnsemble":
        """Put the reserve's chains in the given slots; the arrays of this ensemble are changed, not copied."""
        self.chain_ids[slots] = reserve.chain_ids
        members, chains = self.members.replace(slots, reserve.members), self.chains.replace(slots, reserve.chains)
        return SampledEnsemble(self.chain_ids, members, chains, self.sampler)


def report_failures(result: SampledEnsemble, first_reasons: str, n_chains: int, *, replaced: bool = True) -> None:
    """Warn which chains failed and whether they were replaced; raise if no good chain is left."""
    if not replaced:
        warn(f"Some of {n_chains} chains failed and are left out; there was no time to replace them. {first_reasons}")
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
    warn(
        f"{len(first_reasons.split('Chain ')) - 1} of {n_chains} chains failed and were replaced by fresh members. "
        f"{first_reasons}{lost}"
    )
