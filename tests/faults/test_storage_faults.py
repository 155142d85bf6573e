"""Disks that fill up, fail or forget, and files that were damaged (RELIABILITY D4, E1 to E5)."""

import asyncio
import contextlib
import datetime
import errno
import os
import re
import shutil
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import runs
from typer.testing import CliRunner

import mile
from mile import CorruptFileError, ResourceError, StorageError, UntrustedFileError
from mile.cli import app
from mile.ensemble import members
from mile.storage import _durable, damaged_files, read_manifest

DAMAGED = (CorruptFileError, UntrustedFileError)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the files of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    runs.begin(folder)
    return runs.contents(folder)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """Return the files of a run that was stopped while it sampled."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    with runs.interrupted("sampling", 4), pytest.raises(mile.Interrupted):
        runs.begin(folder)
    return runs.contents(folder)


@pytest.fixture(params=["whole", "stopped"])
def files(request):
    """Return the files of either run."""
    return request.getfixturevalue(request.param)


def random_number(request):
    """Return a generator: of the day for slow tests, else always the same one."""
    is_slow = request.node.get_closest_marker("slow") is not None
    seed = int(datetime.date.today().strftime("%Y%m%d")) if is_slow else 11
    print("seed", seed)
    return np.random.default_rng(seed)


def fast_and_slow(few, many):
    return pytest.mark.parametrize("count", [few, pytest.param(many, marks=pytest.mark.slow)])


@contextlib.contextmanager
def failing_disk(kind, code, number):
    """Let the system refuse one write, one forcing to disk, or one renaming; those after it succeed."""
    calls, open_file = iter(range(10**9)), Path.open

    def refusing(*arguments):
        if next(calls) == number:
            raise OSError(code, os.strerror(code))
        return getattr(os, kind)(*arguments)

    def open_full(path, mode="r", *arguments, **options):
        is_full = mode == "xb" and next(calls) == number
        return open_file(Path("/dev/full"), "wb") if is_full else open_file(path, mode, *arguments, **options)

    system = mock.Mock(wraps=os)
    system.name, system.O_RDONLY = os.name, os.O_RDONLY
    if kind != "open":
        setattr(system, kind, refusing)
    with (
        mock.patch.object(_durable, "os", system),
        mock.patch.object(Path, "open", open_full) if kind == "open" else contextlib.nullcontext(),
    ):
        yield


# A call that fails, how, and how many such calls there are at least in a run.
FAULTS = [
    ("open", [errno.ENOSPC], 150),
    ("fsync", [errno.ENOSPC, errno.EIO], 350),
    ("replace", [errno.EDQUOT, errno.EROFS, errno.EACCES], 150),
]


class TestDisk:
    """E1 and E2."""

    @fast_and_slow(6, 50)
    def test_that_fails_once_is_named_and_leaves_a_checkpoint_to_resume(self, request, tmp_path, whole, count):
        rng = random_number(request)
        for attempt in range(count):
            kind, codes, n_moments = FAULTS[attempt % len(FAULTS)]
            code, number = int(rng.choice(codes)), int(rng.integers(n_moments))
            folder = tmp_path / str(attempt)
            disk = failing_disk(kind, code, number)
            with runs.frequent_checkpoints(), disk, pytest.raises(StorageError, match=r"[\d,]+ bytes") as caught:
                runs.begin(folder)
            assert isinstance(caught.value, OSError)
            assert caught.value.errno == code
            assert str(folder) in str(caught.value)
            if (folder / "MANIFEST.json").exists():
                assert damaged_files(folder, read_manifest(folder)) == []
            runs.begin(folder)
            runs.assert_same_files(folder, whole)

    def test_that_refuses_the_folder_is_named(self, tmp_path):
        (tmp_path / "file").write_text("in the way")
        with pytest.raises(OSError, match="file"):
            runs.begin(tmp_path / "file" / "run")

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_that_became_read_only_is_named(self, tmp_path, stopped, whole):
        folder = runs.write_contents(tmp_path / "run", stopped)
        folder.chmod(0o500)
        try:
            with pytest.raises(StorageError, match=re.escape(str(folder))):
                mile.resume(folder)
        finally:
            folder.chmod(0o700)
        mile.resume(folder)
        runs.assert_same_files(folder, whole)

    def test_from_which_the_run_was_deleted_is_named_and_gets_nothing_more(self, tmp_path):
        folder = tmp_path / "run"

        def remove():
            while not (folder / "draws.zarr" / "zarr.json").exists():
                time.sleep(0.01)
            # At once: from a folder that is emptied file by file while others are written, not all may go.
            folder.rename(tmp_path / "gone")

        delete = runs.at("phase III", 0, runs.once(remove), at_writes=False)
        # The next thing to be written is the checkpoint with which sampling begins.
        with delete.watched(), pytest.raises(StorageError, match=re.escape(str(folder))):
            runs.begin(folder)
        assert not runs.contents(folder).keys() & {"MANIFEST.json", "chains/0000/start.safetensors"}

    def test_with_too_little_room_is_refused_before_anything_is_trained(self, tmp_path, stopped):
        usage = mock.patch.object(shutil, "disk_usage", return_value=SimpleNamespace(free=20_000_000))
        training = mock.patch.object(members, "train", side_effect=AssertionError("this trains"))
        with usage, training, pytest.raises(ResourceError, match=r"will take 34 MB in .*, where 20 MB are free"):
            runs.begin(tmp_path / "run")
        assert not (tmp_path / "run").exists()
        folder = runs.write_contents(tmp_path / "begun", stopped)
        with usage:  # what is begun has its room
            mile.resume(folder)


@pytest.mark.skipif(sys.platform != "linux", reason="finds the names of open files in /proc")
class TestPowerCut:
    """D4: what was not forced to disk is gone, contents as well as names."""

    @fast_and_slow(20, 1000)
    def test_leaves_a_checkpoint_or_nothing(self, request, tmp_path, whole, count):
        written, names, survivors = {}, {}, []
        folder = tmp_path / "run"

        def surviving(path):
            found = {}
            for name, data in names.get(path, {}).items():
                found |= (
                    surviving(path / name) if data is None else {(path / name).relative_to(folder).as_posix(): data}
                )
            return found

        def force(descriptor):
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            if path.is_dir():
                entries = list(os.scandir(path))
                names[path] = {e.name: None if e.is_dir() else written.get(e.inode(), b"") for e in entries}
            else:
                written[os.fstat(descriptor).st_ino] = path.read_bytes()
            survivors.append(surviving(folder))

        system = mock.Mock(wraps=os, fsync=force)
        system.name, system.O_RDONLY = os.name, os.O_RDONLY
        with mock.patch.object(_durable, "os", system), runs.frequent_checkpoints():
            runs.begin(folder)
        runs.assert_same_files(folder, whole)
        rng, cut = random_number(request), tmp_path / "cut"
        begun = [files for files in survivors if "MANIFEST.json" in files]
        assert all("MANIFEST.json" in files for files in survivors[survivors.index(begun[0]) :])
        chosen = rng.choice(len(begun), min(count, len(begun)), replace=False)
        for index in chosen:
            runs.write_contents(cut, begun[index])
            assert damaged_files(cut, read_manifest(cut)) == []
        for index in chosen[: count // 4]:
            runs.begin(runs.write_contents(cut, begun[index]))
            runs.assert_same_files(cut, whole)


def positions(rng, files, count):
    """Return random bits: file, byte and mask. Each file is hit with the same probability, some first or last."""
    names = [name for name in files if files[name]]
    for name in rng.permuted(np.resize(names, count)):
        size = len(files[name])
        offset = int(rng.choice([0, size - 1, rng.integers(size), rng.integers(size)]))
        yield str(name), offset, 1 << int(rng.integers(8))


def flip(data, offset, mask):
    return data[:offset] + bytes([data[offset] ^ mask]) + data[offset + 1 :]


KINDS = [
    "MANIFEST.json",
    "MANIFEST.previous.json",
    "chains/0000/member.safetensors",
    "chains/0001/start.safetensors",
    "chains/0001/final.safetensors",
    "chains/0002/state-",
    "data.safetensors",
    "scales.safetensors",
    "draws.zarr/zarr.json",
    "draws.zarr/posterior/chain/c.0",
    "draws.zarr/posterior/weights/c.1.0.0",
    "draws.zarr/posterior/weights/zarr.json",
    "draws.zarr/sample_stats/lp/c.2.0",
    "draws.zarr/sample_stats/energy_change/c.0.0",
    "draws.zarr/sample_stats/status/c.0",
]


class TestBitFlip:
    """E3."""

    @fast_and_slow(100, 2000)
    def test_in_any_file_of_a_run_is_noticed_and_named(self, request, tmp_path, files, count):
        folder = runs.write_contents(tmp_path / "run", files)
        for name, offset, mask in positions(random_number(request), files, count):
            (folder / name).write_bytes(flip(files[name], offset, mask))
            for reader in (mile.load, mile.resume):
                with pytest.raises(DAMAGED, match=re.escape(str(folder / name))):
                    reader(folder)
            (folder / name).write_bytes(files[name])
        runs.assert_same_files(folder, files)

    @pytest.mark.parametrize("kind", KINDS)
    def test_can_be_repaired_and_then_the_run_ends_as_it_would_have(self, tmp_path, files, whole, kind):
        names = [name for name in files if name.startswith(kind)]
        if not names:
            pytest.skip("this run has no such file")
        name = names[-1]  # of states the newest
        folder = runs.write_contents(tmp_path / "run", files | {name: flip(files[name], len(files[name]) // 2, 4)})
        done = mile.repair(folder)
        assert name in " ".join(done)
        assert done[-1].startswith("Repaired.")
        assert mile.repair(folder) == []
        runs.begin(folder)
        runs.assert_same_files(folder, whole)

    @fast_and_slow(100, 2000)
    def test_in_a_saved_model_is_noticed_and_named(self, request, tmp_path, whole, count):
        path = tmp_path / "model.mile"
        mile.load(runs.write_contents(tmp_path / "run", whole)).save(path)
        data, rng = path.read_bytes(), random_number(request)
        for offset in [0, 7, 8, len(data) - 1, *rng.integers(len(data), size=count)]:
            path.write_bytes(flip(data, int(offset), 1 << int(rng.integers(8))))
            with pytest.raises(DAMAGED, match=re.escape(str(path))):
                mile.load(path)
        path.write_bytes(data)
        mile.load(path)

    def test_in_both_manifests_is_beyond_repair(self, tmp_path, stopped):
        damage = {name: flip(stopped[name], 100, 1) for name in KINDS[:2]}
        with pytest.raises(CorruptFileError, match=r"Neither manifest of .* can be read"):
            mile.repair(runs.write_contents(tmp_path / "run", stopped | damage))

    def test_can_be_repaired_inside_an_event_loop_such_as_a_notebooks(self, tmp_path, stopped, whole):
        name = "draws.zarr/zarr.json"
        folder = runs.write_contents(tmp_path / "run", stopped | {name: flip(stopped[name], 5, 1)})

        async def cell():
            mile.repair(folder)
            runs.begin(folder)

        asyncio.run(cell())
        runs.assert_same_files(folder, whole)


class TestAlteredFolder:
    """E4."""

    def check(self, folder, name):
        for reader in (mile.load, mile.resume):
            with pytest.raises(DAMAGED, match=re.escape(str(folder / name))):
                reader(folder)

    @fast_and_slow(30, 200)
    def test_a_file_cut_short_or_made_longer_is_noticed(self, request, tmp_path, files, count):
        folder, rng = runs.write_contents(tmp_path / "run", files), random_number(request)
        for name, length, _ in positions(rng, files, count):
            for data in (files[name][:length], files[name] + b"\0"):
                (folder / name).write_bytes(data)
                self.check(folder, name)
            (folder / name).write_bytes(files[name])

    def test_chunks_that_changed_places_are_noticed(self, tmp_path, files, whole):
        first, second = (f"draws.zarr/posterior/weights/c.{row}.0.0" for row in (0, 1))
        elsewhere = first.replace("/c.0.0.", "/c.0.9.")
        changes = {
            "swapped": files | {first: files[second], second: files[first]},
            "doubled": files | {first: files[second]},
            "renamed": {name: data for name, data in files.items() if name != first} | {elsewhere: files[first]},
        }
        for kind, changed in changes.items():
            folder = runs.write_contents(tmp_path / kind, changed)
            self.check(folder, first)
            mile.repair(folder)
            runs.begin(folder)
            (folder / elsewhere).unlink(missing_ok=True)
            runs.assert_same_files(folder, whole)

    def test_an_older_manifest_never_leads_to_another_result(self, tmp_path, whole):
        manifests, folder = [], tmp_path / "run"
        keep = runs.Moments(lambda stage, number: manifests.append(runs.contents(folder).get("MANIFEST.json")))
        with runs.frequent_checkpoints(), keep.watched():
            runs.begin(folder)
        stale = [text for text in dict.fromkeys(manifests) if text is not None]
        assert len(stale) > 8
        for text in stale[:: len(stale) // 8]:
            runs.write_contents(folder, whole | {"MANIFEST.json": text})
            with contextlib.suppress(CorruptFileError):
                runs.begin(folder)
            mile.repair(folder)
            runs.begin(folder)
            runs.assert_same_files(folder, whole)

    def test_files_of_others_are_left_alone(self, tmp_path, files, whole):
        others = {"notes.txt": b"mine", "draws.zarr/posterior/mine": b"too", "empty": b""}
        folder = runs.write_contents(tmp_path / "run", files | others)
        mile.load(folder)
        mile.resume(folder)
        runs.assert_same_files(folder, whole | others)

    def test_a_folder_of_other_files_is_not_taken(self, tmp_path):
        with pytest.raises(ValueError, match=r"holds other files, such as 'notes\.txt'; give a new or empty folder"):
            runs.begin(runs.write_contents(tmp_path / "run", {"notes.txt": b"mine"}))


class TestCommandLine:
    def call(self, *arguments):
        return CliRunner().invoke(app, list(map(str, arguments)))

    def test_repairs_and_resumes(self, tmp_path, stopped, whole):
        name = "draws.zarr/sample_stats/lp/c.0.0"
        folder = runs.write_contents(tmp_path / "run", stopped | {name: b""})
        refused = self.call("resume", folder)
        assert refused.exit_code == 1
        assert refused.stderr.startswith(f"Error: {folder / name} is damaged")
        assert f"mile repair {folder}" in refused.stderr
        repaired = self.call("repair", folder)
        assert repaired.exit_code == 0
        assert f"{name} is damaged." in repaired.stdout
        assert self.call("repair", folder).stdout == f"{folder} is whole; there is nothing to repair.\n"
        resumed = self.call("resume", folder, "--save", tmp_path / "model.mile")
        assert resumed.exit_code == 0, resumed.stderr
        assert "3 chains of 50 draws of 26 weights" in resumed.stdout
        assert "chain 0:" not in resumed.stdout  # nothing to say of a good one
        runs.assert_same_files(folder, whole)
        assert mile.load(tmp_path / "model.mile").chains.draws.shape == (3, 50, 26)

    def test_says_what_it_cannot_do(self, tmp_path):
        assert "nowhere" in self.call("resume", tmp_path / "nowhere").stderr
        for command in ("resume", "repair"):
            result = self.call(command, tmp_path)
            assert result.exit_code == 1
            assert result.stderr.startswith("Error: ")
            assert str(tmp_path) in result.stderr
