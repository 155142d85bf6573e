"""A run directory: everything that a stopped fit needs to resume, written while it runs.

    MANIFEST.json                 what the run is; size and checksum of every file below
    data.safetensors              the prepared rows
    scales.safetensors            what prediction needs of them
    chains/0007/member.safetensors      a trained network
    chains/0007/start.safetensors       the chain when sampling began, for repairs
    chains/0007/state-000012.safetensors  the newest checkpoint, and the one before
    chains/0007/last.safetensors        its last state, from which more draws can be made
    chains/0007/final.safetensors       how the chain ended
    draws.zarr/                   draws, see `_draws.py`
    out-of-fold.safetensors       predictions of rows by chains that left them out, if there are folds

Files are written by one background thread, so that the chains do not wait for the disk.
"""

import errno
import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import ParamSpec

import numpy as np

from mile._errors import CorruptFileError, Status, StorageError
from mile.storage import _draws
from mile.storage._draw_files import DrawWriter
from mile.storage._draws import Layout
from mile.storage._durable import remove, sync_folders, write_file
from mile.storage._inside import check_entries, inside, is_record
from mile.storage._lock import locked
from mile.storage._manifest import NAME, Manifest, check_identity, copy_manifest, read_manifest
from mile.storage._records import Record, chain_of, metadata_of, read_record
from mile.storage._run_folder import check_space, clean, damaged_files, has_run, make_folder
from mile.storage._tensors import read_tensors, write_tensors

CHECKPOINT_SECONDS = 10.0
_STATE = "state"  # the one kind of record that is replaced; others stay
_MOST_WAITING = 256  # chunks that may wait for the disk

Arguments = ParamSpec("Arguments")


