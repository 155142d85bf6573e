"""A run that is killed, stopped or interrupted ends with the same files (RELIABILITY C3, C4, D1, D2, D3, D5, D6)."""

import contextlib
import datetime
import importlib.metadata
import json
import os
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from unittest import mock

import clusters
import numpy as np
import pytest
import runs
from sklearn.model_selection import GridSearchCV
from targets import StandardNormal, assert_same_bits, small_dataset

import mile
from mile import (
    MLP,
    FitWarning,
    Laplace,
    Mile,
    MileRegressor,
    Normal,
    RunLockedError,
    RunMismatchError,
)
from mile.ensemble import members
from mile.ensemble.training import Training
from mile.execution import InProcess
from mile.sampling import programs
from mile.storage import _platform, read_manifest

STAGES = [stage for stage in runs.STAGES if stage != "before"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return the folder of a run that nothing disturbed; tests do not change it."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    runs.begin(folder)
    return folder


@pytest.fixture(scope="module")
def expected(finished):
    return runs.contents(finished)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """Return the files of a run that was stopped while it sampled."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    with runs.interrupted("sampling", 4), pytest.raises(mile.Interrupted):
        runs.begin(folder)
    return runs.contents(folder)


def random_number():
    """Return the generator of the slow tests, another one every day."""
    seed = int(datetime.date.today().strftime("%Y%m%d"))
    print("seed", seed)
    return np.random.default_rng(seed)


def kill_again_and_again(folder, points):
    """Go on with one run in process after process, each killed at its point."""
    for stage, number in points:
        child = runs.start_child(runs.DYING, folder, stage, number)
        _, errors = child.communicate(timeout=120)
        assert child.returncode == -signal.SIGKILL, f"{stage} {number}: {errors}"


class TestKill:
    """D1 and D2: processes that SIGKILL ends, and what they leave."""

    def check(self, folder, rng, n_runs, expected):
        """Kill each run five times, in stages one after another; together they cover all stages."""
        plans = []
        for number in range(n_runs):
            stages = [stage for index, stage in enumerate(STAGES) if index != number % len(STAGES)]
            plans.append([(stage, int(rng.integers(runs.STAGES[stage]))) for stage in stages])
        folders = [folder / str(number) for number in range(n_runs)]
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(kill_again_and_again, folders, plans))
        for number, killed in enumerate(folders):
            mile.resume(killed)
            runs.assert_same_files(killed, expected)
            shutil.rmtree(killed)
            print(plans[number])

    def test_at_5_points_does_not_change_a_byte(self, tmp_path, expected):
        self.check(tmp_path, np.random.default_rng(4), 1, expected)

    @pytest.mark.slow
    @pytest.mark.timeout(3600)
    def test_at_300_points_does_not_change_a_byte(self, tmp_path, expected):
        self.check(tmp_path, random_number(), 60, expected)

    @pytest.mark.slow
    def test_of_five_processes_that_have_just_begun_to_resume_does_not_change_a_byte(self, tmp_path, expected):
        kill_again_and_again(tmp_path, [("sampling", 100), *[("before", number) for number in (0, 1, 1, 2, 3)]])
        mile.resume(tmp_path)
        runs.assert_same_files(tmp_path, expected)

    @pytest.mark.parametrize("share", [0.01, pytest.param(1.0, marks=pytest.mark.slow)])
    def test_leaves_a_folder_that_can_be_resumed_at_every_moment(self, tmp_path, expected, share):
        rng, copies = np.random.default_rng(8), []

        def copy(stage, number):
            if stage == "final write" or rng.random() < share:
                copies.append(tmp_path / f"{stage}-{number}")
                shutil.copytree(tmp_path / "run", copies[-1])

        with runs.frequent_checkpoints(), runs.Moments(copy).watched():
            runs.begin(tmp_path / "run")
        runs.assert_same_files(tmp_path / "run", expected)
        assert len(copies) > 5
        for folder in copies:
            runs.begin(folder)
            runs.assert_same_files(folder, expected)

    def test_while_a_chain_is_being_replaced_does_not_change_a_byte(self, tmp_path):
        rng, copies, chains = np.random.default_rng(8), [], {b""}
        description = tmp_path / "run" / "draws.zarr" / "posterior" / "chain" / "c" / "0"

        def copy(stage, number):
            # Most delicate is the moment when the store has been made larger but no checkpoint knows of it.
            now = description.read_bytes() if description.exists() else b""
            if now not in chains or (stage.endswith("again") and rng.random() < 0.02):
                copies.append(tmp_path / f"{stage}-{number}")
                shutil.copytree(tmp_path / "run", copies[-1])
            chains.add(now)

        def begin(folder):
            with runs.failing_chain(1), pytest.warns(FitWarning, match="1 of 3 chains failed and were replaced"):
                return runs.begin(folder)

        whole = begin(tmp_path / "whole")
        with runs.frequent_checkpoints(), runs.Moments(copy).watched():
            begin(tmp_path / "run")
        assert len(copies) > 3
        for folder in copies:
            resumed = begin(folder)
            runs.assert_same_files(folder, runs.contents(tmp_path / "whole"))
        assert whole.chain_ids.tolist() == resumed.chain_ids.tolist() == [0, 3, 2]
        assert_same_bits(resumed.chains.draws, whole.chains.draws)
        assert_same_bits(mile.load(folder).chains, whole.chains)


class TestSignal:
    """D3."""

    def test_to_terminate_saves_the_run_and_gives_the_usual_exit_code(self, tmp_path, expected):
        child = runs.start_child(runs.WAITING, tmp_path, "phase I", 5, 1.0)
        assert child.stdout.readline() == "here\n"
        child.terminate()
        sent = time.monotonic()
        _, errors = child.communicate(timeout=60)
        assert time.monotonic() - sent < 5.0
        assert child.returncode == 143, errors
        assert "mile.resume" in errors
        assert read_manifest(tmp_path).chains["0"]["state"]
        mile.resume(tmp_path)
        runs.assert_same_files(tmp_path, expected)

    def test_before_the_ensemble_is_trained_leaves_a_run_that_says_so(self, tmp_path, expected):
        with runs.interrupted("ensemble"), pytest.raises(mile.Interrupted, match=r"mile\.resume\(") as caught:
            runs.begin(tmp_path)
        assert isinstance(caught.value, KeyboardInterrupt)
        with pytest.raises(ValueError, match="has no draws yet"):
            mile.load(tmp_path)
        mile.resume(tmp_path)
        runs.assert_same_files(tmp_path, expected)

    @pytest.mark.parametrize("stage", ["phase I", "phase III"])
    def test_before_there_are_draws_leaves_the_ensemble_to_predict_with(self, tmp_path, finished, expected, stage):
        with runs.interrupted(stage), pytest.raises(mile.Interrupted):
            runs.begin(tmp_path)
        with pytest.warns(mile.FitWarning, match=f"no draws yet .it is in {stage}.*deep ensemble of 3"):
            partial = mile.load(tmp_path)
        x = small_dataset().x_valid
        np.testing.assert_array_equal(partial.predictive(x).mean, mile.load(finished).ensemble_predictive(x).mean)
        mile.resume(tmp_path)
        runs.assert_same_files(tmp_path, expected)

    def test_during_sampling_leaves_draws_to_predict_with(self, tmp_path, finished, stopped, expected):
        folder = runs.write_contents(tmp_path / "run", stopped)
        partial, whole = mile.load(folder), mile.load(finished)
        n_draws = partial.chains.draws.shape[1]
        assert 0 < n_draws < 50
        np.testing.assert_array_equal(partial.chains.draws, whole.chains.draws[:, :n_draws])
        np.testing.assert_array_equal(partial.chains.logdensity, whole.chains.logdensity[:, :n_draws])
        assert np.isfinite(partial.predictive(small_dataset().x_valid).mean).all()
        mile.resume(folder)
        runs.assert_same_files(folder, expected)

    def test_that_comes_when_all_is_done_is_not_lost(self, tmp_path, expected):
        with runs.interrupted("final write", 3, at_writes=True), pytest.raises(KeyboardInterrupt):
            runs.begin(tmp_path)
        runs.assert_same_files(tmp_path, expected)

    def test_leaves_the_callers_handlers_in_place(self, tmp_path):
        before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
        with runs.interrupted("phase I"), pytest.raises(mile.Interrupted):
            runs.begin(tmp_path)
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_second_process_is_refused_until_the_first_is_gone(tmp_path, expected):
    """D5."""
    child = runs.start_child(runs.WAITING, tmp_path, "sampling", 5, 60)
    assert child.stdout.readline() == "here\n"
    began = time.monotonic()
    for attempt in (runs.begin, mile.resume, mile.repair):
        with pytest.raises(RunLockedError, match=f"process {child.pid} on "):
            attempt(tmp_path)
    assert time.monotonic() - began < 2.0
    child.kill()
    child.communicate()
    mile.resume(tmp_path)
    runs.assert_same_files(tmp_path, expected)


CHANGES = {
    "data.sha256": {
        "dataset": replace(
            small_dataset(), train=replace(small_dataset().train, y=np.nextafter(small_dataset().y_train, 0))
        )
    },
    "data.rows": {"dataset": small_dataset(n_rows=60)},
    "seed": {"random_state": 6},
    "configuration.network.hidden": {"network": MLP(n_inputs=3, hidden=(5,))},
    "configuration.network.activation": {"network": MLP(n_inputs=3, hidden=(4,), activation="tanh")},
    "configuration.sampler.warmup_steps": {"sampler": Mile(warmup_steps=301, sampling_steps=160, n_draws=50)},
    "configuration.prior.scale": {"prior": Normal(scale=2.0)},
    "configuration.training.weight_decay": {"training": Training(learning_rate=0.01, max_epochs=60, weight_decay=0.5)},
    "configuration.prior.kind": {"prior": Laplace()},
    "configuration.temperature": {"temperature": 2.0},
    "configuration.n_chains": {"n_chains": 4},
}


@contextlib.contextmanager
def other_machine(field):
    """Compute, as far as the fingerprint knows, elsewhere."""
    version = importlib.metadata.version
    pieces = {
        "mile": (importlib.metadata, "version", lambda name: "0.0.1" if name == "mile-bnn" else version(name)),
        "jaxlib": (importlib.metadata, "version", lambda name: "0.0.1" if name == "jaxlib" else version(name)),
        "processor": (_platform, "_features", lambda: "abacus"),
        "machine": (_platform.platform, "machine", lambda: "abacus"),
        "path": (_platform.native, "kernel_name", lambda: "abacus"),
    }
    if field in pieces:
        patch = mock.patch.object(*pieces[field])
    else:
        described = _platform.fingerprint
        patch = mock.patch("mile.fitting.job.fingerprint", lambda **options: described(**(options | {field: "other"})))
    with patch:
        yield


class TestMismatch:
    """D6."""

    @pytest.mark.parametrize("field", CHANGES)
    @pytest.mark.parametrize("force", [False, True])
    def test_of_data_or_configuration_is_refused_and_named(self, tmp_path, stopped, field, force):
        folder = runs.write_contents(tmp_path / "run", stopped)
        with pytest.raises(RunMismatchError, match=f"^{field} differs: the run in"):
            runs.begin(folder, **CHANGES[field], force=force)
        runs.assert_same_files(folder, stopped)

    @pytest.mark.parametrize("field", ["mile", "jaxlib", "processor", "machine", "path", "width", "dtype"])
    def test_of_the_machine_is_refused_unless_forced_and_then_recorded(self, tmp_path, stopped, expected, field):
        folder = runs.write_contents(tmp_path / "run", stopped)
        with other_machine(field):
            with pytest.raises(RunMismatchError, match=rf"^fingerprint\.{field} differs.* force=True"):
                mile.resume(folder)
            runs.assert_same_files(folder, stopped)
            mile.resume(folder, force=True)
        assert read_manifest(folder).forced == [f"fingerprint.{field}"]
        manifests = {"MANIFEST.json", "MANIFEST.previous.json"}
        others = {name: data for name, data in expected.items() if name not in manifests}
        assert {name: data for name, data in runs.contents(folder).items() if name not in manifests} == others

    def test_of_a_search_that_uses_one_folder_is_refused_with_advice(self, tmp_path):
        data = small_dataset()
        model = MileRegressor((4,), n_chains=1, warmup_steps=100, sampling_steps=20, n_draws=5, max_epochs=2)
        search = GridSearchCV(model.set_params(run_dir=tmp_path), {"prior_scale": [1.0]}, cv=2, error_score="raise")
        with pytest.raises(RunMismatchError, match=r"in a search over parameters or folds: none"):
            search.fit(data.x_train, data.y_train)


class TestSameFiles:
    """C3 and C4."""

    @pytest.mark.parametrize("n_cores", [1, 2, 4])
    def test_with_any_number_of_threads(self, tmp_path, expected, n_cores):
        with mock.patch.object(os, "cpu_count", return_value=n_cores):
            runs.begin(tmp_path)
        runs.assert_same_files(tmp_path, expected)

    @pytest.mark.parametrize("steps", [1, 7, 100, 1000])
    def test_with_any_length_of_blocks(self, tmp_path, expected, steps):
        with runs.blocks_of(1) if steps == 1 else runs.frequent_checkpoints(steps):
            runs.begin(tmp_path)
        runs.assert_same_files(tmp_path, expected)

    def test_with_four_devices(self, tmp_path, expected):
        code = "import jax, pathlib; assert len(jax.devices()) == 4; runs.begin(pathlib.Path(sys.argv[1]))"
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
        child = runs.start_child(code, tmp_path, XLA_FLAGS=flags)
        _, errors = child.communicate(timeout=120)
        assert child.returncode == 0, errors
        runs.assert_same_files(tmp_path, expected)


class TestGoingOn:
    def test_with_a_finished_run_computes_nothing_and_takes_its_seed(self, tmp_path, finished, expected):
        folder = runs.write_contents(tmp_path / "run", expected)
        forbidden = mock.Mock(side_effect=AssertionError("this computes"))
        with mock.patch.object(programs, "advance", forbidden), mock.patch.object(members, "train", forbidden):
            again = runs.begin(folder, random_state=None)
        assert again.seed == runs.SEED
        loaded = mile.load(finished)
        assert_same_bits((again.chains, again.members), (loaded.chains, loaded.members))
        runs.assert_same_files(folder, expected)

    def test_without_stored_data_needs_them_again(self, tmp_path):
        data = small_dataset()
        x, y = data.x_train, data.y_train
        small = {"n_chains": 2, "warmup_steps": 100, "sampling_steps": 60, "n_draws": 10, "random_state": 1}
        model = MileRegressor((4,), **small, max_epochs=30, run_dir=tmp_path / "run", store_data=False)
        whole = MileRegressor(**model.get_params() | {"run_dir": tmp_path / "whole"}).fit(x, y)
        with runs.interrupted("sampling", 1), pytest.raises(mile.Interrupted):
            model.fit(x, y)
        assert not (tmp_path / "run" / "data.safetensors").exists()
        with pytest.raises(ValueError, match="does not keep its data: give dataset=, or fit again with the same X, y"):
            mile.resume(tmp_path / "run")
        np.testing.assert_array_equal(model.fit(x, y).predict(x), whole.predict(x))
        runs.assert_same_files(tmp_path / "run", runs.contents(tmp_path / "whole"))

    def test_with_a_run_of_a_function_needs_the_same_function(self, tmp_path):
        small = {"sampler": Mile(warmup_steps=100, sampling_steps=60, n_draws=20), "random_state": 1}
        starts = np.ones((2, 3), np.float32)
        whole = mile.sample(StandardNormal(), starts, **small, run_dir=tmp_path / "whole")
        folder = tmp_path / "run"
        with runs.interrupted("sampling", 1), pytest.raises(mile.Interrupted):
            mile.sample(StandardNormal(), starts, **small, run_dir=folder)
        with pytest.raises(RunMismatchError, match=r"configuration\.logdensity differs"):
            mile.sample(lambda x: -x @ x, starts, **small, run_dir=folder)
        with pytest.raises(RunMismatchError, match=r"data\.sha256 differs"):
            mile.sample(StandardNormal(), 2 * starts, **small, run_dir=folder)
        with pytest.raises(RunMismatchError, match="call what began it again"):
            mile.resume(folder)
        resumed = mile.sample(StandardNormal(), starts, **small | {"random_state": None}, run_dir=folder)
        assert_same_bits(resumed, whole)
        runs.assert_same_files(folder, runs.contents(tmp_path / "whole"))
        assert json.loads((folder / "MANIFEST.json").read_bytes())["manifest"]["finished"]


class OneByOne(InProcess):
    """Chains that do not wait for each other, as on a cluster; blocks of a known length."""

    block_steps = 0

    def bounded(self, n_steps, n_left):
        return self.block_steps

    def flow(self, *arguments, together=False):
        return super().flow(*arguments)


@pytest.mark.parametrize(
    ("block_steps", "n_made", "n_common"),
    [(62, 2 * 124 + 62, 17), (80, 2 * 160 + 80, 23)],
    ids=["chains are ahead by some chunks", "chains have all their draws"],
)
def test_a_stopped_run_whose_chains_are_at_different_steps_has_the_draws_of_all(
    block_steps, n_made, n_common, tmp_path, monkeypatch
):
    monkeypatch.setattr(OneByOne, "block_steps", block_steps)
    stop = clusters.At({"sampling": partial(os.kill, os.getpid(), signal.SIGINT)}, after=n_made)
    with pytest.raises(KeyboardInterrupt):
        runs.begin(tmp_path / "run", backend=OneByOne(n_threads=1), progress=stop)
    stopped = mile.load(tmp_path / "run").chains
    whole = mile.resume(tmp_path / "run").chains
    for name in ("draws", "logdensity", "energy_change"):
        np.testing.assert_array_equal(getattr(stopped, name), getattr(whole, name)[:, :n_common])
