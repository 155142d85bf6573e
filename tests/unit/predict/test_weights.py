"""Mixtures whose draws have weights: a draw of weight 3 equals the draw three times, in everything predicted."""

import dataclasses
import pickle
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import pytest
from models import N_CHAINS, N_DRAWS, N_INPUTS, made_estimator, made_fit
from perceptrons import OtherMLP

from mile import MLP, Categorical, Gaussian, map_rows, metrics
from mile.features.numbers import Standardizer
from mile.likelihoods import AbstractComponents, AbstractNumberLikelihood, LabeledResponse, ScaledResponse
from mile.likelihoods.weights import DrawWeights
from mile.predict import JoinedDraws, predict

RNG = np.random.default_rng(0)
N_ROWS = 24
MEMORY = 100_000  # bytes; XLA's blocks of rows have one width, and this keeps it small
X = RNG.standard_normal((N_ROWS, N_INPUTS)).astype(np.float32)
Y = 3.0 * RNG.standard_normal(N_ROWS)
LABELS = np.array(["cat", "dog", "eel"])
SEEN = LABELS[RNG.integers(3, size=N_ROWS)]
COUNTS = np.array([1, 1, 5, 2, 2, 2, 1, 8, 3])
RESPONSE = ScaledResponse(Standardizer(shift=np.array(-3.0), scale=np.array(2.5)))
# Sums in another order; the kernel's have double precision, but it exponentiates in single precision.
CLOSE = {"rtol": 1e-9, "atol": 1e-12}


@dataclass(frozen=True, eq=False)
class LaplaceComponents(AbstractComponents):
    location: np.ndarray
    scale: np.ndarray

    mean = property(lambda self: self.location)
    std = property(lambda self: np.sqrt(2.0) * self.scale)

    def log_prob(self, y):
        return -np.abs(y - self.location) / self.scale - np.log(2.0 * self.scale)

    def cdf(self, y):
        tail = 0.5 * np.exp(-np.abs(y - self.location) / self.scale)
        return np.where(y < self.location, tail, 1.0 - tail)

    def quantile(self, level):
        return self.location - self.scale * np.sign(level - 0.5) * np.log1p(-2.0 * abs(level - 0.5))

    def sample(self, rng):
        return rng.laplace(self.location, self.scale)


@dataclass(frozen=True)
class OwnLaplace(AbstractNumberLikelihood):
    """A likelihood on the contract that knows nothing of weights."""

    n_outputs = 2

    def log_prob(self, outputs, y):
        return -jnp.abs(y - outputs[0]) * jnp.exp(-outputs[1]) - outputs[1] - jnp.log(2.0)

    def components(self, outputs):
        location, log_scale = np.moveaxis(outputs.astype(np.float64), 1, 0)
        return LaplaceComponents(location, np.exp(log_scale))


def numbers(likelihood, draws, weights=None, kind=MLP, memory=MEMORY):
    network = kind(n_inputs=N_INPUTS, hidden=(4,), n_outputs=2)
    chosen = DrawWeights() if weights is None else DrawWeights.of(weights)
    return predict(network, likelihood, draws, X, RESPONSE, memory, chosen)


def classes(draws, weights=None, kind=MLP):
    network = kind(n_inputs=N_INPUTS, hidden=(4,), n_outputs=3)
    chosen = DrawWeights() if weights is None else DrawWeights.of(weights)
    return predict(network, Categorical(3), draws, X, LabeledResponse(3, LABELS), MEMORY, chosen)


def made_draws(n, n_outputs=2):
    dimension = MLP(n_inputs=N_INPUTS, hidden=(4,), n_outputs=n_outputs).dimension
    return (0.5 * np.random.default_rng(1).standard_normal((n, dimension))).astype(np.float32)


def of_numbers(predictive):
    """Everything that is predicted without random numbers."""
    return (
        *(predictive.mean, predictive.std, predictive.aleatoric_std, predictive.epistemic_std),
        *(predictive.log_prob(Y), predictive.cdf(Y), predictive.quantile([1e-4, 0.3, 0.99]), predictive.interval(0.8)),
        *(predictive.crps(Y), np.array(list(predictive.scores(Y).values()))),
        np.array(metrics.mean_draw_nll(predictive, Y)),
    )


