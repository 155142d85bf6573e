"""`mile paper`: the commands of the paper's experiments, declared without anything heavy."""

from pathlib import Path
from typing import Annotated

import typer

from mile.cli._console import guarded

paper = typer.Typer(
    help="The paper's experiments, in a clone of the repository: list them, run one, compare with the paper.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@paper.command("list")
@guarded
def paper_list() -> None:
    """List the experiments: data, cost on two cores, and how many rows are there."""
    from mile.cli import _paper

    _paper.launch(["list"])


@paper.command("run")
@guarded
def paper_run(
    name: Annotated[str, typer.Argument(help="An experiment, such as uci; `mile paper list` has them all.")],
    dataset: Annotated[list[str] | None, typer.Option(help="A data set, or several with commas. Default: all.")] = None,
    methods: Annotated[list[str] | None, typer.Option(help="A method, or several with commas. Default: all.")] = None,
    protocol: Annotated[str | None, typer.Option(help="paper, corrected or all. Default: the first there is.")] = None,
    splits: Annotated[int | None, typer.Option(help="Run splits 1 to this number. Default: as planned.")] = None,
    scale: Annotated[
        float | None, typer.Option(help="Multiplies the steps of each chain; rows of another scale than 1 stay apart.")
    ] = None,
    chains: Annotated[int | None, typer.Option(help="Chains of each fit. Default: as planned.")] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with the data; default: MILE_DATA, or download.")
    ] = None,
    runs: Annotated[Path | None, typer.Option(help="Folder of the run directories; default: runs/paper.")] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Compute rows that are there, into a file of their own beside the runs.")
    ] = False,
    summary: Annotated[Path | None, typer.Option(help="File of the rows; default: summary.csv.")] = None,
) -> None:
    """Run the missing rows of an experiment. After a stop, the same command resumes."""
    from mile.cli import _paper

    options = {"protocol": protocol, "splits": splits, "scale": scale, "chains": chains, "data-dir": data_dir}
    options |= {"runs": runs, "summary": summary}
    given = [f"--{option}={value}" for option, value in options.items() if value is not None]
    given += [f"--dataset={value}" for value in dataset or []] + [f"--methods={value}" for value in methods or []]
    _paper.launch(["run", name, *given, *(["--again"] if again else [])])


@paper.command("table")
@guarded
def paper_table(
    name: Annotated[str | None, typer.Argument(help="An experiment. Default: all.")] = None,
    write_docs: Annotated[bool, typer.Option("--write-docs", help="Also write docs/results.md.")] = False,
) -> None:
    """Print our numbers beside the paper's, with standard errors and remarks."""
    from mile.cli import _paper

    _paper.launch(["table", *([name] if name else []), *(["--write-docs"] if write_docs else [])])
