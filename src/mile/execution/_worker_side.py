"""What runs on the workers of a Dask cluster: admission, the data that tasks share, and one task."""

import asyncio
import copy
import hashlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable

import jax
import numpy as np
from distributed import Status, WorkerPlugin, get_worker

from mile import native
from mile._compilation import use_compilation_cache
from mile._types import PyTree
from mile.execution.base import Fingerprint, Identify
from mile.execution.dask_client import Outcome, Worker

_REPORT_SECONDS = 0.5  # between two events about one task
_PATIENCE = 60.0  # seconds until the data must have reached a worker that has just joined
_PAUSE = 0.05

# What tasks on this worker share, by name: as it was sent, and on the device.
_received: dict[str, PyTree] = {}
_on_device: dict[str, PyTree] = {}
_lock = threading.Lock()


class Admission(WorkerPlugin):
    """Grants a resource to workers of the right kind, also to those that join later; tasks run only where it is."""

    def __init__(self, identify: Identify, expected: Fingerprint | None, resource: str) -> None:
        self.name = f"{resource}-admission"
        self._identify, self._expected, self._resource = identify, expected, resource

    async def setup(self, worker: Worker) -> None:
        """Admit a worker: when it joins, or now if it has joined already."""
        found = await asyncio.to_thread(identify_here, self._identify)
        if self._expected is None or found == self._expected:
            await worker.set_resources(**{self._resource: float(worker.state.nthreads)})
            # The scheduler looks for tasks that found no worker when one begins to run, not when it gets a resource.
            worker.status = Status.paused
            worker.status = Status.running

    async def teardown(self, worker: Worker) -> None:
        """Withdraw the resource."""
        await worker.set_resources(**{self._resource: 0.0})


class Sharing(WorkerPlugin):
    """Sends data to every worker once, also to those that join later."""

    def __init__(self, name: str, value: PyTree) -> None:
        self.name, self._value = name, value

    def setup(self, worker: Worker) -> None:
        """Keep the data on a worker: when it joins, or now if it has joined already."""
        _received[self.name] = self._value

    def teardown(self, worker: Worker) -> None:
        """Forget the data."""
        _received.pop(self.name, None)
        _on_device.pop(self.name, None)


def identify_here(identify: Identify) -> Fingerprint:
    """Return the fingerprint of this worker, after setting it up."""
    logging.getLogger("jax._src.xla_bridge").setLevel(logging.ERROR)  # it reports every platform that is missing
    use_compilation_cache()
    return identify()


def perform(
    function: Callable[..., PyTree],
    arguments: tuple[object, ...],
    shared: str,
    topic: str,
    group: int,
    double_precision: bool,
) -> Outcome:
    """Do one task; its result depends on its arguments only, so any worker can repeat it."""
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


def perform_here(
    function: Callable[..., PyTree], arguments: tuple[object, ...], shared: object, place: str
) -> Outcome | None:
    """Do a task in this process, in the precision of its thread; return None if it fails."""
    began = time.perf_counter()
    try:
        with native.sharing_cores(1, 1):
            # Programs may reuse the memory of what they are given, and the arguments may be needed again.
            result = as_numpy(function(*copy.deepcopy(arguments), shared, lambda step: None))
    except Exception:
        return None
    return Outcome(result, None, digest_of(result), time.perf_counter() - began, socket.gethostname(), place)


def as_numpy(result: PyTree) -> PyTree:
    """Return a result whose arrays are NumPy's."""
    return jax.tree.map(lambda leaf: np.asarray(leaf) if hasattr(leaf, "dtype") else leaf, result)


def digest_of(result: PyTree) -> str:
    """Return a hash of all arrays of a result; what is not an array, such as a duration, does not count."""
    found = hashlib.sha256()
    for leaf in jax.tree.leaves(result):
        if hasattr(leaf, "dtype"):
            array = np.ascontiguousarray(leaf)
            found.update(f"{array.dtype} {array.shape}".encode())
            found.update(array.reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def is_memory_error(error: BaseException) -> bool:
    """Say whether a worker ran out of memory."""
    words = f"{type(error).__name__}: {error}"
    return any(word in words for word in ("MemoryError", "RESOURCE_EXHAUSTED"))


def _is_ours(error: Exception) -> bool:
    """Say whether another process can rebuild an exception: those of libraries may need further arguments."""
    return type(error).__module__ == "builtins" and len(error.args) == 1


def _wait_for(name: str) -> PyTree:
    """Return what tasks share; it may reach a worker that has just joined a moment after its first task."""
    deadline = time.monotonic() + _PATIENCE
    while name not in _received:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the data has not reached this worker (process {os.getpid()}).")
        time.sleep(_PAUSE)
    with _lock:
        if name not in _on_device:
            _on_device[name] = jax.device_put(_received[name])
            _received[name] = None  # one copy is enough
        return _on_device[name]
