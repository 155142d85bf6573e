"""What backends of one process have in common."""

import contextlib
from collections.abc import Iterator
from typing import Self

from mile.execution.base import Fingerprint, Identify


class AbstractLocalBackend:
    """A backend that is its own pool: tasks run here, in step with each other, and share what is compiled."""

    is_local = True
    block_seconds = 1.0  # of all groups together: hides the overhead, and progress is still visible
    growth = 2

    @property
    def program(self) -> Self:
        """The program of a group, which this backend is."""
        return self

    @contextlib.contextmanager
    def open_pool(self) -> Iterator[Self]:
        """Open a context that returns this backend; there is nothing to set up."""
        yield self

    def agree(self, identify: Identify, known: Fingerprint | None = None) -> Fingerprint:
        """Return the fingerprint of this process."""
        return identify()

    def bounded(self, n_steps: int, n_left: int) -> int:
        """Return the length unchanged: no other worker waits for the block."""
        return n_steps

    def rounds(self, n_groups: int) -> float:
        """Return one: tasks that run in step are timed together."""
        return 1.0