def of_classes(predictive):
    return (
        *(predictive.probs, predictive.entropy, predictive.mutual_information, predictive.log_prob(SEEN)),
        np.array(list(predictive.scores(SEEN).values())),
        np.array(metrics.mean_draw_nll(predictive, SEEN)),
    )


def assert_close(found, expected, **tolerance):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, **tolerance or CLOSE)


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def repeated(draws, counts):
    return np.repeat(draws, counts, axis=0), counts / counts.sum()


@pytest.mark.parametrize("kind", [MLP, OtherMLP], ids=["native", "XLA"])
def test_a_weight_counts_a_draw_as_often_as_it_says(kind):
    for likelihood in (Gaussian(), OwnLaplace()):
        draws = made_draws(len(COUNTS))
        several, weights = repeated(draws, COUNTS)
        # The CRPS of an own likelihood is an integral, and XLA rounds outputs in blocks of another width otherwise.
        close = {"rtol": 1e-6, "atol": 1e-9 if kind is MLP else 1e-5}
        found = of_numbers(numbers(likelihood, draws, weights, kind))
        assert_close(found, of_numbers(numbers(likelihood, several, None, kind)), **close)
    draws = made_draws(len(COUNTS), 3)
    several, weights = repeated(draws, COUNTS)
    assert_close(of_classes(classes(draws, weights, kind)), of_classes(classes(several, None, kind)), **close)


def test_many_weighted_draws_have_the_crps_of_repeated_ones():
    """More than 500 draws take the CRPS from an integral, more than 1024 are summed in parts."""
    draws = made_draws(1100)
    several, weights = repeated(draws, np.repeat([1, 3], [1050, 50]))
    one, other = numbers(Gaussian(), draws, weights), numbers(Gaussian(), several)
    np.testing.assert_allclose(one.crps(Y), other.crps(Y), rtol=1e-4)
    for name in ("mean", "std", "epistemic_std"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-9)
    np.testing.assert_allclose(one.cdf(one.quantile(0.2)), 0.2, atol=1e-9)


def test_equal_weights_change_no_bit():
    draws = made_draws(49)  # 49 times 1/49 is not 1 in double precision
    assert_same(of_numbers(numbers(Gaussian(), draws, np.full(49, 1 / 49))), of_numbers(numbers(Gaussian(), draws)))
    draws = made_draws(49, 3)
    assert_same(of_classes(classes(draws, np.full(49, 1 / 49))), of_classes(classes(draws)))


def test_neighbors_and_memory_change_no_bit_of_a_weighted_row():
    draws, weights = made_draws(len(COUNTS)), COUNTS / COUNTS.sum()
    whole = numbers(Gaussian(), draws, weights, memory=1 << 30)
    tight = numbers(Gaussian(), draws, weights, memory=5_000)
    assert_same((tight.log_prob(Y), tight.cdf(Y), tight.mean), (whole.log_prob(Y), whole.cdf(Y), whole.mean))


def test_draws_are_sampled_as_often_as_their_weights_say():
    """Each of 9 shares has 5 standard errors of room: the chance of a false failure is below 1e-5."""
    n, weights = 20_000, COUNTS / COUNTS.sum()
    chosen = DrawWeights(weights).choose(np.random.default_rng(3), len(weights), (n, 1))
    share = np.bincount(chosen[:, 0], minlength=len(weights)) / n
    assert (np.abs(share - weights) < 5 * np.sqrt(weights * (1 - weights) / n)).all()
    predictive = numbers(Gaussian(), made_draws(len(COUNTS)), weights)
    away = predictive.sample(2_000, random_state=1).mean(axis=0) - predictive.mean
    assert (np.abs(away) < 5.5 * predictive.std / np.sqrt(2_000)).all()


def test_joined_draws_are_those_of_the_pieces_and_a_piece_is_not_copied():
    one, other = made_draws(5), made_draws(9)[5:]
    joined, whole = JoinedDraws([one, other]), np.concatenate([one, other])
    assert (len(joined), joined.shape, joined.dtype) == (9, whole.shape, whole.dtype)
    for start in range(10):
        for stop in range(10):
            np.testing.assert_array_equal(joined[start:stop], whole[start:stop])
    assert np.shares_memory(joined[1:4], one)
    assert np.shares_memory(joined[6:], other)
    with pytest.raises(IndexError, match="neighbors"):
        joined[::2]


