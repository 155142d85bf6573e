"""The fingerprint of a run: versions and machine, which decide how numbers are rounded."""

import importlib.metadata
import platform
from pathlib import Path

import jax

from mile import native

# Instructions that change how compiled code rounds or groups its sums.
_FEATURES = ("avx", "fma", "avx2", "avx512f", "asimd", "sve")


# Raised when the native kernel rounds differently than before: a run of the earlier kind is refused with a sentence.
_ROUNDING = 2
# Heads that the kernel had then. A run of any other began with JAX's derivatives, unless its path names the head.
_FIRST_HEADS = (None, "gaussian", "bounded_gaussian", "categorical")


def fingerprint(*, is_native: bool, width: int, dtype: str, head: str | None = None) -> dict[str, object]:
    """Return the versions and the kind of machine that a run's bits depend on; `head` is that of the kernel."""
    on_cpu = jax.default_backend() == "cpu"
    later = "" if head in _FIRST_HEADS else f"/{head}"
    return {
        "mile": importlib.metadata.version("mile-bnn"),
        "jax": jax.__version__,
        "jaxlib": importlib.metadata.version("jaxlib"),
        "platform": jax.default_backend() if on_cpu else jax.devices()[0].device_kind,
        "machine": platform.machine(),
        "processor": _features() if on_cpu else "",
        "path": f"{native.kernel_name()}/{_ROUNDING}{later}" if is_native and on_cpu else "xla",
        "width": width,
        "dtype": dtype,
    }


def _features() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    words = {word for line in lines if line.startswith(("flags", "Features")) for word in line.split()}
    return " ".join(name for name in _FEATURES if name in words)
