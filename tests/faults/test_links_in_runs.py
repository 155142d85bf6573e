"""Run directories with links that lead out of them, names that do, and files that are not ours (RELIABILITY F1)."""

import hashlib
import json
import os
import re
import shutil

import numpy as np
import pytest
import runs
from typer.testing import CliRunner

import mile
from mile import CorruptFileError, StorageError, UntrustedFileError
from mile.cli import app
from mile.storage import Record, _draw_files, _manifest, open_run, read_manifest, write_page

pytestmark = pytest.mark.skipif(os.name == "nt", reason="links need privileges there")

REFUSALS = (CorruptFileError, UntrustedFileError)
ACTIONS = {"load": mile.load, "resume": mile.resume, "repair": mile.repair, "fit": runs.begin}
NAME, PREVIOUS = _manifest.NAME, _manifest.PREVIOUS
MEMBER, CHUNK = "chains/0000/member.safetensors", "draws.zarr/posterior/weights/c.0.0.0"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """Return a run that was stopped while it sampled."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    with runs.interrupted("sampling", 4), pytest.raises(mile.Interrupted):
        runs.begin(folder)
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory, stopped):
    """Return the files that this run ends with."""
    folder = shutil.copytree(stopped, tmp_path_factory.mktemp("whole") / "run")
    mile.resume(folder)
    return runs.contents(folder)


@pytest.fixture
def place(tmp_path, stopped):
    """Return a function that makes a copy of the run, and beside it a folder of somebody's own."""
    count = iter(range(10**6))

    def make():
        root = tmp_path / str(next(count))
        run, outside = shutil.copytree(stopped, root / "run"), root / "outside"
        files = {"thesis.txt": b"ten years", "state-000001.safetensors": b"mine", "old.partial": b"mine too", "x": b""}
        runs.write_contents(outside, files | {"deep/member.safetensors": b"mine", "c.0.0.0": b"mine"})
        return run, outside

    return make


