"""Small runs in directories, what they leave there, and processes that are stopped in the middle of one."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from unittest import mock

from targets import small_dataset

import mile
from mile import MLP, Gaussian, Mile, Status
from mile._progress import Silent
from mile.ensemble import members as ensemble
from mile.ensemble.training import Training
from mile.fitting import running as fitting
from mile.sampling import block_schedule, chain_state
from mile.sampling import chains as sampling
from mile.storage import _durable, _run

NETWORK = MLP(n_inputs=3, hidden=(4,))
SAMPLER = Mile(warmup_steps=300, sampling_steps=160, n_draws=50)  # 8 chunks of 7 draws, the last one with 1
TRAINING = Training(learning_rate=0.01, max_epochs=60)
N_CHAINS = 3
SEED = 5
# How many moments, as `Moments` counts them, each stage has at least when it is not resumed half-way.
STAGES = {
    "before": 10,
    "ensemble": 20,
    "phase I": 35,
    "phase II": 6,
    "phase III": 6,
    "sampling": 400,
    "final write": 10,
}
NOT_COMPARED = {"run.lock", "run.owner"}


def begin(folder: Path | None, **changes: Any) -> mile.Fit:
    """Fit, or go on fitting, in a folder."""
    arguments = {
        "dataset": small_dataset(),
        "network": NETWORK,
        "likelihood": Gaussian(),
        "sampler": SAMPLER,
        "training": TRAINING,
        "n_chains": N_CHAINS,
        "random_state": SEED,
        "run_dir": folder,
    }
    return mile.fit(**(arguments | changes))


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file of a run, but not who is writing to it."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in sorted(files.items()) if name not in NOT_COMPARED}


def write_contents(folder: Path, files: dict[str, bytes]) -> Path:
    """Make a run directory with these files."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def assert_same_files(folder: Path, expected: dict[str, bytes]) -> None:
    """Compare a folder with the contents of another, byte for byte."""
    found = contents(folder)
    assert set(found) == set(expected)
    assert [name for name in found if found[name] != expected[name]] == []


@contextlib.contextmanager
def blocks_of(steps: int):
    """Keep blocks short and their number the same on every machine."""
    with (
        mock.patch.object(block_schedule, "_FIRST_STEPS", steps),
        mock.patch.object(block_schedule.BlockSchedule, "learn"),
        mock.patch.object(ensemble, "_FIRST_EPOCHS", 10),
        mock.patch.object(ensemble, "_BLOCK_SHARE", 0.0),
    ):
        yield


@contextlib.contextmanager
def frequent_checkpoints(steps: int = 40):
    """Save after every one of many blocks."""
    with blocks_of(steps), mock.patch.object(_run, "CHECKPOINT_SECONDS", 0.0):
        yield


@contextlib.contextmanager
def failing_chain(chain: int):
    """Let one chain fail in its first phase, so that another one replaces it."""
    close = chain_state.ChainState.close_phase

    def fail(self: Any, phase: Any, ends: Any) -> None:
        self.status[self.ids == chain] = Status.BAD_STEPS
        close(self, phase, ends)

    with mock.patch.object(chain_state.ChainState, "close_phase", fail):
        yield


class Moments(Silent):
    """Calls `action(stage, number)` whenever a run is about to change its folder, and between blocks.

    Before a file is forced to disk, before it gets its name, before a stale file goes: what a killed process leaves
    is what was there at one of these moments. `number` counts from the beginning of the stage. A stage that comes
    twice, with chains that replace others, is called "again" the second time.
    """

    def __init__(self, action: Any, *, at_writes: bool = True) -> None:
        self._action = action
        self._at_writes = at_writes
        self._lock = threading.RLock()
        self._stage, self._number, self._seen = "before", 0, set()

    def start(self, stage: str, total: int, *, unit: str = "steps", n_chains: int = 1) -> None:
        with self._lock:
            self._stage, self._number = f"{stage} again" if stage in self._seen else stage, 0
            self._seen.add(stage)

    def advance(self, amount: int) -> None:
        self.happen()

    def happen(self) -> None:
        with self._lock:
            self._number += 1
            now = self._stage, self._number - 1
            if self._at_writes:
                self._action(*now)
        if not self._at_writes:
            self._action(*now)  # writing goes on meanwhile

    def before(self, function: Any) -> Any:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            if not self._at_writes:
                return function(*arguments, **options)
            with self._lock:  # no change of the folder goes on while an action looks at it
                self.happen()
                return function(*arguments, **options)

        return wrapped

    @contextlib.contextmanager
    def watched(self):
        """Watch the fits of this process."""
        finish = _run.Run.finish

        def final_write(run: Any, status: Any) -> None:
            run.settle()
            self.start("final write", 0)
            finish(run, status)

        system = mock.Mock(wraps=os, fsync=self.before(os.fsync), replace=self.before(os.replace))
        system.name, system.O_RDONLY = os.name, os.O_RDONLY
        with (
            mock.patch.object(_durable, "os", system),
            mock.patch.object(_run, "remove", self.before(_run.remove)),
            mock.patch.object(_run.Run, "finish", final_write),
            mock.patch.object(fitting, "Silent", return_value=self),
            mock.patch.object(sampling, "Silent", return_value=self),
        ):
            yield self


def at(stage: str, number: int, action: Any, *, at_writes: bool = True) -> Moments:
    """Act at a moment of a stage, and at the latest when the next stage begins."""
    order, wanted = list(STAGES), (list(STAGES).index(stage), number)
    return Moments(lambda now, count: action() if (order.index(now), count) >= wanted else None, at_writes=at_writes)


def once(action: Any) -> Any:
    """Return a function that acts when it is called first."""
    done: list[Any] = []
    return lambda: None if done else done.append(True) or action()


@contextlib.contextmanager
def interrupted(stage: str, number: int = 0, *, at_writes: bool = False):
    """Press Ctrl-C at a moment of a stage; without `at_writes` after a number of blocks, each of one chain."""
    press = once(lambda: signal.raise_signal(signal.SIGINT))
    with frequent_checkpoints(), at(stage, number, press, at_writes=at_writes).watched():
        yield


def start_child(code: str, *arguments: object, **environment: str) -> subprocess.Popen[str]:
    """Run code in a new process that finds this module, with its arguments in `sys.argv`."""
    places = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, "-c", f"import sys, runs; {code}", *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(places)} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


DYING = "runs.begin_and_die(*sys.argv[1:])"
WAITING = "runs.begin_and_wait(*sys.argv[1:])"


def begin_and_die(folder: str, stage: str, number: str) -> None:
    """Fit in a folder until a moment of a stage, and be killed there; what a child does."""
    with frequent_checkpoints(), at(stage, int(number), lambda: os.kill(os.getpid(), signal.SIGKILL)).watched():
        begin(Path(folder))


def begin_and_wait(folder: str, stage: str, number: str, seconds: str) -> None:
    """Fit in a folder until a moment of a stage, say so, and wait before going on; what a child does."""

    def wait() -> None:
        print("here", flush=True)
        time.sleep(float(seconds))

    with frequent_checkpoints(), at(stage, int(number), once(wait), at_writes=False).watched():
        begin(Path(folder))
