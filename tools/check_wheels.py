"""Install what `make wheel` built into empty environments without a compiler, and see whether it works.

Usage: python tools/check_wheels.py [--quick] [FOLDER]    (default: dist; --quick: this Python only)

The wheel with the kernel goes into Python 3.11, 3.12 and 3.13 with the newest jaxlib that there is for each, and into
3.13 with the oldest that is allowed; each time the kernel must be in use. The wheel without a kernel and the source
archive must work too, and say that there is none.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from make_wheels import ROOT, oldest_jaxlib

VERSIONS = ("3.11", "3.12", "3.13")
_NOT_KEPT = ("MILE_", "PYTHON", "CXX", "CC")  # variables
COMPILERS = ("c++", "g++", "clang++", "gcc", "cc", "clang")
SECONDS = 900  # for one step: an installation downloads about 200 MB
SMOKE = Path(__file__).with_name("kernel_in_use.py")


def interpreter(version: str) -> Path | None:
    """Return a working interpreter of that version, from PATH or from where pyenv keeps them."""
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(f"python{version}"), *map(str, sorted(kept.glob(f"{version}.*/bin/python")))]
    for path in filter(None, found):
        asked = [path, "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"]
        done = subprocess.run(asked, capture_output=True, text=True)
        if done.returncode == 0 and done.stdout.strip() == version:
            return Path(path)
    return None


class Environment:
    """A virtual environment in which no compiler can be found."""

    def __init__(self, folder: Path, python: Path) -> None:
        self.folder = folder
        subprocess.run([python, "-m", "venv", folder / "venv"], check=True)
        self.binaries = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("MILE_", "PYTHON", "CXX", "CC"))
        }
        self.variables = {**kept, "PATH": str(self.binaries), "XDG_CACHE_HOME": str(folder / "cache")}
        seen = [name for name in COMPILERS if shutil.which(name, path=self.variables["PATH"])]
        assert not seen, f"a compiler is on PATH: {seen}"

    def run(self, *words: str | Path) -> str:
        """Run a program of the environment and return what it prints."""
        program, *rest = map(str, words)
        done = subprocess.run(
            [str(self.binaries / program), *rest],
            cwd=self.folder, env=self.variables, capture_output=True, text=True, timeout=SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, f"{' '.join(map(str, words))}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done.stdout

    def install(self, file: Path, *more: str, pip: tuple[str, ...] = ()) -> None:
        """Install a file and what it needs."""
        cache = os.environ.get("PIP_CACHE_DIR")
        where = ("--cache-dir", cache or str(Path.home() / ".cache" / "pip"))
        self.run("python", "-m", "pip", "--disable-pip-version-check", *where, "install", "-q", *pip, str(file), *more)


def check(file: Path, python: Path, has_kernel: bool, *more: str) -> str:
    """Install, ask the doctor, fit, save, load, and run the demonstration; return what was in use."""
    with tempfile.TemporaryDirectory() as name:
        environment = Environment(Path(name), python)
        binary = ("--only-binary", ":all:") if file.suffix == ".whl" else ()
        environment.install(file, *more, pip=binary)
        findings = json.loads(environment.run("mile", "doctor", "--json"))
        kernel, jaxlib = findings["native kernel"]["value"], findings["jaxlib"]["value"]
        assert kernel.startswith("native-") == has_kernel, f"mile doctor says: native kernel {kernel}"
        environment.run("python", "-W", "ignore", SMOKE, *(() if has_kernel else ("--without",)))
        if has_kernel:
            environment.run("mile", "demo")
        return f"jaxlib {jaxlib}, native kernel {kernel}"


def cases(folder: Path, quick: bool) -> list[tuple[str, Path, Path, bool, tuple[str, ...]]]:
    """Return what is installed where: title, file, interpreter, whether the kernel must be in use, limits."""
    native = [path for path in sorted(folder.glob("*.whl")) if not path.name.endswith("-none-any.whl")]
    (archive,), (plain,) = folder.glob("*.tar.gz"), folder.glob("*-none-any.whl")
    here = Path(sys.executable)
    this = "{}.{}".format(*sys.version_info)
    found = []
    for version in (this,) if quick else VERSIONS:
        python = here if version == this else interpreter(version)
        if python is None:
            sys.exit(f"There is no Python {version} here, or its shim does not run: install it, or use --quick.")
        found += [(f"{version}, wheel", wheel, python, True, ()) for wheel in native]
    if not quick:
        found += [
            (f"{VERSIONS[-1]}, wheel, oldest jaxlib", wheel, python, True, (f"jax=={oldest_jaxlib()}",))
            for wheel in native
        ]
    found.append((f"{this}, wheel without kernel", plain, here, False, ()))
    found.append((f"{this}, source archive", archive, here, False, ()))
    return found


def main(arguments: argparse.Namespace, say: Callable[..., None] = print) -> int:
    """Check everything, go on after a failure, and return how many there were."""
    n_failed = 0
    for title, file, python, has_kernel, more in cases(arguments.folder.resolve(), arguments.quick):
        try:
            say(f"ok      {title}: {check(file, python, has_kernel, *more)}", flush=True)
        except (AssertionError, subprocess.SubprocessError) as error:
            n_failed += 1
            say(f"FAILED  {title}: {error}", flush=True)
    return n_failed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "dist")
    parser.add_argument("--quick", action="store_true", help="only with this Python")
    sys.exit(min(1, main(parser.parse_args())))
