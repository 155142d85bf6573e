"""Where chains run. Here: in this process, one compiled program per group of chains, groups spread over threads.

A group has a fixed width, so a chain's numbers do not depend on how many chains there are. On CPU the
width is one: XLA gains nothing from batching networks this small, and independent programs keep every
core busy (measured on two cores, 12 chains of 402 parameters, medians of three: 125 us a chain-step in two
threads, 244 in one, 248 batched). Accelerators get wider groups.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from mile import native

_ACCELERATOR_WIDTH = 16

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class InProcess:
    """Run groups of chains on this process's default device."""

    n_threads: int | None = None  # None: all cores

    @cached_property
    def width(self) -> int:
        """Chains per compiled program."""
        return 1 if jax.default_backend() == "cpu" else _ACCELERATOR_WIDTH

    @property
    def n_workers(self) -> int:
        """Groups that run at the same time."""
        return self.n_threads or os.cpu_count() or 1

    def groups(self, chains: Sequence[int]) -> list[list[int]]:
        """Cut chains into groups of the fixed width; the last is filled up with its first chain."""
        width = self.width
        cut = [list(chains[start : start + width]) for start in range(0, len(chains), width)]
        return [group + group[:1] * (width - len(group)) for group in cut]

    def over_group(self, function: Callable[..., Result]) -> Callable[..., Result]:
        """Turn a pure function of one chain into one of a group, whose arguments have a leading axis."""
        if self.width > 1:
            return jax.vmap(function)

        def single(*arguments: Any) -> Any:
            result = function(*jax.tree.map(lambda leaf: leaf[0], arguments))
            return jax.tree.map(lambda leaf: leaf[None], result)

        return single

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """Apply `function`, which must block until its result is ready, to all tasks."""
        n_threads = self.n_workers
        if n_threads == 1 or len(tasks) <= 1:
            with native.sharing_cores(1, n_threads):
                return [function(task) for task in tasks]
        double_precision = jnp.result_type(float) == jnp.float64

        def in_callers_precision(task: Task) -> Result:
            # `jax.enable_x64` holds for the caller's thread only.
            with jax.enable_x64(double_precision):
                return function(task)

        with native.sharing_cores(len(tasks), n_threads), ThreadPoolExecutor(min(n_threads, len(tasks))) as pool:
            return list(pool.map(in_callers_precision, tasks))
