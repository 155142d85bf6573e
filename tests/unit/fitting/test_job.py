"""From a dataset to a fit: what does not match is refused, defaults are the paper's, rows stay in their roles."""

from dataclasses import replace

import numpy as np
import pytest
from models import number_predictive
from targets import assert_same_bits, small_dataset

import mile
from mile import (
    MLP,
    Categorical,
    Dataset,
    DeepEnsemble,
    FanIn,
    FitWarning,
    Gaussian,
    Laplace,
    Mile,
    Normal,
    PerLayer,
    Status,
    StudentT,
)
from mile.ensemble.training import Training
from mile.features.numbers import Standardizer
from mile.fitting import job as fitting
from mile.likelihoods import LabeledResponse, ScaledResponse
from mile.predict import ClassPredictive
from mile.samplers import configure

NETWORK = MLP(n_inputs=3, hidden=(4,))
SAMPLER = Mile(warmup_steps=100, sampling_steps=60, n_draws=20)
TRAINING = Training(learning_rate=0.01, max_epochs=1)
X_NEW = np.random.default_rng(8).standard_normal((9, 3)).astype(np.float32)


def fit(dataset=None, network=NETWORK, likelihood=None, **options):
    options = {"sampler": SAMPLER, "training": TRAINING, "n_chains": 3, "random_state": 6} | options
    return mile.fit(dataset or small_dataset(), network, likelihood or Gaussian(), **options)


@pytest.fixture(scope="module")
def fitted():
    return fit()


class TestArguments:
    def test_network_must_have_the_outputs_of_the_likelihood(self):
        with pytest.raises(ValueError, match="network has 2 outputs but the likelihood needs 3"):
            fit(small_dataset(classes=3), likelihood=Categorical(3))
        with pytest.raises(ValueError, match="network has 3 outputs but the likelihood needs 2"):
            fit(network=replace(NETWORK, n_outputs=3))

    def test_network_must_take_the_features_of_the_data(self):
        with pytest.raises(ValueError, match="network takes 3 features but the data has 4"):
            fit(small_dataset(n_features=4))

    @pytest.mark.parametrize("random_state", [-1, 2**32, "a", 0.5])
    def test_seed_must_be_one(self, random_state):
        with pytest.raises(ValueError, match="random_state must be"):
            fit(random_state=random_state)

    @pytest.mark.parametrize("n_chains", [0, -1])
    def test_number_of_chains_must_be_positive(self, n_chains):
        with pytest.raises(ValueError, match="n_chains"):
            fit(n_chains=n_chains)

    @pytest.mark.parametrize("temperature", [0.0, -1.0, np.nan, np.inf, "1", None, True])
    def test_temperature_must_be_positive(self, temperature):
        with pytest.raises(ValueError, match="temperature must be a positive number"):
            fit(temperature=temperature)

    def test_a_prior_that_does_not_fit_is_refused_before_a_folder_is_made(self, tmp_path):
        with pytest.raises(ValueError, match="has 3 scales but the network has 2 layers"):
            fit(prior=PerLayer(scales=(1.0, 1.0, 1.0)), run_dir=tmp_path / "run")
        with pytest.raises(ValueError, match="temperature must be below df"):
            fit(prior=StudentT(), temperature=4.0, run_dir=tmp_path / "run")
        assert not (tmp_path / "run").exists()


class TestDefaults:
    @pytest.fixture
    def asked(self, monkeypatch):
        """Return the samplers that the loop is asked to run; it keeps the members instead."""
        asked = []

        def keep_members(sampler, *args, **options):
            asked.append(sampler)
            return run_chains(DeepEnsemble(), *args, **options)

        run_chains = fitting.run_chains
        monkeypatch.setattr(fitting, "run_chains", keep_members)
        return asked

    def test_are_the_papers(self, asked):
        result = mile.fit(small_dataset(), NETWORK, Gaussian())
        paper = Mile(step_size=1e-3)  # the learning rate
        assert asked == [paper]
        assert result.sampler == paper
        assert paper == configure("mile", "paper").with_start(1e-3)
        assert result.prior == Normal(scale=1.0)
        assert result.training == Training()
        assert result.ok.tolist() == [True] * 12
        assert result.chain_ids.tolist() == list(range(12))

    def test_first_step_is_the_learning_rate_unless_the_sampler_has_one(self, asked):
        fit()
        fit(sampler=replace(SAMPLER, step_size=0.02))
        assert asked == [replace(SAMPLER, step_size=0.01), replace(SAMPLER, step_size=0.02)]


