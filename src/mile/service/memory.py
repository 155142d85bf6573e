"""What a service must not forget: counts of rows, predictions that wait for their outcome, outcomes that came."""

import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, cast

from mile._errors import StorageError
from mile._json import Json
from mile.features.base import ColumnFacts
from mile.service.drift import Drift
from mile.service.limits import Refused
from mile.service.rows import Cells
from mile.storage._journal import Journal  # the package needs JAX for its other names

MOST_FOLLOWED, MOST_JUDGED = 10_000, 10_000
_MOST_BYTES = 16 << 20  # of followed rows
_LONGEST_JOURNAL = 4 << 20  # bytes; then a snapshot is written
_log = logging.getLogger(__name__)


class Judgement(NamedTuple):
    """What an outcome says of a prediction."""

    name: str  # "pit" or "confidence"
    value: float
    hit: float = 0.0


class Memory:
    """The drift monitor of one model and the rows that are followed, all of it also on disk before it is confirmed."""

    def __init__(self, path: Path | None, facts: Sequence[ColumnFacts], version: str) -> None:
        self.trouble: str | None = None
        self._journal = None if path is None else Journal(path)
        self._followed: OrderedDict[str, str] = OrderedDict()  # the cells of each row, as JSON
        self._judged: OrderedDict[str, None] = OrderedDict()
        self._n_bytes = 0
        self.begin(facts, version)
        if self._journal is not None:
            self._restore(self._journal)

    def begin(self, facts: Sequence[ColumnFacts], version: str) -> None:
        """Count for a model from now on: figures begin anew, and rows that are followed stay if its columns do."""
        names = [one.name for one in facts if not one.reason]
        if getattr(self, "_names", names) != names:
            self._followed.clear()
            self._n_bytes = 0
        self._names, self._version, self.drift = names, version, Drift(facts)

    def adopt(self, facts: Sequence[ColumnFacts], version: str) -> None:
        """Begin anew for another model, also on disk."""
        self.begin(facts, version)
        self._try(self._write_snapshot)

    @property
    def n_followed(self) -> int:
        """Predictions that wait for their outcome."""
        return len(self._followed)

    def count(self, places: list[list[int]]) -> None:
        """Count rows that were predicted, by the bins of their cells; they are written before anyone is told."""
        self._try(lambda: self._append({"rows": cast(Json, places)}))
        self.drift.add(places)

    def follow(self, cells: Mapping[str, Cells], ids: Sequence[str]) -> None:
        """Keep rows until their outcome comes, the last ones of each id and at most so many.

        Raises
        ------
        Refused
            If they cannot be written.
        """
        rows = list(zip(*(cells[name] for name in self._names), strict=True))
        found = {one: json.dumps(row) for one, row in zip(ids, rows, strict=True)}
        self._must({"follow": cast(Json, found)})
        self._keep(found)

    def row(self, one: str) -> list[object] | None:
        """Return the cells of a row that is followed, in the order of the model's columns."""
        text = self._followed.get(one)
        return None if text is None else json.loads(text)

    def is_judged(self, one: str) -> bool:
        """Say whether the outcome of this id has come before."""
        return one in self._judged

    def judge(self, judgements: Sequence[tuple[str | None, Judgement]]) -> None:
        """Count outcomes, each with the id of its row if it has one.

        Raises
        ------
        Refused
            If they cannot be written.
        """
        lines: Json = [[one, judged.name, judged.value, judged.hit] for one, judged in judgements]
        self._must({"judge": lines})
        for one, judged in judgements:
            self._take(one, judged)

    def close(self) -> None:
        """Write everything and let go of the files."""
        if self._journal is not None:
            self._try(self._write_snapshot)
            self._journal.close()

    def _keep(self, found: Mapping[str, str]) -> None:
        for one, text in found.items():
            self._n_bytes += len(text) - len(self._followed.pop(one, ""))
            self._followed[one] = text
        while len(self._followed) > MOST_FOLLOWED or self._n_bytes > _MOST_BYTES:
            self._n_bytes -= len(self._followed.popitem(last=False)[1])

    def _take(self, one: str | None, judged: Judgement, *, counts: bool = True) -> None:
        if one is not None:
            self._n_bytes -= len(self._followed.pop(one, ""))
            self._judged[one] = None
            if len(self._judged) > MOST_JUDGED:
                self._judged.popitem(last=False)
        if counts:
            self.drift.judge(*judged)

    def _append(self, line: dict[str, Json]) -> None:
        if self._journal is not None:
            self._journal.append(json.dumps(line, separators=(",", ":")).encode())

    def _must(self, line: dict[str, Json]) -> None:
        """Write a line for good before anyone is told."""
        try:
            self._tidy()
            self._append(line)
            if self._journal is not None:
                self._journal.sync()
        except StorageError as error:
            self.trouble = str(error)
            raise Refused(503, "the service cannot write its state; nothing was taken. Its log says why.") from error

    def _tidy(self) -> None:
        """Replace a long journal by a snapshot, before a line that the snapshot would not have."""
        if self._journal is not None and self._journal.size > _LONGEST_JOURNAL:
            self._write_snapshot()

    def _try(self, write: Callable[[], None]) -> None:
        """Write what may be lost if the disk is full: predictions go on without being counted."""
        try:
            self._tidy()
            write()
            self.trouble = None
        except StorageError as error:
            if self.trouble is None:
                _log.warning("%s", error)
            self.trouble = str(error)

    def _write_snapshot(self) -> None:
        if self._journal is not None:
            followed: Json = [[one, text] for one, text in self._followed.items()]
            names: Json = list(self._names)
            state: dict[str, Json] = {"version": self._version, "columns": names, "drift": self.drift.state()}
            self._journal.replace(state | {"followed": followed, "judged": cast(Json, list(self._judged))})

    def _restore(self, journal: Journal) -> None:
        """Take over what was remembered; figures only of the same model, followed rows of the same columns."""
        snapshot, lines = journal.found
        is_same = True
        if type(snapshot) is dict:
            try:
                is_same = snapshot["version"] == self._version
                if snapshot["columns"] == self._names:
                    self._keep(dict(cast(Iterable[tuple[str, str]], snapshot["followed"])))
                self._judged.update(dict.fromkeys(cast(list[str], snapshot["judged"])))
                if is_same:
                    self.drift.restore(cast(Mapping[str, Json], snapshot["drift"]))
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(f"the state of the service is not readable ({error}): move it away.") from error
        for line in lines:
            self._replay(cast(Mapping[str, Json], line), is_same)
        self._write_snapshot()

    def _replay(self, line: Mapping[str, Json], is_same: bool) -> None:
        try:
            if "follow" in line:
                self._keep(cast(Mapping[str, str], line["follow"]))
            for one, *judged in cast(list[list[str]], line.get("judge", [])):
                self._take(one, Judgement(judged[0], float(judged[1]), float(judged[2])), counts=is_same)
            if is_same:
                self.drift.add(cast(list[list[int]], line.get("rows", [])))
        except (AttributeError, IndexError, TypeError, ValueError) as error:
            raise ValueError(f"the journal of the service is not readable ({error}): move it away.") from error