def seen(folder):
    """Return everything in a folder by name, with links as links, but not who is writing to it."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif name not in runs.NOT_COMPARED:
            found[name] = path.read_bytes() if path.is_file() else None
    return found


def link(name, target="thesis.txt"):
    """Put a link to something outside in the place of a file or folder of the run."""

    def change(run, outside):
        path = run / name
        if path.is_dir():
            shutil.rmtree(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(outside / target)
        return path

    return change


def moved(name):
    """Move a file or folder of the run outside and leave a link: every byte that is read through it is right."""

    def change(run, outside):
        shutil.move(run / name, outside / "moved")
        (run / name).symlink_to(outside / "moved")
        return run / name

    return change


def loop(run, outside):
    (run / "chains" / "9999").symlink_to(run / "chains")
    return run / "chains" / "9999"


def link_to_itself(run, outside):
    (run / "run.owner").symlink_to("run.owner")
    return run / "run.owner"


def newest_state(run):
    return read_manifest(run).chains["0"]["state"]


# What is done to the run; each returns the path that the message must name.
LINKS = {
    "a chain more": link("chains/9999", "."),
    "a chain more, elsewhere in the run": loop,
    "a chain more, that is not there": link("chains/9999", "nothing"),
    "a stale record": link("chains/0000/state-000001.safetensors", "state-000001.safetensors"),
    "a chain": moved("chains/0000"),
    "all chains": moved("chains"),
    "no chains": link("chains", "nothing"),
    "a record": moved(MEMBER),
    "the newest record": lambda run, outside: moved(newest_state(run))(run, outside),
    "a chunk": moved(CHUNK),
    "a chunk to come": link("draws.zarr/posterior/weights/c.2.7.0", "nothing"),
    "chunks": moved("draws.zarr/posterior/weights"),
    "a description": moved("draws.zarr/zarr.json"),
    "draws": moved("draws.zarr"),
    "data": moved("data.safetensors"),
    "scales": moved("scales.safetensors"),
    "the manifest": moved(NAME),
    "a file of others for the manifest": link(NAME),
    "no manifest": link(NAME, "nothing"),
    "the manifest before": moved(PREVIOUS),
    "the lock": link("run.lock"),
    "a lock to come": link("run.lock", "nothing"),
    "the note on the owner": link("run.owner"),
    "a note that is a link to itself": link_to_itself,
    "a temporary file": link(f"{NAME}.{os.getpid()}.partial"),
    "a temporary file that is not there": link(f"run.owner.{os.getpid()}.partial", "nothing"),
    "a temporary chunk": link(f"draws.zarr/posterior/weights/c.2.7.0.{os.getpid()}.partial"),
    "a temporary record": link(f"chains/0000/final.safetensors.{os.getpid()}.partial"),
    "the report": link("report.html"),
}


class TestALinkInARun:
    def test_is_refused_by_name_and_nothing_changes_on_either_side(self, place):
        for what, change in LINKS.items():
            run, outside = place()
            path = change(run, outside)
            before = seen(run), seen(outside)
            for name, action in ACTIONS.items():
                with pytest.raises(UntrustedFileError, match=re.escape(f"{path} is a symbolic link")) as caught:
                    action(run)
                assert "remove" in str(caught.value), (what, name)
                assert (seen(run), seen(outside)) == before, (what, name)

    def test_can_be_replaced_by_what_it_stood_for(self, place, whole):
        run, outside = place()
        path = LINKS["all chains"](run, outside)
        path.unlink()
        shutil.move(outside / "moved", path)
        mile.resume(run)
        runs.assert_same_files(run, whole)

    def test_is_refused_by_the_commands_too(self, place):
        for what in ("a chain more", "all chains", "the report"):
            for command in ("resume", "repair", "report"):
                run, outside = place()
                path = LINKS[what](run, outside)
                before = seen(run), seen(outside)
                result = CliRunner().invoke(app, [command, str(run)])
                assert result.exit_code == 1
                assert result.stderr.startswith(f"Error: {path} is a symbolic link")
                assert (seen(run), seen(outside)) == before

    def test_is_refused_in_a_folder_where_no_run_was_begun(self, tmp_path):
        outside = runs.write_contents(tmp_path / "outside", {"thesis.txt": b"ten years"})
        for name in ("run.lock", "run.owner", "data.safetensors", "chains", NAME, f"run.owner.{os.getpid()}.partial"):
            run = tmp_path / name / "run"
            run.mkdir(parents=True)
            (run / name).symlink_to(outside if name == "chains" else outside / "thesis.txt")
            before = seen(run), seen(outside)
            with pytest.raises(ValueError, match=re.escape(name)):
                runs.begin(run)
            assert (seen(run), seen(outside)) == before

    def test_that_appears_while_the_run_is_written_is_not_followed(self, tmp_path):
        for name, target in [("chains", "."), ("chains/0001", "."), ("draws.zarr", "."), (NAME, "thesis.txt")]:
            root = tmp_path / name.replace("/", "-")
            outside = runs.write_contents(root / "outside", {"thesis.txt": b"ten years"})
            fresh = _manifest.Manifest(fingerprint={}, configuration={}, data={}, seed=0)
            with open_run(root / "run", fresh, {}) as run:
                run.save({(0, "state"): Record("sampling", 1, {"a": np.zeros(3)})})
                run.settle()
                path = link(name, target)(run.folder, outside)
                run.write_chunk(CHUNK, b"numbers")
                run.save({(1, "state"): Record("sampling", 2, {"a": np.ones(3)})})
                with pytest.raises(UntrustedFileError, match=re.escape(f"{path} is a symbolic link")):
                    run.settle()
            assert seen(outside) == {"thesis.txt": b"ten years"}

    def test_that_appears_after_draws_were_left_on_disk_is_not_followed(self, place, whole, monkeypatch):
        monkeypatch.setattr(_draw_files, "DRAWS_IN_MEMORY", 0)
        run, outside = place()
        runs.write_contents(run, whole)
        loaded = mile.load(run)
        path = moved(CHUNK)(run, outside)
        with pytest.raises(UntrustedFileError, match=re.escape(str(path))):
            np.asarray(loaded.chains.draws)

    def test_for_the_run_itself_is_the_choice_of_its_user(self, place, whole):
        for action in ("resume", "fit"):
            run, _ = place()
            chosen = run.with_name("link.run")
            chosen.symlink_to(run)
            assert mile.repair(chosen) == []
            mile.load(chosen)
            ACTIONS[action](chosen)
            runs.assert_same_files(run, whole)

    def test_with_a_name_that_is_not_ours_is_left_alone(self, place, whole):
        run, outside = place()
        before = seen(outside)
        links = {run / "notes": outside, run / "chains" / "mine": outside, run / "draws.zarr" / "mine": run}
        for path, target in links.items():
            path.symlink_to(target)
        mile.load(run)
        assert mile.repair(run) == []
        mile.resume(run)
        assert all(os.readlink(path) == str(target) for path, target in links.items())
        for path in links:
            path.unlink()
        runs.assert_same_files(run, whole)
        assert seen(outside) == before


def resign(run, change, name=NAME):
    """Change a manifest and give it a checksum that holds."""
    content = json.loads((run / name).read_bytes())["manifest"]
    change(content)
    (run / name).write_bytes(_manifest._text(content))


def naming(name, data=b"other bytes"):
    """Let a manifest vouch for a file that is not as it says: repairing deleted such a file."""
    entry = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return lambda manifest: manifest["files"].__setitem__(name, entry)


def record(field, kind, name):
    """Let a manifest name another file for a record of a chain, and vouch for it."""

    def change(manifest):
        naming(name)(manifest)
        manifest[field]["0"][kind] = name

    return change


OUTSIDE = "../outside/thesis.txt"
MANIFESTS = {
    "a file above": lambda outside: naming(OUTSIDE),
    "a file far above": lambda outside: naming("chains/0000/../../../outside/x"),
    "an absolute file": lambda outside: naming(str(outside / "thesis.txt")),
    "a NUL": lambda outside: naming("chains/0000/\0"),
    "a newline": lambda outside: naming(MEMBER + "\n"),
    "a name for the same file": lambda outside: naming("chains//0000/./member.safetensors"),
    "a folder": lambda outside: naming("chains"),
    "nothing": lambda outside: naming(""),
    "the lock": lambda outside: naming("run.lock"),
    "itself": lambda outside: naming(NAME),
    "a user's file": lambda outside: naming("notes.txt"),
    "a user's file among the draws": lambda outside: naming("draws.zarr/posterior/mine"),
    "a user's file in a chain": lambda outside: naming("chains/0000/notes.txt"),
    "digits of another script": lambda outside: naming("chains/٠٠٠٠/member.safetensors"),
    "a number beyond all": lambda outside: naming(f"chains/0000/state-{'9' * 5000}.safetensors"),
    "a record above": lambda outside: record("chains", "member", OUTSIDE),
    "an older record above": lambda outside: record("previous", "member", OUTSIDE),
    "an unlisted older record": lambda outside: lambda manifest: manifest["previous"]["0"].update(member=OUTSIDE),
    "data for a record": lambda outside: record("chains", "state", "data.safetensors"),
    "a record of another kind": lambda outside: record("chains", "state", MEMBER),
    "a record of another chain": lambda outside: record("chains", "member", "chains/0001/member.safetensors"),
    "an unknown kind": lambda outside: lambda manifest: manifest["chains"]["0"].update(other=MEMBER),
    "no list of older records": lambda outside: lambda manifest: manifest.update(previous=[]),
    "a chain of another spelling": lambda outside: lambda manifest: manifest["chains"].update({"00": {}}),
    "files that are a list": lambda outside: lambda manifest: manifest.update(files=[OUTSIDE]),
    "a status that is a list": lambda outside: lambda manifest: manifest.update(status=[]),
    "finished with a word": lambda outside: lambda manifest: manifest.update(finished="no"),
    "forced by a word": lambda outside: lambda manifest: manifest.update(forced="all"),
    "chains counted in words": lambda outside: lambda manifest: manifest["configuration"].update(n_chains="3"),
    "a fingerprint that is a list": lambda outside: lambda manifest: manifest.update(fingerprint=[]),
}


class TestAManifestThatNamesOtherFiles:
    def test_is_refused_and_repairing_goes_back_to_the_one_before(self, place):
        for what, make in MANIFESTS.items():
            run, outside = place()
            others = {"notes.txt": b"mine", "draws.zarr/posterior/mine": b"mine", "chains/0000/notes.txt": b"mine"}
            for name, data in others.items():
                (run / name).write_bytes(data)
            resign(run, make(outside))
            before = seen(run), seen(outside)
            for name in ("load", "resume", "fit"):
                with pytest.raises(REFUSALS, match=re.escape(str(run / NAME))):
                    ACTIONS[name](run)
                assert (seen(run), seen(outside)) == before, (what, name)
            done = mile.repair(run)
            assert f"Went back to {PREVIOUS}." in done
            assert any("chains/0000/notes.txt" in sentence for sentence in done), done
            assert seen(outside) == before[1], what
            assert {name: (run / name).read_bytes() for name in others} == others, what
            assert mile.repair(run) == []

    def test_is_beyond_repair_if_both_do(self, place):
        for what, make in MANIFESTS.items():
            run, outside = place()
            for name in (NAME, PREVIOUS):
                resign(run, make(outside), name)
            before = seen(run), seen(outside)
            with pytest.raises(CorruptFileError, match="Neither manifest of"):
                mile.repair(run)
            assert (seen(run), seen(outside)) == before, what

    def test_leads_to_the_same_draws_once_repaired(self, place, whole):
        run, _ = place()
        resign(run, naming(OUTSIDE))
        mile.repair(run)
        mile.resume(run)
        runs.assert_same_files(run, whole)


def other_files(run):
    """Put files of a user's own into a run, some with names that are much like ours."""
    pid = os.getpid()
    names = [
        *("notes.txt", "download.partial", "chains/0000/notes.txt", "chains/9999/thesis.txt", "chains/thesis.txt"),
        *(f"thesis.{pid}.partial", "chains/0000/x.partial", "mine/old.partial", "chains/0000/deep/final.safetensors"),
        *("chains/mine/state-000001.safetensors", "draws.zarr/posterior/mine.partial", "data.safetensors.partial"),
        *("chains/0000/state.safetensors", "chains/0000/member.safetensors.bak", f"mine/{NAME}.{pid}.partial"),
    ]
    for name in names:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_bytes(b"mine")
    return dict.fromkeys(names, b"mine")


