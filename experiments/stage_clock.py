"""How long sampling took, apart from training and compiling: wall and processor seconds of each stage of a fit.

On a machine that others use, wall seconds tell of the others too. Processor seconds, those of all threads of this
process, do so much less.
"""

import json
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from workbench import Fitted, Workbench

from mile._progress import Progress, Silent

_ENSEMBLE = "ensemble"  # what the fit calls its training
# Reports of each chain at the beginning of a stage that are not timed: one that only says where a resumed run stands,
# and one of a few steps before which programs are compiled.
_UNTIMED_REPORTS = 2


class Spent(NamedTuple):
    """Seconds of all phases of a sampler, compilation left out."""

    seconds: float
    processor_seconds: float


class StageClock:
    """Stands between a fit and the progress that is shown, and keeps the speed of each stage in a file.

    A stage that was interrupted is timed by the steps of its last sitting, as if all had taken as long.
    """

    def __init__(self, path: Path | None, shown: Progress | None = None) -> None:
        self._path, self._shown = path, shown or Silent()
        self._lock = threading.Lock()
        self._kept: dict[str, dict[str, float] | None] = {}
        if path is not None and path.exists():
            self._kept = json.loads(path.read_text())

    @property
    def spent(self) -> Spent | None:
        """Seconds of all stages but the training; None if one could not be timed."""
        stages = [stage for name, stage in self._kept.items() if name != _ENSEMBLE]
        if not stages or None in stages:
            return None
        found = [Spent(stage["seconds"], stage["processor_seconds"]) for stage in stages if stage]
        return Spent(*map(sum, zip(*found, strict=True)))

    def start(self, stage: str, total: int, *, unit: str = "steps", n_chains: int = 1) -> None:
        """Note when a stage begins."""
        self._stage, self._total = stage, total
        self._untimed = _UNTIMED_REPORTS * n_chains
        self._resumed = stage in self._kept and self._kept[stage] is None
        self._done = 0
        self._began = self._settled = self._last = (time.perf_counter(), time.process_time(), 0)
        if stage not in self._kept:
            self._keep(stage, None)
        self._shown.start(stage, total, unit=unit, n_chains=n_chains)

    def advance(self, amount: int) -> None:
        """Note how far the stage is."""
        with self._lock:
            self._done += amount
            self._last = (time.perf_counter(), time.process_time(), self._done)
            if self._untimed > 0:
                self._untimed -= 1
                self._settled = self._last
        self._shown.advance(amount)

    def finish(self) -> None:
        """Keep the time that the stage took, or would have taken without an interruption."""
        if self._kept[self._stage] is None:  # not that of chains that replace others
            first = self._settled
            if self._last[2] == first[2] and not self._resumed:  # too short a stage to leave anything out
                first, self._last = self._began, (time.perf_counter(), time.process_time(), self._done)
            amount = self._last[2] - first[2]
            if amount > 0:
                seconds, processor = (self._total * (self._last[i] - first[i]) / amount for i in (0, 1))
                self._keep(self._stage, {"seconds": seconds, "processor_seconds": processor})
        self._shown.finish()

    def note(self, text: str) -> None:
        """Pass it on."""
        self._shown.note(text)

    def say(self, text: str) -> None:
        """Pass it on."""
        self._shown.say(text)

    def _keep(self, stage: str, measured: dict[str, float] | None) -> None:
        self._kept[stage] = measured
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps(self._kept))


class Timed(NamedTuple):
    """A fit, and the seconds of its sampling if they are known."""

    fitted: Fitted
    spent: Spent | None

    def columns(self) -> dict[str, object]:
        """Return wall and processor seconds of the sampling, and processor microseconds of one gradient."""
        if self.spent is None:
            return {}
        n_gradients = int(self.fitted.model.chains.gradient_evaluations.sum())
        return {
            "sampling_seconds": round(self.spent.seconds, 2),
            "processor_seconds": round(self.spent.processor_seconds, 2),
            "gradient_microseconds": round(1e6 * self.spent.processor_seconds / n_gradients, 2),
        }


def timed_fit(bench: Workbench, group: str, name: str, *parts: Any, **options: Any) -> Timed:
    """Fit as `bench.fit` does, and time the sampling."""
    clocks: list[StageClock] = []

    def observe(shown: Progress) -> StageClock:
        clocks.append(StageClock(path_of(bench, group, name), shown))
        return clocks[0]

    fitted = bench.fit(group, name, *parts, observe=observe, **options)
    clock = clocks[0] if clocks else StageClock(path_of(bench, group, name))
    return Timed(fitted, clock.spent)


def path_of(bench: Workbench, group: str, name: str) -> Path | None:
    """Return the file of a fit's times, beside its run directory."""
    folder = bench.run_dir(group, name)
    return None if folder is None else folder.with_suffix(".stages.json")
