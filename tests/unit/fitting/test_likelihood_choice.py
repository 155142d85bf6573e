"""How `likelihood="auto"` decides, and that fits, files and runs keep what it decided."""

import copy
import json

import numpy as np
import pytest

import mile
from mile import HurdleGamma, MileClassifier, MileRegressor
from mile._errors import RunMismatchError, UntrustedFileError
from mile.estimators import _likelihoods
from mile.fitting import likelihood_choice
from mile.fitting.likelihood_choice import Compared, LikelihoodChoice, paired_gain

N = 90
RNG = np.random.default_rng(1)
X = RNG.normal(size=(N, 1))
AMOUNTS = np.where(RNG.uniform(size=N) < 0.4, 0.0, np.exp(1.5 * X[:, 0] + 0.2 * RNG.normal(size=N)))
TINY = {"hidden_layer_sizes": (4,), "n_chains": 3, "max_epochs": 20, "sampler": "deep_ensemble", "random_state": 3}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tmp_path_factory.mktemp("auto") / "run"


@pytest.fixture(scope="module")
def model(run):
    return MileRegressor(likelihood="auto", run_dir=run, **TINY).fit(X, AMOUNTS)


class TestADecision:
    def test_a_gain_is_paired_weighed_and_capped(self):
        usual = np.zeros(100)
        found = usual + 0.1
        assert paired_gain(found, usual) == pytest.approx((0.1, 0.0), abs=1e-12)
        found[0] = 1e6
        mean, error = paired_gain(found, usual)
        assert mean == pytest.approx(0.99 * 0.1 + 0.05), "a row counts at most five nats"
        assert error > 0.04, "and a gain of one row is no more than its error"
        weight = np.where(np.arange(100) == 0, 0.0, 2.0)
        assert paired_gain(found, usual, weight)[0] == pytest.approx(0.1)

    def test_rows_of_a_group_count_as_one_observation(self):
        gain, groups = np.repeat([1.0, -1.0] * 5, 10), np.repeat(np.arange(10), 10)
        alone, together = paired_gain(gain, 0.0 * gain)[1], paired_gain(gain, 0.0 * gain, groups=groups)[1]
        assert together == pytest.approx(np.sqrt(10) * alone, rel=0.1)

    def test_the_usual_family_stays_unless_another_gains_more_than_chance_explains(self):
        rng, weight = np.random.default_rng(0), np.ones(2_000)
        usual, noise = rng.normal(size=2_000), rng.normal(size=2_000)
        families = [mile.Gaussian(), mile.StudentTNoise(), mile.NormalMixture(), mile.TwoPieceNormal()]

        def decided(*gains, noise=0.0 * noise):
            scores = [None if gain is None else usual + gain + noise * (gain != 0.0) for gain in gains]
            return likelihood_choice._decide(families, scores, weight, None)[0]

        assert decided(0.0, 0.019, -1.0, 0.01) == 0, "less than 0.02 is not worth another family"
        assert decided(0.0, 0.021, -1.0, 0.01) == 1
        assert decided(0.0, 0.03, 0.0, 0.0, noise=noise) == 0, "less than two standard errors"
        assert decided(0.0, 0.1, 0.5, 0.3) == 2
        assert decided(0.0, 0.5, 0.5, 0.3) == 1, "the simplest of those that are as good"
        assert decided(0.0, None, None, 0.3) == 3
        assert decided(None, 1.0, 1.0, 1.0) == 0

    def test_a_sentence_says_what_and_why(self):
        usual, other = Compared("gaussian", 2, -1.3, 0.0, 0.0), Compared("mixture", 9, -1.1, 0.2, 0.03)
        for chosen, compared, words in (
            ("mixture", (usual, other), "better than by gaussian (mixture gains +0.200 ± 0.030 a row)"),
            (
                "gaussian",
                (usual, other._replace(gain=0.01)),
                "clearly better (mixture gains +0.010 ± 0.030",
            ),
            ("gaussian", (usual, Compared("mixture", 9)), "no other family could be compared"),
            ("gaussian", (), "y is odd."),
        ):
            found = LikelihoodChoice(chosen=chosen, kind="odd", compared=compared)
            assert words in repr(found)
            assert "\n" not in found.sentence
            assert LikelihoodChoice.read(json.loads(json.dumps(found.described()))) == found


