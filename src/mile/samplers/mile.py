"""MILE: MCLMC from a trained start, tuned in three phases with a fixed budget (paper section 3)."""

from dataclasses import dataclass, replace
from typing import ClassVar

from mile import _registry
from mile._checks import check_count, check_flag, check_number
from mile.samplers import _mclmc
from mile.samplers._phases import MileLengthPhase, MileSamplingPhase, MileStepSizePhase
from mile.samplers._step_size import EnergySchedule, Geometric, Linear, check_schedule
from mile.samplers.base import SamplerDefaults, check_budgets, check_fractions

_SMALLEST_BUFFER = 512  # samples of phase III; below, memory is not worth a program of its own


@_registry.sampler("mile")
@dataclass(frozen=True, kw_only=True)
class Mile(SamplerDefaults):
    """MCLMC from a trained start, tuned in three phases with a fixed budget; the defaults are the paper's.

    Examples
    --------
    >>> from mile import Mile
    >>> Mile(warmup_steps=5_000, sampling_steps=1_000, n_draws=100).gradient_evaluations()
    12001
    """

    title: ClassVar[str] = "MILE"

    warmup_steps: int = 50_000  # section 3.3: 40k + 5k + 5k
    sampling_steps: int = 10_000  # section 3.3
    n_draws: int = 1_000  # section 3.3: thinning 10
    fractions: tuple[float, float, float] = (0.8, 0.1, 0.1)  # section 3.3: share of the three phases
    schedule: EnergySchedule = Linear()  # section 3.2: 0.5 to 0.1
    step_size: float | None = None  # section 3.2: the optimizer's learning rate; None leaves it to the caller
    # Section 3.2, "effective sample size": the average remembers about half as many. None: the text's rule, a tenth of
    # the draws but at least 100; the authors' code has 100 whatever the draws.
    step_size_memory: float | None = 100.0
    trust: float = 1.5  # figure 5d
    length_factor: float = 0.4  # Robnik et al. 2023: L = 0.4 step_size x autocorrelation time
    n_coordinates: int = 2_000  # section 3.2, phase III bottleneck
    n_fft_samples: int = 10_000  # section 3.2, phase III bottleneck
    # Precondition by the variances of phase II; its last third then tunes the step size in the new units.
    diagonal_metric: bool = False
    # Steps whose energy variance exceeds the wanted one this many times are taken back; None takes back none.
    energy_limit: float | None = None

    def __post_init__(self) -> None:
        check_budgets(self, smallest_warmup=3)
        check_count("n_coordinates", self.n_coordinates)
        check_count("n_fft_samples", self.n_fft_samples, smallest=4)
        check_fractions(self.fractions, 3)
        if self._phase_steps()[0] < 1:
            raise ValueError(f"warmup_steps ({self.warmup_steps}) leaves no step for phase I.")
        check_schedule(self.schedule)
        if self.step_size_memory is not None:
            check_number("step_size_memory", self.step_size_memory, smallest=1.0)
        check_number("trust", self.trust, positive=True)
        check_number("length_factor", self.length_factor, positive=True)
        if self.step_size is not None:
            check_number("step_size", self.step_size, positive=True)
        check_flag("diagonal_metric", self.diagonal_metric)
        if self.diagonal_metric and self._phase_steps()[1] < 3:
            raise ValueError(
                f"warmup_steps ({self.warmup_steps}) leaves fewer than three steps for phase II, which diagonal_metric "
                "cuts in three."
            )
        if self.energy_limit is not None:
            check_number("energy_limit", self.energy_limit, positive=True)

    def _phase_steps(self) -> tuple[int, int, int]:
        second, third = (max(1, round(fraction * self.warmup_steps)) for fraction in self.fractions[1:])
        return self.warmup_steps - second - third, second, third

    @property
    def name(self) -> str:
        """Its name in the registry."""
        return "mile"

    @property
    def phases(self) -> tuple[MileStepSizePhase | MileLengthPhase | MileSamplingPhase, ...]:
        """Phases I, II, III and sampling; with a diagonal metric a phase of its own after II."""
        if self.step_size is None:
            raise ValueError("step_size is open: call with_start(step_size) before running the sampler.")
        first, second, third = self._phase_steps()
        thinning = -(-third // self.n_fft_samples)
        tuning = MileStepSizePhase(
            name="phase I",
            n_steps=first,
            first_steps=first,
            total_steps=first + second,
            schedule=self.schedule,
            step_size=self.step_size,
            memory=max(100.0, self.n_draws / 10) if self.step_size_memory is None else self.step_size_memory,
            trust=self.trust,
            energy_limit=self.energy_limit,
        )
        again = second // 3 if self.diagonal_metric else 0
        metric = (replace(tuning, name="metric", n_steps=again, sets_metric=True),) if again else ()
        guard = {"energy_limit": self.energy_limit, "level": self.schedule.end}
        return (
            tuning,
            replace(tuning, name="phase II", n_steps=second - again),
            *metric,
            MileLengthPhase(
                name="phase III",
                n_steps=third,
                thinning=thinning,
                factor=self.length_factor,
                n_coordinates=self.n_coordinates,
                capacity=_buffer_size(third // thinning),
                **guard,
            ),
            MileSamplingPhase(name="sampling", n_steps=self.sampling_steps, n_records=self.n_draws, **guard),
        )

    def gradient_evaluations(self) -> int:
        """Gradient evaluations of one chain: two a step, and one at the start."""
        return _mclmc.GRADIENTS_PER_STEP * (self.warmup_steps + self.sampling_steps) + 1

    @property
    def energy_schedule(self) -> EnergySchedule:
        """What tuning wants of the energy change."""
        return self.schedule

    def with_start(self, step_size: float) -> "Mile":
        """Return this configuration with `step_size` where none was given."""
        return self if self.step_size is not None else replace(self, step_size=step_size)

    @classmethod
    def presets(cls) -> dict[str, "Mile"]:
        """Return configurations by name; "paper" is what its paper used."""
        return {
            "paper": Mile(),
            # Chosen on validation rows of six tables, with the networks of `MileRegressor` (experiments/presets):
            # smaller steps at the end, and fewer of them, because a step of those networks costs more.
            "default": Mile(warmup_steps=33_000, sampling_steps=7_000, schedule=Linear(end=0.01)),
            # A tenth of the paper's steps: for a first look, not for a result.
            "quick": Mile(warmup_steps=5_000, sampling_steps=1_000, n_draws=200),
            # Small discretization error needs small steps, hence more of them.
            "accurate": Mile(warmup_steps=200_000, sampling_steps=40_000, schedule=Geometric()),
        }


def _buffer_size(n_samples: int) -> int:
    """Round up by less than 512 or a quarter, so that similar budgets share programs."""
    step = max(_SMALLEST_BUFFER, (1 << n_samples.bit_length()) // 8)
    return -(-n_samples // step) * step