class TestFit:
    def test_has_one_member_and_one_chain_for_each_asked_for(self, fitted):
        assert fitted.members.positions.shape == (3, NETWORK.dimension)
        assert fitted.chains.draws.shape == (3, 20, NETWORK.dimension)
        assert fitted.status == (Status.OK,) * 3
        assert fitted.chain_ids.tolist() == [0, 1, 2]
        assert np.isfinite(fitted.chains.draws).all()

    def test_number_of_chains_changes_no_chain(self, fitted):
        one = fit(n_chains=1)
        np.testing.assert_array_equal(one.members.positions, fitted.members.positions[:1])
        np.testing.assert_array_equal(one.chains.draws, fitted.chains.draws[:1])

    def test_seed_is_kept_and_reproduces_it(self, fitted):
        assert fitted.seed == 6
        drawn = fit(random_state=None, n_chains=1)
        again = fit(random_state=drawn.seed, n_chains=1)
        assert_same_bits((drawn.members, drawn.chains), (again.members, again.chains))
        assert not np.array_equal(drawn.chains.draws, fitted.chains.draws[:1])

    def test_prior_enters_the_posterior(self, fitted):
        narrow = fit(prior=Normal(scale=0.01), sampler=DeepEnsemble())
        wide = fit(sampler=DeepEnsemble())
        squares = np.square(wide.members.positions).sum(axis=1)
        np.testing.assert_allclose(
            wide.chains.logdensity[:, 0] - narrow.chains.logdensity[:, 0], 0.5 * squares * (1e4 - 1), rtol=1e-4
        )

    @pytest.mark.parametrize("prior", [Laplace(scale=0.3), StudentT(), FanIn(), PerLayer(scales=(0.1, 2.0))], ids=str)
    def test_every_prior_enters_the_posterior_as_bound_and_is_kept_as_given(self, fitted, prior):
        result, normal = fit(prior=prior, sampler=DeepEnsemble()), fit(sampler=DeepEnsemble())
        assert_same_bits(result.members, fitted.members)
        bound = prior.bind(NETWORK)
        expected = [bound.log_prob(member) - Normal().log_prob(member) for member in fitted.members.positions]
        difference = result.chains.logdensity[:, 0] - normal.chains.logdensity[:, 0]
        np.testing.assert_allclose(difference, expected, rtol=1e-3, atol=1e-3)
        assert result.prior == prior

    @pytest.mark.parametrize("prior", [Laplace(scale=0.3), FanIn(family=StudentT())], ids=str)
    def test_chains_move_under_every_prior(self, prior):
        result = fit(prior=prior)
        assert result.status == (Status.OK,) * 3
        assert (result.chains.draws.std(axis=1) > 0).all()

    def test_temperature_one_is_the_default(self, fitted):
        result = fit(temperature=1)
        assert_same_bits((result.members, result.chains), (fitted.members, fitted.chains))
        assert result.temperature == fitted.temperature == 1.0

    @pytest.mark.parametrize("prior", [Normal(), Laplace()], ids=str)
    def test_temperature_divides_the_log_density_and_leaves_the_ensemble_as_it_is(self, fitted, prior):
        plain, hot = (fit(prior=prior, sampler=DeepEnsemble(), temperature=value) for value in (1.0, 4.0))
        assert_same_bits(hot.members, fitted.members)
        np.testing.assert_allclose(hot.chains.logdensity, plain.chains.logdensity / 4.0, rtol=1e-5)
        assert hot.temperature == 4.0

    def test_temperature_widens_the_draws(self):
        """On 4 rows the prior N(0, 1) rules, so at T = 4 most deviations double; limits are far from 1 and 3."""
        data = small_dataset()
        few = Dataset.from_arrays(data.x_train[:4], data.y_train[:4])
        sampler = Mile(warmup_steps=4_000, sampling_steps=4_000, n_draws=400)
        cold, hot = (fit(few, sampler=sampler, temperature=value) for value in (1.0, 4.0))
        widths = [np.median(result.chains.draws.std(axis=1)) for result in (cold, hot)]
        assert 1.5 < widths[1] / widths[0] < 2.5


class TestRows:
    def test_validation_rows_do_not_enter_the_posterior(self, fitted):
        data = small_dataset()
        other = Dataset.from_arrays(data.x_train, data.y_train, 3.0 + data.x_valid, 5.0 - data.y_valid)
        changed, without = fit(other), fit(Dataset.from_arrays(data.x_train, data.y_train))
        assert (changed.members.validation_loss != fitted.members.validation_loss).all()
        assert np.isnan(without.members.validation_loss).all()
        for result in (changed, without):
            # After one epoch there is nothing to choose from, so the members are the same.
            np.testing.assert_array_equal(result.members.positions, fitted.members.positions)
            assert_same_bits(result.chains, fitted.chains)

    def test_every_training_row_enters_the_posterior(self, fitted):
        data = small_dataset()
        result = fit(sampler=DeepEnsemble())
        for position, logdensity in zip(result.members.positions, result.chains.logdensity[:, 0], strict=True):
            location, log_scale = np.asarray(NETWORK.apply(position, data.x_train.T), np.float64)
            errors = (data.y_train - location) / np.exp(log_scale)
            likelihood = np.sum(-log_scale - 0.5 * np.square(errors) - 0.5 * np.log(2 * np.pi))
            np.testing.assert_allclose(logdensity, likelihood - 0.5 * np.sum(np.square(position)), rtol=1e-5)


