"""Scores of the comparison with other packages, against closed forms, and what it does with rows that are there."""

import argparse
import importlib.util
import math
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from models import made_fit
from scipy import integrate, stats

from mile import metrics

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
RNG = np.random.default_rng(0)
Y = RNG.standard_normal(50)


def load_script(name):
    """Import a file of the experiment under a name of its own, and what it imports from beside it."""
    specification = importlib.util.spec_from_file_location(
        f"alternatives_{name}", EXPERIMENTS / "alternatives" / f"{name}.py"
    )
    module = importlib.util.module_from_spec(specification)
    before = list(sys.path)
    sys.path[:0] = [str(EXPERIMENTS / "alternatives"), str(EXPERIMENTS)]
    try:
        specification.loader.exec_module(module)
    finally:
        sys.path[:] = before
    return module


chart, isolation, job, ours, peers, run, scores = map(
    load_script, ("chart", "isolation", "job", "ours", "peers", "run", "scores")
)


def quantiles_of(distribution, n_rows, resolution=1e-3):
    values = np.tile(distribution.ppf(scores.LEVELS), (n_rows, 1))
    return scores.Quantiles(values=values, resolution=resolution, mean=np.full(n_rows, distribution.mean()))


def integrated_crps(distribution, y):
    def square(x):
        return (distribution.cdf(x) - (x >= y)) ** 2

    pieces = ((-12.0, y), (y, 12.0))
    return sum(integrate.quad(square, *piece, epsabs=1e-10, limit=200)[0] for piece in pieces)


def test_a_normal_prediction_has_the_known_density_crps_and_interval():
    mean, std = 0.3 * Y, 0.5 + np.abs(Y)
    prediction = scores.Normal(mean=mean, std=std)
    y = Y + 0.2
    np.testing.assert_allclose(prediction.log_density(y), stats.norm(mean, std).logpdf(y))
    expected = [integrated_crps(stats.norm(m, s), v) for m, s, v in zip(mean[:5], std[:5], y[:5], strict=True)]
    np.testing.assert_allclose(prediction.crps(y)[:5], expected, rtol=1e-6)
    np.testing.assert_allclose(prediction.interval(), stats.norm(mean, std).interval(0.9))


def test_a_mixture_of_equal_components_is_that_component():
    mean, std = 0.3 * Y, 0.5 + np.abs(Y)
    one = scores.Normal(mean=mean, std=std)
    many = scores.Mixture(location=np.tile(mean, (7, 1)), scale=np.tile(std, (7, 1)))
    np.testing.assert_allclose(many.mean, one.mean)
    np.testing.assert_allclose(many.log_density(Y), one.log_density(Y))
    np.testing.assert_allclose(many.crps(Y), one.crps(Y), rtol=1e-5)
    np.testing.assert_allclose(many.interval(), one.interval(), atol=1e-7)


def test_a_mixture_has_the_crps_and_quantiles_of_its_distribution_in_blocks_of_any_size(monkeypatch):
    location, scale = RNG.standard_normal((5, 3)), np.exp(RNG.standard_normal((5, 3)))
    mixture, y = scores.Mixture(location=location, scale=scale), np.array([-1.0, 0.5, 2.0])

    class Row:
        def __init__(self, row):
            self.parts = stats.norm(location[:, row], scale[:, row])

        def cdf(self, x):
            return self.parts.cdf(x).mean()

    expected = [integrated_crps(Row(row), value) for row, value in enumerate(y)]
    np.testing.assert_allclose(mixture.crps(y), expected, rtol=1e-3)
    for side, ends in zip((0.05, 0.95), mixture.interval(), strict=True):
        np.testing.assert_allclose([Row(row).cdf(end) for row, end in enumerate(ends)], side, atol=1e-7)
    whole = mixture.crps(y)
    monkeypatch.setattr(scores, "_BLOCK", 1)
    np.testing.assert_allclose(mixture.crps(y), whole)


