"""Draws on disk, manifests, files that are whole or absent, and the lock."""

import errno
import json
import os
import threading
import time
from pathlib import Path
from unittest import mock

import jax.numpy as jnp
import numpy as np
import pytest
import runs
from targets import small_dataset

import mile
from mile import CorruptFileError, RunLockedError, RunMismatchError, Status, StorageError, UntrustedFileError
from mile._ess import effective_sample_size
from mile.storage import (
    FlatDraws,
    Layout,
    Manifest,
    Record,
    Run,
    StoredDraws,
    damaged_files,
    open_run,
    read_draws,
    read_manifest,
)
from mile.storage import _draw_files as draw_files
from mile.storage._draws import decode, encode
from mile.storage._durable import sync_folders, write_file
from mile.storage._lock import locked
from mile.storage._manifest import check_identity

SHAPE = (3, 50, 4)  # 8 chunks of 7 draws, the last one with 1


def fresh_manifest(**changes):
    parts = {
        "fingerprint": {"jax": "1", "width": 1},
        "configuration": {"n_chains": 3, "network": {"kind": "mlp", "hidden": [4, 4]}},
        "data": {"sha256": "0" * 64, "rows": 5},
        "seed": 1,
    }
    return Manifest(**(parts | changes))


@pytest.fixture
def run(tmp_path):
    with open_run(tmp_path / "run", fresh_manifest(), {}) as opened:
        yield opened


def numbers(dtype=np.float32):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(dtype) for shape in (SHAPE, SHAPE[:2], SHAPE[:2])]


def write_all(run, values, lengths, dtype=np.float32):
    """Write draws of all chains in parts of the given lengths."""
    writer = run.draws(range(SHAPE[0]), *SHAPE[1:], dtype)
    for chain in range(SHAPE[0]):
        start = 0
        for length in lengths:
            writer.write(chain, [array[chain, start : start + length] for array in values])
            start += length
    return writer


@pytest.fixture
def stored(run, monkeypatch):
    """Return draws in memory, and the same ones on disk."""
    monkeypatch.setattr(draw_files, "DRAWS_IN_MEMORY", 0)
    values = numbers()
    recorded = write_all(run, values, [50]).result()
    assert isinstance(recorded.position, StoredDraws)
    return values[0], recorded.position


class TestDrawWriter:
    @pytest.mark.parametrize("lengths", [[50], [1] * 50, [7] * 7 + [1], [0, 3, 0, 19, 28], [49, 1]])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_gives_back_what_it_took_in_any_parts(self, run, lengths, dtype):
        values = numbers(dtype)
        recorded = write_all(run, values, lengths, dtype).result()
        for found, expected in zip(recorded, values, strict=True):
            assert found.dtype == dtype
            np.testing.assert_array_equal(found, expected)

    @pytest.mark.parametrize("n_before", [0, 1, 7, 10, 49, 50])
    def test_goes_on_after_any_number_of_draws(self, run, n_before):
        values = numbers()
        first = write_all(run, values, [n_before])
        pending = [first.pending(chain) for chain in range(3)]
        second = run.draws(range(3), *SHAPE[1:], np.float32)
        for chain in range(3):
            second.restore(chain, first.count(chain), pending[chain])
            second.write(chain, [array[chain, n_before:] for array in values])
            assert second.count(chain) == 50
        np.testing.assert_array_equal(second.result().position, values[0])

    @pytest.mark.parametrize("n_draws", [10, 14, 15])
    def test_can_end_early(self, run, n_draws):
        values = numbers()
        writer = write_all(run, values, [n_draws])
        writer.cut(n_draws)
        recorded = writer.result()
        for found, expected in zip(recorded, values, strict=True):
            np.testing.assert_array_equal(found, expected[:, :n_draws])
        run.save({(0, "final"): Record("finished", 0, {})})
        run.settle()
        assert read_manifest(run.folder).layout.n_draws == n_draws

    def test_reads_chunks_and_what_is_in_none_yet(self, run):
        values = numbers()
        writer = write_all(run, values, [10])
        run.settle()
        pending = [writer.pending(chain) for chain in range(3)]
        recorded = read_draws(run.folder, run.layout, [2, 0], 10, [pending[2], pending[0]])
        np.testing.assert_array_equal(recorded.position, values[0][[2, 0], :10])
        np.testing.assert_array_equal(recorded.energy_change, values[2][[2, 0], :10])

    def test_makes_room_for_chains_that_come_later(self, run):
        values = numbers()
        write_all(run, values, [50]).result()
        late = run.draws([7], *SHAPE[1:], np.float32)
        late.write(0, [array[1] for array in values])
        np.testing.assert_array_equal(late.result().position, values[0][[1]])
        assert run.layout.chain_ids == (0, 1, 2, 7)


