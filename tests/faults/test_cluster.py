"""A fit on a Dask cluster of real processes: same bits as here, whatever happens to the cluster (RELIABILITY J)."""

import os
import random
import re
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import clusters
import jax.numpy as jnp
import numpy as np
import pytest
import runs
from targets import assert_same_bits, small_dataset

import mile
from mile import FitWarning, MileRegressor, Status
from mile._errors import ClusterError
from mile.execution import DaskBackend
from mile.sampling import programs
from mile.storage import read_manifest

# A killed process leaves connections that nobody closes.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def client():
    with clusters.local_cluster() as client:
        yield client


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """The files of a run that was made in this process."""
    folder = tmp_path_factory.mktemp("here") / "run"
    runs.begin(folder)
    return runs.contents(folder)


def backend(client, **options):
    return DaskBackend(client, **({"block_seconds": 0.2, "patience": 60.0} | options))


def advance_by(monkeypatch, function, *arguments):
    monkeypatch.setattr(programs, "advance_group", partial(function, *arguments))


class TestSameBits:
    def test_as_in_one_process_and_the_same_files(self, client, here, tmp_path):
        progress = clusters.At({})
        runs.begin(tmp_path / "run", backend=backend(client), progress=progress)
        runs.assert_same_files(tmp_path / "run", here)
        steps = {stage: count for stage, count in progress.seen.items() if stage != "ensemble"}
        assert steps == {"phase I": 3 * 240, "phase II": 3 * 30, "phase III": 3 * 30, "sampling": 3 * 160}

    def test_when_workers_are_killed_in_the_middle(self, client, here, tmp_path, monkeypatch):
        """J1: two kills; Dask gives the blocks to another worker, and starts a new one."""
        advance_by(monkeypatch, clusters.slow_advance, 0.2)
        pids = list(client.run(os.getpid).values())
        kills = {"phase I": partial(clusters.kill, pids[0]), "sampling": partial(clusters.kill, pids[1])}
        runs.begin(tmp_path / "run", backend=backend(client), progress=clusters.At(kills))
        runs.assert_same_files(tmp_path / "run", here)
        assert not set(pids) & set(client.run(os.getpid).values())

    @pytest.mark.slow
    def test_when_a_random_worker_is_killed_every_three_seconds(self, client, tmp_path, monkeypatch):
        """J1 at length: 12 chains, some 20 kills."""
        runs.begin(tmp_path / "here", n_chains=12)
        advance_by(monkeypatch, clusters.slow_advance, 1.0)
        over, kills, chance = threading.Event(), [], random.Random(0)

        def haunt():
            while not over.wait(3.0):
                victim = chance.choice(list(client.run(os.getpid).values()))
                clusters.kill(victim)
                kills.append(victim)

        ghost = threading.Thread(target=haunt)
        ghost.start()
        try:
            runs.begin(tmp_path / "run", n_chains=12, backend=backend(client, block_seconds=2.0))
        finally:
            over.set()
            ghost.join()
        assert len(kills) > 5
        runs.assert_same_files(tmp_path / "run", runs.contents(tmp_path / "here"))

    def test_when_a_straggler_is_overtaken_by_its_double(self, client, here, tmp_path, monkeypatch):
        """J3: one block does not end before the fit; the first result counts, and the second is the same."""
        advance_by(monkeypatch, clusters.straggling_advance, str(tmp_path))
        go = clusters.At({"sampling": (tmp_path / "go").touch})
        runs.begin(tmp_path / "run", backend=backend(client), progress=go)
        assert (tmp_path / "began").exists()
        runs.assert_same_files(tmp_path / "run", here)

    def test_when_it_is_gone_on_with_elsewhere(self, client, here, tmp_path, monkeypatch):
        folder = tmp_path / "run"
        for place, stage in [(None, "phase I"), (backend(client), "sampling")]:
            # More than two of the three chains have in all, so that each of them has draws.
            stopping = clusters.At({stage: partial(os.kill, os.getpid(), signal.SIGINT)}, after=340)
            with pytest.raises(KeyboardInterrupt):
                runs.begin(folder, backend=place, progress=stopping)
            advance_by(monkeypatch, clusters.slow_advance, 0.2)
        # The chains are at different steps; those that are ahead wait, and all predict.
        stopped = mile.load(folder).chains.draws
        assert stopped.shape[1] > 0
        whole = mile.resume(folder).chains.draws
        np.testing.assert_array_equal(stopped, whole[:, : stopped.shape[1]])
        runs.assert_same_files(folder, here)


