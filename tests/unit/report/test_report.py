"""The page about a fit: its numbers are the metrics', its figures are there, its warnings come when they should."""

import dataclasses
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from models import N_CHAINS, made_fit

from mile import DeepEnsemble, Gaussian, MileClassifier, MileRegressor, Status, metrics
from mile.diagnose.diagnosis import diagnose
from mile.likelihoods import LabeledResponse
from mile.report import _rows, _scores, render
from mile.report._baselines import baselines
from mile.report._cautions import cautions
from mile.report._explorer import script, script_hash
from mile.report._rows import choose_rows
from mile.report._scores import assess
from mile.report._svg import _COLORS
from mile.report._words import describe_rows

BUDGET = {"hidden_layer_sizes": (4,), "n_chains": 3, "warmup_steps": 600, "sampling_steps": 200, "max_epochs": 20}
RNG = np.random.default_rng(0)
X = RNG.standard_normal((160, 3))
Y = 100 + 20 * X[:, 0] - 10 * X[:, 1] + 5 * RNG.standard_normal(160)
LABELS = np.array(["low", "mid", "<b>top"])[np.digitize(Y, [90, 110])]
TEST_X, TEST_Y, TEST_LABELS = X[100:], Y[100:], LABELS[100:]
HOSTILE = "<script>alert('x')</script>&amp;\"'$$ \N{BLACK SPADE SUIT}"

SAMPLING = {"accumulation", "trace", "energy", "step-size", "ess", "rhat", "variances", "virial"}
NUMBERS = {"intervals", "coverage", "pit", "uncertainty"} | SAMPLING
CLASSES = {"reliability", "confusion", "roc", "confidence", "uncertainty"} | SAMPLING
EXPLORER = {"Predictions of some rows", "Predicted distribution of the picked row"}  # a script draws these
VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """A page that was read: balanced tags, ids, attributes, and the text of everything with an id."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.stack, self.ids, self.tags, self.attributes, self.texts = [], [], [], [], {}
        self.feed(text)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, *attribute) for attribute in attributes]
        identifier = dict(attributes).get("id")
        if identifier is not None:
            self.ids.append(identifier)
            self.texts[identifier] = ""
        if tag not in VOID:
            self.stack.append((tag, identifier))

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.stack.pop()

    def handle_endtag(self, tag):
        assert self.stack.pop()[0] == tag

    def handle_data(self, data):
        for _, identifier in self.stack:
            if identifier is not None:
                self.texts[identifier] += data.replace("\N{NO-BREAK SPACE}", " ")

    @property
    def figures(self):
        return {name.removeprefix("figure-") for name in self.ids if name.startswith("figure-")}

    @property
    def drawn(self):
        """Titles of the figures that are drawn, not replaced by a sentence."""
        titles = [value for tag, name, value in self.attributes if tag == "svg" and name == "aria-label"]
        return [title for title in titles if title not in EXPLORER]


def checked(text):
    """Read a page and make sure that it is one whole, small, harmless document."""
    page = Page(text)
    assert text.startswith("<!doctype html>")
    assert len(page.ids) == len(set(page.ids))
    assert len(text.encode()) < 600_000
    assert not {"link", "img", "iframe", "object", "foreignobject"} & set(page.tags)
    assert page.tags.count("script") == (1 if "explorer" in page.ids else 0)
    harmless = re.sub(r"<script>.*?</script>", "", text, flags=re.S)
    assert "http" not in harmless.replace("<meta http-equiv=", "")
    assert not {"fetch(", "XMLHttpRequest", "innerHTML", "import(", "eval(", "src ="} & set(
        re.findall(r"[\w.]+ ?[(=]", script())
    )
    assert page.tags.index("meta") < page.tags.index("style")
    assert policy_of(page) == {
        "default-src": ["'none'"],
        "style-src": ["'unsafe-inline'"],  # one style sheet, and attributes of figures
        "script-src": [script_hash()],
        "base-uri": ["'none'"],
        "form-action": ["'none'"],
    }
    assert not [name for _, name, _ in page.attributes if name.startswith("on") or name in ("src", "xmlns")]
    references = [value for _, name, value in page.attributes if name.endswith("href")]
    references += [f"#{found}" for found in re.findall(r"url\(#([^)]+)\)", text)]
    assert {reference.removeprefix("#") for reference in references} <= set(page.ids)
    assert "nan" not in re.findall(r"\bnan\b", text)
    for color in _COLORS:
        assert color not in re.sub(r"<style>.*?</style>", "", text, flags=re.S)
    assert len(script()) < 10_000
    for run in re.findall(r"<script>(.*?)</script>", text, flags=re.S):
        assert run == script()  # which the policy's hash is of
    return page


def policy_of(page):
    """Return what the page allows browsers to load and run."""
    is_policy = ("meta", "http-equiv", "Content-Security-Policy")
    place = page.attributes.index(is_policy)
    content = next(value for tag, name, value in page.attributes[place:] if (tag, name) == ("meta", "content"))
    return {name: sources for name, *sources in (rule.split() for rule in content.split(";"))}


def table(text, name):
    """Return the cells of a table's body as texts, row by row."""
    body = re.search(rf'<table id="{name}">.*?<tbody>(.*?)</tbody>', text, flags=re.S)[1]
    rows = re.findall(r"<tr.*?</tr>", body, flags=re.S)
    strip = re.compile(r"<small>.*?</small>|<[^>]+>", flags=re.S)
    return [
        [
            strip.sub("", cell).replace("\N{NO-BREAK SPACE}", " ").strip()
            for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.S)
        ]
        for row in rows
    ]


