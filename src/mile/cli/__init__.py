"""The command line. Declared here and in the files of commands without anything heavy, so that help comes at once."""

import logging
from pathlib import Path
from typing import Annotated

import typer

from mile.cli._console import Console, LogFormatter, guarded, show_tracebacks
from mile.cli._model_commands import models
from mile.cli._options import Json, Quiet
from mile.cli._paper_commands import paper
from mile.cli._run_commands import runs

app = typer.Typer(
    help="Bayesian neural networks by Microcanonical Langevin Ensembles: predictions with intervals you can trust.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain text: rich would take longer to import than the rest
    pretty_exceptions_enable=False,
)
others = typer.Typer()


@others.command()
@guarded
def demo(
    out: Annotated[Path, typer.Option(help="Run directory to write.")] = Path("mile-demo.run"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fit a small made table beside a ridge regression and an ensemble, and write its report, in half a minute."""
    from mile.cli import _demo

    _demo.demo(Console(quiet=quiet, as_json=as_json), out)


@others.command()
@guarded
def doctor(as_json: Json = False, quiet: Quiet = False) -> None:
    """Show what this machine offers, what is slow, and why."""
    from mile.cli import _doctor

    _doctor.doctor(Console(quiet=quiet, as_json=as_json))


for part in (runs, models, others):  # help lists the commands in this order
    app.add_typer(part)
app.add_typer(paper, name="paper")


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("mile-bnn"))
        raise typer.Exit


@app.callback()
def main(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
    traceback: Annotated[bool, typer.Option("--traceback", help="Show where an error came from.")] = False,
) -> None:
    """Set up what all commands share."""
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    show_tracebacks(traceback)
