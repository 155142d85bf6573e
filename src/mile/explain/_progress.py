"""Progress of explanations: a bar that appears where people look, once they have waited for a while."""

import contextlib
import time
from collections.abc import Iterator

from threadpoolctl import threadpool_limits

from mile._progress import Bars

_PATIENCE = 2.0  # seconds


class LateBar:
    """A bar that opens when the work has taken two seconds; without a terminal or notebook it never does."""

    def __init__(self, total: int, stack: contextlib.ExitStack, wanted: bool) -> None:
        self._total, self._stack, self._wanted = total, stack, wanted
        self._began, self._done = time.monotonic(), 0
        self._bars: Bars | None = None

    def advance(self, amount: int) -> None:
        """Report so many more parts."""
        self._done += amount
        if self._bars is not None:
            self._bars.advance(amount)
        elif self._wanted and time.monotonic() - self._began > _PATIENCE:
            self._wanted = False
            self._open()

    def _open(self) -> None:
        from rich.console import Console  # slow to import

        console = Console(stderr=True)
        if console.is_terminal or console.is_jupyter:
            self._bars = self._stack.enter_context(Bars(console))
            self._bars.start("explain", self._total, unit="parts")
            self._bars.advance(self._done)


@contextlib.contextmanager
def late_bar(total: int, *, wanted: bool = True) -> Iterator[LateBar]:
    """Return a context with a bar for so many parts of work, whose many small matrix products take one thread each.

    Threads of their own would only wait for those that predict: on a busy machine a hundred times as long.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(threadpool_limits(limits=1, user_api="blas"))
        yield LateBar(total, stack, wanted)
