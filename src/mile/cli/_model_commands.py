"""Commands that use what was fitted: predict, evaluate, compare, report, export, compress, distill and serve."""

from pathlib import Path
from typing import Annotated

import typer

from mile.cli._console import Console, guarded
from mile.cli._options import (
    Data,
    Json,
    Model,
    OptionalTarget,
    Quiet,
)
from mile.cli._reading import DataFile, reads_data

models = typer.Typer()


@models.command()
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


@models.command()
@guarded
@reads_data
def evaluate(
    model: Model, data: Data, target: OptionalTarget = None, as_json: Json = False, quiet: Quiet = False
) -> None:
    """Score a model on rows whose outcome is known, beside the deep ensemble that it started from."""
    from mile.cli import _use

    _use.evaluate(Console(quiet=quiet, as_json=as_json), model, data, target)


@models.command()
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


@models.command()
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


@models.command()
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


@models.command()
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


@models.command()
@guarded
@reads_data
def distill(
    model: Model,
    out: Annotated[Path, typer.Argument(help="File to write, such as student.mile.")],
    data: Annotated[
        DataFile | None,
        typer.Option(
            parser=DataFile,
            metavar="DATA",
            help="Rows to train by, best those of the fit; default: those that the run keeps.",
        ),
    ] = None,
    target: OptionalTarget = None,
    networks: Annotated[int | None, typer.Option(help="Networks to train; default: 24.")] = None,
    width: Annotated[int | None, typer.Option(help="Units of their hidden layers; default: as in the model.")] = None,
    loss: Annotated[
        float, typer.Option(help="Largest loss of LPPD; above it a compressed model is written instead.")
    ] = 0.03,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a student: a few networks that predict together as all draws do, and say what that loses."""
    from mile.cli import _compress

    _compress.distill(Console(quiet=quiet, as_json=as_json), model, out, data, target, networks, width, loss)


@models.command()
@guarded
def serve(
    models: Annotated[
        list[str], typer.Argument(help="Run directories or model files of tables; NAME=FILE gives one a name.")
    ],
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 is all of them.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at; 0 takes a free one.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(envvar="MILE_SERVE_TOKEN", help="What requests must bring: Authorization: Bearer TOKEN."),
    ] = None,
    max_rows: Annotated[int, typer.Option(help="Most rows of a request.")] = 10_000,
    max_bytes: Annotated[int, typer.Option(help="Longest body of a request.")] = 16 << 20,
    timeout: Annotated[float, typer.Option(help="Seconds that a request may take.")] = 30.0,
    reload: Annotated[
        bool, typer.Option("--reload", help="Take over a file that changes, once it has been checked.")
    ] = False,
    state: Annotated[
        Path | None,
        typer.Option(help="Folder for what the service must not forget; default: beside each model."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Serve models over HTTP: predictions, explanations, drift, and a page to try them."""
    from mile.cli import _serve

    _serve.serve(Console(quiet=quiet), models, host, port, token, (max_rows, max_bytes, timeout), reload, state)