def scores_of(text):
    """Return the table of scores, without their standard errors."""
    return {row[0]: [cell.partition(" ±")[0] for cell in row[1:]] for row in table(text, "scores")}


def warnings_about(fit, x, y):
    """Return what a page would say of these rows, without drawing it."""
    rows = choose_rows(fit, x, y)
    return " ".join(cautions(rows, assess(fit, rows)))


@pytest.fixture(scope="module")
def fit():
    usual = {"prior": "normal", "likelihood": "gaussian", "n_folds": 0}  # noise may explode, and all chains count
    return MileRegressor(**BUDGET, **usual, n_draws=100, random_state=0).fit(X[:100], Y[:100]).fit_


@pytest.fixture(scope="module")
def class_fit():
    return (
        MileClassifier(**BUDGET, prior="normal", n_folds=0, n_draws=50, random_state=0).fit(X[:100], LABELS[:100]).fit_
    )


@pytest.fixture(scope="module")
def text(fit):
    return render(fit, TEST_X, TEST_Y, title="A title", target="dose (mg)", seconds=12.3, feature_names=["a", "b", "c"])


class TestNumbers:
    def test_page_is_whole_and_has_every_figure(self, text):
        page = checked(text)
        assert page.figures == NUMBERS
        assert len(page.drawn) == len(NUMBERS)
        assert page.tags.count("svg") == len(NUMBERS) + len(EXPLORER)

    def test_summary_says_what_was_fitted_and_what_it_cost(self, fit, text):
        summary = Page(text).texts["summary"]
        for part in (
            "3 networks, hidden layers of 4 gelu units, 26 weights each",
            "dose (mg)",
            "3 features (a, b, c)",
            "3 of 3 chains are used, 100 draws each: 300 networks",
            f"{3 * fit.sampler.gradient_evaluations():,} gradient evaluations and 12 s",
            "Seed 0",
            "jax",
        ):
            assert part in summary, part

    def test_scores_are_the_metrics(self, fit, text):
        rows, parts = scores_of(text), {row[0]: row[1:] for row in table(text, "parts")}
        predictive, ensemble = fit.predictive(TEST_X), fit.ensemble_predictive(TEST_X)
        found, of_ensemble = metrics.scores(predictive, TEST_Y), metrics.scores(ensemble, TEST_Y)
        assert rows["LPPD"][-1] == f"{found['lppd']:.3f}"
        assert rows["LPPD"][0] == f"{of_ensemble['lppd']:.3f}"
        assert float(rows["RMSE"][-1]) == float(f"{found['rmse']:.4g}")
        assert float(rows["CRPS"][-1]) == float(f"{found['crps']:.4g}")
        assert float(rows["CRPS"][0]) == float(f"{of_ensemble['crps']:.4g}")  # all rows have as many digits
        assert rows["Calibration error"][-1] == f"{found['calibration_error']:.3f}"
        assert float(rows["Width of 90 % intervals"][-1]) == pytest.approx(found["sharpness_90"], rel=1e-3)
        assert float(rows["Score of 90 % intervals"][-1]) == pytest.approx(found["interval_score_90"], rel=1e-3)
        for level in (50, 75, 90, 95):
            assert rows[f"Inside the {level} % interval"][-1] == f"{100 * found[f'coverage_{level}']:.1f} %"
        alone = [metrics.scores(fit.predictive(TEST_X, chains=[slot]), TEST_Y)["lppd"] for slot in range(3)]
        members = [metrics.scores(fit.ensemble_predictive(TEST_X, chains=[slot]), TEST_Y)["lppd"] for slot in range(3)]
        assert parts["LPPD"][2] == f"{np.mean(alone):.3f}"
        assert parts["LPPD"][0] == f"{np.mean(members):.3f}"
        standardized = metrics.standardized(found, fit.response.unit)
        assert rows["LPPD, standardized"][-1] == f"{standardized['lppd']:.3f}"
        assert float(rows["RMSE, standardized"][-1]) == float(f"{standardized['rmse']:.4g}")
        assert [parts["LPPD"][place] for place in (1, 3)] == rows["LPPD"]

    def test_after_scores_are_their_standard_errors(self, fit, text):
        rows, predictive = {row[0]: row[1:] for row in table(text, "scores")}, fit.predictive(TEST_X)
        of_rows = predictive.log_prob(TEST_Y)
        assert rows["LPPD"][-1].endswith(f" ± {of_rows.std(ddof=1) / np.sqrt(len(TEST_Y)):.2g}")
        inside = np.mean(np.abs(predictive.cdf(TEST_Y) - 0.5) <= 0.45)
        error = np.sqrt(inside * (1 - inside) / (len(TEST_Y) - 1))
        assert rows["Inside the 90 % interval"][-1].endswith(f" ± {100 * error:.1f} %")
        assert "±" in rows["RMSE"][0]
        assert "±" in rows["CRPS"][-1]
        assert "±" not in rows["Calibration error"][0]

    def test_the_best_of_each_line_is_bold(self, text):
        body = re.search(r'<table id="scores">(.*?)</table>', text, flags=re.S)[1]
        for row in re.findall(r"<tr><th scope=\"row\">.*?</tr>", body, flags=re.S)[:4]:
            values = [float(value) for value in re.findall(r">(-?[\d.]+)<", row)]
            best = max(values) if "higher is better" in row else min(values)
            assert [float(value) for value in re.findall(r"<strong>(.*?)</strong>", row)] == [
                value for value in values if value == best
            ]

    def test_worst_rows_come_first_with_their_places(self, fit, text):
        rows = table(text, "worst")
        density = fit.predictive(TEST_X).log_prob(TEST_Y)
        order = np.argsort(density)[:10]
        assert [int(row[0]) for row in rows] == order.tolist()
        assert [row[4] for row in rows] == [f"{value:.2f}" for value in density[order]]
        assert {row[5].split(" ")[0] for row in rows} <= {"a", "b", "c"}

    def test_chains_and_groups_are_the_diagnosis(self, fit, text):
        diagnosis = diagnose(fit, TEST_X)
        assert [row[0] for row in table(text, "groups")] == [group.name for group in diagnosis.groups]
        rows = table(text, "chains")
        assert [row[:3] for row in rows] == [
            [str(n), "finished without trouble", str(diagnosis.chains[n].epochs)] for n in range(3)
        ]
        assert [row[3] for row in rows] == [f"{chain.step_size:.3g}" for chain in diagnosis.chains]
        for warning in diagnosis.warnings:
            assert warning in Page(text).texts["warnings"]

    def test_configuration_is_json(self, fit, text):
        found = json.loads(Page(text).texts["configuration"].partition("bit.")[2])
        assert found["seed"] == 0
        assert found["network"]["hidden"] == [4]
        assert found["sampler"]["sampling_steps"] == 200

    def test_is_the_same_again_in_whatever_style_the_user_has(self, fit, text):
        import matplotlib

        with matplotlib.rc_context({"text.color": "pink", "font.size": 30.0, "axes.facecolor": "black"}):
            page = render(
                fit, TEST_X, TEST_Y, title="A title", target="dose (mg)", seconds=12.3, feature_names=["a", "b", "c"]
            )
            assert matplotlib.rcParams["text.color"] == "pink"
        assert page == text


