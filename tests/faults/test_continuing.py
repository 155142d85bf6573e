"""A finished run that is given more draws and chains is as safe as any run, and has the bits of one that began so."""

import shutil
import signal
from dataclasses import replace

import numpy as np
import pytest
import runs
from targets import assert_same_bits

import mile
from mile import RunMismatchError
from mile.samplers import resized
from mile.storage import read_manifest

N_DRAWS, N_CHAINS = 80, 5
LONGER = resized(replace(runs.SAMPLER, step_size=runs.TRAINING.learning_rate), N_DRAWS)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    runs.begin(folder)
    return folder


@pytest.fixture(scope="module")
def whole():
    """Return the fit that had asked for everything from the start."""
    return runs.begin(None, sampler=LONGER, n_chains=N_CHAINS)


@pytest.fixture(scope="module")
def expected(finished, whole, tmp_path_factory):
    folder = tmp_path_factory.mktemp("longer") / "run"
    shutil.copytree(finished, folder)
    longer = mile.resume(folder, n_draws=N_DRAWS, n_chains=N_CHAINS)
    assert_same_bits(longer.chains, whole.chains)
    assert_same_bits(mile.load(folder).chains, whole.chains)
    return runs.contents(folder)


def resume(folder, stage=None, number=0):
    mile.resume(folder, n_draws=N_DRAWS, n_chains=N_CHAINS)


def test_steps_are_those_of_the_spacing_that_there_is():
    assert (LONGER.sampling_steps, LONGER.n_draws) == (250, 80)


def test_a_copy_at_any_moment_can_be_resumed(tmp_path, finished, expected):
    rng, copies, seen = np.random.default_rng(2), [], set()

    def copy(stage, number):
        manifest = (tmp_path / "run" / "MANIFEST.json").read_bytes()
        if (stage in ("before", "final write") and manifest not in seen) or rng.random() < 0.004:
            copies.append(tmp_path / f"{stage}-{number}")
            shutil.copytree(tmp_path / "run", copies[-1])
        seen.add(manifest)

    shutil.copytree(finished, tmp_path / "run")
    with runs.frequent_checkpoints(), runs.Moments(copy).watched():
        resume(tmp_path / "run")
    runs.assert_same_files(tmp_path / "run", expected)
    assert len(copies) > 4
    for folder in copies:
        resume(folder)
        runs.assert_same_files(folder, expected)


def test_a_killed_process_loses_nothing(tmp_path, finished, expected):
    shutil.copytree(finished, tmp_path / "run")
    code = (
        "import os, mile; from pathlib import Path\n"
        "kill = lambda: os.kill(os.getpid(), 9)\n"
        "with runs.frequent_checkpoints(), runs.at('sampling', 30, kill).watched():\n"
        f"    mile.resume(Path(sys.argv[1]), n_draws={N_DRAWS}, n_chains={N_CHAINS})"
    )
    child = runs.start_child(code.replace("import os", "\nimport os", 1), tmp_path / "run")
    _, errors = child.communicate(timeout=120)
    assert child.returncode == -signal.SIGKILL, errors
    assert not read_manifest(tmp_path / "run").finished
    assert mile.load(tmp_path / "run").chains.draws.shape[0] == runs.N_CHAINS  # the first ones predict meanwhile
    with pytest.raises(RunMismatchError, match="not finished"):
        mile.resume(tmp_path / "run", n_draws=90)
    mile.resume(tmp_path / "run")
    runs.assert_same_files(tmp_path / "run", expected)


def test_chains_that_replaced_failed_ones_are_made_anew(tmp_path, finished):
    def whole_and_longer():
        with runs.failing_chain(1):
            whole = runs.begin(None, sampler=LONGER, n_chains=N_CHAINS)
            runs.begin(tmp_path)
            return whole, mile.resume(tmp_path, n_draws=N_DRAWS, n_chains=N_CHAINS)

    with pytest.warns(mile.FitWarning, match="replaced"):
        whole, longer = whole_and_longer()
    assert longer.chain_ids.tolist() == whole.chain_ids.tolist() == [0, 5, 2, 3, 4]
    assert_same_bits(longer.chains.draws, whole.chains.draws)


def test_a_damaged_last_state_is_noticed_and_repaired(tmp_path, finished, expected):
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run" / "chains" / "0001" / "last.safetensors").write_bytes(b"x")
    with pytest.raises(mile.CorruptFileError, match="mile repair"):
        resume(tmp_path / "run")
    mile.storage.repair(tmp_path / "run")
    mile.resume(tmp_path / "run")
    resume(tmp_path / "run")
    runs.assert_same_files(tmp_path / "run", expected)


def test_what_cannot_be_continued_is_refused(tmp_path, finished):
    shutil.copytree(finished, tmp_path / "run")
    before = runs.contents(tmp_path / "run")
    for asked, message in (
        ({"n_draws": 40}, "more than the 50 draws"),
        ({"n_chains": 2}, "at least the 3 chains"),
        ({"preset": "default"}, "runs of an estimator"),
    ):
        with pytest.raises(ValueError, match=message):
            mile.resume(tmp_path / "run", **asked)
    runs.assert_same_files(tmp_path / "run", before)
    mile.resume(tmp_path / "run", n_draws=50, n_chains=3)  # it has them
    runs.assert_same_files(tmp_path / "run", before)
