"""The models that a service has: each with its file, its version, what it remembers, and how a new file replaces it."""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import NamedTuple

from mile.service.answers import AbstractAnswers, load_answers
from mile.service.counters import Counters
from mile.service.gathering import Gatherer, measured_cost
from mile.service.limits import Limits
from mile.service.memory import Memory
from mile.service.rows import RowReader, Rows

_log = logging.getLogger(__name__)
Stamp = tuple[int, int, int]


class Loaded(NamedTuple):
    """A model that has been checked, ready to answer."""

    answers: AbstractAnswers
    gatherer: Gatherer
    reader: RowReader
    version: str


class ServedModel:
    """One model under its name."""

    def __init__(self, name: str, path: Path, state: Path | None, limits: Limits, pool: Executor) -> None:
        self.name, self._path, self._limits, self._pool = name, path, limits, pool
        self._stamp = stamp_of(path)
        self._seen = self._stamp
        self.trouble: str | None = None  # with a file that replaced the one in use
        self.loaded = self._load(self._stamp)
        self.memory = Memory(state, self.loaded.answers.facts, self.loaded.version)

    def _load(self, stamp: Stamp) -> Loaded:
        """Load the file and let it predict a row of typical values."""
        answers = load_answers(self._path)
        reader = RowReader(answers.facts, self._limits)
        typical = {name: [cell] for name, cell in answers.typical().items()}
        cost = measured_cost(answers, answers.encode(Rows(typical, 1))[0])
        return Loaded(answers, Gatherer(answers, cost, self._pool), reader, f"{stamp[0]:x}-{stamp[1]:x}")

    def changed(self) -> Stamp | None:
        """Return the stamp of a file that has changed and is not being written any more; None if there is none.

        A file counts as written once two looks find the same.
        """
        try:
            stamp = stamp_of(self._path)
        except OSError:  # between two files of that name; the old model serves
            return None
        is_still, self._seen = stamp == self._seen, stamp
        return stamp if is_still and stamp != self._stamp else None

    def load_new(self, stamp: Stamp) -> Loaded | None:
        """Return the model of a changed file; None, and what is wrong, if it cannot be used: the old one stays."""
        self._stamp = stamp
        try:
            found = self._load(stamp)
        except Exception as error:  # whatever is in the file, the service goes on
            self.trouble = f"the changed file cannot be used: {' '.join(str(error).split())[:300]}"
            _log.warning("%s: %s", self.name, self.trouble)
            return None
        self.trouble = None
        return found

    def replace(self, loaded: Loaded) -> None:
        """Answer by another model from now on; requests under way keep theirs."""
        self.loaded = loaded
        self.memory.adopt(loaded.answers.facts, loaded.version)


class Models:
    """All models of a service by name; the first one is the default."""

    def __init__(self, found: Sequence[ServedModel]) -> None:
        self.by_name = {one.name: one for one in found}
        self.default = found[0]
        self.counters = Counters()

    async def look(self, run: Callable[..., object]) -> None:
        """Take over files that have changed; `run` calls a function in a thread."""
        for one in self.by_name.values():
            stamp = one.changed()
            if stamp is None:
                continue
            loaded = await run(one.load_new, stamp)  # pyright: ignore[reportGeneralTypeIssues]: it is awaitable
            if loaded is None:
                self.counters.failed_reloads[one.name] += 1
            else:
                one.replace(loaded)
                self.counters.reloads[one.name] += 1

    def close(self) -> None:
        """Write what is to be remembered."""
        for one in self.by_name.values():
            one.memory.close()


def stamp_of(path: Path) -> Stamp:
    """Return what changes whenever a model file, or the manifest of a run, is written."""
    if not path.exists():
        raise FileNotFoundError(f"There is no run or model {path}.")
    found = (path / "MANIFEST.json" if path.is_dir() else path).stat()
    return found.st_mtime_ns, found.st_size, found.st_ino
