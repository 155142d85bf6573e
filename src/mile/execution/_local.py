"""What backends of one process have in common."""

import contextlib
from collections.abc import Iterator
from typing import Any, Self

from mile.execution.base import Identify


class AbstractLocalBackend:
    """A backend that is its own pool: tasks run here, in step with each other, and share what is compiled."""

    is_local = True
    block_seconds = 1.0  # of all groups together: makes overhead vanish, and can still be watched
    growth = 2

    @property
    def program(self) -> Self:
        """Itself: a group is one program."""
        return self

    @contextlib.contextmanager
    def open_pool(self) -> Iterator[Self]:
        """Give itself."""
        yield self

    def agree(self, identify: Identify, known: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return what this process says of itself."""
        return identify()

    def bounded(self, n_steps: int, n_left: int) -> int:
        """Leave the length of a block as it is: nobody waits for it."""
        return n_steps

    def rounds(self, n_groups: int) -> float:
        """Return one: tasks that run in step are timed together."""
        return 1.0
