"""What every registered sampler promises: its contract, its streams, its blocks, its resumption, its cost."""

import contextlib
import dataclasses
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import runs
from targets import assert_same_bits, small_dataset

import mile
from mile import MLP, Gaussian, Interrupted, Normal, Status, _registry
from mile._progress import Silent
from mile.configuration import build, describe
from mile.ensemble.training import Training
from mile.padded_rows import pad_rows
from mile.posterior import FunctionTarget, Posterior
from mile.report import render
from mile.samplers import configure, presets_of, title_of
from mile.sampling.chains import run_chains

DATASET = small_dataset()
NETWORK = MLP(n_inputs=3, hidden=(4,))
# The last stands for one of two others (test_choices.py).
SAMPLERS = [name for name in _registry.sampler if name != "auto"]
BUDGETS = {"warmup_steps": 60, "sampling_steps": 40, "n_draws": 20}
# What differs from the paper's preset: sizes that suit this small problem, and options that make other programs.
VARIANTS = {
    **{name: (name, {}) for name in SAMPLERS},
    "mile, diagonal metric": ("mile", {"diagonal_metric": True}),
    "mile, energy limit": ("mile", {"energy_limit": 100.0}),
    "stochastic": ("stochastic", {"batch_size": 16}),
    "stochastic, plain": ("stochastic", {"batch_size": 16, "precondition": False}),
    "naive_mclmc": ("naive_mclmc", {"step_size": 0.01}),  # its own first step is meant to fail
    "naive_mclmc, guarded": (
        "naive_mclmc",
        {"guarded": True, "preconditioned": True, "step_size": 0.01, "fractions": (0.2, 0.6, 0.2)},
    ),
    "split_hmc": ("split_hmc", {"part_size": 16, "step_size": 1e-3, "n_leapfrog": 5}),
    "split_hmc, shuffled": ("split_hmc", {"part_size": 16, "step_size": 1e-3, "n_leapfrog": 5, "shuffle": True}),
    "pgps": (
        "pgps",
        {"n_draws": 6, "field_updates": 3, "adjustment_steps": 5, "langevin_steps": 30, "step_size": 1e-3},
    ),
}
NEED_ROWS = {"stochastic", "auto"}  # a function cannot be cut into mini-batches
# How much one chain costs is known before it runs, exactly.
FIXED_COST = {"mile", "adjusted", "stochastic", "naive_mclmc", "deep_ensemble"}


@pytest.fixture(params=VARIANTS)
def sampler(request):
    return variant(request.param).with_start(0.01)


def variant(title):
    name, changes = VARIANTS[title]
    return dataclasses.replace(configure(name, "paper", **BUDGETS), **changes)


@pytest.fixture(scope="module")
def posterior():
    return Posterior(
        rows=pad_rows(DATASET.x_train, DATASET.y_train), network=NETWORK, likelihood=Gaussian(), prior=Normal()
    )


@pytest.fixture(scope="module")
def positions():
    keys = jax.random.split(jax.random.key(0), 3)
    return np.stack([np.asarray(NETWORK.init(key)) for key in keys])


def run(sampler, target, positions, **options):
    return run_chains(sampler, target, positions, seed=7, **options)


class TestContract:
    def test_every_preset_is_a_sampler_of_its_name(self):
        for name in _registry.sampler:
            assert set(presets_of(name)) >= {"default", "paper", "quick", "accurate"}
            for preset in presets_of(name):
                configured = configure(name, preset).with_start(0.01)
                assert configured.name == name
                assert configured.phases[-1].n_records == configured.n_draws
                assert all(phase.n_steps >= 1 for phase in configured.phases)

    def test_is_immutable_comparable_and_known_to_files(self, sampler):
        assert hash(sampler) == hash(dataclasses.replace(sampler))
        assert build(describe(sampler), type(sampler)) == sampler
        for field in dataclasses.fields(sampler):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(sampler, field.name, 1)

    def test_gives_as_many_finite_draws_as_it_says(self, sampler, posterior, positions):
        chains = run(sampler, posterior, positions)
        assert chains.draws.shape == (3, sampler.n_draws, NETWORK.dimension)
        assert chains.status == (Status.OK,) * 3
        assert np.isfinite(chains.draws).all()
        expected = jax.vmap(jax.vmap(posterior.logdensity))(jnp.asarray(chains.draws))
        np.testing.assert_allclose(chains.logdensity, expected, rtol=1e-4)


