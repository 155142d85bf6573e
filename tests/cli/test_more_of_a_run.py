"""A finished run on the command line: more chains, more draws, more rows."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import mile
from mile.cli import app

BUDGET = ["--hidden", "4", "--chains", "3", "--folds", "3", "--warmup-steps", "100", "--sampling-steps", "60"]
BUDGET = [*BUDGET, "--draws", "20", "--seed", "1", "--quiet"]


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def answer(*arguments):
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, (result.stdout, result.stderr, result.exception)
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("more"), np.random.default_rng(0)
    for name, n_rows in (("old", 90), ("new", 20)):
        values = rng.normal(size=(n_rows, 3))
        rows = [f"{a},{b},shop-{row % 9},{a - b + 0.3 * e}" for row, (a, b, e) in enumerate(values)]
        (folder / f"{name}.csv").write_text("\n".join(["a,b,shop,y", *rows]) + "\n")
    fitted = invoke("fit", folder / "old.csv", "--target", "y", "--groups", "shop", "--out", folder / "m.run", *BUDGET)
    assert fitted.exit_code == 0, fitted.stderr
    return folder / "m.run"


def test_a_run_gets_more_chains_and_draws(run):
    assert len(answer("resume", run, "--chains", "+1")["chains"]) == 4
    found = answer("resume", run, "--draws", "30", "--chains", "4")
    assert (found["draws"], len(found["chains"])) == (30, 4)
    for chains, message in (("some", "must be a number such as 18"), ("2", "at least the 4 chains")):
        refused = invoke("resume", run, "--chains", chains)
        assert refused.exit_code == 1
        assert message in refused.stderr.replace("\n", " ")


def test_a_run_gets_more_rows(run):
    data = run.parent / "new.csv"
    found = answer("update", run, data, "--groups", "shop", "--earlier", run.parent / "old.csv")
    assert (found["rows_before"], found["rows_new"]) == (90, 20)
    assert found["out_of_fold"]["rows"] == 110
    assert found["run"] == str(run.with_name("m-updated.run"))
    assert len(mile.load(found["run"]).oof_) == 110
    refused = invoke("update", run, data, "--earlier", data)
    assert refused.exit_code == 1
    assert "--groups too" in refused.stderr.replace("\n", " ")
