"""The contract of a sampler: an immutable configuration that is a tuple of phases.

To add one, write one file in this folder with a class like these, registered by its name.
"""

from collections.abc import Mapping
from dataclasses import Field, fields, replace
from typing import ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from mile._checks import check_count, check_number, check_tuple
from mile._types import Key, Position, PyTree, Scalar, Target

# Beyond these limits a chain has failed; they are far outside what healthy chains show.
LARGEST_BAD_SHARE = 0.05  # of the steps of a phase
SMALLEST_TRAVEL = 0.1
LARGEST_FALL_PER_DIMENSION = 10.0  # of the log density since the start
HISTORY = 200  # records kept of each tuning phase, enough for a plot
# Units differ by no more than this factor from their root mean square: a coordinate that has hardly moved yet is not
# known to be that narrow.
_WIDEST_UNITS = 1e3
_BUDGETS = ("warmup_steps", "sampling_steps", "n_draws")


Numbers = TypeVar("Numbers", Array, np.ndarray)  # of one chain in compiled code, of all chains outside


class Tuned(NamedTuple, Generic[Numbers]):
    """What tuning found, per chain; it travels whole. A sampler without a notion of one leaves NaN."""

    step_size: Numbers  # one number a chain
    L: Numbers
    inverse_mass: Numbers | None = None


class Health(NamedTuple):
    """How one chain fares: where it began, and counters of the phase under way."""

    start_logdensity: Scalar
    bad_steps: Int[Array, ""]
    squared_energy: Scalar  # sum over the phase's steps of the squared energy change
    refused_steps: Int[Array, ""]  # taken back because of their energy change


class Finished(NamedTuple):
    """What a phase hands on: the next phase's carry, a status code, and named numbers for the record."""

    carry: PyTree
    status: Int[Array, ""]
    report: dict[str, Array]


class Phase(Protocol):
    """One stage of a chain: pure, hashable, written for one chain; the loop in `sampling/loop.py` runs it in blocks.

    Every phase but the last also says what it records, in the class variable `record`, a NamedTuple of numbers.

    A phase is a pytree. Its leaves, such as budgets, enter compiled code as arguments, so that one program serves
    all their values; static is only what decides shapes. The name should be neither: then phases that differ in
    numbers alone share their programs. It is also a dataclass: a time limit replaces its budget.

    Checkpoints hold the carry, and some names in it have a meaning there, see `sampling/record_checks.py`: `index` and
    `steps` count steps, and a healthy chain has no NaN.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[object]]]

    @property
    def name(self) -> str:
        """What progress bars and reports call it."""
        ...

    @property
    def n_steps(self) -> int:
        """Its whole budget."""
        ...

    @property
    def n_records(self) -> int:
        """Records kept, evenly spaced at the end of the phase."""
        ...

    def init(self, key: Key, carry: PyTree, target: Target) -> PyTree:
        """Turn what the previous phase left (first phase: a position) into this phase's carry."""
        ...

    def step(self, key: Key, carry: PyTree, target: Target) -> tuple[PyTree, PyTree]:
        """Advance one step and say what might be recorded."""
        ...

    def finish(self, carry: PyTree) -> Finished:
        """Draw conclusions."""
        ...


class EnergySchedule(Protocol):
    """The variance of the energy change per dimension that tuning wants, from step to step."""

    @property
    def end(self) -> float:
        """What it wants at last, and while sampling."""
        ...

    def value(self, step: Scalar, phase_one_steps: int, total_steps: int) -> Scalar:
        """Return the level wanted at `step`."""
        ...


class Sampler(Protocol):
    """A configured method, a frozen dataclass; the last phase records `Draw`s.

    Take the answers to the last two questions from `SamplerDefaults` unless the method differs.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[object]]]

    @property
    def name(self) -> str:
        """What `sampler=` calls it."""
        ...

    @property
    def n_draws(self) -> int:
        """Draws kept of each chain."""
        ...

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The stages of one chain."""
        ...

    def gradient_evaluations(self) -> int:
        """Gradient evaluations on all rows that one chain will cost."""
        ...

    def with_start(self, step_size: float) -> "Sampler":
        """Fill in the starting step size if it was left open."""
        ...

    @property
    def needs_rows(self) -> bool:
        """Whether it works with single rows of a data set, so that a bare log density is not enough."""
        ...

    @property
    def energy_schedule(self) -> EnergySchedule | None:
        """What tuning wants of the energy change; None for a method that is not tuned by it."""
        ...


