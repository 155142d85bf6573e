"""What the commands share: output for people or machines, and errors as one line with an exit code."""

import contextlib
import functools
import json
import logging
import math
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn, Protocol, runtime_checkable

import typer

from mile._errors import ClusterError, FitFailedError, FitWarning, Interrupted, ResourceError, RunLockedError
from mile._printable import without_commands

if TYPE_CHECKING:
    from mile._json import Json

# What our own functions raise; each message stands for itself.
_OURS = (ValueError, OSError, ImportError, ClusterError, FitFailedError, ResourceError, RunLockedError)
FAILED, STOPPED = 1, 130  # exit codes; 2 is for wrong arguments, 143 for SIGTERM

_show_tracebacks = False


def show_tracebacks(wanted: bool) -> None:
    """Decide whether an unexpected error comes with its traceback."""
    global _show_tracebacks
    _show_tracebacks = wanted


class Console:
    """The output of a command: results to standard output, everything else to standard error."""

    def __init__(self, *, quiet: bool = False, as_json: bool = False) -> None:
        self.quiet = quiet
        self.as_json = as_json

    @property
    def talkative(self) -> bool:
        """Whether people read along."""
        return not self.quiet and not self.as_json

    def say(self, text: str = "") -> None:
        """Print a line for people."""
        if self.talkative:
            typer.echo(without_commands(text))

    def row(self, line: str) -> None:
        """Print a line of a table: unchanged for programs, with terminal commands made harmless for people."""
        typer.echo(without_commands(line) if sys.stdout.isatty() else line)

    def answer(self, numbers: Mapping[str, object]) -> None:
        """Print a command's result for machines, if they asked for it."""
        if self.as_json:
            typer.echo(json.dumps(_plain(numbers), indent=2, allow_nan=False))


def _plain(value: object) -> "Json":
    """Return a value as JSON knows it; NaN and infinity become null."""
    return json.loads(json.dumps(value, default=_listed), parse_constant=lambda name: None)


def _listed(value: object) -> object:
    """Return arrays and their numbers as lists and plain numbers, all else as text."""
    return value.tolist() if isinstance(value, _Listable) else str(value)


@runtime_checkable
class _Listable(Protocol):
    """A NumPy array or scalar, without importing NumPy."""

    def tolist(self) -> object: ...


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command end with one clear line and an exit code, also after an unexpected error."""

    @functools.wraps(command)
    def guard(*arguments: object, **options: object) -> None:
        try:
            with _one_line_warnings():
                command(*arguments, **options)
                sys.stdout.flush()
        except BrokenPipeError:
            _close_output()
            fail("the program that read the output stopped before all of it was written.")
        except Interrupted as error:
            raise typer.Exit(STOPPED) from error  # the log has said that the run is saved, and how to resume it
        except KeyboardInterrupt as error:
            fail("stopped before anything was saved.", code=STOPPED, cause=error)
        except _OURS as error:
            fail(str(error) or type(error).__name__, cause=error)
        except (typer.Exit, typer.Abort, SystemExit):
            raise
        except Exception as error:
            if not _show_tracebacks:
                advice = "This should not happen; `mile --traceback ...` shows where."
                fail(f"{type(error).__name__}: {error}. {advice}", cause=error)
            traceback.print_exc()
            raise typer.Exit(FAILED) from error

    return guard


def fail(text: str, *, code: int = FAILED, cause: BaseException | None = None) -> NoReturn:
    """Print one line and leave."""
    if _show_tracebacks and cause is not None:
        traceback.print_exception(cause)
    typer.echo(without_commands(f"Error: {' '.join(text.split())}"), err=True)
    raise typer.Exit(code) from cause


class LogFormatter(logging.Formatter):
    """Formats messages only, with terminal commands made harmless."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the message of a record."""
        return without_commands(super().format(record))


@contextlib.contextmanager
def _one_line_warnings() -> Iterator[None]:
    """Show our warnings as one line each, and hide those of libraries, which are for developers."""

    def show(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        typer.echo(without_commands(f"Warning: {message}"), err=True)

    with warnings.catch_warnings():
        if not sys.warnoptions:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", FitWarning)
        warnings.showwarning = show
        yield


def _close_output() -> None:
    """Keep the interpreter from complaining about the broken pipe once more when it exits."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as text: the first column to the left, the others to the right."""
    widths = [max(len(line[column]) for line in [header, *rows]) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in [header, *rows]
    )


def figure(value: float) -> str:
    """Return a number with four significant digits."""
    if not math.isfinite(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