def weighted(weights, **options):
    return dataclasses.replace(made_fit(**options), weights=np.asarray(weights, np.float64))


class TestFit:
    """Candidates of a fit with two chains: chain 0, chain 1, member 0, member 1."""

    def test_the_weight_of_a_chain_is_spread_over_its_draws(self):
        fit = weighted([0.25, 0.5, 0.125, 0.125])
        draws, members = fit.chains.draws.reshape(-1, fit.network.dimension), fit.members.positions
        counts = np.repeat([2, 4, N_DRAWS, N_DRAWS], [N_DRAWS, N_DRAWS, 1, 1])
        several = np.repeat(np.concatenate([draws, members]), counts, axis=0)
        expected = predict(fit.network, fit.likelihood, several, fit.encoder.transform(X), fit.response)
        predictive = fit.predictive(X)
        np.testing.assert_allclose(predictive.draw_weights, counts / counts.sum(), rtol=1e-14)
        assert_close(of_numbers(predictive), of_numbers(expected), rtol=1e-7)

    def test_equal_weights_have_the_bits_of_none(self):
        assert_same(of_numbers(weighted([0.5, 0.5, 0, 0]).predictive(X)), of_numbers(made_fit().predictive(X)))
        ensemble = weighted([0, 0, 0.5, 0.5]).predictive(X)
        assert_same(of_numbers(ensemble), of_numbers(made_fit().ensemble_predictive(X)))
        one = weighted([0, 1, 0, 0]).predictive(X)
        assert_same(of_numbers(one), of_numbers(made_fit().predictive(X, chains=[1])))

    def test_what_has_no_weight_is_not_computed(self):
        predictive = weighted([0.75, 0, 0, 0.25]).predictive(X)
        assert predictive.log_prob_per_draw(Y).shape == (N_DRAWS + 1, N_ROWS)

    def test_chains_and_ensemble_are_asked_for_without_weights(self):
        fit, plain = weighted([0.75, 0, 0, 0.25]), made_fit()
        assert_same(of_numbers(fit.predictive(X, chains=[0, 1])), of_numbers(plain.predictive(X)))
        assert_same(of_numbers(fit.ensemble_predictive(X)), of_numbers(plain.ensemble_predictive(X)))

    def test_weights_of_chains_and_members_are_told_apart(self):
        fit = weighted([0.75, 0, 0, 0.25])
        assert (fit.chain_weights.tolist(), fit.member_weights.tolist()) == ([0.75, 0], [0, 0.25])
        plain = made_fit(failed={0: "sampling"})
        assert (plain.chain_weights.tolist(), plain.member_weights.tolist()) == ([0, 1], [0, 0])

    def test_impossible_weights_are_refused(self):
        for weights, words in [
            ([0.5, 0.5], "one entry for each of 2 chains"),
            ([0.5, 0.6, 0, 0], "sum to 1"),
            ([1.5, -0.5, 0, 0], "not negative"),
            ([np.nan, 1.0, 0, 0], "finite"),
        ]:
            with pytest.raises(ValueError, match=words):
                weighted(weights)
        for weights in ([0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0]):
            with pytest.raises(ValueError, match="chain 0 failed"):
                weighted(weights, failed={0: "sampling"})

    def test_an_estimator_predicts_with_them_also_after_pickling_and_on_dask(self):
        distributed = pytest.importorskip("distributed")
        model, x = made_estimator(), X.astype(np.float64)
        before = model.predict(x)
        model.fit_ = weighted([0.25, 0.5, 0.125, 0.125])
        expected = model.fit_.predictive(x).mean
        assert (expected != before).all()
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(x), expected)
        options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
        with distributed.Client(**options) as client:
            np.testing.assert_array_equal(map_rows(model, x, client=client), expected)


def test_candidates_number_two_for_each_chain():
    assert len(weighted([0.25, 0.5, 0.125, 0.125]).weights) == 2 * N_CHAINS
