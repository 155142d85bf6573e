"""JAX's persistent compilation cache, on by default: a new process loads its programs instead of compiling them."""

import contextlib
import importlib.util
import logging
import os
import sys
import time
from pathlib import Path

import jax

# The programs of one network and data size take about 1 MB.
_LARGEST_SIZE = 128 << 20
# How old an entry must be before nobody can still be writing it, in seconds.
_ABANDONED = 60.0

_logger = logging.getLogger(__name__)


def use_compilation_cache() -> None:
    """Let JAX keep compiled programs in the user's cache folder; called before anything is compiled.

    What the user has decided stands: a folder of their own, and `jax_enable_compilation_cache` switched off.
    Without a folder to write to there is no cache, and nothing else changes. JAX has one cache per process, so
    other programs of this process are kept there too. Processes may share the folder, because the limit on its
    size makes JAX take a lock for every access; the lock needs `filelock`.
    """
    if _setting("jax_compilation_cache_dir") is not None or not _setting("jax_enable_compilation_cache"):
        return
    try:
        folder = _prepare_folder()
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home folder
        _logger.info("Programs are compiled anew in each process: %s", error)
        return
    if _setting("jax_compilation_cache_max_size") == -1:
        jax.config.update("jax_compilation_cache_max_size", _LARGEST_SIZE)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.config.update("jax_compilation_cache_dir", str(folder))


def _setting(name: str) -> object:
    return getattr(jax.config, name)  # type checkers do not know the settings by name


def _prepare_folder() -> Path:
    """Return a folder that JAX can write to and lock, or raise an OSError."""
    if importlib.util.find_spec("filelock") is None:
        raise OSError("the package filelock is not installed")
    folder = _user_cache_folder() / "mile-bnn" / "compiled"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise PermissionError(f"{folder} cannot be written to")
    _remove_fragments(folder)
    return folder


def _user_cache_folder() -> Path:
    """Return the folder for caches by the conventions of the platform."""
    configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if configured.is_absolute():
        return configured
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    return Path.home() / ".cache"


def _remove_fragments(folder: Path) -> None:
    """Remove entries whose writer was stopped half-way: JAX writes the time of access last.

    One such entry would make JAX refuse every later write (github.com/jax-ml/jax/issues/39880).
    """
    with os.scandir(folder) as found:
        entries = {entry.name: entry for entry in found}
    for name, entry in entries.items():
        key = name.removesuffix("-cache")
        if key == name or f"{key}-atime" in entries:
            continue
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            if entry.stat().st_mtime < time.time() - _ABANDONED:
                os.unlink(entry.path)
