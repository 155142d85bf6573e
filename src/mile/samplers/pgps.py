"""Path-guided particle sampling (Fan et al. 2024): a learned vector field carries a cloud of particles to the target.

Densities p_t lead from a normal p_0 at t = 0 to the target p_1 at t = 1. At each t a small network learns the field
along which p_t moves, the particles follow it, and now and then Langevin steps at fixed t mend what it missed.
"""

import math
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from mile import _registry
from mile._checks import check_count, check_flag, check_number
from mile._errors import Status
from mile._types import Key, Number, Position, Scalar, Target
from mile.samplers._path import (
    Cloud,
    CloudTally,
    Langevin,
    Particles,
    PerParticle,
    Route,
    init_field,
    move,
    remember,
    train_field,
)
from mile.samplers.base import HISTORY, LARGEST_BAD_SHARE, LARGEST_FALL_PER_DIMENSION, Draw, Finished, SamplerDefaults

_TIME_ROUNDING = 1e-4  # far above the rounding of t in float32, far below a step


@_registry.sampler("pgps")
@dataclass(frozen=True, kw_only=True)
class Pgps(SamplerDefaults):
    """Path-guided particle sampling: a cloud counts as one chain, its particles are the draws.

    The defaults are the paper's on UCI. Particles begin at random points of p_0, as in the original: the trained
    network from which other samplers start is not used. Where the target has more rows than `batch_size`, each
    particle draws a random batch of them at each step.

    By default the target is the posterior of the network and prior that were asked for, as the paper's text has it. Its
    code (github.com/MingzhouFan97/PGPS at c582db4, experiments/UCI) has another, which the preset "published" follows:
    `softmax_twice`, `accumulate_gradients`, batches that are not rescaled, and no bound on the drift.
    """

    title: ClassVar[str] = "PGPS"

    n_draws: int = 100  # particles; section 5.2
    start_scale: float = math.sqrt(0.5)  # p_0 is N(0, 0.5 I), in the original the prior as well
    start_widening: float = 0.0  # alpha; the paper searches 0 to 1 for each table, its code starts from 0
    target_shrinkage: float = 0.5  # beta; the paper searches 0.2 to 1, its code starts from 0.5
    path_steps: int = 50  # budget of moves in t; 1 / 0.02
    largest_time_step: float = 0.02  # of the code
    largest_displacement: float = 1e5  # psi of the code; so large that it never binds
    field_width: int = 128  # of the code, as all that follow
    field_updates: int = 100  # of the field before each move, at most
    field_tolerance: float = 0.01  # loss at which its training stops
    field_learning_rate: float = 1e-3
    adjustment_interval: float = 0.1  # of t between Langevin adjustments
    adjustment_steps: int = 300
    langevin_steps: int = 1_000  # at t = 1
    step_size: float = 0.1  # of Langevin; unadjusted, so unstable where curvature exceeds 2 / step_size
    limit_drift: bool = True  # bound what an unstable Langevin step can do; False as the code
    batch_size: int = 100
    rescale_batches: bool = True  # False as the code: a batch counts as all rows, which tempers the likelihood
    # Each particle draws rows of its own, as the code; False: all see the same, as versions without this field.
    own_batches: bool = field(default=True, metadata={_registry.ABSENT: False})
    # The target takes the softmax of probabilities for that of logits, as the code, whose network ends in a softmax and
    # whose loss begins with one. Only while sampling: predictions and the draws' log densities have the right one.
    softmax_twice: bool = field(default=False, metadata={_registry.ABSENT: False})
    # The likelihood's gradient is the sum of all that a particle has had, as the code, which never clears them.
    accumulate_gradients: bool = field(default=False, metadata={_registry.ABSENT: False})

    def __post_init__(self) -> None:
        for name in ("n_draws", "path_steps", "field_width", "field_updates", "langevin_steps", "batch_size"):
            check_count(name, getattr(self, name))
        check_count("adjustment_steps", self.adjustment_steps, smallest=0)
        for name in ("start_scale", "largest_displacement", "field_learning_rate", "step_size"):
            check_number(name, getattr(self, name), positive=True)
        for name in ("target_shrinkage", "largest_time_step", "adjustment_interval"):
            check_number(name, getattr(self, name), positive=True, largest=1.0)
        check_number("start_widening", self.start_widening, smallest=0.0, largest=1.0)
        check_number("field_tolerance", self.field_tolerance, smallest=0.0)
        for name in ("limit_drift", "rescale_batches", "own_batches", "softmax_twice", "accumulate_gradients"):
            check_flag(name, getattr(self, name))
        if self.accumulate_gradients and not self.own_batches:
            raise ValueError("accumulate_gradients needs own_batches=True.")
        if self.path_steps * self.largest_time_step < 1.0 - _TIME_ROUNDING:
            raise ValueError(
                f"path_steps ({self.path_steps}) times largest_time_step ({self.largest_time_step}) must reach 1: "
                "allow more steps or longer ones."
            )

    @property
    def name(self) -> str:
        """Its name in the registry."""
        return "pgps"

    @property
    def phases(self) -> tuple["FollowPath", "Settle", "Emit"]:
        """Along the path, Langevin at its end, and the particles one by one."""
        route = Route(
            start_scale=self.start_scale,
            start_widening=self.start_widening,
            target_shrinkage=self.target_shrinkage,
            batch_size=self.batch_size,
            rescale_batches=self.rescale_batches,
            own_batches=self.own_batches,
            softmax_twice=self.softmax_twice,
            accumulate_gradients=self.accumulate_gradients,
        )
        langevin = Langevin(step_size=self.step_size, limit_drift=self.limit_drift)
        path = FollowPath(
            route=route,
            langevin=langevin,
            n_steps=self.path_steps,
            largest_time_step=self.largest_time_step,
            largest_displacement=self.largest_displacement,
            updates=self.field_updates,
            tolerance=self.field_tolerance,
            learning_rate=self.field_learning_rate,
            adjustment_interval=self.adjustment_interval,
            adjustment_steps=self.adjustment_steps,
            n_particles=self.n_draws,
            width=self.field_width,
        )
        settle = Settle(route=route, langevin=langevin, n_steps=self.langevin_steps)
        return path, settle, Emit(n_steps=self.n_draws, n_records=self.n_draws, step_size=self.step_size)

    def gradient_evaluations(self) -> int:
        """Return the most that one cloud can cost, all its particles together; batches cost less."""
        adjustments = math.floor(1.0 / self.adjustment_interval + _TIME_ROUNDING) * self.adjustment_steps
        n_gradients = 2 if self.accumulate_gradients else 1  # of a particle's step
        return n_gradients * self.n_draws * (self.path_steps + adjustments + self.langevin_steps)

    def with_start(self, step_size: float) -> "Pgps":
        """Return this; an optimizer's learning rate says nothing about Langevin steps."""
        return self

    @classmethod
    def presets(cls) -> dict[str, "Pgps"]:
        """Return configurations by name; "paper" is what its paper says, "published" what its code does."""
        return {
            "paper": Pgps(),
            # Not the posterior: what the code behind the paper's tables samples.
            "published": Pgps(softmax_twice=True, accumulate_gradients=True, rescale_batches=False, limit_drift=False),
            "quick": Pgps(n_draws=50, field_updates=20, adjustment_steps=30, langevin_steps=100),
            # Langevin steps a tenth as long, four times as many: stable on posteriors ten times as sharp.
            "accurate": Pgps(adjustment_steps=1_200, langevin_steps=4_000, step_size=0.01),
        }


