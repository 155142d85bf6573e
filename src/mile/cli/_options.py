"""The arguments and options of the commands, each with its help; those of several commands are declared once."""

from pathlib import Path
from typing import Annotated

import typer

from mile import _registry
from mile.cli._reading import DataFile

Data = Annotated[
    DataFile,
    typer.Argument(
        parser=DataFile,
        metavar="DATA",
        help="A table: .csv, .tsv, .txt, .jsonl (also .gz, .zst), .parquet, .feather, .xlsx or .npz; several as a "
        "quoted pattern, or a folder of Parquet files; or images and labels, X and y, in .npz.",
    ),
]
Run = Annotated[Path, typer.Argument(help="A run directory.")]
Model = Annotated[Path, typer.Argument(help="A run directory, or a model file.")]
Target = Annotated[
    str | None,
    typer.Option(
        "--target", "-t", help="The column to predict, or several with commas; of images the array, by default y."
    ),
]
OptionalTarget = Annotated[
    str | None, typer.Option("--target", "-t", help="The column to predict; default: the one that was fitted.")
]
Exposure = Annotated[
    str | None,
    typer.Option(help="Column that counts are proportional to, such as days at risk; predictions need it too."),
]
Event = Annotated[
    str | None,
    typer.Option(
        help="Column that says whether the time of --target ended with an event (1, true) or was censored (0, false)."
    ),
]
Drop = Annotated[list[str] | None, typer.Option("--drop", help="A column to leave out; may be given several times.")]
Category = Annotated[
    list[str] | None,
    typer.Option("--category", help="A column that is a category; several with commas or by giving it again."),
]
Number = Annotated[
    list[str] | None, typer.Option("--number", help="A column that is a number; several as for --category.")
]
Ignore = Annotated[
    list[str] | None, typer.Option("--ignore", help="A column that the model must not see; several as for --category.")
]
Task = Annotated[
    str, typer.Option(help="regression, classification, or auto: classes if the target is text or a few whole numbers.")
]
TimeLimit = Annotated[
    str | None, typer.Option(help="Time that may be taken, such as 90s, 10m or 2h; budgets are cut to fit.")
]
Preset = Annotated[
    str,
    typer.Option(
        help="default, paper, quick (a tenth of the paper's steps), accurate (four times as many), exact, or published "
        "(of the sampler pgps)."
    ),
]
Sampler = Annotated[str, typer.Option(help=f"One of {', '.join(_registry.sampler.names)}.")]
Network = Annotated[
    str | None,
    typer.Option(
        help="Of images lenet5 (default) or cnn_v1, of texts att_v2 (default), att_v1 or att_v3; tables need none."
    ),
]
Likelihood = Annotated[
    str | None,
    typer.Option(
        help=f"Distribution of the target: {', '.join(_registry.likelihood.names)}, or auto: of a number what its rows "
        "decide; default: by the task."
    ),
]
Text = Annotated[str | None, typer.Option("--text", help="The column of texts to classify; it is the only feature.")]
Hidden = Annotated[str | None, typer.Option(help="Widths of the hidden layers, such as 16,16.")]
Chains = Annotated[int, typer.Option(help="Networks, and chains that start from them.")]
WarmupSteps = Annotated[int | None, typer.Option(help="Tuning steps of a chain; default: the preset's.")]
SamplingSteps = Annotated[int | None, typer.Option(help="Sampling steps of a chain; default: the preset's.")]
Draws = Annotated[int | None, typer.Option(help="Draws kept of each chain; default: the preset's.")]
Folds = Annotated[
    int | None,
    typer.Option(
        "--folds", help="Each chain leaves out one of so many folds; 0 sets rows aside instead; default: the preset's."
    ),
]
Groups = Annotated[
    str | None,
    typer.Option(help="A column of labels; rows with the same one stay in one fold. It is no feature then."),
]
EarlierRows = Annotated[
    DataFile | None,
    typer.Option(
        "--earlier", parser=DataFile, help="The table that the run was fitted on, whose --groups keep their folds."
    ),
]
Order = Annotated[str | None, typer.Option(help="A column of numbers or dates; folds are then stretches of time.")]
StopWhen = Annotated[
    str | None,
    typer.Option("--stop-when", help="flat: sampling ends once more draws gain nothing on rows that chains left out."),
]
MoreDraws = Annotated[
    int | None, typer.Option("--draws", help="Of a finished run: continue its chains until each has so many draws.")
]
MoreChains = Annotated[
    str | None, typer.Option("--chains", help="Of a finished run: so many chains in all, or +6 for six more.")
]
OtherPreset = Annotated[
    str | None,
    typer.Option("--preset", help="Of a finished run: sample its networks anew by this preset, such as default."),
]
Seed = Annotated[int | None, typer.Option(help="Makes the result reproducible; default: a fresh one, which is kept.")]
Force = Annotated[
    bool, typer.Option("--force", help="Resume although another version or machine began the run; it is recorded.")
]
Dask = Annotated[
    str | None, typer.Option("--dask", help="Run the chains on the Dask cluster with this scheduler: tcp://HOST:8786.")
]
DaskVerify = Annotated[
    float | None,
    typer.Option(
        "--dask-verify", help="Share of the blocks that are computed on two workers and compared; default: 0.02."
    ),
]
DaskCa = Annotated[
    Path | None,
    typer.Option("--dask-tls-ca", help="Certificate of the authority of a cluster at tls://HOST:8786, in PEM."),
]
DaskCert = Annotated[Path | None, typer.Option("--dask-tls-cert", help="Certificate to show to that cluster, in PEM.")]
DaskKey = Annotated[Path | None, typer.Option("--dask-tls-key", help="Private key of that certificate, in PEM.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
