"""The compilation cache: on by default, never in the way, shared by processes; and fits that compile nothing."""

import logging
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import mile
from mile import _compilation
from mile._compilation import use_compilation_cache

OPTIONS = [
    "jax_compilation_cache_dir",
    "jax_compilation_cache_max_size",
    "jax_enable_compilation_cache",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
]


def options():
    return {name: getattr(jax.config, name) for name in OPTIONS}


@pytest.fixture
def untouched(monkeypatch, tmp_path):
    """Give JAX's settings of the cache their defaults, and the user another cache folder."""
    before = options()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jax.config.update("jax_compilation_cache_dir", None)
    jax.config.update("jax_compilation_cache_max_size", -1)
    jax.config.update("jax_enable_compilation_cache", True)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    yield tmp_path
    for name, value in before.items():
        jax.config.update(name, value)


class TestSettings:
    def test_keep_every_program_in_the_users_cache_folder_within_a_limit(self, untouched):
        use_compilation_cache()
        folder = untouched / "mile-bnn" / "compiled"
        assert options() == {
            "jax_compilation_cache_dir": str(folder),
            "jax_compilation_cache_max_size": 128 * 2**20,
            "jax_enable_compilation_cache": True,
            "jax_persistent_cache_min_compile_time_secs": 0.0,
            "jax_persistent_cache_min_entry_size_bytes": -1,
        }
        assert folder.is_dir()

    @pytest.mark.skipif(os.name != "posix", reason="needs POSIX permissions")
    def test_let_nobody_else_into_the_folder(self, untouched):
        """Whoever can write there can run code in the user's name."""
        use_compilation_cache()
        assert stat.S_IMODE((untouched / "mile-bnn" / "compiled").stat().st_mode) & 0o077 == 0

    @pytest.mark.parametrize("name", ["jax_compilation_cache_dir", "jax_enable_compilation_cache"])
    def test_of_the_user_stand(self, untouched, name):
        jax.config.update(name, {"jax_compilation_cache_dir": "elsewhere", "jax_enable_compilation_cache": False}[name])
        before = options()
        use_compilation_cache()
        assert options() == before
        assert not list(untouched.iterdir())

    def test_of_the_users_limit_stand(self, untouched):
        jax.config.update("jax_compilation_cache_max_size", 12345)
        use_compilation_cache()
        assert jax.config.jax_compilation_cache_max_size == 12345
        assert jax.config.jax_compilation_cache_dir is not None

    @pytest.mark.parametrize("obstacle", ["a file in the way", "read-only", "no filelock", "no home"])
    def test_stay_as_they_were_without_a_folder_to_use(self, untouched, obstacle, monkeypatch, caplog):
        if obstacle == "a file in the way":
            (untouched / "mile-bnn").write_text("")
        elif obstacle == "read-only":
            monkeypatch.setattr(_compilation.os, "access", lambda *_: False)  # root may write anywhere
        elif obstacle == "no filelock":
            monkeypatch.setitem(sys.modules, "filelock", None)
            monkeypatch.setattr(_compilation.importlib.util, "find_spec", lambda name: None)
        else:
            monkeypatch.delenv("XDG_CACHE_HOME")
            monkeypatch.setattr(Path, "home", raise_no_home)
        before = options()
        with caplog.at_level(logging.INFO, logger="mile"):
            use_compilation_cache()
        assert options() == before
        assert "Programs are compiled anew in each process: " in caplog.text

    @pytest.mark.parametrize(
        ("platform", "environment", "folder"),
        [
            ("linux", {}, "home/.cache"),
            ("linux", {"XDG_CACHE_HOME": "relative"}, "home/.cache"),  # by the specification to be ignored
            ("linux", {"XDG_CACHE_HOME": "/else/where"}, "/else/where"),
            ("darwin", {}, "home/Library/Caches"),
            ("win32", {}, "home/AppData/Local"),
            ("win32", {"LOCALAPPDATA": "/users/local"}, "/users/local"),
        ],
    )
    def test_follow_the_conventions_of_the_platform(self, monkeypatch, platform, environment, folder):
        for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(_compilation.sys, "platform", platform)
        monkeypatch.setattr(Path, "home", lambda: Path("home"))
        assert _compilation._user_cache_folder() == Path(folder)


def raise_no_home():
    raise RuntimeError("Could not determine home directory.")


class TestFragments:
    def test_of_an_interrupted_write_are_removed_and_nothing_else(self, untouched):
        folder = untouched / "mile-bnn" / "compiled"
        folder.mkdir(parents=True)
        for name in ("whole-cache", "whole-atime", "fragment-cache", "fresh-cache", ".lockfile", "notes"):
            (folder / name).write_text("x")
            if name != "fresh-cache":  # perhaps under way in another process
                os.utime(folder / name, (time.time() - 3600,) * 2)
        use_compilation_cache()
        assert sorted(path.name for path in folder.iterdir()) == sorted(
            [".lockfile", "fresh-cache", "notes", "whole-atime", "whole-cache"]
        )


PROGRAM = """
import collections
import jax
import numpy as np
import mile

events = collections.Counter()
jax.monitoring.register_event_listener(lambda event, **_: events.update([event.rpartition("/")[2]]))
mile.sample(lambda x: -0.5 * x @ x, np.zeros((1, 2)), sampler="deep_ensemble", random_state=0)
print(events["cache_hits"], events["cache_misses"])
"""


def start(folder, **environment):
    """Start a process that samples; any warning is an error there."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        env=others | {"XDG_CACHE_HOME": str(folder)} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    """Return how many programs a process took from the cache and how many it put there."""
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return tuple(map(int, output.split()))


class TestProcesses:
    def test_share_what_they_compile_even_when_they_begin_at_once(self, tmp_path):
        together = [finish(process) for process in [start(tmp_path), start(tmp_path)]]
        n_programs = sum(together[0])
        assert n_programs >= 3
        assert {sum(counts) for counts in together} == {n_programs}
        assert sum(misses for _, misses in together) >= n_programs
        assert finish(start(tmp_path)) == (n_programs, 0)
        kept = [path.name for path in (tmp_path / "mile-bnn" / "compiled").iterdir()]
        assert sum(name.endswith("-cache") for name in kept) == n_programs

    def test_can_switch_the_cache_off(self, tmp_path):
        assert finish(start(tmp_path, JAX_ENABLE_COMPILATION_CACHE="0")) == (0, 0)
        assert not list(tmp_path.iterdir())

    def test_run_without_a_folder_to_write_to(self, tmp_path):
        (tmp_path / "file").write_text("")
        assert finish(start(tmp_path / "file")) == (0, 0)


class TestSecondFit:
    def table(self, n_rows, seed):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((n_rows, 3))
        return X, 3.0 * X[:, 0] + rng.standard_normal(n_rows)

    def test_with_other_data_seed_and_budgets_compiles_nothing(self, compilations):
        small = {"n_chains": 2, "max_epochs": 2, "hidden_layer_sizes": (7, 5)}  # in no other test
        first = mile.MileRegressor(warmup_steps=100, sampling_steps=40, n_draws=20, random_state=0, **small)
        first.fit(*self.table(60, seed=0))
        assert {"jit(begin)", "jit(advance)", "jit(finish)"} <= set(compilations)
        compilations.clear()
        second = mile.MileRegressor(warmup_steps=150, sampling_steps=63, n_draws=30, random_state=1, **small)
        second.fit(*self.table(58, seed=1))  # the same bucket of rows
        assert second.fit_.chains.draws.shape == (2, 30, first.fit_.chains.draws.shape[2])
        assert compilations == []
