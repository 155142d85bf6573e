"""Adjusted MCLMC (MAMS, Robnik et al. 2025): microcanonical trajectories with a Metropolis test, from a MILE chain."""

from dataclasses import dataclass, replace
from typing import ClassVar

from mile import _registry
from mile._checks import check_count, check_number
from mile.samplers import _mclmc
from mile.samplers._adjusted_phases import AdjustedAdaptationPhase, AdjustedSamplingPhase
from mile.samplers._phases import MileStepSizePhase
from mile.samplers._step_size import Linear
from mile.samplers.base import SamplerDefaults, check_budgets, check_fractions

_N_SHARES = 6  # phases before sampling
_FEWEST_PROPOSALS = 100  # that the last phase of adaptation, and sampling, make on average, whatever the length
_MILE_MEMORY, _MILE_TRUST = 100.0, 1.5  # as in `Mile`, where their sources are


@_registry.sampler("adjusted")
@dataclass(frozen=True, kw_only=True)
class Adjusted(SamplerDefaults):
    """Adjusted MCLMC (MAMS): a Metropolis test keeps its draws free of discretization error.

    A step is one of the integrator, as in `Mile`; a proposal takes a random number of them. The defaults cost three
    times as much as MILE's.

    Examples
    --------
    >>> from mile.samplers.adjusted import Adjusted
    >>> Adjusted(warmup_steps=5_000, sampling_steps=1_000, n_draws=100).gradient_evaluations()
    12001
    """

    title: ClassVar[str] = "adjusted MCLMC"

    warmup_steps: int = 100_000
    sampling_steps: int = 80_000
    n_draws: int = 1_000  # as MILE
    # Shares of the warm-up: phases I and II of MILE; metric, metric again, length, and the step size for that length.
    fractions: tuple[float, ...] = (0.35, 0.1, 0.1, 0.2, 0.1, 0.15)
    target_acceptance: float = 0.9  # arXiv 2503.01707: in all of its benchmarks but the funnel
    # Trajectories per autocorrelation time; for a normal it makes the best length for second moments, about the root
    # of d, its own fixed point. The paper's benchmarks have 0.23 to 0.3, with another integrator.
    length_factor: float = 0.37
    step_size: float | None = None  # the first that MILE tries: the optimizer's learning rate; None leaves it open
    n_coordinates: int = 2_000  # as MILE: of the autocorrelation
    n_fft_samples: int = 1_000  # proposals of which the autocorrelation is computed

    def __post_init__(self) -> None:
        check_budgets(self, smallest_warmup=_N_SHARES)
        check_count("n_coordinates", self.n_coordinates)
        check_count("n_fft_samples", self.n_fft_samples, smallest=4)
        check_fractions(self.fractions, _N_SHARES)
        if self._phase_steps()[0] < 1:
            raise ValueError(f"warmup_steps ({self.warmup_steps}) leaves no step for phase I.")
        check_number("target_acceptance", self.target_acceptance, positive=True, largest=0.999)
        check_number("length_factor", self.length_factor, positive=True)
        if self.step_size is not None:
            check_number("step_size", self.step_size, positive=True)

    def _phase_steps(self) -> tuple[int, ...]:
        later = [max(1, round(fraction * self.warmup_steps)) for fraction in self.fractions[1:]]
        return self.warmup_steps - sum(later), *later

    @property
    def name(self) -> str:
        """Its name in the registry."""
        return "adjusted"

    @property
    def phases(self) -> tuple[MileStepSizePhase | AdjustedAdaptationPhase | AdjustedSamplingPhase, ...]:
        """Phases I and II of MILE, four of adaptation, and sampling."""
        if self.step_size is None:
            raise ValueError("step_size is open: call with_start(step_size) before running the sampler.")
        first, second, metric, again, length, last = self._phase_steps()
        longest = max(1, min(last, self.sampling_steps) // _FEWEST_PROPOSALS)
        tuning = MileStepSizePhase(
            name="phase I",
            n_steps=first,
            first_steps=first,
            total_steps=first + second,
            schedule=Linear(),
            step_size=self.step_size,
            memory=_MILE_MEMORY,
            trust=_MILE_TRUST,
        )
        adapting = AdjustedAdaptationPhase(
            name="metric I",
            n_steps=metric,
            longest=longest,
            target_acceptance=self.target_acceptance,
            length_factor=self.length_factor,
            sets_metric=True,
            sets_length=False,
            n_coordinates=self.n_coordinates,
            capacity=self.n_fft_samples,
        )
        return (
            tuning,
            replace(tuning, name="phase II", n_steps=second),
            adapting,
            replace(adapting, name="metric II", n_steps=again),
            replace(adapting, name="length", n_steps=length, sets_length=True),
            replace(adapting, name="step size", n_steps=last, sets_metric=False),
            AdjustedSamplingPhase(
                name="sampling", n_steps=self.sampling_steps, n_records=self.n_draws, longest=longest
            ),
        )

    def gradient_evaluations(self) -> int:
        """Gradient evaluations of one chain: two a step, and one at the start."""
        return _mclmc.GRADIENTS_PER_STEP * (self.warmup_steps + self.sampling_steps) + 1

    def with_start(self, step_size: float) -> "Adjusted":
        """Return this configuration with `step_size` where none was given."""
        return self if self.step_size is not None else replace(self, step_size=step_size)

    @classmethod
    def presets(cls) -> dict[str, "Adjusted"]:
        """Return configurations by name; "paper" is what its paper used."""
        return {
            "paper": Adjusted(),
            # A tenth of the steps: for a first look, not for a result.
            "quick": Adjusted(warmup_steps=10_000, sampling_steps=8_000, n_draws=200),
            # There is no discretization error to reduce, only more of the posterior to see.
            "accurate": Adjusted(warmup_steps=200_000, sampling_steps=520_000),
        }
