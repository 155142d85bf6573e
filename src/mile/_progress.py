"""Progress as the pipeline reports it: silent by default, on request bars in a terminal and plain lines elsewhere."""

import contextlib
import logging
import sys
import threading
import time
from typing import TYPE_CHECKING, Protocol, TextIO, runtime_checkable

if TYPE_CHECKING:
    from rich.console import Console

logger = logging.getLogger("mile")

_LINE_SECONDS = 10.0  # between two lines about the same stage
_REFRESHES = 1.0  # of the bars each second, as often as blocks end; the usual ten take nine percent of a core
_WORTH_A_LINE = 2.0  # seconds; a shorter stage is not mentioned


@runtime_checkable
class Progress(Protocol):
    """Receives the advance of each stage, possibly from several threads."""

    def start(self, stage: str, total: int, *, unit: str = "steps", n_chains: int = 1) -> None:
        """Begin a stage of `total` units of work, those of all chains together."""
        ...

    def advance(self, amount: int) -> None:
        """Report `amount` more units of the current stage."""
        ...

    def note(self, text: str) -> None:
        """Show something about the current stage that changes, such as a running score."""
        ...

    def finish(self) -> None:
        """End the current stage."""
        ...

    def say(self, text: str) -> None:
        """Tell the user something, such as a forecast."""
        ...


def duration(seconds: float) -> str:
    """Return a duration as people say it."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def show_progress(wanted: bool) -> contextlib.AbstractContextManager[Progress | None]:
    """Return a context that gives bars where they can be drawn, lines elsewhere, and None if nothing is wanted."""
    if not wanted:
        return contextlib.nullcontext()
    from rich.console import Console  # rich is slow to import and most fits show nothing

    console = Console(stderr=True)
    return Bars(console) if console.is_terminal or console.is_jupyter else contextlib.nullcontext(Lines())


class Silent:
    """Shows nothing, but logs what there is to say."""

    def start(self, stage: str, total: int, *, unit: str = "steps", n_chains: int = 1) -> None:
        """Ignore."""

    def advance(self, amount: int) -> None:
        """Ignore."""

    def note(self, text: str) -> None:
        """Ignore."""

    def finish(self) -> None:
        """Ignore."""

    def say(self, text: str) -> None:
        """Leave it to the log."""
        logger.info(text)


class Lines:
    """A line every ten seconds, for logs and pipes."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._lock = threading.Lock()
        self._stage = self._unit = self._note = ""
        self._total = self._done = 0
        self._n_chains = 1
        self._began = self._told = 0.0

    def start(self, stage: str, total: int, *, unit: str = "steps", n_chains: int = 1) -> None:
        """Remember the stage."""
        self._stage, self._total, self._unit, self._n_chains = stage, total, unit, n_chains
        self._done, self._note = 0, ""
        self._began = self._told = time.monotonic()

    def advance(self, amount: int) -> None:
        """Print a line if the last one is long ago."""
        with self._lock:
            self._done += amount
            now = time.monotonic()
            if now - self._told < _LINE_SECONDS:
                return
            self._told = now
            rate = self._done / (now - self._began)
            left = duration((self._total - self._done) / rate) if rate > 0 else "unknown"
            self._write(
                f"{self._done / max(self._total, 1):.0%}, {_chains(self._n_chains)}, {rate:,.0f} {self._unit}/s, "
                f"{left} left{self._noted()}"
            )

    def note(self, text: str) -> None:
        """Add it to the next line."""
        self._note = text

    def finish(self) -> None:
        """Say how long the stage took."""
        seconds = time.monotonic() - self._began
        if seconds >= _WORTH_A_LINE:
            self._write(f"done in {duration(seconds)}{self._noted()}")

    def say(self, text: str) -> None:
        """Print it."""
        self._stream.write(f"{text}\n")
        self._stream.flush()
        logger.info(text)

    def _noted(self) -> str:
        return f", {self._note}" if self._note else ""

    def _write(self, text: str) -> None:
        self._stream.write(f"{self._stage}: {text}\n")
        self._stream.flush()


class Bars:
    """One bar per stage in the terminal, with chains, speed, elapsed and remaining time."""

    def __init__(self, console: "Console | None" = None) -> None:
        # rich is slow to import and most fits show nothing.
        from rich.console import Console
        from rich.progress import BarColumn, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        self._bars = RichProgress(
            TextColumn("{task.description:<9}"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TextColumn("{task.fields[chains]}"),
            TextColumn("{task.fields[speed]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.fields[note]}"),
            console=console or Console(stderr=True),
            refresh_per_second=_REFRESHES,
        )
        self._lock = threading.Lock()
        self._task = TaskID(0)
        self._unit = "steps"

    def __enter__(self) -> "Bars":
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def start(self, stage: str, total: int, *, unit: str = "steps", n_chains: int = 1) -> None:
        """Open a bar."""
        self._unit = unit
        self._task = self._bars.add_task(stage, total=total, chains=_chains(n_chains), speed="", left="", note="")

    def advance(self, amount: int) -> None:
        """Move the current bar."""
        with self._lock:
            self._bars.advance(self._task, amount)
            task = self._bars.tasks[self._task]
            if task.elapsed and task.completed:
                rate = task.completed / task.elapsed
                left = duration((task.total or 0.0) / rate - task.elapsed)
                self._bars.update(self._task, speed=f"{rate:,.0f} {self._unit}/s", left=f"{left} left")

    def note(self, text: str) -> None:
        """Show it at the end of the current bar."""
        self._bars.update(self._task, note=text)

    def finish(self) -> None:
        """Fill the current bar, also when a stage ended early."""
        task = self._bars.tasks[self._task]
        self._bars.update(self._task, completed=task.total, left="")

    def say(self, text: str) -> None:
        """Print a line above the bars."""
        self._bars.console.print(text, highlight=False)
        logger.info(text)


def _chains(number: int) -> str:
    return f"{number} chain{'' if number == 1 else 's'}"
