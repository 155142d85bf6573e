"""Texts from the command line: fit, resume, predict, evaluate, report and forecast, and what goes wrong."""

import json

import numpy as np
import pytest
from sentences import some_sentences
from typer.testing import CliRunner

import mile
from mile.cli import app
from mile.networks import TEXT_TEMPLATES
from mile.storage import read_table, write_table

BUDGET = ["--chains", "2", "--warmup-steps", "60", "--sampling-steps", "40", "--draws", "20", "--seed", "0"]
TEXTS, LABELS = some_sentences(60)


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def succeed(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, (result.stdout, result.stderr, result.exception)
    return result.stdout


def fail(*arguments):
    """Run a command that must end with one line on standard error, and return it."""
    result = run(*arguments)
    assert result.exit_code == 1, (result.stdout, result.stderr, result.exception)
    assert "Traceback" not in result.stderr
    (line,) = [line for line in result.stderr.splitlines() if not line.startswith("Warning: ")]
    assert line.startswith("Error: ")
    return line


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("texts")


@pytest.fixture(scope="module", autouse=True)
def small_networks():
    """Let the paper's names stand for small networks, so that these tests are quick."""
    from sentences import SMALL

    usual = dict(TEXT_TEMPLATES)
    TEXT_TEMPLATES.update(dict.fromkeys(usual, SMALL))
    yield
    TEXT_TEMPLATES.update(usual)


@pytest.fixture(scope="module")
def data(folder):
    path = folder / "reviews.csv"
    texts = [f'{text},\n"quoted" <br />' for text in TEXTS[:-1]] + [""]  # of several lines, and an empty cell
    columns = {"number": np.arange(60), "review": np.array(texts, object), "mood": np.array(LABELS, object)}
    write_table(path, columns)
    return path


@pytest.fixture(scope="module")
def fitted(folder, data):
    path, model = folder / "reviews.run", folder / "reviews.mile"
    text = succeed("fit", data, "--text", "review", "--target", "mood", "--out", path, "--save", model, *BUDGET)
    return path, model, text


def test_fit_tells_what_it_read_and_keeps_it(fitted):
    path, model, text = fitted
    assert "60 texts in 'review', classification: 'mood' has 2 different labels." in text
    assert "accuracy" in text
    assert f"mile predict {path} NEW.csv" in text
    loaded = mile.load(model)
    assert isinstance(loaded, mile.MileTextClassifier)
    assert (loaded.text_name_, loaded.target_name_) == ("review", "mood")


def test_fit_gives_the_same_model_as_python(fitted, data):
    texts = read_table(data).column("review")
    texts = ["" if text is None else text for text in texts]
    options = {"warmup_steps": 60, "sampling_steps": 40, "n_draws": 20, "n_chains": 2, "random_state": 0}
    model = mile.MileTextClassifier(**options).fit(texts, LABELS)
    np.testing.assert_array_equal(mile.load(fitted[0]).predict_proba(TEXTS), model.predict_proba(TEXTS))


def test_resume_of_a_finished_run_gives_it_back(fitted):
    answer = json.loads(succeed("resume", fitted[0], "--json"))
    assert answer["draws"] == 20
    assert set(answer["validation"]) == {"deep_ensemble", "mile"}


@pytest.mark.parametrize("which", [0, 1])
def test_predict_finds_the_column_of_texts_by_its_name(fitted, folder, which):
    new = folder / "new.csv"
    write_table(
        new, {"id": np.arange(3), "mood": np.array(["?", "?", "?"], object), "review": np.array(TEXTS[:3], object)}
    )
    out = folder / f"predictions{which}.csv"
    succeed("predict", fitted[which], new, "--out", out)
    table = read_table(out)
    assert table.columns == ("label", "probability", "p_bad", "p_good")
    loaded = mile.load(fitted[which])
    np.testing.assert_allclose(table.column("p_good"), loaded.predict_proba(TEXTS[:3])[:, 1], rtol=1e-6)


def test_evaluate_scores_labels(fitted, data):
    answer = json.loads(succeed("evaluate", fitted[0], data, "--json"))
    assert answer["rows"] == 60
    assert 0.0 <= answer["mile"]["accuracy"] <= 1.0


@pytest.mark.parametrize("with_data", [True, False])
def test_report_writes_a_page(fitted, data, folder, with_data):
    page = folder / "page.html"
    succeed("report", fitted[0], "--out", page, *(["--data", data] if with_data else []))
    assert "from texts of up to 12 tokens" in page.read_text()


def test_forecast_knows_texts(data):
    answer = json.loads(succeed("forecast", data, "--text", "review", "--target", "mood", "--json", *BUDGET[:-2]))
    assert answer["n_weights"] > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--text", "reveiw", "--target", "mood"], ["no column 'reveiw'", "did you mean 'review'"]),
        (["--text", "number", "--target", "mood"], ["'number'", "numbers, not texts"]),
        (["--text", "review", "--target", "mod"], ["no column 'mod'"]),
        (["--text", "review"], ["--target must name"]),
        (["--text", "mood", "--target", "mood"], ["two columns"]),
        (["--text", "review", "--target", "mood", "--drop", "number"], ["--drop"]),
        (["--text", "review", "--target", "mood", "--task", "regression"], ["--task", "regression"]),
        (["--text", "review", "--target", "mood", "--hidden", "16"], ["--hidden", "--network"]),
        (["--text", "review", "--target", "mood", "--network", "lenet5"], ["network must be one of", "att_v1"]),
    ],
)
def test_mistakes_are_named_before_any_training(data, folder, arguments, words):
    line = fail("fit", data, "--out", folder / "mistake.run", *arguments, *BUDGET)
    assert all(word in line for word in words), line


def test_a_table_without_the_column_is_refused_by_its_name(fitted, folder):
    other = folder / "other.csv"
    write_table(other, {"text": np.array(TEXTS[:3], object)})
    assert "no column 'review'" in fail("predict", fitted[0], other)


def test_a_model_that_does_not_know_its_column_takes_the_only_one_of_text(folder, data):
    model = mile.MileTextClassifier(sampler="deep_ensemble", n_chains=2, max_epochs=1, random_state=0)
    model.fit(TEXTS, LABELS).save(folder / "nameless.mile")
    only = folder / "only.csv"
    write_table(only, {"id": np.arange(3), "anything": np.array(TEXTS[:3], object)})
    assert len(succeed("predict", folder / "nameless.mile", only).splitlines()) == 4
    assert "2 columns of text" in fail("predict", folder / "nameless.mile", data)
    assert "give --target" in fail("evaluate", folder / "nameless.mile", data)
