"""The choice between full batches and mini-batches, which a fit makes when it knows how long a step takes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from mile import _registry
from mile.samplers.base import Phase, Sampler, SamplerDefaults
from mile.samplers.mile import Mile
from mile.samplers.stochastic import Stochastic

MINIBATCHES = "minibatches"  # in a plan: whether they were chosen; all else there are budgets
STOPPED = "stopped"  # what a plan says where a rule has ended the sampling early


@_registry.sampler("auto")
@dataclass(frozen=True, kw_only=True)
class Auto(SamplerDefaults):
    """MILE on full batches if the time limit allows it, otherwise on mini-batches; full batches until that is known."""

    title: ClassVar[str] = "auto"
    full: Mile
    stochastic: Stochastic

    def __post_init__(self) -> None:
        for name, kind in (("full", Mile), ("stochastic", Stochastic)):
            if not isinstance(getattr(self, name), kind):
                raise ValueError(f"{name} must be a {kind.__name__}(...); got {getattr(self, name)!r}.")

    @property
    def name(self) -> str:
        """What `sampler=` calls it."""
        return "auto"

    @property
    def n_draws(self) -> int:
        """Draws kept of each chain."""
        return max(self.full.n_draws, self.stochastic.n_draws)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases of MILE on full batches."""
        return self.full.phases

    def gradient_evaluations(self) -> int:
        """Return what one chain costs on full batches."""
        return self.full.gradient_evaluations()

    @property
    def needs_rows(self) -> bool:
        """Whether it works with single rows: yes, to choose between batches."""
        return True

    def with_start(self, step_size: float) -> "Auto":
        """Fill in the starting step size of both if it was left open."""
        return Auto(full=self.full.with_start(step_size), stochastic=self.stochastic.with_start(step_size))

    @classmethod
    def presets(cls) -> dict[str, "Auto"]:
        """Return pairs of presets by name; a name that mini-batches do not have takes their "paper"."""
        stochastic = Stochastic.presets()
        return {
            name: Auto(full=full, stochastic=stochastic.get(name, stochastic["paper"]))
            for name, full in Mile.presets().items()
        }


def alternatives(sampler: Sampler) -> tuple[Sampler, Sampler]:
    """Return the samplers on full batches and on mini-batches that a plan can choose from; twice the same if none."""
    return (sampler.full, sampler.stochastic) if isinstance(sampler, Auto) else (sampler, sampler)


def with_plan(sampler: Sampler, plan: Mapping[str, int] | None) -> Sampler:
    """Return the sampler with the choice and the budgets of a plan.

    Raises
    ------
    TypeError, ValueError
        If the sampler has no such budgets, or they are impossible.
    """
    budgets = {name: count for name, count in (plan or {}).items() if name != STOPPED}
    full, minibatches = alternatives(sampler)
    is_choice = full is not minibatches
    chosen = minibatches if is_choice and budgets.pop(MINIBATCHES, 0) else full
    return replace(chosen, **budgets) if budgets else chosen
