"""Tables as they are: columns of numbers, categories, dates and texts as rows of float32."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import numpy as np
from jaxtyping import Float, Int

from mile import _registry
from mile._checks import check_choice, check_count
from mile._errors import UntrustedFileError
from mile.features.base import AbstractFeatureEncoder, ColumnFacts, ColumnReport, Encoded, Plain, Tensors
from mile.features.columns import AbstractColumn, Counts, Learning, Writing, write_rows
from mile.features.duplicates import without_duplicates
from mile.features.frame import Frame, listed
from mile.features.kinds import KINDS, learn_column
from mile.features.pieces import MOST_PIECES
from mile.features.table_file import column_tensors, read_columns, read_json
from mile.features.target_means import targets_of
from mile.features.values import AbstractValues

_SQUASHES = ("smooth", "none")


class Findings(NamedTuple):
    """What was in some rows but not in the training rows, for the columns where there was anything.

    Attributes
    ----------
    columns
        By name: cells that are empty in a column that had none in training (`filled`), infinite numbers, cells that
        are not of the column's kind (`unreadable`), and texts that training did not have (`unseen`).
    """

    columns: dict[str, Counts]

    def sentences(self) -> list[str]:
        """Return a sentence for each column and thing found."""
        return [
            f"{words} in {name[:80]!r}: {count:,}."
            for name, counts in self.columns.items()
            for count, words in zip(counts, _WORDS, strict=True)
            if count
        ]


_WORDS = (
    "Empty cells, which were filled because training had none,",
    "Infinite numbers, which count as missing,",
    "Cells that could not be read and count as missing",
    "Texts that training did not have and that count as rare ones",
)


@_registry.encoder("table")
@dataclass(frozen=True, kw_only=True, eq=False)
class TableEncoder(AbstractFeatureEncoder):
    """Columns of any kind, each encoded by what it is; what they are is decided on the training rows.

    Parameters
    ----------
    kinds
        What columns are where the rule (`features/kinds.py`) shall not decide: a mapping of names to "number",
        "category", "boolean", "date", "text" or "ignore".
    squash
        "smooth" scales numbers by quartiles and clips them smoothly; "none" standardizes them.
    most_levels
        A category of more levels is encoded by means of the response.
    fewest_rows
        Levels of fewer training rows are pooled.
    pieces
        Numbers get a feature for each of so many pieces of their range, cut at quantiles; zero: they stay one feature.
    names_in, columns
        What was learned; set by `fit`.
    is_named
        Whether columns are found by name, or by position as in an array.

    Examples
    --------
    >>> from mile.features.table import TableEncoder
    >>> table = {"size": [40.0, 62.0, None, 90.0], "sold": ["yes", "no", "no", "yes"], "id": ["a", "b", "c", "d"]}
    >>> encoder = TableEncoder().fit(table)
    >>> encoder.names(None, 3)
    ['size', 'size (missing)', 'sold = yes']
    >>> encoder.transform({"sold": ["no"], "size": ["75"], "id": ["e"]}).shape
    (1, 3)
    >>> encoder.describe()[2].reason
    'it is an identifier: every row has another text'
    """

    kinds: Mapping[str, str] = field(default_factory=dict)
    squash: str = "smooth"
    most_levels: int = 30
    fewest_rows: int = 5
    pieces: int = 0
    names_in: tuple[str, ...] = ()
    columns: tuple[AbstractColumn, ...] = ()
    is_named: bool = True

    @property
    def takes_tables(self) -> bool:
        """Frames are what it is for."""
        return True

    def __post_init__(self) -> None:
        check_choice("squash", self.squash, _SQUASHES)
        check_count("most_levels", self.most_levels, 2)
        check_count("fewest_rows", self.fewest_rows)
        check_count("pieces", self.pieces, 0)
        if self.pieces == 1 or self.pieces > MOST_PIECES:
            raise ValueError(f"pieces must be 0 or between 2 and {MOST_PIECES}; got {self.pieces}.")
        if not isinstance(self.kinds, Mapping):
            raise ValueError(f"kinds must be a mapping of names of columns to kinds; got {self.kinds!r}.")
        # Names of columns are texts in a frame.
        object.__setattr__(self, "kinds", {str(name): kind for name, kind in self.kinds.items()})
        for name, kind in self.kinds.items():
            check_choice(f"the kind of column {name[:80]!r}", kind, KINDS)

    def fit(
        self,
        x: object,
        rows: Int[np.ndarray, " chosen"] | None = None,
        weight: Float[np.ndarray, " row"] | None = None,
        y: np.ndarray | None = None,
    ) -> Self:
        """Return an encoder that has learned from the given rows of a table (default: all), rows counted by weight.

        Parameters
        ----------
        x
            A table of any kind that `Frame.of` takes.
        rows
            The training rows.
        weight
            How many times each row of x counts.
        y
            The response for each row of x: numbers, or codes of classes as integers. Categories of many levels are
            encoded by it.

        Raises
        ------
        ValueError
            If there are no rows, no column has anything to learn from, or a kind was given for a column that is not
            there.
        """
        frame = Frame.of(x)
        if weight is not None:
            chosen = np.arange(len(frame)) if rows is None else rows
            rows = chosen[np.asarray(weight)[chosen] > 0]  # others are as if they were not there
        learning = self._learning(frame, rows, weight, y)
        learned = [
            learn_column(values.chosen(rows), learning, self.kinds.get(name))
            for name, values in zip(frame.names, frame.columns, strict=True)
        ]
        columns = without_duplicates(frame, rows, learned, self.kinds)
        if not any(column.n_features for column in columns):
            reasons = [
                f"{name[:80]!r}: {column.describe(name).reason}"
                for name, column in zip(frame.names, columns, strict=True)
            ]
            raise ValueError(f"no column has anything to learn from ({'; '.join(reasons[:5])}).")
        return replace(self, names_in=frame.names, columns=columns, is_named=frame.is_named)

    def fit_and_transform(
        self,
        x: object,
        rows: Int[np.ndarray, " chosen"] | None = None,
        weight: Float[np.ndarray, " row"] | None = None,
        y: np.ndarray | None = None,
    ) -> tuple[Self, Encoded]:
        """Return `fit` and the training rows, in which no mean of the response has the row's own."""
        frame = Frame.of(x)
        encoder = self.fit(frame, rows, weight, y)
        learning = self._learning(frame, rows, weight, y)
        out = np.empty((len(learning.weight), encoder.n_features), np.float32)
        matches = list(encoder._matched(frame))
        write_rows([match.writing(out) for match in matches if not match.column.is_by_target], rows)
        for column, values, part in (match.writing(out) for match in matches if match.column.is_by_target):
            column.write_training(column.read(values.chosen(rows)), part, learning)
        return encoder, out

    def transform(self, x: object, rows: Int[np.ndarray, " chosen"] | None = None) -> Encoded:
        """Return the given rows of a table (default: all) as finite numbers in float32."""
        return self.transform_and_count(x, rows)[0]

    def transform_and_count(
        self, x: object, rows: Int[np.ndarray, " chosen"] | None = None
    ) -> tuple[Encoded, Findings]:
        """Return the given rows (default: all), and what was in them but not in the training rows.

        Raises
        ------
        ValueError
            If a column is missing that has features; the message names it. Additional columns and another order are
            fine.
        """
        frame = Frame.of(x)
        n_rows = len(frame) if rows is None else len(rows)
        out = np.empty((n_rows, self.n_features), np.float32)
        matches = list(self._matched(frame))
        counts = write_rows([match.writing(out) for match in matches], rows)
        return out, Findings({match.name: found for match, found in zip(matches, counts, strict=True) if any(found)})

    def transform_and_remark(self, x: object) -> tuple[Encoded, list[str]]:
        """Return all rows, and a sentence for each column and thing that training rows did not have."""
        encoded, findings = self.transform_and_count(x)
        return encoded, findings.sentences()

    def unreadable(self, x: Frame) -> tuple[str, int] | None:
        """Return column and row of the first cell that would count as missing because it cannot be read."""
        for name, column, values, _ in self._matched(x):
            rows = np.flatnonzero(column.read(values).missing() & ~values.missing())
            if rows.size:
                return name, int(rows[0])
        return None

    def share_unseen(self, x: object) -> float:
        """Return the share of rows with texts that training did not have, in the column where that is the largest."""
        frame = Frame.of(x)
        counts = [counts.unseen for counts in self.transform_and_count(frame)[1].columns.values()]
        return max(counts, default=0) / max(1, len(frame))

    @property
    def n_features(self) -> int:
        """How many numbers a row becomes."""
        return sum(column.n_features for column in self.columns)

    def n_columns(self, n_features: int) -> int | None:
        """Return the number of columns of the table at fit."""
        return len(self.columns)

    def origins(self, n_features: int) -> Int[np.ndarray, " feature"]:
        """Return the column that each feature is of."""
        return np.repeat(np.arange(len(self.columns)), [column.n_features for column in self.columns])

    def names(self, given: Sequence[str] | None, n_features: int) -> list[str]:
        """Return a name for each feature, made from that of its column."""
        names = self.names_in if given is None or len(given) != len(self.columns) else given
        return [name + label for name, column in zip(names, self.columns, strict=True) for label in column.labels]

    def describe(self) -> list[ColumnReport]:
        """Return for each column what it is and what became of it."""
        return [column.describe(name) for name, column in zip(self.names_in, self.columns, strict=True)]

    def facts(self, given: Sequence[str] | None, n_features: int) -> list[ColumnFacts]:
        """Return for each column what it had in training; columns go by the names at fit."""
        found = [column.facts(name) for name, column in zip(self.names_in, self.columns, strict=True)]
        # Fewer pieces than asked for have no equal shares.
        return [one if len(one.edges) == self.pieces + 1 else one._replace(edges=()) for one in found]

    def tensors(self) -> dict[str, np.ndarray]:
        """Return the columns as JSON, and their arrays."""
        return column_tensors(self.names_in, self.columns)

    def settings(self) -> dict[str, Plain]:
        """Return how it learns."""
        kinds = json.dumps(dict(self.kinds), sort_keys=True)
        sizes = {"most_levels": self.most_levels, "fewest_rows": self.fewest_rows}
        sizes |= {"pieces": self.pieces} if self.pieces else {}  # as files were before there were pieces
        return {"kinds": kinds, "squash": self.squash, "is_named": self.is_named} | sizes

    @classmethod
    def restore(cls, tensors: Tensors, settings: Mapping[str, Plain], n_features: int) -> Self:
        """Return the encoder that a file has kept."""
        if set(settings) - {"pieces"} != {"kinds", "squash", "is_named", "most_levels", "fewest_rows"}:
            raise UntrustedFileError("the settings of a table encoder are not those that it has.")
        if type(settings["is_named"]) is not bool:
            raise UntrustedFileError("is_named must be true or false.")
        kinds = read_json(str(settings["kinds"]).encode())
        if not isinstance(kinds, dict):
            raise UntrustedFileError("the kinds of columns must be by name.")
        names, columns = read_columns(tensors)
        try:
            found = cls(
                kinds={name: str(kind) for name, kind in kinds.items()},
                squash=str(settings["squash"]),
                most_levels=settings["most_levels"],  # pyright: ignore[reportArgumentType]: checked when built
                fewest_rows=settings["fewest_rows"],  # pyright: ignore[reportArgumentType]: the same
                pieces=settings.get("pieces", 0),  # pyright: ignore[reportArgumentType]: the same
                names_in=names,
                columns=columns,
                is_named=settings["is_named"],
            )
        except ValueError as error:
            raise UntrustedFileError(f"not a table encoder: {str(error)[:200]}") from error
        if found.n_features != n_features:
            raise UntrustedFileError(
                f"the columns have {found.n_features} features, but the network takes {n_features}."
            )
        return found

    def _learning(
        self,
        frame: Frame,
        rows: Int[np.ndarray, " chosen"] | None,
        weight: Float[np.ndarray, " row"] | None,
        y: np.ndarray | None,
    ) -> Learning:
        unknown = [name for name in self.kinds if name not in frame]
        if unknown:
            raise ValueError(
                f"a kind was given for {listed(unknown)}, but there is no such column: the table has "
                f"{listed(frame.names)}."
            )
        chosen = np.arange(len(frame)) if rows is None else rows
        counted = np.ones(len(chosen)) if weight is None else np.asarray(weight, np.float64)[chosen]
        if not counted.sum() > 0:
            raise ValueError("the table has no rows to learn from.")
        targets = targets_of(None if y is None else np.asarray(y)[chosen])
        return Learning(
            weight=counted,
            targets=targets,
            squash=self.squash == "smooth",
            most_levels=self.most_levels,
            fewest_rows=self.fewest_rows,
            pieces=self.pieces,
        )

    def _matched(self, frame: Frame) -> "Iterator[_Match]":
        """Yield the columns that have features; those that were left out need not be in the table."""
        if not self.columns:
            raise ValueError("the encoder has not learned yet: call fit first.")
        by_name = self.is_named and frame.is_named
        used = [(place, column) for place, column in enumerate(self.columns) if column.n_features]
        absent = [self.names_in[place] for place, _ in used if self.names_in[place] not in frame]
        if by_name and absent:
            raise ValueError(f"the table has no column {listed(absent)}; it has {listed(frame.names)}.")
        if not by_name and len(frame.names) != len(self.names_in):
            raise ValueError(f"the table must have {len(self.names_in)} columns, as at fit; it has {len(frame.names)}.")
        start = 0
        for place, column in used:
            name, end = self.names_in[place], start + column.n_features
            yield _Match(name, column, frame[name] if by_name else frame.columns[place], slice(start, end))
            start = end


class _Match(NamedTuple):
    """A column with its name, its values in a table, and its place among the features."""

    name: str
    column: AbstractColumn
    values: AbstractValues
    place: slice

    def writing(self, out: Encoded) -> Writing:
        """Return what to write, and where."""
        return Writing(self.column, self.values, out[:, self.place])