class Emitting(NamedTuple):
    """Carry of the last phase."""

    particles: Particles
    logdensity: PerParticle
    start_logdensity: Scalar
    index: Int[Array, ""]


class PathRecord(NamedTuple):
    """History of the path."""

    time: Scalar
    loss: Scalar  # of the field at its last update
    updates: Scalar
    speed: Scalar  # mean length of the field at the particles


class LangevinRecord(NamedTuple):
    """History of the Langevin steps at t = 1."""

    logdensity: Scalar  # mean over particles, as the step's batch has it


# In compiled code the numbers of a phase are arguments; see `Phase`.
_register_phase = partial(jax.tree_util.register_dataclass, drop_fields=["name"])


@partial(
    _register_phase,
    data_fields=[
        "route", "langevin", "n_steps", "largest_time_step", "largest_displacement", "updates", "tolerance",
        "learning_rate", "adjustment_interval", "adjustment_steps",
    ],
    meta_fields=["n_particles", "width"],
)  # fmt: skip
@dataclass(frozen=True, kw_only=True)
class FollowPath:
    """From t = 0 to t = 1: learn the field with the particles at rest, move them along it, adjust them now and then."""

    record: ClassVar[type] = PathRecord
    name: str = "path"
    route: Route
    langevin: Langevin
    n_steps: int
    largest_time_step: float
    largest_displacement: float
    updates: int
    tolerance: float
    learning_rate: float
    adjustment_interval: float
    adjustment_steps: int
    n_particles: int
    width: int

    @property
    def n_records(self) -> int:
        """A short history for plots."""
        return min(self.n_steps, HISTORY)

    def init(self, key: Key, carry: Position, target: Target) -> Cloud:
        """Draw the particles from p_0; of the position only shape and type matter."""
        particle_key, field_key = jax.random.split(key)
        shape = (self.n_particles, *carry.shape)
        particles = self.route.start_scale * jax.random.normal(particle_key, shape, carry.dtype)
        network = init_field(field_key, self.width, carry)
        zero = jnp.zeros((), carry.dtype)
        sums = jnp.zeros_like(particles) if self.route.accumulate_gradients else None
        start = _typical(jax.vmap(target.logdensity)(particles)).astype(carry.dtype)
        optimizer = optax.adam(self.learning_rate).init(network)
        return Cloud(particles, particles, zero, network, optimizer, CloudTally(start, zero, zero, zero, zero), sums)

    def step(self, key: Key, carry: Cloud, target: Target) -> tuple[Cloud, PathRecord]:
        """Advance t once; when the path has ended, stay."""
        batch_key, adjustment_key = jax.random.split(key)
        slope, finite, share, sums = self.route.slopes_by_batches(
            batch_key, carry.particles, carry.time, target, carry.sums, for_field=True
        )
        network, optimizer, loss, n_updates = train_field(
            carry.field,
            carry.optimizer,
            carry.particles,
            slope,
            finite,
            updates=jnp.where(carry.time < 1.0, self.updates, 0),
            tolerance=self.tolerance,
            learning_rate=self.learning_rate,
        )
        velocity, _ = network.at(carry.particles)
        speed = jnp.mean(jnp.linalg.norm(velocity, axis=1))
        time_step = jnp.minimum(
            jnp.minimum(self.largest_displacement / speed, self.largest_time_step), 1.0 - carry.time
        )
        time = carry.time + time_step
        time = jnp.where(time > 1.0 - _TIME_ROUNDING, 1.0, time).astype(carry.time.dtype)
        cloud = carry._replace(field=network, optimizer=optimizer, time=time, sums=sums)
        # A particle whose density is not finite may still be carried out of there.
        cloud = move(remember(cloud, finite), carry.particles + time_step * velocity, jnp.ones_like(finite), share)
        passed = self._interval(time) > self._interval(carry.time)
        cloud = jax.lax.fori_loop(
            0,
            jnp.where(passed, self.adjustment_steps, 0),
            lambda index, cloud: self.langevin.step(
                jax.random.fold_in(adjustment_key, index), cloud, self.route, target
            )[0],
            cloud,
        )
        return cloud, PathRecord(time, loss, n_updates, speed)

    def _interval(self, time: Scalar) -> Scalar:
        return jnp.floor(time / self.adjustment_interval + _TIME_ROUNDING)

    def finish(self, carry: Cloud) -> Finished:
        """Hand the particles on; a cloud that did not reach the end of the path counts as frozen."""
        status = _status(carry)
        status = jnp.where((status == Status.OK) & (carry.time < 1.0), Status.FROZEN, status)
        return Finished(carry, status, _report(carry, self.langevin.step_size) | {"time": carry.time})


