"""The command line. Declared here without anything heavy, so that help comes at once; the work is in its siblings."""

import logging
from pathlib import Path
from typing import Annotated

import typer

from mile.cli._console import Console, LogFormatter, guarded, show_tracebacks
from mile.cli._options import (
    Category,
    Chains,
    Dask,
    DaskCa,
    DaskCert,
    DaskKey,
    DaskVerify,
    Data,
    Draws,
    Drop,
    Event,
    Folds,
    Force,
    Groups,
    Hidden,
    Ignore,
    Json,
    Likelihood,
    Model,
    Network,
    Number,
    OptionalTarget,
    Order,
    Preset,
    Quiet,
    Run,
    Sampler,
    SamplingSteps,
    Seed,
    Target,
    Task,
    Text,
    TimeLimit,
    WarmupSteps,
)
from mile.cli._paper_commands import paper
from mile.cli._reading import DataFile, reads_data

app = typer.Typer(
    help="Bayesian neural networks by Microcanonical Langevin Ensembles: predictions with intervals you can trust.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain text: rich would take longer to import than the rest
    pretty_exceptions_enable=False,
)


@app.command()
@guarded
@reads_data
def fit(
    data: Data,
    target: Target = None,
    event: Event = None,
    out: Annotated[Path | None, typer.Option(help="Run directory; default: the data's name with .run.")] = None,
    task: Task = "auto",
    drop: Drop = None,
    category: Category = None,
    number: Number = None,
    ignore: Ignore = None,
    preset: Preset = "default",
    sampler: Sampler = "mile",
    hidden: Hidden = None,
    network: Network = None,
    text: Text = None,
    likelihood: Likelihood = None,
    chains: Chains = 12,
    warmup_steps: WarmupSteps = None,
    sampling_steps: SamplingSteps = None,
    draws: Draws = None,
    folds: Folds = None,
    groups: Groups = None,
    order: Order = None,
    time_limit: TimeLimit = None,
    seed: Seed = None,
    dask: Dask = None,
    dask_verify: DaskVerify = None,
    dask_tls_ca: DaskCa = None,
    dask_tls_cert: DaskCert = None,
    dask_tls_key: DaskKey = None,
    save: Annotated[Path | None, typer.Option(help="Also write the fitted model to this file.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fit a table, texts or images. After a stop, `mile resume` or the same command resumes it."""
    from mile.cli import _fit

    kinds = _fit.kinds(data, target, category, number, ignore)
    settings = _fit.Settings(
        preset, sampler, hidden, chains, warmup_steps, sampling_steps, draws, network, text, likelihood, kinds, folds
    )
    console, place = (
        Console(quiet=quiet, as_json=as_json),
        _fit.cluster(dask, dask_verify, dask_tls_ca, dask_tls_cert, dask_tls_key),
    )
    _fit.fit(
        console, data, target, drop or [], task, settings, out, time_limit, seed, save, place, groups, order, event
    )


@app.command()
@guarded
@reads_data
def inspect(
    data: Data,
    target: Target = None,
    task: Task = "auto",
    drop: Drop = None,
    category: Category = None,
    number: Number = None,
    ignore: Ignore = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show what a fit would take each column of a table for, and warn of what may mislead; fits nothing."""
    from mile.cli import _fit, _inspect

    if target is None:
        raise ValueError("--target must name the column to predict.")
    kinds = _fit.kinds(data, target, category, number, ignore)
    _inspect.inspect(Console(quiet=quiet, as_json=as_json), data, target, drop or [], task, kinds)


@app.command()
@guarded
def resume(
    run: Run,
    time_limit: TimeLimit = None,
    force: Force = False,
    dask: Dask = None,
    dask_verify: DaskVerify = None,
    dask_tls_ca: DaskCa = None,
    dask_tls_cert: DaskCert = None,
    dask_tls_key: DaskKey = None,
    save: Annotated[Path | None, typer.Option(help="Also write the fitted model to this file.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Resume a run that was stopped; the result is the same as without the stop."""
    from mile.cli import _fit

    place = _fit.cluster(dask, dask_verify, dask_tls_ca, dask_tls_cert, dask_tls_key)
    _fit.resume(Console(quiet=quiet, as_json=as_json), run, time_limit, force, save, place)


@app.command()
@guarded
@reads_data
def predict(
    model: Model,
    data: Data,
    out: Annotated[
        Path | None, typer.Option(help="File to write: .csv, .csv.gz or .parquet; default: standard output, as CSV.")
    ] = None,
    interval: Annotated[float, typer.Option(help="Probability that the interval shall hold.")] = 0.9,
    quantiles: Annotated[str | None, typer.Option(help="Levels such as 0.05,0.5,0.95, a column each.")] = None,
    times: Annotated[
        str | None, typer.Option(help="Times such as 365,730: the probability to survive each of them, a column each.")
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(help="Columns to copy beside the predictions, with commas; default: those that identify rows."),
    ] = None,
    keep_formulas: Annotated[
        bool, typer.Option("--keep-formulas", help="Write texts such as =A1 to CSV without an apostrophe before them.")
    ] = False,
    conformal: Annotated[
        bool,
        typer.Option("--conformal", help="Intervals that hold for any model, from rows that chains left out (CV+)."),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Predict every row of a table: mean, standard deviation and interval, or label and probabilities."""
    from mile.cli import _use

    _use.predict(Console(quiet=quiet), model, data, out, interval, quantiles, keep, keep_formulas, conformal, times)


@app.command()
@guarded
@reads_data
def evaluate(
    model: Model, data: Data, target: OptionalTarget = None, as_json: Json = False, quiet: Quiet = False
) -> None:
    """Score a model on rows whose outcome is known, beside the deep ensemble that it started from."""
    from mile.cli import _use

    _use.evaluate(Console(quiet=quiet, as_json=as_json), model, data, target)


@app.command()
@guarded
@reads_data
def compare(
    models: Annotated[list[Path], typer.Argument(help="Two or more run directories or model files.")],
    data: Annotated[
        DataFile | None,
        typer.Option(
            parser=DataFile, metavar="DATA", help="Rows to compare by; default: the out-of-fold rows of the fits."
        ),
    ] = None,
    target: OptionalTarget = None,
    out: Annotated[Path | None, typer.Option(help="Page to write, such as comparison.html.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare fitted models on the same rows: paired differences with standard errors, time and cost."""
    from mile.cli import _compare

    _compare.compare(Console(quiet=quiet, as_json=as_json), models, data, target, out)


@app.command()
@guarded
@reads_data
def report(
    model: Model,
    data: Annotated[
        DataFile | None,
        typer.Option(
            parser=DataFile, metavar="DATA", help="Test rows; default: the validation rows that the run keeps."
        ),
    ] = None,
    target: OptionalTarget = None,
    out: Annotated[
        Path | None, typer.Option(help="Page to write; default: report.html in the run directory or beside the model.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write one HTML page with scores, calibration, diagnostics and advice."""
    from mile.cli import _use

    _use.report(Console(quiet=quiet, as_json=as_json), model, data, target, out)


@app.command()
@guarded
@reads_data
def forecast(
    data: Data,
    target: Target = None,
    task: Task = "auto",
    drop: Drop = None,
    category: Category = None,
    number: Number = None,
    ignore: Ignore = None,
    preset: Preset = "default",
    sampler: Sampler = "mile",
    hidden: Hidden = None,
    network: Network = None,
    text: Text = None,
    likelihood: Likelihood = None,
    chains: Chains = 12,
    warmup_steps: WarmupSteps = None,
    sampling_steps: SamplingSteps = None,
    draws: Draws = None,
    folds: Folds = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Forecast the time, memory and disk space of a fit, after timing a few steps."""
    from mile.cli import _fit

    kinds = _fit.kinds(data, target, category, number, ignore)
    settings = _fit.Settings(
        preset, sampler, hidden, chains, warmup_steps, sampling_steps, draws, network, text, likelihood, kinds, folds
    )
    _fit.forecast(Console(quiet=quiet, as_json=as_json), data, target, drop or [], task, settings)


@app.command()
@guarded
def watch(
    run: Run,
    every: Annotated[float, typer.Option(help="Seconds between two looks.")] = 10.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Follow a run that another process computes: stage, steps, draws, and how well it predicts unseen rows so far."""
    from mile.cli import _watch

    _watch.watch(Console(quiet=quiet, as_json=as_json), run, every, once=once)


@app.command()
@guarded
def demo(
    out: Annotated[Path, typer.Option(help="Run directory to write.")] = Path("mile-demo.run"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fit a small made table beside a ridge regression and an ensemble, and write its report, in half a minute."""
    from mile.cli import _demo

    _demo.demo(Console(quiet=quiet, as_json=as_json), out)


@app.command()
@guarded
def doctor(as_json: Json = False, quiet: Quiet = False) -> None:
    """Show what this machine offers, what is slow, and why."""
    from mile.cli import _doctor

    _doctor.doctor(Console(quiet=quiet, as_json=as_json))


@app.command()
@guarded
def export(
    model: Model,
    file: Annotated[
        Path | None,
        typer.Argument(help="File to write: .onnx, .stablehlo or .nc; default: the model's name with .nc."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The same as FILE.")] = None,
    quantiles: Annotated[
        str | None, typer.Option(help="Levels that an .onnx file computes; default: 0.05,0.95.")
    ] = None,
    half: Annotated[bool, typer.Option("--half", help="Keep the draws of an .onnx file as float16.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a model for other programs: a graph for onnxruntime, a program for XLA, or the draws for ArviZ."""
    from mile.cli import _use

    _use.export(Console(quiet=quiet, as_json=as_json), model, file, out, quantiles, half)


@app.command()
@guarded
@reads_data
def compress(
    model: Model,
    out: Annotated[Path, typer.Argument(help="File to write, such as small.mile.")],
    data: Annotated[
        DataFile | None,
        typer.Option(
            parser=DataFile,
            metavar="DATA",
            help="Rows to choose by, best those of the fit; default: those that the run keeps.",
        ),
    ] = None,
    target: OptionalTarget = None,
    draws: Annotated[int | None, typer.Option(help="Draws to keep; default: 128.")] = None,
    loss: Annotated[
        float | None, typer.Option(help="Largest expected loss of LPPD, such as 0.005, instead of a number of draws.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a smaller model, by few draws that predict as all do, and say what that loses."""
    from mile.cli import _compress

    _compress.compress(Console(quiet=quiet, as_json=as_json), model, out, data, target, draws, loss)


@app.command()
@guarded
def repair(
    run: Run,
    without: Annotated[
        list[str] | None, typer.Option("--without", help="A file of the run to set aside; may be given several times.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Bring a damaged run back to its last good state, from which it can be resumed."""
    from mile.storage import repair as repair_run

    console = Console(quiet=quiet)
    for sentence in repair_run(run, without=without or []) or [f"{run} is whole; there is nothing to repair."]:
        console.say(sentence)


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
