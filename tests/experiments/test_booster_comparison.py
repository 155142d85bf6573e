"""The comparison on tables as they are: rows, columns for each method, scores, and what it keeps."""

import importlib.util
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
if not EXPERIMENTS.is_dir():
    pytest.skip("the experiments are not here, only the package", allow_module_level=True)


def load_script(name):
    """Import a file of the experiment under a name of its own, and what it imports from beside it."""
    path = EXPERIMENTS / "mixed_tables" / f"{name}.py"
    specification = importlib.util.spec_from_file_location(f"mixed_tables_{name}", path)
    module = importlib.util.module_from_spec(specification)
    before = list(sys.path)
    sys.path[:0] = [str(path.parent), str(EXPERIMENTS), str(EXPERIMENTS / "alternatives")]
    try:
        specification.loader.exec_module(module)
    finally:
        sys.path[:] = before
    return module


columns, ours, peers, run, study, tables, task = map(
    load_script, ("columns", "ours", "peers", "run", "study", "tables", "task")
)
OPTIONS = task.Options(seed=1, threads=1, scale=0.002, chains=2)
NUMBERS = tables.MixedTable(file="t.csv.gz", target="y", is_regression=True, left_out=("leak",), dates=("when",))
CLASSES = tables.MixedTable(file="t.csv.gz", target="y", is_regression=False, left_out=("leak",), dates=("when",))


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    n = 80
    return pd.DataFrame(
        {
            "id": [f"row {number}" for number in range(n)],
            "size": np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n)),
            "town": rng.choice(["a", "b", None], n),
            "when": pd.date_range("2013-01-01", periods=n, freq="h").strftime("%Y-%m-%dT%H:00:00Z"),
            "leak": rng.normal(size=n),
            "y": rng.normal(size=n),
        }
    )


@pytest.fixture
def data_dir(frame, tmp_path):
    frame.loc[3, "y"] = np.nan
    frame.to_csv(tmp_path / "t.csv.gz", index=False)
    return str(tmp_path)


def rows_of(table, data_dir):
    x, y = tables.load(table, data_dir)
    y = y if table.is_regression else np.where(y.astype(float) > 0, "yes", "no").astype(object)
    return tables.split_rows(x, y, 1)


def test_rows_without_a_target_and_columns_that_give_it_away_are_left_out(data_dir):
    x, y = tables.load(NUMBERS, data_dir)
    assert list(x) == ["id", "size", "town", "when"]
    assert len(x) == len(y) == 79
    with pytest.raises(FileNotFoundError, match=r"--data-dir or MILE_DATA"):
        tables.load(NUMBERS, str(Path(data_dir, "elsewhere")))


def test_a_split_uses_every_row_once_and_a_trial_its_first_ones(data_dir):
    x, y = tables.load(NUMBERS, data_dir)
    rows = tables.split_rows(x, y, 2)
    assert (len(rows.y), len(rows.y_test)) == (63, 16)
    assert sorted([*rows.x["id"], *rows.x_test["id"]]) == sorted(x["id"])
    trial = tables.split_rows(x, y, 2, 10)
    np.testing.assert_array_equal(np.concatenate([trial.y, trial.y_test]), rows.y[:10])


def test_peers_get_no_identifiers_days_for_dates_and_levels_of_training_rows(data_dir):
    rows = rows_of(NUMBERS, data_dir)
    x, x_test = columns.as_numbers(rows.x, rows.x_test, NUMBERS)
    assert list(x) == list(x_test) == ["size", "town", "when"]
    hours = 24 * (x["when"] - x["when"].min())
    np.testing.assert_allclose(hours, hours.round(), atol=1e-6)
    x_test.loc[0, "town"] = "new"
    categories, unseen = columns.as_categories(x, x_test)
    assert list(categories["town"].cat.categories) == ["a", "b"]
    assert unseen["town"].isna()[0]
    texts, _, names = columns.as_texts(x, x_test)
    assert names == ["town"]
    assert set(texts["town"]) == {"a", "b", "missing"}
    encoded = columns.one_hot(x).fit(x).transform(x_test)
    assert encoded.shape == (16, 5)
    assert np.isfinite(encoded).all()


def test_categories_of_too_many_levels_become_means_of_the_target():
    x = pd.DataFrame({"plane": pd.Categorical(np.arange(600) % 300), "size": np.arange(600.0)})
    booster = HistGradientBoostingRegressor(random_state=1)
    assert columns.with_target_means(booster, x[["size"]]) is booster
    pipeline = columns.with_target_means(booster, x)
    assert pipeline[-1] is booster
    means = pipeline[0].fit_transform(x, np.arange(600.0))  # whole numbers, which are no classes
    assert means.shape == (600, 2)
    assert all(map(pd.api.types.is_float_dtype, means.dtypes))


