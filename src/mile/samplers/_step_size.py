"""Step-size adaptation: keep the variance of the energy error per dimension at a wanted level.

The error's variance grows as the sixth power of the step size, so each step yields an estimate of the
constant in that law; a running average of these estimates, weighted by how far each is to be trusted,
gives the step size that meets the target.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from mile import _registry
from mile._checks import check_number
from mile._types import Count, Number, Scalar

_ENERGY_FLOOR = 1e-8  # keeps the logarithm of a zero error finite
_SHRINK = 0.8  # a step size that produced a non-finite step is never used again, nor are larger ones


Schedule = TypeVar("Schedule")


def _register_schedule(schedule: type[Schedule]) -> type[Schedule]:
    """Let a schedule's numbers enter compiled code as arguments."""

    def flatten(given: Schedule) -> tuple[tuple[object, ...], tuple[str, ...]]:
        return tuple(vars(given).values()), tuple(vars(given))

    def unflatten(names: tuple[str, ...], numbers: Iterable[object]) -> Schedule:
        # Not by its constructor, whose checks are for numbers and not for their stand-ins.
        rebuilt = object.__new__(schedule)
        vars(rebuilt).update(zip(names, numbers, strict=True))
        return rebuilt

    jax.tree_util.register_pytree_node(schedule, flatten, unflatten)
    return schedule


@_registry.schedule("linear")
@_register_schedule
@dataclass(frozen=True, kw_only=True)
class Linear:
    """Wanted energy variance per dimension, falling linearly over phases I and II (paper section 3.2)."""

    start: float = 0.5
    end: float = 0.1

    def __post_init__(self) -> None:
        check_number("start", self.start, positive=True)
        check_number("end", self.end, positive=True)

    def value(self, step: Scalar, phase_one_steps: Count, total_steps: Count) -> Scalar:
        """Return the level wanted at `step`."""
        return self.start + (self.end - self.start) * jnp.minimum(step / total_steps, 1.0)


@_registry.schedule("geometric")
@_register_schedule
@dataclass(frozen=True, kw_only=True)
class Geometric:
    """Wanted energy variance per dimension, falling geometrically over the first part of phase I."""

    start: float = 0.5
    end: float = 5e-4  # where known targets come out within a few percent (BlackJAX's default)
    fraction: float = 0.5

    def __post_init__(self) -> None:
        check_number("start", self.start, positive=True)
        check_number("end", self.end, positive=True)
        check_number("fraction", self.fraction, positive=True, largest=1.0)

    def value(self, step: Scalar, phase_one_steps: Count, total_steps: Count) -> Scalar:
        """Return the level wanted at `step`."""
        progress = jnp.minimum(step / (self.fraction * phase_one_steps), 1.0)
        return self.start * jnp.exp(progress * jnp.log(self.end / self.start))


@_registry.schedule("exponential")
@_register_schedule
@dataclass(frozen=True, kw_only=True)
class Exponential:
    """Wanted energy variance per dimension, decaying exponentially over phases I and II from a high start.

    The paper tried it and prefers the linear one (footnote of section 3.2); the authors' code has it wherever `start`
    is above 2. After the two phases 1.8 % (exp(-4)) of the way is left, with the default `decay`.
    """

    start: float = 10.0
    end: float = 0.1
    decay: float = 4.0  # time constants in phases I and II together; of the code

    def __post_init__(self) -> None:
        for name in ("start", "end", "decay"):
            check_number(name, getattr(self, name), positive=True)

    def value(self, step: Scalar, phase_one_steps: Count, total_steps: Count) -> Scalar:
        """Return the level wanted at `step`."""
        return self.end + (self.start - self.end) * jnp.exp(-self.decay * step / total_steps)


EnergySchedule = Linear | Geometric | Exponential


def check_schedule(schedule: object) -> None:
    """Refuse what is not a schedule of the wanted energy variance."""
    known = _registry.schedule.classes.values()
    if type(schedule) not in known:
        names = " or ".join(f"{kind.__name__}(...)" for kind in known)
        raise ValueError(f"schedule must be a {names}; got {schedule!r}.")


class StepSize(NamedTuple):
    """The running average: `estimate` / `weight` is the energy variance, relative to the wanted one, at `value`.

    The estimate is kept in units of the current step size to the sixth power: then it neither overflows nor
    underflows, however small the step.
    """

    value: Scalar
    estimate: Scalar
    weight: Scalar
    largest: Scalar


def init(step_size: Scalar) -> StepSize:
    """Start with nothing known but the first step size to try."""
    return StepSize(step_size, jnp.zeros_like(step_size), jnp.zeros_like(step_size), jnp.full_like(step_size, jnp.inf))


def update(
    average: StepSize,
    *,
    energy_change: Scalar,
    finite: Bool[Array, ""],
    dimension: int,
    target: Scalar,
    memory: Number,
    trust: Number,
) -> StepSize:
    """Take in one step's energy change and return the average with the next step size."""
    relative = jnp.square(energy_change) / (dimension * target) + _ENERGY_FLOOR
    trusted = jnp.exp(-0.5 * jnp.square(jnp.log(relative) / (6.0 * trust)))
    trusted = jnp.where(finite, trusted, 0.0)
    decay = (memory - 1.0) / (memory + 1.0)
    estimate = decay * average.estimate + trusted * relative
    weight = decay * average.weight + trusted
    largest = jnp.where(finite, average.largest, _SHRINK * average.value)
    wanted = average.value * jnp.where(weight > 0.0, (estimate / weight) ** (-1.0 / 6.0), jnp.inf)
    # Thousands of bad steps in a row would shrink it to zero, which has no sixth power to divide by.
    value = jnp.maximum(jnp.minimum(wanted, largest), jnp.finfo(wanted.dtype).tiny)
    return StepSize(value, estimate * (value / average.value) ** 6, weight, largest)
