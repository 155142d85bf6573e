"""What the presets of the estimators stand for."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from mile import MileClassifier, MileRegressor, MileTextClassifier, _registry
from mile.estimators import _arguments, _base
from mile.estimators._presets import table_defaults
from mile.fitting.running import run_job
from mile.samplers import Mile, Nuts, configure, preset_names
from mile.samplers.mile import Linear

SMALL = {"warmup_steps": 20, "sampling_steps": 4, "n_chains": 1, "max_epochs": 1, "random_state": 0}


@pytest.fixture
def planned(monkeypatch):
    """A function that says what an estimator would fit, and does not fit it."""
    monkeypatch.setattr(_base, "run_job", lambda job, *_, **__: job)

    def plan(n_rows, kind=MileRegressor, **options):
        x = np.random.default_rng(0).standard_normal((n_rows, 2))
        return kind(**SMALL, **options).fit(x, (x[:, 0] > 0).astype(int) if kind is MileClassifier else x[:, 0]).fit_

    return plan


def test_a_fit_is_made_of_what_is_planned(planned):
    options = {"hidden_layer_sizes": (3,), "activation": "tanh", "sampler": "deep_ensemble"}
    x = np.random.default_rng(0).standard_normal((60, 2))
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(_base, "run_job", run_job)
        found = MileRegressor(**SMALL, **options).fit(x, x[:, 0]).fit_
    expected = planned(60, **options)
    assert (found.network, found.sampler, found.prior) == (expected.network, expected.sampler, expected.prior)


class TestTheNetworkOfATable:
    @pytest.mark.parametrize(("n_rows", "hidden"), [(999, (16, 16)), (1_000, (16, 16, 16))])
    def test_is_deeper_where_there_are_many_rows(self, planned, n_rows, hidden):
        network = planned(n_rows).network
        assert (network.hidden, network.activation) == (hidden, "gelu")

    def test_is_wider_where_there_are_more(self):
        assert table_defaults("default", 4_999).hidden == (16, 16, 16)
        assert table_defaults("default", 5_000).hidden == (32, 32, 32)

    def test_sees_pieces_of_numbers_in_large_tables_of_mixed_columns(self):
        pieces = [table_defaults(preset, rows).pieces for preset in ("default", "paper") for rows in (4_999, 5_000)]
        assert pieces == [0, 16, 0, 0]
        of_classes = table_defaults("default", 5_000, "classification")
        assert (of_classes.pieces, of_classes.hidden, of_classes.of_encoded(False).hidden) == (32, (32,) * 3, (32,) * 3)
        assert of_classes.of_encoded(True).hidden == (16,) * 3
        x = pd.DataFrame({"size": np.arange(60.0), "kind": ["a", "b"] * 30})
        with pytest.MonkeyPatch.context() as changed:
            changed.setattr(_arguments, "table_defaults", lambda *given: table_defaults(*given)._replace(pieces=3))
            model = MileRegressor(**SMALL, sampler="deep_ensemble").fit(x, np.arange(60.0))
        assert model.columns_[0].treatment.endswith(", and 3 pieces")

    def test_is_that_of_the_paper_where_that_is_asked_for(self, planned):
        network = planned(1_000, preset="paper").network
        assert (network.hidden, network.activation) == ((16, 16), "relu")

    def test_of_quick_stays_small(self):
        assert table_defaults("quick", 5_000) == table_defaults("default", 1_000)._replace(steps={})

    def test_has_the_layers_and_activation_that_are_given(self, planned):
        network = planned(60, MileClassifier, hidden_layer_sizes=(3,), activation="tanh").network
        assert (network.hidden, network.activation) == ((3,), "tanh")


class TestDefault:
    def test_is_what_estimators_have(self):
        for kind in (MileRegressor, MileClassifier, MileTextClassifier):
            assert kind().preset == "default"

    def test_ends_with_smaller_steps_than_the_paper_and_makes_fewer(self):
        ours, paper = configure("mile", "default"), configure("mile", "paper")
        assert ours.schedule == Linear(start=0.5, end=0.01)
        assert (paper.warmup_steps, paper.sampling_steps, paper.schedule.end) == (50_000, 10_000, 0.1)
        assert ours.warmup_steps + ours.sampling_steps < paper.warmup_steps + paper.sampling_steps

    def test_makes_fewer_steps_where_the_network_is_larger(self):
        for n_rows, steps in [(999, 40_000), (1_000, 25_000), (4_999, 25_000), (5_000, 7_500)]:
            sampler = MileRegressor()._sampler(n_rows)
            assert sampler.warmup_steps + sampler.sampling_steps == steps
        given = MileRegressor(warmup_steps=300)._sampler(1_000)
        assert (given.warmup_steps, given.sampling_steps) == (300, 5_000)
        own_layers = MileRegressor((8,))._sampler(1_000)
        assert own_layers == configure("mile", "default")
        own_sampler = Mile(warmup_steps=100, sampling_steps=10, n_draws=10)
        assert MileRegressor(sampler=own_sampler)._sampler(1_000) == own_sampler

    def test_of_another_network_is_the_papers(self, planned):
        network = (lambda key: {"w": jnp.zeros((2, 2))}, lambda arrays, x: x @ arrays["w"])
        assert planned(60, network=network).sampler.schedule == Mile().schedule
        assert planned(60).sampler.schedule != Mile().schedule

    def test_of_other_samplers_is_that_of_their_papers(self):
        assert configure("nuts", "default") == Nuts()
        for sampler in _registry.sampler:
            assert type(configure(sampler, "default")) is type(configure(sampler, "paper"))


def test_an_unknown_preset_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match="fast") as caught:
        MileRegressor(preset="fast").fit(np.zeros((30, 1)), np.arange(30.0))
    assert all(repr(name) in str(caught.value) for name in preset_names())