class TestWorkersOfAnotherKind:
    @pytest.fixture
    def mixed(self, tmp_path):
        """One worker with the native kernel and one without."""
        with clusters.Processes(tmp_path) as processes:
            processes.start_scheduler()
            processes.start_worker()
            with clusters.Client(processes.address, set_as_default=False) as client:
                client.wait_for_workers(1, timeout=60)
                processes.start_worker(MILE_NATIVE="0")
                client.wait_for_workers(2, timeout=60)
            yield processes.address

    def test_are_refused_or_allowed_explicitly(self, mixed, here, tmp_path):
        """J5, with and without permission."""
        known = read_manifest(runs.write_contents(tmp_path / "here", here)).fingerprint
        if known["path"] == "xla":
            pytest.skip("the native kernel was not built, so all workers are of one kind")
        folder = runs.write_contents(tmp_path / "run", {})
        with pytest.warns(
            FitWarning, match=r"The worker tcp://\S+ on host \S+ is not used: its path is '\S+', the"
        ) as w:
            runs.begin(folder, backend=backend(mixed), random_state=runs.SEED)
        assert len(w) == 1
        kind = read_manifest(folder).fingerprint["path"]
        if kind == known["path"]:  # of two kinds with one worker each either may be the run's
            runs.assert_same_files(folder, here)
        allowed = runs.begin(tmp_path / "allowed", backend=backend(mixed, statistical=True))
        assert allowed.ok.all()
        assert read_manifest(tmp_path / "allowed").fingerprint["statistical"]
        with pytest.raises(mile.RunMismatchError, match="fingerprint"):
            mile.resume(tmp_path / "allowed")


class TestChainsThatCannotBeComputed:
    def test_are_declared_lost_and_replaced_and_the_others_finish(self, client, here, tmp_path, monkeypatch):
        """J6: a block that kills every worker that tries it."""
        advance_by(monkeypatch, clusters.poisoned_advance, 1)
        with pytest.warns(FitWarning) as caught:
            fit = runs.begin(tmp_path / "run", backend=backend(client))
        sentences = [str(warning.message) for warning in caught]
        assert any(
            sentence.startswith("Chain 1, phase I, steps 0 to ") and "2 workers died while they computed it" in sentence
            for sentence in sentences
        )
        assert any("1 of 3 chains failed and were replaced" in sentence for sentence in sentences)
        assert fit.ok.all()
        assert fit.chain_ids.tolist() == [0, 3, 2]
        expected = mile.load(runs.write_contents(tmp_path / "here", here))
        np.testing.assert_array_equal(fit.chains.draws[[0, 2]], expected.chains.draws[[0, 2]])
        loaded = mile.load(tmp_path / "run")
        assert read_manifest(tmp_path / "run").status["1"] == Status.LOST.name.lower()
        np.testing.assert_array_equal(loaded.chains.draws, fit.chains.draws)

    def test_for_lack_of_memory_are_named_with_their_hosts(self, client, tmp_path, monkeypatch):
        advance_by(monkeypatch, clusters.greedy_advance, 2)
        with pytest.warns(FitWarning) as caught:
            fit = runs.begin(tmp_path / "run", backend=backend(client))
        pattern = r"Chain 2, phase I, steps 0 to \d+, could not be computed: host \S+ \(tcp://\S+\) had no memory for"
        assert any(re.match(pattern, str(warning.message)) for warning in caught)
        assert fit.ok.all()

    def test_because_of_a_mistake_end_the_fit_with_its_message(self, client, tmp_path, monkeypatch):
        advance_by(monkeypatch, clusters.wrong_advance, 0)
        with pytest.raises(ValueError, match="the network is wrong") as caught:
            runs.begin(tmp_path / "run", backend=backend(client))
        assert "chain 0, phase I, steps 0 to" in caught.value.__notes__[0]


