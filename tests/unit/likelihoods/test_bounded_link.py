"""The bounded link of the noise: its formula, its bounds, its floor, and a model that has it."""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import mile
from mile import Gaussian, MileRegressor
from mile.likelihoods._resolution import resolution_of

RAW = np.array([-1e30, -100.0, -20.0, -5.0, -1.0, 0.0, 1.0, math.log(10.0), 5.0, 30.0, 100.0, 1e30])
SMALL = {"n_chains": 2, "warmup_steps": 100, "sampling_steps": 50, "n_draws": 10, "max_epochs": 30, "random_state": 1}
floors = pytest.mark.parametrize("floor", [None, 0.05, 1.0])


def scales(likelihood, raw=RAW):
    return likelihood.components(np.stack([np.zeros_like(raw), raw])[None]).std[0]


@floors
class TestBoundedLink:
    def test_is_the_written_formula(self, floor):
        raw = RAW[1:-1]
        softplus = np.logaddexp(0.0, math.log(10.0) - raw)
        expected = np.sqrt(np.exp(math.log(10.0) - softplus) ** 2 + (floor or 1e-6) ** 2)
        np.testing.assert_allclose(scales(Gaussian(link="bounded", floor=floor), raw), expected, rtol=1e-12)

    def test_stays_between_the_floor_and_ten_standard_deviations_and_never_falls(self, floor):
        found, smallest = scales(Gaussian(link="bounded", floor=floor)), floor or 1e-6
        assert found[0] == pytest.approx(smallest, rel=1e-12)
        assert found[-1] == pytest.approx(math.hypot(10.0, smallest), rel=1e-12)
        assert np.all(np.diff(found) >= 0.0)

    def test_is_the_same_in_compiled_code(self, floor):
        likelihood, y = Gaussian(link="bounded", floor=floor), np.float32(0.3)
        outputs = np.stack([np.zeros_like(RAW), RAW]).astype(np.float32)
        compiled = likelihood.log_prob(jnp.asarray(outputs), jnp.full(len(RAW), y))
        exact = stats.norm.logpdf(float(y), 0.0, scales(likelihood))
        np.testing.assert_allclose(compiled, exact, rtol=3e-5, atol=1e-6)

    def test_has_the_slope_of_finite_differences_in_double_precision(self, floor):
        likelihood = Gaussian(link="bounded", floor=floor)
        with jax.enable_x64(True):

            def log_prob(raw):
                return likelihood.log_prob(jnp.stack([jnp.full_like(raw, 0.1), raw]), jnp.full_like(raw, 1.3))

            raw = jnp.linspace(-12.0, 12.0, 97)
            slope = jax.grad(lambda raw: jnp.sum(log_prob(raw)))(raw)
            expected = (log_prob(raw + 1e-5) - log_prob(raw - 1e-5)) / 2e-5
        np.testing.assert_allclose(slope, expected, rtol=1e-6, atol=1e-7)

    def test_has_a_finite_slope_everywhere_that_vanishes_far_out(self, floor):
        likelihood = Gaussian(link="bounded", floor=floor)
        raw = jnp.asarray(RAW, jnp.float32)
        slope = jax.grad(lambda raw: jnp.sum(likelihood.log_prob(jnp.stack([0 * raw, raw]), 1.0 + 0 * raw)))(raw)
        assert np.isfinite(slope).all()
        np.testing.assert_array_equal(slope[np.array([0, 1, -2, -1])], 0.0)

    def test_keeps_nan(self, floor):
        likelihood = Gaussian(link="bounded", floor=floor)
        assert np.isnan(scales(likelihood, np.array([np.nan]))).all()
        assert np.isnan(likelihood.log_prob(jnp.array([[0.0], [jnp.nan]]), jnp.zeros(1))).all()


