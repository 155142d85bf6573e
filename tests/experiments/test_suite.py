"""The suite of tables: frames and splits, the Gaussian process, methods of both environments, and what it claims."""

import importlib.util
import json
import math
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import check_grad
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
if not EXPERIMENTS.is_dir():
    pytest.skip("the experiments are not here, only the package", allow_module_level=True)


def load_script(name, folder="suite"):
    """Import a file of the experiment under a name of its own, and what it imports from beside it."""
    path = EXPERIMENTS / folder / f"{name}.py"
    specification = importlib.util.spec_from_file_location(f"{folder}_{name}", path)
    module = importlib.util.module_from_spec(specification)
    before = list(sys.path)
    sys.path[:0] = [str(path.parent), str(EXPERIMENTS)]
    try:
        specification.loader.exec_module(module)
    finally:
        sys.path[:] = before
    return module


chart, claims, exact_gp, export, ours, peers, run, tables, task = map(
    load_script,
    (
        "suite_chart",
        "claims",
        "exact_gp",
        "export",
        "suite_ours",
        "suite_peers",
        "run",
        "suite_tables",
        "suite_task",
    ),
)
OPTIONS = task.Options(seed=1, threads=1, scale=0.002, chains=3)
PLAN = tomllib.loads((EXPERIMENTS / "suite" / "experiment.toml").read_text())


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    n = 80
    return pd.DataFrame(
        {
            "rownames": np.arange(1, n + 1),
            "size": np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n)),
            "town": rng.choice(["NA", "01", None], n),
            "when": pd.date_range("1978-01-01", periods=n).strftime("%Y-%m-%d"),
            "is_open": rng.random(n) < 0.5,
            "y": rng.normal(size=n),
        }
    )


def job_of(frame, is_regression, kept, method="ridge"):
    x = frame.drop(columns="y")
    y = frame["y"].to_numpy()
    y = y if is_regression else np.where(y > 0.3, "yes", "no").astype(object)
    table = tables.MixedTable(file="", target="y", is_regression=is_regression, dates=("when",))
    rows = tables.split_rows(x, y, 1)
    return task.Job(name="t", method=method, options=OPTIONS, table=table, rows=rows, kept=kept)


# -- tables -------------------------------------------------------------------------------------------


def test_a_written_table_is_read_with_its_kinds_and_without_rows_that_lack_the_target(frame, tmp_path, monkeypatch):
    frame.loc[3, "y"] = np.nan
    kinds = export.write(frame, tmp_path / "epil.csv")
    (tmp_path / export.KINDS).write_text(json.dumps({"epil": kinds}))
    monkeypatch.setitem(tables.OF_R, "epil", tables.MixedTable(file="epil.csv", target="y", is_regression=True))
    monkeypatch.setitem(tables.TABLES, "epil", tables.OF_R["epil"])
    x, y = tables.load("epil", None, tmp_path)
    known = frame.drop(index=3).reset_index(drop=True)
    np.testing.assert_allclose(y, known["y"])
    pd.testing.assert_frame_equal(x, known.drop(columns="y"), check_dtype=False)
    assert [x[name].dtype.kind for name in ("rownames", "size", "is_open")] == ["i", "f", "b"]
    assert set(x["town"].dropna()) == {"NA", "01"}
    assert tables.described("epil", x).dates == ("when",)


def test_a_table_that_is_not_there_is_told_with_what_to_do(tmp_path):
    run.find("epil", str(tmp_path))  # of R: written when needed
    with pytest.raises(FileNotFoundError, match=r"yacht\.csv\.gz.*--data-dir or MILE_DATA"):
        run.find("yacht", str(tmp_path))


def test_a_split_uses_every_row_once_and_has_a_fifth_of_each_class():
    x = pd.DataFrame({"row": np.arange(103)})
    y = np.array(["a"] * 60 + ["b"] * 42 + ["once"], object)
    for split in (1, 2, 5):
        rows = tables.split_rows(x, y, split)
        assert sorted([*rows.x["row"], *rows.x_test["row"]]) == list(range(103))
        np.testing.assert_array_equal(y[rows.x_test["row"]], rows.y_test)
        assert "once" in rows.y
        counts = [int((rows.y_test == label).sum()) for label in ("a", "b")]
        assert counts[0] == 12
        assert abs(counts[1] - 8.4) < 1
    assert len(tables.split_rows(x, np.arange(103.0), 1).y_test) == 21


