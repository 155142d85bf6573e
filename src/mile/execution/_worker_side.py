"""What runs on the workers of a Dask cluster: who may take part, the data they share, and one task."""

import asyncio
import copy
import hashlib
import logging
import os
import socket
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from distributed import Status, WorkerPlugin, get_worker

from mile import native
from mile._compilation import use_compilation_cache
from mile.execution.base import Identify

_REPORT_SECONDS = 0.5  # between two events about one task
_PATIENCE = 60.0  # seconds until the data must have come to a worker that has just joined
_PAUSE = 0.05

_shared: dict[str, Any] = {}  # what tasks on this worker share, by name


class Admission(WorkerPlugin):
    """Gives workers of the right kind, and those that join later, a resource; tasks ask for it, so others get none."""

    def __init__(self, identify: Identify, expected: dict[str, Any] | None, resource: str) -> None:
        self.name = f"{resource}-admission"
        self._identify, self._expected, self._resource = identify, expected, resource

    async def setup(self, worker: Any) -> None:
        """Let a worker take part as it joins, or at once if it is there."""
        found = await asyncio.to_thread(identify_here, self._identify)
        if self._expected is None or found == self._expected:
            await worker.set_resources(**{self._resource: float(worker.state.nthreads)})
            # The scheduler looks for tasks that found no worker when one begins to run, not when it gets a resource.
            worker.status = Status.paused
            worker.status = Status.running

    async def teardown(self, worker: Any) -> None:
        """Take no part any more."""
        await worker.set_resources(**{self._resource: 0.0})


class Sharing(WorkerPlugin):
    """Brings data to every worker once, also to those that join later."""

    def __init__(self, name: str, value: Any) -> None:
        self.name, self._value = name, value

    def setup(self, worker: Any) -> None:
        """Keep the data on a worker as it joins, or at once if it is there."""
        _shared[self.name] = self._value

    def teardown(self, worker: Any) -> None:
        """Forget the data."""
        _shared.pop(self.name, None)


class Outcome(NamedTuple):
    """What became of a task, and where."""

    result: Any
    failure: Exception | None
    digest: str
    seconds: float
    host: str
    address: str


def identify_here(identify: Identify) -> dict[str, Any]:
    """Say what computes on this worker, and get it ready."""
    logging.getLogger("jax._src.xla_bridge").setLevel(logging.ERROR)  # it looks for other platforms and says so
    use_compilation_cache()
    return identify()


def perform(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    shared: str,
    topic: str,
    group: int,
    double_precision: bool,
) -> Outcome:
    """Do one task; its result depends on its arguments only, so it may be done again, here or elsewhere."""
    worker, told = get_worker(), time.monotonic()
    began = time.perf_counter()

    def report(step: int) -> None:
        nonlocal told
        if time.monotonic() - told > _REPORT_SECONDS:
            told = time.monotonic()
            worker.log_event(topic, {"group": group, "step": step})

    result, failure = None, None
    try:
        with jax.enable_x64(double_precision), native.sharing_cores(1, 1):
            result = function(*arguments, _wait_for(shared), report)
            result = as_numpy(result)
    except Exception as error:
        failure = error if _is_ours(error) else RuntimeError(f"{type(error).__name__}: {error}")
    seconds = time.perf_counter() - began
    return Outcome(result, failure, digest_of(result), seconds, socket.gethostname(), worker.address)


def perform_here(function: Callable[..., Any], arguments: tuple[Any, ...], shared: Any, place: str) -> Outcome | None:
    """Do a task in this process, in the precision of its thread; None if it cannot be done."""
    began = time.perf_counter()
    try:
        with native.sharing_cores(1, 1):
            # Programs may reuse the memory of what they are given, and the arguments may be needed again.
            result = as_numpy(function(*copy.deepcopy(arguments), shared, lambda step: None))
    except Exception:
        return None
    return Outcome(result, None, digest_of(result), time.perf_counter() - began, socket.gethostname(), place)


def as_numpy(result: Any) -> Any:
    """Return a result whose arrays are NumPy's."""
    return jax.tree.map(lambda leaf: np.asarray(leaf) if hasattr(leaf, "dtype") else leaf, result)


def digest_of(result: Any) -> str:
    """Return a hash of all arrays of a result; what is not an array, such as a duration, does not count."""
    found = hashlib.sha256()
    for leaf in jax.tree.leaves(result):
        if hasattr(leaf, "dtype"):
            array = np.ascontiguousarray(leaf)
            found.update(f"{array.dtype} {array.shape}".encode())
            found.update(array.reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def is_memory_error(error: BaseException) -> bool:
    """Say whether a failure means that a worker's memory does not do."""
    words = f"{type(error).__name__}: {error}"
    return any(word in words for word in ("MemoryError", "RESOURCE_EXHAUSTED"))


def _is_ours(error: Exception) -> bool:
    """Say whether another process can read an exception: those of libraries may need arguments of their own."""
    return type(error).__module__ == "builtins" and len(error.args) == 1


def _wait_for(name: str) -> Any:
    """Return what tasks share; it comes to a worker as it joins, perhaps a moment after its first task."""
    deadline = time.monotonic() + _PATIENCE
    while name not in _shared:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the data has not come to this worker (process {os.getpid()}).")
        time.sleep(_PAUSE)
    value = _shared[name]
    if not isinstance(value, _Ready):
        value = _shared[name] = _Ready(jax.device_put(value))
    return value.content


class _Ready(NamedTuple):
    """Data that is on the device."""

    content: Any