class TestStoredDraws:
    @pytest.mark.parametrize(
        "key",
        [
            1,
            -1,
            slice(None),
            slice(1, None),
            [2, 0],
            np.array([True, False, True]),
            (0, 5),
            (2, slice(6, 9)),
            (slice(None), -1),
            (np.array([True, True, False]), -1),
            (np.zeros(3, bool), -1),
            (slice(0), slice(3)),
            (slice(None), slice(None, None, 10), 2),
        ],
        ids=str,
    )
    def test_are_indexed_as_arrays_are(self, stored, key):
        array, draws = stored
        np.testing.assert_array_equal(draws[key], array[key])
        assert draws[key].shape == array[key].shape

    def test_have_the_attributes_of_the_array(self, stored):
        array, draws = stored
        assert (draws.shape, draws.dtype, draws.ndim) == (array.shape, array.dtype, array.ndim)
        assert (len(draws), draws.nbytes) == (len(array), array.nbytes)
        np.testing.assert_array_equal(np.asarray(draws), array)
        np.testing.assert_array_equal(np.asarray(draws, np.float64), array.astype(np.float64))
        assert b"".join(piece.tobytes() for piece in draws.pieces()) == array.tobytes()

    @pytest.mark.parametrize("chains", [np.array([2, 1]), np.array([False, True, True]), np.array([], int)], ids=str)
    def test_can_be_selected(self, stored, chains):
        array, draws = stored
        chosen = draws.select(chains)
        np.testing.assert_array_equal(np.asarray(chosen), array[chains])
        assert isinstance(chosen, StoredDraws)

    def test_can_be_replaced(self, stored):
        array, draws = stored
        replaced = draws.replace(np.array([0, 2]), draws.select([1, 0]))
        np.testing.assert_array_equal(np.asarray(replaced), array[[1, 1, 0]])
        np.testing.assert_array_equal(np.asarray(draws), array)

    @pytest.mark.parametrize("key", [slice(None), slice(3, 4), slice(5, 60), slice(48, 151), slice(9, 9), slice(-1, 2)])
    def test_can_be_read_in_a_row(self, stored, key):
        array, draws = stored
        flat = draws.flat
        assert isinstance(flat, FlatDraws)
        assert (flat.shape, len(flat)) == ((150, 4), 150)
        np.testing.assert_array_equal(flat[key], array.reshape(150, 4)[key])

    def test_in_a_row_have_no_gaps(self, stored):
        with pytest.raises(IndexError, match="neighbors"):
            stored[1].flat[::2]

    def test_predict_as_draws_in_memory_do(self, tmp_path, monkeypatch):
        in_memory = runs.begin(tmp_path / "run")
        monkeypatch.setattr(draw_files, "DRAWS_IN_MEMORY", 0)
        on_disk = mile.load(tmp_path / "run")
        assert isinstance(on_disk.chains.draws, StoredDraws)
        x = small_dataset().x_valid
        np.testing.assert_array_equal(on_disk.predictive(x).mean, in_memory.predictive(x).mean)
        on_disk.save(tmp_path / "model.mile")
        np.testing.assert_array_equal(mile.load(tmp_path / "model.mile").chains.draws, in_memory.chains.draws)


class TestChunk:
    def test_is_checked(self, tmp_path):
        path, values = tmp_path / "chunk", np.arange(12, dtype=np.float32).reshape(4, 3)
        data = encode(values, 5)
        path.write_bytes(data)
        np.testing.assert_array_equal(decode(path, (5, 3), values.dtype)[:4], values)
        assert np.isnan(decode(path, (5, 3), values.dtype)[4]).all()
        for bad in (data[:-1], data[1:], b"\1" + data[1:], data[:-1] + b"\0", b""):
            path.write_bytes(bad)
            with pytest.raises(CorruptFileError, match="chunk was cut short or altered"):
                decode(path, (5, 3), values.dtype)

    @pytest.mark.parametrize(
        ("n_draws", "dimension", "chunk"),
        [(1, 2, 1), (50, 4, 13), (10**6, 10, 31_250), (10**4, 402, 326), (9, 1 << 22, 1)],
    )
    def test_has_a_bounded_size(self, n_draws, dimension, chunk):
        layout = Layout.plan(range(2), n_draws, dimension, np.dtype(np.float32))
        assert layout.chunk == chunk
        assert (layout.n_chunks - 1) * chunk < n_draws <= layout.n_chunks * chunk


