"""Commands that make and look after runs: fit, inspect, forecast, resume, update, watch and repair."""

from pathlib import Path
from typing import Annotated

import typer

from mile.cli._console import Console, guarded
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
    EarlierRows,
    Event,
    Exposure,
    Folds,
    Force,
    Groups,
    Hidden,
    Ignore,
    Json,
    Likelihood,
    MoreChains,
    MoreDraws,
    Network,
    Number,
    OptionalTarget,
    Order,
    OtherPreset,
    Preset,
    Quiet,
    Run,
    Sampler,
    SamplingSteps,
    Seed,
    StopWhen,
    Target,
    Task,
    Text,
    TimeLimit,
    WarmupSteps,
)
from mile.cli._reading import reads_data

runs = typer.Typer()


@runs.command()
@guarded
@reads_data
def fit(
    data: Data,
    target: Target = None,
    event: Event = None,
    exposure: Exposure = None,
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
    stop_when: StopWhen = None,
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
        preset,
        sampler,
        hidden,
        chains,
        warmup_steps,
        sampling_steps,
        draws,
        network,
        text,
        likelihood,
        kinds,
        folds,
        stop_when,
    )
    console, place = (
        Console(quiet=quiet, as_json=as_json),
        _fit.cluster(dask, dask_verify, dask_tls_ca, dask_tls_cert, dask_tls_key),
    )
    _fit.fit(
        console,
        data,
        target,
        drop or [],
        task,
        settings,
        out,
        time_limit,
        seed,
        save,
        place,
        groups,
        order,
        event,
        exposure,
    )


@runs.command()
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


@runs.command()
@guarded
def resume(
    run: Run,
    draws: MoreDraws = None,
    chains: MoreChains = None,
    preset: OtherPreset = None,
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
    """Resume a run that was stopped, or give a finished one more; the result is the same as in one go."""
    from mile.cli import _fit

    place = _fit.cluster(dask, dask_verify, dask_tls_ca, dask_tls_cert, dask_tls_key)
    _fit.resume(Console(quiet=quiet, as_json=as_json), run, time_limit, force, save, place, draws, chains, preset)


@runs.command()
@guarded
@reads_data
def update(
    run: Run,
    data: Data,
    target: OptionalTarget = None,
    out: Annotated[Path | None, typer.Option(help="New run directory; default: RUN's name with -updated.")] = None,
    groups: Groups = None,
    earlier: EarlierRows = None,
    order: Order = None,
    save: Annotated[Path | None, typer.Option(help="Also write the updated model to this file.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Add rows to a run: its chains continue on all of them, in a new run. Says when a fit from the start is due."""
    from mile.cli import _update

    _update.update(Console(quiet=quiet, as_json=as_json), run, data, target, out, groups, earlier, order, save)


@runs.command()
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


@runs.command()
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


@runs.command()
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
