"""`mile paper`: hands its commands to the scripts of the repository, which are not part of the package."""

import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

import typer

from mile.cli._console import fail

_SCRIPT = Path("experiments", "paper.py")


def launch(arguments: list[str]) -> None:
    """Run experiments/paper.py with these arguments, and leave with its exit code.

    It writes to this terminal, and what asks this process to stop stops it.
    """
    script = find_script()
    if script is None:
        fail(
            "the experiments of the paper are not part of the installed package: clone the repository of MILE and run "
            "this command in its folder."
        )
    sys.stdout.flush()
    with subprocess.Popen([sys.executable, str(script), *arguments]) as process:

        def pass_on(number: int, frame: FrameType | None) -> None:
            by_terminal = any(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
            if number == signal.SIGTERM or not by_terminal:  # a terminal sends Ctrl-C to both
                process.send_signal(number)

        before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            code = process.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    raise typer.Exit(code if code >= 0 else 128 - code)


def find_script() -> Path | None:
    """Return the script of the source tree that this package is used from, or of the current folder."""
    places = (Path(__file__).resolve().parents[3], Path.cwd())
    return next((place / _SCRIPT for place in places if (place / _SCRIPT).is_file()), None)