class SamplerDefaults:
    """What most samplers answer."""

    @property
    def needs_rows(self) -> bool:
        """Whether it works with single rows: no, the log density is enough."""
        return False

    @property
    def energy_schedule(self) -> EnergySchedule | None:
        """What tuning wants of the energy change: nothing."""
        return None


class NamedSampler(Sampler, Protocol):
    """What a registered sampler has besides."""

    title: ClassVar[str]  # what pages and tables call it

    @classmethod
    def presets(cls) -> Mapping[str, Self]:
        """Return configurations by name; "paper" is what its paper used, "quick" and "accurate" are there too.

        The estimators' preset is "default"; where it is missing, "paper" stands for it.
        """
        ...


class Draw(NamedTuple):
    """One kept draw."""

    position: Position
    logdensity: Scalar
    energy_change: Scalar


class HasBudgets(Protocol):
    """A sampler that counts steps."""

    @property
    def warmup_steps(self) -> int:
        """Steps of tuning."""
        ...

    @property
    def sampling_steps(self) -> int:
        """Steps of which draws are kept."""
        ...

    @property
    def n_draws(self) -> int:
        """Draws kept of each chain."""
        ...


def budgets_of(sampler: Sampler) -> dict[str, int]:
    """Return the budgets that a sampler has, by name: of tuning steps, sampling steps and draws."""
    known = {field.name for field in fields(sampler)}
    return {name: getattr(sampler, name) for name in _BUDGETS if name in known}


def check_budgets(sampler: HasBudgets, smallest_warmup: int = 1) -> None:
    """Refuse budgets that are impossible, alone or together."""
    check_count("warmup_steps", sampler.warmup_steps, smallest=smallest_warmup)
    check_count("sampling_steps", sampler.sampling_steps)
    check_count("n_draws", sampler.n_draws)
    if sampler.n_draws > sampler.sampling_steps:
        raise ValueError(
            f"n_draws ({sampler.n_draws}) must not exceed sampling_steps ({sampler.sampling_steps}): "
            "ask for fewer draws or more steps."
        )


def resized(sampler: Sampler, n_draws: int) -> Sampler:
    """Return the sampler whose chains are the same but longer or shorter, with so many draws at the same spacing.

    Raises
    ------
    ValueError
        If its chains would not be the same: its tuning depends on the number of draws, or it has no such budget.
    """
    budgets = budgets_of(sampler)
    n_steps, before = budgets.get("sampling_steps"), budgets.get("n_draws")
    if n_steps is not None and before is not None and n_draws > 0:
        thinning = spacing(n_steps, before)
        first = n_steps - thinning * before  # steps before the first that is recorded
        steps = first + thinning * n_draws
        if spacing(steps, n_draws) == thinning:
            found = replace(sampler, sampling_steps=steps, n_draws=n_draws)
            if _same_chains(sampler, found):
                return found
    raise ValueError(
        f"chains of {sampler.name} with {n_draws:,} draws are not those with {before:,} continued: "
        if before is not None
        else f"chains of {sampler.name} cannot be continued: " + "fit from the start."
    )


def _same_chains(one: Sampler, other: Sampler) -> bool:
    *before, last = one.phases
    *also, longer = other.phases
    return before == also and replace(last, n_steps=longer.n_steps, n_records=longer.n_records) == longer


def check_fractions(fractions: tuple[float, ...], count: int) -> None:
    """Refuse shares of the warm-up that are not `count` positive numbers with the sum 1."""
    if len(check_tuple("fractions", fractions, f"{count} numbers")) != count:
        raise ValueError(f"fractions must be a tuple of {count} numbers; got {fractions!r}.")
    for fraction in fractions:
        check_number("each entry of fractions", fraction, positive=True)
    if abs(sum(fractions) - 1.0) > 1e-6:
        raise ValueError(f"fractions must sum to 1; got {fractions!r}.")


def inverse_mass_from(variance: Position) -> Position:
    """Return variances as a metric: within bounds, and all 1 where nothing is known."""
    typical = jnp.mean(variance)
    known = jnp.isfinite(typical) & (typical > 0.0)
    return jnp.where(known, jnp.clip(variance, typical / _WIDEST_UNITS**2, typical * _WIDEST_UNITS**2), 1.0)


def spacing(n_steps: int, n_records: int) -> int:
    """Return how many steps lie between kept records; the last spacing x n_records steps are kept."""
    return max(1, n_steps // max(n_records, 1))
