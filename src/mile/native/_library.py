"""The compiled library: found, loaded and registered with XLA once per process, or reported as missing once."""

import contextlib
import ctypes
import logging
import os
from collections.abc import Iterator
from enum import StrEnum
from functools import cache

import jax

from mile.native._plain import FILE, open_library

_LOGGER = logging.getLogger("mile")
_FILE = FILE
HANDLERS = (
    *("mile_value_and_grad", "mile_value", "mile_mclmc_step", "mile_epoch"),
    *("mile_forward", "mile_backward", "mile_weighted_sum"),
    *("mile_attend", "mile_attend_slopes"),
)
_UNLIMITED = 1 << 20


class KernelState(StrEnum):
    """What became of the library in this process."""

    IN_USE = "in use"
    SWITCHED_OFF = "switched off"
    NOT_BUILT = "not built"
    REFUSED = "refused"


def library() -> ctypes.CDLL | None:
    """Return the library, or None when it was not built, is switched off (MILE_NATIVE=0) or is refused."""
    return _library()[0]


def kernel_state() -> KernelState:
    """Return whether the library is in use, and if not, why."""
    return KernelState.SWITCHED_OFF if os.environ.get("MILE_NATIVE") == "0" else _library()[1]


@cache
def _library() -> tuple[ctypes.CDLL | None, KernelState]:
    if os.environ.get("MILE_NATIVE") == "0":
        return None, KernelState.SWITCHED_OFF
    if not _FILE.exists():
        _LOGGER.warning(
            "mile: the native kernel was not built when the package was installed, so XLA computes everything, several "
            "times slower. Reinstall with a C++ compiler (GCC or Clang) at hand to get it."
        )
        return None, KernelState.NOT_BUILT
    try:
        handlers = ctypes.CDLL(str(_FILE))
        # XLA asks each handler for the version of the interface that it was compiled with. Before the backend is
        # there it only notes the handler, and one that it then refuses takes the whole backend with it.
        with contextlib.suppress(RuntimeError):  # JAX_PLATFORMS may leave the CPU out
            jax.devices("cpu")
        for name in HANDLERS:
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(handlers, name)), platform="cpu")
        loaded = open_library(_FILE)
    except Exception as error:
        _LOGGER.warning("mile: the native kernel cannot be used, so XLA computes everything, slower. %s", error)
        return None, KernelState.REFUSED
    return loaded, KernelState.IN_USE


def kernel_name() -> str:
    """Return what computes on this machine's CPU: `xla`, `native-avx2`, ...

    Same seed and same name: same bits.
    """
    loaded = library()
    return "xla" if loaded is None else f"native-{loaded.mile_kernel_name().decode()}"


@contextlib.contextmanager
def sharing_cores(n_calls: int, n_threads: int) -> Iterator[None]:
    """Tell the kernel that `n_calls` calls run side by side on `n_threads` threads.

    Calls that leave no thread idle use no other; a call on its own spreads its rows. That changes nobody's bits.
    """
    loaded = library()
    if loaded is None:
        yield
        return
    loaded.mile_use_helpers(max(0, n_threads // max(1, min(n_calls, n_threads)) - 1))
    try:
        yield
    finally:
        loaded.mile_use_helpers(_UNLIMITED)
