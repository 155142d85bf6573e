"""A sampler of one's own: MALA, Langevin steps with a Metropolis test, and a step size that is tuned.

A sampler is a frozen dataclass of numbers that makes a tuple of phases. A phase is written for one chain and is pure:
`init` turns what the phase before has left into a carry (for the first phase that is a position), `step` advances it
by one step, and `finish` draws conclusions. The loop of the library compiles the steps, runs chains side by side,
writes checkpoints, and can stop at any moment; the last phase records a `Draw` in each step.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mile import MileRegressor, Status, _registry
from mile.samplers.base import HISTORY, Draw, Finished, SamplerDefaults, check_budgets

TARGET = 0.57  # acceptance that is best for MALA (Roberts and Rosenthal 1998)


class State(NamedTuple):
    """What one chain carries; checkpoints hold it."""

    position: Any
    logdensity: Any
    gradient: Any
    log_step: Any
    accepted: Any  # steps of this phase
    index: Any  # steps made in this phase


class Tuning(NamedTuple):
    """What the warm-up records."""

    step_size: Any
    logdensity: Any


def advance(key, state: State, target) -> tuple[State, Any, Any]:
    """Propose and test; return also the probability of acceptance and the energy change."""
    noise_key, test_key = jax.random.split(key)
    h = jnp.exp(state.log_step)
    noise = jax.random.normal(noise_key, state.position.shape, state.position.dtype)
    proposal = state.position + 0.5 * h**2 * state.gradient + h * noise
    logdensity, gradient = target.value_and_grad(proposal)
    back = (state.position - proposal - 0.5 * h**2 * gradient) / h
    change = logdensity - state.logdensity - 0.5 * jnp.sum(back**2) + 0.5 * jnp.sum(noise**2)
    change = jnp.where(jnp.isfinite(change), change, -jnp.inf)
    takes = jnp.log(jax.random.uniform(test_key, (), change.dtype)) < change
    chosen = jax.tree.map(
        lambda new, old: jnp.where(takes, new, old),
        (proposal, logdensity, gradient),
        (state.position, state.logdensity, state.gradient),
    )
    moved = State(*chosen, state.log_step, state.accepted + takes, state.index + 1)
    return moved, jnp.exp(jnp.minimum(change, 0.0)), jnp.where(jnp.isfinite(change), -change, 0.0)


def conclude(state: State) -> Finished:
    """Judge a chain: it must have moved and be somewhere."""
    status = jnp.where(state.accepted > 0.02 * state.index, Status.OK, Status.FROZEN)
    status = jnp.where(jnp.isfinite(state.logdensity), status, Status.NON_FINITE)
    report = {"step_size": jnp.exp(state.log_step), "L": jnp.full_like(state.logdensity, jnp.nan)}
    fresh = state._replace(accepted=jnp.zeros_like(state.accepted), index=jnp.zeros_like(state.index))
    return Finished(fresh, status, {**report, "logdensity": state.logdensity})


# Budgets are arguments of the compiled programs; the name enters none.
@partial(jax.tree_util.register_dataclass, drop_fields=["name"], data_fields=["n_steps", "step_size"], meta_fields=[])
@dataclass(frozen=True, kw_only=True)
class WarmUp:
    """Follow the target acceptance with steps that become smaller (Robbins and Monro)."""

    record: ClassVar[type] = Tuning
    name: str = "warm-up"
    n_steps: int
    step_size: float

    @property
    def n_records(self) -> int:
        """A short history for plots."""
        return min(self.n_steps, HISTORY)

    def init(self, key, carry, target) -> State:
        """Start at a trained network."""
        logdensity, gradient = target.value_and_grad(carry)
        zero = jnp.zeros((), jnp.int32)
        return State(carry, logdensity, gradient, jnp.log(jnp.asarray(self.step_size, carry.dtype)), zero, zero)

    def step(self, key, carry: State, target) -> tuple[State, Tuning]:
        """Make a step and change its size a little."""
        state, acceptance, _ = advance(key, carry, target)
        rate = (state.index.astype(state.log_step.dtype) + 10.0) ** -0.6
        state = state._replace(log_step=state.log_step + rate * (acceptance - TARGET))
        return state, Tuning(jnp.exp(state.log_step), state.logdensity)

    def finish(self, carry: State) -> Finished:
        """Keep the last step size."""
        return conclude(carry)


@partial(jax.tree_util.register_dataclass, drop_fields=["name"], data_fields=["n_steps", "n_records"], meta_fields=[])
@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Sample with the step size that was found."""

    name: str = "sampling"
    n_steps: int
    n_records: int

    def init(self, key, carry: State, target) -> State:
        """Continue where the warm-up stopped."""
        return carry

    def step(self, key, carry: State, target) -> tuple[State, Draw]:
        """Make a step."""
        state, _, energy_change = advance(key, carry, target)
        return state, Draw(state.position, state.logdensity, energy_change)

    def finish(self, carry: State) -> Finished:
        """Judge the chain."""
        return conclude(carry)


@_registry.sampler("mala")
@dataclass(frozen=True, kw_only=True)
class Mala(SamplerDefaults):
    """Metropolis-adjusted Langevin steps."""

    title: ClassVar[str] = "MALA"
    warmup_steps: int = 10_000
    sampling_steps: int = 10_000
    n_draws: int = 1_000
    step_size: float | None = None

    def __post_init__(self) -> None:
        check_budgets(self)

    @property
    def name(self) -> str:
        """Its name in the registry."""
        return "mala"

    @property
    def phases(self) -> tuple[WarmUp, Sampling]:
        """Warm-up, then sampling."""
        warm_up = WarmUp(n_steps=self.warmup_steps, step_size=self.step_size or 1e-3)
        return warm_up, Sampling(n_steps=self.sampling_steps, n_records=self.n_draws)

    def gradient_evaluations(self) -> int:
        """Return what one chain will cost: one gradient a step, and one at the start."""
        return self.warmup_steps + self.sampling_steps + 1

    def with_start(self, step_size: float) -> "Mala":
        """Fill in the first step size where none was given."""
        return self if self.step_size is not None else replace(self, step_size=step_size)

    @classmethod
    def presets(cls) -> dict[str, "Mala"]:
        """Return configurations by name."""
        quick = cls(warmup_steps=1_000, sampling_steps=2_000, n_draws=200)
        return {"paper": cls(), "quick": quick, "accurate": cls(sampling_steps=50_000)}


def main() -> None:
    """Fit with it beside MILE."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (150, 2))
    y = np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=150)
    for sampler in ("mala", "mile"):
        model = MileRegressor(sampler=sampler, preset="quick", n_chains=4, n_folds=0, random_state=0).fit(
            x[:100], y[:100]
        )
        status = ", ".join(sorted(set(model.chain_status_)))
        print(f"{sampler}: chains {status}; log density of new rows {model.lppd(x[100:], y[100:]):.3f}")


if __name__ == "__main__":
    main()
