"""Make small mistakes in the source, one at a time, and see whether the tests notice: `make mutants`.

Each mutant is one changed line in a copy of the package. Only the tests named beside it run, with the first failure
ending them, so all of them take minutes. A mutant that survives shows a guarantee that no test holds.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
LONGEST = 900  # seconds; a mutant that makes a test hang is noticed too
NO_TESTS = 5  # pytest's code when a selection is empty: the list is wrong then
FEWEST_CAUGHT = 42


class Outcome(NamedTuple):
    caught: bool
    seconds: float
    words: str


def mutate(mutant: Mutant, source: Path) -> None:
    path = source / "mile" / mutant.file
    text = path.read_text()
    if text.count(mutant.old) != 1:
        raise SystemExit(f"{mutant.file}: {mutant.old!r} stands there {text.count(mutant.old)} times, not once.")
    path.write_text(text.replace(mutant.old, mutant.new))


def attempt(mutant: Mutant) -> Outcome:
    """Run the tests of one mutant in a copy of the package."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mile-mutant-") as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        mutate(mutant, source)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *mutant.tests.split()]
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"},
                check=False,
                capture_output=True,
                text=True,
                timeout=LONGEST,
            )
        except subprocess.TimeoutExpired:
            return Outcome(True, time.monotonic() - began, "timed out")
    if done.returncode not in (0, 1, 2):
        raise SystemExit(
            f"{mutant.tests}: pytest ended with {done.returncode}.\n{done.stdout[-2000:]}{done.stderr[-500:]}"
        )
    words = next((line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))), "")
    return Outcome(done.returncode != 0, time.monotonic() - began, words.partition(" - ")[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only mutants whose file or line contains this text")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if options.only in mutant.file + mutant.old]
    for mutant in chosen:  # before the first test runs, see that the list fits the source
        text = (ROOT / "src" / "mile" / mutant.file).read_text()
        assert text.count(mutant.old) == 1, (mutant.file, mutant.old, text.count(mutant.old))
    n_caught = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for mutant, outcome in zip(chosen, pool.map(attempt, chosen), strict=True):
            n_caught += outcome.caught
            verdict = "caught  " if outcome.caught else "SURVIVED"
            print(f"{verdict} {outcome.seconds:4.0f} s  {mutant.file}: {mutant.old!r} -> {mutant.new!r}", flush=True)
            if outcome.words:
                print(f"                  {outcome.words}", flush=True)
    print(f"{n_caught} of {len(chosen)} mutants caught")
    if not options.only and n_caught < FEWEST_CAUGHT:
        sys.exit(f"At least {FEWEST_CAUGHT} should be.")


if __name__ == "__main__":
    main()
