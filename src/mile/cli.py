"""The command line: what people do with runs outside of Python."""

import logging
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from mile import _errors
from mile._errors import Interrupted

# What our own functions raise; each message stands for itself.
_OURS = (ValueError, OSError, _errors.FitFailedError, _errors.ResourceError, _errors.RunLockedError, Interrupted)

app = typer.Typer(
    help="Bayesian neural networks by Microcanonical Langevin Ensembles.", no_args_is_help=True, add_completion=False
)
RunFolder = Annotated[Path, typer.Argument(help="A run directory, as given to run_dir.", exists=True, file_okay=False)]


@app.command()
def resume(
    run: RunFolder,
    time_limit: Annotated[float | None, typer.Option(help="Seconds that may be taken from now on.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Go on although another version or machine began the run; it is recorded.")
    ] = False,
    save: Annotated[Path | None, typer.Option(help="Also write the fitted model to this file.")] = None,
) -> None:
    """Go on with a run that was stopped; the result is the same as if it had not been."""
    from mile.loading import resume as resume_run  # the libraries behind it take seconds to import

    try:
        model = resume_run(run, time_limit=time_limit, verbose=1, force=force)
        if save is not None:
            model.save(save)
    except _OURS as error:
        _fail(error)
    fitted = getattr(model, "fit_", model)
    n_chains, n_draws, dimension = fitted.chains.draws.shape
    typer.echo(f"{run} is finished: {n_chains} chains of {n_draws:,} draws of {dimension:,} weights.")
    for chain, code in zip(fitted.chain_ids, fitted.status, strict=True):
        typer.echo(f"  chain {chain}: {code.sentence}")


@app.command()
def repair(run: RunFolder) -> None:
    """Bring a damaged run back to its last good state, from which it can be resumed."""
    from mile.storage import repair as repair_run

    try:
        done = repair_run(run)
    except _OURS as error:
        _fail(error)
    for sentence in done or [f"{run} is whole; there is nothing to repair."]:
        typer.echo(sentence)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version("mile-bnn"))
        raise typer.Exit


@app.callback()
def main(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Set up what all commands share."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)


def _fail(error: BaseException) -> NoReturn:
    typer.echo(f"Error: {error}", err=True)
    raise typer.Exit(130 if isinstance(error, Interrupted) else 1) from error
