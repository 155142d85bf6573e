"""MCLMC tuned as published, the baseline of MILE's changes: its failures are counted, not hidden."""

from dataclasses import dataclass, replace
from typing import ClassVar

from mile import _registry
from mile._checks import check_count, check_number
from mile.samplers import _mclmc
from mile.samplers._naive_phases import NaiveLengthPhase, NaiveSamplingPhase, NaiveStepSizePhase
from mile.samplers._published import Guarded, Unguarded
from mile.samplers.base import SamplerDefaults, check_budgets, check_fractions


@_registry.sampler("naive_mclmc")
@dataclass(frozen=True, kw_only=True)
class NaiveMclmc(SamplerDefaults):
    """MCLMC tuned as published, the baseline of MILE's changes; the defaults are the paper's failure study.

    The study (in the paper's code: experiments/feasibility) changes three things of MILE: the first step size, a
    constant energy variance, and none of our guards. BlackJAX's own defaults are the preset "accurate".
    """

    title: ClassVar[str] = "naive MCLMC"

    warmup_steps: int = 50_000
    sampling_steps: int = 10_000
    n_draws: int = 1_000
    fractions: tuple[float, float, float] = (0.8, 0.1, 0.1)  # share of the three phases
    step_size: float | None = None  # first to try; None: `start_factor` times the root of the dimension
    start_factor: float = 1.0  # the study's 26 is the root of 674, the dimension of its first network
    shortest_length: float = 15.0  # L while the step size is tuned is the root of the dimension, but at least this
    energy_variance: float = 5e-4  # wanted, per dimension
    step_size_memory: float = 100.0
    trust: float = 1.5
    length_factor: float = 0.4  # Robnik et al. 2023: L = 0.4 step_size x autocorrelation time
    preconditioned: bool = False  # whether variances seen in phase II become the units of the coordinates
    guarded: bool = False  # whether a step that is not finite is reverted, in all phases
    n_coordinates: int = 2_000  # in phase III, as for MILE
    n_fft_samples: int = 10_000

    def __post_init__(self) -> None:
        check_budgets(self, smallest_warmup=10)
        check_count("n_coordinates", self.n_coordinates)
        check_count("n_fft_samples", self.n_fft_samples, smallest=4)
        check_fractions(self.fractions, 3)
        if self._phase_steps()[0] < 1:
            raise ValueError(f"warmup_steps ({self.warmup_steps}) leaves no step for phase I.")
        if self.step_size is not None:
            check_number("step_size", self.step_size, positive=True)
        check_number("shortest_length", self.shortest_length, smallest=0.0)
        check_number("step_size_memory", self.step_size_memory, smallest=1.0)
        for name in ("start_factor", "energy_variance", "trust", "length_factor"):
            check_number(name, getattr(self, name), positive=True)

    def _phase_steps(self) -> tuple[int, int, int, int]:
        """Return the steps of phases I, II, II again in new units (a third as many) and III."""
        first, second, third = self.fractions
        again = second / 3.0 if self.preconditioned else 0.0
        share = self.warmup_steps / (first + second + again + third)
        n_second, n_third = max(1, round(share * second)), max(2, round(share * third))
        n_again = max(1, round(share * again)) if self.preconditioned else 0
        return self.warmup_steps - n_second - n_again - n_third, n_second, n_again, n_third

    @property
    def name(self) -> str:
        """Its name in the registry."""
        return "naive_mclmc"

    @property
    def phases(self) -> tuple[NaiveStepSizePhase | NaiveLengthPhase | NaiveSamplingPhase, ...]:
        """Phases I, II, III and sampling; with new units also the second half of phase II."""
        first, second, again, third = self._phase_steps()
        rule = Guarded() if self.guarded else Unguarded()
        tuning = NaiveStepSizePhase(
            name="phase I",
            n_steps=first,
            step_size=self.step_size,
            start_factor=self.start_factor,
            shortest_length=self.shortest_length,
            energy_variance=self.energy_variance,
            memory=self.step_size_memory,
            trust=self.trust,
            rule=rule,
        )
        retuning = replace(tuning, name="phase II, new units", n_steps=again, new_units=True)
        thinning = -(-third // self.n_fft_samples)
        return (
            tuning,
            replace(tuning, name="phase II", n_steps=second),
            *([retuning] if self.preconditioned else []),
            NaiveLengthPhase(
                name="phase III",
                n_steps=third,
                thinning=thinning,
                factor=self.length_factor,
                shortest_length=self.shortest_length,
                capacity=third // thinning,
                n_coordinates=self.n_coordinates,
                new_units=self.preconditioned,
                rule=rule,
            ),
            NaiveSamplingPhase(name="sampling", n_steps=self.sampling_steps, n_records=self.n_draws, rule=rule),
        )

    def gradient_evaluations(self) -> int:
        """Return the cost of a chain that is not lost: two gradients a step, and one at the start."""
        return _mclmc.GRADIENTS_PER_STEP * (self.warmup_steps + self.sampling_steps) + 1

    def with_start(self, step_size: float) -> "NaiveMclmc":
        """Return this: its first step size follows from the dimension."""
        return self

    @classmethod
    def presets(cls) -> dict[str, "NaiveMclmc"]:
        """Return configurations by name; "paper" is what its paper used."""
        return {
            # The paper's failure study.
            "paper": NaiveMclmc(),
            # A tenth of its steps.
            "quick": NaiveMclmc(warmup_steps=5_000, sampling_steps=1_000, n_draws=200),
            # BlackJAX's defaults: three phases of a tenth of the sampling steps each, and a third of that again in new
            # units; the steps are 60,000 in all, as many as MILE makes.
            "accurate": NaiveMclmc(
                warmup_steps=15_000,
                sampling_steps=45_000,
                fractions=(1 / 3, 1 / 3, 1 / 3),
                start_factor=0.25,
                shortest_length=0.0,
                step_size_memory=150.0,
                preconditioned=True,
                guarded=True,
            ),
        }
