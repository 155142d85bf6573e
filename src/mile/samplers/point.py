"""The deep ensemble as a sampler: each trained member is its chain's one draw."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from mile import _registry
from mile._errors import Status
from mile._types import Key, Position, Target
from mile.samplers.base import Draw, Finished, SamplerDefaults


@_registry.sampler("deep_ensemble")
@dataclass(frozen=True, kw_only=True)
class DeepEnsemble(SamplerDefaults):
    """No sampling at all: the paper's DE baseline (Lakshminarayanan et al. 2017)."""

    title: ClassVar[str] = "deep ensemble"

    @property
    def name(self) -> str:
        """Its name in the registry."""
        return "deep_ensemble"

    @property
    def n_draws(self) -> int:
        """One: the member."""
        return 1

    @property
    def phases(self) -> tuple["Keep"]:
        """One phase of one step that keeps the member."""
        return (Keep(),)

    def gradient_evaluations(self) -> int:
        """Return zero: a member costs no gradients beyond its training."""
        return 0

    def with_start(self, step_size: float) -> "DeepEnsemble":
        """Return this; there is no step."""
        return self

    @classmethod
    def presets(cls) -> dict[str, "DeepEnsemble"]:
        """Return the same for every name: there is nothing to choose."""
        return dict.fromkeys(("paper", "quick", "accurate"), DeepEnsemble())


@jax.tree_util.register_static
@dataclass(frozen=True, kw_only=True)
class Keep:
    """Record the position."""

    name: str = "members"
    n_steps: int = 1
    n_records: int = 1

    def init(self, key: Key, carry: Position, target: Target) -> Draw:
        """Evaluate the member."""
        return Draw(carry, target.logdensity(carry), jnp.zeros((), carry.dtype))

    def step(self, key: Key, carry: Draw, target: Target) -> tuple[Draw, Draw]:
        """Stay."""
        return carry, carry

    def finish(self, carry: Draw) -> Finished:
        """Accept every member with a finite log density."""
        unknown = jnp.full((), jnp.nan, carry.position.dtype)
        status = jnp.where(jnp.isfinite(carry.logdensity), Status.OK, Status.NON_FINITE_START)
        return Finished(carry, status, {"step_size": unknown, "L": unknown, "logdensity": carry.logdensity})
