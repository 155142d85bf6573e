"""Check the cost model: time of a step on one core, predicted from few measurements and measured at other sizes.

The share of the peak that gradients reach depends on the width of the layers, so each network has its own, from one
size; what a step costs beside its gradients comes from tables of few rows. Then other tables are predicted. Processor
time counts, so that other processes hardly matter.
"""

import statistics
import sys
import time
from dataclasses import asdict
from pathlib import Path

import jax
import numpy as np
from threadpoolctl import threadpool_limits

from mile._progress import Silent
from mile.execution import InProcess
from mile.likelihoods import Gaussian
from mile.networks import MLP
from mile.padded_rows import pad_rows
from mile.posterior import Posterior
from mile.priors import Normal
from mile.samplers import Mile
from mile.sampling.chains import run_chains

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _common import Row, command_line, progress, regression_data
from scaling import record
from scaling.costs import Problem, Speed

_NARROW, _MIDDLE, _WIDE = (16, 16), (64, 64), (128, 128, 128)
_FEW_ROWS = 192  # two tiles of the native kernel
CALIBRATION = {
    "narrow": Problem(name="narrow", n_rows=32_011, n_inputs=9, hidden=_NARROW),
    "narrow, few rows": Problem(name="narrow, few rows", n_rows=_FEW_ROWS, n_inputs=9, hidden=_NARROW),
    "middle": Problem(name="middle", n_rows=8_000, n_inputs=12, hidden=_MIDDLE),
    "wide": Problem(name="wide", n_rows=8_000, n_inputs=12, hidden=_WIDE),
    "wide, few rows": Problem(name="wide, few rows", n_rows=_FEW_ROWS, n_inputs=12, hidden=_WIDE),
}
PREDICTED = [
    (Problem(name="airfoil, 16-16", n_rows=1_052, n_inputs=5, hidden=_NARROW), "narrow"),
    (Problem(name="bikesharing, 16-16", n_rows=12_165, n_inputs=12, hidden=_NARROW), "narrow"),
    (Problem(name="a million rows, 16-16", n_rows=1_000_000, n_inputs=8, hidden=_NARROW), "narrow"),
    (Problem(name="1,000 rows, 64-64", n_rows=1_000, n_inputs=12, hidden=_MIDDLE), "middle"),
    (Problem(name="30,000 rows, 64-64", n_rows=30_000, n_inputs=12, hidden=_MIDDLE), "middle"),
    (Problem(name="2,000 rows, 128-128-128", n_rows=2_000, n_inputs=12, hidden=_WIDE), "wide"),
]
TOLERANCE = 0.15  # the machine itself varies by about ten percent
_ASSUMED = 4e10  # operations per second, only to choose a number of steps
_PEAK_SIZE, _PEAK_PRODUCTS = 1_024, 4


def main(quick: bool = False) -> list[Row]:
    seconds, repetitions = (0.1, 3) if quick else (1.0, 7)
    timers = {}
    for problem in [*CALIBRATION.values(), *(problem for problem, _ in PREDICTED)]:
        progress(f"steps: compiling for {problem.name}")
        timers[problem.name] = StepTimer(problem, seconds)
        timers[problem.name]()
    progress("steps: taking turns")
    turns = [[one_core_peak(), *(timer() for timer in timers.values())] for _ in range(repetitions)]
    peak, *medians = (statistics.median(column) for column in zip(*turns, strict=True))
    times = dict(zip(timers, medians, strict=True))
    speeds = calibrate(times, peak)
    rows = [_row(problem, speeds[network], times[problem.name]) for problem, network in PREDICTED]
    if not quick:
        record.write(
            "steps",
            {
                "speeds": {network: asdict(speed) for network, speed in speeds.items()},
                "rows": [asdict(row) for row in rows],
            },
        )
    return rows


def calibrate(times: dict[str, float], peak: float) -> dict[str, Speed]:
    """Solve for the share of the peak of each network, and what a step costs beside its gradients."""

    def flops(name: str) -> float:
        return 2 * CALIBRATION[name].gradient_flops

    rates, rest = {}, {}
    for network in ("narrow", "wide"):
        few = f"{network}, few rows"
        rates[network] = (flops(network) - flops(few)) / (times[network] - times[few])
        rest[network] = times[few] - flops(few) / rates[network]
    dimensions = {network: CALIBRATION[network].dimension for network in CALIBRATION}
    coordinate = (rest["wide"] - rest["narrow"]) / (dimensions["wide"] - dimensions["narrow"])
    step = rest["narrow"] - coordinate * dimensions["narrow"]
    rates["middle"] = flops("middle") / (times["middle"] - step - coordinate * dimensions["middle"])
    return {
        network: Speed(peak=peak, share=rate / peak, step_seconds=step, coordinate_seconds=coordinate)
        for network, rate in rates.items()
    }


class StepTimer:
    """Times a step of one chain on one core."""

    def __init__(self, problem: Problem, seconds: float) -> None:
        network = MLP(n_inputs=problem.n_inputs, hidden=problem.hidden)
        self._posterior = Posterior(
            rows=pad_rows(*regression_data(problem.n_rows, problem.n_inputs)),
            network=network,
            likelihood=Gaussian(),
            prior=Normal(),
        )
        self._starts = np.asarray(network.init(jax.random.key(0)))[None]
        self._n_steps = max(4, round(_ASSUMED * seconds / (2 * problem.gradient_flops)))
        n_draws = max(1, self._n_steps // 10)
        self._sampler = Mile(warmup_steps=10, sampling_steps=self._n_steps, n_draws=n_draws, step_size=1e-3)

    def __call__(self) -> float:
        clock = _ProcessorClock()
        run_chains(self._sampler, self._posterior, self._starts, seed=0, progress=clock, backend=InProcess(n_threads=1))
        return clock.seconds["sampling"] / self._n_steps


class _ProcessorClock(Silent):
    """Remembers the processor time of each stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def start(self, stage: str, total: int, *, unit: str = "steps", n_chains: int = 1) -> None:
        self._stage, self._began = stage, time.process_time()

    def finish(self) -> None:
        self.seconds[self._stage] = time.process_time() - self._began


def one_core_peak() -> float:
    """Return the operations per second of float32 matrix products on one core."""
    left, right = np.random.default_rng(0).standard_normal((2, _PEAK_SIZE, _PEAK_SIZE), np.float32)
    out = np.empty_like(left)
    with threadpool_limits(1):
        np.matmul(left, right, out=out)
        began = time.process_time()
        for _ in range(_PEAK_PRODUCTS):
            np.matmul(left, right, out=out)
        return _PEAK_PRODUCTS * 2.0 * _PEAK_SIZE**3 / (time.process_time() - began)


def _row(problem: Problem, speed: Speed, measured: float) -> Row:
    predicted = speed.seconds_per_step(problem)
    return Row(
        name=problem.name,
        value=1e3 * predicted,
        unit="ms",
        peer=1e3 * measured,
        ratio=predicted / measured,
        low=1 - TOLERANCE,
        high=1 + TOLERANCE,
        note=f"{problem.dimension:,} parameters; ours: predicted, peer: measured; share of one core's peak "
        f"{speed.share:.2f}",
    )


if __name__ == "__main__":
    command_line(main)
