"""`mile paper` as people call it: help at once, the commands of a clone, and one sentence when something is missing."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from mile.cli import _paper, app
from mile.storage import write_table

if not (Path(__file__).parents[2] / "experiments").is_dir():
    pytest.skip("the experiments are not here, only the package", allow_module_level=True)

MILE = str(Path(sys.executable).with_name("mile"))
YACHT = ["longitudinal_position", "prismatic_coefficient", "length_displacement_ratio", "beam_draught_ratio"]
YACHT += ["length_beam_ratio", "froude_number", "residuary_resistance"]


def run(*arguments, **options):
    """Run `mile paper` to its end."""
    command = [MILE, "paper", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, **options)


@pytest.mark.parametrize("arguments", [["--help"], ["list", "--help"], ["run", "--help"], ["table", "--help"]])
def test_help_needs_neither_jax_nor_numpy(arguments):
    program = (
        "import sys; from typer.testing import CliRunner; from mile.cli import app; "
        f"assert CliRunner().invoke(app, ['paper', *{arguments!r}]).exit_code == 0; "
        "sys.exit(bool({'jax', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_list_has_each_experiment_with_its_rows(tmp_path):
    result = run("list", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    lines = {line.split()[0]: line for line in result.stdout.splitlines() if line}
    assert {"uci", "calibration", "grad_evals", "stability", "pgps"} <= set(lines)
    assert re.search(r" \d+ of \d+ ", lines["uci"])
    assert "airfoil, bikesharing" in lines["uci"]


def test_a_table_shows_ours_beside_the_papers():
    result = run("table", "uci")
    assert result.returncode == 0, result.stderr
    (header,) = [line for line in result.stdout.splitlines() if line.startswith("data ")]
    assert header.split()[:5] == ["data", "method", "protocol", "LPPD", "paper"]
    (line,) = [line for line in result.stdout.splitlines() if line.split()[:3] == ["yacht", "MILE", "paper"]]
    assert "2.859 ± 0.199" in line


def test_all_tables_can_be_shown_at_once():
    result = run("table")
    assert result.returncode == 0, result.stderr
    assert "Stability: chains that end in NaN" in result.stdout


def test_an_unknown_experiment_is_explained():
    result = run("run", "grad-eval")
    assert result.returncode == 1
    assert result.stderr.startswith("Error: There is no experiment 'grad-eval'; did you mean 'grad_evals'?")


def test_without_data_one_sentence_says_how_to_get_it(tmp_path):
    """A proxy that is not there stands for a machine without a network."""
    environment = {name: value for name, value in os.environ.items() if name != "MILE_DATA"}
    environment |= {name: "http://127.0.0.1:9" for name in ("http_proxy", "https_proxy")}
    environment |= {"XDG_CACHE_HOME": str(tmp_path)}
    arguments = ["--dataset", "yacht", "--splits", "1", "--again", "--runs", tmp_path / "runs"]
    result = run("run", "uci", *arguments, env=environment)
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert result.stderr.startswith("Error: There is no yacht.csv.gz in ")
    assert "--data-dir" in result.stderr
    assert "MILE_DATA" in result.stderr


def test_a_row_is_computed_with_a_forecast_and_not_again(tmp_path):
    rng = np.random.default_rng(0)
    write_table(tmp_path / "yacht.csv.gz", dict(zip(YACHT, rng.normal(size=(7, 308)), strict=True)))
    arguments = ["uci", "--dataset", "yacht", "--splits", 1, "--methods", "DE-0.01", "--chains", 2]
    arguments += ["--data-dir", tmp_path, "--runs", tmp_path / "runs"]
    result = run("run", *arguments)
    assert result.returncode == 0, result.stderr
    assert "1 of 1 rows to compute, less than a minute on two idle cores" in result.stdout
    assert (tmp_path / "runs" / "uci" / "summary.scale-1.chains-2.csv").read_text().count("\n") == 2
    again = run("run", *arguments)
    assert again.returncode == 0, again.stderr
    assert "All 1 rows are in" in again.stdout


def test_a_script_with_options_of_its_own_says_so():
    result = run("run", "texts", "--splits", "2")
    assert result.returncode == 1
    assert "see python experiments/texts/run.py --help" in result.stderr


def test_without_a_clone_one_sentence_says_to_make_one(tmp_path, monkeypatch):
    monkeypatch.setattr(_paper, "__file__", str(tmp_path / "lib" / "python" / "site-packages" / "mile" / "_paper.py"))
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["paper", "list"])
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: the experiments of the paper are not part of the installed package: clone ")
    assert len(result.stderr.splitlines()) == 1


def test_the_scripts_of_the_current_folder_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(_paper, "__file__", str(tmp_path / "lib" / "python" / "site-packages" / "mile" / "_paper.py"))
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "experiments" / "paper.py"
    script.parent.mkdir()
    script.write_text("import sys; sys.exit(len(sys.argv))")
    assert _paper.find_script() == script
    assert CliRunner().invoke(app, ["paper", "table", "uci"]).exit_code == 3  # its own exit code


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 128 + signal.SIGTERM)])
def test_what_stops_the_command_stops_the_experiment_first(tmp_path, number, code):
    script = tmp_path / "slow.py"
    script.write_text(
        "import sys, time\n"
        "try:\n"
        "    print('begun', flush=True)\n"
        "    time.sleep(60)\n"
        "except KeyboardInterrupt:\n"
        "    print('saved', flush=True)\n"
        "    sys.exit(130)\n"
    )
    # Tests that run in the background of a shell have Ctrl-C switched off, and what they start would inherit that.
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from pathlib import Path; from mile.cli import _paper, app; "
        f"_paper.find_script = lambda: Path({str(script)!r}); app(['paper', 'list'])"
    )
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", program], text=True, **pipes)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(number)
    output, error = process.communicate(timeout=120)
    assert process.returncode == code, error
    assert ("saved" in output) == (number == signal.SIGINT)