def test_rows_are_moved_both_ways_by_their_numbers_alone(frame):
    x = frame.drop(columns="y")
    moved = tables.moved(x, x.head(10), 5.0, most_rows=4)
    up, down = moved.iloc[:4], moved.iloc[4:].reset_index(drop=True)
    step = 5.0 * x["rownames"].std(ddof=0)
    np.testing.assert_allclose(up["rownames"], x["rownames"].head(4) + step)
    np.testing.assert_allclose(down["rownames"], x["rownames"].head(4) - step)
    for name in ("town", "when", "is_open"):
        assert up[name].tolist() == x[name].head(4).tolist()


def test_the_plan_has_the_listed_tables_and_the_methods_that_there_are():
    assert [name for block in PLAN["rows"] for name in block["datasets"]] == list(tables.TABLES)
    assert len(tables.OF_R) == 32
    methods = {method for block in PLAN["rows"] for method in block["methods"]}
    assert methods == {*peers.METHODS, *ours.METHODS, run.ENSEMBLE}
    assert set(run.OURS) == {*ours.METHODS, run.ENSEMBLE}
    for block in PLAN["rows"]:  # the differences are to ensembles that were run before, or come with the fit
        assert (
            block["methods"].index("de") < block["methods"].index("mile-default") < block["methods"].index("ensemble")
        )


# -- scores -------------------------------------------------------------------------------------------


def test_the_constant_prediction_is_the_distribution_of_the_training_targets():
    rng = np.random.default_rng(1)
    y, y_test = rng.integers(0, 5, 40).astype(float), rng.normal(size=7)
    spread = np.abs(y[:, None] - y).mean() / 2
    expected = [np.abs(y - value).mean() - spread for value in y_test]
    np.testing.assert_allclose(task.constant_crps(y, y_test), expected)