class Run:
    """A run directory that this process may write; see `open_run`."""

    is_saved = True

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self.layout = manifest.layout  # sizes of the draw store, once there is one
        self.checkpoint_seconds = CHECKPOINT_SECONDS
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="mile-writer")
        self._jobs: list[Future[None]] = []
        self._lock = threading.Lock()
        self._failure: BaseException | None = None  # of a background job
        self._saved: dict[int, float] = {}
        self._number = max([_number(files[_STATE]) for files in manifest.chains.values() if _STATE in files], default=0)
        self._unsynced: list[Path] = []
        self._opened = time.monotonic()

    # -- states of chains

    def load(self, chain: int, kind: str) -> Record | None:
        """Return the newest record of a chain: its "member", its "state", or its "final" one."""
        name = self.manifest.chains.get(str(chain), {}).get(kind)
        return None if name is None else read_record(self.folder, name)

    def due(self, chains: Sequence[int]) -> bool:
        """Say whether it is time to save these chains again."""
        now = time.monotonic()
        return any(now - self._saved.get(chain, self._opened) >= self.checkpoint_seconds for chain in chains)

    def save(self, records: Mapping[tuple[int, str], Record]) -> None:
        """Save records of chains, each with its kind, in the background, all or none."""
        for chain, _ in records:
            self._saved[chain] = time.monotonic()
        self._submit(self._commit, dict(records))

    def _commit(self, records: dict[tuple[int, str], Record]) -> None:
        manifest = self.manifest
        self._number += 1
        chains = {name: dict(files) for name, files in manifest.chains.items()}
        for (chain, kind), record in records.items():
            suffix = f"-{self._number:06d}" if kind == _STATE else ""
            name = f"chains/{chain:04d}/{kind}{suffix}.safetensors"
            self._write_record(name, record)
            chains.setdefault(str(chain), {})[kind] = name
        self._sync()
        manifest.previous, manifest.chains = manifest.chains, chains
        stale = self._forget_unused()
        manifest.write(self.folder)
        for name in stale:
            remove(inside(self.folder, name))

    def _forget_unused(self) -> list[str]:
        """Take files that neither this checkpoint nor the one before needs out of the manifest; return them."""
        manifest = self.manifest
        named = [*manifest.chains.values(), *manifest.previous.values()]
        used = {name for files in named for name in files.values()}
        stale = [name for name in manifest.files if is_record(name) and name not in used]
        for name in stale:
            del manifest.files[name]
        return stale

    # -- draws

    def draws(self, chain_ids: Sequence[int], n_draws: int, dimension: int, dtype: np.dtype) -> DrawWriter:
        """Make room for the draws of these chains, after those of earlier ones, and return what writes them."""
        layout = self.layout
        if layout is None:
            layout = Layout.plan(chain_ids, n_draws, dimension, np.dtype(dtype))
        elif not set(chain_ids) <= set(layout.chain_ids):
            new = [int(chain) for chain in chain_ids if chain not in layout.chain_ids]
            layout = layout._replace(chain_ids=(*layout.chain_ids, *new))
        if layout != self.layout:
            check_space(self.folder, layout.n_bytes - (self.layout.n_bytes if self.layout else 0))
            self.layout = layout
        if not self.manifest.finished:
            self._submit(self._write_layout, layout)
        return DrawWriter(self, layout, [layout.chain_ids.index(int(chain)) for chain in chain_ids])

    def shorten(self, n_draws: int) -> None:
        """Let every chain end with fewer draws than planned; counts from the next checkpoint on."""
        assert self.layout is not None
        self.layout = self.layout._replace(n_draws=n_draws)
        self._submit(setattr, self.manifest, "layout", self.layout)

    def _write_layout(self, layout: Layout, status: Mapping[int, Status] | None = None) -> None:
        """Write the metadata of the store that has changed."""
        manifest = self.manifest
        codes = [int((status or {}).get(chain, _draws.RUNNING)) for chain in layout.chain_ids]
        files = _draws.metadata(layout, codes)
        known = {name: manifest.files[name]["sha256"] for name in files if name in manifest.files}
        digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
        new = [name for name in files if known.get(name) != digests[name]]
        if any(name in known for name in new):
            # The manifest stops vouching for them first. A process that is killed between two of these files, or
            # before the next manifest, then leaves nothing that looks damaged.
            for name in new:
                manifest.files.pop(name, None)
            manifest.write(self.folder)
        manifest.layout = layout
        # Numbers before the description that makes them visible: a reader sees the old store or the new one.
        for name in sorted(new, key=lambda name: name.endswith("zarr.json")):
            self._write(name, [files[name]])

    def write_chunk(self, name: str, data: bytes) -> None:
        """Write a chunk of draws in the background."""
        self._submit(self._write, name, [data])

    # -- the run as a whole

    def keep(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Write a file that never changes afterwards."""
        path = inside(self.folder, name)
        digest = write_tensors(path, arrays, {})
        self._enter(name, path.stat().st_size, digest)
        self._sync()

    @property
    def plan(self) -> dict[str, int] | None:
        """Budgets that a time limit led to; empty if those asked for fit, None if that is not decided."""
        return self.manifest.plan if self.layout is None else self.manifest.plan or {}

    def set_plan(self, plan: dict[str, int]) -> None:
        """Keep the budgets that a time limit led to."""
        self.manifest.plan = plan
        self._submit(self.manifest.write, self.folder)

    @property
    def begun(self) -> int | None:
        """How many chains the run had before it was given more."""
        return self.manifest.begun

    @property
    def weights(self) -> np.ndarray | None:
        """Weights of the chains and then of their members in predictions, once the run is finished with some."""
        return None if self.manifest.weights is None else np.array(self.manifest.weights)

    def recall(self, name: str) -> dict[str, np.ndarray] | None:
        """Return the arrays of a file that the run keeps; None if there is none of that name."""
        return read_tensors(self.folder / name, within=self.folder).arrays if name in self.manifest.files else None

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to do."""
        return self.manifest.finished

    def finish(
        self,
        status: Mapping[int, Status],
        weights: np.ndarray | None = None,
        kept: Mapping[str, Mapping[str, np.ndarray]] | None = None,
    ) -> None:
        """Record that the run is finished, how each chain ended, and how much each counts in predictions.

        `kept` has arrays to keep with it: the name of a file, and names of arrays in it.

        The files are then the same however often the run was interrupted.
        """
        self.settle()
        if self.manifest.finished:
            copy_manifest(self.folder)
            return

        def complete() -> None:
            manifest = self.manifest
            assert self.layout is not None
            for name, arrays in (kept or {}).items():
                path = inside(self.folder, name)
                digest = write_tensors(path, arrays, {})
                self._enter(name, path.stat().st_size, digest)
            self._write_layout(self.layout, status)
            for files in manifest.chains.values():
                files.pop(_STATE, None)
            manifest.previous, manifest.finished = {}, True
            manifest.status = {str(chain): code.name.lower() for chain, code in status.items()}
            manifest.weights = None if weights is None else tuple(weights.tolist())
            stale = self._forget_unused()
            self._sync()
            manifest.write(self.folder)
            for name in stale:
                remove(inside(self.folder, name))

        self._submit(complete)
        self.settle()

    def settle(self) -> None:
        """Wait until everything submitted is on disk.

        Raises
        ------
        StorageError
            If something could not be written.
        """
        with self._lock:
            jobs, self._jobs = self._jobs, []
        for job in jobs:
            job.result()

    def check(self) -> None:
        """Raise the error of a background job, if there is one. Wait if the disk falls far behind."""
        with self._lock:
            waiting = [job for job in self._jobs if not job.done()]
            done = [job for job in self._jobs if job.done()]
            self._jobs = waiting
        for job in done:
            job.result()
        if len(waiting) > _MOST_WAITING:
            waiting[len(waiting) - _MOST_WAITING].result()

    def close(self) -> None:
        """Stop the background thread."""
        self._writer.shutdown(wait=True)

    def _submit(
        self, function: Callable[Arguments, None], *arguments: Arguments.args, **options: Arguments.kwargs
    ) -> None:
        with self._lock:
            self._jobs.append(self._writer.submit(self._do, partial(function, *arguments, **options)))

    def _do(self, job: Callable[[], None]) -> None:
        """Run a background job. After a failure no other runs: a manifest must not list a file that was not written."""
        if self._failure is not None:
            raise self._failure
        try:
            if not has_run(self.folder):
                raise StorageError(
                    errno.ENOENT, f"{self.folder / NAME} is gone: the run was deleted or moved while it was written."
                )
            job()
        except BaseException as error:
            self._failure = error
            raise

    # -- files; in the background thread only

    def _write(self, name: str, parts: Iterable[bytes]) -> None:
        path = inside(self.folder, name)
        parts = list(parts)
        digest = write_file(path, parts)
        self._enter(name, sum(memoryview(part).nbytes for part in parts), digest)

    def _write_record(self, name: str, record: Record) -> None:
        path = inside(self.folder, name)
        digest = write_tensors(path, record.arrays, metadata_of(record, chain_of(name)))
        self._enter(name, path.stat().st_size, digest)

    def _enter(self, name: str, n_bytes: int, digest: str) -> None:
        self.manifest.files[name] = {"bytes": n_bytes, "sha256": digest}
        self._unsynced.append(self.folder / name)

    def _sync(self) -> None:
        sync_folders(self._unsynced, self.folder)
        self._unsynced = []


@contextmanager
def open_run(
    folder: Path, fresh: Manifest, files: Mapping[str, Mapping[str, np.ndarray]], *, force: bool = False
) -> Iterator[Run]:
    """Begin a run in a folder, or resume the one that is there.

    `files` has arrays to keep with it: the name of a file, and names of arrays in it.

    Raises
    ------
    RunMismatchError
        If the run that is there has other data or another configuration.
    RunLockedError
        If another process is writing to it.
    CorruptFileError
        If one of its files is damaged.
    UntrustedFileError
        If a link or something else that no run contains has the name of one of its files.
    """
    make_folder(folder)
    check_entries(folder)
    with locked(folder):
        begun = has_run(folder)
        manifest = read_manifest(folder) if begun else fresh
        clean(folder, manifest)
        if begun:
            check_identity(manifest, fresh.identity(), folder, force=force)
            damaged = damaged_files(folder, manifest)
            if damaged:
                raise CorruptFileError(
                    f"{damaged[0]} is damaged: its size or checksum is not the one in the manifest. "
                    f"`mile repair {folder}` goes back to the last good checkpoint."
                )
        run = Run(folder, manifest)
        try:
            for name, arrays in files.items():
                if not begun or name not in manifest.files:
                    run.keep(name, arrays)
            if not begun:
                manifest.write(folder)
            yield run
        finally:
            run.close()


def _number(name: str) -> int:
    return int(Path(name).stem.split("-")[1])
