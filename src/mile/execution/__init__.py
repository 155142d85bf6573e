"""Where chains run: in this process, on several devices of it, or on a cluster. The chains' numbers are the same."""

from mile.execution._choice import choose_backend
from mile.execution.base import Backend, Done, Fingerprint, Flaw, Program, Task, WorkerPool
from mile.execution.dask import DaskBackend
from mile.execution.devices import Devices
from mile.execution.in_process import InProcess
from mile.execution.tls import tls_security

__all__ = [
    "Backend",
    "DaskBackend",
    "Devices",
    "Done",
    "Fingerprint",
    "Flaw",
    "InProcess",
    "Program",
    "Task",
    "WorkerPool",
    "choose_backend",
    "tls_security",
]