class TestClasses:
    def test_page_is_whole_and_has_its_own_scores(self, class_fit):
        text = render(class_fit, TEST_X, TEST_LABELS, title="Classes")
        page = checked(text)
        assert page.figures == CLASSES
        rows = scores_of(text)
        found = metrics.scores(class_fit.predictive(TEST_X), TEST_LABELS)
        assert rows["LPPD"][-1] == f"{found['lppd']:.3f}"
        assert rows["Accuracy"][-1] == f"{100 * found['accuracy']:.1f} %"
        assert rows["Brier score"][-1] == f"{found['brier']:.3f}"
        assert rows["Expected calibration error"][-1] == f"{found['expected_calibration_error']:.3f}"

    def test_labels_that_training_never_saw_are_left_out_and_counted(self, class_fit):
        labels = TEST_LABELS.astype(object)
        labels[[3, 7]] = "never seen"
        page = checked(render(class_fit, TEST_X, labels, title="Classes"))
        assert "2 of 60 rows have no finite value or a label that training never saw" in page.texts["warnings"]

    def test_a_thousand_classes_take_no_more_room(self):
        text = render(made_fit(range(1000)), X, np.arange(len(X)), title="Many")
        assert checked(text).figures == CLASSES
        assert "one of 1,000 classes" in text


