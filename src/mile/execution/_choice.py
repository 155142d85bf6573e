"""From words to a backend."""

import jax

from mile import _registry
from mile._checks import check_choice, check_count
from mile.execution.base import Backend
from mile.execution.dask import DaskBackend
from mile.execution.devices import Devices
from mile.execution.in_process import InProcess


def choose_backend(
    backend: Backend | str | None = None, address: str | None = None, n_threads: int | None = None
) -> Backend:
    """Return where chains run.

    Parameters
    ----------
    backend
        "threads" (the cores of this machine), "devices" (all devices of this process), "dask", or an object such as
        `Devices(count=4)`; None: "threads", and "devices" where there are several accelerators.
    address
        Of the Dask scheduler; only with "dask".
    n_threads
        Of this machine; None means all.

    Raises
    ------
    ValueError
        If they contradict each other.
    """
    if n_threads is not None:
        check_count("n_threads", n_threads)
    if isinstance(backend, Backend):
        if address is not None:
            raise ValueError("address is for backend='dask'; a backend object has its own.")
        return backend
    if backend is None and address is None and n_threads is None and _has_accelerators():
        return Devices()
    name = check_choice("backend", backend or "threads", _registry.backend)
    if address is not None and name != "dask":
        raise ValueError(f"address is for backend='dask'; backend is {name!r}.")
    if name == "dask":
        return DaskBackend(address)
    return InProcess(n_threads=n_threads) if name == "threads" else _registry.backend[name]()


def _has_accelerators() -> bool:
    return jax.default_backend() != "cpu" and jax.local_device_count() > 1
