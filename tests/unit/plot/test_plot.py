"""Figures say in their titles what the metrics say, and are drawn for every fit there can be."""

import dataclasses

import matplotlib
import numpy as np
import pytest
from models import N_CHAINS, made_fit
from scipy.stats import poisson

from mile import DeepEnsemble, MileClassifier, MileRegressor, Status, metrics, plot
from mile.diagnose.diagnosis import diagnose
from mile.samplers.base import spacing

matplotlib.use("Agg")
BUDGET = {"hidden_layer_sizes": (4,), "n_chains": 3, "warmup_steps": 600, "sampling_steps": 200, "max_epochs": 20}
RNG = np.random.default_rng(0)
X = RNG.standard_normal((160, 3))
Y = 100 + 20 * X[:, 0] - 10 * X[:, 1] + 5 * RNG.standard_normal(160)
LABELS = np.array(["low", "mid", "top"])[np.digitize(Y, [90, 110])]
TEST_X, TEST_Y, TEST_LABELS = X[100:], Y[100:], LABELS[100:]


@pytest.fixture(scope="module")
def fit():
    return MileRegressor(**BUDGET, n_draws=100, preset="paper", random_state=0).fit(X[:100], Y[:100]).fit_


@pytest.fixture(scope="module")
def class_fit():
    usual = {"prior": "normal", "n_folds": 0}
    return MileClassifier(**BUDGET, **usual, n_draws=50, random_state=0).fit(X[:100], LABELS[:100]).fit_


@pytest.fixture(scope="module")
def diagnosis(fit):
    return diagnose(fit, TEST_X)


@pytest.fixture(autouse=True)
def closed():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


def drawn(ax):
    """Draw the figure for real and return its title on one line; every warning is an error."""
    ax.figure.canvas.draw()
    return ax.get_title(loc="left").replace("\n", " ")


def assert_seen(ax, share=0.9):
    """Most points of lines and bars lie inside the axes, and together they fill them."""
    drawn(ax)
    bars = [bar.get_bbox().get_points() for container in ax.containers for bar in container]
    found = [line.get_xydata() for line in ax.lines if line.get_transform() == ax.transData and line.get_xydata().size]
    points = (ax.transData - ax.transAxes).transform(np.concatenate([*found, *bars]))
    points = points[np.isfinite(points).all(axis=1)]
    assert np.mean((points >= -0.01) & (points <= 1.01)) > share
    assert np.ptp(np.clip(points[:, 1], 0, 1)) > 0.1


def lines(ax, style):
    return [line for line in ax.lines if line.get_linestyle() == style]