class TestWarnings:
    def test_of_narrow_intervals(self, fit):
        wrong = fit.predictive(TEST_X).mean + 40 * np.sign(TEST_Y - 100)
        warnings = warnings_about(fit, TEST_X, wrong)
        assert "Intervals are too narrow: the 90 % intervals hold " in warnings

    def test_of_wide_intervals(self, fit):
        warnings = warnings_about(fit, X, fit.predictive(X).mean)
        assert "Intervals are too wide: the 90 % intervals hold 100 % of 160 rows" in warnings

    def test_of_few_rows_and_of_constant_values(self, fit):
        warnings = warnings_about(fit, TEST_X[:3], np.full(3, 100.0))
        assert "There are only 3 observed rows" in warnings
        assert "All observed values are the same" in warnings

    def test_of_being_worse_than_the_ensemble(self, fit):
        ensemble = fit.ensemble_predictive(TEST_X)
        # What the ensemble believes and the chains doubt: the ensemble's own mean, far from the chains' means.
        broken = dataclasses.replace(fit, chains=fit.chains._replace(draws=fit.chains.draws + np.float32(3.0)))
        warnings = warnings_about(broken, TEST_X, ensemble.mean)
        assert "MILE predicts these rows worse than the deep ensemble it started from, by " in warnings

    def test_of_draws_that_dominate_the_standard_deviation(self, fit):
        draws = fit.chains.draws.copy()
        draws[0, 0, -1] += 9.0  # the bias of the log scale
        unbounded = dataclasses.replace(fit, likelihood=Gaussian())
        spiked = dataclasses.replace(unbounded, chains=fit.chains._replace(draws=draws))
        warnings = warnings_about(spiked, TEST_X, TEST_Y)
        assert "A few draws with very high noise dominate the standard deviation of 60 rows" in warnings

    def test_of_probabilities_that_are_too_high(self, class_fit):
        predictive = class_fit.predictive(TEST_X)
        second = class_fit.classes[np.argsort(predictive.probs, axis=1)[:, -2]]
        warnings = warnings_about(class_fit, TEST_X, second)
        assert "Probabilities are too high: confidence is " in warnings
        assert "where 0 % of the predictions are right" in warnings

    def test_are_not_invented(self, fit, monkeypatch):
        quiet = dataclasses.replace(diagnose(fit, TEST_X), warnings=())
        predictive = fit.predictive(TEST_X)
        y = predictive.sample(1, random_state=1)[0]
        monkeypatch.setattr("mile.report._cautions._about_ensemble", lambda assessment: [])
        page = checked(render(fit, TEST_X, y, title="x", diagnosis=quiet))
        assert "Nothing to warn about." in page.texts["warnings"]

    def test_of_the_diagnosis_name_failed_chains(self, fit):
        failed = dataclasses.replace(fit, status=(Status.OK, Status.DIVERGED, Status.OK))
        text = render(failed, TEST_X, TEST_Y, title="x")
        page = checked(text)
        assert "Chain 1 is left out" in page.texts["warnings"]
        assert "2 of 3 chains are used" in page.texts["summary"]
        assert table(text, "chains")[1][1] == Status.DIVERGED.sentence
        assert '<tr class="failed">' in text
        assert page.figures == NUMBERS


