"""Tables as files have them: texts, gaps, yes and no go through every command without preparation."""

import json
from unittest import mock

import numpy as np
import pytest
from typer.testing import CliRunner

import mile
from mile.cli import app
from mile.fitting import distillation
from mile.storage import read_table

BUDGET = ["--chains", "2", "--hidden", "4", "--warmup-steps", "40", "--sampling-steps", "20", "--draws", "10"]
BUDGET = [*BUDGET, "--seed", "0", "--quiet"]
N_ROWS = 60
HEADER = "id,size,rooms,city,is_new,garden,zip,price,sold"


def lines():
    rng = np.random.default_rng(0)
    for row in range(N_ROWS):
        city = ["Oslo", "Rome", "<b>Bonn</b>"][row % 3]
        size = "NA" if row % 11 == 0 else f"{rng.normal():.3f}"
        rooms = ["1", "2", "?", ""][row % 4]
        price = "" if row in (5, 7) else f"{row % 3 + rng.normal():.3f}"
        flags = f"{row % 2 == 0},{['yes', 'no'][row % 5 % 2]}"
        yield f"house-{row},{size},{rooms},{city},{flags},{1000 + row % 4},{price},{['no', 'yes'][row % 2]}"


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def succeed(*arguments):
    result = invoke(*arguments)
    assert result.exit_code == 0, (result.stdout, result.stderr, result.exception)
    return result


def fail(*arguments):
    result = invoke(*arguments)
    assert result.exit_code == 1, (result.stdout, result.stderr, result.exception)
    return result.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("table-commands")


@pytest.fixture(scope="module")
def data(folder):
    path = folder / "houses.csv"
    path.write_text("\n".join([HEADER, *lines()]) + "\n")
    return path


@pytest.fixture(scope="module")
def regression(folder, data):
    path = folder / "price.run"
    result = succeed("fit", data, "--target", "price", "--category", "zip", "--out", path, *BUDGET)
    return path, result.stderr


@pytest.fixture(scope="module")
def classification(folder, data):
    path, model = folder / "sold.run", folder / "sold.mile"
    succeed("fit", data, "-t", "sold", "--ignore", "price,zip", "--out", path, "--save", model, *BUDGET)
    return path, model


def kinds(path):
    return {column.name: column.kind for column in mile.load(path).columns_}


class TestFit:
    def test_every_column_is_taken_for_what_it_is(self, regression):
        assert kinds(regression[0]) == {
            "id": "ignored",
            "size": "number",
            "rooms": "number",
            "city": "category",
            "is_new": "boolean",
            "garden": "boolean",
            "zip": "category",
            "sold": "boolean",
        }

    def test_rows_without_a_target_are_counted(self, regression):
        assert "Warning: y has no value in 2 of 60 rows, which are left out." in regression[1]

    def test_ignored_columns_are_left_out(self, classification):
        assert kinds(classification[0])["price"] == kinds(classification[0])["zip"] == "ignored"
        assert mile.load(classification[1]).classes_.tolist() == ["no", "yes"]

    def test_a_kind_for_an_unknown_column_is_refused_with_those_there_are(self, data):
        line = fail("fit", data, "--target", "price", "--number", "sizes", *BUDGET)
        assert "has no column 'sizes'; did you mean 'size'?" in line

    def test_two_kinds_for_one_column_are_refused(self, data):
        line = fail("fit", data, "--target", "price", "--number", "zip", "--category", "city,zip", *BUDGET)
        assert "Column 'zip' cannot be both" in line

    def test_a_kind_for_the_target_is_refused(self, data):
        assert "is the target" in fail("fit", data, "--target", "price", "--number", "price", *BUDGET)


class TestUse:
    def test_predictions_stand_beside_identifiers(self, folder, data, regression):
        out = folder / "predictions.csv"
        succeed("predict", regression[0], data, "--out", out)
        table = read_table(out)
        assert table.columns[:2] == ("id", "mean")
        assert table.column("id")[7] == "house-7"
        assert np.isfinite(table.column("mean")).all()

    def test_columns_that_are_asked_for_are_copied(self, folder, data, classification):
        out = folder / "kept.csv"
        succeed("predict", classification[1], data, "--keep", "city,zip", "--out", out)
        table = read_table(out)
        assert table.columns[:2] == ("city", "zip")
        assert len(table) == N_ROWS

    def test_order_extras_and_gaps_are_fine_and_unseen_texts_are_counted(self, folder, data, regression):
        path = folder / "new.csv"
        path.write_text("color,city,size,rooms,garden,is_new,sold,zip\nred,Paris,1.5,,no,True,yes,1001\n")
        result = succeed("predict", regression[0], path)
        assert "Warning: Texts that training did not have and that count as rare ones in 'city': 1." in result.stderr
        assert len(result.stdout.splitlines()) == 2

    def test_several_files_in_an_unusual_form_are_one_table(self, folder, regression):
        new = folder / "new"
        new.mkdir()
        for place in range(2):
            row = f"Rome;{place},5;1;no;True;yes;1001"
            (new / f"{place}.csv").write_text(f"city;size;rooms;garden;is_new;sold;zip\n{row}\n")
        result = succeed("predict", regression[0], new / "*.csv")
        assert len(result.stdout.splitlines()) == 3
        assert "0.csv is read with semicolons between cells and decimal commas" in result.stderr
        assert "decimal" not in succeed("predict", regression[0], new / "*.csv", "--quiet").stderr
        (new / "2.csv").write_text("city\nRome\n")
        assert "2.csv has no column 'size', which 0.csv has" in fail("predict", regression[0], new / "*.csv")

    def test_a_missing_column_is_named(self, folder, regression):
        path = folder / "short.csv"
        path.write_text("size,rooms\n1,2\n")
        assert "has no column 'city'" in fail("predict", regression[0], path)

    def test_evaluation_leaves_out_rows_without_a_target(self, data, regression):
        result = succeed("evaluate", regression[0], data, "--json")
        assert json.loads(result.stdout)["rows"] == N_ROWS - 2
        assert "'price' has no value in 2 of 60 rows" in result.stderr

    def test_resuming_a_finished_run_loads_it(self, regression):
        succeed("resume", regression[0])

    def test_reports_name_the_features_and_escape_them(self, folder, data, regression):
        for options in ([], ["--data", data]):
            succeed("report", regression[0], *options, "--out", folder / "report.html")
            page = (folder / "report.html").read_text()
            assert "city = Rome" in page
            assert "3 levels: &lt;b&gt;Bonn&lt;/b&gt;, Oslo, Rome" in page
            assert "left out: it is an identifier" in page
            assert "<b>Bonn" not in page