def test_quantiles_of_a_uniform_distribution_have_its_density_and_crps():
    y = np.linspace(0.05, 0.95, 10)
    prediction = quantiles_of(stats.uniform(), len(y))
    np.testing.assert_allclose(prediction.log_density(y), 0.0, atol=1e-9)
    # The integral of (x - 1{x >= y})² is (y³ + (1 - y)³) / 3; 99 levels leave out the outer hundredths.
    np.testing.assert_allclose(prediction.crps(y), (y**3 + (1.0 - y) ** 3) / 3.0, atol=0.01)
    np.testing.assert_allclose(prediction.interval(), [np.full(10, 0.05), np.full(10, 0.95)])


@pytest.mark.parametrize("family", [stats.norm, stats.laplace, stats.gumbel_r])
def test_the_density_from_quantiles_costs_little_against_the_true_one(family):
    y = family.ppf((np.arange(2_000) + 0.5) / 2_000)  # what the distribution gives, without chance
    made = quantiles_of(family(), len(y)).log_density(y)
    assert -0.03 < np.mean(made - family.logpdf(y)) < 0.0


def test_tails_are_finite_and_fall_as_those_of_a_laplace_distribution():
    y = np.array([-9.0, -5.0, 5.0, 9.0, -1e6, 1e6])
    made = quantiles_of(stats.laplace(), len(y)).log_density(y)
    np.testing.assert_allclose(made[:4], stats.laplace.logpdf(y[:4]), atol=0.5)
    assert np.isfinite(made).all()


def test_a_density_from_quantiles_has_mass_one():
    steps = np.repeat([-1.0, 0.0, 0.5, 2.0], [20, 40, 20, 19])
    for values in (stats.norm.ppf(scores.LEVELS), steps, np.zeros(99)):
        grid = np.linspace(-60.0, 60.0, 60_001)
        prediction = scores.Quantiles(values=np.tile(values, (len(grid), 1)), resolution=0.1, mean=0.0 * grid)
        assert np.exp(prediction.log_density(grid)).mean() * 120.0 == pytest.approx(1.0, abs=2e-3)


def test_quantiles_that_coincide_give_a_finite_density_and_crossing_ones_are_put_in_order():
    values = np.full((2, 99), 3.0)
    same = scores.Quantiles(values=values, resolution=1.0, mean=values[:, 0])
    assert np.isfinite(same.log_density(np.array([3.0, 40.0]))).all()
    # All mass on one value of a lattice: no more than one per step of it.
    assert same.log_density(np.array([3.0, 3.0]))[0] <= 0.0
    shuffled = RNG.permuted(np.tile(stats.norm.ppf(scores.LEVELS), (4, 1)), axis=1)
    crossing = scores.Quantiles(values=shuffled, resolution=0.1, mean=np.zeros(4))
    ordered = quantiles_of(stats.norm(), 4, resolution=0.1)
    np.testing.assert_array_equal(crossing.log_density(Y[:4]), ordered.log_density(Y[:4]))
    np.testing.assert_array_equal(crossing.interval(), ordered.interval())


def test_the_interval_score_is_the_width_and_twenty_times_the_miss():
    found = scores.interval_score(np.zeros(3), np.ones(3), np.array([0.5, -0.1, 1.2]))
    np.testing.assert_allclose(found, [1.0, 1.0 + 20 * 0.1, 1.0 + 20 * 0.2])


def test_scores_do_not_depend_on_the_unit_of_the_target():
    def scored(factor):
        prediction = scores.Normal(mean=factor * 0.5 * Y, std=np.full(len(Y), factor * 0.7))
        return scores.score(prediction, factor * Y, factor * 2.0)

    assert scored(1.0) == pytest.approx(scored(60.0))
    assert scored(1.0)["coverage"] == pytest.approx(np.mean(np.abs(0.5 * Y) <= 0.7 * stats.norm.ppf(0.95)))


def test_an_interval_alone_has_neither_density_nor_crps():
    found = scores.score(scores.Interval(lower=Y - 1.0, upper=Y + 1.0, mean=Y), Y, 1.0)
    assert (found["lppd"], found["crps"], found["rmse"], found["coverage"]) == (None, None, 0.0, 1.0)
    assert found["interval_score"] == pytest.approx(2.0)