class TestNames:
    def test_are_escaped_wherever_they_appear(self, fit):
        text = render(
            fit,
            TEST_X,
            TEST_Y,
            title=HOSTILE,
            target=HOSTILE,
            rows=HOSTILE,
            notes=[HOSTILE],
            feature_names=[HOSTILE] * 3,
        )
        page = checked(text)
        assert "<script" not in text.replace(f"<script>{script()}</script>", "")
        assert HOSTILE in page.texts["summary"]
        assert HOSTILE in page.texts["predictions"]

    def test_of_classes_are_escaped(self, class_fit):
        hostile = dataclasses.replace(class_fit, response=LabeledResponse(3, np.array([HOSTILE, "b", "c"])))
        y = np.array([HOSTILE, "b", "c"])[np.searchsorted(class_fit.classes, TEST_LABELS)]
        text = render(hostile, TEST_X, y, title="x")
        assert HOSTILE in checked(text).texts["worst"]
        assert "<script" not in text.replace(f"<script>{script()}</script>", "")

    def test_may_be_in_any_script_and_even_broken(self, fit):
        name = "größe 日本 🂡 \ud800 \x00\x07\n two\tlines"
        text = render(fit, TEST_X, TEST_Y, title=name, target=name, feature_names=[name] * 3, notes=[name], rows=name)
        page = checked(text)
        assert "größe 日本 🂡 two lines" in page.texts["figure-intervals"]
        text.encode()

    def test_cannot_command_a_terminal(self, fit):
        name = "a\x1b[31m\x9b\u202e"
        text = render(fit, TEST_X, TEST_Y, title=name, target=name, feature_names=[name] * 3, notes=[name], rows=name)
        assert not {"\x1b", "\x9b", "\u202e"} & set(text)

    def test_that_are_long_are_cut(self, fit):
        text = render(fit, TEST_X, TEST_Y, title="t" * 500, target="y" * 500, feature_names=["f" * 500] * 3)
        page = checked(text)
        assert "f" * 61 not in page.texts["worst"]
        assert "y" * 61 not in page.texts["figure-intervals"]

    def test_must_be_as_many_as_features(self, fit):
        with pytest.raises(ValueError, match="feature_names must have 3 entries; got 2"):
            render(fit, title="x", feature_names=["a", "b"])