HOSTILE = "\x1b]0;owned\x07=x"


class TestHostileNames:
    def test_no_command_reaches_a_terminal(self, folder):
        path = folder / f"bad{HOSTILE}.csv"
        rows = [f"{row},{row / 7},{HOSTILE}{row % 2}" for row in range(N_ROWS)]
        path.write_text("\n".join([f"size,{HOSTILE},label", *rows]) + "\n")
        results = [
            succeed("inspect", path, "--target", "label"),
            succeed("inspect", path, "--target", "label", "--json"),
            invoke("inspect", path, "--target", HOSTILE + "y"),
            invoke("fit", folder / HOSTILE, "--target", "y"),
            invoke("predict", folder / HOSTILE, path),
        ]
        for result in results:
            assert result.output
            assert "\x1b" not in result.output, result.output
            assert "\x07" not in result.output

    def test_formulas_are_neutral_in_predictions_unless_asked_for(self, folder, data, regression):
        bad = folder / "formulas.csv"
        bad.write_text(data.read_text().replace("house-3,", '"=HYPERLINK(""x"")",'))
        assert "\n\"'=HYPERLINK" in succeed("predict", regression[0], bad).stdout
        assert '\n"=HYPERLINK' in succeed("predict", regression[0], bad, "--keep-formulas").stdout


class TestInspect:
    def test_prints_what_a_fit_would_do(self, data):
        text = succeed("inspect", data, "--target", "price", "--category", "zip").stdout
        assert "58 rows, 8 columns, regression: 'price' is a number. 2 rows without a target are left out." in text
        by_name = {line.split()[0]: line for line in text.splitlines() if line.strip()}
        assert "3 levels" in by_name["city"]
        assert "identifier" in by_name["id"]
        assert "category" in by_name["zip"]

    def test_answers_in_json(self, data):
        found = json.loads(succeed("inspect", data, "--target", "sold", "--json").stdout)
        assert found["task"] == "classification"
        assert {column["name"]: column["kind"] for column in found["columns"]}["rooms"] == "number"

    def test_needs_a_target(self, data):
        assert "--target must name the column to predict" in fail("inspect", data)


class TestCompress:
    def test_a_run_becomes_a_small_file_that_predicts(self, folder, data, regression):
        run, _ = regression
        small = folder / "small.mile"
        answer = json.loads(succeed("compress", run, small, "--draws", "8", "--json", "--quiet").stdout)
        assert answer["draws"] == 8
        assert answer["bytes"] == small.stat().st_size
        assert 0.0 < answer["expected_loss"]["value"] < 1.0
        assert len(succeed("predict", small, data).stdout.splitlines()) == N_ROWS + 1

    def test_a_file_needs_rows_to_choose_by(self, folder, data, regression):
        whole, small = folder / "whole.mile", folder / "smaller.mile"
        mile.load(regression[0]).save(whole)
        assert "--data" in fail("compress", whole, small, "--draws", "8")
        words = succeed("compress", whole, small, "--draws", "8", "--data", data).stdout
        assert words.startswith("8 of ")
        assert mile.load(small).fit_.chains.draws.shape[:2] == (8, 1)

    def test_a_run_becomes_a_student_that_predicts(self, folder, data, regression):
        student, command = folder / "student.mile", ("--networks", "6", "--loss", "50")
        with mock.patch.multiple(distillation, _STEPS=20, _PRACTICE_ROWS=300, _CHECKED_VALUES=2):
            words = succeed("distill", regression[0], student, *command).stdout
            answer = json.loads(succeed("distill", regression[0], student, *command, "--json", "--quiet").stdout)
        assert words.startswith("6 networks for ")
        assert len(succeed("predict", student, data).stdout.splitlines()) == N_ROWS + 1
        assert (answer["networks"], answer["instead"]) == (6, None)
        assert answer["bytes"] == student.stat().st_size
