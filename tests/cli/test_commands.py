"""The command line as people and scripts use it: results, exit codes, one clear line for whatever goes wrong."""

import json
import re
import shutil

import numpy as np
import pytest
from typer.testing import CliRunner

import mile
from mile.cli import app
from mile.fitting.conformal import conformal_interval
from mile.storage import read_table, write_table

BUDGET = ["--chains", "2", "--warmup-steps", "100", "--sampling-steps", "60", "--draws", "30", "--seed", "0"]
N_ROWS = 60


def run(*arguments):
    """Run a command in this process."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def succeed(*arguments):
    """Run a command that must end well and return what it wrote to standard output."""
    result = run(*arguments)
    assert result.exit_code == 0, (result.stdout, result.stderr, result.exception)
    return result.stdout


def fail(*arguments):
    """Run a command that must end with one line on standard error, and return it."""
    result = run(*arguments)
    assert result.exit_code == 1, (result.stdout, result.stderr, result.exception)
    lines = [line for line in result.stderr.splitlines() if not line.startswith("Warning: ")]
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("Error: ")
    assert "Traceback" not in result.stderr
    return lines[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("commands")


@pytest.fixture(scope="module")
def columns():
    rng = np.random.default_rng(0)
    height, weight = rng.normal(size=(2, N_ROWS))
    return {
        "height": height,
        "weight": weight,
        "kind": np.array(["cat", "dog", "<b>owl</b>"], object)[np.arange(N_ROWS) % 3],
        "count": np.arange(N_ROWS) % 4,
        "price": 100 + 10 * height + rng.normal(size=N_ROWS),
    }


@pytest.fixture(scope="module")
def data(folder, columns):
    path = folder / "animals.csv"
    write_table(path, columns)
    return path


@pytest.fixture(scope="module")
def regression(folder, data):
    path = folder / "price.run"
    answer = json.loads(succeed("fit", data, "--target", "price", "--drop", "kind", "--out", path, "--json", *BUDGET))
    return path, answer


@pytest.fixture(scope="module")
def classification(folder, data):
    path = folder / "kind.run"
    model = folder / "kind.mile"
    text = succeed("fit", data, "-t", "kind", "--drop", "price", "--out", path, "--save", model, *BUDGET)
    return path, model, text


@pytest.fixture(scope="module")
def folded(folder, columns):
    path, out = folder / "owners.csv", folder / "owners.run"
    write_table(path, columns | {"owner": np.array([f"owner {row // 4}" for row in range(N_ROWS)], object)})
    budget = [*BUDGET, "--chains", "3", "--sampler", "deep_ensemble"]  # the last --chains counts
    options = ["-t", "price", "--drop", "kind", "--folds", "3", "--groups", "owner", "--out", out]
    return path, out, options, budget, succeed("fit", path, *options, *budget)


class TestFit:
    def test_writes_a_run_and_answers_in_json(self, regression):
        path, answer = regression
        assert answer["run"] == str(path)
        assert answer["chains"] == {"0": "ok", "1": "ok"}
        assert (answer["draws"], answer["seed"]) == (30, 0)
        assert set(answer["validation"]) >= {"deep_ensemble", "mile", "mile_standardized"}
        assert (path / "MANIFEST.json").exists()

    def test_gives_the_same_model_as_python(self, regression, columns):
        x = np.stack([columns[name] for name in ("height", "weight", "count")], axis=1).astype(float)
        options = {"warmup_steps": 100, "sampling_steps": 60, "n_draws": 30, "n_chains": 2, "random_state": 0}
        model = mile.MileRegressor(**options).fit(x, columns["price"])
        np.testing.assert_array_equal(mile.load(regression[0]).fit_.predictive(x).mean, model.predict(x))

    def test_tells_people_what_it_found_and_what_to_do_next(self, classification):
        path, model, text = classification
        assert f"{N_ROWS} rows, 3 features, classification: 'kind' is text with 3 different values." in text
        assert "2 chains of 30 draws" in text
        assert "accuracy (higher is better)" in text
        assert f"mile report {path}" in text
        assert model.exists()

    def test_knows_its_columns_and_target_again(self, regression):
        model = mile.load(regression[0])
        assert model.feature_names_in_.tolist() == ["height", "weight", "count"]
        assert model.target_name_ == "price"

    def test_again_loads_the_finished_run(self, folder, data, regression):
        before = (regression[0] / "MANIFEST.json").read_bytes()
        succeed("fit", data, "--target", "price", "--drop", "kind", "--out", regression[0], "--quiet", *BUDGET)
        assert (regression[0] / "MANIFEST.json").read_bytes() == before

    def test_into_another_run_is_refused_by_the_name_of_the_field(self, data, regression):
        line = fail("fit", data, "--target", "weight", "--drop", "kind", "--out", regression[0], *BUDGET)
        assert "data" in line

    def test_quiet_says_nothing(self, folder, data):
        arguments = ["--target", "price", "--drop", "kind", "--out", folder / "quiet.run", "--quiet", *BUDGET]
        result = run("fit", data, *arguments)
        assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")

    @pytest.mark.parametrize(
        ("target", "task", "expected"),
        [
            ("price", "auto", "regression"),
            ("count", "auto", "classification"),
            ("kind", "auto", "classification"),
            ("count", "regression", "regression"),
        ],
    )
    def test_chooses_the_task_by_the_target(self, data, target, task, expected):
        from mile.cli._data import read_problem
        from mile.cli._reading import DataFile

        drop = ["kind"] if target != "kind" else []
        assert read_problem(DataFile(data), target, drop, task).task == expected


class TestPredict:
    def test_of_numbers_gives_mean_deviation_interval_and_quantiles(self, folder, data, regression, columns):
        out = folder / "predictions.csv"
        succeed("predict", regression[0], data, "--out", out, "--interval", "0.8", "--quantiles", "0.1,0.5")
        table = read_table(out)
        assert table.columns == ("mean", "std", "lower_80", "upper_80", "q0.1", "q0.5")
        x = np.stack([columns[name] for name in ("height", "weight", "count")], axis=1).astype(float)
        predictive = mile.load(regression[0]).fit_.predictive(x)
        np.testing.assert_array_equal(table.column("mean"), predictive.mean)
        np.testing.assert_allclose(table.column("lower_80"), table.column("q0.1"), rtol=1e-9)
        np.testing.assert_allclose(table.column("q0.5"), predictive.quantile(0.5), rtol=1e-9)

    def test_of_classes_gives_label_and_probabilities(self, data, classification):
        path, model, _ = classification
        text = succeed("predict", path, data)
        assert text.splitlines()[0] == "label,probability,p_<b>owl</b>,p_cat,p_dog"
        assert len(text.splitlines()) == N_ROWS + 1
        assert succeed("predict", model, data) == text

    def test_finds_columns_by_name_in_any_order(self, folder, regression, columns, data):
        path = folder / "turned.csv"
        write_table(path, {name: columns[name] for name in ("weight", "count", "height")})
        assert succeed("predict", regression[0], path) == succeed("predict", regression[0], data)

    def test_of_a_table_without_a_column_names_it(self, folder, regression, columns):
        path = folder / "short.csv"
        write_table(path, {"height": columns["height"], "count": columns["count"]})
        assert "no column 'weight'" in fail("predict", regression[0], path)

    @pytest.mark.parametrize(
        ("option", "value"),
        [("--interval", "1.5"), ("--interval", "nan"), ("--quantiles", "0.5,2"), ("--quantiles", "half")],
    )
    def test_with_an_impossible_level_names_the_option(self, data, regression, option, value):
        assert option in fail("predict", regression[0], data, option, value)

    def test_refuses_quantiles_of_classes(self, data, classification):
        assert "classes" in fail("predict", classification[0], data, "--quantiles", "0.5")

    def test_to_an_unknown_kind_of_file_names_those_known(self, folder, data, regression):
        assert ".csv" in fail("predict", regression[0], data, "--out", folder / "p.docx")


class TestEvaluate:
    def test_equals_the_metrics_of_python(self, data, regression, columns):
        found = json.loads(succeed("evaluate", regression[0], data, "--json"))
        x = np.stack([columns[name] for name in ("height", "weight", "count")], axis=1).astype(float)
        fit = mile.load(regression[0]).fit_
        from mile import metrics

        assert found["rows"] == N_ROWS
        np.testing.assert_allclose(found["mile"]["lppd"], metrics.lppd(fit.predictive(x), columns["price"]))
        np.testing.assert_allclose(
            found["deep_ensemble"]["rmse"], metrics.rmse(fit.ensemble_predictive(x), columns["price"])
        )

    def test_of_classes_takes_labels_as_texts(self, data, classification):
        text = succeed("evaluate", classification[0], data)
        assert re.search(r"accuracy \(higher is better\) +0\.\d+ +0\.\d+", text)

    def test_of_a_label_never_seen_names_it(self, folder, classification, columns):
        path = folder / "newlabel.csv"
        write_table(path, columns | {"kind": np.array(["emu"] * N_ROWS, object)})
        assert "emu" in fail("evaluate", classification[0], path)


class TestReport:
    def test_of_a_run_is_about_its_validation_rows_and_says_so(self, regression):
        answer = json.loads(succeed("report", regression[0], "--json"))
        page = (regression[0] / "report.html").read_text()
        assert answer["report"] == str(regression[0] / "report.html")
        assert "validation rows" in page
        assert "price" in page

    def test_of_test_rows_names_the_file(self, folder, data, classification):
        out = folder / "kinds.html"
        succeed("report", classification[0], "--data", data, "--out", out)
        page = out.read_text()
        assert "animals.csv" in page
        assert "<b>owl</b>" not in page  # labels are escaped

    def test_of_three_rows_says_that_none_are_left_to_judge_by(self, folder, columns):
        path, out = folder / "three.csv", folder / "three.run"
        write_table(path, {name: columns[name][:3] for name in ("height", "price")})
        succeed("fit", path, "--target", "price", "--out", out, "--quiet", *BUDGET)
        succeed("report", out)
        assert "keeps no validation rows" in (out / "report.html").read_text()

    def test_of_a_model_file_without_rows_has_diagnostics_only(self, folder, classification):
        out = folder / "model.html"
        succeed("report", classification[1], "--out", out)
        assert "R-hat" in out.read_text()


class TestFolds:
    def test_scores_are_those_of_left_out_rows(self, folded):
        _, out, _, _, text = folded
        assert f"each of {N_ROWS} rows by the chains that never saw it" in text
        assert re.search(r"CRPS +\S+ ± \S+ +\S+ ± \S+", text)
        model = mile.load(out)
        assert model.feature_names_in_.tolist() == ["height", "weight", "count"]  # the group is no feature
        fold = model.oof_.fold
        assert all(len(set(fold[start : start + 4])) == 1 for start in range(0, N_ROWS, 4))

    def test_json_and_report_have_them(self, folded):
        path, out, options, budget, _ = folded
        answer = json.loads(succeed("fit", path, *options, *budget, "--json"))
        assert answer["validation"] is None
        assert (answer["out_of_fold"]["rows"], answer["out_of_fold"]["folds"]) == (N_ROWS, 3)
        assert answer["out_of_fold"]["deep_ensemble"]["rmse"].keys() == {"value", "standard_error"}
        succeed("report", out)
        page = (out / "report.html").read_text()
        assert f"Scores: out-of-fold, {N_ROWS} rows." in page
        assert "validation rows" not in page

    def test_conformal_intervals_are_those_of_python(self, folder, folded):
        path, out, *_ = folded
        found = folder / "conformal.csv"
        succeed("predict", out, path, "--conformal", "--interval", "0.8", "--out", found)
        table = read_table(found)
        data = read_table(path)
        x = np.stack([data.column(name) for name in ("height", "weight", "count")], axis=1).astype(float)
        ends = conformal_interval(mile.load(out).fit_, x, 0.8)
        np.testing.assert_allclose(table.column("lower_80"), ends[:, 0], rtol=1e-6)
        np.testing.assert_allclose(table.column("upper_80"), ends[:, 1], rtol=1e-6)

    def test_a_column_that_is_missing_is_named(self, folded):
        path, *_ = folded
        assert "nobody" in fail("fit", path, "-t", "price", "--groups", "nobody")


class TestOthers:
    def test_forecast_says_time_memory_and_disk(self, data):
        arguments = ["--target", "price", "--drop", "kind", *BUDGET[:-2]]
        found = json.loads(succeed("forecast", data, *arguments, "--json"))
        assert found["gradient_evaluations"] == 2 * (2 * 160 + 1)
        assert found["total_seconds"] > 0
        assert found["memory_bytes"] > 1e8
        assert found["disk_bytes"] > 2 * 30 * found["n_weights"] * 4

    def test_doctor_names_versions_device_and_kernel(self):
        found = json.loads(succeed("doctor", "--json"))
        assert {"python", "jax", "devices", "native kernel", "threads", "compiled programs", "memory"} <= set(found)
        assert found["mile-bnn"]["value"] == mile.__version__
        assert "native kernel" in succeed("doctor")

    def test_doctor_says_that_the_kernel_is_switched_off(self, monkeypatch):
        monkeypatch.setenv("MILE_NATIVE", "0")
        assert "unset MILE_NATIVE" in json.loads(succeed("doctor", "--json"))["native kernel"]["advice"]

    def test_export_writes_draws_that_xarray_reads(self, folder, regression):
        xarray = pytest.importorskip("xarray")
        succeed("export", regression[0], "--out", folder / "draws.nc")
        with xarray.open_datatree(folder / "draws.nc") as tree:
            assert tree["posterior"]["weights"].shape == mile.load(regression[0]).fit_.chains.draws.shape

    def test_export_writes_a_graph_with_the_quantiles_that_were_asked_for(self, folder, data, regression):
        onnx = pytest.importorskip("onnx")
        answer = succeed("export", regression[0], folder / "m.onnx", "--quantiles", "0.1,0.5", "--half", "--json")
        assert json.loads(answer)["file"] == str(folder / "m.onnx")
        names = [output.name for output in onnx.load(folder / "m.onnx").graph.output]
        assert names[-2:] == ["q0.1", "q0.5"]
        assert "given once" in fail("export", regression[0], folder / "m.onnx", "--out", folder / "n.onnx")
        assert "must end in one of" in fail("export", regression[0], folder / "m.txt")

    def test_resume_of_a_finished_run_loads_it(self, regression):
        assert json.loads(succeed("resume", regression[0], "--json"))["draws"] == 30

    def test_repair_of_a_whole_run_says_so(self, regression):
        assert "nothing to repair" in succeed("repair", regression[0])

    def test_version_is_printed(self):
        assert succeed("--version").strip() == mile.__version__


class TestMistakes:
    @pytest.mark.parametrize("command", ["predict", "evaluate"])
    def test_a_wrong_model_path_is_named(self, folder, data, command):
        assert "nowhere.run" in fail(command, folder / "nowhere.run", data)

    @pytest.mark.parametrize("command", ["report", "export", "resume", "repair"])
    def test_a_wrong_run_path_is_named(self, folder, command):
        assert "nowhere.run" in fail(command, folder / "nowhere.run")

    @pytest.mark.parametrize("command", ["fit", "forecast"])
    def test_a_wrong_data_path_is_named(self, folder, command):
        assert "nothing.csv" in fail(command, folder / "nothing.csv", "--target", "price")

    def test_a_folder_that_is_no_run_is_named(self, folder, data):
        (folder / "empty").mkdir()
        assert "empty" in fail("predict", folder / "empty", data)

    @pytest.mark.parametrize("command", ["fit", "forecast"])
    def test_an_unknown_column_is_named_with_those_there_are(self, data, command):
        line = fail(command, data, "--target", "prize", "--drop", "kind")
        assert "'prize'" in line
        assert "'price'" in line

    def test_an_unknown_column_to_drop_is_named(self, data):
        assert "'sort'" in fail("fit", data, "--target", "price", "--drop", "sort")

    def test_a_text_as_target_of_a_regression_names_row_and_cell(self, data):
        line = fail("fit", data, "--target", "kind", "--task", "regression", "--drop", "price")
        assert "'kind'" in line
        assert "'cat'" in line
        assert "row 1" in line

    def test_a_target_of_texts_that_are_all_different_is_not_taken_for_classes(self, folder, columns):
        path = folder / "names.csv"
        write_table(path, columns | {"name": np.array([f"n{row}" for row in range(N_ROWS)], object)})
        line = fail("fit", path, "--target", "name", "--drop", "kind")
        assert "'name'" in line
        assert "'n0'" in line

    def test_a_target_without_any_value_is_refused(self, folder, columns):
        path = folder / "gap.csv"
        write_table(path, columns | {"price": np.full(N_ROWS, np.nan)})
        assert "The target 'price' is empty in all 60 rows of gap.csv" in fail("fit", path, "--target", "price")

    def test_a_half_written_run_says_where_it_is(self, folder, data, regression):
        path = folder / "half.run"
        shutil.copytree(regression[0], path)
        manifest = path / "MANIFEST.json"
        manifest.write_bytes(manifest.read_bytes()[:100])
        assert "repair" in fail("predict", path, data)
        assert "repair" in fail("report", path)

    def test_a_folder_that_cannot_be_written_is_named(self, folder, data, regression):
        blocked = data / "inside"  # a file stands where a folder is needed
        line = fail("fit", data, "--target", "price", "--drop", "kind", "--out", blocked, *BUDGET)
        assert "inside" in line
        assert "inside" in fail("predict", regression[0], data, "--out", blocked / "p.csv")
        assert "inside" in fail("report", regression[0], "--out", blocked / "r.html")
        assert "inside" in fail("export", regression[0], "--out", blocked / "d.nc")

    @pytest.mark.parametrize(
        ("option", "value", "word"),
        [
            ("--hidden", "16;16", "--hidden"),
            ("--time-limit", "soon", "--time-limit"),
            ("--task", "guess", "--task"),
            ("--preset", "fast", "preset"),
            ("--sampler", "gibbs", "sampler"),
            ("--chains", "0", "n_chains"),
            ("--draws", "1000", "n_draws"),
            ("--dask-verify", "0.5", "--dask ADDRESS"),
        ],
    )
    def test_a_wrong_option_is_named(self, folder, data, option, value, word):
        arguments = [part for part in BUDGET if part not in ("--chains", "--draws")] if option in BUDGET else BUDGET
        arguments = ["--warmup-steps", "100", "--sampling-steps", "60", option, value]
        assert word in fail("fit", data, "-t", "price", "--drop", "kind", "--out", folder / "never.run", *arguments)
        assert not (folder / "never.run").exists()

    def test_a_file_that_is_not_a_model_is_refused(self, data):
        assert "animals.csv" in fail("predict", data, data)

    def test_an_unknown_command_ends_with_code_two(self):
        assert run("fly").exit_code == 2
        assert run("fit").exit_code == 2

    def test_something_unexpected_still_ends_with_one_line(self, monkeypatch, data, regression):
        from mile.cli import _use

        def break_down(*_):
            raise RuntimeError("two lines\nof text")

        monkeypatch.setattr(_use, "load_model", break_down)
        line = fail("predict", regression[0], data)
        assert "RuntimeError: two lines of text" in line
        assert "--traceback" in line