class TestAFit:
    def test_takes_a_family_that_suits_and_is_deterministic(self, model):
        found = model.likelihood_choice_
        assert found.chosen in [one.likelihood for one in found.compared]
        assert found.compared[0].likelihood == "gaussian"
        assert mile._registry.likelihood.name_of(type(model.fit_.likelihood)) == found.chosen
        assert "zero" in found.sentence
        assert found.chosen != "gaussian"
        again = MileRegressor(likelihood="auto", n_threads=1, **TINY).fit(X, AMOUNTS)
        assert again.likelihood_choice_ == found
        assert np.array_equal(again.predict(X), model.predict(X))

    def test_a_finished_or_resumed_run_does_not_choose_again(self, model, run, monkeypatch):
        def refuse(*args, **kwargs):
            raise AssertionError("chosen twice")

        monkeypatch.setattr(_likelihoods, "choose_by_left_out_rows", refuse)
        again = MileRegressor(likelihood="auto", run_dir=run, **TINY).fit(X, AMOUNTS)
        for other in (again, mile.load(run), mile.resume(run)):
            assert other.likelihood_choice_ == model.likelihood_choice_
            assert other.fit_.likelihood == model.fit_.likelihood
        with pytest.raises(RunMismatchError, match=r"data\.sha256"):
            MileRegressor(likelihood="auto", run_dir=run, **TINY).fit(X, np.roll(AMOUNTS, 1))

    def test_a_model_file_and_a_report_say_it(self, model, tmp_path):
        model.save(tmp_path / "model.mile")
        loaded = mile.load(tmp_path / "model.mile")
        assert loaded.likelihood_choice_ == model.likelihood_choice_
        assert loaded.get_params()["likelihood"] == "auto"
        model.report(tmp_path / "page.html")
        page = (tmp_path / "page.html").read_text(encoding="utf-8")
        assert f"chose {model.likelihood_choice_.chosen}" in page
        assert "Out-of-fold log scores of short runs" in page

    def test_a_file_with_an_impossible_choice_is_refused(self, model):
        described = model.likelihood_choice_.described()
        for name, value in (("chosen", 3), ("kind", None), ("compared", [{"likelihood": "gaussian"}])):
            with pytest.raises(UntrustedFileError, match="choice"):
                LikelihoodChoice.read(copy.deepcopy(described) | {name: value})

    def test_few_rows_limits_and_time_keep_the_usual_family(self, monkeypatch):
        few = MileRegressor(likelihood="auto", **TINY).fit(X[:30], AMOUNTS[:30])
        assert "30 rows, too few" in few.likelihood_choice_.sentence
        assert few.fit_.likelihood.link == "bounded"
        times = mile.censored(1.0 + AMOUNTS, np.where(AMOUNTS > 1, "right", "none"))
        limited = MileRegressor(likelihood="auto", **TINY).fit(X, times)
        assert "known by limits" in limited.likelihood_choice_.sentence
        hurried = MileRegressor(likelihood="auto", time_limit=1e-3, **TINY).fit(X, AMOUNTS)
        assert "no other family could be compared" in hurried.likelihood_choice_.sentence
        assert hurried.fit(X[:30], AMOUNTS[:30]).likelihood_choice_.compared == ()
        assert hurried.set_params(likelihood=None).fit(X[:30], AMOUNTS[:30]).likelihood_choice_ is None

    def test_weights_and_groups_reach_the_comparison(self, monkeypatch):
        seen = {}

        def note(dataset, y, found, usual, network, training, **options):
            seen.update(weight=dataset.train.weight, folds=dataset.folds, y=y, **options)
            choice = LikelihoodChoice(chosen="hurdle_gamma", kind=found.kind)
            return likelihood_choice.Chosen(HurdleGamma(), choice)

        monkeypatch.setattr(_likelihoods, "choose_by_left_out_rows", note)
        groups, weight = np.repeat(np.arange(9), 10), np.where(np.arange(N) < 10, 0.0, 2.0)
        model = MileRegressor(likelihood="auto", **TINY).fit(X, AMOUNTS, weight, groups=groups)
        assert len(seen["y"]) == 80
        assert (seen["weight"] == 2.0).all()
        assert all(len(np.unique(seen["folds"][seen["groups"] == group])) == 1 for group in range(1, 9))
        assert isinstance(model.fit_.likelihood, HurdleGamma)

    def test_classes_have_no_family_to_choose(self):
        with pytest.raises(ValueError, match=r"likelihood must be one of .*got 'auto'"):
            MileClassifier(likelihood="auto", **TINY).fit(X, AMOUNTS > 0)
