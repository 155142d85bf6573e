"""Chains in this process: one compiled program per group of chains, groups spread over threads.

A group has a fixed width, so a chain's numbers do not depend on how many chains there are. On CPU the
width is one: XLA gains nothing from batching networks this small, and independent programs keep every
core busy (measured on two cores, 12 chains of 402 parameters, medians of three: 125 us a chain-step in two
threads, 244 in one, 248 batched). Accelerators get wider groups.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import jax
import jax.numpy as jnp

from mile import _registry, native
from mile._types import PyTree
from mile.execution._local import AbstractLocalBackend
from mile.execution.base import Done, Report, Task

_ACCELERATOR_WIDTH = 16

Job = TypeVar("Job")
Result = TypeVar("Result")


@_registry.backend("threads")
@dataclass(frozen=True, kw_only=True)
class InProcess(AbstractLocalBackend):
    """Run groups of chains on this process's default device.

    Parameters
    ----------
    n_threads
        Groups that run at the same time; None means one for each core.
    lanes
        Chains per compiled program; None means what suits the device. It decides rounding on accelerators.
    """

    n_threads: int | None = None
    lanes: int | None = None

    @property
    def width(self) -> int:
        """Chains per compiled program."""
        return self.lanes or device_width()

    @property
    def alone(self) -> "InProcess":
        """The program of one device, which this one is."""
        return self

    @property
    def n_workers(self) -> int:
        """Groups that run at the same time."""
        return self.n_threads or os.cpu_count() or 1

    def groups(self, chains: Sequence[int]) -> list[list[int]]:
        """Cut chains into groups of the fixed width; the last is padded with its first chain."""
        return cut_into_groups(chains, self.width)

    def over_group(self, function: Callable[..., Result]) -> Callable[..., Result]:
        """Turn a pure function of one chain into one of a group, whose arguments have a leading axis."""
        return over_lanes(function, self.width)

    def map(self, function: Callable[[Job], Result], jobs: Sequence[Job]) -> list[Result]:
        """Apply `function`, which must block until its result is ready, to all jobs."""
        n_threads = self.n_workers
        if n_threads == 1 or len(jobs) <= 1:
            with native.sharing_cores(1, n_threads):
                return [function(job) for job in jobs]
        with native.sharing_cores(len(jobs), n_threads), ThreadPoolExecutor(min(n_threads, len(jobs))) as threads:
            return list(threads.map(in_callers_precision(function), jobs))

    def flow(
        self,
        function: Callable[..., Result],
        next_task: Callable[[], Task[Result] | None],
        shared: object,
        report: Report,
        *,
        together: bool = False,
    ) -> Iterator[list[Done[Result]]]:
        """Do tasks until there are none; see `WorkerPool.flow`."""

        def perform(task: Task[Result]) -> Done[Result]:
            began = time.perf_counter()
            result = function(*task.arguments, shared, partial(report, task.group))
            return Done(task.group, result, time.perf_counter() - began)

        return self._in_rounds(perform, next_task) if together else self._in_turn(perform, next_task)

    def _in_rounds(
        self, perform: Callable[[Task[Result]], Done[Result]], next_task: Callable[[], Task[Result] | None]
    ) -> Iterator[list[Done[Result]]]:
        while tasks := list(iter(next_task, None)):
            began = time.perf_counter()
            done = self.map(perform, tasks)
            seconds = time.perf_counter() - began
            yield [replace(one, seconds=seconds) for one in done]

    def _in_turn(
        self, perform: Callable[[Task[Result]], Done[Result]], next_task: Callable[[], Task[Result] | None]
    ) -> Iterator[list[Done[Result]]]:
        n_threads = self.n_workers
        tasks = [task for _ in range(n_threads) if (task := next_task()) is not None]
        if n_threads == 1:
            with native.sharing_cores(1, 1):
                while tasks:
                    yield [perform(tasks[0])]
                    tasks = [task for task in [next_task()] if task is not None]
            return
        perform = in_callers_precision(perform)
        with native.sharing_cores(len(tasks), n_threads), ThreadPoolExecutor(n_threads) as threads:
            running: set[Future[Done[Result]]] = {threads.submit(perform, task) for task in tasks}
            while running:
                ready, running = wait(running, return_when=FIRST_COMPLETED)
                yield [future.result() for future in ready]
                while len(running) < n_threads and (task := next_task()) is not None:
                    running.add(threads.submit(perform, task))


def device_width() -> int:
    """Return how many chains one program holds on the default device."""
    return 1 if jax.default_backend() == "cpu" else _ACCELERATOR_WIDTH


def cut_into_groups(chains: Sequence[int], size: int) -> list[list[int]]:
    """Cut chains into groups of one size; the last is padded with its first chain."""
    cut = [list(chains[start : start + size]) for start in range(0, len(chains), size)]
    return [group + group[:1] * (size - len(group)) for group in cut]


def over_lanes(function: Callable[..., Result], width: int) -> Callable[..., Result]:
    """Turn a pure function of one chain into one of `width` chains on one device."""
    if width > 1:
        return jax.vmap(function)

    def single(*arguments: PyTree) -> Result:
        result = function(*jax.tree.map(lambda leaf: leaf[0], arguments))
        return jax.tree.map(lambda leaf: leaf[None], result)

    return single


def in_callers_precision(function: Callable[[Job], Result]) -> Callable[[Job], Result]:
    """Let a function compute in the precision of this thread when another thread calls it."""
    double_precision = jnp.result_type(float) == jnp.float64

    def precise(job: Job) -> Result:
        # `jax.enable_x64` holds for the caller's thread only.
        with jax.enable_x64(double_precision):
            return function(job)

    return precise
