"""Scores against a plain float64 version, on the scale of y."""

import itertools

import numpy as np
import pytest
from models import class_predictive, number_predictive
from scipy import stats
from scipy.special import logsumexp, softmax

from mile import MLP, metrics
from mile.features.numbers import Standardizer

N_DRAWS, N_ROWS = 25, 200
SHIFT, SCALE = 40.0, 8.0
CLASSES = np.array(["no", "perhaps", "yes"])


def linear_case(n_outputs):
    """Outputs (draw, row, output) of linear networks; multiples of 1/16 make float32 exact."""
    rng = np.random.default_rng(5)
    draws = (np.round(8 * rng.standard_normal((N_DRAWS, 3 * n_outputs))) / 16).astype(np.float32)
    x = (np.round(16 * rng.standard_normal((N_ROWS, 2))) / 16).astype(np.float32)
    weights, bias = np.split(draws.astype(float), [2 * n_outputs], axis=1)
    outputs = x.astype(float) @ weights.reshape(-1, 2, n_outputs) + bias[:, None]
    return rng, MLP(n_inputs=2, hidden=(), n_outputs=n_outputs), draws, x, outputs


class Regression:
    def __init__(self):
        rng, network, draws, x, outputs = linear_case(2)
        self.location, self.scale = SHIFT + SCALE * outputs[..., 0], SCALE * np.exp(outputs[..., 1])
        self.y = self.location[0] + 0.7 * self.scale[0] * rng.standard_normal(N_ROWS)
        y_scale = Standardizer(shift=np.asarray(SHIFT), scale=np.asarray(SCALE))
        self.predictive = number_predictive(network, draws, x, y_scale)

    def coverage(self, levels):
        cdf = stats.norm.cdf(self.y, self.location, self.scale).mean(axis=0)
        return np.array([np.mean((cdf >= 0.5 - level / 2) & (cdf <= 0.5 + level / 2)) for level in levels])


class Classification:
    def __init__(self):
        rng, network, draws, x, outputs = linear_case(3)
        self.probs = softmax(outputs, axis=-1).mean(axis=0)
        self.codes = rng.integers(3, size=N_ROWS)
        self.y = CLASSES[self.codes]
        self.predictive = class_predictive(network, draws, x, CLASSES)


@pytest.fixture(scope="module")
def regression():
    return Regression()


@pytest.fixture(scope="module")
def classification():
    return Classification()


def test_lppd_is_the_mean_log_density_on_the_scale_of_y(regression):
    per_draw = stats.norm.logpdf(regression.y, regression.location, regression.scale)
    expected = np.mean(logsumexp(per_draw, axis=0) - np.log(N_DRAWS))
    assert metrics.lppd(regression.predictive, regression.y) == pytest.approx(expected, abs=1e-6)


def test_lppd_of_classes_is_the_mean_log_probability_of_the_label(classification):
    expected = np.mean(np.log(classification.probs[np.arange(N_ROWS), classification.codes]))
    assert metrics.lppd(classification.predictive, classification.y) == pytest.approx(expected, abs=1e-6)


def test_rmse_is_that_of_the_mean_on_the_scale_of_y(regression):
    expected = np.sqrt(np.mean((regression.location.mean(axis=0) - regression.y) ** 2))
    assert metrics.rmse(regression.predictive, regression.y) == pytest.approx(expected, abs=1e-6)


def test_accuracy_is_the_share_of_right_labels(classification):
    expected = np.mean(classification.probs.argmax(axis=1) == classification.codes)
    assert 0 < expected < 1
    assert metrics.accuracy(classification.predictive, classification.y) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("levels", [(0.5,), (0.5, 0.75, 0.9, 0.95), (0.01, 0.3, 0.999)], ids=str)
def test_coverage_is_the_share_of_rows_inside_each_interval(regression, levels):
    coverage = metrics.coverage(regression.predictive, regression.y, levels)
    np.testing.assert_allclose(coverage, regression.coverage(levels), atol=1e-6)
    for share, level in zip(coverage, levels, strict=True):
        lower, upper = regression.predictive.interval(level).T
        assert share == np.mean((lower <= regression.y) & (regression.y <= upper))


def test_calibration_error_is_the_root_mean_square_of_coverage_minus_level(regression):
    levels = np.array([0.5, 0.75, 0.9, 0.95])
    expected = np.sqrt(np.mean((regression.coverage(levels) - levels) ** 2))
    assert expected > 0.01
    assert metrics.calibration_error(regression.predictive, regression.y) == pytest.approx(expected, abs=1e-6)


def test_calibration_levels_are_the_papers():
    assert metrics.CALIBRATION_LEVELS == (0.5, 0.75, 0.9, 0.95)


def test_default_levels_are_the_calibration_levels(regression):
    predictive, y = regression.predictive, regression.y
    explicit = metrics.coverage(predictive, y, metrics.CALIBRATION_LEVELS)
    np.testing.assert_array_equal(metrics.coverage(predictive, y), explicit)
    error = metrics.calibration_error(predictive, y, metrics.CALIBRATION_LEVELS)
    assert metrics.calibration_error(predictive, y) == error


