"""When to stop: a time limit, or a signal that asks the run to save itself first."""

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType


class Deadline:
    """Knows the deadline and whether somebody asked to stop; looked at between blocks."""

    def __init__(self, time_limit: float | None = None) -> None:
        self.began = time.monotonic()
        self.time_limit = time_limit
        self.signal: int | None = None

    @property
    def stopping(self) -> bool:
        """Whether the run should save itself and end."""
        return self.signal is not None

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.began

    def passed(self, within: float = 0.0) -> bool:
        """Whether the time limit has passed, or will pass within the given number of seconds."""
        return self.time_limit is not None and self.elapsed + within >= self.time_limit


class Stopped(Exception):
    """Raised inside a run that has been asked to stop and has saved itself."""


@contextlib.contextmanager
def stop_on_signals(deadline: Deadline) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM ask the run to stop instead of breaking it; a second one breaks it.

    Handlers belong to the main thread; elsewhere signals do what they always do.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heeded = [signal.SIGINT, signal.SIGTERM]
    before = {number: signal.getsignal(number) for number in heeded}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def note(number: int, frame: FrameType | None) -> None:
        deadline.signal = number
        restore()

    for number in heeded:
        signal.signal(number, note)
    try:
        yield
    finally:
        restore()