class TestPredictions:
    def test_intervals_say_the_coverage_and_mark_misses(self, fit):
        predictive = fit.predictive(TEST_X)
        ax = plot.intervals(predictive, TEST_Y, target="dose (mg)")
        share = metrics.coverage(predictive, TEST_Y, [0.9])[0]
        assert drawn(ax) == f"90 % intervals against truth: {100 * share:.0f} % of 60 rows inside"
        assert ax.get_ylabel() == "dose (mg)"
        inside, outside = ax.lines[1:3]
        assert len(outside.get_xdata()) == round((1 - share) * 60)
        assert len(inside.get_xdata()) + len(outside.get_xdata()) == 60
        means = ax.lines[0].get_ydata()
        assert (np.diff(means) >= 0).all()
        lowest, highest = predictive.interval(0.9).min(), predictive.interval(0.9).max()
        assert ax.get_ylim()[0] < min(lowest, TEST_Y.min())
        assert max(highest, TEST_Y.max()) < ax.get_ylim()[1] < highest + 2 * (highest - lowest)

    def test_of_many_rows_an_even_selection_is_drawn_but_all_count(self, fit):
        ax = plot.intervals(fit.predictive(TEST_X), TEST_Y, n_rows=10)
        assert "of 60 rows" in drawn(ax)
        assert ax.get_xlabel() == "10 of 60 rows, by predicted mean"
        assert len(ax.lines[0].get_xdata()) == 10

    def test_coverage_is_the_metric_at_every_level(self, fit):
        predictive, ensemble = fit.predictive(TEST_X), fit.ensemble_predictive(TEST_X)
        ax = plot.coverage(predictive, TEST_Y, other=ensemble)
        error = metrics.calibration_error(predictive, TEST_Y)
        assert drawn(ax).endswith(f"of 60 rows; calibration error {error:.3f}")
        levels, observed = ax.lines[-1].get_data()
        np.testing.assert_allclose(levels, np.arange(5, 100, 5) / 100)
        np.testing.assert_array_equal(observed, metrics.coverage(predictive, TEST_Y, levels.tolist()))
        np.testing.assert_array_equal(ax.lines[-2].get_ydata(), metrics.coverage(ensemble, TEST_Y, levels.tolist()))
        assert [text.get_text() for text in ax.get_legend().get_texts()] == ["90 % by chance", "deep ensemble", "MILE"]

    def test_pit_counts_every_row(self, fit):
        ax = plot.pit(fit.predictive(TEST_X), TEST_Y)
        assert "of 60 rows" in drawn(ax)
        assert sum(bar.get_height() for bar in ax.containers[0]) == 60

    @pytest.mark.parametrize(("factor", "verdict"), [(50.0, "too narrow"), (0.0, "too wide")])
    def test_pit_sees_intervals_that_are_wrong(self, fit, factor, verdict):
        predictive = fit.predictive(TEST_X)
        ax = plot.pit(predictive, predictive.mean + factor * (TEST_Y - predictive.mean))
        assert drawn(ax).endswith(f"so intervals are {verdict}")

    def test_uncertainty_says_the_share_of_ignorance(self, fit):
        predictive = fit.predictive(TEST_X)
        share = np.median(np.square(predictive.epistemic_std) / np.square(predictive.std))
        assert drawn(plot.uncertainty(predictive)).startswith(f"Ignorance makes up {100 * share:.0f} % of the variance")

    def test_confusion_counts_every_row_and_roc_says_the_areas(self, class_fit):
        predictive = class_fit.predictive(TEST_X)
        ax = plot.confusion(predictive, TEST_LABELS)
        assert sum(int(text.get_text()) for text in ax.texts) == 60
        wrong = int(np.sum(predictive.labels != TEST_LABELS))
        assert drawn(ax).startswith(f"{wrong} of 60 rows are predicted as another class")
        areas = [
            metrics.roc(predictive.probs[:, code], label == TEST_LABELS)[2]
            for code, label in enumerate(class_fit.classes)
        ]
        assert f"{min(areas):.3f} to {max(areas):.3f}" in drawn(plot.roc(predictive, TEST_LABELS))
        same = np.flatnonzero(TEST_LABELS == "mid")
        one_class = plot.roc(class_fit.predictive(TEST_X[same]), TEST_LABELS[same])
        assert "needs rows of two classes" in one_class.get_title(loc="left")

    def test_bars_of_a_rootogram_hang_from_what_was_expected(self):
        class Poisson(list):
            def probabilities(self, counts):
                return np.tile(poisson.pmf(counts, 2.0), (len(self), 1))

        y = np.random.default_rng(0).poisson(2.0, 500).astype(float)
        ax = plot.rootogram(Poisson([0] * 500), y)
        assert f"{np.sum(y == 0)} are zero, 68 expected" in drawn(ax).replace("\n", " ")
        np.testing.assert_allclose([bar.get_height() ** 2 for bar in ax.patches], np.bincount(y.astype(int)))

    def test_reliability_and_confidence_say_the_accuracy(self, class_fit):
        predictive = class_fit.predictive(TEST_X)
        accuracy = metrics.accuracy(predictive, TEST_LABELS)
        assert f"and {100 * accuracy:.0f} % of 60 rows are right" in drawn(plot.reliability(predictive, TEST_LABELS))
        ax = plot.confidence(predictive, TEST_LABELS)
        assert drawn(ax).startswith(f"{round(60 * (1 - accuracy))} of 60 rows wrong")
        assert "entropy" in drawn(plot.uncertainty(predictive))

    @pytest.mark.parametrize("function", [plot.intervals, plot.coverage, plot.pit])
    def test_y_that_does_not_fit_is_refused(self, function, fit):
        with pytest.raises(ValueError, match="one entry"):
            function(fit.predictive(TEST_X), TEST_Y[:5])
        with pytest.raises(ValueError, match="at least one row"):
            function(fit.predictive(TEST_X[:0]), TEST_Y[:0])

    def test_surprises_count_wrong_labels_and_show_the_least_probable(self, class_fit):
        predictive, images = class_fit.predictive(TEST_X), RNG.random((len(TEST_X), 5, 4, 3))
        for shown in (images, images[..., 0], np.repeat(images, 2, axis=3)):
            ax = plot.surprises(predictive, TEST_LABELS, shown)
            n_wrong = int(np.sum(predictive.labels != TEST_LABELS))
            assert drawn(ax).startswith(f"{n_wrong} of 60 images labeled wrong")
            assert len(ax.images) == len(ax.texts) == min(12, n_wrong)
        worst = np.argmin(predictive.log_prob(TEST_LABELS))
        assert ax.texts[0].get_text() == f"{predictive.labels[worst]} for {TEST_LABELS[worst]}"
        assert drawn(plot.surprises(predictive, predictive.labels, images)) == "All 60 images are labeled right"
        with pytest.raises(ValueError, match="images must have shape"):
            plot.surprises(predictive, TEST_LABELS, images[:3])