@partial(_register_phase, data_fields=["route", "langevin", "n_steps"], meta_fields=[])
@dataclass(frozen=True, kw_only=True)
class Settle:
    """Langevin steps on the target itself."""

    record: ClassVar[type] = LangevinRecord
    name: str = "langevin"
    route: Route
    langevin: Langevin
    n_steps: int

    @property
    def n_records(self) -> int:
        """A short history for plots."""
        return min(self.n_steps, HISTORY)

    def init(self, key: Key, carry: Cloud, target: Target) -> Cloud:
        """Reset the counters, at t = 1."""
        zero = jnp.zeros_like(carry.time)
        tally = carry.tally._replace(gradients=zero, moves=zero, reverted=zero, limited=zero)
        return carry._replace(time=jnp.ones_like(carry.time), tally=tally)

    def step(self, key: Key, carry: Cloud, target: Target) -> tuple[Cloud, LangevinRecord]:
        """Make one step with each particle."""
        cloud, logdensity = self.langevin.step(key, carry, self.route, target)
        return cloud, LangevinRecord(logdensity)

    def finish(self, carry: Cloud) -> Finished:
        """Hand the particles on."""
        return Finished(carry, _status(carry), _report(carry, self.langevin.step_size))


@partial(_register_phase, data_fields=["n_steps", "n_records", "step_size"], meta_fields=[])
@dataclass(frozen=True, kw_only=True)
class Emit:
    """Record the particles, one a step."""

    name: str = "sampling"
    n_steps: int
    n_records: int
    step_size: float

    def init(self, key: Key, carry: Cloud, target: Target) -> Emitting:
        """Evaluate the particles on all rows; one whose density is not finite goes back to where it last was."""
        logdensity = jax.vmap(target.logdensity)(carry.particles)
        safe = jax.vmap(target.logdensity)(carry.safe)
        finite = jnp.isfinite(logdensity)
        particles = jnp.where(finite[:, None], carry.particles, carry.safe)
        logdensity = jnp.where(finite, logdensity, safe).astype(particles.dtype)
        return Emitting(particles, logdensity, carry.tally.start_logdensity, jnp.zeros((), jnp.int32))

    def step(self, key: Key, carry: Emitting, target: Target) -> tuple[Emitting, Draw]:
        """Emit the next particle."""
        logdensity = carry.logdensity[carry.index]
        draw = Draw(carry.particles[carry.index], logdensity, jnp.zeros_like(logdensity))
        return carry._replace(index=carry.index + 1), draw

    def finish(self, carry: Emitting) -> Finished:
        """Judge the cloud as a whole."""
        logdensity = _typical(carry.logdensity)
        fall = carry.start_logdensity - logdensity
        failures = [
            ~jnp.isfinite(logdensity),
            fall > LARGEST_FALL_PER_DIMENSION * carry.particles.shape[1],
        ]
        status = jnp.select(failures, [Status.NON_FINITE, Status.DIVERGED], Status.OK)
        step_size = jnp.asarray(self.step_size, logdensity.dtype)
        report = {"step_size": step_size, "L": jnp.full_like(step_size, jnp.nan), "logdensity": logdensity}
        return Finished(carry, status, report)


def _typical(logdensity: PerParticle) -> Scalar:
    """Return the median, which a few lost particles do not change; NaN if one is not finite."""
    return jnp.where(jnp.isfinite(logdensity).all(), jnp.median(logdensity), jnp.nan)


def _status(cloud: Cloud) -> Int[Array, ""]:
    tally = cloud.tally
    return jnp.select(
        [~jnp.isfinite(tally.start_logdensity), tally.reverted > LARGEST_BAD_SHARE * tally.moves],
        [Status.NON_FINITE_START, Status.BAD_STEPS],
        Status.OK,
    )


def _report(cloud: Cloud, step_size: Number) -> dict[str, Scalar]:
    return {
        "step_size": jnp.asarray(step_size, cloud.time.dtype),
        "gradient_evaluations": cloud.tally.gradients,
        "bad_steps": cloud.tally.reverted,
        "limited_steps": cloud.tally.limited,
    }
