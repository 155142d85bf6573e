"""What a diagnosis says of chains, against the statistics it is made of and on chains made to be bad."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from models import N_INPUTS, made_fit

import mile
from mile import DeepEnsemble, Status
from mile.diagnose import convergence
from mile.diagnose.diagnosis import _about_equilibrium, diagnose
from mile.storage import StoredDraws

X = np.random.default_rng(0).standard_normal((30, N_INPUTS))
N_DRAWS = 64


@pytest.fixture(scope="module")
def fit():
    """Return a fit whose chains are independent draws in equilibrium: nothing to complain about."""
    return calm(made_fit(n_draws=N_DRAWS))


def calm(fit, **numbers):
    """Replace the numbers of a fit's last phase by those of healthy chains."""
    n_chains, dimension = len(fit.status), fit.network.dimension
    healthy = {"travel": 100.0, "energy_variance": 0.1, "bad_steps": 0.0, "step_size": 0.1, "L": 1.0} | numbers
    last = {name: np.full(n_chains, value) for name, value in healthy.items()}
    last["virial"] = np.ones((n_chains, dimension)) * numbers.get("virial", 1.0)
    info = {phase: report | {"bad_steps": np.zeros(n_chains)} for phase, report in fit.chains.info.items()}
    return dataclasses.replace(fit, chains=fit.chains._replace(info=info | {"sampling": last}))


class TestGroups:
    def test_are_the_layers_and_the_predictions(self, fit):
        names = [group.name for group in diagnose(fit, X).groups]
        assert names == ["layer 1", "layer 2", "predictions: location", "predictions: log scale"]
        assert [group.name for group in diagnose(fit).groups] == ["layer 1", "layer 2"]

    def test_of_classes_follow_the_probability_of_the_predicted_class(self):
        fit = made_fit(classes=np.array(["a", "b", "c"]), n_draws=N_DRAWS)
        group = diagnose(fit, X).groups[-1]
        predictive = fit.predictive(X)
        followed = predictive.log_prob_per_draw(predictive.labels).reshape(2, N_DRAWS, len(X))
        assert group.name == "predictions: log probability"
        np.testing.assert_allclose(group.pooled_ess, convergence.ess(followed), rtol=1e-9)

    def test_have_the_statistics_of_their_quantities(self, fit):
        first, second, location, scale = diagnose(fit, X).groups
        draws = fit.chains.draws.astype(float)
        sizes = [(fan_in + 1) * fan_out for fan_in, fan_out in fit.network.layer_sizes]
        assert (first.n_quantities, second.n_quantities) == tuple(sizes)
        for group, part in ((first, draws[..., : sizes[0]]), (second, draws[..., sizes[0] :])):
            np.testing.assert_allclose(group.ess, convergence.chainwise_ess(part), rtol=1e-9)
            np.testing.assert_allclose(group.rhat, convergence.chainwise_rhat(part), rtol=1e-9)
            np.testing.assert_allclose(group.pooled_rhat, convergence.rhat(part), rtol=1e-9)
            np.testing.assert_allclose(group.between, convergence.between_variance(part), rtol=1e-9)
            np.testing.assert_allclose(group.within, convergence.within_variance(part), rtol=1e-9)
        moments = fit.predictive(X).moments_per_draw()
        for group, values in ((location, moments[0]), (scale, np.log(moments[1]))):
            followed = values.reshape(2, N_DRAWS, len(X))
            np.testing.assert_allclose(group.ess, convergence.chainwise_ess(followed), rtol=1e-6)

    def test_of_draws_on_disk_are_the_same(self, fit):
        rows = [[chain] for chain in fit.chains.draws]
        stored = StoredDraws(rows, N_DRAWS, N_DRAWS, fit.network.dimension, fit.chains.draws.dtype)
        on_disk = dataclasses.replace(fit, chains=fit.chains._replace(draws=stored))
        for ours, theirs in zip(diagnose(on_disk, X).groups, diagnose(fit, X).groups, strict=True):
            np.testing.assert_array_equal(ours.ess, theirs.ess)
            np.testing.assert_array_equal(ours.between, theirs.between)

    def test_of_many_quantities_are_judged_by_an_even_selection(self, fit, monkeypatch):
        monkeypatch.setattr("mile.diagnose.diagnosis._LARGEST_CELLS", 2 * N_DRAWS * 3)
        group = diagnose(fit).groups[0]
        assert group.n_quantities == 16
        chosen = fit.chains.draws[..., [0, 7, 15]].astype(float)
        np.testing.assert_allclose(group.within, convergence.within_variance(chosen), rtol=1e-9)

    def test_become_a_table_of_plain_numbers(self, fit):
        table = diagnose(fit, X).table()
        group = diagnose(fit, X).groups[0]
        assert table[0]["ess_per_chain"] == np.median(group.ess)
        assert table[0]["smallest_ess_per_chain"] == group.ess.min()
        assert table[0]["virial"] == 1.0
        assert table[2]["virial"] is None