class TestChains:
    def test_accumulation_ends_at_the_metric(self, fit):
        ax = plot.accumulation(fit, TEST_X, TEST_Y)
        whole, ensemble = (
            metrics.lppd(predict(TEST_X), TEST_Y) for predict in (fit.predictive, fit.ensemble_predictive)
        )
        word = "above" if whole >= ensemble else "below"
        assert drawn(ax) == f"LPPD reaches {whole:.3f}, {abs(whole - ensemble):.3f} {word} the deep ensemble"
        alone = [line.get_ydata()[-1] for line in ax.lines[:3]]
        expected = [metrics.lppd(fit.predictive(TEST_X, chains=[slot]), TEST_Y) for slot in range(3)]
        np.testing.assert_allclose(alone, expected, rtol=1e-6)
        numbers = ax.lines[0].get_xdata()
        assert (numbers[0], numbers[-1]) == (1, 100)

    def test_trace_puts_every_record_at_its_step(self, fit):
        ax = plot.trace(fit)
        assert "standard deviations" in drawn(ax)
        ends = np.cumsum([phase.n_steps for phase in fit.sampler.phases])
        assert ends.tolist() == [480, 540, 600, 800]
        borders = [line.get_xdata()[0] for line in ax.lines[3:]]
        assert borders == ends[:-1].tolist()
        steps, values = ax.lines[0].get_data()
        assert steps[-1] == 800
        assert (np.diff(steps) > 0).all()
        assert values[-1] == pytest.approx(float(fit.chains.logdensity[0, -1]))
        assert spacing(200, 100) == 2
        assert values[steps == 602] == pytest.approx(float(fit.chains.logdensity[0, 0]))

    def test_energy_and_step_size_say_what_the_chains_report(self, fit):
        realized = np.median(fit.chains.info["sampling"]["energy_variance"])
        title = drawn(plot.energy(fit))
        assert title == f"Energy variance per dimension is {realized:#.2g} while sampling, 0.10 is wanted"
        title = drawn(plot.step_size(fit))
        assert f"{fit.chains.tuned.step_size.max():#.2g}" in title

    def test_failed_chains_are_gray_dashed_and_named(self, fit):
        failed = dataclasses.replace(fit, status=(Status.OK, Status.DIVERGED, Status.OK))
        for function in (plot.trace, plot.energy, plot.step_size):
            ax = function(failed)
            drawn(ax)
            (line,) = lines(ax, "--")
            assert line.get_label() == "chain 1, left out: diverged"
            assert "chain 1, left out: diverged" in [text.get_text() for text in ax.get_legend().get_texts()]
        assert len(plot.accumulation(failed, TEST_X, TEST_Y).lines) == 2 + 3

    def test_many_failed_chains_share_one_name(self, fit, monkeypatch):
        monkeypatch.setattr("mile.plot._chains._MOST_NAMED", 1)
        ax = plot.trace(dataclasses.replace(fit, status=(Status.OK, *[Status.FROZEN] * 2)))
        assert [text.get_text() for text in ax.get_legend().get_texts()] == ["2 chains, left out"]
        assert len(lines(ax, "--")) == 2


class TestDiagnosis:
    @pytest.mark.parametrize("name", ["ess", "rhat", "variances", "virial"])
    def test_every_group_has_a_line(self, name, diagnosis):
        ax = getattr(plot, name)(diagnosis)
        assert drawn(ax)
        labels = [label.get_text() for label in ax.get_yticklabels()]
        weights, predictions = ["layer 1", "layer 2"], ["pred. location", "pred. log scale"]
        assert labels == (weights if name == "virial" else weights + predictions)

    def test_titles_say_what_the_table_says(self, diagnosis):
        rows = {row["group"]: row for row in diagnosis.table()}
        least = min(row["ess_per_chain"] for name, row in rows.items() if name.startswith("predictions"))
        assert drawn(plot.ess(diagnosis)).endswith(f"are worth {least:,.0f} independent ones")
        median = np.median(np.concatenate([group.virial.ravel() for group in diagnosis.groups[:2]]))
        assert drawn(plot.virial(diagnosis)) == f"Virial ratio: {median:.2f} for the median weight, 1 is equilibrium"

    def test_statistics_that_are_all_missing_are_said_to_be(self, diagnosis):
        missing = [
            group._replace(**{name: np.full_like(getattr(group, name), np.nan) for name in ("ess", "rhat", "within")})
            for group in diagnosis.groups
        ]
        missing = dataclasses.replace(diagnosis, groups=tuple(group._replace(virial=None) for group in missing))
        for function in (plot.ess, plot.rhat, plot.variances, plot.virial):
            ax = function(missing)
            assert not ax.axison
            assert drawn(ax)


