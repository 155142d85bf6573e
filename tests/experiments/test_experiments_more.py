"""The experiments on classes, on scaling, on settings and on diagnostics: tiny fits of generated tables, end to end."""

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from stand_ins import write_yacht

import mile
from mile.storage import write_table

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
if not EXPERIMENTS.is_dir():
    pytest.skip("the experiments are not here, only the package", allow_module_level=True)
sys.path.append(str(EXPERIMENTS))

import campaign  # noqa: E402
import catalog  # noqa: E402
import class_tables  # noqa: E402
import comparison  # noqa: E402
import power_law  # noqa: E402
import scaling_study  # noqa: E402
import stage_clock  # noqa: E402
import variants  # noqa: E402
import workbench  # noqa: E402
from catalog import Cell  # noqa: E402
from stage_clock import StageClock  # noqa: E402
from summaries import Summary  # noqa: E402
from workbench import Workbench  # noqa: E402

pytestmark = pytest.mark.slow  # whole experiments, if tiny ones; those of test_experiments.py are run every time
SCALE = 0.002
TINY = ["--splits", "1", "--scale", str(SCALE), "--chains", "2"]
SIZE = f".scale-{SCALE}.chains-2"


def load_script(name):
    """Return experiments/NAME/run.py as a module."""
    path = EXPERIMENTS / name / "run.py"
    specification = importlib.util.spec_from_file_location(f"{name}_run", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def reduced(name, methods, datasets=("yacht",), **settings):
    """Return an experiment with a few of its methods on another data set, and other settings of some of them."""
    experiment = catalog.find(name)
    rows = [{"protocols": ["paper"], "datasets": list(datasets), "methods": methods}]
    changed = {method: {**experiment.methods.get(method, {}), **values} for method, values in settings.items()}
    return replace(experiment, rows=rows, methods={**experiment.methods, **changed})


def run(experiment, work, data_dir, runs, *options):
    """Run an experiment at a tiny size and return its rows by method."""
    arguments = [*TINY, "--data-dir", str(data_dir), "--runs", str(runs), *options]
    given = campaign.parser_of(experiment).parse_args(arguments)
    campaign.run(experiment, work, given)
    path = given.summary or runs / experiment.name / f"summary{SIZE}.csv"
    return {row["method"]: row for row in Summary(path).rows}


def again(experiment, work, data_dir, runs, tmp_path, monkeypatch):
    """Score finished fits once more, without a chance to compute one."""
    monkeypatch.setattr(workbench, "fit", None)
    return run(experiment, work, data_dir, runs, "--summary", str(tmp_path / "mine.csv"))


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """A folder with tables that look like yacht and ionosphere."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(1)
    write_yacht(folder, rng)
    x = rng.normal(size=(351, 34))
    x[:, 1] = 0.0
    columns = {f"a{number:02}": column for number, column in enumerate(x.T, 1)}
    write_table(folder / "ionosphere.csv.gz", columns | {"class": (x[:, 0] + 0.3 * x[:, 2] > 0).astype(np.int64)})
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


# -- classification -----------------------------------------------------------------------------------


def test_the_inputs_are_those_of_the_papers_parameter_counts(data_dir):
    x, y = class_tables.load("ionosphere", data_dir)
    assert mile.MLP(n_inputs=x.shape[1]).dimension == 850
    assert set(y) == {0, 1}
    levels = {"workclass": 9, "education": 16, "marital_status": 7, "occupation": 15, "relationship": 6, "race": 5}
    levels |= {"sex": 2, "native_country": 42}
    numbers = ["age", "fnlwgt", "education_num", "capital_gain", "capital_loss", "hours_per_week"]
    rows = np.arange(42)
    columns = {name: rows % levels[name] if name in levels else rows * 7.0 for name in [*levels, *numbers]}
    encoded = class_tables.income_columns(np.stack(list(columns.values()), axis=1), tuple(columns))
    assert mile.MLP(n_inputs=encoded.shape[1], hidden=(16,) * 4).dimension == 2386
    assert not encoded[0, :7].any()  # the class of work is not known
    assert not encoded[1, :7].any()  # nor is the first known level told apart
    assert encoded[2, :7].tolist() == [1, 0, 0, 0, 0, 0, 0]
    assert np.array_equal(encoded[:, -4:], np.outer(rows, [7.0] * 4))


@pytest.fixture(scope="module")
def classes():
    """The classification script with a small network."""
    script = load_script("classification")
    budget = catalog.find("classification").methods["MILE"]["ionosphere"]["budget"]
    methods = ["single DNN", "single chain", "DE", "MILE"]
    small = {"ionosphere": {"hidden": [4], "budget": budget}}
    script.EXPERIMENT = reduced("classification", methods, ["ionosphere"], MILE=small)
    return script


def test_all_ways_to_predict_classes_come_from_one_fit(classes, data_dir, runs, tmp_path, monkeypatch):
    rows = run(classes.EXPERIMENT, classes.WORK, data_dir, runs)
    assert list(rows) == ["single DNN", "single chain", "DE", "MILE"]
    assert [path.name for path in (runs / f"classification-paper{SIZE}").glob("*.run")] == ["ionosphere-mile-1.run"]
    assert all(0.0 <= float(row["accuracy"]) <= 1.0 and float(row["lppd"]) < 0.0 for row in rows.values())
    # The logarithm of a mean is above the mean of logarithms.
    assert float(rows["DE"]["lppd"]) > float(rows["single DNN"]["lppd"])
    assert float(rows["MILE"]["lppd"]) > float(rows["single chain"]["lppd"])
    assert [rows[name]["chains"] for name in ("single chain", "MILE")] == ["1", "2"]
    whole, one = (int(rows[name]["gradient_evaluations"]) for name in ("MILE", "single chain"))
    assert whole == 2 * one == 2 * (2 * 120 + 1)
    assert (runs / "classification" / f"figure{SIZE}.png").stat().st_size > 5_000
    assert again(classes.EXPERIMENT, classes.WORK, data_dir, runs, tmp_path, monkeypatch) == rows


def test_rows_of_images_are_borrowed_and_follow_their_source(tmp_path, capsys):
    script = load_script("classification")
    options = ["--protocol", "corrected", "--dataset", "mnist", "--methods", "DE", "stochastic", "--again"]
    options += ["--runs", str(tmp_path)]
    campaign.main(script.__file__, script.WORK, options)
    assert "images has no such row yet: mile paper run images" in capsys.readouterr().out
    source = Summary(tmp_path / "images" / "summary.csv")
    cell = {"dataset": "mnist", "method": "DE", "protocol": "corrected", "split": 1}
    found = Summary(tmp_path / "classification" / "summary.csv")
    for lppd in (-0.2, -0.1):
        source.drop(**cell)
        source.add(**cell, lppd=lppd, accuracy=0.95)
        campaign.main(script.__file__, script.WORK, options)
        (row,) = found.rows
        assert (float(row["lppd"]), row["accuracy"]) == (lppd, "0.95")


def test_methods_of_two_tables_of_the_paper_stand_in_one():
    experiment = catalog.find("classification")
    known = {"dataset": "ionosphere", "protocol": "paper"}
    assert comparison.paper_number(experiment, known | {"method": "MILE"}, "lppd").value == -0.167
    assert comparison.paper_number(experiment, known | {"method": "NUTS"}, "lppd").value == -0.172
    known = {"dataset": "fashion_mnist", "protocol": "corrected", "method": "stochastic"}
    assert comparison.paper_number(experiment, known, "accuracy").value == 0.925


# -- times --------------------------------------------------------------------------------------------


@pytest.fixture
def ticks(monkeypatch):
    """Clocks that the test moves: processors take half of the wall's time."""

    class Ticks:
        now = 0.0

    monkeypatch.setattr(stage_clock.time, "perf_counter", lambda: Ticks.now)
    monkeypatch.setattr(stage_clock.time, "process_time", lambda: Ticks.now / 2)
    return Ticks


def report(clock, ticks, *steps):
    """Advance one chain by (seconds, steps) at a time."""
    for seconds, amount in steps:
        ticks.now += seconds
        clock.advance(amount)


def test_compiling_and_training_are_not_timed(ticks, tmp_path):
    path = tmp_path / "a.stages.json"
    clock = StageClock(path)
    clock.start("ensemble", 10, unit="epochs")
    report(clock, ticks, (5.0, 10))
    clock.finish()
    assert clock.spent is None
    clock.start("sampling", 110)
    report(clock, ticks, (30.0, 5), (1.0, 5), (2.0, 50), (2.0, 50))
    ticks.now += 100.0  # a program for the conclusions
    clock.finish()
    assert clock.spent == StageClock(path).spent == pytest.approx((4.4, 2.2))


def test_an_interrupted_stage_is_timed_by_its_last_sitting(ticks, tmp_path):
    path = tmp_path / "a.stages.json"
    first = StageClock(path)
    first.start("sampling", 100)
    report(first, ticks, (9.0, 20), (9.0, 20))
    assert StageClock(path).spent is None
    second = StageClock(path)
    second.start("sampling", 100)
    report(second, ticks, (0.0, 40), (8.0, 10), (1.0, 25), (1.0, 25))
    second.finish()
    assert second.spent == pytest.approx((4.0, 2.0))


def test_a_short_stage_is_timed_whole_unless_it_was_resumed(ticks, tmp_path):
    whole, resumed = StageClock(tmp_path / "a.json"), StageClock(tmp_path / "b.json")
    whole.start("sampling", 10)
    report(whole, ticks, (1.0, 10))
    whole.finish()
    assert whole.spent == pytest.approx((1.0, 0.5))
    resumed.start("sampling", 10)
    resumed.start("sampling", 10)
    report(resumed, ticks, (0.0, 8), (1.0, 2))
    resumed.finish()
    assert resumed.spent is None


def test_chains_that_replace_others_do_not_count(ticks):
    clock = StageClock(None)
    for seconds in (3.0, 50.0):
        clock.start("sampling", 10)
        report(clock, ticks, (seconds, 10))
        clock.finish()
    assert clock.spent == pytest.approx((3.0, 1.5))


def test_a_power_law_is_found_and_impossible_numbers_are_refused():
    x = np.array([1.0, 2.0, 4.0, 8.0])
    law = power_law.power_law(x.tolist(), (3.0 * x**1.5).tolist())
    assert law == pytest.approx((3.0, 1.5, 1.0))
    assert law.at(x) == pytest.approx(3.0 * x**1.5)
    assert power_law.explained_by(x.tolist(), (2.0 + 5.0 * x).tolist(), 1) == pytest.approx(1.0)
    assert power_law.explained_by(x.tolist(), (2.0 + 5.0 * x).tolist(), 2) < 0.99
    for bad in ([1.0, 1.0], [0.0, 1.0]):
        with pytest.raises(ValueError, match="two places at least and positive"):
            power_law.power_law(bad, [1.0, 2.0])


# -- scaling ------------------------------------------------------------------------------------------


def test_the_networks_and_steps_are_those_of_the_study():
    complexity, datasize = catalog.find("complexity"), catalog.find("datasize")
    sizes = [
        variants.network_of(variants.settings_of(complexity, name), 12).dimension
        for name in complexity.method_names
        if name.startswith("MILE")
    ]
    assert sizes == [266, 786, 2594, 5426]
    for experiment in (complexity, datasize):
        for name in experiment.method_names:
            if name != scaling_study.LAW:
                sampler = variants.sampler_of(variants.settings_of(experiment, name))
                assert 5 * (sampler.warmup_steps + sampler.sampling_steps) == 60_000
    assert datasize.chains == complexity.chains == 4
    assert variants.sampler_of(variants.settings_of(datasize, "MILE all")).step_size == 0.001


def test_a_study_of_networks_fits_times_and_finds_a_law(data_dir, runs, tmp_path, monkeypatch, capsys):
    methods = ["MILE 8-8-8", "DE 8-8-8", "MILE 16-16-16", "law"]
    small = {"MILE 8-8-8": {"hidden": [4]}, "MILE 16-16-16": {"hidden": [6]}}
    study = replace(load_script("complexity").STUDY, experiment=reduced("complexity", methods, **small))
    work = campaign.Work(
        measure=study.measure, columns=scaling_study.COLUMNS, is_fitted=study.is_fitted, draw=study.draw
    )
    rows = run(study.experiment, work, data_dir, runs, "--methods", "law")
    assert rows == {}  # nothing to fit a law to
    assert "there is no time of this fit: yacht, MILE 8-8-8" in capsys.readouterr().out
    rows = run(study.experiment, work, data_dir, runs)
    assert list(rows) == methods
    assert [rows[name]["parameters"] for name in methods] == ["38", "38", "56", ""]
    fitted = rows["MILE 8-8-8"]
    assert float(fitted["processor_seconds"]) > 0.0
    assert float(fitted["sampling_seconds"]) > 0.0
    microseconds = 1e6 * float(fitted["processor_seconds"]) / float(fitted["gradient_evaluations"])
    assert float(fitted["gradient_microseconds"]) == pytest.approx(microseconds, rel=0.1)
    assert fitted["training_rows"] == "215"
    assert rows["DE 8-8-8"]["processor_seconds"] == ""
    law = rows["law"]
    ratio = np.log(float(rows["MILE 16-16-16"]["processor_seconds"]) / float(fitted["processor_seconds"]))
    assert float(law["exponent"]) == pytest.approx(float(ratio) / np.log(56 / 38), abs=0.3)
    assert float(law["r_squared"]) == 1.0  # two points
    assert (runs / "complexity" / f"figure{SIZE}.png").stat().st_size > 5_000
    table = comparison.text_table(comparison.compare(study.experiment, list(rows.values())))
    assert "of processor seconds" in table
    assert again(study.experiment, work, data_dir, runs, tmp_path, monkeypatch) == rows


def test_a_study_of_rows_takes_the_first_training_rows(data_dir, runs):
    every = {"hidden": [4]}
    experiment = reduced("datasize", ["MILE 1000", "MILE all", "law"], every=every, **{"MILE 1000": {"rows": 100}})
    study = replace(load_script("datasize").STUDY, experiment=experiment)
    rows = run(experiment, campaign.Work(measure=study.measure, columns=scaling_study.COLUMNS), data_dir, runs)
    assert [rows[name]["training_rows"] for name in ("MILE 1000", "MILE all")] == ["100", "215"]
    assert rows["law"]["linear_r_squared"] == rows["law"]["quadratic_r_squared"] == "1.0"
    whole = variants.split_of("yacht", 1, "paper", data_dir).dataset
    part = variants.first_rows(whole, 100)
    assert np.array_equal(part.x_train, whole.x_train[:100])
    assert np.array_equal(part.y_valid, whole.y_valid)


def test_fits_whose_times_are_lost_have_rows_without_them(data_dir, runs, tmp_path, monkeypatch):
    every = {"hidden": [4]}
    experiment = reduced("datasize", ["MILE all", "law"], every=every)
    (path,) = (runs / f"datasize-paper{SIZE}").glob("*all-1.stages.json")
    kept = json.loads(path.read_text())
    path.write_text(json.dumps(kept | {"sampling": None}))
    study = replace(load_script("datasize").STUDY, experiment=experiment)
    work = campaign.Work(measure=study.measure, columns=scaling_study.COLUMNS)
    rows = again(experiment, work, data_dir, runs, tmp_path, monkeypatch)
    assert list(rows) == ["MILE all"]
    assert rows["MILE all"]["processor_seconds"] == ""
    assert rows["MILE all"]["lppd"]


# -- settings -----------------------------------------------------------------------------------------


def test_each_setting_differs_from_the_default_in_one_thing():
    experiment = catalog.find("ablations")
    known = {
        (cell.protocol, cell.method): variants.sampler_of(variants.settings_of(experiment, cell))
        for cell in experiment.cells()
    }
    assert known["paper", "default"] == mile.Mile(warmup_steps=10_000, sampling_steps=2_000, n_draws=200)
    assert known["authors", "default"] == mile.Mile(warmup_steps=50_000, sampling_steps=10_000, n_draws=1_000)
    fields = {"warmup": "warmup_steps", "energy": "schedule", "memory": "step_size_memory", "trust": "trust"}
    for (protocol, name), sampler in known.items():
        default = known[protocol, "default"]
        if name == "DE":
            assert sampler == default
        elif name != "default":
            study, value = name.split()
            field = fields[study]
            assert sampler != default
            assert replace(sampler, **{field: getattr(default, field)}) == default
            found = getattr(sampler, field)
            given = [found.start, found.end] if study == "energy" else [found]
            assert [float(part) for part in value.split("-")] == given


def test_a_study_of_settings_says_what_the_tuning_came_to(data_dir, runs, monkeypatch):
    script = load_script("ablations")
    assert list(script.values_of("trust").values()).count("default") == 1
    assert list(script.values_of("energy"))[:3] == ["0.1-0.01", "0.1-0.1", "0.5-0.01"]
    methods = ["default", "warmup 40000", "energy 2-0.1", "trust 0.5", "DE"]
    experiment = reduced("ablations", methods, every={"hidden": [4]})
    monkeypatch.setattr(script, "EXPERIMENT", experiment)
    rows = run(experiment, script.WORK, data_dir, runs)
    assert list(rows) == methods
    assert float(rows["default"]["step_size"]) > 0.0
    assert float(rows["energy 2-0.1"]["L"]) > 0.0
    assert rows["DE"]["step_size"] == ""
    assert rows["trust 0.5"]["lppd"] != rows["default"]["lppd"]
    assert int(rows["warmup 40000"]["gradient_evaluations"]) > int(rows["default"]["gradient_evaluations"])
    assert (runs / "ablations" / f"figure{SIZE}.png").stat().st_size > 5_000
    assert "0.5 to 0.1" in comparison.text_table(comparison.compare(experiment, list(rows.values())))


# -- presets ------------------------------------------------------------------------------------------


def test_candidates_for_a_preset_are_scored_on_validation_rows_of_numbers_and_classes(data_dir, runs, monkeypatch):
    monkeypatch.syspath_prepend(str(EXPERIMENTS / "presets"))
    script = load_script("presets")
    small = {"hidden": [2], "chains": 2}
    experiment = reduced("presets", ["paper", "default"], ["yacht", "ionosphere"], paper=small, default=small)
    monkeypatch.setattr(script, "EXPERIMENT", experiment)
    for name, n_rows in (("yacht", 308), ("ionosphere", 351)):
        dataset, x, _ = script.validation_split(name, 1, data_dir)
        _, valid, test = script.row_order(n_rows, 1)
        assert len(dataset.y_train) + len(dataset.y_valid) + len(valid) + len(test) == n_rows
        assert np.array_equal(x[:, 0].argsort(), script.load(name, data_dir)[0][valid, 0].argsort())
    run(experiment, script.WORK, data_dir, runs)
    rows = Summary(runs / "presets" / f"summary{SIZE}.csv").rows
    found = {(row["dataset"], row["method"]): row for row in rows}
    assert len(found) == 4
    numbers, classes = found["yacht", "default"], found["ionosphere", "paper"]
    assert (numbers["activation"], classes["activation"]) == ("gelu", "relu")
    assert 0.0 < float(numbers["coverage"]) <= 1.0
    assert numbers["accuracy"] == classes["coverage"] == ""
    assert 0.0 < float(classes["accuracy"]) <= 1.0


# -- particles ----------------------------------------------------------------------------------------


def test_particles_and_both_ways_to_score_chains_share_the_rows_of_a_table(data_dir, runs, tmp_path, monkeypatch):
    script = load_script("pgps")
    budget = {"n_draws": 4, "field_updates": 2, "adjustment_steps": 2, "langevin_steps": 5, "step_size": 1e-3}
    particles = {"options": budget}
    published, right = "PGPS-published", "PGPS-corrected"
    experiment = reduced("pgps", ["MILE", published], ["ionosphere"], **{published: particles, right: particles})
    corrected = {"protocols": ["corrected"], "datasets": ["ionosphere"], "methods": ["MILE", "DE", right]}
    experiment = replace(experiment, rows=[*experiment.rows, corrected])
    monkeypatch.setattr(script, "EXPERIMENT", experiment)
    as_published, as_it_should_be, earlier = (
        script.sampler_of(Cell("ionosphere", method, protocol, 1))
        for method, protocol in ((published, "paper"), (right, "corrected"), ("PGPS-shared", "paper"))
    )
    assert as_published.own_batches is as_published.softmax_twice is as_it_should_be.own_batches is True
    assert as_published.accumulate_gradients is not as_it_should_be.accumulate_gradients
    assert as_published.rescale_batches is as_it_should_be.softmax_twice is earlier.own_batches is False
    assert script.place(Cell("sonar", "PGPS-shared", "paper", 2)) == ("pgps-paper", "sonar-PGPS-2")
    run(experiment, script.WORK, data_dir, runs, "--protocol", "all", "--summary", str(tmp_path / "rows.csv"))
    rows = {(row["method"], row["protocol"]): row for row in Summary(tmp_path / "rows.csv").rows}
    assert len(rows) == 5
    # One fit for the two rows of MILE and the members.
    names = sorted(path.name for path in (runs / f"pgps-corrected{SIZE}").glob("*.run"))
    assert names == [
        "ionosphere-MILE-1.run",
        f"ionosphere-{right}-1.run",
    ]
    # One draw alone predicts worse than the mixture; both have the same accuracy, which is the mixture's.
    one, mixture = rows["MILE", "paper"], rows["MILE", "corrected"]
    assert float(one["lppd"]) < float(mixture["lppd"]) < 0.0
    assert one["accuracy"] == mixture["accuracy"]
    cloud = rows[right, "corrected"]
    assert (cloud["chains"], cloud["draws"], mixture["chains"]) == ("1", "4", "2")
    assert int(cloud["limited_moves"]) >= 0 == int(cloud["reverted_moves"])
    assert int(rows["DE", "corrected"]["gradient_evaluations"]) == 0


# -- diagnostics --------------------------------------------------------------------------------------


def test_every_layer_is_diagnosed(data_dir, runs, monkeypatch):
    script = load_script("diagnostics")
    assert script.N_LAYERS == 7
    experiment = reduced("diagnostics", ["MILE"], every={"hidden": [2] * 6})
    monkeypatch.setattr(script, "EXPERIMENT", experiment)
    row = run(experiment, script.WORK, data_dir, runs)["MILE"]
    for name in script.STATISTICS:
        layers = [float(row[f"{name}_layer{layer}"]) for layer in range(1, 8)]
        assert np.all(np.isfinite(layers))
        assert float(row[name]) == pytest.approx(np.mean(layers), rel=1e-2, abs=1e-3)
        assert float(row[f"{name}_outer"]) == pytest.approx((layers[0] + layers[6]) / 2, rel=1e-2, abs=1e-3)
        assert float(row[f"{name}_inner"]) == pytest.approx(np.mean(layers[1:6]), rel=1e-2, abs=1e-3)
    cell = Cell("yacht", "MILE", "paper", 1)
    fitted = mile.load(Workbench(runs=runs, scale=SCALE, chains=2).run_dir(*variants.place(experiment, cell)))
    draws = np.asarray(fitted.chains.draws)[..., : 7 * 2].astype(float)
    within = mile.diagnose.convergence.within_variance(draws)
    assert float(row["within_layer1"]) == pytest.approx(within.mean(), abs=1e-4)
    assert (runs / "diagnostics" / f"figure{SIZE}.png").stat().st_size > 5_000


@pytest.mark.parametrize("name", ["classification", "complexity", "datasize", "ablations", "diagnostics", "pgps"])
def test_the_full_experiments_forecast_and_print_their_tables(name, capsys, tmp_path):
    script, experiment = load_script(name), catalog.find(name)
    work = replace(script.WORK, measure=lambda cell, bench: None, load=None, draw=None)
    campaign.main(script.__file__, work, ["--again", "--runs", str(tmp_path)])
    shown = capsys.readouterr().out
    assert "on two idle cores" in shown
    assert "There is no row yet." in shown
    assert experiment.forecast() < 120
