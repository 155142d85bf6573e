"""Build the kernel and its driver with sanitizers in a temporary folder, and run random plans: `make test-sanitize`."""

import argparse
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NATIVE = ROOT / "src" / "mile" / "native"
# What each build watches, what the driver does in it, and its share of the plans: watched threads are slow.
BUILDS = {
    "address,undefined": ("plans", 1.0),
    "thread": ("threads", 0.1),
}
FLAGS = ["-std=c++17", "-O1", "-g", "-fno-omit-frame-pointer", "-fno-math-errno", "-ffp-contract=fast"]


def hatch_build():
    """Return the script that builds the kernel for installation: its instruction sets are ours."""
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compile_all(sanitizers: str, folder: Path, jobs: int) -> Path:
    compiler = os.environ.get("CXX") or next(filter(shutil.which, ["c++", "g++", "clang++"]))
    headers = Path(importlib.util.find_spec("jaxlib").submodule_search_locations[0]) / "include"
    builder = hatch_build()
    kernels = builder.X86 if platform.machine().lower() in ("x86_64", "amd64") else builder.OTHERS
    common = [*compiler.split(), *FLAGS, f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all"]
    commands = [
        [*common, f"-I{NATIVE}", "-isystem", headers, "-c", HERE / "driver.cpp", "-o", folder / "driver.o"],
    ]
    for name, (lanes, flags) in kernels.items():
        macros = [f"-DMILE_ISA={name}", f'-DMILE_ISA_NAME="{name}"', f"-DMILE_LANES={lanes}"]
        commands.append([*common, *flags, *macros, "-c", NATIVE / "kernel.cpp", "-o", folder / f"{name}.o"])
    waiting, running = [list(map(str, command)) for command in commands], []
    while waiting or running:
        while waiting and len(running) < jobs:
            running.append(subprocess.Popen(waiting.pop(0)))
        first = running.pop(0)
        if first.wait():
            for other in running:
                other.wait()
            sys.exit("The compiler failed.")
    driver = folder / "driver"
    subprocess.run([*common, *sorted(map(str, folder.glob("*.o"))), "-pthread", "-o", str(driver)], check=True)
    return driver


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plans", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="compilers at a time")
    given = parser.parse_args()
    failed = False
    for sanitizers, (mode, share) in BUILDS.items():
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            driver = compile_all(sanitizers, Path(folder), given.jobs)
            built, count = time.perf_counter(), max(1, round(share * given.plans))
            options = {
                "ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1",
                "UBSAN_OPTIONS": "print_stacktrace=1",
                "TSAN_OPTIONS": "halt_on_error=1",
            }
            command = [str(driver), mode, str(given.seed), str(count)]
            done = subprocess.run(command, check=False, env=os.environ | options)
            ended = time.perf_counter()
            seconds = f"built in {built - began:.0f} s, ran {ended - built:.0f} s"
            print(f"{sanitizers}: {'failed' if done.returncode else 'clean'} ({seconds})", flush=True)
            failed |= done.returncode != 0
    sys.exit(failed)


if __name__ == "__main__":
    main()