FITS = {
    "random numbers": lambda: made_fit(),
    "one draw": lambda: made_fit(n_draws=1),
    "a failed chain": lambda: made_fit(failed={0: "sampling"}),
    "an untrained chain": lambda: made_fit(failed={1: "training"}),
    "weights": lambda: dataclasses.replace(made_fit(), weights=np.array([0.0, 0.7, 0.3, 0.0])),
    "no histories": lambda: _with_chains(made_fit(), history={}),
    "no reports": lambda: _with_chains(made_fit(), history={}, info={"sampling": {}}),
    "fewer draws than wanted": lambda: _cut_short(made_fit(n_draws=20)),
    "a deep ensemble": lambda: _ensemble(made_fit(n_draws=1)),
}


def _with_chains(fit, **changes):
    return dataclasses.replace(fit, chains=fit.chains._replace(**changes))


def _cut_short(fit):
    chains = fit.chains
    names = ("draws", "logdensity", "energy_change")
    return _with_chains(fit, **{name: getattr(chains, name)[:, :7] for name in names})


def _ensemble(fit):
    unknown = np.full(N_CHAINS, np.nan, np.float32)
    info = {"members": {"step_size": unknown, "L": unknown, "logdensity": fit.chains.logdensity[:, 0]}}
    chains = fit.chains._replace(
        info=info, history={}, draws=fit.members.positions[:, None], tuned=fit.chains.tuned._replace(step_size=unknown)
    )
    return dataclasses.replace(fit, chains=chains, sampler=DeepEnsemble())


class TestOddFits:
    @pytest.mark.parametrize("made", FITS.values(), ids=FITS)
    @pytest.mark.parametrize("name", ["trace", "energy", "step_size"])
    def test_do_not_stop_figures_of_chains(self, name, made):
        assert drawn(getattr(plot, name)(made()))

    @pytest.mark.parametrize("made", FITS.values(), ids=FITS)
    def test_do_not_stop_figures_that_need_draws(self, made):
        fit = made()
        assert drawn(plot.uncertainty(fit.predictive(X[:3])))
        assert drawn(plot.accumulation(fit, X[:3], Y[:3]))

    @pytest.mark.parametrize("y", [Y[:1], Y[:3], np.full(3, 7.0), np.full(3, 1e12)], ids=lambda y: f"{y}")
    def test_few_and_constant_values_do_not_stop_figures_of_predictions(self, y):
        fit, x = made_fit(), X[: len(y)]
        for function in (plot.intervals, plot.coverage, plot.pit):
            assert drawn(function(fit.predictive(x), y))
        assert drawn(plot.accumulation(fit, x, y))

    def test_a_thousand_classes_are_no_obstacle(self):
        fit = made_fit(range(1000))
        predictive, y = fit.predictive(X), np.arange(len(X))
        for function in (plot.reliability, plot.confidence, plot.confusion, plot.roc):
            assert drawn(function(predictive, y))
        assert drawn(plot.uncertainty(predictive))
        assert drawn(plot.accumulation(fit, X, y))


class TestAxes:
    def test_that_are_given_are_used(self, fit, diagnosis):
        from matplotlib.figure import Figure

        predictive = fit.predictive(TEST_X)
        calls = [
            (plot.intervals, predictive, TEST_Y),
            (plot.coverage, predictive, TEST_Y),
            (plot.pit, predictive, TEST_Y),
            (plot.uncertainty, predictive),
            (plot.accumulation, fit, TEST_X, TEST_Y),
            *((getattr(plot, name), fit) for name in ("trace", "energy", "step_size")),
            *((getattr(plot, name), diagnosis) for name in ("ess", "rhat", "variances", "virial")),
            (plot.differences, {"first": (0.0, 0.0), "second": (-0.1, 0.02)}),
        ]
        elsewhere = {"reliability", "confidence", "surprises", "differences", "survival", "survival_calibration"}
        elsewhere |= {"confusion", "roc", "rootogram", "several_outputs", "residual_correlation"}
        assert {function.__name__ for function, *_ in calls} | elsewhere == set(plot.__all__)
        for function, *arguments in calls:
            ax = Figure().add_subplot()
            assert function(*arguments, ax=ax) is ax
            assert_seen(ax)

    def test_that_are_new_belong_to_pyplot(self, fit):
        import matplotlib.pyplot as plt

        assert plot.trace(fit).figure is plt.gcf()

    def test_a_target_with_dollars_is_no_formula(self, fit):
        ax = plot.intervals(fit.predictive(TEST_X), TEST_Y, target="price $ and $\\frac{$")
        drawn(ax)
        assert ax.get_ylabel() == "price $ and $\\frac{$"
