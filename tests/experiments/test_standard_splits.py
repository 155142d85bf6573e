"""The published splits: rows, scores in raw units, the page beside the published numbers."""

import importlib.util
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
if not EXPERIMENTS.is_dir():
    pytest.skip("the experiments are not here, only the package", allow_module_level=True)


def load_script(name):
    """Import a file of the experiment under a name of its own, and what it imports from beside it."""
    path = EXPERIMENTS / "standard_splits" / f"{name}.py"
    specification = importlib.util.spec_from_file_location(f"standard_splits_{name}", path)
    module = importlib.util.module_from_spec(specification)
    before = list(sys.path)
    sys.path[:0] = [str(path.parent), str(EXPERIMENTS)]
    try:
        specification.loader.exec_module(module)
    finally:
        sys.path[:] = before
    return module


published, run = map(load_script, ("published", "run"))


@pytest.fixture
def data_dir(tmp_path):
    """A folder with two splits of a table that is called wine_red, with whole numbers as targets."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    y = np.round(x[:, 0] + 0.5 * rng.normal(size=60)) + 5.0
    test = np.zeros((2, 60), bool)
    test[0, :6] = test[1, 50:] = True
    folder = tmp_path / "standard_splits"
    folder.mkdir()
    np.savez(folder / "wine_red.npz", x=x, y=y, n_rows=60, test=np.packbits(test, axis=1))
    return str(tmp_path)


def test_a_split_has_the_published_rows(data_dir):
    x, y, _ = run.load("wine_red", data_dir)
    first, second = (run.split_of("wine_red", split, data_dir) for split in (1, 2))
    np.testing.assert_array_equal(first.x_test, x[:6])
    np.testing.assert_array_equal(first.y, y[6:])
    np.testing.assert_array_equal(second.y_test, y[50:])
    with pytest.raises(ValueError, match="wine_red has 2 published splits, so there is no split 3"):
        run.split_of("wine_red", 3, data_dir)
    with pytest.raises(FileNotFoundError, match="--data-dir or MILE_DATA"):
        run.load("yacht", data_dir)


class Spikes:
    """Normal predictions, as narrow as you like."""

    def __init__(self, mean, std):
        self.parts = stats.norm(mean, std)

    def cdf(self, y):
        return self.parts.cdf(y)

    def log_prob(self, y):
        return self.parts.logpdf(y)


def test_a_spike_on_a_value_gains_nothing_by_being_narrower_than_the_step():
    y = np.array([0.1, 0.2])
    for std in (1e-3, 1e-9):
        np.testing.assert_allclose(run.cell_log_density(Spikes(y, std), y, 0.1), -np.log(0.1))
    wide = Spikes(np.zeros(2), 10.0)
    np.testing.assert_allclose(run.cell_log_density(wide, y, 0.1), wide.log_prob(y), atol=1e-4)
    far = Spikes(np.full(2, 100.0), 1.0)
    np.testing.assert_allclose(run.cell_log_density(far, y, 0.1), far.log_prob(y))


@pytest.mark.filterwarnings("ignore::mile.FitWarning")
def test_one_fit_gives_the_rows_of_the_default_and_of_its_ensemble(data_dir, tmp_path, monkeypatch):
    start = ["--dataset", "wine_red", "--splits", "1", "--data-dir", data_dir, "--runs", str(tmp_path / "runs")]
    start += ["--summary", str(tmp_path / "summary.csv"), "--scale", "0.002", "--chains", "2"]
    fits = []
    fit_both = run.fit_both
    monkeypatch.setattr(run, "fit_both", lambda *given: fits.append(given) or fit_both(*given))
    run.main(run.__file__, run.Work(measure=run.measure, columns=run.COLUMNS, load=run.load), start)
    assert len(fits) == 1
    rows = {row["method"]: row for row in published.Summary(tmp_path / "summary.csv").rows}
    assert set(rows) == {"mile-default", "ensemble"}
    for row in rows.values():
        assert np.isfinite(
            [float(row[name]) for name in ("lppd", "lppd_cells", "rmse", "crps", "coverage", "unit")]
        ).all()
        assert (row["rows_train"], row["rows_test"]) == ("54", "6")
    assert rows["mile-default"]["lppd"] != rows["ensemble"]["lppd"]
    assert rows["mile-default"]["seconds"]
    page = published.markdown(list(rows.values()))
    assert f"| wine_red | 1 | {-float(rows['mile-default']['lppd']):.3f} |".replace("| -", "| −") in page
    assert "NLL without spikes" in page


def test_the_page_has_every_published_number_with_its_source_and_the_best_first():
    numbers = published.numbers()
    assert all(row["source"] for row in numbers)
    plan = tomllib.loads((EXPERIMENTS / "standard_splits" / "experiment.toml").read_text())
    planned = {name for block in plan["rows"] for name in block["datasets"]}
    assert {row["dataset"] for row in numbers} == planned
    page = published.markdown([])
    assert "| yacht |  |  |  | −0.90 |  |  | TabPFN v2 −0.73 (0.42); WGBoost 0.16 (0.48);" in page
    assert "DVI† 2.41" in page
    rows = [
        {"dataset": "yacht", "method": "mile-default", "lppd": str(value), "rmse": "0.5", "lppd_cells": ""}
        for value in (1.0, 1.2)
    ]
    assert "| yacht | 2 | −1.100 ± 0.100 |  | −0.90 | 0.500 ± 0.000 |" in published.markdown(rows)