class TestChains:
    def test_report_what_the_sampler_recorded(self, fit):
        report = diagnose(fit).chains[1]
        squares = np.square(fit.chains.energy_change[1].astype(float)) / fit.network.dimension
        assert (report.chain, report.status, report.replaced, report.epochs) == (1, Status.OK, False, 3)
        assert (report.travel, report.energy_variance, report.bad_steps) == (100.0, 0.1, 0)
        np.testing.assert_allclose(report.energy_tail, np.quantile(squares, 0.999), rtol=1e-9)

    def test_that_failed_are_reported_but_not_judged(self):
        diagnosis = diagnose(made_fit(failed={1: "sampling"}, n_draws=N_DRAWS), X)
        assert [chain.status for chain in diagnosis.chains] == [Status.OK, Status.DIVERGED]
        assert all(group.ess.shape[0] == 1 for group in diagnosis.groups)
        assert any("Chain 1 is left out" in warning for warning in diagnosis.warnings)


class TestWarnings:
    def test_are_none_for_chains_in_equilibrium(self, fit):
        assert diagnose(fit, X).warnings == ()

    @pytest.mark.parametrize(
        ("numbers", "words"),
        [
            ({"travel": 2.0}, "sampling_steps"),
            ({"energy_variance": 5.0}, "energy variance"),
            ({"virial": 0.3}, "not explored"),
            ({"virial": 4.0}, "inflate"),
            ({"bad_steps": 30.0}, "learning_rate"),
        ],
    )
    def test_say_what_is_wrong_and_what_to_do(self, fit, numbers, words):
        warnings = diagnose(calm(fit, **numbers), X).warnings
        assert len(warnings) == 1
        assert words in warnings[0]
        assert warnings[0].endswith(".")
        assert "\n" not in warnings[0]

    def test_tell_of_predictions_that_drift(self, fit):
        drift = np.linspace(0, 3, N_DRAWS, dtype=np.float32)[None, :, None]
        moved = dataclasses.replace(fit, chains=fit.chains._replace(draws=fit.chains.draws + drift))
        assert any("still drift in the predicted location" in warning for warning in diagnose(moved, X).warnings)
        assert any("independent ones" in warning for warning in diagnose(moved, X).warnings)

    def test_tell_of_chains_that_were_replaced(self, fit):
        replaced = dataclasses.replace(fit, chain_ids=np.array([0, 2]))
        (warning,) = diagnose(replaced, X).warnings
        assert "1 chain failed and was replaced" in warning

    def test_tell_that_few_draws_say_little(self):
        assert any("diagnostics say little" in warning for warning in diagnose(calm(made_fit()), X).warnings)

    def test_find_single_parameters_that_are_far_off(self, fit):
        group = diagnose(fit).groups[0]
        virial = np.ones_like(group.ess)
        virial[:, :2] = 10.0
        assert "inflate" in _about_equilibrium(fit, [group._replace(virial=virial)])[0]

    def test_an_ensemble_that_does_not_sample_has_none(self):
        made = made_fit(n_draws=1)
        info = {"members": {name: made.chains.info["sampling"][name] for name in ("step_size", "L", "logdensity")}}
        ensemble = dataclasses.replace(made, sampler=DeepEnsemble(), chains=made.chains._replace(info=info, history={}))
        diagnosis = diagnose(ensemble, X)
        assert diagnosis.warnings == ()
        assert np.isnan(diagnosis.chains[0].travel)


OPTIONS = {"warmup_steps": 400, "sampling_steps": 300, "n_draws": 100, "random_state": 0}


class TestVirial:
    def test_on_a_standard_normal_is_the_variance_of_the_draws(self):
        """There the gradient is minus the position, so the covariance is known from the draws."""
        chains = mile.sample(lambda x: -0.5 * jnp.sum(x**2), np.zeros((3, 5)) + 0.5, **OPTIONS)
        np.testing.assert_allclose(chains.virial, chains.draws.astype(float).var(axis=1, ddof=1), rtol=1e-4)

    def test_does_not_depend_on_scale_or_location(self):
        scales = np.array([1e-2, 1.0, 100.0])

        def density(x):
            return -0.5 * jnp.sum(((x - 1e3) / scales) ** 2)

        options = OPTIONS | {"warmup_steps": 4_000, "sampling_steps": 20_000, "n_draws": 4_000}
        chains = mile.sample(density, np.full((2, 3), 1e3), preset="accurate", **options)
        ratio = chains.draws.astype(float).var(axis=1, ddof=1) / np.square(scales)
        np.testing.assert_allclose(chains.virial, ratio, rtol=0.02)
