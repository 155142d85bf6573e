"""What can go wrong: one status code per chain, each with a sentence, our exceptions, and how we warn."""

import os.path
import sys
import warnings
from enum import IntEnum

_PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")


class Status(IntEnum):
    """The outcome of one chain; numerical failure is a value, raising is a decision of the caller."""

    OK = 0
    NON_FINITE_START = 1
    BAD_STEPS = 2
    FROZEN = 3
    DIVERGED = 4
    UNTRAINED = 5
    NON_FINITE = 6
    LOST = 7

    @property
    def sentence(self) -> str:
        """Say in plain words what happened to the chain."""
        return _SENTENCES[self]


_SENTENCES = {
    Status.OK: "finished without trouble",
    Status.NON_FINITE_START: "its starting point has a log density that is not finite",
    Status.BAD_STEPS: "more than 5 % of the steps of one phase were not finite and were reverted",
    Status.FROZEN: "it hardly moved: its steps were far too short for its L, or its proposals nearly all refused",
    Status.DIVERGED: "it ended in a region far less probable than where it started",
    Status.NON_FINITE: "it reached a point that is not finite and never came back",
    Status.LOST: "the workers that ran it died, had no memory for it, or returned what cannot be right",
    Status.UNTRAINED: "no epoch of its training had a finite validation loss",
}


class FitFailedError(RuntimeError):
    """Raised when no chain is left to predict with; the message gives the reason of each."""


class FitWarning(UserWarning):
    """Issued when a result is usable but something about it should be known."""


class CorruptFileError(ValueError):
    """Raised when a file is damaged: cut short, altered, missing, or not written by us."""


class UntrustedFileError(ValueError):
    """Raised when a file holds what no file of ours would: unknown names, impossible sizes, NaN as a weight."""


class RunMismatchError(ValueError):
    """Raised when a run directory belongs to other data or another configuration; the message names the field."""


class RunLockedError(RuntimeError):
    """Raised when another process is writing to a run directory."""


class StorageError(OSError):
    """Raised when a file could not be written; what was saved before is still valid."""


class ResourceError(RuntimeError):
    """Raised before work begins when memory or disk space is too small; the message has the numbers."""


class ClusterError(RuntimeError):
    """Raised when a cluster cannot be reached, cannot be used, was lost or contradicts itself; the run is saved."""


class Interrupted(KeyboardInterrupt):
    """Raised when a run was stopped by Ctrl-C, after it was saved; the message says how to resume it."""


def warn(message: str, category: type[Warning] = FitWarning) -> None:
    """Issue a warning that points to the first line outside this package: the user's."""
    # From Python 3.12 on, `skip_file_prefixes` does this.
    level, frame = 1, sys._getframe()
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