def test_the_resolution_is_the_step_of_a_target_of_whole_numbers():
    assert scores.resolution(np.array([5.0, 1.0, 2.0, 2.0, 3.0, 4.0, 90.0])) == 1.0


def test_the_library_scores_its_own_predictions_alike():
    model = made_fit()
    x = RNG.standard_normal((30, model.network.n_inputs))
    predictive = model.predictive(x)
    location, scale = predictive.moments_per_draw()
    y, unit = predictive.mean + 0.5 * predictive.std, 3.0
    ours = metrics.standardized(metrics.scores(predictive, y), unit)
    theirs = scores.score(scores.Mixture(location=location, scale=scale), y, unit)
    for name in ("lppd", "crps", "rmse"):
        assert theirs[name] == pytest.approx(ours[name], rel=1e-3, abs=1e-5)
    assert theirs["coverage"] == ours["coverage_90"]
    assert theirs["interval_score"] == pytest.approx(ours["interval_score_90"], rel=1e-5)


def test_everybody_gets_the_rows_of_the_uci_split_that_are_not_test_rows():
    x, y = np.arange(103.0)[:, None], np.arange(103.0)
    rows = run.split_rows(x, y, 2)
    assert (len(rows["y"]), len(rows["y_test"])) == (82, 21)
    np.testing.assert_array_equal(np.sort(np.concatenate([rows["y"], rows["y_test"]])), y)
    np.testing.assert_array_equal(rows["x"][:, 0], rows["y"])
    order = np.random.default_rng(2).permutation(103)
    np.testing.assert_array_equal(rows["y_test"], y[order[103 * 8 // 10 :]])


@pytest.fixture
def start(monkeypatch, tmp_path):
    """Run the script on small tables, with a method that only counts its calls."""
    calls = []

    def counted(method, rows, *, seed, limits, **_):
        calls.append((method, seed))
        if method == "ngboost":
            return None  # failed
        if method == "mapie":
            return {"seconds": 60.0 * limits.minutes}
        return dict.fromkeys(("lppd", "crps", "rmse", "coverage", "interval_score", "seconds", "cpu_seconds"), 0.123456)

    monkeypatch.setattr(run, "run_method", counted)
    monkeypatch.setattr(run, "load", lambda name, data_dir: (np.ones((10, 1)), np.arange(10.0)))
    common = ["--dataset", "yacht", "--summary", str(tmp_path / "summary.csv"), "--runs", str(tmp_path / "runs")]

    def start(*more):
        calls.clear()
        run.main([*common, *more])
        return list(calls)

    return start


def rows_in(folder):
    return (folder / "summary.csv").read_text().splitlines()


def test_rows_that_are_there_are_not_run_again(start, tmp_path):
    assert start("--splits", "1", "--methods", "catboost") == [("catboost", 1)]
    again = start("--splits", "3", "--methods", "catboost", "bde")
    assert sorted(again) == [("bde", 1), ("bde", 2), ("bde", 3), ("catboost", 2), ("catboost", 3)]
    assert start("--splits", "3", "--methods", "catboost", "bde") == []
    lines = rows_in(tmp_path)
    assert lines[0] == ",".join(run.COLUMNS)
    assert lines[1] == "yacht,catboost,corrected,1,0.1235,0.1235,0.1235,0.1235,0.1235,0.1,8,2,0.1"
    assert len(lines) == 7
    assert (tmp_path / "figure.png").stat().st_size > 0


def test_the_figure_compares_splits_that_all_methods_have():
    def row(method, split):
        return {"dataset": "yacht", "method": method, "split": split}

    rows = [row("bde", "1"), row("catboost", "1"), row("catboost", "2")]
    assert chart.comparable(rows) == rows[:2]
    assert chart.comparable([row("bde", "1"), row("catboost", "2")]) == [row("bde", "1"), row("catboost", "2")]


def test_the_figure_ranks_methods_and_leaves_gaps_where_one_is_missing():
    np.testing.assert_array_equal(
        chart.ranks_of(np.array([[3.0, np.nan], [1.0, 2.0], [2.0, 1.0]])), [[2.0, np.nan], [0.0, 1.0], [1.0, 0.0]]
    )


def test_a_method_that_fails_leaves_no_row_and_says_so_at_the_end(start, tmp_path):
    for _ in range(2):
        with pytest.raises(SystemExit, match=r"1 of the runs failed: yacht-ngboost-1\.log"):
            start("--splits", "1", "--methods", "ngboost", "catboost")
        assert [line.split(",")[1] for line in rows_in(tmp_path)[1:]] == ["catboost"]


def test_the_time_limit_costs_one_row_without_scores(start, tmp_path):
    assert start("--splits", "1", "--methods", "mapie", "--time-limit", "2") == [("mapie", 1)]
    assert rows_in(tmp_path)[1] == "yacht,mapie,corrected,1,,,,,,120.0,8,2,"
    assert start("--splits", "1", "--methods", "mapie") == []


def test_a_process_over_its_time_is_ended_and_one_that_fails_is_reported(monkeypatch, tmp_path):
    (tmp_path / "peers.py").write_text("import sys, time\ntime.sleep(60) if sys.argv[1] == 'bde' else sys.exit(1)\n")
    monkeypatch.setattr(isolation, "HERE", tmp_path)
    monkeypatch.setattr(isolation, "peers_python", lambda: sys.executable)
    bench = argparse.Namespace(scale=1.0, chains=12, planned_chains=12)
    rows = run.split_rows(np.ones((10, 1)), np.arange(10.0), 1)
    common = {"seed": 1, "bench": bench, "log": tmp_path / "logs" / "log"}
    short, long = isolation.Limits(minutes=0.5 / 60.0), isolation.Limits(minutes=1.0)
    assert isolation.run_method("bde", rows, limits=short, **common) == {"seconds": pytest.approx(0.5)}
    assert isolation.run_method("catboost", rows, limits=long, **common) is None


def test_a_process_gets_the_rows_and_gives_the_scores_it_has(monkeypatch, tmp_path):
    (tmp_path / "ours.py").write_text(
        "import sys, json, numpy\n"
        "rows = numpy.load(sys.argv[2])\n"
        "options = dict(zip(sys.argv[4::2], sys.argv[5::2]))\n"
        "found = {'lppd': None, 'rmse': rows['y_test'].sum(), 'chains': float(options['--chains'])}\n"
        "open(sys.argv[3], 'w').write(json.dumps(found))\n"
    )
    monkeypatch.setattr(isolation, "HERE", tmp_path)
    rows = run.split_rows(np.ones((10, 1)), np.arange(10.0), 1)
    bench = argparse.Namespace(scale=1.0, chains=4, planned_chains=12)
    found = isolation.run_method(
        "mile-paper", rows, seed=1, bench=bench, limits=isolation.Limits(), log=tmp_path / "log"
    )
    assert found == {"rmse": rows["y_test"].sum(), "chains": 4.0}


def test_the_methods_that_are_planned_are_those_that_there_are():
    planned = tomllib.loads((EXPERIMENTS / "alternatives" / "experiment.toml").read_text())
    assert tuple(ours.METHODS) == isolation.OURS
    assert {method for block in planned["rows"] for method in block["methods"]} == {*ours.METHODS, *peers.METHODS}


def test_a_job_measures_scores_and_seconds_of_a_method():
    def method(options):
        def fit_and_predict(x, y, x_test):
            return lambda y_test, unit: {"rmse": float(np.abs(y_test - y.mean()).max() / unit)}

        return fit_and_predict

    options = job.Options(seed=1, threads=1, scale=1.0, chains=0)
    found = job.run(method, options, np.ones((4, 1)), np.array([0.0, 0.0, 2.0, 2.0]), np.ones((1, 1)), np.array([4.0]))
    assert found["rmse"] == 3.0
    assert 0.0 <= found["seconds"] < 1.0
    assert math.isfinite(found["cpu_seconds"])
