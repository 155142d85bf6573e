"""Symmetric split HMC (Cobb and Jalaian 2021): trajectories whose every kick needs only a part of the rows."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from mile import _registry
from mile._checks import check_count, check_flag, check_number
from mile._errors import Status
from mile._types import Count, Key, Number, Position, Scalar, Target
from mile.samplers.base import (
    HISTORY,
    LARGEST_BAD_SHARE,
    LARGEST_FALL_PER_DIMENSION,
    Draw,
    Finished,
    SamplerDefaults,
    check_budgets,
)


@_registry.sampler("split_hmc")
@dataclass(frozen=True, kw_only=True)
class SplitHmc(SamplerDefaults):
    """Symmetric split HMC; the defaults are what its paper found for Fashion-MNIST (section 5.3).

    Nothing is adapted, as in the original: step size and mass must suit the target. On a target without rows it is
    plain HMC by the leapfrog scheme.
    """

    title: ClassVar[str] = "split HMC"

    warmup_steps: int = 50  # proposals; as the sampling steps, the comparison in the MILE paper, appendix
    sampling_steps: int = 200
    n_draws: int = 200
    step_size: float = 5e-4
    n_leapfrog: int = 30  # integrator steps a proposal
    inverse_mass: float = 100.0  # mass 0.01
    part_size: int = 1_024  # rows of a part; the other size in the comparison is 64
    shuffle: bool = False  # draw the order of the parts anew for each trajectory, the paper's randomized variant

    def __post_init__(self) -> None:
        check_budgets(self)
        for name in ("n_leapfrog", "part_size"):
            check_count(name, getattr(self, name))
        for name in ("step_size", "inverse_mass"):
            check_number(name, getattr(self, name), positive=True)
        check_flag("shuffle", self.shuffle)

    @property
    def name(self) -> str:
        """Its name in the registry."""
        return "split_hmc"

    @property
    def phases(self) -> tuple["SplitHmcWarmUpPhase", "SplitHmcSamplingPhase"]:
        """Proposals that are thrown away, then proposals that are kept."""
        trajectory = Trajectory(
            step_size=self.step_size,
            n_leapfrog=self.n_leapfrog,
            inverse_mass=self.inverse_mass,
            part_size=self.part_size,
            shuffle=self.shuffle,
        )
        warm_up = SplitHmcWarmUpPhase(trajectory=trajectory, n_steps=self.warmup_steps)
        return warm_up, SplitHmcSamplingPhase(
            trajectory=trajectory, n_steps=self.sampling_steps, n_records=self.n_draws
        )

    def gradient_evaluations(self) -> int:
        """Return the most that one chain can cost; how much less depends on the number of parts and is counted.

        With M parts a proposal takes 1 + n_leapfrog (2M - 2) gradients of a part, with one part 1 + n_leapfrog; M of
        them are one gradient on all rows. The forward pass of the Metropolis test is no gradient.
        """
        most = max(2 * self.n_leapfrog, 1 + self.n_leapfrog)
        return most * (self.warmup_steps + self.sampling_steps)

    def with_start(self, step_size: float) -> "SplitHmc":
        """Return this; an optimizer's learning rate says nothing about trajectories."""
        return self

    @classmethod
    def presets(cls) -> dict[str, "SplitHmc"]:
        """Return configurations by name; "paper" is what its paper used."""
        return {
            "paper": SplitHmc(),
            "quick": SplitHmc(warmup_steps=10, sampling_steps=50, n_draws=50),
            # The longest run of the comparison.
            "accurate": SplitHmc(warmup_steps=300, sampling_steps=3_000, n_draws=3_000),
        }


class SplitHmcState(NamedTuple):
    """Where the chain is."""

    position: Position
    logdensity: Scalar


class Move(NamedTuple):
    """Outcome of one proposal; one without a finite energy has an energy change of zero and is rejected."""

    accepted: Bool[Array, ""]
    finite: Bool[Array, ""]
    energy_change: Scalar
    probability: Scalar  # of acceptance


class SplitHmcTally(NamedTuple):
    """Where the chain began, what its steps cost, and what is counted in a phase."""

    start_logdensity: Scalar
    n_parts: Int[Array, ""]
    steps: Int[Array, ""]
    accepted: Int[Array, ""]
    bad_steps: Int[Array, ""]
    probability: Scalar  # sums over steps
    squared_energy: Scalar


class SplitHmcCarry(NamedTuple):
    """Carry of both phases."""

    state: SplitHmcState
    tally: SplitHmcTally


