"""Models beside each other: the right rows, paired errors, and refusals of what does not compare."""

import json
import re

import matplotlib
import numpy as np
import pytest
from cases import case
from typer.testing import CliRunner

import mile
from mile import MileClassifier, MileRegressor
from mile.cli import app
from mile.comparison import Candidate, compare_candidates
from mile.comparison.candidates import Cost
from mile.report.comparison_page import render_comparison
from mile.storage import write_table

matplotlib.use("Agg")
RNG = np.random.default_rng(0)
X = RNG.standard_normal((120, 2))
Y = 3.0 * X[:, 0] + 0.2 * RNG.standard_normal(120)
TINY = {"sampler": "deep_ensemble", "n_chains": 3, "n_folds": 3, "hidden_layer_sizes": (4,), "random_state": 0}
COST = Cost(seconds=12.0, gradient_evaluations=3_000, n_draws=100, n_weights=50)


def candidate(name, lppd, number=None, weight=None, **changes):
    number = np.arange(len(lppd)) if number is None else number
    weight = np.ones(len(lppd)) if weight is None else weight
    return Candidate(name=name, number=number, weight=weight, row_scores={"lppd": lppd}, cost=COST, **changes)


def test_differences_are_paired_over_the_rows_that_all_models_have():
    common, rows = RNG.standard_normal(200), np.arange(200)
    better, worse = common + 0.1 + 0.01 * RNG.standard_normal(200), common
    order = RNG.permutation(200)
    found = compare_candidates(
        [candidate("worse", worse, rows), candidate("better", better[order][:150], rows[order][:150])], "rows"
    )
    assert found.names == ("better", "worse")
    assert found.rows == "150 rows"
    chosen = np.sort(order[:150])
    apart = (worse - better)[chosen]
    difference = found.differences["worse"]
    assert difference.value == pytest.approx(apart.mean())
    assert difference.standard_error == pytest.approx(apart.std(ddof=1) / np.sqrt(150))
    assert found.level == ("better",)  # though the scores themselves are 0.07 uncertain
    number, row_by_row = found.row_differences("better", "worse")
    np.testing.assert_array_equal(number, chosen)
    np.testing.assert_allclose(row_by_row, -apart)


def test_a_row_of_weight_two_counts_as_the_row_twice():
    first, second = RNG.standard_normal((2, 60))
    weight = np.where(np.arange(60) < 20, 2.0, 1.0)
    twice = np.concatenate([np.arange(60), np.arange(20)])
    weighed = compare_candidates([candidate("a", first, weight=weight), candidate("b", second, weight=weight)], "rows")
    repeated = compare_candidates([candidate("a", first[twice]), candidate("b", second[twice])], "rows")
    for name in "ab":
        assert weighed.differences[name].value == pytest.approx(repeated.differences[name].value)


def test_models_that_chance_cannot_tell_apart_are_called_level():
    common = RNG.standard_normal(100)
    noise = 0.1 * RNG.standard_normal((2, 100))
    found = compare_candidates([candidate("a", common + noise[0]), candidate("b", common + noise[1])], "rows")
    assert set(found.level) == {"a", "b"}
    assert "within two standard errors" in found.sentence()
    assert found.frame()["level"] == [True, True]


def test_what_does_not_compare_is_refused():
    scores = RNG.standard_normal(40)
    here, there = {"mean": np.zeros(40), "distance": np.ones(40)}, {"mean": np.zeros(40), "distance": np.full(40, 3.0)}
    classes = Candidate(
        name="classes",
        number=np.arange(40),
        weight=np.ones(40),
        row_scores={"lppd": scores, "accuracy": scores},
        cost=COST,
    )
    for candidates, words in (
        ([candidate("a", scores)], "at least two"),
        ([candidate("a", scores), candidate("a", scores)], "'a' stands for several"),
        ([candidate("a", scores), candidate("b", scores, np.arange(35, 75))], "share 5 rows"),
        ([candidate("a", scores, **here), candidate("b", scores, **there)], "different outcomes, first in row 0"),
        ([candidate("a", scores), classes], "one predicts classes"),
    ):
        with case(words), pytest.raises(ValueError, match=re.escape(words)):
            compare_candidates(candidates, "rows")


@pytest.fixture(scope="module")
def models():
    short = MileRegressor(**TINY, max_epochs=2).fit(X, Y)
    return {"<b>short</b>": short, "long": MileRegressor(**TINY, max_epochs=30).fit(X, Y)}


def test_fitted_models_are_compared_by_left_out_rows_or_by_given_ones(models):
    found = mile.compare(models)
    assert found.names == ("long", "<b>short</b>")
    assert found.rows == "120 out-of-fold rows"
    assert found.scores["long"]["lppd"] == models["long"].oof_.scores["lppd"]
    given = mile.compare(models, X[:50], Y[:50], sample_weight=np.ones(50))
    long = models["long"]
    assert given.rows == "50 rows given"
    assert given.level == ("long",)
    assert given.scores["long"]["lppd"].value == pytest.approx(long.lppd(X[:50], Y[:50]))
    assert given.differences["<b>short</b>"].value == pytest.approx(
        models["<b>short</b>"].lppd(X[:50], Y[:50]) - long.lppd(X[:50], Y[:50])
    )
    assert "LPPD less the best's" in repr(found)
    assert "<b>" not in found._repr_html_()
    with pytest.raises(ValueError, match="sample_weight is of the rows of X"):
        mile.compare(models, sample_weight=np.ones(120))
    with pytest.raises(ValueError, match="together"):
        mile.compare(models, X)


def test_fits_of_other_outcomes_are_refused(models):
    other = MileRegressor(**TINY, max_epochs=2).fit(X, Y[::-1].copy())
    with pytest.raises(ValueError, match="different outcomes"):
        mile.compare([models["long"], other])


def test_the_page_is_whole_and_holds_no_markup_of_names(models):
    page = render_comparison(mile.compare(models))
    assert "<b>" not in page
    assert "&lt;b&gt;short" in page
    assert "Content-Security-Policy" in page
    assert "<script" not in page
    assert len(re.findall(r"<tr>", page)) == 3


def test_the_command_prints_a_table_and_writes_a_page(models, tmp_path):
    paths = [tmp_path / "short.mile", tmp_path / "long.mile"]
    for model, path in zip(models.values(), paths, strict=True):
        model.save(path)

    def run(*arguments):
        return CliRunner().invoke(app, ["compare", *map(str, arguments)])

    found = run(*paths)
    assert found.exit_code == 0
    assert "long.mile is first in LPPD" in found.stdout.replace("\n", " ")
    answer = json.loads(run(*paths, "--json", "--out", tmp_path / "page.html").stdout)
    assert answer["best"].endswith("long.mile")
    assert len(answer["models"]["lppd"]) == 2
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    assert "at least two" in run(paths[0]).stderr
    write_table(tmp_path / "new.csv", {"x0": X[:30, 0], "x1": X[:30, 1], "y": Y[:30]})
    on_file = run(*paths, "--data", tmp_path / "new.csv", "--target", "y")
    assert on_file.exit_code == 0, on_file.stderr
    assert "30 rows of new.csv" in on_file.stdout
    assert "There is no run or model" in run(paths[0], tmp_path / "missing.mile").stderr


def test_classifiers_are_compared_too():
    labels = np.where(Y > 0, "up", "down")
    some = [MileClassifier(**TINY, max_epochs=epochs).fit(X, labels) for epochs in (1, 40)]
    found = mile.compare(some)
    assert found.best == "model 2"
    assert {"lppd", "accuracy"} <= set(found.scores["model 1"])