class TestFloor:
    def test_is_half_the_median_gap_of_a_response_with_few_values(self):
        y = np.repeat([-1.0, 0.0, 0.25, 0.5, 2.0], 10)
        assert resolution_of(y) == 0.31  # half the median of 1, 0.25, 0.25 and 1.5, in two digits
        assert Gaussian(link="bounded").fitted(y) == Gaussian(link="bounded", floor=0.31)

    @pytest.mark.parametrize(
        ("n_values", "n_rows", "few"),
        [(1, 100, False), (2, 100, True), (10, 100, True), (11, 100, False), (2, 19, False)],
    )
    def test_is_that_of_any_response_unless_it_has_at_most_a_value_for_ten_rows(self, n_values, n_rows, few):
        y = np.resize(np.linspace(-1.0, 1.0, n_values), n_rows).astype(np.float32)
        assert (resolution_of(y) is not None) == few
        assert (Gaussian(link="bounded").fitted(y).floor > 1e-6) == few

    def test_is_at_most_one_standard_deviation(self):
        y = np.where(np.arange(1_000) < 5, 14.0, -0.07)  # a rare event: the gap is 14
        assert Gaussian(link="bounded").fitted(y).floor == 1.0

    def test_that_is_given_stays_and_the_exponential_link_has_none(self):
        y = np.repeat([0.0, 1.0], 50)
        for likelihood in (Gaussian(), Gaussian(link="bounded", floor=0.2)):
            assert likelihood.fitted(y) is likelihood

    @pytest.mark.parametrize("floor", [0.0, -1.0, 1e-7, 11.0, np.nan, "1", True])
    def test_that_is_impossible_is_refused(self, floor):
        with pytest.raises(ValueError, match="floor must be a number between 1e-06 and 10"):
            Gaussian(link="bounded", floor=floor)

    def test_needs_the_bounded_link(self):
        with pytest.raises(ValueError, match="floor must be None with link='exponential'"):
            Gaussian(floor=0.1)
        with pytest.raises(ValueError, match=r"link must be one of \['bounded', 'exponential'\]"):
            Gaussian(link="softplus")


def few_valued_table():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((80, 2))
    return x, 10.0 * np.clip(np.round(x[:, 0] + 0.3 * rng.standard_normal(80)), -2, 2)


@pytest.fixture(scope="module")
def model():
    return MileRegressor(likelihood=Gaussian(link="bounded"), hidden_layer_sizes=(4,), **SMALL).fit(*few_valued_table())


class TestModel:
    def test_learns_the_floor_from_its_training_rows(self, model):
        likelihood = model.fit_.likelihood
        assert likelihood.link == "bounded"
        assert likelihood.floor == pytest.approx(5.0 / model.fit_.response.unit, rel=0.05)
        assert model.likelihood == Gaussian(link="bounded")  # what the user passed stays

    def test_keeps_the_noise_within_sight_of_the_data_on_every_row(self, model):
        """Far out the network's outputs grow without limit, and so may ignorance; the noise does not."""
        unit, floor = model.fit_.response.unit, model.fit_.likelihood.floor
        x = few_valued_table()[0] * np.array([1.0, 5.0, 1e3, 1e6])[:, None, None]
        for rows in x:
            predictive = model.predictive(rows)
            stds = predictive.moments_per_draw()[1]
            for noise in (predictive.aleatoric_std, stds):
                assert np.all(noise >= 0.999_99 * floor * unit)
                assert np.all(noise <= 1.000_01 * math.hypot(10.0, floor) * unit)
            # The means over draws come from the native kernel, each draw's from numpy.
            np.testing.assert_allclose(predictive.aleatoric_std, np.sqrt(np.square(stds).mean(axis=0)), rtol=1e-5)
            assert np.isfinite(predictive.crps(predictive.mean)).all()

    def test_has_quantiles_that_its_distribution_function_undoes(self, model):
        predictive = model.predictive(few_valued_table()[0][:9])
        for level in (0.05, 0.5, 0.95):
            np.testing.assert_allclose(predictive.cdf(predictive.quantile(level)), level, atol=1e-9)

    def test_comes_back_from_a_file_with_link_and_floor(self, model, tmp_path):
        x = few_valued_table()[0]
        model.save(tmp_path / "model.mile")
        again = mile.load(tmp_path / "model.mile")
        assert again.fit_.likelihood == model.fit_.likelihood
        np.testing.assert_array_equal(again.predict_quantiles(x), model.predict_quantiles(x))

    def test_is_told_apart_from_others_by_a_run(self, model, tmp_path):
        folder, options = tmp_path / "one.run", SMALL | {"hidden_layer_sizes": (4,), "run_dir": tmp_path / "one.run"}
        fitted = MileRegressor(likelihood=Gaussian(link="bounded"), **options).fit(*few_valued_table())
        text = json.loads((folder / "MANIFEST.json").read_text())["manifest"]["configuration"]["likelihood"]
        assert text == {"kind": "gaussian", "link": "bounded", "floor": fitted.fit_.likelihood.floor}
        again = MileRegressor(likelihood=Gaussian(link="bounded"), **options).fit(*few_valued_table())
        np.testing.assert_array_equal(again.predict(few_valued_table()[0]), model.predict(few_valued_table()[0]))
        with pytest.raises(mile.RunMismatchError, match=r"configuration\.likelihood\.(floor|link) differs"):
            MileRegressor(likelihood=Gaussian(), **options).fit(*few_valued_table())