class ProposalRecord(NamedTuple):
    """History of the warm-up."""

    logdensity: Scalar
    acceptance: Scalar
    energy_change: Scalar


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["step_size", "n_leapfrog", "inverse_mass"],
    meta_fields=["part_size", "shuffle"],
)
@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """How one proposal is made: M parts of the log density kick the momentum in turn, forward and back."""

    step_size: Number
    n_leapfrog: Count
    inverse_mass: Number
    part_size: int
    shuffle: bool

    def n_parts(self, target: Target) -> int:
        """Return the number of parts of a target; without rows it is one."""
        return target.n_parts(self.part_size)

    def gradients(self, n_parts: Int[Array, ""]) -> Int[Array, ""]:
        """Return how many gradients of a part one proposal takes; see `integrate`."""
        return 1 + self.n_leapfrog * jnp.maximum(2 * n_parts - 2, 1)

    def integrate(
        self, position: Position, momentum: Position, order: Int[Array, " part"], target: Target
    ) -> tuple[Position, Position]:
        """Follow Hamilton's equations for all integrator steps.

        One step kicks with part 1, 2, ... M, M, ... 2, 1, half a step each, and drifts by step / (2M - 2) between
        (their equation 9). The two kicks by part M are at the same point, as are the last of a step and the first of
        the next: each pair costs one gradient. With one part this is leapfrog.
        """
        n_parts = len(order)
        n_drifts = max(2 * n_parts - 2, 1)
        drift, half = self.step_size / n_drifts * self.inverse_mass, 0.5 * self.step_size

        def gradient(number: Int[Array, ""] | int, position: Position) -> Position:
            part = target.part(order[number], self.part_size) if n_parts > 1 else target
            return part.value_and_grad(position)[1]

        def substep(index: Int[Array, ""], state: tuple[Position, Position, Position]) -> tuple:
            position, momentum, _ = state
            position = position + drift * momentum
            number = jnp.maximum(n_parts - 1 - jnp.abs(n_parts - 2 - index), 0)  # up to the last part, then down
            kick = gradient(number, position)
            is_turn = (number == n_parts - 1) & (n_parts > 1)
            return position, momentum + jnp.where(is_turn, 2.0, 1.0) * half * kick, kick

        def step(_: Int[Array, ""], state: tuple[Position, Position, Position]) -> tuple:
            position, momentum, kick = state
            return jax.lax.fori_loop(0, n_drifts, substep, (position, momentum + half * kick, kick))

        start = (position, momentum, gradient(0, position))
        position, momentum, _ = jax.lax.fori_loop(0, self.n_leapfrog, step, start)
        return position, momentum

    def propose(self, key: Key, state: SplitHmcState, target: Target) -> tuple[SplitHmcState, Move]:
        """Draw a momentum, integrate, and accept or stay by the energy on all rows."""
        momentum_key, order_key, test_key = jax.random.split(key, 3)
        dtype, shape = state.position.dtype, state.position.shape
        momentum = jax.random.normal(momentum_key, shape, dtype) / jnp.sqrt(self.inverse_mass).astype(dtype)
        order = jnp.arange(self.n_parts(target))
        if self.shuffle:
            order = jax.random.permutation(order_key, order)
        position, end = self.integrate(state.position, momentum, order, target)
        logdensity = target.logdensity(position).astype(dtype)
        kinetic_change = 0.5 * self.inverse_mass * ((end - momentum) @ (end + momentum))
        energy_change = kinetic_change - logdensity + state.logdensity
        finite = jnp.isfinite(jnp.square(energy_change)) & jnp.isfinite(jnp.sum(position))
        energy_change = jnp.where(finite, energy_change, 0.0)
        probability = jnp.where(finite, jnp.exp(jnp.minimum(-energy_change, 0.0)), 0.0)
        accepted = jax.random.uniform(test_key, (), dtype) < probability
        new = SplitHmcState(position, logdensity)
        new = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), new, state)
        return new, Move(accepted, finite, energy_change, probability)


# In compiled code the numbers of a phase are arguments; see `Phase`.
_register_phase = partial(jax.tree_util.register_dataclass, drop_fields=["name"], meta_fields=[])


