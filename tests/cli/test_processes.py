"""The command line as a process: its start, its pipes, and what happens when it is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from mile import _progress, _registry
from mile.cli import app
from mile.samplers import preset_names
from mile.storage import write_table

MILE = str(Path(sys.executable).with_name("mile"))
COMMANDS = sorted(set(get_command(app).commands) - {"paper"})
BUDGET = ["--chains", "2", "--draws", "100", "--seed", "0"]
LONG = ["--warmup-steps", "20000", "--sampling-steps", "1000", *BUDGET]


def run(*arguments, **options):
    """Run a command to its end."""
    command = [MILE, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, **options)


def here(*arguments):
    """Run a command in this process, where what it needs is imported."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def data(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3))
    path = tmp_path / "data.csv"
    write_table(path, {"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": np.sin(x[:, 0]) + 0.1 * rng.normal(size=200)})
    return path


def test_all_that_are_promised_are_there():
    promised = (
        "compare compress demo doctor evaluate export fit forecast inspect predict repair report resume serve watch"
    )
    assert promised.split() == COMMANDS


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_comes_at_once(command):
    """The processor time counts, because the machine may be busy; one of three attempts must do."""
    arguments = [MILE, *command.split(), "--help"]
    assert any(processor_seconds(arguments) < 0.3 for _ in range(3))


def processor_seconds(arguments):
    before = os.times()
    subprocess.run(arguments, check=True, capture_output=True)
    after = os.times()
    return sum(after[2:4]) - sum(before[2:4])


def test_help_names_every_sampler_and_preset():
    for command in ("fit", "forecast"):
        shown = run(command, "--help").stdout.split()
        words = {word.strip(",.") for word in shown}
        assert {*_registry.sampler, *preset_names()} <= words


def test_help_needs_neither_jax_nor_numpy():
    program = "import sys, mile.cli; sys.exit(bool({'jax', 'numpy', 'rich.console'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def wait_for_checkpoint(process, folder):
    """Wait until a run has something to lose."""
    for _ in range(1200):
        if any(folder.glob("chains/*/member.safetensors")):
            return
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    raise AssertionError("the run never began")


def test_a_killed_fit_is_resumed_and_used_as_the_readme_says(data, tmp_path):
    """It ends with the files of a fit that was not killed."""
    folder, whole = tmp_path / "data.run", tmp_path / "whole.run"
    arguments = [MILE, "fit", "data.csv", "--target", "y", *LONG]
    process = subprocess.Popen(arguments, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for_checkpoint(process, folder)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert json.loads((folder / "MANIFEST.json").read_text())
    stopped = here("predict", folder, data)
    assert stopped.exit_code == 1
    assert "mile resume" in stopped.stderr
    assert run("resume", "data.run", cwd=tmp_path).returncode == 0
    assert here("fit", data, "--target", "y", "--out", whole, "--quiet", *LONG).exit_code == 0
    predictions = [here("predict", path, data).stdout for path in (folder, whole)]
    assert predictions[0] == predictions[1]
    assert len(predictions[0].splitlines()) == 201
    reported = here("report", folder)
    assert reported.exit_code == 0
    assert reported.stdout.startswith("Report ")
    assert (folder / "report.html").stat().st_size < 3_000_000


def test_control_c_saves_the_run_says_so_and_ends_with_code_130(data, tmp_path):
    folder = tmp_path / "data.run"
    arguments = [MILE, "fit", "data.csv", "--target", "y", "--quiet", *BUDGET, "--warmup-steps", "2000000"]
    process = subprocess.Popen(
        [*arguments, "--sampling-steps", "4000"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for_checkpoint(process, folder)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert output == ""
    assert len(errors.splitlines()) == 1
    assert "was stopped and is saved" in errors


def test_a_pipe_that_closes_early_ends_it_with_one_line(data, tmp_path):
    budget = [*BUDGET, "--warmup-steps", "50", "--sampling-steps", "100"]
    assert here("fit", data, "--target", "y", "--quiet", "--out", tmp_path / "data.run", *budget).exit_code == 0
    rows = tmp_path / "many.csv"
    write_table(rows, dict.fromkeys("abc", np.zeros(5_000)))
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [MILE, "predict", "data.run", "many.csv"], cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE, text=True
    )
    os.close(writer)
    os.close(reader)  # nobody reads
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert errors.splitlines() == ["Error: the program that read the output stopped before all of it was written."]


def test_progress_goes_to_standard_error_in_plain_lines(data, tmp_path, monkeypatch):
    monkeypatch.setattr(_progress, "_WORTH_A_LINE", 0.0)
    budget = [*BUDGET, "--warmup-steps", "100", "--sampling-steps", "100"]
    result = here("fit", data, "--target", "y", "--out", tmp_path / "data.run", *budget)
    assert result.exit_code == 0
    assert "phase I: done in" in result.stderr
    assert "\x1b" not in result.stderr  # no terminal, no colors
    assert "phase" not in result.stdout
