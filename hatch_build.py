"""Builds the native kernel when a C++ compiler is at hand; without one the package is complete, only slower.

A few compiler calls and no build system: the library is three translations of one file, one of another, and
a link. Nothing in it depends on the version of Python, so one wheel serves all.
"""

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# No -ffast-math: in a shared library it would switch denormal numbers off for the whole process.
FLAGS = ["-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-ffp-contract=fast"]
# Instruction set: floats of a vector, flags.
X86 = {"portable": (4, []), "avx2": (8, ["-mavx2", "-mfma"]), "avx512": (16, ["-mavx512f", "-mfma"])}
OLDEST_MACOS = "11.0"  # as jaxlib's
OTHERS = {"portable": (4, [])}  # on ARM four floats are a NEON register, and every ARM64 processor has those


class NativeKernel(BuildHookInterface):
    """Adds `mile/native/_native.so` to a wheel, or to the source tree of an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the library and register it, or say in one line why there is none."""
        sources = Path(self.root) / "src" / "mile" / "native"
        result = sources / "_native.so"
        self.folder = tempfile.TemporaryDirectory()
        library = Path(self.folder.name) / "_native.so"
        try:
            build(sources, library)
        except BuildError as error:
            self.app.display_warning(f"mile: no native kernel ({error}); the package works without it, slower.")
            result.unlink(missing_ok=True)
            return
        if version == "editable":
            # Renamed into place: a process that has the old one loaded keeps it.
            shutil.copy2(library, result.with_suffix(".new"))
            result.with_suffix(".new").replace(result)
        else:
            build_data["force_include"][str(library)] = "mile/native/_native.so"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary files."""
        self.folder.cleanup()


class BuildError(Exception):
    """Why there is no library."""


def platform_tag() -> str:
    """Return the name of what the library runs on.

    On Linux it is that of this machine; auditwheel replaces it by the oldest glibc that has all symbols. On macOS the
    interpreter may be a universal one, but the library is for one processor.
    """
    if sys.platform == "darwin":
        major, _, minor = os.environ.get("MACOSX_DEPLOYMENT_TARGET", OLDEST_MACOS).partition(".")
        return f"macosx_{major}_{minor or 0}_{platform.machine()}"
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


def build(sources: Path, library: Path) -> None:
    """Compile and link."""
    if os.environ.get("MILE_NATIVE") == "0":
        raise BuildError("MILE_NATIVE=0 leaves it out")
    if os.name == "nt":
        raise BuildError("it is written for GCC and Clang")
    compiler = os.environ.get("CXX") or next(filter(shutil.which, ["c++", "g++", "clang++"]), None)
    if compiler is None:
        raise BuildError("there is no C++ compiler here")
    jaxlib = importlib.util.find_spec("jaxlib")
    if jaxlib is None or not jaxlib.submodule_search_locations:
        raise BuildError("jaxlib, whose headers it needs, is not installed")
    headers = Path(jaxlib.submodule_search_locations[0]) / "include"
    if sys.platform == "darwin":
        os.environ.setdefault("MACOSX_DEPLOYMENT_TARGET", OLDEST_MACOS)  # Clang reads it
    kernels = X86 if platform.machine().lower() in ("x86_64", "amd64") else OTHERS
    folder = library.parent
    commands = [
        [*FLAGS, "-isystem", str(headers), "-c", str(sources / "handlers.cpp"), "-o", str(folder / "handlers.o")]
    ]
    for name, (lanes, flags) in kernels.items():
        shown = "neon" if platform.machine().lower() in ("aarch64", "arm64") else name
        macros = [f"-DMILE_ISA={name}", f'-DMILE_ISA_NAME="{shown}"', f"-DMILE_LANES={lanes}"]
        commands.append([*FLAGS, *flags, *macros, "-c", str(sources / "kernel.cpp"), "-o", str(folder / f"{name}.o")])
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda command: run(compiler, command), commands))
    run(compiler, ["-shared", *map(str, sorted(folder.glob("*.o"))), "-o", str(library)])


def run(compiler: str, arguments: list[str]) -> None:
    """Run the compiler; its messages go to the build's log."""
    try:
        done = subprocess.run([*compiler.split(), *arguments], capture_output=True, text=True, check=False)
    except OSError as error:
        raise BuildError(f"{compiler} cannot be run: {error}") from error
    if done.returncode != 0:
        sys.stderr.write(done.stderr)
        first = next(iter(done.stderr.strip().splitlines()), "no message")
        raise BuildError(f"{compiler} failed: {first}")