@partial(_register_phase, data_fields=["trajectory", "n_steps"])
@dataclass(frozen=True, kw_only=True)
class SplitHmcWarmUpPhase:
    """Proposals before the first draw; nothing is learned from them."""

    record: ClassVar[type] = ProposalRecord
    name: str = "warm-up"
    trajectory: Trajectory
    n_steps: int

    @property
    def n_records(self) -> int:
        """A short history for plots."""
        return min(self.n_steps, HISTORY)

    def init(self, key: Key, carry: Position, target: Target) -> SplitHmcCarry:
        """Start at a trained network."""
        logdensity = target.logdensity(carry).astype(carry.dtype)
        zero, none = jnp.zeros_like(logdensity), jnp.zeros((), jnp.int32)
        n_parts = jnp.asarray(self.trajectory.n_parts(target), jnp.int32)
        return SplitHmcCarry(
            SplitHmcState(carry, logdensity), SplitHmcTally(logdensity, n_parts, none, none, none, zero, zero)
        )

    def step(self, key: Key, carry: SplitHmcCarry, target: Target) -> tuple[SplitHmcCarry, ProposalRecord]:
        """Make one proposal."""
        state, move = self.trajectory.propose(key, carry.state, target)
        record = ProposalRecord(state.logdensity, move.probability, move.energy_change)
        return SplitHmcCarry(state, _count(carry.tally, move)), record

    def finish(self, carry: SplitHmcCarry) -> Finished:
        """Judge the proposals."""
        return Finished(carry, _status(carry), _report(self.trajectory, carry))


@partial(_register_phase, data_fields=["trajectory", "n_steps", "n_records"])
@dataclass(frozen=True, kw_only=True)
class SplitHmcSamplingPhase:
    """Proposals whose ends are the draws."""

    name: str = "sampling"
    trajectory: Trajectory
    n_steps: int
    n_records: int

    def init(self, key: Key, carry: SplitHmcCarry, target: Target) -> SplitHmcCarry:
        """Continue where the warm-up stopped, and start the counters again."""
        tally, none, zero = carry.tally, jnp.zeros((), jnp.int32), jnp.zeros_like(carry.state.logdensity)
        fresh = SplitHmcTally(tally.start_logdensity, tally.n_parts, none, none, none, zero, zero)
        return carry._replace(tally=fresh)

    def step(self, key: Key, carry: SplitHmcCarry, target: Target) -> tuple[SplitHmcCarry, Draw]:
        """Make one proposal."""
        state, move = self.trajectory.propose(key, carry.state, target)
        return SplitHmcCarry(state, _count(carry.tally, move)), Draw(*state, move.energy_change)

    def finish(self, carry: SplitHmcCarry) -> Finished:
        """Judge the chain."""
        return Finished(carry, _status(carry), _report(self.trajectory, carry))


def _count(tally: SplitHmcTally, move: Move) -> SplitHmcTally:
    return tally._replace(
        steps=tally.steps + 1,
        accepted=tally.accepted + move.accepted,
        bad_steps=tally.bad_steps + ~move.finite,
        probability=tally.probability + move.probability,
        squared_energy=tally.squared_energy + jnp.square(move.energy_change),
    )


def _status(carry: SplitHmcCarry) -> Int[Array, ""]:
    state, tally = carry
    fall = tally.start_logdensity - state.logdensity
    return jnp.select(
        [
            ~jnp.isfinite(tally.start_logdensity),
            tally.bad_steps > LARGEST_BAD_SHARE * tally.steps,
            tally.accepted == 0,
            fall > LARGEST_FALL_PER_DIMENSION * state.position.shape[0],
        ],
        [Status.NON_FINITE_START, Status.BAD_STEPS, Status.FROZEN, Status.DIVERGED],
        Status.OK,
    )


def _report(trajectory: Trajectory, carry: SplitHmcCarry) -> dict[str, Float[Array, ""]]:
    state, tally = carry
    dtype = state.logdensity.dtype
    step_size = jnp.asarray(trajectory.step_size, dtype)
    # Parts in units of all rows, rounded up; whole numbers and remainders apart, so that no product overflows.
    whole, rest = jnp.divmod(trajectory.gradients(tally.n_parts), tally.n_parts)
    gradients = tally.steps * whole + -(-tally.steps * rest // tally.n_parts)
    return {
        "step_size": step_size,
        "L": jnp.full_like(step_size, jnp.nan),
        "gradient_evaluations": gradients.astype(dtype),
        "n_parts": tally.n_parts.astype(dtype),
        "bad_steps": tally.bad_steps.astype(dtype),
        "accepted": tally.accepted.astype(dtype),
        "acceptance": tally.probability / tally.steps,
        "energy_variance": tally.squared_energy / (tally.steps * state.position.shape[0]),
        "logdensity": state.logdensity,
    }