class TestBits:
    def test_do_not_depend_on_other_chains(self, sampler, posterior, positions):
        together, alone = run(sampler, posterior, positions), run(sampler, posterior, positions[1:2], chain_ids=[1])
        np.testing.assert_array_equal(alone.draws[0], together.draws[1])
        np.testing.assert_array_equal(alone.gradient_evaluations[0], together.gradient_evaluations[1])

    def test_do_not_depend_on_the_length_of_blocks(self, sampler, posterior, positions):
        whole = run(sampler, posterior, positions)
        for length in (1, 7):
            assert_same_bits(run(sampler, posterior, positions, block_steps=length), whole)

    def test_depend_on_the_seed(self, sampler, posterior, positions):
        if sampler.gradient_evaluations() == 0:
            pytest.skip("an ensemble draws nothing")
        other = run_chains(sampler, posterior, positions, seed=8)
        assert (other.draws != run(sampler, posterior, positions).draws).any()


class StopAt(Silent):
    """Send Ctrl-C after a number of advances."""

    def __init__(self, count):
        self.left = count

    def advance(self, amount):
        self.left -= 1
        if self.left == 0:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("count", [pytest.param(5, marks=pytest.mark.slow), 17])
def test_a_run_that_is_stopped_and_resumed_has_the_same_bits(sampler, count, tmp_path):
    options = {
        "sampler": dataclasses.replace(sampler),
        "training": Training(max_epochs=20),
        "n_chains": 2,
        "random_state": 3,
    }
    with runs.blocks_of(10):
        whole = mile.fit(DATASET, NETWORK, Gaussian(), **options)
        with contextlib.suppress(Interrupted):
            mile.fit(DATASET, NETWORK, Gaussian(), run_dir=tmp_path / "run", progress=StopAt(count), **options)
        resumed = mile.resume(tmp_path / "run")
    np.testing.assert_array_equal(resumed.chains.draws[:], whole.chains.draws)
    np.testing.assert_array_equal(resumed.chains.gradient_evaluations, whole.chains.gradient_evaluations)
    loaded = mile.load(tmp_path / "run")
    np.testing.assert_array_equal(loaded.chains.gradient_evaluations, whole.chains.gradient_evaluations)
    resumed.save(tmp_path / "model.mile")
    np.testing.assert_array_equal(mile.load(tmp_path / "model.mile").chains.draws, whole.chains.draws)


@pytest.mark.parametrize(
    "name", [name if name in ("mile", "nuts") else pytest.param(name, marks=pytest.mark.slow) for name in SAMPLERS]
)
def test_a_page_about_it_can_be_made_and_names_it(name):
    fit = mile.fit(
        DATASET,
        NETWORK,
        Gaussian(),
        sampler=variant(name),
        training=Training(max_epochs=20),
        n_chains=2,
        random_state=3,
    )
    page = render(fit, DATASET.x_valid, DATASET.y_valid)
    assert title_of(name) in page
    assert "Traceback" not in page
    assert page.count("<svg") >= 4  # of predictions; chains have more


@pytest.mark.slow  # compiles everything anew; rows that do the same are tested every time
@pytest.mark.parametrize("name", [name for name in SAMPLERS if name not in NEED_ROWS])
def test_a_target_that_is_nowhere_finite_is_a_status_and_no_exception(name):
    nowhere = FunctionTarget(lambda x: jnp.sum(x) * jnp.nan)
    chains = run(variant(name).with_start(0.01), nowhere, np.zeros((2, 5), np.float32))
    assert chains.status == (Status.NON_FINITE_START,) * 2


def test_rows_that_make_it_nowhere_finite_do_the_same(sampler, posterior, positions):
    rows = dataclasses.replace(posterior.rows, y=posterior.rows.y * jnp.nan)
    chains = run(sampler, dataclasses.replace(posterior, rows=rows), positions[:2])
    assert chains.status == (Status.NON_FINITE_START,) * 2


def test_a_function_is_refused_by_the_samplers_that_need_rows_and_by_no_other():
    for name in _registry.sampler:
        reason = "rows of a data set" if name in NEED_ROWS else "backend must be one of"
        with pytest.raises(ValueError, match=reason):  # that there is no such backend is noticed next
            mile.sample(lambda x: -0.5 * x @ x, np.zeros((2, 5)), configure(name, **BUDGETS), backend="nowhere")


def test_gradients_are_those_of_the_cost_model(sampler, posterior, positions):
    found = run(sampler, posterior, positions).gradient_evaluations
    if sampler.name in FIXED_COST:
        assert (found == sampler.gradient_evaluations()).all()
    else:
        assert np.all((found > 0) & (found <= sampler.gradient_evaluations()))