def test_class_scores_are_the_known_ones():
    probs = np.array([[0.8, 0.2], [0.4, 0.6], [1.0, 0.0]])
    found = task.class_scores(probs, np.array(["no", "yes"]), np.array(["no", "no", "yes"], object))
    loss = -(np.log(0.8) + np.log(0.4) + np.log(1e-15)) / 3
    assert found == {"lppd": pytest.approx(-loss), "log_loss": pytest.approx(loss), "accuracy": pytest.approx(1 / 3)}


@pytest.mark.parametrize("table", [NUMBERS, CLASSES], ids=["numbers", "classes"])
@pytest.mark.filterwarnings("ignore::mile.FitWarning")
def test_methods_of_both_environments_give_the_columns_of_a_row(table, data_dir):
    rows = rows_of(table, data_dir)
    booster = peers._scored(peers.hist_gradient_boosting, OPTIONS, table)
    found = [
        task.run(method, OPTIONS, table, rows)
        for method in (lambda *_: booster, lambda *_: ours.mile(OPTIONS, table, max_epochs=2))
    ]
    own = {"crps", "rmse", "coverage", "interval_score"} if table.is_regression else {"log_loss", "accuracy"}
    for row in found:
        assert set(row) == own | {"lppd", "lppd_raw", "seconds", "cpu_seconds", "rows_train", "rows_test", "unit"}
        assert set(row) < set(run.COLUMNS)
        assert np.isfinite([row[name] for name in own | {"lppd", "lppd_raw"}]).all()
    if table.is_regression:
        assert found[0]["lppd_raw"] == pytest.approx(found[0]["lppd"] - np.log(rows.y.std()))


def test_quantiles_between_those_that_were_fitted_are_on_a_line():
    knots = np.tile(100 * peers.KNOTS, (3, 1))[:, ::-1]  # crossing ones are put in order
    made = peers._from_knots(knots, np.arange(5.0))
    np.testing.assert_allclose(made.values, np.tile(100 * peers.LEVELS, (3, 1)))
    np.testing.assert_allclose(made.mean, 50.0)


def test_the_methods_and_tables_that_are_planned_are_those_that_there_are():
    planned = tomllib.loads((EXPERIMENTS / "mixed_tables" / "experiment.toml").read_text())
    assert tuple(ours.METHODS) == run.OURS
    assert {method for block in planned["rows"] for method in block["methods"]} == {*ours.METHODS, *peers.METHODS}
    assert {name for block in planned["rows"] for name in block["datasets"]} == set(tables.TABLES)


def test_a_row_is_written_as_it_finishes_and_a_trial_is_kept_apart(monkeypatch, tmp_path):
    commands = []

    def ran(command, **_):
        commands.append([str(word) for word in command[2:]])
        return None if command[2] == "ngboost" else {"lppd": -0.123456, "seconds": 1.23}

    monkeypatch.setattr(run, "run_script", ran)
    monkeypatch.setattr(run, "peers_python", lambda folder: "python")
    monkeypatch.setattr(run, "load", lambda name, data_dir: None)
    monkeypatch.setattr(run, "RUNS", tmp_path)
    start = ["--dataset", "titanic", "--splits", "1", "--runs", str(tmp_path), "--most-rows", "50", "--methods"]
    with pytest.raises(SystemExit, match=r"1 of the runs failed: titanic-ngboost-1\.log"):
        run.main([*start, "catboost", "ngboost"])
    assert commands == [["catboost", "titanic", "", "50"], ["ngboost", "titanic", "", "50"]]
    lines = (tmp_path / "mixed_tables" / "summary.rows-50.csv").read_text().splitlines()
    assert lines == [",".join(run.COLUMNS), "titanic,catboost,corrected,1,-0.1235" + 8 * "," + "1.2,,,,"]


def test_the_study_looks_at_training_rows_only(data_dir):
    outer = rows_of(NUMBERS, data_dir)
    inner = study.inner_rows(outer, 1)
    assert (len(inner.y), len(inner.y_test)) == (50, 13)
    assert sorted([*inner.x["id"], *inner.x_test["id"]]) == sorted(outer.x["id"])


def test_the_forms_of_the_study_bound_outliers_and_keep_gaps_and_order():
    known = np.array([*np.linspace(-1.0, 1.0, 50), 1e6, np.nan])
    values = np.array([-1e9, -0.5, 0.0, 0.5, 1e9, np.nan])
    for form in (study.tanh, study.normal_quantiles):
        made = form(known, values)
        assert np.isnan(made[-1])
        assert (np.diff(made[:-1]) > 0).all()
        assert np.abs(made[:-1]).max() < 6
    x = pd.DataFrame({"size": known, "town": "a"})
    assert study.PLAN["ames"]["tanh"].numbers(x, x)["town"].eq("a").all()