class TestManifest:
    @pytest.mark.parametrize(
        ("changes", "field"),
        [
            ({"seed": 2}, "seed"),
            ({"data": {"sha256": "1" * 64, "rows": 5}}, "data.sha256"),
            ({"fingerprint": {"jax": "2", "width": 1}}, "fingerprint.jax"),
            (
                {"configuration": {"n_chains": 3, "network": {"kind": "mlp", "hidden": [4]}}},
                "configuration.network.hidden",
            ),
            ({"configuration": {"n_chains": 3}}, "configuration.network"),
            ({"configuration": fresh_manifest().configuration | {"more": 1}}, "configuration.more"),
        ],
    )
    def test_names_the_field_that_differs(self, changes, field):
        manifest = fresh_manifest()
        with pytest.raises(RunMismatchError, match=rf"^{field} differs: the run in place has "):
            check_identity(manifest, fresh_manifest(**changes).identity(), Path("place"), force=False)
        assert manifest.forced == []

    def test_records_each_forced_field_once_and_forces_no_other(self):
        manifest = fresh_manifest()
        other = {"fingerprint": {"jax": "2", "width": 2}}
        for _ in range(2):
            check_identity(manifest, fresh_manifest(**other).identity(), Path("place"), force=True)
        assert manifest.forced == ["fingerprint.jax", "fingerprint.width"]
        with pytest.raises(RunMismatchError, match=r"^seed differs"):
            check_identity(manifest, fresh_manifest(**other, seed=2).identity(), Path("place"), force=True)

    def test_is_read_as_it_was_written_and_keeps_the_one_before(self, tmp_path):
        first, second = fresh_manifest(), fresh_manifest(files={"data.safetensors": {"bytes": 1, "sha256": "0"}})
        first.write(tmp_path)
        second.write(tmp_path)
        assert read_manifest(tmp_path) == second
        assert read_manifest(tmp_path, "MANIFEST.previous.json") == first

    @pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "chains/../../outside"])
    def test_with_a_path_that_leads_out_of_the_run_is_refused(self, tmp_path, name):
        fresh_manifest(files={name: {"bytes": 1, "sha256": "0"}}).write(tmp_path)
        with pytest.raises(UntrustedFileError, match="a name in files must be the name of a file that a run contains"):
            read_manifest(tmp_path)

    def test_that_was_edited_by_hand_is_refused(self, tmp_path):
        fresh_manifest().write(tmp_path)
        path = tmp_path / "MANIFEST.json"
        document = json.loads(path.read_bytes())
        document["manifest"]["seed"] = 2
        path.write_text(json.dumps(document, sort_keys=True, indent=1))
        with pytest.raises(CorruptFileError, match="was altered after it was written"):
            read_manifest(tmp_path)

    def test_of_the_future_is_refused(self, tmp_path):
        fresh_manifest(format=2).write(tmp_path)
        with pytest.raises(UntrustedFileError, match="has format 2; this version of mile reads up to 1"):
            read_manifest(tmp_path)


class TestWriteFile:
    @pytest.mark.parametrize("call", ["fsync", "replace"])
    def test_leaves_the_old_file_whole_when_it_fails(self, tmp_path, call):
        path = tmp_path / "file"
        write_file(path, [b"old"])
        with (
            mock.patch.object(os, call, side_effect=OSError(errno.ENOSPC, "No space left on device")),
            pytest.raises(
                StorageError, match=r"file: No space left .*at least 6 bytes were needed, [\d,]+ bytes are free"
            ),
        ):
            write_file(path, [b"new", b"est"])
        assert path.read_bytes() == b"old"
        assert list(tmp_path.iterdir()) == [path]

    def test_leaves_nothing_when_its_parts_cannot_be_made(self, tmp_path):
        def parts():
            yield b"begin"
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            write_file(tmp_path / "file", parts())
        assert list(tmp_path.iterdir()) == []

    def test_is_forced_to_disk_with_all_folders_that_lead_to_it(self, tmp_path):
        forced, force = [], os.fsync
        path = tmp_path / "run" / "a" / "b" / "file"

        def note(descriptor):
            forced.append(os.fstat(descriptor).st_ino)
            force(descriptor)

        with mock.patch.object(os, "fsync", note):
            write_file(path, [b"data"])
            sync_folders([path], tmp_path / "run")
        assert forced[0] == path.stat().st_ino
        assert set(forced[1:]) == {parent.stat().st_ino for parent in list(path.parents)[:3]}