def test_the_gaussian_process_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    x, x_test = rng.normal(size=(40, 3)), rng.normal(size=(5, 3))
    y = np.sin(x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + 0.1 * rng.normal(size=40)
    place = np.array([0.1, 0.2, -0.1, 0.4, -1.0])
    error = check_grad(lambda p: exact_gp._loss(p, x, y)[0], lambda p: exact_gp._loss(p, x, y)[1], place)
    assert error < 1e-4
    known = GaussianProcessRegressor(ConstantKernel() * RBF(np.ones(3)) + WhiteKernel(), alpha=1e-8).fit(x, y)
    for ours_, theirs in zip(exact_gp.fit(x, y).predict(x_test), known.predict(x_test, return_std=True), strict=True):
        np.testing.assert_allclose(ours_, theirs, rtol=1e-3, atol=1e-4)


def check_row(row, is_regression, extra=()):
    """Check that a row has its columns, and numbers in them."""
    own = {"crps", "rmse", "coverage", "interval_score", "std_train", "std_test", "std_out", "std_far", "unit"}
    own = own if is_regression else {"log_loss", "accuracy"}
    common = {"lppd", "lppd_se", "constant", "rows_train", "rows_test", *extra}
    assert set(row) - {"setting"} == own | common
    assert set(row) < set(run.COLUMNS)
    assert np.isfinite([row[name] for name in own | common]).all()


@pytest.mark.parametrize("is_regression", [True, False])
def test_peers_give_the_columns_of_a_row(frame, tmp_path, is_regression):
    names = ["ridge", "gp"] if is_regression else ["ridge", "gp", "quantile-forest"]  # the forest of classes is here
    for name in names:
        job = job_of(frame, is_regression, tmp_path, name)
        scored = peers.METHODS[name](job)
        check_row(scored.row, is_regression, ("seconds", "cpu_seconds"))
        assert scored.row["lppd"] == pytest.approx(scored.log_density.mean())
        assert scored.log_density.shape == (16,)


@pytest.mark.filterwarnings("ignore::mile.FitWarning")
@pytest.mark.parametrize("is_regression", [True, False])
def test_ours_give_the_columns_of_a_row_and_differences(frame, tmp_path, is_regression, monkeypatch):
    monkeypatch.setattr(ours, "CHOICES", (ours.Choice(2e-2), ours.Choice(1e-2, 1)))
    monkeypatch.setattr(ours, "_INNER_SPLITS", 1)
    rows = {}
    for method in ("de", "mile-default"):
        job = job_of(frame, is_regression, tmp_path, method)
        scored = ours.METHODS[method](job)
        task.keep(job, scored)
        rows[method] = scored.row
    left = json.loads(run.ensemble_file(tmp_path, "t", 1).read_text())
    check_row(left, is_regression)
    assert rows["de"]["setting"] in ("rate 0.02, schedule", "rate 0.01, patience 1")
    check_row(rows["de"], is_regression, ("seconds", "cpu_seconds"))
    assert set(rows["mile-default"]) >= {*left, "seconds", "cpu_seconds"}
    found = run.differences(tmp_path, run.Cell("t", "mile-default", "corrected", 1))
    for name, row in (("ensemble", left), ("de", rows["de"])):
        assert found[f"minus_{name}"] == pytest.approx(rows["mile-default"]["lppd"] - row["lppd"])
        assert found[f"minus_{name}_se"] > 0.0


def test_out_of_fold_scores_are_taken_where_the_estimator_has_them_in_units_of_the_target():
    class Estimate:
        value, standard_error = -3.0, 0.25

    class Folded:
        class oof_:
            scores = {"lppd": Estimate, "crps": Estimate}  # noqa: RUF012

    assert ours.out_of_fold(object(), 2.0) == {}
    found = ours.out_of_fold(Folded(), 2.0)
    assert found == {"oof_lppd": pytest.approx(-3.0 + math.log(2.0)), "oof_lppd_se": 0.25, "oof_crps": -1.5}


# -- running ------------------------------------------------------------------------------------------


def test_the_ensemble_takes_the_row_that_the_default_has_left(monkeypatch, tmp_path):
    asked = []

    def ran(command, **_):
        method, name, kept = str(command[2]), str(command[3]), Path(command[6])
        asked.append(method)
        if method == "ngboost":
            return None
        if method == "catboost":
            return {"seconds": 60.0}
        kept.mkdir(parents=True, exist_ok=True)
        for place, of in enumerate(("mile-default", "ensemble")):
            np.save(task.density_file(kept, name, of, 1), np.array([1.0, 2.0, 4.0]) * (2 - place))
        run.ensemble_file(kept, name, 1).write_text(json.dumps({"lppd": 0.25}))
        return {"lppd": 0.5, "unit": 1.23456789e-9, "setting": "words"}

    monkeypatch.setattr(run, "run_script", ran)
    monkeypatch.setattr(run, "peers_python", lambda folder: "python")
    monkeypatch.setattr(run, "exported", lambda folder: folder)
    start = ["--dataset", "epil", "--splits", "1", "--runs", str(tmp_path), "--summary", str(tmp_path / "summary.csv")]
    with pytest.raises(SystemExit, match=r"1 of the runs failed: epil-ngboost-1\.log"):
        run.main([*start, "--methods", "catboost", "ngboost", "mile-default", "ensemble"])
    assert asked == ["ngboost", "catboost", "mile-default"]
    rows = {row["method"]: row for row in run.campaign.Summary(tmp_path / "summary.csv").rows}
    assert (rows["catboost"]["lppd"], rows["catboost"]["seconds"]) == ("", "60.0")
    assert rows["ensemble"]["lppd"] == "0.25"
    own = rows["mile-default"]
    assert (own["minus_ensemble"], own["minus_de"], own["unit"]) == ("2.3333", "", "1.23457e-09")
    assert float(own["minus_ensemble_se"]) == pytest.approx(np.std([1.0, 2.0, 4.0], ddof=1) / math.sqrt(3), abs=1e-4)
    assert (tmp_path / "figure.png").stat().st_size > 0


# -- claims -------------------------------------------------------------------------------------------


def row_of(dataset, method, split=1, **values):
    return dict.fromkeys(run.COLUMNS, "") | {
        "dataset": dataset,
        "method": method,
        "split": str(split),
        "rows_test": "100",
        **{name: str(value) for name, value in values.items()},
    }


def test_differences_are_pooled_as_one_sample_of_all_rows():
    rng = np.random.default_rng(0)
    parts = [rng.normal(0.1, 1.0, n) for n in (30, 50)]
    rows = [
        row_of(
            "t", "mile-default", split, minus_de=part.mean(), minus_de_se=task.standard_error(part), rows_test=len(part)
        )
        for split, part in enumerate(parts, 1)
    ]
    (found,) = claims.differences(rows, "de")
    together = np.concatenate(parts)
    assert (found.mean, found.error) == (
        pytest.approx(together.mean()),
        pytest.approx(task.standard_error(together)),
    )


def test_ranks_share_places_and_put_what_is_missing_last():
    rows = [row_of("a", "mile-default", lppd=1.0), row_of("a", "ridge", lppd=1.0), row_of("a", "gp", lppd=0.0)]
    rows += [row_of("b", "mile-default", lppd=2.0), row_of("b", "ridge", lppd=1.0), row_of("b", "gp")]
    rows += [row_of("c", "ridge", lppd=9.0)]  # no row of the default
    found, n_tables = claims.ranks(rows, "lppd")
    assert n_tables == 2
    assert [(rank.method, rank.mean, rank.first, rank.missing) for rank in found] == [
        ("mile-default", 1.25, 1, 0),
        ("ridge", 1.75, 0, 0),
        ("gp", 3.0, 0, 1),
    ]
    rows = [row_of("a", "mile-default", split, crps=0.2) for split in (1, 2)]
    rows += [row_of("a", "ridge", 1, crps=0.1), row_of("a", "ridge", 2, crps=0.4)]
    assert [rank.method for rank in claims.ranks(rows, "crps")[0]] == ["mile-default", "ridge"]


def test_each_claim_holds_and_fails_where_it_should():
    good = {
        "lppd": -1.0, "lppd_se": 0.1, "crps": 0.5, "constant": 0.495, "coverage": 0.9, "coverage_conformal": 0.9,
        "std_train": 1.0, "std_test": 2.0, "std_out": 3.0, "std_far": 30.0, "minus_ensemble": -0.019,
        "minus_ensemble_se": 0.001, "minus_de": -0.1, "minus_de_se": 0.06, "oof_lppd": -1.2, "oof_lppd_se": 0.05,
        "rows_test": 1_000,
    }  # fmt: skip
    others = [row_of("t", "ridge", lppd=-1.1, crps=0.6), row_of("t", "gp", lppd=-1.2, crps=0.7)]
    assert [claim.holds for claim in claims.claims([row_of("t", "mile-default", **good), *others])] == [True] * 10
    bad = {
        "lppd": -1.3, "crps": 0.75, "std_train": 21.0, "std_far": 31.0, "coverage": 0.87, "coverage_conformal": 0.92,
        "minus_ensemble": -0.021, "minus_de": -0.13, "oof_lppd": -1.0,
    }  # fmt: skip
    found = claims.claims([row_of("t", "mile-default", **good | bad), *others])
    assert [claim.holds for claim in found] == [False] * 10
    assert "t (-0.021 ± 0.001)" in found[0].found
    assert all(claim.holds is None for claim in claims.claims(others))
    assert "| no rows |" in claims.markdown(others)


def test_the_figure_shows_distances_from_the_best_method():
    rows = [row_of("a", "ridge", lppd=0.5), row_of("a", "gp", lppd=0.25), row_of("a", "ngboost", lppd=-99.0)]
    assert chart.distances(rows) == {("a", "ridge"): 0.0, ("a", "gp"): -0.25, ("a", "ngboost"): -1.0}