class TestRows:
    @pytest.mark.parametrize(
        "rows", [(None, None), (TEST_X[:0], TEST_Y[:0]), (TEST_X, None), (TEST_X, np.full(60, np.nan))]
    )
    def test_without_observed_values_there_are_diagnostics_only(self, fit, rows):
        page = checked(render(fit, *rows, title="x"))
        assert page.figures == SAMPLING - {"accumulation"}
        assert page.texts["no-rows"].endswith("so this page has diagnostics of the chains only.")
        assert "scores" not in page.ids
        assert "worst" not in page.ids

    def test_are_described_in_the_callers_words(self, fit):
        page = checked(render(fit, TEST_X, TEST_Y, title="x", rows="validation rows: not quite fair"))
        assert "Scores and figures are of 60 validation rows: not quite fair." in page.texts["predictions"]
        used = choose_rows(fit, TEST_X, TEST_Y)
        assert describe_rows(used, "test rows") == describe_rows(used, "60 test rows") == "60 test rows"

    def test_that_are_many_are_chosen_evenly_and_the_page_says_so(self, fit, monkeypatch):
        monkeypatch.setattr(_rows, "_MOST_CELLS", 300 * 20)
        monkeypatch.setattr(_scores, "_CRPS_CELLS", 300 * 10)
        text = render(fit, TEST_X, TEST_Y, title="x")
        said = checked(text).texts["predictions"]
        assert "20 rows, evenly chosen from 60 test rows" in said
        assert "CRPS is of 10 of the rows, evenly chosen." in said
        chosen = np.linspace(0, 59, 20).round().astype(int)
        assert {int(row[0]) for row in table(text, "worst")} <= set(chosen.tolist())
        rows = scores_of(text)
        assert rows["LPPD"][-1] == f"{metrics.lppd(fit.predictive(TEST_X[chosen]), TEST_Y[chosen]):.3f}"

    def test_with_values_that_are_not_finite_are_left_out(self, fit):
        y = TEST_Y.copy()
        y[[0, 5]] = np.nan, np.inf
        text = render(fit, TEST_X, y, title="x")
        page = checked(text)
        assert "2 of 60 rows have no finite value" in page.texts["warnings"]
        assert 'class="alert"' in text
        assert "58 test rows" in page.texts["predictions"]

    @pytest.mark.parametrize(
        ("x", "y", "message"),
        [
            (TEST_X[:, :2], TEST_Y, r"\(rows, 3\)"),
            (TEST_X, TEST_Y[:4], "each of the 60 rows"),
            (TEST_X[0], None, "rows"),
        ],
    )
    def test_that_do_not_fit_are_refused(self, fit, x, y, message):
        with pytest.raises(ValueError, match=message):
            render(fit, x, y, title="x")


class TestMatters:
    def test_the_column_that_makes_y_comes_first_with_its_curve(self, tmp_path):
        x = RNG.standard_normal((120, 3))
        model = MileRegressor(**BUDGET, random_state=0).fit(x[:80], 4.0 * x[:80, 1])
        model.report(tmp_path / "page.html", x[80:], 4.0 * x[80:, 1])
        page = checked((tmp_path / "page.html").read_text())
        assert "matter" in page.texts["matters"]
        assert "on 40 rows given." in page.texts["matters"]
        assert {"importance", "effect-0"} <= page.figures
        assert page.texts["figure-effect-0"].startswith("\nfeature 1: lowest at")
        model.report(tmp_path / "page.html", x[80:], 4.0 * x[80:, 1], explain=False)
        assert "matters" not in checked((tmp_path / "page.html").read_text()).ids


class TestBaselines:
    def test_stand_beside_the_fit_with_paired_gains(self, fit, text):
        rows = {row[0]: row[1:] for row in table(text, "baselines")}
        assert list(rows) == ["constant", "linear model", "deep ensemble", "MILE"]
        gain = fit.predictive(TEST_X).log_prob(TEST_Y) - fit.ensemble_predictive(TEST_X).log_prob(TEST_Y)
        error = gain.std(ddof=1) / np.sqrt(len(gain))
        assert rows["deep ensemble"][1] == f"{gain.mean():.4g} ± {error:.2g}"
        lppd = {name: float(cells[0].split(" ")[0]) for name, cells in rows.items()}
        assert lppd["linear model"] > lppd["constant"] + 0.5  # y is linear

    def test_are_those_that_closed_forms_give(self, fit):
        found = baselines(fit.for_encoded, X[100:], Y[100:], (X[:100], Y[:100]))
        squared = found.row_scores["constant"]["squared_error"]
        np.testing.assert_allclose(squared, np.square(Y[100:] - Y[:100].mean()), rtol=0.02, atol=1.0)
        assert found.row_scores["linear model"]["squared_error"].mean() < 1.3 * 25.0  # the noise has variance 25
        assert "100 training rows" in found.words
        assert "without its fold" in baselines(fit.for_encoded, X[100:], Y[100:]).words


