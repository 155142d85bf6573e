"""Fuzz what reads files: `make test-fuzz SECONDS=600`. A case is a target and a number, and comes out the same again.

A case fails by an exception that is not ours, by taking too long, or by touching a file outside its folder. It is then
added to `corpus/`, whose cases are tried first and by `test_corpus.py`.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
CORPUS = HERE / "corpus" / "cases.json"
LONGEST = 20.0  # seconds of the processor for one case
sys.path[:0] = [str(HERE), str(HERE.parent)]
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.truncate"}


class Hang(BaseException):
    """A case took too long; no `except Exception` may take it."""


class Fence:
    """Notes every change of a file outside a folder and the cache of compiled programs, while it is up."""

    def __init__(self, root: Path) -> None:
        folders = [root, *(Path(os.environ[name]) for name in ("XDG_CACHE_HOME",) if name in os.environ)]
        self.inside = tuple(f"{os.path.realpath(folder)}/" for folder in folders)
        self.seen, self.is_up = [], False
        sys.addaudithook(self._watch)

    def _watch(self, event: str, arguments: tuple) -> None:
        if not self.is_up:
            return
        if event == "open":
            path, _, flags = arguments
            is_write = isinstance(flags, int) and flags & _WRITES
            if not is_write or isinstance(path, int):
                return
        elif event in _CHANGES:
            path = arguments[0]
        else:
            return
        place = os.path.realpath(os.path.dirname(os.fsdecode(path)) or ".")
        if not f"{place}/".startswith(self.inside) and os.fsdecode(path) != os.devnull:
            self.seen.append(f"{event} {path}")


def is_ours(error: BaseException) -> bool:
    """Say whether an exception is a refusal: one of our types, or a ValueError that this package raised itself."""
    import mile

    ours = (mile.CorruptFileError, mile.UntrustedFileError, mile.RunMismatchError, mile.FitFailedError)
    if isinstance(error, (*ours, mile.ResourceError)):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    return type(error) is ValueError and f"{os.sep}mile{os.sep}" in frames[-1].filename


def try_case(name: str, number: int, root: Path, fence: Fence) -> str:
    """Return what is wrong with the outcome of a case, or nothing."""
    from fuzz_targets import TARGETS

    folder = root / "case"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()

    def stop(*_: object) -> None:
        raise Hang

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, LONGEST)
    fence.seen, fence.is_up = [], True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            warnings.simplefilter("error", RuntimeWarning)
            TARGETS[name](random.Random(f"{name}/{number}"), folder)
    except Hang:
        return f"more than {LONGEST} s:\n{traceback.format_exc()}"
    except (Exception, SystemExit) as error:
        if not is_ours(error):
            return traceback.format_exc()
    finally:
        fence.is_up = False
        signal.setitimer(signal.ITIMER_PROF, 0.0)
    return f"changed files elsewhere: {fence.seen}" if fence.seen else ""


def read_corpus() -> list[tuple[str, int]]:
    return [(name, number) for name, numbers in json.loads(CORPUS.read_text()).items() for number in numbers]


def add_to_corpus(name: str, number: int) -> None:
    known = json.loads(CORPUS.read_text())
    known[name] = sorted({*known.get(name, []), number})
    CORPUS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=None, help="default: another one each day")
    parser.add_argument("--case", nargs=2, metavar=("TARGET", "NUMBER"), help="try one case and print what happens")
    parser.add_argument("--targets", default="", help="with commas; default: all")
    given = parser.parse_args()
    seed = int(time.strftime("%Y%m%d")) if given.seed is None else given.seed
    with tempfile.TemporaryDirectory(prefix="mile-fuzz-") as name:
        root = Path(name)
        os.environ["XDG_CACHE_HOME"] = str(root / "cache")
        from fuzz_targets import TARGETS, prepare

        fence = Fence(root)
        (root / "good").mkdir()
        prepare(root / "good")
        if given.case:
            wrong = try_case(given.case[0], int(given.case[1]), root, fence)
            print(wrong or "nothing wrong")
            sys.exit(bool(wrong))
        chosen = given.targets.split(",") if given.targets else list(TARGETS)
        print(f"seed {seed}, targets {', '.join(chosen)}", flush=True)
        counts: Counter[str] = Counter()
        failed = [case for case in read_corpus() if try_case(*case, root, fence)]
        for case in failed:
            print(f"in the corpus and still wrong: {case}", flush=True)
        order, ends, number = random.Random(seed), time.monotonic() + given.seconds, 0
        while time.monotonic() < ends:
            target, case = order.choice(chosen), order.randrange(2**40)
            number += 1
            counts[target] += 1
            wrong = try_case(target, case, root, fence)
            if wrong:
                failed.append((target, case))
                add_to_corpus(target, case)
                print(f"\n--case {target} {case}\n{wrong}", flush=True)
        print(f"{number:,} cases, {len(failed)} failures: {dict(counts)}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