class TestFaultyAnswers:
    """A worker whose memory, processor or program is not to be trusted."""

    def run(self, client, folder, fault, where="everywhere", **options):
        with pytest.MonkeyPatch.context() as patch:
            advance_by(patch, clusters.faulty_advance, fault, where, 1)
            return runs.begin(folder, backend=None if client is None else backend(client, **options))

    def test_that_cannot_be_right_are_computed_again_and_their_worker_is_named(self, client, here, tmp_path):
        named = r"The worker tcp://\S+ on host \S+ returned a wrong result for chain 1, sampling, steps \d+ to \d+: "
        for number, (fault, words) in enumerate(
            {
                "NaN draws": "NaN or infinite numbers in .records.position",
                "infinite state": "NaN or infinite numbers in .carries.state.position",
                "a draw too few": ".records.position of shape (1, ",
                "no chain": "shape (0, ",
                "double precision": "of type float64, not float32",
                "no result": "'str'",
            }.items()
        ):
            (tmp_path / f"{number}").mkdir()
            folder = tmp_path / f"{number}" / "run"
            with pytest.warns(FitWarning, match=named) as caught:
                fit = self.run(client, folder, fault, f"once in {folder.parent}", verify=0.0)
            assert words in str(caught[0].message), fault
            assert len(caught) == 1
            assert fit.ok.all()
            runs.assert_same_files(folder, here)

    def test_that_are_not_finite_anywhere_fail_the_chain_as_in_one_process(self, client, here, tmp_path):
        for place in (client, None):
            folder = tmp_path / ("here" if place is None else "there")
            with pytest.warns(FitWarning, match="1 of 3 chains failed and were replaced.*Chain 1: it reached a point"):
                fit = self.run(place, folder, "NaN draws")
            assert fit.ok.all()
            assert fit.chain_ids.tolist() == [0, 3, 2]
            assert read_manifest(folder).status["1"] == Status.NON_FINITE.name.lower()
        runs.assert_same_files(tmp_path / "there", runs.contents(tmp_path / "here"))

    def test_of_chains_that_fail_by_themselves_are_those_of_one_process(self, client):
        def bounded(x):  # the second chain starts where there is no density
            return jnp.where(x[0] > 5.0, jnp.nan, -0.5 * jnp.sum(x**2))

        starts = np.array([[0.5, 1.0], [9.0, 1.0]], np.float32)
        budget = {"sampler": "deep_ensemble", "random_state": 1}  # one step, which is soon compiled
        with pytest.warns(FitWarning) as caught:
            there, here = (mile.sample(bounded, starts, **budget, backend=place) for place in (backend(client), None))
        assert len(caught) == 2  # which chain failed, and nothing about workers
        assert there.status == here.status == (Status.OK, Status.NON_FINITE_START)
        assert not np.isfinite(there.logdensity[1]).any()
        assert_same_bits(there._replace(status=None), here._replace(status=None))

    def test_that_are_malformed_everywhere_lose_the_chain(self, client, tmp_path):
        with pytest.warns(FitWarning) as caught:
            fit = self.run(client, tmp_path / "run", "no result")
        assert any("could not be computed: host" in str(warning.message) for warning in caught)
        assert fit.chain_ids.tolist() == [0, 3, 2]
        assert read_manifest(tmp_path / "run").status["1"] == Status.LOST.name.lower()

    def test_that_differ_by_a_bit_are_found_by_computing_twice(self, client, here, tmp_path):
        unseen = self.run(client, tmp_path / "unseen", "a flipped bit", verify=0.0)
        expected = mile.load(runs.write_contents(tmp_path / "here", here)).chains.draws
        assert unseen.ok.all()
        assert (unseen.chains.draws[1] != expected[1]).any()
        for where in ("once in", "one worker of"):
            folder = tmp_path / where.replace(" ", "-")
            folder.mkdir()
            with pytest.warns(FitWarning, match=r"The worker tcp://\S+ on host \S+ returned a wrong result") as caught:
                self.run(client, folder / "run", "a flipped bit", f"{where} {folder}", verify=1.0)
            assert len(caught) == 1  # from then on it is not used
            assert "other bits than" in str(caught[0].message)
            runs.assert_same_files(folder / "run", here)

    def test_that_never_agree_end_the_fit_with_the_names_of_all(self, client, here, tmp_path):
        with pytest.raises(ClusterError, match=r"chain 1, sampling, .* never gave the same bits") as caught:
            self.run(client, tmp_path / "run", "noise", verify=1.0)
        for address in client.scheduler_info()["workers"]:
            assert address in str(caught.value)
        mile.resume(tmp_path / "run")
        runs.assert_same_files(tmp_path / "run", here)

    def test_of_a_single_worker_are_checked_by_asking_it_again(self, here, tmp_path):
        warns = pytest.warns(FitWarning, match="returned a wrong result")
        with clusters.local_cluster(1) as alone, warns as caught:
            self.run(alone, tmp_path / "run", "a flipped bit", f"once in {tmp_path}", verify=1.0)
        assert len(caught) == 1
        runs.assert_same_files(tmp_path / "run", here)

    def test_of_predictions_are_computed_again(self, client, tmp_path):
        rows = np.arange(60.0).reshape(20, 3)
        damaged = {
            "NaN or infinite": lambda found: np.where(found > 50, np.nan, found),
            "shape": lambda found: found[1:],
            "float32": lambda found: found.astype(np.float32),
        }
        for number, (words, damage) in enumerate(damaged.items()):
            folder = tmp_path / str(number)
            folder.mkdir()
            model = clusters.FaultyModel(folder, damage)
            with pytest.warns(FitWarning, match=r"The worker tcp://\S+ on host \S+ returned a wrong result") as caught:
                found = mile.map_rows(model, rows, client=client, block_rows=10)
            assert words in str(caught[0].message)
            np.testing.assert_array_equal(found, rows.sum(axis=1))
        unsure = clusters.FaultyModel(tmp_path, damaged["NaN or infinite"], always=True)
        found = mile.map_rows(unsure, rows, client=client)  # it says so here too
        np.testing.assert_array_equal(found, unsure.predict(rows))
        assert np.isnan(found).any()
        wrong = clusters.FaultyModel(tmp_path, lambda found: found[: len(found) // 2 + 1], always=True)
        with pytest.raises(ClusterError, match=r"20 rows could not be predicted.*shape \(11,\), not \(20,\)"):
            mile.map_rows(wrong, rows, client=client)


class TestALostCluster:
    def test_that_was_never_there_is_said_in_one_sentence(self, monkeypatch):
        monkeypatch.setattr("mile.execution.dask._CONNECT_SECONDS", 0.5)
        with pytest.raises(ClusterError, match=r"No Dask scheduler answers at tcp://127\.0\.0\.1:9 .*dask scheduler"):
            runs.begin(None, backend=DaskBackend("tcp://127.0.0.1:9"))

    def test_without_workers_is_said_in_one_sentence(self, tmp_path):
        with clusters.Processes(tmp_path) as processes:
            processes.start_scheduler()
            with pytest.raises(ClusterError, match=r"No worker has joined the scheduler at .* within 1 s"):
                runs.begin(None, backend=backend(processes.address, patience=1.0))

    def test_is_gone_on_with_after_its_scheduler_is_started_again(self, here, tmp_path, monkeypatch):
        folder = tmp_path / "run"
        with clusters.Processes(tmp_path) as processes:
            scheduler = processes.start_scheduler()
            processes.start_worker()
            advance_by(monkeypatch, clusters.slow_advance, 0.2)
            dying = clusters.At({"sampling": scheduler.kill})
            with pytest.raises(ClusterError) as caught:
                runs.begin(folder, backend=backend(processes.address), progress=dying)
            lost = f"The Dask scheduler at {processes.address} was lost; the last task it was given was chain"
            assert lost in str(caught.value)
            assert "is saved" in str(caught.value)
            monkeypatch.undo()
            processes.start_scheduler()
            processes.start_worker()
            mile.resume(folder, backend=backend(processes.address))
        runs.assert_same_files(folder, here)

    def test_whose_client_was_killed_is_gone_on_with_by_another(self, client, here, tmp_path):
        """J2: the process that leads the run is killed."""
        folder, address = tmp_path / "run", client.scheduler.address
        program = f"""
from functools import partial
import os, clusters, runs
from mile.sampling import programs
from mile.execution import DaskBackend
programs.advance_group = partial(clusters.slow_advance, 0.1)
with runs.frequent_checkpoints():
    leave = clusters.At({{"phase III": partial(clusters.kill, os.getpid())}})
    runs.begin({str(folder)!r}, backend=DaskBackend({address!r}, block_seconds=0.2), progress=leave)
"""
        path = os.pathsep.join([str(Path(runs.__file__).parent), os.environ.get("PYTHONPATH", "")])
        environment = os.environ | {"PYTHONPATH": path}
        child = subprocess.run([sys.executable, "-c", program], env=environment, check=False)
        assert child.returncode == -9
        mile.resume(folder, backend=backend(client))
        runs.assert_same_files(folder, here)

    def test_folder_that_vanishes_is_named(self, client, tmp_path, monkeypatch):
        folder, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
        advance_by(monkeypatch, clusters.slow_advance, 0.1)
        vanish = clusters.At({"sampling": lambda: folder.rename(elsewhere)})
        with runs.frequent_checkpoints(), pytest.raises(mile.StorageError) as caught:
            runs.begin(folder, backend=backend(client), progress=vanish)
        pattern = r"MANIFEST.json is gone: .* on host \S+ when all chains were at least at chain \d, sampling, step \d+"
        assert re.search(pattern, str(caught.value))
        elsewhere.rename(folder)
        monkeypatch.undo()
        assert mile.resume(folder).ok.all()


class TestInterfaces:
    def test_of_estimators_take_an_address(self, client):
        data = small_dataset()
        x, y = data.x_train, data.y_train
        small = {"n_chains": 2, "warmup_steps": 100, "sampling_steps": 60, "n_draws": 10, "random_state": 1}
        there = MileRegressor((4,), **small, backend="dask", address=client.scheduler.address).fit(x, y)
        here = MileRegressor((4,), **small, n_threads=1).fit(x, y)
        np.testing.assert_array_equal(there.predict(x), here.predict(x))

    def test_refuse_what_does_not_fit_together(self):
        data = small_dataset()
        for wrong, words in [
            ({"backend": "cloud"}, "backend must be one of"),
            ({"address": "tcp://a:1"}, "address is for backend='dask'"),
            ({"backend": 3}, "backend must be one of"),
            ({"n_threads": 0}, "n_threads"),
        ]:
            with pytest.raises(ValueError, match=words):
                MileRegressor(**wrong).fit(data.x_train, data.y_train)


def test_a_fit_in_another_thread_works_too(client):
    """As tasks of a search on the same cluster are: no signals are heeded there."""
    found = []
    thread = threading.Thread(target=lambda: found.append(runs.begin(None, backend=backend(client))))
    thread.start()
    thread.join()
    assert found[0].ok.all()
