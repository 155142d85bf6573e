"""The deep ensemble as a sampler: each trained member is its chain's one draw."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from mile._errors import Status
from mile._types import Key, Position, Target
from mile.samplers.base import Draw, Finished


@dataclass(frozen=True, kw_only=True)
class DeepEnsemble:
    """No sampling at all: the paper's DE baseline (Lakshminarayanan et al. 2017)."""

    @property
    def name(self) -> str:
        """Its row in `SAMPLERS`."""
        return "deep_ensemble"

    @property
    def n_draws(self) -> int:
        """Return one: the member itself."""
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
