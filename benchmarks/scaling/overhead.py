"""What a task costs beside its computing: its round trip, and the time of client and scheduler for it and its bytes.

Scheduler and workers are processes of their own, as on a cluster, so that their processor time can be told apart. The
backend's own loop sends tasks that give back the array they got: what a block of a chain carries, without its steps.
The last numbers are what the client needs to choose the next block among many chains and to save all of them, and the
scheduler to choose among many workers.
"""

import contextlib
import functools
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from distributed import Client, LocalCluster, Status
from distributed.scheduler import WorkerState

from mile.execution import DaskBackend, InProcess, Task
from mile.sampling.block_schedule import BlockSchedule
from mile.storage import Manifest, Record, fingerprint, open_run

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _common import Row, command_line, progress, seconds_of
from scaling import record

N_WORKERS = 2
SIZES = (10_000, 1_000_000, 8_000_000)  # bytes each way: a chain of 402 parameters carries 10 kB, in phase III 8 MB
CHAINS = (100, 1_000, 10_000)
PLACED_WORKERS = (10, 1_000)
SAVED_CHAINS, SAVED_DIMENSION = 1_000, 402
_START_SECONDS = 60.0  # for processes to start


@dataclass(frozen=True, kw_only=True)
class Overhead:
    """Of tasks with arrays of one size; seconds for one task."""

    n_bytes: int  # to and fro together
    round_trip: float
    client: float  # processor time
    scheduler: float  # processor time


def main(quick: bool = False) -> list[Row]:
    with cluster(N_WORKERS) as (client, scheduler):
        found = [measure(client, scheduler, n_bytes, 100 if quick else 600) for n_bytes in SIZES]
    choosing = {n_chains: choose_seconds(n_chains) for n_chains in CHAINS}
    placing = {n_workers: place_seconds(n_workers) for n_workers in PLACED_WORKERS}
    saving = save(100 if quick else SAVED_CHAINS)
    if not quick:
        few, many = PLACED_WORKERS
        numbers = {
            "choose_chain_seconds": choosing[CHAINS[-1]] / CHAINS[-1],
            "place_worker_seconds": (placing[many] - placing[few]) / (many - few),
            **saving,
            **slopes(found),
        }
        record.write("overhead", {"tasks": [asdict(one) for one in found], **numbers})
    rows = [
        Row(
            name=f"a task with {one.n_bytes / 2e6:g} MB each way",
            value=1e3 * one.round_trip,
            unit="ms",
            note=f"processor time of the client {1e3 * one.client:.1f} ms, of the scheduler "
            f"{1e3 * one.scheduler:.1f} ms",
        )
        for one in found
    ]
    rows += [
        Row(name=f"choosing among {n_chains:,} chains", value=1e3 * seconds, unit="ms", note="once for each block")
        for n_chains, seconds in choosing.items()
    ]
    rows += [
        Row(name=f"placing among {n_workers:,} workers", value=1e3 * seconds, unit="ms", note="by the scheduler")
        for n_workers, seconds in placing.items()
    ]
    seconds, processor = 1e3 * saving["save_chain_seconds"], 1e3 * saving["save_chain_processor_seconds"]
    note = f"of which {processor:.2f} ms are processor time; the rest is the disk's"
    return [*rows, Row(name="saving one chain of many", value=seconds, unit="ms", note=note)]


