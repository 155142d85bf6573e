"""The paper's UCI protocol on one split; the whole table is in experiments/uci."""

import importlib.util
import os
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "experiments" / "uci" / "run.py"


def load_script():
    specification = importlib.util.spec_from_file_location("uci_run", SCRIPT)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.skipif("MILE_DATA" not in os.environ, reason="MILE_DATA does not name a folder with the benchmark data")
@pytest.mark.parametrize(("name", "lowest_lppd", "largest_rmse"), [("airfoil", 0.54, 0.225), ("yacht", 2.46, 0.06)])
def test_mile_reaches_the_papers_score_and_beats_the_ensemble_that_started_it(name, lowest_lppd, largest_rmse):
    """Limits: the paper's mean less 0.07 (airfoil) and 0.4 (yacht), for one split varies more than three.

    Measured on three splits: airfoil 0.60 to 0.63, yacht 2.77 to 3.11.
    """
    ensemble, mile = load_script().run(name, 1, ["DE", "MILE"], None)
    assert (ensemble["method"], mile["method"]) == ("DE", "MILE")
    assert mile["chains"] == 12
    assert mile["lppd"] >= lowest_lppd
    assert mile["lppd"] >= ensemble["lppd"] + 0.3
    assert mile["rmse"] <= largest_rmse