class TestRun:
    def test_writes_nothing_more_after_a_failure(self, run):
        """A manifest that were written then would vouch for a file that was not."""
        run.save({(0, "state"): Record("sampling", 1, {"a": np.zeros(3)})})
        run.settle()
        before = runs.contents(run.folder)
        with mock.patch.object(os, "fsync", side_effect=[OSError(errno.EIO, "Input/output error")]):
            run.write_chunk("draws.zarr/chunk", b"data")
            with pytest.raises(StorageError, match=r"draws\.zarr/chunk: Input/output error"):
                run.settle()
        run.save({(0, "state"): Record("sampling", 2, {"a": np.ones(3)})})
        with pytest.raises(StorageError, match=r"draws\.zarr/chunk: Input/output error"):
            run.check() or run.settle()
        assert runs.contents(run.folder) == before

    def test_keeps_the_two_newest_states_and_no_other(self, run):
        for step in range(5):
            run.save({(chain, "state"): Record("sampling", step, {"a": np.full(3, step)}) for chain in range(2)})
        run.settle()
        names = sorted(path.name for path in run.folder.glob("chains/0001/*"))
        assert names == ["state-000004.safetensors", "state-000005.safetensors"]
        assert Run(run.folder, read_manifest(run.folder)).load(1, "state").step == 4
        assert damaged_files(run.folder, read_manifest(run.folder)) == []

    def test_that_is_finished_has_no_states(self, run):
        write_all(run, numbers(), [50]).result()
        run.save({(0, "state"): Record("sampling", 1, {})})
        run.finish({0: Status.OK, 1: Status.FROZEN, 2: Status.OK})
        manifest = read_manifest(run.folder)
        assert manifest.finished
        assert manifest.status == {"0": "ok", "1": "frozen", "2": "ok"}
        assert not list(run.folder.glob("chains/*/*"))


class TestLock:
    def test_names_its_owner_and_is_free_afterwards(self, tmp_path):
        refusals = []

        def attempt():
            try:
                with locked(tmp_path):
                    pass
            except RunLockedError as error:
                refusals.append(str(error))

        with locked(tmp_path):
            thread = threading.Thread(target=attempt)
            thread.start()
            thread.join()
            with pytest.raises(RunLockedError, match=f"is in use by process {os.getpid()} on "), locked(tmp_path):
                pass
        assert f"by process {os.getpid()}" in refusals[0]
        attempt()
        assert len(refusals) == 1
        assert not (tmp_path / "run.owner").exists()

    def test_is_released_when_its_note_cannot_be_removed(self, tmp_path):
        failing = mock.patch.object(Path, "unlink", side_effect=OSError(errno.EROFS, "Read-only file system"))
        with failing, pytest.raises(ZeroDivisionError), locked(tmp_path):
            raise ZeroDivisionError
        with locked(tmp_path):
            pass

    def test_that_cannot_be_made_is_a_storage_error(self, tmp_path):
        (tmp_path / "run.lock").mkdir()
        with pytest.raises(StorageError, match=r"Could not write .*run\.lock: Is a directory"), locked(tmp_path):
            pass


def test_draws_can_be_watched_while_another_process_makes_them(tmp_path):
    xarray = pytest.importorskip("xarray")
    child = runs.start_child(runs.WAITING, tmp_path, "sampling", 9, 60)
    try:
        assert child.stdout.readline() == "here\n"
        patience = time.monotonic() + 30
        store = tmp_path / "draws.zarr"
        last = store / "sample_stats" / "energy_change" / "c.2.1"  # of what is written before the child waits
        while not last.exists():
            assert time.monotonic() < patience
            time.sleep(0.05)
        posterior = xarray.open_zarr(store, group="posterior", consolidated=False).load()
        statistics = xarray.open_zarr(store, group="sample_stats", consolidated=False).load()
    finally:
        child.kill()
        child.communicate()
    assert posterior["weights"].dims == ("chain", "draw", "weight")
    assert posterior["weights"].shape == (3, 50, 26)
    assert posterior["chain"].values.tolist() == [0, 1, 2]
    assert statistics["status"].values.tolist() == [-1, -1, -1]
    n_draws = int(np.isfinite(statistics["lp"]).all("chain").sum())
    assert 0 < n_draws < 50
    written = posterior["weights"].values[:, :n_draws]
    ess = np.stack([np.asarray(effective_sample_size(jnp.asarray(chain))) for chain in written])
    assert np.isfinite(ess).all()
    assert (ess > 0).all()
    finished = runs.begin(tmp_path)
    np.testing.assert_array_equal(written, finished.chains.draws[:, :n_draws])
    np.testing.assert_array_equal(statistics["lp"].values[:, :n_draws], finished.chains.logdensity[:, :n_draws])
    status = xarray.open_zarr(store, group="sample_stats", consolidated=False)["status"]
    assert status.values.tolist() == [int(Status.OK)] * 3
