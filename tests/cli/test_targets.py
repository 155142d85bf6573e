"""The column to predict: what it is taken for, and what is refused before it can be taken for something else."""

import json

import pytest
from typer.testing import CliRunner

from mile.cli import app

N_ROWS = 60
NUMBERS = [str(row % 23) for row in range(N_ROWS)]


@pytest.fixture
def inspected(tmp_path):
    """What `mile inspect` answers, or its complaint, for a table with this target."""

    def inspect(cells, *options):
        path = tmp_path / "data.csv"
        rows = [f"{row / 7},{cell}" for row, cell in enumerate(cells)]
        path.write_text("\n".join(["size,y", *rows]) + "\n")
        result = CliRunner().invoke(app, ["inspect", str(path), "--target", "y", "--json", *options])
        return json.loads(result.stdout) if result.exit_code == 0 else result.stderr

    return inspect


def with_cell(cell, row=7):
    return [*NUMBERS[:row], cell, *NUMBERS[row + 1 :]]


def test_a_text_among_numbers_is_refused_with_its_place_and_what_to_do(inspected):
    for cells in (with_cell("oops"), ["0", "1"] * 29 + ["1", "oops"]):
        line = inspected(cells)
        assert f"'oops' in row {cells.index('oops') + 1} (line" in line
        assert "the only cell that is no number" in line
        assert "--task classification" in line
    assert "the first of 30 cells" in inspected(["x", "1.5"] * 30)


def test_a_question_mark_among_numbers_is_a_missing_target(inspected):
    answer = inspected(with_cell("?"))
    assert (answer["task"], answer["rows_without_target"]) == ("regression", 1)


def test_labels_stay_labels(inspected):
    kinds = {
        "words": ["yes", "no"] * 30,
        "numbers with a word": ["0", "1", "2", "3 or more"] * 15,
        "codes": ["01", "02", "10"] * 20,
        "mostly words": ["a", "b", "7"] * 20,
        "asked for": with_cell("oops"),
    }
    for name, cells in kinds.items():
        options = ["--task", "classification"] if name == "asked for" else []
        assert inspected(cells, *options)["task"] == "classification", name


def test_large_labels_do_not_merge(inspected):
    for large in ([2**53, 2**53 + 1], [2**64 - 1, 2**64 - 2]):
        answer = inspected(large * 30)
        assert answer["task"] == "classification", large


def test_numbers_that_would_round_to_a_constant_are_refused(inspected):
    line = inspected([2**63 + row for row in range(N_ROWS)])
    assert "whole number that is rounded" in line
    assert f"Subtract a constant first, such as {2**63}" in line


def test_dates_are_refused_with_advice(inspected):
    cells = [f"2020-01-{1 + row % 9:02}" for row in range(N_ROWS)]
    line = inspected(cells)
    assert "holds dates, such as '2020-01-01' in row 1 (line 2 of data.csv)" in line
    assert "days since a fixed date" in line
    assert inspected(cells, "--task", "classification")["task"] == "classification"


def test_a_word_for_missing_cells_may_be_given(inspected):
    answer = inspected(with_cell("oops"), "--missing", "oops")
    assert (answer["task"], answer["rows_without_target"]) == ("regression", 1)


def test_auto_takes_whole_numbers_for_numbers_and_says_in_a_line_what_it_chose(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("\n".join(["size,y", *(f"{row / 7},{row % 4}" for row in range(30))]) + "\n")
    words = ["fit", str(path), "--target", "y", "--likelihood", "auto", "--sampler", "deep_ensemble"]
    fitted = CliRunner().invoke(app, [*words, "--chains", "3", "--preset", "quick", "--json"])
    line = 'likelihood="auto" chose gaussian: y is 30 rows, too few to compare families.'
    assert json.loads(fitted.stdout)["likelihood"] == [line]
    assert "crps" in fitted.stdout, "a score of numbers"