def test_calibration_error_follows_the_levels_asked_for(regression):
    expected = abs(regression.coverage([0.3])[0] - 0.3)
    assert metrics.calibration_error(regression.predictive, regression.y, [0.3]) == pytest.approx(expected, abs=1e-6)


def test_scores_are_plain_numbers(regression, classification):
    assert type(metrics.lppd(regression.predictive, regression.y)) is float
    assert type(metrics.rmse(regression.predictive, regression.y)) is float
    assert type(metrics.calibration_error(regression.predictive, regression.y)) is float
    assert type(metrics.accuracy(classification.predictive, classification.y)) is float


def test_lists_score_like_arrays(regression, classification):
    for score in (metrics.lppd, metrics.rmse, metrics.calibration_error):
        expected = score(regression.predictive, regression.y)
        assert score(regression.predictive, regression.y.tolist()) == expected
    expected = metrics.accuracy(classification.predictive, classification.y)
    assert metrics.accuracy(classification.predictive, classification.y.tolist()) == expected


@pytest.mark.parametrize("distance", [1e2, np.sqrt(2e6), 1e6])
def test_lppd_of_a_response_far_away_is_finite_and_exact(distance):
    draws = np.array([[0, 0, 0, 0], [0, 0, 0.5, 0]], np.float32)  # N(0, 1) and N(1/2, 1) whatever the features
    network, x = MLP(n_inputs=1, hidden=(), n_outputs=2), np.zeros((1, 1), np.float32)
    predictive = number_predictive(network, draws, x, Standardizer.identity())
    expected = logsumexp(stats.norm.logpdf(distance, [0.0, 0.5], 1.0)) - np.log(2)
    assert expected < -4e3
    assert metrics.lppd(predictive, np.array([distance])) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("logit", [1e3, 1e6, 1e30])