@contextlib.contextmanager
def cluster(n_workers: int) -> Iterator[tuple[Client, psutil.Process]]:
    """Start a scheduler and workers of one thread, and give a client and the scheduler's process."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as processes:
        address = Path(folder) / "scheduler.json"

        def start(command: str, *options: str) -> subprocess.Popen:
            process = subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.dask_{command}", "--scheduler-file", str(address), *options],
                cwd=folder,
                stderr=subprocess.DEVNULL,
            )
            processes.callback(_stop, process)
            return process

        scheduler = start("scheduler", "--port", "0", "--no-dashboard", "--host", "127.0.0.1")
        began = time.monotonic()
        while not address.exists():
            if scheduler.poll() is not None or time.monotonic() - began > _START_SECONDS:
                raise RuntimeError("The scheduler did not start; run `dask scheduler` by hand to see why.")
            time.sleep(0.1)
        for _ in range(n_workers):
            start("worker", "--nthreads", "1", "--no-nanny", "--no-dashboard")
        with Client(scheduler_file=str(address)) as client:
            client.wait_for_workers(n_workers, timeout=_START_SECONDS)
            yield client, psutil.Process(scheduler.pid)


def _stop(process: subprocess.Popen) -> None:
    process.terminate()
    process.wait(_START_SECONDS)


def give_back(carried: np.ndarray, shared: Any, report: Callable[[int], None]) -> np.ndarray:
    """Do nothing."""
    return carried


def measure(client: Client, scheduler: psutil.Process, n_bytes: int, n_tasks: int) -> Overhead:
    """Measure tasks that take and give `n_bytes`."""
    progress(f"overhead: tasks with {n_bytes:,} bytes")
    carried = np.random.default_rng(0).standard_normal(n_bytes // 8)
    identify = functools.partial(fingerprint, is_native=False, width=1, dtype="float32")
    n_tasks = min(n_tasks, int(2e9 / n_bytes))
    with DaskBackend(client, verify=0.0).open_pool() as pool:
        pool.agree(identify)
        _flow(pool, carried, 20)  # starts what the first tasks need
        began, ours, theirs = time.perf_counter(), time.process_time(), sum(scheduler.cpu_times()[:2])
        _flow(pool, carried, n_tasks)
        seconds = time.perf_counter() - began
        ours, theirs = time.process_time() - ours, sum(scheduler.cpu_times()[:2]) - theirs
    return Overhead(
        n_bytes=2 * n_bytes,
        round_trip=pool.n_workers * seconds / n_tasks,  # each slot has one under way at a time
        client=ours / n_tasks,
        scheduler=theirs / n_tasks,
    )


def _flow(pool: Any, carried: np.ndarray, n_tasks: int) -> None:
    tasks = (Task(number, (carried,), f"task {number}") for number in range(n_tasks))
    for _ in pool.flow(give_back, lambda: next(tasks, None), None, lambda group, step: None):
        pass


def slopes(found: list[Overhead]) -> dict[str, float]:
    """Split processor times into a part for each task and one for each byte: a line through all sizes."""
    sizes = np.array([one.n_bytes for one in found], float)
    result = {}
    for name in ("client", "scheduler"):
        seconds = np.array([getattr(one, name) for one in found])
        # Relative deviations count, or the largest size would decide alone.
        byte_seconds, task_seconds = np.polyfit(sizes, seconds, 1, w=1.0 / seconds)
        result |= {f"{name}_seconds": float(task_seconds), f"{name}_byte_seconds": float(byte_seconds)}
    return result


def choose_seconds(n_chains: int) -> float:
    """Return how long the client takes to choose the next block."""
    schedule = BlockSchedule(1_000_000, 0, [0] * n_chains, InProcess(), 8, 1)
    return statistics.median(seconds_of(schedule.next) for _ in range(50))


def place_seconds(n_workers: int) -> float:
    """Return how long the scheduler takes to choose a worker for a task that not all may do, as the backend asks."""
    resource = "mile"
    with LocalCluster(n_workers=0, processes=False, dashboard_address=None) as local:
        scheduler: Any = local.scheduler
        for number in range(n_workers):  # they exist only in the scheduler's books
            worker = WorkerState(
                address=f"tcp://127.0.{number // 256}.{number % 256}:1",
                status=Status.running,
                pid=number,
                name=number,
                nthreads=1,
                memory_limit=1 << 30,
                local_directory="",
                nanny=None,
                server_id=str(number),
                scheduler=scheduler,
            )
            scheduler.workers[worker.address] = worker
            scheduler.running.add(worker)
            scheduler.resources.setdefault(resource, {})[worker.address] = 1.0
        task = scheduler.new_task("task", None, "released")
        task.resource_restrictions = {resource: 1.0}
        seconds = [seconds_of(lambda: scheduler.decide_worker_non_rootish(task)) for _ in range(100)]
        for book in (scheduler.workers, scheduler.running, scheduler.resources):
            book.clear()
    return statistics.median(seconds)


def save(n_chains: int) -> dict[str, float]:
    """Return what it takes to save a checkpoint of many chains in phase I, for each chain."""
    progress(f"overhead: saving {n_chains:,} chains")
    vectors = {f"carry.{number}": np.ones(SAVED_DIMENSION, np.float32) for number in range(5)}
    kind = fingerprint(is_native=False, width=1, dtype="float32")
    manifest = Manifest(fingerprint=kind, configuration={}, data={}, seed=0, origin=None)
    times = []
    with tempfile.TemporaryDirectory() as folder, open_run(Path(folder) / "run", manifest, {}, force=False) as run:
        for step in range(3):
            began, processor = time.perf_counter(), time.process_time()
            run.save({(chain, "state"): Record("phase I", step, vectors) for chain in range(n_chains)})
            run.settle()
            times.append((time.perf_counter() - began, time.process_time() - processor))
    seconds, processor = np.median(times, axis=0) / n_chains
    return {"save_chain_seconds": float(seconds), "save_chain_processor_seconds": float(processor)}


if __name__ == "__main__":
    command_line(main)
