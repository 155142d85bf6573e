"""Chains on several devices of this process: one program for all of them, a group is a row of chains on each."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeVar

import jax
from jax.sharding import PartitionSpec

from mile import _registry
from mile._checks import check_count
from mile.execution._local import AbstractLocalBackend
from mile.execution.base import Done, Report, Task
from mile.execution.in_process import InProcess, cut_into_groups, device_width, over_lanes

_AXIS = "chain"

Result = TypeVar("Result")


@_registry.backend("devices")
@dataclass(frozen=True, kw_only=True)
class Devices(AbstractLocalBackend):
    """Spread chains over several accelerators, or over several CPU devices that JAX simulates.

    Parameters
    ----------
    count
        How many devices; None takes all there are. On CPU JAX has one unless more are asked for before it starts,
        which this class does if it can.

    Raises
    ------
    ValueError
        If there are not so many devices, or JAX has started with fewer.

    Examples
    --------
    >>> from mile import MileRegressor
    >>> from mile.execution import Devices
    >>> model = MileRegressor(backend=Devices(count=1))
    """

    count: int | None = None

    n_workers = 1  # a task takes all devices

    def __post_init__(self) -> None:
        if self.count is not None:
            check_count("count", self.count)
            with contextlib.suppress(RuntimeError):  # JAX has started; whether that matters shows when it is used
                jax.config.update("jax_num_cpu_devices", self.count)

    @cached_property
    def mesh(self) -> jax.sharding.Mesh:
        """The devices in a row."""
        devices = jax.local_devices()
        count = self.count or len(devices)
        if count > len(devices):
            raise ValueError(
                f"count asks for {count} devices and JAX has {len(devices)} ({devices[0].platform}). Simulated CPU "
                "devices must be asked for before JAX is first used: make Devices(count=...) at the top of the program."
            )
        return jax.sharding.Mesh(devices[:count], (_AXIS,))

    @property
    def width(self) -> int:
        """Chains per device; with the same width one device and many give the same bits."""
        return device_width()

    @property
    def alone(self) -> InProcess:
        """What one device runs."""
        return InProcess(n_threads=1, lanes=self.width)

    def groups(self, chains: Sequence[int]) -> list[list[int]]:
        """Cut chains into groups that fill all devices; the last is padded with its first chain."""
        return cut_into_groups(chains, self.width * self.mesh.size)

    def over_group(self, function: Callable[..., Result]) -> Callable[..., Result]:
        """Turn a pure function of one chain into one of a group, whose arguments have a leading axis."""
        across = PartitionSpec(_AXIS)
        return jax.shard_map(
            over_lanes(function, self.width), mesh=self.mesh, in_specs=across, out_specs=across, check_vma=False
        )

    def flow(
        self,
        function: Callable[..., Result],
        next_task: Callable[[], Task[Result] | None],
        shared: object,
        report: Report,
        *,
        together: bool = False,
    ) -> Iterator[list[Done[Result]]]:
        """Do tasks one after the other; see `WorkerPool.flow`."""
        while tasks := list(iter(next_task, None)):
            began = time.perf_counter()
            results = [function(*task.arguments, shared, partial(report, task.group)) for task in tasks]
            seconds = time.perf_counter() - began
            yield [Done(task.group, result, seconds) for task, result in zip(tasks, results, strict=True)]
