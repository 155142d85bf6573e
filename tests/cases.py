"""Loops over cases that share one check."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def case(name: object) -> Iterator[None]:
    """Say in a failure which case of a loop it was."""
    try:
        yield
    except BaseException as error:  # pytest's failures are no exceptions
        error.add_note(f"In this case: {name}")
        raise