class TestFilesOfOthers:
    def test_stay_whatever_is_done_and_are_mentioned(self, place, whole, caplog):
        caplog.set_level("INFO", "mile")
        for action in ("resume", "fit"):
            run, _ = place()
            others = other_files(run)
            mile.load(run)
            caplog.clear()
            ACTIONS[action](run)
            assert "left alone: 'data.safetensors.partial', 'download.partial'" in caplog.text
            runs.assert_same_files(run, whole | others)
        run, _ = place()
        others = other_files(run)
        (run / CHUNK).write_bytes(b"")
        done = mile.repair(run)
        assert any("download.partial" in sentence and "left" in sentence for sentence in done)
        mile.resume(run)
        runs.assert_same_files(run, whole | others)

    def test_are_told_from_what_a_killed_process_left(self, place, whole):
        run, _ = place()
        left = [
            *(f"{NAME}.1.partial", "chains/0000/state-000001.safetensors", "chains/0000/final.safetensors.77.partial"),
            *("run.owner.1.partial", "draws.zarr/posterior/weights/c.2.7.0.5.partial", "data.safetensors.12.partial"),
        ]
        for name in left:
            (run / name).write_bytes(b"half")
        mile.resume(run)
        runs.assert_same_files(run, whole)

    def test_in_the_place_of_a_folder_or_file_of_ours_are_refused_and_stay(self, place):
        for name in (MEMBER, "chains/9999", CHUNK, "run.owner", f"{NAME}.7.partial"):
            run, _ = place()
            path = run / name
            path.unlink(missing_ok=True)
            if name == "chains/9999":
                path.write_bytes(b"mine")
            else:
                path.mkdir()
            before = seen(run)
            for action in ACTIONS.values():
                with pytest.raises(REFUSALS, match=re.escape(str(path))):
                    action(run)
                assert seen(run) == before, name

    def test_with_names_like_ours_keep_a_folder_from_being_taken(self, tmp_path):
        for name in ("download.partial", f"thesis.{os.getpid()}.partial", "data.safetensors"):
            run = runs.write_contents(tmp_path / name, {name: b"mine"})
            with pytest.raises(ValueError, match=re.escape(name)):
                runs.begin(run)
            assert runs.contents(run) == {name: b"mine"}


class TestWhatIsWrittenAside:
    def test_goes_through_no_link_with_its_name(self, tmp_path):
        """A temporary file has a name that can be foreseen."""
        path, outside = tmp_path / "page.html", tmp_path / "thesis.txt"
        outside.write_bytes(b"ten years")
        aside = path.with_name(f"{path.name}.{os.getpid()}.partial")
        for target in (outside, tmp_path / "nothing", aside):
            aside.symlink_to(target)
            with pytest.raises(StorageError, match=re.escape(path.name)):
                write_page(path, "text")
            assert aside.is_symlink()
            aside.unlink()
        assert seen(tmp_path) == {"thesis.txt": b"ten years"}

    def test_replaces_what_a_killed_process_with_the_same_number_left(self, tmp_path):
        path = tmp_path / "page.html"
        path.with_name(f"{path.name}.{os.getpid()}.partial").write_bytes(b"half")
        write_page(path, "text")
        assert seen(tmp_path) == {"page.html": b"text"}
