"""Forecasts of a run: its time from a timed block, because the number of steps is fixed; its memory from sizes."""

import os
import sys
from pathlib import Path

from mile._deadline import Deadline
from mile._errors import ResourceError
from mile._progress import Progress, duration
from mile.samplers import Sampler, budgets_of

_LONG_ENOUGH = 0.5  # seconds of a block from which its speed can be judged; short ones are mostly overhead
_WORTH_SAYING = 2.0  # seconds; less work needs no forecast
_MARGIN = 0.85  # share of the time left that budgets are planned for: speed varies
_FEWEST_WARMUP_STEPS, _FEWEST_SAMPLING_STEPS = 200, 20  # below, nothing can be tuned or averaged
_LARGEST_SHARE = 0.8  # of the free memory that draws may take


class Forecaster:
    """Times the first blocks and reports, once, how long the rest will take.

    The first block of a phase also compiles its program. The time it took beyond its steps is expected once more
    for each later phase that needs a program of its own.
    """

    def __init__(self, sampler: Sampler, n_chains: int, deadline: Deadline, sizes: str = "") -> None:
        self._phases = sampler.phases
        self._deadline = deadline
        self._work = (
            f"{n_chains} chains of {sum(phase.n_steps for phase in self._phases):,} steps, "
            f"{sampler.gradient_evaluations() * n_chains:,} gradient evaluations{sizes}"
        )
        self._index: int | None = None
        self._first_steps, self._first_seconds = 0, 0.0
        self.seconds_per_step: float | None = None
        self.compile_seconds = 0.0

    def note(self, index: int, stop: int, n_steps: int, seconds: float, progress: Progress | None) -> None:
        """Note the duration of a block that ended at step `stop` of phase `index`; tell `progress` the forecast."""
        if self.seconds_per_step is not None:
            return
        if self._index != index:  # a phase's first block
            self._index, self._first_steps, self._first_seconds = index, n_steps, seconds
            return
        if seconds < _LONG_ENOUGH:
            return
        self.seconds_per_step = seconds / n_steps
        self.compile_seconds = max(0.0, self._first_seconds - self._first_steps * self.seconds_per_step)
        left = self.seconds_left(index, stop)
        if progress and left >= _WORTH_SAYING:
            total = duration(self._deadline.elapsed + left)
            progress.say(f"Sampling: about {duration(left)} to go, {total} in all ({self._work}).")

    def seconds_left(self, index: int, stop: int) -> float:
        """Return the time from step `stop` of phase `index` to the end."""
        assert self.seconds_per_step is not None
        later = self._phases[index + 1 :]
        n_steps = self._phases[index].n_steps - stop + sum(phase.n_steps for phase in later)
        kinds = {type(phase) for phase in later} - {type(self._phases[index])}
        return n_steps * self.seconds_per_step + len(kinds) * self.compile_seconds


def plan_budgets(sampler: Sampler, forecast: Forecaster, seconds: float) -> dict[str, int] | None:
    """Return smaller budgets of a sampler that fit the given time, or None if its own do.

    All budgets shrink by the same factor; as many draws as possible are kept.
    """
    assert forecast.seconds_per_step is not None
    budgets = budgets_of(sampler)
    if "warmup_steps" not in budgets or "sampling_steps" not in budgets:
        return None  # there are no steps to save
    needed = forecast.seconds_left(0, 0)
    if needed <= seconds:
        return None
    steps = budgets["warmup_steps"] + budgets["sampling_steps"]
    affordable = (_MARGIN * seconds - (needed - steps * forecast.seconds_per_step)) / forecast.seconds_per_step
    share = max(0.0, affordable / steps)
    warmup = max(_FEWEST_WARMUP_STEPS, int(share * budgets["warmup_steps"]))
    sampling = max(_FEWEST_SAMPLING_STEPS, int(share * budgets["sampling_steps"]))
    planned = {"warmup_steps": warmup, "sampling_steps": sampling, "n_draws": min(budgets["n_draws"], sampling)}
    return {name: min(value, budgets[name]) for name, value in planned.items()}


def check_memory(n_bytes: int) -> None:
    """Refuse draws that memory cannot hold.

    Raises
    ------
    ResourceError
        With the numbers, and what to do instead.
    """
    available = available_memory()
    if available is not None and n_bytes > _LARGEST_SHARE * available:
        raise ResourceError(
            f"The draws would take {n_bytes / 1e6:,.0f} MB of memory, and {available / 1e6:,.0f} MB are available. "
            "Give a run_dir, which keeps them on disk, or ask for fewer draws or chains."
        )


def expected_memory(draw_bytes: int) -> int | None:
    """Return the largest memory that this process has taken so far, and what the draws will add to it."""
    try:
        import resource
    except ImportError:  # not a POSIX system
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit + draw_bytes


def available_memory() -> int | None:
    """Return the bytes that this process may still take, or None where the system does not say."""
    known = [_meminfo(), _cgroup()]
    found = [number for number in known if number is not None]
    return min(found) if found else None


def _meminfo() -> int | None:
    if not sys.platform.startswith("linux"):
        try:
            return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, ValueError, OSError):
            return None
    lines = _read("/proc/meminfo").splitlines()
    amounts = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(amounts[0]) * 1024 if amounts else None


def _cgroup() -> int | None:
    """Return what a container's limit leaves (cgroup version 2)."""
    limit, used = _read("/sys/fs/cgroup/memory.max").strip(), _read("/sys/fs/cgroup/memory.current").strip()
    return int(limit) - int(used) if limit.isdigit() and used.isdigit() else None


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
