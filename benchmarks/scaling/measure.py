"""Fits on a Dask cluster of one and two processes on this machine, against what the simulation predicts for them.

A short fit on one worker gives the time of a step, of a task's overhead and of start-up; the same on two gives how much
slower a step is when both cores work. With these numbers the simulation predicts longer fits of more chains. The short
fits run before and after the long ones, and the mean of their numbers counts, because machines have slow spells. Each
fit has a fresh cluster, and one before all others fills the compilation cache.
"""

import collections
import contextlib
import itertools
import logging
import re
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client, LocalCluster

from mile import Dataset, Gaussian, Mile, fit
from mile.ensemble.training import Patience, Training
from mile.execution import DaskBackend
from mile.networks import MLP

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _common import Row, command_line, progress, regression_data
from scaling import record
from scaling.costs import Problem, stages
from scaling.setting import Result, Setting
from scaling.simulate import simulate

PROBLEM = Problem(name="16,000 rows", n_rows=16_000, n_inputs=8, hidden=(16, 16))
BLOCK_SECONDS = 10.0
N_VALIDATION = 1_000
EPOCHS = 40
# Phase III then has room for the same number of samples in all fits, so that they share its programs.
N_FFT_SAMPLES = 400


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How much a fit does."""

    n_chains: int
    warmup_steps: int
    sampling_steps: int

    @property
    def sampler(self) -> Mile:
        return Mile(
            warmup_steps=self.warmup_steps,
            sampling_steps=self.sampling_steps,
            n_draws=self.sampling_steps // 10,
            n_fft_samples=N_FFT_SAMPLES,
        )


WARM = Budget(n_chains=2, warmup_steps=2_000, sampling_steps=100)
SHORT = Budget(n_chains=4, warmup_steps=4_000, sampling_steps=2_000)
LONG = Budget(n_chains=4, warmup_steps=40_000, sampling_steps=20_000)  # most of its time is in blocks of 5 s and more
QUICK = Budget(n_chains=3, warmup_steps=2_000, sampling_steps=500)
TRAINING = Training(max_epochs=EPOCHS, stopping=Patience(epochs=EPOCHS + 1))  # never stops, so the work is known


@dataclass(frozen=True, kw_only=True)
class Task:
    """One line of the log, as the backend wrote it."""

    stage: str
    kind: str  # "begin", "finish" or "block"
    n_steps: int  # or epochs; 0 of one that begins or finishes a phase
    seconds: float
    submitted: float
    received: float
    n_bytes: int


@dataclass(frozen=True, kw_only=True)
class Timed:
    """A fit that has been run."""

    n_workers: int
    seconds: float
    client_seconds: float  # processor time of this process, in which the scheduler runs too
    tasks: list[Task]  # in the order in which they were submitted

    @property
    def first(self) -> list[Task]:
        """The first task of each worker, stage and kind, which also loads its program."""
        seen: collections.Counter[tuple[str, str]] = collections.Counter()
        found = []
        for task in self.tasks:
            seen[task.stage, task.kind] += 1
            if seen[task.stage, task.kind] <= self.n_workers:
                found.append(task)
        return found

    @property
    def blocks(self) -> list[Task]:
        """The other blocks of steps and epochs."""
        return [task for task in self.tasks if task.kind == "block" and task not in self.first]

    def step_seconds(self, *names: str) -> float:
        """Return the seconds per step in some stages."""
        chosen = [task for task in self.blocks if task.stage in names]
        return sum(task.seconds for task in chosen) / sum(task.n_steps for task in chosen)


BEGUN = ("begin", "block")
PHASES = ("phase I", "phase II", "phase III", "sampling")


class TaskLog(logging.Handler):
    """Collects what the backend says of its tasks."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.tasks: list[Task] = []

    def emit(self, record: logging.LogRecord) -> None:
        about = getattr(record, "mile_task", None)
        if about is not None:
            self.tasks.append(read_task(about))


def read_task(about: dict[str, Any]) -> Task:
    """Read one line of the log."""
    # Names are "chain 3, sampling, steps 100 to 200", "chain 3, sampling, begin" and "member 3, epochs 0 to 25".
    who, *parts = about["stage"].split(", ")
    bounds = [int(number.replace(",", "")) for number in re.findall(r"[\d,]+", parts[-1])]
    return Task(
        stage="ensemble" if who.startswith("member") else parts[0],
        kind="block" if bounds else parts[-1],
        n_steps=bounds[1] - bounds[0] if bounds else 0,
        seconds=about["seconds"],
        submitted=about["submitted"],
        received=about["received"],
        n_bytes=about["bytes"],
    )


@contextlib.contextmanager
def listening() -> Iterator[TaskLog]:
    """Collect the log of tasks."""
    logger, log = logging.getLogger("mile.execution"), TaskLog()
    level = logger.level
    logger.addHandler(log)
    logger.setLevel(logging.DEBUG)
    try:
        yield log
    finally:
        logger.setLevel(level)
        logger.removeHandler(log)


