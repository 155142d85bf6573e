"""Records of chains with impossible contents and checksums that hold: refused by file and field, or of no consequence.

Whoever can renew checksums can also write numbers that are possible; no reader can tell those. These are not.
"""

import contextlib
import functools
import hashlib
import json
import random
import re
import warnings
from collections import Counter

import numpy as np
import pytest
import runs
from cases import case
from typer.testing import CliRunner

import mile
from mile import CorruptFileError, FitWarning, UntrustedFileError
from mile.cli import app
from mile.fitting import result as results_module
from mile.storage import _draw_files, _manifest, read_manifest
from mile.storage._tensors import read_tensors, write_tensors

REFUSALS = (CorruptFileError, UntrustedFileError)
CHAIN = "1"  # the one in the middle is altered
STOPS = {"ensemble": ("ensemble", 3), "phase I": ("phase I", 4), "sampling": ("sampling", 4)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the files of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    runs.begin(folder)
    return runs.contents(folder)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """Return the files of runs that were stopped, by stage, and of the finished one."""
    found = {}
    for name, moment in STOPS.items():
        folder = tmp_path_factory.mktemp("stopped") / "run"
        with runs.interrupted(*moment), pytest.raises(mile.Interrupted):
            runs.begin(folder)
        found[name] = runs.contents(folder)
    return found


def sign(folder, change=lambda manifest: None):
    """Change the manifest of a run and give it a checksum that holds; the copy of it goes."""
    content = json.loads((folder / _manifest.NAME).read_bytes())["manifest"]
    change(content)
    for name, entry in content["files"].items():
        data = (folder / name).read_bytes()
        entry |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (folder / _manifest.NAME).write_bytes(_manifest._text(content))


def rewrite(folder, name, change):
    arrays, metadata = read_tensors(folder / name)
    change(arrays, metadata)
    write_tensors(folder / name, arrays, metadata)
    sign(folder)


def resized(array):
    yield "one axis more", array[None]
    yield "empty", array.reshape(-1)[:0]
    if array.ndim:
        yield "one entry more", np.concatenate([array, array[-1:] if len(array) else np.zeros((1, *array.shape[1:]))])
        yield "a single number", array.reshape(-1)[:1].sum()
        if len(array):
            yield "one entry less", array[:-1]


def retyped(array):
    for dtype in (np.float64, np.int64, np.uint8, np.bool_):
        if array.dtype != dtype:
            with np.errstate(invalid="ignore"):
                yield f"as {np.dtype(dtype).name}", array.astype(dtype)


def renumbered(array):
    if array.dtype.kind == "f":
        yield "NaN", np.full_like(array, np.nan)
        if array.size > 1:
            one = array.copy()
            one.flat[0] = np.nan
            yield "one NaN", one
    if array.dtype.kind == "i":
        yield "negative", np.full_like(array, -7)
        yield "huge", np.full_like(array, np.iinfo(array.dtype).max)


ALTERED_METADATA = {
    "stage": ("", "finished", "os:system", "phase II", ["sampling"], None, "x" * 10_000),
    "step": (-1, 1, 10**15, 2**80, 1.0, "1", None),
    "n_draws": (-1, 1, 10**15, 1.0, "1", None),
    "chain": (-1, 0, 2, 10**15, "1"),
}


def attacks(folder, name):
    """Yield a title, the field it concerns, and a change of a record's arrays and metadata."""
    arrays, metadata = read_tensors(folder / name)
    for field, array in arrays.items():
        yield "missing", field, lambda arrays, _, field=field: arrays.pop(field)
        for kind in (resized, retyped, renumbered):
            for title, other in kind(np.asarray(array)):
                change = functools.partial(_put, field=field, other=np.asarray(other))
                yield title, field, change
    yield "a field more", "more", lambda arrays, _: arrays.update(more=np.zeros(3, np.float32))
    for field, others in ALTERED_METADATA.items():
        for other in others:
            if metadata[field] != other:
                yield repr(other)[:30], field, lambda _, data, field=field, other=other: data.update({field: other})
        if field != "chain":  # files of version 0.1 have none
            yield "missing", field, lambda _, data, field=field: data.pop(field)


def _put(arrays, _, field, other):
    arrays[field] = other


def outcome(folder):
    """Resume; return the refusal, or None if the run ended, and whether a chain was said to have failed."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            mile.resume(folder)
        except REFUSALS as refusal:
            return refusal, False
    return None, any(issubclass(one.category, FitWarning) and "chains failed" in str(one.message) for one in caught)


def assert_same_draws(folder, whole):
    draws = {name: data for name, data in whole.items() if name.startswith("draws.zarr")}
    found = runs.contents(folder)
    assert {name: found.get(name) for name in draws} == draws


def check(folder, name, field, whole):
    refusal, is_said = outcome(folder)
    if refusal is None:
        if not is_said:
            assert_same_draws(folder, whole)
        return "failed chain" if is_said else "same"
    assert str(folder / name) in str(refusal), refusal
    assert field in (*ALTERED_METADATA, "status") or field in str(refusal), refusal
    return "refused"


def record_names(files, folder):
    manifest = read_manifest(runs.write_contents(folder, files))
    return list(manifest.chains[CHAIN].values())


def all_attacks(stopped, folder):
    """Return every attack on a record of one chain: stage, file, title, field, change."""
    found = []
    for stage, files in stopped.items():
        source = folder / stage.replace(" ", "-")
        for name in record_names(files, source):
            found += [(stage, name, *attack) for attack in attacks(source, name)]
    return found


# Possible values of a chain that has failed: it is replaced, with a warning.
FAILURES = {"carry.2", "carry.12", "carry.13"}  # of phase I: log density, log density at the start, bad steps


@pytest.mark.parametrize("n_cases", [30, pytest.param(None, marks=pytest.mark.slow)], ids=["some", "all"])
def test_no_altered_field_changes_a_result(n_cases, stopped, whole, tmp_path):
    attacks_here = all_attacks(stopped, tmp_path / "sources")
    if n_cases is not None:
        attacks_here = random.Random(26).sample(attacks_here, n_cases)
    found = Counter()
    for stage, name, title, field, change in attacks_here:
        folder = runs.write_contents(tmp_path / "run", stopped[stage])
        with case(f"{stage}, {name}, {field}: {title}"):
            rewrite(folder, name, change)
            result = check(folder, name, field, whole)
            found[result] += 1
            assert result != "failed chain" or (stage == "phase I" and field in FAILURES)
            folder = runs.write_contents(tmp_path / "run", stopped[stage])
            rewrite(folder, name, change)
            with contextlib.suppress(*REFUSALS, ValueError), warnings.catch_warnings():  # no ensemble yet, for example
                warnings.simplefilter("ignore", mile.FitWarning)  # or no draws yet
                mile.load(folder)
    assert found["refused"] > len(attacks_here) / 2


def test_files_of_other_chains_and_stages_are_refused(stopped, tmp_path):
    for stage, files in stopped.items():
        chains = read_manifest(runs.write_contents(tmp_path / "source", files)).chains
        state, other = chains[CHAIN]["state"], chains["0"]["state"]
        changes = {"swapped": {state: files[other], other: files[state]}, "doubled": {state: files[other]}}
        if "start" in chains[CHAIN]:  # that one itself is possible: the chain samples again, and draws the same
            changes["of a member"] = {state: files[chains[CHAIN]["member"]]}
        changes["cut"] = {state: files[state][:-8]}
        changes["empty"] = {state: b""}
        for title, change in changes.items():
            folder = runs.write_contents(tmp_path / "run", files | change)
            sign(folder)
            with case(f"{stage}: {title}"), pytest.raises(REFUSALS, match=re.escape(str(folder / "chains"))):
                mile.resume(folder)


def test_repair_knows_impossible_records_and_the_run_ends_as_it_would_have(stopped, whole, tmp_path):
    files = stopped["sampling"]
    chains = read_manifest(runs.write_contents(tmp_path / "source", files)).chains
    member, state = chains[CHAIN]["member"], chains[CHAIN]["state"]
    for title, name, change in (
        ("a member that failed", member, lambda arrays, _: arrays.update(status=np.array(1, np.int32))),
        ("another stage", state, lambda _, metadata: metadata.update(stage="phase I")),
        ("a field of another type", state, lambda arrays, _: arrays.update({"carry.0": arrays["carry.0"][:, None]})),
        ("draws that are not finite", state, lambda arrays, _: arrays["draw.0"].fill(np.nan)),
    ):
        folder = runs.write_contents(tmp_path / "run", files)
        rewrite(folder, name, change)
        with case(title):
            with pytest.raises(REFUSALS):
                mile.resume(folder)
            done = " ".join(mile.repair(folder))
            assert name in done
            assert "Repaired." in done
            assert mile.repair(folder) == []
            mile.resume(folder)
            assert_same_draws(folder, whole)


def test_repair_sets_aside_what_only_the_sampler_can_tell(stopped, whole, tmp_path):
    folder = runs.write_contents(tmp_path / "run", stopped["sampling"])
    state = read_manifest(folder).chains[CHAIN]["state"]
    for chain in range(runs.N_CHAINS):  # all alike: no record contradicts another
        name = read_manifest(folder).chains[str(chain)]["state"]
        rewrite(folder, name, lambda arrays, _: arrays.update({"carry.0": arrays["carry.0"].astype(np.float64)}))
    assert mile.repair(folder) == []
    with pytest.raises(UntrustedFileError, match=r"carry\.0 must be .*mile repair .* --without chains/0000/state-"):
        mile.resume(folder)
    with pytest.raises(ValueError, match="has no file 'nothing'"):
        mile.repair(folder, without=["nothing"])
    done = CliRunner().invoke(app, ["repair", str(folder), "--without", state])
    assert done.exit_code == 0, done.output
    assert f"{state} is set aside." in " ".join(done.output.split())
    mile.resume(folder)
    assert_same_draws(folder, whole)


def test_draws_that_stay_on_disk_are_checked_when_they_are_read(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(_draw_files, "DRAWS_IN_MEMORY", 100)
    monkeypatch.setattr(results_module, "DRAWS_IN_MEMORY", 100)
    x = np.zeros((2, 3))
    folder = runs.write_contents(tmp_path / "run", whole)
    fitted = mile.load(folder)
    fitted.save(tmp_path / "model.mile")
    saved = mile.load(tmp_path / "model.mile")
    np.testing.assert_array_equal(saved.predictive(x).mean, fitted.predictive(x).mean)
    chunk = folder / "draws.zarr/posterior/weights/c.0.0.0"
    for path, loaded in ((chunk, mile.load(folder)), (tmp_path / "model.mile", saved)):
        data = bytearray(path.read_bytes())
        data[-100] ^= 1
        path.write_bytes(data)
        with case(path.name), pytest.raises(CorruptFileError, match=re.escape(str(path))):
            assert loaded.predictive(x).mean is None
