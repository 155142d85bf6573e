"""One compilation cache per test process: programs that several tests share are compiled once."""

import os
import tempfile

import jax


def pytest_configure(config):
    folder = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    if folder is None:
        # A new folder for each process and run: JAX's cache is not safe for two writers, and no run sees another's.
        temporary = tempfile.TemporaryDirectory(prefix="mile-tests-")
        config.add_cleanup(temporary.cleanup)
        folder = temporary.name
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
