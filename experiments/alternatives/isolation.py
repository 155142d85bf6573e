"""One method in a process of its own: the environment of the peers, the limits that hold for all, the time limit."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from workbench import Workbench

HERE = Path(__file__).resolve().parent
OURS = ("mile-default", "mile-paper", "deep-ensemble")
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# Threads that wait sleep: on a machine with other work, XGBoost takes seven times as long with those that spin.
_WAITING = {"OMP_WAIT_POLICY": "passive"}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What each method may use: cores, and minutes on one split, importing and scoring included."""

    threads: int = 2
    minutes: float = 20.0


def run_method(
    method: str, rows: Mapping[str, np.ndarray], *, seed: int, bench: Workbench, limits: Limits, log: Path
) -> dict[str, float] | None:
    """Return the scores of a method; only the seconds if it took too long, None if it failed."""
    script, python = ("ours.py", sys.executable) if method in OURS else ("peers.py", peers_python())
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "rows.npz")
        np.savez(data, **rows)
        return run_script([python, HERE / script, method, data], seed=seed, bench=bench, limits=limits, log=log)


def run_script(
    command: Sequence[object], *, seed: int, bench: Workbench, limits: Limits, log: Path
) -> dict[str, float] | None:
    """Return what a script has written to the file that is its next argument; None and the seconds as `run_method`."""
    chains = 0 if bench.chains == bench.planned_chains else bench.chains
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, log.open("w") as output:
        result = Path(folder, "result.json")
        options = {"seed": seed, "threads": limits.threads, "scale": bench.scale, "chains": chains}
        words = [*command, result, *(word for name, value in options.items() for word in (f"--{name}", value))]
        # An empty cache, so that compiling counts in every fit, and no thread beyond those that all may use.
        threads = dict.fromkeys(_THREAD_VARIABLES, str(limits.threads)) | _WAITING
        variables = os.environ | {"XDG_CACHE_HOME": folder} | threads
        streams = {"stdout": output, "stderr": subprocess.STDOUT}
        try:
            ended = subprocess.run(
                [str(word) for word in words], env=variables, timeout=60.0 * limits.minutes, check=False, **streams
            )
        except subprocess.TimeoutExpired:
            return {"seconds": 60.0 * limits.minutes}
        if ended.returncode:
            return None
        found = json.loads(result.read_text())
        return {name: value for name, value in found.items() if value is not None}


def peers_python(folder: Path | None = None) -> str:
    """Return the interpreter of the peers' own environment in a folder with requirements.txt, made on first use."""
    home = folder or HERE
    environment, requirements = home / ".venv", home / "requirements.txt"
    python, stamp = str(environment / "bin" / "python"), environment / "installed"
    if not stamp.exists() or stamp.read_text() != requirements.read_text():
        print(f"    installing {requirements.name} into {environment.name}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(environment)], check=True)
        install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", str(requirements)]
        subprocess.run(install, check=True)
        stamp.write_text(requirements.read_text())
    return python
