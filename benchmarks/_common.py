"""What every benchmark shares: result rows, medians of interleaved timings, the machine's peak, child processes.

Imports only the standard library and numpy, because scripts that run in the peer's own environment use it too.
"""

import argparse
import dataclasses
import functools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
N_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
AIRFOIL = (1_052, 5)  # training rows (70 % of 1,503) and inputs
N_CHAINS = 12

_PEAK_SIZE = 2_048
_PEAK_PRODUCTS = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One result. The bar, from `low` to `high`, judges the ratio, or the value where there is no ratio."""

    name: str
    value: float
    unit: str
    peer: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""

    @property
    def judged(self) -> float:
        return self.value if self.ratio is None else self.ratio

    @property
    def bar(self) -> str:
        if self.low is not None and self.high is not None:
            return f"{self.low:g} to {self.high:g}"
        if self.low is not None:
            return f"≥ {self.low:g}"
        return "" if self.high is None else f"≤ {self.high:g}"

    @property
    def passed(self) -> bool | None:
        """None where no bar is set; a value that is not a number fails."""
        if not self.bar:
            return None
        low = -np.inf if self.low is None else self.low
        high = np.inf if self.high is None else self.high
        return bool(low <= self.judged <= high)

    @property
    def cells(self) -> tuple[str, ...]:
        """What tables show."""
        verdict = {True: "pass", False: "FAIL", None: ""}[self.passed]
        ours = f"{_short(self.value)} {self.unit}".rstrip()
        return self.name, ours, _short(self.peer), _short(self.ratio), self.bar, verdict


COLUMNS = ("what", "ours", "peer", "ratio", "bar", "verdict")


def _short(number: float | None) -> str:
    if number is None:
        return ""
    return f"{number:,.0f}" if abs(number) >= 1_000 else f"{number:.3g}"


def command_line(main: Callable[[bool], list[Row]]) -> None:
    """Run one benchmark as a script."""
    parser = argparse.ArgumentParser(description=sys.modules[main.__module__].__doc__)
    parser.add_argument("--quick", action="store_true", help="small budgets: shows that the script works, no result")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    arguments = parser.parse_args()
    rows = main(arguments.quick)
    table = [COLUMNS, *(row.cells for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for cells in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())
    if arguments.json:
        arguments.json.write_text(json.dumps([dataclasses.asdict(row) for row in rows]))


def progress(message: str) -> None:
    """Say what is under way."""
    print(f"  {message}", file=sys.stderr, flush=True)


def interleave(*measures: Callable[[], float], repetitions: int) -> list[float]:
    """Return the median of each measure, taken in turns, so that a slow spell of the machine hits all alike."""
    values = [[measure() for measure in measures] for _ in range(repetitions)]
    return [statistics.median(column) for column in zip(*values, strict=True)]


def seconds_of(function: Callable[[], Any]) -> float:
    """Time one call."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def sgemm_peak() -> float:
    """Return the GFLOP/s of float32 matrix products on all cores: what the machine can do at best."""
    left, right, out = _peak_matrices()
    seconds = seconds_of(lambda: [np.matmul(left, right, out=out) for _ in range(_PEAK_PRODUCTS)])
    return _PEAK_PRODUCTS * 2e-9 * _PEAK_SIZE**3 / seconds


@functools.cache
def _peak_matrices() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((2, _PEAK_SIZE, _PEAK_SIZE), np.float32)
    out = np.empty_like(left)
    np.matmul(left, right, out=out)  # starts the threads
    return left, right, out


def regression_data(n_rows: int, n_inputs: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw a standardized table with a smooth, noisy response, float32."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n_rows, n_inputs), np.float32)
    y = np.sin(x[:, 0]) + x[:, 1] * x[:, 2] + np.float32(0.1) * rng.standard_normal(n_rows, np.float32)
    return x, (y - y.mean()) / y.std()


def run_child(
    script: str, *arguments: Any, python: str = sys.executable, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Run a script of this folder in a fresh process and return the JSON object on its last line.

    The child finds the time of its start in `BENCHMARK_STARTED`.
    """
    variables = {**os.environ, **(environment or {}), "BENCHMARK_STARTED": repr(time.time())}
    command = [python, str(HERE / script), *map(str, arguments)]
    child = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if child.returncode:
        raise RuntimeError(f"{script} {' '.join(map(str, arguments))} failed:\n{child.stderr[-3_000:]}")
    return json.loads(child.stdout.splitlines()[-1])


class CompilationLog:
    """Counts what JAX compiles and what it loads from the persistent cache, from its making on.

    JAX reports a duration for each program it asks for, also when the cache answers; the cache reports its
    hits apart, so real compilations are the difference. Threads that compile side by side add up.
    """

    def __init__(self) -> None:
        import jax

        self.requests, self.cache_hits, self.seconds = 0, 0, 0.0
        jax.monitoring.register_event_duration_secs_listener(self._on_duration)
        jax.monitoring.register_event_listener(self._on_event)

    def take(self) -> dict[str, float]:
        """Return the counts since the last call."""
        counts = {
            "compiled": self.requests - self.cache_hits,
            "loaded": self.cache_hits,
            "compile_seconds": self.seconds,
        }
        self.requests, self.cache_hits, self.seconds = 0, 0, 0.0
        return counts

    def _on_duration(self, event: str, duration_secs: float, **_: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            self.requests += 1
            self.seconds += duration_secs

    def _on_event(self, event: str, **_: Any) -> None:
        if event == "/jax/compilation_cache/cache_hits":
            self.cache_hits += 1