def test_lppd_of_a_class_held_impossible_is_finite_and_exact(logit):
    draws = np.array([[0, 0, logit, 0]], np.float32)
    network, x = MLP(n_inputs=1, hidden=(), n_outputs=2), np.zeros((3, 1), np.float32)
    predictive = class_predictive(network, draws, x, np.array([0, 1]))
    expected = -float(np.float32(logit))
    assert metrics.lppd(predictive, np.ones(3, int)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("score", [metrics.lppd, metrics.rmse, metrics.coverage, metrics.calibration_error])
@pytest.mark.parametrize("shape", [(N_ROWS, 1), (N_ROWS - 1,), (1,)], ids=str)
def test_a_response_of_another_shape_is_refused(regression, score, shape):
    with pytest.raises(ValueError, match="shape"):
        score(regression.predictive, np.zeros(shape))


@pytest.mark.parametrize("score", [metrics.lppd, metrics.accuracy])
@pytest.mark.parametrize("shape", [(N_ROWS, 1), (N_ROWS - 1,), (1,)], ids=str)
def test_labels_of_another_shape_are_refused(classification, score, shape):
    with pytest.raises(ValueError, match="shape"):
        score(classification.predictive, np.full(shape, "no"))


def test_crps_of_few_components_is_that_of_all_pairs(regression):
    np.testing.assert_allclose(regression.predictive.crps(regression.y), pairwise_crps(regression), rtol=1e-6)
    assert metrics.crps(regression.predictive, regression.y) == pytest.approx(
        pairwise_crps(regression).mean(), rel=1e-6
    )


def test_crps_of_many_components_is_the_same(regression, monkeypatch):
    monkeypatch.setattr("mile.likelihoods.gaussian._MOST_PAIRED", 0)
    np.testing.assert_allclose(regression.predictive.crps(regression.y), pairwise_crps(regression), rtol=1e-4)


def pairwise_crps(case):
    """Gneiting and others' closed form for a mixture of normals."""

    def expected_distance(mean, scale):
        z = mean / scale
        return mean * (2 * stats.norm.cdf(z) - 1) + 2 * scale * stats.norm.pdf(z)

    first = expected_distance(case.y - case.location, case.scale).mean(axis=0)
    spread = np.hypot(case.scale[:, None], case.scale[None])
    return first - 0.5 * expected_distance(case.location[:, None] - case.location[None], spread).mean(axis=(0, 1))


def test_interval_score_and_sharpness_are_those_of_the_intervals(regression):
    lower, upper = regression.predictive.interval(0.8).T
    below, above = np.maximum(lower - regression.y, 0), np.maximum(regression.y - upper, 0)
    assert metrics.sharpness(regression.predictive, 0.8) == pytest.approx(np.mean(upper - lower))
    expected = np.mean(upper - lower + 10.0 * (below + above))
    assert metrics.interval_score(regression.predictive, regression.y, 0.8) == pytest.approx(expected)


def test_negative_log_likelihood_is_minus_the_lppd(classification):
    assert metrics.nll(classification.predictive, classification.y) == -metrics.lppd(
        classification.predictive, classification.y
    )


def test_brier_is_the_squared_distance_to_the_truth(classification):
    truth = np.eye(3)[classification.codes]
    expected = np.mean(np.sum((classification.probs - truth) ** 2, axis=1))
    assert metrics.brier(classification.predictive, classification.y) == pytest.approx(expected, rel=1e-6)


def test_expected_calibration_error_compares_confidence_with_accuracy(classification):
    confidence = classification.probs.max(axis=1)
    right = classification.probs.argmax(axis=1) == classification.codes
    edges = np.linspace(0, 1, 11)
    expected = 0.0
    for low, high in itertools.pairwise(edges):
        chosen = (confidence >= low) & (confidence < high)
        if chosen.any():
            expected += chosen.mean() * abs(confidence[chosen].mean() - right[chosen].mean())
    found = metrics.expected_calibration_error(classification.predictive, classification.y, n_bins=10)
    assert found == pytest.approx(expected, rel=1e-6)


def test_scores_are_all_of_them_by_name(regression, classification):
    found = metrics.scores(regression.predictive, regression.y)
    assert found["crps"] == metrics.crps(regression.predictive, regression.y)
    assert found["coverage_90"] == metrics.coverage(regression.predictive, regression.y, [0.9])[0]
    assert found["calibration_error"] == pytest.approx(metrics.calibration_error(regression.predictive, regression.y))
    assert set(metrics.scores(classification.predictive, classification.y)) == {
        "lppd",
        "accuracy",
        "brier",
        "expected_calibration_error",
    }


def test_standardized_scores_are_those_of_the_standardized_response(regression):
    """The same prediction and response, both divided by SCALE."""
    network, draws, x = (getattr(regression.predictive._mixture, name) for name in ("network", "draws", "x"))
    small = number_predictive(network, draws, x, Standardizer(shift=np.asarray(SHIFT / SCALE), scale=np.asarray(1.0)))
    expected = metrics.scores(small, regression.y / SCALE)
    found = metrics.standardized(metrics.scores(regression.predictive, regression.y), SCALE)
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("levels", [[], [0.0], [0.5, 1.0], [np.nan]])
def test_levels_must_be_probabilities(regression, levels):
    with pytest.raises(ValueError, match="levels must lie strictly between 0 and 1"):
        metrics.coverage(regression.predictive, regression.y, levels)


def test_mean_draw_nll_averages_over_draws_outside_the_logarithm(regression, classification):
    per_draw = stats.norm.logpdf(regression.y, regression.location, regression.scale)
    assert metrics.mean_draw_nll(regression.predictive, regression.y) == pytest.approx(-per_draw.mean(), abs=1e-6)
    for case in (regression, classification):
        assert metrics.mean_draw_nll(case.predictive, case.y) > metrics.nll(case.predictive, case.y)


@pytest.fixture(scope="module")
def predictive():
    _, network, draws, _, _ = linear_case(2)
    x = np.random.default_rng(0).standard_normal((TestKnownCoverage.N_ROWS, 2)).astype(np.float32)
    y_scale = Standardizer(shift=np.asarray(SHIFT), scale=np.asarray(SCALE))
    return number_predictive(network, draws, x, y_scale)


class TestKnownCoverage:
    """Responses are simulated, so coverage is known up to binomial error; each check fails by chance once in 10,000."""

    N_ROWS = 20_000
    Z = 3.9

    def check(self, found, expected):
        expected = np.asarray(expected)
        assert np.all(np.abs(found - expected) <= self.Z * np.sqrt(expected * (1 - expected) / self.N_ROWS))

    def test_is_the_level_for_responses_of_the_model(self, predictive):
        y = predictive.sample(1, random_state=1)[0]
        self.check(metrics.coverage(predictive, y), metrics.CALIBRATION_LEVELS)
        self.check(metrics.coverage(predictive, y, [0.01, 0.3, 0.99]), [0.01, 0.3, 0.99])
        # The root mean square of four deviations, each at most this.
        assert metrics.calibration_error(predictive, y) <= self.Z * 0.5 / np.sqrt(self.N_ROWS)

    def test_is_that_of_the_normal_law_for_responses_of_twice_the_noise(self, predictive):
        mixture = predictive._mixture
        alone = number_predictive(mixture.network, mixture.draws[:1], mixture.x, Standardizer.identity())
        y = alone.mean + 2.0 * alone.std * np.random.default_rng(2).standard_normal(self.N_ROWS)
        levels = np.array(metrics.CALIBRATION_LEVELS)
        expected = 2 * stats.norm.cdf(stats.norm.ppf(0.5 + levels / 2) / 2) - 1
        self.check(metrics.coverage(alone, y), expected)
        error = np.sqrt(np.mean((expected - levels) ** 2))
        assert metrics.calibration_error(alone, y) == pytest.approx(error, abs=self.Z * 0.5 / np.sqrt(self.N_ROWS))


def test_the_area_below_a_roc_curve_is_the_chance_of_the_right_order():
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(0)
    positive, score = rng.uniform(size=60) < 0.4, rng.integers(8, size=60).astype(float)  # with ties
    hits, alarms, area = metrics.roc(score + positive, positive)
    np.testing.assert_allclose(area, roc_auc_score(positive, score + positive))
    assert hits[[0, -1]].tolist() == alarms[[0, -1]].tolist() == [0.0, 1.0]
    assert (np.diff(hits) >= 0.0).all()