class TestPrediction:
    def test_uses_all_draws_of_all_chains(self, fitted):
        draws = fitted.chains.draws.reshape(-1, NETWORK.dimension)
        expected = number_predictive(NETWORK, draws, X_NEW, fitted.response.scale)
        predictive = fitted.predictive(X_NEW)
        np.testing.assert_array_equal(predictive.mean, expected.mean)
        np.testing.assert_array_equal(predictive.std, expected.std)

    def test_of_the_ensemble_uses_the_members(self, fitted):
        expected = number_predictive(NETWORK, fitted.members.positions, X_NEW, fitted.response.scale)
        predictive = fitted.ensemble_predictive(X_NEW)
        np.testing.assert_array_equal(predictive.mean, expected.mean)
        np.testing.assert_array_equal(predictive.std, expected.std)
        # And by hand: the mean of the members' means.
        by_hand = np.mean([NETWORK.apply(position, X_NEW.T)[0] for position in fitted.members.positions], axis=0)
        np.testing.assert_allclose(predictive.mean, by_hand, rtol=1e-4, atol=1e-5)
        assert not np.array_equal(predictive.mean, fitted.predictive(X_NEW).mean)

    def test_takes_raw_features_and_gives_raw_responses(self, fitted):
        data = replace(
            small_dataset(),
            encoder=Standardizer(shift=np.full(3, 2.0), scale=np.full(3, 4.0)),
            response=ScaledResponse(Standardizer(shift=np.array(-7.0), scale=np.array(3.0))),
        )
        scaled = fit(data).predictive(4.0 * X_NEW + 2.0)
        plain = fitted.predictive(X_NEW)
        np.testing.assert_allclose(scaled.mean, -7.0 + 3.0 * plain.mean, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(scaled.std, 3.0 * plain.std, rtol=1e-4)

    def test_of_classes_carries_their_labels(self):
        network = replace(NETWORK, n_outputs=3)
        data, options = small_dataset(classes=3), {"likelihood": Categorical(3), "sampler": DeepEnsemble()}
        named = replace(data, response=LabeledResponse(3, np.array(["a", "b", "c"])))
        labeled = fit(named, network, **options).predictive(X_NEW)
        assert isinstance(labeled, ClassPredictive)
        assert labeled.classes.tolist() == ["a", "b", "c"]
        assert fit(data, network, **options).predictive(X_NEW).classes.tolist() == [0, 1, 2]


SPIKES = {"sampler": DeepEnsemble(), "training": Training(learning_rate=0.02, max_epochs=300)}


class TestSpikes:
    """A response that equals a feature: training lowers the noise as far as it can."""

    @staticmethod
    def table(levels):
        x = np.random.default_rng(5).standard_normal((48, 3))
        x[:, 0] = np.resize(levels, 48)
        return x

    def test_on_a_response_with_few_values_are_warned_of(self):
        x = self.table([-1.0, 1.0])
        with pytest.warns(FitWarning, match="y has only 2 distinct values and for .* puts spikes on the values"):
            fit(Dataset.from_arrays(x, x[:, 0]), **SPIKES)

    def test_on_a_response_with_many_values_are_not(self):
        x = self.table([-4.0, -2.0, 0.0, 2.0, 4.0])  # more than a tenth of the rows
        result = fit(Dataset.from_arrays(x, x[:, 0]), **SPIKES)  # a warning would be an error
        outputs = np.stack(
            [result.network.apply(member, x.T.astype(np.float32)) for member in result.members.positions]
        )
        assert np.mean(np.exp(outputs[:, 1]) < 0.2) > 0.1  # though the noise is as low

    def test_on_a_continuous_response_are_not(self):
        x = self.table([-1.0, 1.0])
        fit(Dataset.from_arrays(x, x[:, 1]), **SPIKES)

    def test_are_not_claimed_where_the_noise_is_wide(self):
        x = self.table([-1.0, 1.0])
        coin = np.random.default_rng(6).choice([-1.0, 1.0], size=48)
        fit(Dataset.from_arrays(x, coin), **(SPIKES | {"training": TRAINING}))
