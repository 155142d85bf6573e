"""The real dispatcher on a real Dask cluster with tasks that sleep instead of computing, against the simulation.

Sleeping needs no processor, so one machine can hold more workers than it has cores, and one of them can be slow. What
is checked is the simulation's idea of the dispatcher, not of the machine, so the overhead of a task is taken from the
same run.
"""

import functools
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client, LocalCluster, get_worker

from mile.execution import DaskBackend, Task
from mile.sampling.block_schedule import BlockSchedule
from mile.storage import fingerprint

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _common import Row, command_line, progress
from scaling import record
from scaling.measure import listening
from scaling.setting import Result, Setting, Stage
from scaling.simulate import simulate

N_STEPS, STEP_SECONDS = 2_000, 0.01  # a chain takes 20 s
BLOCK_SECONDS = 2.0
N_BYTES = 10_000  # that a chain carries
TOLERANCE = 0.1


@dataclass(frozen=True, kw_only=True)
class Case:
    """A cluster and what it has to do; the first worker may be slow."""

    n_chains: int
    n_slots: int
    slow_factor: float = 1.0

    @property
    def name(self) -> str:
        slow = f", one of them {self.slow_factor:g} times slower" if self.slow_factor > 1.0 else ""
        return f"{self.n_chains} chains on {self.n_slots} worker{'s' if self.n_slots > 1 else ''}{slow}"


CASES = (
    Case(n_chains=2, n_slots=1),
    Case(n_chains=3, n_slots=2),
    Case(n_chains=10, n_slots=4),
    Case(n_chains=20, n_slots=8),
    Case(n_chains=4, n_slots=8),
    Case(n_chains=8, n_slots=8, slow_factor=20.0),
    Case(n_chains=20, n_slots=8, slow_factor=5.0),
)


@dataclass(frozen=True, kw_only=True)
class Real:
    """What a case took."""

    seconds: float
    n_tasks: int
    overhead_seconds: float  # of a task, typically


def sleep(n_steps: int, slow_factor: float, carried: np.ndarray, shared: Any, report: Callable[[int], None]) -> Any:
    """Take as long as a block would; done on a worker."""
    time.sleep(n_steps * STEP_SECONDS * (slow_factor if get_worker().name == 0 else 1.0))
    return carried


def run(case: Case) -> Real:
    """Do it with the library's own dispatcher."""
    progress(f"rehearse: {case.name}")
    carried = np.random.default_rng(0).standard_normal(N_BYTES // 8)
    identify = functools.partial(fingerprint, is_native=False, width=1, dtype="float32")
    with (
        LocalCluster(n_workers=case.n_slots, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
        DaskBackend(client, block_seconds=BLOCK_SECONDS, verify=0.0).open_pool() as pool,
        listening() as log,
    ):
        client.wait_for_workers(case.n_slots)
        pool.agree(identify)
        schedule = BlockSchedule(N_STEPS, 0, [0] * case.n_chains, pool, None, N_STEPS)

        def next_task() -> Task | None:
            found = schedule.next()
            if found is None:
                return None
            group, (start, stop, *_) = found
            arguments = (stop - start, case.slow_factor, carried)
            return Task(group, arguments, f"chain {group}, sleep, steps {start} to {stop}", size=stop - start)

        began = time.monotonic()
        for done in pool.flow(sleep, next_task, None, lambda group, step: None):
            for one in done:
                schedule.learn(schedule.arrive(one.group), one.seconds)
        seconds = time.monotonic() - began
    overhead = statistics.median(task.received - task.submitted - task.seconds for task in log.tasks)
    return Real(seconds=seconds, n_tasks=len(log.tasks), overhead_seconds=overhead)


def predict(case: Case, overhead_seconds: float) -> Result:
    """Simulate it; which worker is the slow one is up to chance, so the median of many runs counts."""
    share = 1.0 / case.n_slots if case.slow_factor > 1.0 else 0.0
    setting = Setting(
        n_chains=case.n_chains,
        n_slots=case.n_slots,
        stages=(Stage(name="sleep", n_steps=N_STEPS, step_seconds=STEP_SECONDS, is_bare=True),),
        block_seconds=BLOCK_SECONDS,
        overhead_seconds=overhead_seconds,
        slow_workers=share,
        slow_worker_factor=case.slow_factor,
    )
    seeds = [seed for seed in range(200) if _n_slow(seed, setting) == round(share * case.n_slots)]
    results = [simulate(setting, np.random.default_rng(seed)) for seed in seeds[:51]]
    return sorted(results, key=lambda result: result.wall_seconds)[len(results) // 2]


def _n_slow(seed: int, setting: Setting) -> int:
    drawn = np.random.default_rng(seed).random(setting.n_slots)  # as the simulation does first
    return int((drawn < setting.slow_workers).sum())


def main(quick: bool = False) -> list[Row]:
    rows = []
    for case in CASES[:2] if quick else CASES:
        real = run(case)
        predicted = predict(case, real.overhead_seconds)
        rows.append(
            Row(
                name=case.name,
                value=predicted.wall_seconds,
                unit="s",
                peer=real.seconds,
                ratio=predicted.wall_seconds / real.seconds,
                low=1 - TOLERANCE,
                high=1 + TOLERANCE,
                note=f"{predicted.n_tasks - predicted.n_duplicates} tasks predicted, {real.n_tasks} done; "
                f"{predicted.n_duplicates} duplicates predicted; overhead of a task "
                f"{1e3 * real.overhead_seconds:.0f} ms; ours: simulated, peer: real",
            )
        )
    if not quick:
        record.write("rehearse", {"rows": [asdict(row) for row in rows]})
    return rows


if __name__ == "__main__":
    command_line(main)
