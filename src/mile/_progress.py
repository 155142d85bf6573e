"""Progress as the pipeline reports it: silent by default, bars on request."""

import logging
import threading
from typing import Protocol, runtime_checkable

logger = logging.getLogger("mile")


@runtime_checkable
class Progress(Protocol):
    """Receives the advance of each stage, possibly from several threads."""

    def start(self, stage: str, total: int) -> None:
        """Begin a stage of `total` units of work."""
        ...

    def advance(self, amount: int) -> None:
        """Report `amount` more units of the current stage."""
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


class Silent:
    """Shows nothing, but logs what there is to say."""

    def start(self, stage: str, total: int) -> None:
        """Ignore."""

    def advance(self, amount: int) -> None:
        """Ignore."""

    def finish(self) -> None:
        """Ignore."""

    def say(self, text: str) -> None:
        """Leave it to the log."""
        logger.info(text)


class Bars:
    """One bar per stage in the terminal, with elapsed and remaining time."""

    def __init__(self) -> None:
        # rich is slow to import and most fits show nothing.
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            TaskID,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as RichProgress

        self._bars = RichProgress(
            TextColumn("{task.description:<12}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self._lock = threading.Lock()
        self._task = TaskID(0)

    def __enter__(self) -> "Bars":
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def start(self, stage: str, total: int) -> None:
        """Open a bar."""
        self._task = self._bars.add_task(stage, total=total)

    def advance(self, amount: int) -> None:
        """Move the current bar."""
        with self._lock:
            self._bars.advance(self._task, amount)

    def finish(self) -> None:
        """Fill the current bar, also when a stage ended early."""
        task = self._bars.tasks[self._task]
        self._bars.update(self._task, completed=task.total)

    def say(self, text: str) -> None:
        """Print a line above the bars."""
        self._bars.console.print(text, highlight=False)
        logger.info(text)
