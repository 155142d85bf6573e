"""One compilation cache per test process, and a count of what is compiled."""

import gc
import os
import tempfile
from pathlib import Path

import jax
import pytest

# Each compiled program takes a few of the regions of memory that Linux grants a process, 65,530 by default, and LLVM
# crashes when there are none left.
_MOST_REGIONS = 20_000


def pytest_configure(config):
    # A new folder for each process and run, so that no run sees another's programs. Processes that tests start keep
    # theirs there too, in a folder of their own: JAX's cache is safe for several writers only with a limit on its size.
    temporary = tempfile.TemporaryDirectory(prefix="mile-tests-", ignore_cleanup_errors=True)
    config.add_cleanup(temporary.cleanup)
    os.environ["XDG_CACHE_HOME"] = temporary.name
    folder = os.environ.get("JAX_COMPILATION_CACHE_DIR", os.path.join(temporary.name, "tests"))
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@pytest.fixture(autouse=True, scope="module")
def few_programs():
    """Forget compiled programs between files when there are very many; the cache on disk still has the slow ones."""
    yield
    regions = Path("/proc/self/maps")
    if regions.exists() and regions.read_bytes().count(b"\n") > _MOST_REGIONS:
        jax.clear_caches()
        gc.collect()


@pytest.fixture
def compilations():
    """Return the names of the programs compiled, or loaded from a cache, from now on."""
    names = []

    def listen(event, seconds, fun_name="", **_):
        if event == "/jax/core/compile/backend_compile_duration":
            names.append(fun_name)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield names
    jax.monitoring.unregister_event_duration_listener(listen)