def run(budget: Budget, n_workers: int, seed: int) -> Timed:
    """Fit on a fresh cluster; its start is not part of the time."""
    progress(f"measure: {budget.n_chains} chains on {n_workers} worker{'s' if n_workers > 1 else ''}")
    x, y = regression_data(PROBLEM.n_rows + N_VALIDATION, PROBLEM.n_inputs, seed)
    dataset = Dataset.from_arrays(x[: PROBLEM.n_rows], y[: PROBLEM.n_rows], x[PROBLEM.n_rows :], y[PROBLEM.n_rows :])
    with (
        LocalCluster(n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
        listening() as log,
    ):
        client.wait_for_workers(n_workers)
        began, processor = time.monotonic(), time.process_time()
        result = fit(
            dataset,
            MLP(n_inputs=PROBLEM.n_inputs, hidden=PROBLEM.hidden),
            Gaussian(),
            sampler=budget.sampler,
            training=TRAINING,
            n_chains=budget.n_chains,
            random_state=seed,
            backend=DaskBackend(client, block_seconds=BLOCK_SECONDS, verify=0.0),
        )
        seconds, processor = time.monotonic() - began, time.process_time() - processor
    if not result.chains.ok.all():
        raise RuntimeError(f"chains failed and were replaced, so the work is not the planned one: {result.status}")
    tasks = sorted(log.tasks, key=lambda task: task.submitted)
    return Timed(n_workers=n_workers, seconds=seconds, client_seconds=processor, tasks=tasks)


def calibrate(alone: Timed, together: Timed) -> dict[str, float]:
    """Take what the simulation needs from a fit on one worker and one on two."""
    pairs = list(itertools.pairwise(alone.tasks))
    first = alone.first
    # From one task of the only worker to the next, without its computing.
    gaps = [
        after.submitted - before.submitted - before.seconds
        for before, after in pairs
        if before not in first and (before.stage, before.kind) == (after.stage, after.kind)
    ]
    overhead = statistics.median(gaps)
    rates = {stage: alone.step_seconds(stage) for stage in {task.stage for task in alone.tasks}}
    loading = [task.received - task.submitted - task.n_steps * rates[task.stage] - overhead for task in first]
    short = [task.seconds for task in alone.tasks if task.kind != "block" and task not in first]
    waits = [after.submitted - before.received for before, after in pairs if (before.kind, after.kind) == BEGUN]
    return {
        "step_seconds": alone.step_seconds(*PHASES),
        "epoch_seconds": rates["ensemble"],
        "sharing": together.step_seconds(*PHASES) / alone.step_seconds(*PHASES),
        "overhead_seconds": overhead,
        "short_seconds": statistics.median(short),
        "prepare_seconds": statistics.mean(waits),
        "startup_seconds": max(0.0, loading[0] - statistics.mean(loading[1:])),  # what all programs need
        "program_seconds": max(0.0, statistics.mean(loading[1:])),
        # Before the first task and after the last.
        "fixed_seconds": alone.seconds - max(task.received for task in alone.tasks) + alone.tasks[0].submitted,
    }


def predict(found: dict[str, float], budget: Budget, n_workers: int) -> Result:
    """Simulate a fit on this machine."""
    setting = Setting(
        n_chains=budget.n_chains,
        n_slots=n_workers,
        stages=stages(PROBLEM, budget.sampler, TRAINING, found["step_seconds"], found["epoch_seconds"]),
        block_seconds=BLOCK_SECONDS,
        sharing=found["sharing"] if n_workers > 1 else 1.0,
        overhead_seconds=found["overhead_seconds"],
        startup_seconds=found["startup_seconds"],
        program_seconds=found["program_seconds"],
        short_seconds=found["short_seconds"],
        prepare_seconds=found["prepare_seconds"],
    )
    return simulate(setting, np.random.default_rng(0))


def main(quick: bool = False) -> list[Row]:
    run(WARM, 2, seed=0)
    short, long = (QUICK, QUICK) if quick else (SHORT, LONG)
    before = calibrate(run(short, 1, seed=1), run(short, 2, seed=1))
    fits = {n_workers: run(long, n_workers, seed=2) for n_workers in (1, 2)}
    after = calibrate(run(short, 1, seed=1), run(short, 2, seed=1))
    found = {name: (value + after[name]) / 2 for name, value in before.items()}
    predicted = {n_workers: predict(found, long, n_workers) for n_workers in fits}
    totals = {n_workers: found["fixed_seconds"] + result.wall_seconds for n_workers, result in predicted.items()}
    rows = [
        Row(
            name=f"fit on {n_workers} worker{'s' if n_workers > 1 else ''}",
            value=totals[n_workers],
            unit="s",
            peer=timed.seconds,
            ratio=totals[n_workers] / timed.seconds,
            low=0.9,
            high=1.1,
            note=f"{long.n_chains} chains of {long.warmup_steps + long.sampling_steps:,} steps on {PROBLEM.n_rows:,} "
            f"rows; {predicted[n_workers].n_tasks} tasks predicted, {len(timed.tasks)} run; peer: measured",
        )
        for n_workers, timed in fits.items()
    ]
    lengths = [task.seconds for timed in fits.values() for task in timed.blocks if task.stage in PHASES]
    share = found["overhead_seconds"] * len(lengths) / sum(lengths)
    within = sum(seconds for seconds in lengths if seconds >= 5.0) / sum(lengths)
    rows += [
        Row(
            name="two workers against one",
            value=fits[1].seconds / fits[2].seconds,
            unit="times",
            low=1.7,
            note=f"the simulation says {totals[1] / totals[2]:.2f}; when both cores work, a step takes "
            f"{found['sharing']:.2f} times as long",
        ),
        Row(
            name="overhead of a block",
            value=100 * share,
            unit="%",
            high=2.0,
            note=f"{1e3 * found['overhead_seconds']:.0f} ms of a mean block of {statistics.mean(lengths):.1f} s; "
            f"{100 * within:.0f} % of the time is in blocks of 5 s and more",
        ),
    ]
    if not quick:
        n_tasks = len(fits[2].tasks)
        found |= {"client_task_seconds": fits[2].client_seconds / n_tasks}
        found |= {"gradient_flops": PROBLEM.gradient_flops}
        record.write("measure", found | {"rows": [asdict(row) for row in rows]})
    return rows


if __name__ == "__main__":
    command_line(main)
