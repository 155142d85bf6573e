"""`mile doctor`: what this machine offers, and what is slow and why."""

import os
import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

import jax

from mile import native
from mile._compilation import use_compilation_cache
from mile.cli._console import Console
from mile.sampling.timing import available_memory

_PACKAGES = ("mile-bnn", "jax", "jaxlib", "numpy", "scipy", "scikit-learn", "optax", "zarr", "safetensors")
_OPTIONAL = {"pyarrow": "Parquet files", "xarray": "export to netCDF", "pandas": "data frames as input"}
_LITTLE_MEMORY = 2e9
_KERNEL_ADVICE = {
    native.KernelState.SWITCHED_OFF: "unset MILE_NATIVE.",
    native.KernelState.NOT_BUILT: "install a C++ compiler (gcc or clang), then install mile-bnn again.",
    native.KernelState.REFUSED: "it was built for another system or an older or newer jaxlib; install mile-bnn again.",
}


class Finding(NamedTuple):
    """One line of the examination."""

    name: str
    value: str
    advice: str = ""  # what to do; empty if all is well


def doctor(console: Console) -> None:
    """Print everything that decides speed, with advice where something is slow or missing."""
    findings = [*_versions(), *_devices(), _kernel(), _threads(), _cache(), _memory(), *_optional()]
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        console.say(f"{'!' if finding.advice else ' '} {finding.name:<{width}}  {finding.value}")
        if finding.advice:
            console.say(f"  {'':<{width}}  -> {finding.advice}")
    n_advice = sum(bool(finding.advice) for finding in findings)
    console.say("\nNothing is amiss." if not n_advice else f"\n{n_advice} of these could be better.")
    console.answer({finding.name: {"value": finding.value, "advice": finding.advice or None} for finding in findings})


def _versions() -> list[Finding]:
    where = f"{platform.system()} {platform.machine()}"
    return [
        Finding("python", f"{platform.python_version()} on {where}"),
        *(Finding(name, version(name)) for name in _PACKAGES),
    ]


def _devices() -> list[Finding]:
    devices = jax.devices()
    kinds = sorted({device.device_kind for device in devices})
    found = Finding("devices", f"{len(devices)} x {', '.join(kinds)}")
    has_gpu = shutil.which("nvidia-smi") is not None
    if has_gpu and jax.default_backend() == "cpu":
        advice = "There is an NVIDIA card, but JAX was installed without support for it: pip install 'jax[cuda13]'."
        return [found._replace(advice=advice)]
    return [found]


def _kernel() -> Finding:
    if jax.default_backend() != "cpu":
        return Finding("native kernel", "not needed: XLA computes on this device")
    state = native.kernel_state()
    if state is native.KernelState.IN_USE:
        return Finding("native kernel", native.kernel_name())
    return Finding("native kernel", state.value, f"Fits are several times slower: {_KERNEL_ADVICE[state]}")


def _threads() -> Finding:
    n_cores = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else n_cores
    found = Finding("threads", f"{usable} of {n_cores} cores")
    if usable < n_cores:
        return found._replace(advice="This process may not use all cores (taskset, a container, or a batch system).")
    return found


def _cache() -> Finding:
    use_compilation_cache()
    folder = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    if folder is None:
        advice = "Every new process compiles for some seconds: make the cache folder writable."
        return Finding("compiled programs", "not kept", advice)
    return Finding("compiled programs", f"kept in {folder}")


def _memory() -> Finding:
    available = available_memory()
    if available is None:
        return Finding("memory", "unknown")
    advice = "Keep draws on disk: give a run directory." if available < _LITTLE_MEMORY else ""
    return Finding("memory", f"{available / 1e9:.1f} GB available", advice)


def _optional() -> list[Finding]:
    found = []
    for package, use in _OPTIONAL.items():
        try:
            found.append(Finding(package, f"{version(package)} ({use})"))
        except PackageNotFoundError:
            extra = "arviz" if package == "xarray" else "tables"
            found.append(Finding(package, f"not installed ({use}: pip install 'mile-bnn[{extra}]')"))
    return found