class TestWhatTheReaderIsTold:
    def test_of_training_rows_by_their_names_with_the_line_that_makes_the_fit_again(self, tmp_path):
        house = [f"house {place}" for place in range(90)]
        rows = {"house": house, "a": X[:90, 0].tolist(), "b": X[:90, 1].tolist()}
        model = MileRegressor(**BUDGET | {"sampler": "deep_ensemble", "warmup_steps": None, "sampling_steps": None})
        model.set_params(n_folds=3, random_state=0).fit(rows, Y[:90])
        model.report(tmp_path / "page.html", rows, Y[:90], explain=False)
        text = (tmp_path / "page.html").read_text()
        page = checked(text)
        assert "These are the rows that the model was trained on" in page.texts["warnings"]
        assert "90 training rows" in page.texts["predictions"]
        assert {row[0] for row in table(text, "worst")} < set(house)
        line = page.texts["reproduce"].strip()
        assert eval(line.removesuffix(".fit(X, y)")).get_params() == model.get_params()
        data = json.loads(dict(value[1:] for value in page.attributes if value[1] == "data-rows")["data-rows"])
        assert {row["id"] for row in data["rows"]} == set(house)
        assert all(np.all(np.diff(row["q"]) >= 0.0) for row in data["rows"])


class TestOddFits:
    def test_of_one_chain(self):
        fit = MileRegressor(**BUDGET | {"n_chains": 1}, n_draws=20, random_state=0).fit(X[:60], Y[:60]).fit_
        page = checked(render(fit, TEST_X, TEST_Y, title="x"))
        assert page.figures == NUMBERS
        assert "1 network, hidden layers of 4 gelu units, 26 weights, was trained" in page.texts["summary"]
        assert "need two chains" in page.texts["figure-variances"]

    def test_of_a_deep_ensemble(self):
        fit = MileRegressor(**BUDGET, sampler=DeepEnsemble(), random_state=0).fit(X[:100], Y[:100]).fit_
        text = render(fit, TEST_X, TEST_Y, title="x")
        page = checked(text)
        assert len(page.drawn) == 4
        assert "without sampling" in page.texts["summary"]
        assert len(table(text, "scores")[0]) == 2
        assert len(table(text, "parts")[0]) == 3
        assert "a deep ensemble does not sample" in page.texts["figure-trace"]

    @pytest.mark.parametrize(("n_draws", "failed"), [(6, None), (6, {0: "sampling"}), (1, {1: "training"})])
    def test_of_random_numbers(self, n_draws, failed):
        page = checked(render(made_fit(failed=failed, n_draws=n_draws), TEST_X, TEST_Y, title="x"))
        assert page.figures == NUMBERS
        assert f"{N_CHAINS - len(failed or ())} of {N_CHAINS} chains" in page.texts["summary"]

    def test_without_histories(self, fit):
        bare = dataclasses.replace(fit, chains=fit.chains._replace(history={}))
        assert checked(render(bare, TEST_X, TEST_Y, title="x")).figures == NUMBERS

    def test_of_a_constant_target(self):
        fit = MileRegressor(**BUDGET, n_draws=20, random_state=0).fit(X[:60], np.full(60, 3.0)).fit_
        page = checked(render(fit, TEST_X, np.full(60, 3.0), title="x"))
        assert "All observed values are the same" in page.texts["warnings"]
