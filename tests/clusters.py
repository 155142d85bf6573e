"""Dask clusters of real processes for tests, and tasks that misbehave on them."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import dask
import jax
import numpy as np
from distributed import Client, LocalCluster

from mile._progress import Silent
from mile.sampling import programs

REAL_ADVANCE = programs.advance_group
_START_SECONDS = 60.0


@contextlib.contextmanager
def local_cluster(n_workers: int = 2):
    """Yield a client of a cluster of worker processes on this machine; a worker that dies is replaced.

    A task that has killed two workers is given up; Dask's default is four, and each takes seconds to start.
    """
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        LocalCluster(n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


class Processes:
    """A scheduler and workers as people start them by hand."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[subprocess.Popen] = []
        self.address = ""

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running:
            process.kill()
        for process in self._running:
            process.wait()

    def start_scheduler(self, port: int = 0) -> subprocess.Popen:
        file = self._folder / f"scheduler-{len(self._running)}.json"
        options = ["--host", "127.0.0.1", "--port", str(port), "--no-dashboard", "--scheduler-file", str(file)]
        process = self._start("scheduler", *options)
        deadline = time.monotonic() + _START_SECONDS
        while not file.exists() or not file.read_text().strip():
            assert time.monotonic() < deadline, "the scheduler did not start"
            time.sleep(0.1)
        with Client(scheduler_file=str(file), set_as_default=False) as client:
            self.address = client.scheduler.address
        return process

    def start_worker(self, **environment: str) -> subprocess.Popen:
        options = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory", str(self._folder)]
        return self._start("worker", self.address, *options, **environment)

    def _start(self, *words: str, **environment: str) -> subprocess.Popen:
        # Tests are on the path of workers, so that they find the tasks below.
        path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        process = subprocess.Popen(
            [sys.executable, "-m", "dask", *words],
            env=os.environ | {"PYTHONPATH": path} | environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._running.append(process)
        return process


class At(Silent):
    """Does something when a stage has advanced by some steps: `At({"sampling": action})`."""

    def __init__(self, actions: dict[str, Any], after: int = 1) -> None:
        self._actions, self._after = dict(actions), after
        self._stage = ""
        self.seen: dict[str, int] = {}

    def start(self, stage: str, total: int, *, unit: str = "steps", n_chains: int = 1) -> None:
        self._stage = stage

    def advance(self, amount: int) -> None:
        self.seen[self._stage] = self.seen.get(self._stage, 0) + amount
        if self.seen[self._stage] >= self._after and self._stage in self._actions:
            self._actions.pop(self._stage)()


def kill(pid: int) -> None:
    """End a process at once."""
    os.kill(pid, signal.SIGKILL)


# -- tasks that take the place of `programs.advance_group` on workers; block: fourth argument, streams: sixth


def slow_advance(seconds: float, *arguments: Any) -> Any:
    """Take a while, so that there is time to be killed."""
    time.sleep(seconds)
    return REAL_ADVANCE(*arguments)


def poisoned_advance(chain: int, *arguments: Any) -> Any:
    """Kill the worker that computes one chain."""
    if int(arguments[5].chains[0]) == chain:
        kill(os.getpid())
    return REAL_ADVANCE(*arguments)


def greedy_advance(chain: int, *arguments: Any) -> Any:
    """Have no memory for one chain."""
    if int(arguments[5].chains[0]) == chain:
        raise MemoryError("cannot allocate 12.3 GiB")
    return REAL_ADVANCE(*arguments)


def wrong_advance(chain: int, *arguments: Any) -> Any:
    """Find a mistake in one chain."""
    if int(arguments[5].chains[0]) == chain:
        raise ValueError("the network is wrong")
    return REAL_ADVANCE(*arguments)


def straggling_advance(folder: str, *arguments: Any) -> Any:
    """Come to an end only when there is a file "go", but only the first time."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(os.path.join(folder, "began"), os.O_CREAT | os.O_EXCL))
        deadline = time.monotonic() + _START_SECONDS
        while not os.path.exists(os.path.join(folder, "go")) and time.monotonic() < deadline:
            time.sleep(0.05)
        if not os.path.exists(os.path.join(folder, "go")):
            raise RuntimeError("nobody overtook this block")
    return REAL_ADVANCE(*arguments)


# -- workers that return what cannot be right


def _nan(advanced: Any) -> Any:
    return advanced._replace(
        records=advanced.records._replace(position=np.full_like(advanced.records.position, np.nan))
    )


def _lost_state(advanced: Any) -> Any:
    state = advanced.carries.state
    state = state._replace(position=np.full_like(state.position, np.inf))
    return advanced._replace(carries=advanced.carries._replace(state=state))


def _short(advanced: Any) -> Any:
    return advanced._replace(records=jax.tree.map(lambda leaf: leaf[:, 1:], advanced.records))


def _without_chain(advanced: Any) -> Any:
    return advanced._replace(carries=jax.tree.map(lambda leaf: np.asarray(leaf)[:0], advanced.carries))


def _wide(advanced: Any) -> Any:
    return advanced._replace(records=jax.tree.map(lambda leaf: leaf.astype(np.float64), advanced.records))


def _flipped(advanced: Any) -> Any:
    position = np.array(advanced.records.position)
    if position.size:
        position.view(np.uint32).flat[0] ^= 1
    return advanced._replace(records=advanced.records._replace(position=position))


def _noisy(advanced: Any) -> Any:
    position = advanced.records.position
    noise = np.random.default_rng().standard_normal(position.shape)
    return advanced._replace(records=advanced.records._replace(position=position + noise.astype(position.dtype)))


def _other(advanced: Any) -> Any:
    return "nothing of the kind"


FAULTS = {
    "NaN draws": _nan,
    "infinite state": _lost_state,
    "a draw too few": _short,
    "no chain": _without_chain,
    "double precision": _wide,
    "no result": _other,
    "a flipped bit": _flipped,
    "noise": _noisy,
}


def _takes(path: str, text: str = "") -> bool:
    """Say whether this call is the first to leave its name, or left the same name before."""
    try:
        with open(path, "x") as file:
            file.write(text)
        return True
    except FileExistsError:
        return bool(text) and Path(path).read_text() == text


def faulty_advance(fault: str, where: str, chain: int, *arguments: Any) -> Any:
    """Return something else than what was computed for the draws of one chain.

    `where` is "everywhere", "once in FOLDER" for the first block that comes by, or "one worker of FOLDER" for all
    blocks of the first worker that has one.
    """
    advanced = REAL_ADVANCE(*arguments)
    if arguments[0].name != "sampling" or int(arguments[5].chains[0]) != chain or not advanced.records.position.size:
        return advanced
    how, _, folder = where.rpartition(" ")
    strikes = {
        "": lambda: True,
        "once in": lambda: _takes(os.path.join(folder, "struck")),
        "one worker of": lambda: _takes(os.path.join(folder, "struck"), str(os.getpid())),
    }
    return FAULTS[fault](advanced) if strikes[how]() else advanced


class FaultyModel:
    """A model that predicts the sum of each row, and once something else."""

    def __init__(self, folder: Path, fault: Any = None, *, always: bool = False) -> None:
        self._path, self._fault, self._always, self._here = str(folder / "struck"), fault, always, os.getpid()

    def predict(self, rows: Any) -> Any:
        found = np.asarray(rows).sum(axis=1)
        if self._fault is None or (os.getpid() == self._here and not self._always):
            return found
        return self._fault(found) if self._always or _takes(self._path) else found
