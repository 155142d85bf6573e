"""The file that a command reads, and the options that say how; light, so that help comes at once."""

import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mile._printable import without_commands

if TYPE_CHECKING:
    import numpy as np

    from mile.storage import ReadOptions, Table

_NAMED = {"tab": "\t", "\\t": "\t"}  # delimiters that are hard to type
_PATTERN = frozenset("*?[")

_Text = str | None
_OPTIONS = {
    "delimiter": Annotated[
        _Text, typer.Option(help="What separates the cells of a text file, such as ; or tab; default: found out.")
    ],
    "decimal": Annotated[
        _Text, typer.Option(help="What stands before fractions in a text file, a point or a comma; default: found out.")
    ],
    "encoding": Annotated[
        _Text, typer.Option(help="Of a text file, such as utf-8, utf-16 or cp1252; default: found out.")
    ],
    "missing": Annotated[
        list[str] | None,
        typer.Option(help="A word for an empty cell besides NA, ? and the like; may be given several times."),
    ],
    "unpack": Annotated[
        _Text,
        typer.Option(help="What a packed file may unpack to, such as 8GB; default: 256 MB, or 100 times its size."),
    ],
}


class DataFile:
    """A table, texts or images on disk; a table is read once, however often it is asked for."""

    def __init__(self, path: str | Path, options: "ReadOptions | None" = None, *, quiet: bool = True) -> None:
        self.path = Path(path)
        self._options = options
        self._quiet = quiet

    def __str__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.path.name

    @property
    def run(self) -> Path:
        """The run directory for a fit to this file, named after it, or after its folder if it is a pattern."""
        path = self.path.absolute()
        source = path if _PATTERN.isdisjoint(path.name) else path.parent
        return Path(f"{source.name.split('.')[0]}.run")

    @functools.cached_property
    def table(self) -> "Table":
        """The table; what was assumed of an unusual file is said on standard error."""
        from mile.storage import ReadOptions, read_table

        found = read_table(self.path, options=self._options or ReadOptions())
        if found.remark and not self._quiet:
            typer.echo(without_commands(found.remark), err=True)
        return found

    @functools.cached_property
    def arrays(self) -> "dict[str, np.ndarray]":
        """The arrays of an NPZ file."""
        from mile.storage import ReadOptions, read_arrays

        return read_arrays(self.path, self._options or ReadOptions())

    def forget(self) -> None:
        """Forget what was read: a fit may need the memory."""
        for name in ("table", "arrays"):
            self.__dict__.pop(name, None)


def reads_data(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options about files to a command with an argument `data`, and pass it the file that has them."""

    @functools.wraps(command)
    def with_options(
        data: DataFile | None = None,
        delimiter: str | None = None,
        decimal: str | None = None,
        encoding: str | None = None,
        missing: Sequence[str] | None = None,
        unpack: str | None = None,
        **given: object,
    ) -> None:
        options = _read_options(delimiter, decimal, encoding, missing, unpack)
        is_quiet = bool(given.get("quiet") or given.get("as_json"))
        command(data=data and DataFile(data.path, options, quiet=is_quiet), **given)

    own = inspect.signature(command)
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in _OPTIONS.items()
    ]
    signature = own.replace(parameters=[*own.parameters.values(), *added])
    with_options.__signature__ = signature  # pyright: ignore[reportAttributeAccessIssue]: as inspect documents it
    return with_options


def _read_options(
    delimiter: str | None, decimal: str | None, encoding: str | None, missing: Sequence[str] | None, unpack: str | None
) -> "ReadOptions":
    from mile.storage import ReadOptions, read_size

    return ReadOptions(
        delimiter=None if delimiter is None else _NAMED.get(delimiter.lower(), delimiter),
        decimal=decimal,
        encoding=encoding,
        missing=tuple(missing or ()),
        most_bytes=None if unpack is None else read_size(unpack),
    )
