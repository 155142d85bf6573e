"""Chains of the library on tables of a given size, timed stage by stage through its own progress reports."""

import time

import jax
import jax.numpy as jnp
import numpy as np
from _common import regression_data

from mile.likelihoods import Gaussian
from mile.networks import MLP
from mile.padded_rows import pad_rows
from mile.posterior import Posterior
from mile.priors import Normal
from mile.samplers import Mile
from mile.sampling.chains import run_chains

_GRADIENTS_PER_STEP = 2
_WARMUP_STEPS = 10  # enough to leave the first step size; not part of the timing
_THINNING = 10  # as in the paper
_ASSUMED_GFLOPS = 60.0  # only to choose a number of steps, so that it does not depend on the machine's mood


class Clock:
    """A progress report that remembers when each stage first began, first advanced and first ended."""

    def __init__(self) -> None:
        self.began: dict[str, float] = {}
        self.first_advance: dict[str, float] = {}
        self.ended: dict[str, float] = {}
        self._stage = ""

    def start(self, stage: str, total: int, *, unit: str = "steps", n_chains: int = 1) -> None:
        self._stage = stage
        self.began.setdefault(stage, time.time())

    def advance(self, amount: int) -> None:
        self.first_advance.setdefault(self._stage, time.time())

    def note(self, text: str) -> None: ...

    def say(self, text: str) -> None: ...

    def finish(self) -> None:
        self.ended.setdefault(self._stage, time.time())

    @property
    def seconds(self) -> dict[str, float]:
        """Duration of each stage."""
        return {stage: end - self.began[stage] for stage, end in self.ended.items()}


def gradient_flops(network: MLP, n_rows: int) -> float:
    """Count forward pass, weight gradients and input gradients; the first layer needs no input gradient."""
    products = sum(fan_in * fan_out for fan_in, fan_out in network.layer_sizes)
    return 2.0 * n_rows * (3 * products - network.n_inputs * network.hidden[0])


class SamplingTimer:
    """Times the sampling phase of a run of chains; what comes before it is run but not counted.

    The clock runs from the loop's first to its last word on the phase, so the host's work between blocks is
    part of the time and compilation is not, once a first call has been made.
    """

    def __init__(
        self,
        n_rows: int,
        n_inputs: int,
        hidden: tuple[int, ...],
        n_chains: int,
        seconds: float,
        activation: str = "relu",
    ) -> None:
        network = MLP(n_inputs=n_inputs, hidden=hidden, activation=activation)
        self._posterior = Posterior(
            rows=pad_rows(*regression_data(n_rows, n_inputs)), network=network, likelihood=Gaussian(), prior=Normal()
        )
        self._starts = jnp.stack([network.init(key) for key in jax.random.split(jax.random.key(0), n_chains)])
        self.dimension = network.dimension
        self.step_flops = _GRADIENTS_PER_STEP * n_chains * gradient_flops(network, n_rows)
        self.n_steps = max(4, round(1e9 * _ASSUMED_GFLOPS * seconds / self.step_flops))
        self._sampler = Mile(
            warmup_steps=_WARMUP_STEPS,
            sampling_steps=self.n_steps,
            n_draws=max(1, self.n_steps // _THINNING),
            step_size=1e-3,
        )

    def step_seconds(self) -> float:
        """Return the time of one step of all chains."""
        clock = Clock()
        chains = run_chains(self._sampler, self._posterior, self._starts, seed=0, progress=clock)
        # A step that is not finite costs as much, but a chain that never moves would measure something else.
        if not np.all(chains.info["sampling"]["bad_steps"] < 0.05 * self.n_steps):
            raise RuntimeError(f"chains broke down: {chains.info['sampling']['bad_steps']} bad steps of {self.n_steps}")
        return clock.seconds["sampling"] / self.n_steps

    def gflops(self) -> float:
        """Return the arithmetic rate of one run."""
        return 1e-9 * self.step_flops / self.step_seconds()
