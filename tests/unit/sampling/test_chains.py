"""The one loop: what may not change a bit of a chain does not, what is asked for is kept, what is wrong is refused."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from targets import StandardNormal, assert_same_bits, small_dataset

import mile
from mile import MLP, Chains, FitFailedError, FitWarning, Gaussian, Mile, Normal, Status
from mile.ensemble.training import Training
from mile.execution import InProcess
from mile.padded_rows import pad_rows
from mile.posterior import FunctionTarget, Posterior
from mile.samplers._step_size import Linear
from mile.sampling import log_density
from mile.sampling.chains import run_chains

# One small configuration for most tests: its programs are compiled once. More draws than a block's buffer holds,
# and a number of steps that is no multiple of them.
SMALL = Mile(warmup_steps=300, sampling_steps=403, n_draws=200, step_size=0.5)
BUDGET = {"warmup_steps": 300, "sampling_steps": 403, "n_draws": 200, "step_size": 0.5}
NORMAL = StandardNormal()
DIMENSION = 5
SEED = 4
TESTS = Path(__file__).parents[2]


def starts(n_chains, dimension=DIMENSION):
    """Return starting points; those of few chains are the first of those of many."""
    return jnp.asarray(np.random.default_rng(0).standard_normal((n_chains, dimension)), jnp.float32)


def run(sampler=SMALL, n_chains=2, target=None, **options):
    return run_chains(sampler, target or FunctionTarget(NORMAL), starts(n_chains), seed=SEED, **options)


def slots(chains, chosen):
    """Return everything that is known of some chains."""
    arrays = chains._replace(status=np.array(chains.status), seed=None)
    return jax.tree.map(lambda leaf: leaf[chosen], arrays)


@pytest.fixture(scope="module")
def twelve():
    return run(n_chains=12)


@pytest.fixture(scope="module")
def network_posterior():
    data = small_dataset()
    network = MLP(n_inputs=3, hidden=(4,))
    rows = pad_rows(data.x_train, data.y_train)
    return Posterior(rows=rows, network=network, likelihood=Gaussian(), prior=Normal())


class TestBits:
    @pytest.mark.parametrize("block_steps", [1, 7, 100, 1000])
    def test_length_of_a_block_changes_nothing(self, twelve, block_steps):
        assert_same_bits(slots(run(block_steps=block_steps), slice(None)), slots(twelve, slice(2)))

    def test_length_of_a_block_changes_nothing_for_a_network(self, network_posterior):
        sampler = Mile(warmup_steps=100, sampling_steps=60, n_draws=20, step_size=0.01)
        positions = 0.3 * starts(2, network_posterior.dimension)
        first, *others = (
            run_chains(sampler, network_posterior, positions, seed=SEED, block_steps=length)
            for length in (None, 1, 7, 100, 1000)
        )
        assert first.ok.all()
        for other in others:
            assert_same_bits(first, other)

    @pytest.mark.parametrize("n_chains", range(1, 12))
    def test_number_of_chains_changes_no_chain(self, twelve, n_chains):
        assert_same_bits(slots(run(n_chains=n_chains), slice(None)), slots(twelve, slice(n_chains)))

    def test_place_of_a_chain_does_not_matter_but_its_id_does(self, twelve):
        options = {"seed": SEED, "chain_ids": [7, 3]}
        moved = run_chains(SMALL, FunctionTarget(NORMAL), starts(12)[jnp.array([7, 3])], **options)
        assert_same_bits(slots(moved, slice(None)), slots(twelve, [7, 3]))
        renamed = run_chains(SMALL, FunctionTarget(NORMAL), starts(1), seed=SEED, chain_ids=[1])
        assert not np.array_equal(renamed.draws[0], twelve.draws[0])

    @pytest.mark.parametrize("n_threads", [1, 2, 4])
    def test_number_of_threads_changes_nothing(self, twelve, n_threads):
        threaded = run(n_chains=6, backend=InProcess(n_threads=n_threads))
        assert_same_bits(slots(threaded, slice(None)), slots(twelve, slice(6)))

    def test_chains_differ_from_each_other_also_from_one_start(self):
        chains = run_chains(SMALL, FunctionTarget(NORMAL), jnp.ones((3, DIMENSION)), seed=SEED)
        assert len(np.unique(chains.draws[:, 0], axis=0)) == 3

    def test_same_seed_in_two_processes_gives_the_same_hashes_and_another_seed_others(self):
        # One process compiles for itself, the other may take what processes of other tests have compiled.
        others = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
        plain = others | {"JAX_ENABLE_COMPILATION_CACHE": "0"}
        processes = [
            subprocess.Popen(
                [sys.executable, "-W", "error", "-c", _HASHES],
                env=environment | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(TESTS)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for environment, hash_seed in ((plain, "1"), (others, "2"))
        ]
        outputs = [process.communicate(timeout=500) for process in processes]
        assert [process.returncode for process in processes] == [0, 0], outputs
        first, second = (json.loads(output) for output, _ in outputs)
        assert first == second
        assert set(first["0"]) == {"draws", "tuned", "predictions"}
        assert all(first["0"][name] != first["1"][name] for name in first["0"])


_HASHES = """
import hashlib, json
import numpy as np
import mile
from mile.ensemble.training import Training
from targets import small_dataset

dataset = small_dataset()
network = mile.MLP(n_inputs=3, hidden=(4,))
sampler = mile.Mile(warmup_steps=100, sampling_steps=60, n_draws=20)


def digest(*arrays):
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()


hashes = {}
for seed in (0, 1):
    options = {"training": Training(learning_rate=0.01, max_epochs=1), "n_chains": 2, "random_state": seed}
    fit = mile.fit(dataset, network, mile.Gaussian(), sampler=sampler, **options)
    predictive = fit.predictive(dataset.x_valid)
    hashes[seed] = {
        "draws": digest(fit.chains.draws),
        "tuned": digest(fit.chains.tuned.step_size, fit.chains.tuned.L),
        "predictions": digest(predictive.mean, predictive.std),
    }
print(json.dumps(hashes))
"""


class TestThinning:
    @pytest.mark.parametrize(("n_draws", "thinning"), [(200, 2), (40, 10), (7, 57)])
    def test_draws_are_every_so_manyth_of_the_last_steps(self, n_draws, thinning):
        every = run(replace(SMALL, n_draws=403))
        thinned = run(replace(SMALL, n_draws=n_draws))
        last_steps = slice(403 - n_draws * thinning, None)
        for name in ("draws", "logdensity", "energy_change"):
            assert_same_bits(getattr(thinned, name), getattr(every, name)[:, last_steps][:, thinning - 1 :: thinning])
        assert_same_bits(thinned.tuned, every.tuned)


@pytest.fixture(scope="module")
def result():
    return mile.sample(NORMAL, starts(2), random_state=SEED, **BUDGET)


class TestResult:
    def test_is_what_the_loop_gives(self, result, twelve):
        assert_same_bits(slots(result, slice(None)), slots(twelve, slice(2)))

    def test_has_all_fields_in_chain_draw_order(self, result):
        assert isinstance(result, Chains)
        assert result.draws.shape == (2, 200, DIMENSION)
        assert result.logdensity.shape == result.energy_change.shape == (2, 200)
        assert result.tuned.step_size.shape == result.tuned.L.shape == (2,)
        assert (result.tuned.step_size > 0).all()
        assert (result.tuned.L > 0).all()
        assert result.status == (Status.OK, Status.OK)
        assert result.ok.tolist() == [True, True]
        assert result.gradient_evaluations.tolist() == [2 * 703 + 1] * 2
        assert result.seed == SEED

    def test_has_numbers_of_every_phase_and_a_history_of_the_tuning(self, result):
        assert list(result.info) == ["phase I", "phase II", "phase III", "sampling"]
        for numbers in result.info.values():
            assert {"step_size", "L", "bad_steps", "energy_variance", "logdensity"} <= set(numbers)
            assert all(number.shape == (2,) for name, number in numbers.items() if name != "virial")
        assert {name: records.logdensity.shape for name, records in result.history.items()} == {
            "phase I": (2, 200),
            "phase II": (2, 30),
            "phase III": (2, 30),
        }

    def test_log_densities_are_those_of_the_draws(self, result):
        np.testing.assert_allclose(result.logdensity, -0.5 * np.square(result.draws).sum(axis=2), rtol=1e-5)
        np.testing.assert_array_equal(result.info["sampling"]["logdensity"], result.logdensity[:, -1])

    def test_seed_drawn_for_none_reproduces_the_run(self):
        result = mile.sample(NORMAL, starts(1), **BUDGET)
        again = mile.sample(NORMAL, starts(1), random_state=result.seed, **BUDGET)
        assert_same_bits(result, again)
        assert mile.sample(NORMAL, starts(1), **BUDGET).seed != result.seed

    def test_another_seed_gives_other_draws(self, result):
        other = mile.sample(NORMAL, starts(2), random_state=SEED + 1, **BUDGET)
        assert not np.isin(other.draws[:, 0], result.draws[:, 0]).any()

    def test_double_precision_goes_through(self, result):
        with jax.enable_x64(True):
            double = mile.sample(NORMAL, np.asarray(starts(2), np.float64), random_state=SEED, **BUDGET)
        assert double.ok.all()
        assert double.draws.dtype == double.logdensity.dtype == double.tuned.L.dtype == np.float64
        assert result.draws.dtype == np.float32
        np.testing.assert_allclose(double.logdensity, -0.5 * np.square(double.draws).sum(axis=2), rtol=1e-13)

    def test_bars_are_shown_on_request_and_change_nothing(self, result, capsys, monkeypatch):
        assert capsys.readouterr() == ("", "")
        monkeypatch.setenv("FORCE_COLOR", "1")  # as in a terminal
        shown = mile.sample(NORMAL, starts(2), random_state=SEED, verbose=1, **BUDGET)
        assert_same_bits(shown, result)
        output = capsys.readouterr().err
        assert all(f"{name} " in output for name in result.info)


class TestSteps:
    @pytest.fixture
    def configured(self, monkeypatch):
        """Return what a call hands to the loop, without running it."""

        def catch(sampler, *args, **options):
            raise Caught(sampler)

        def configured(*args, **options):
            with pytest.raises(Caught) as caught:
                mile.sample(*args, **options)
            return caught.value.args[0]

        monkeypatch.setattr(log_density, "run_chains", catch)
        return configured

    @pytest.mark.parametrize("dimension", [2, 100])
    def test_first_step_is_a_quarter_of_the_root_of_the_dimension(self, configured, dimension):
        assert configured(NORMAL, starts(1, dimension)) == Mile(step_size=0.25 * np.sqrt(dimension))

    def test_first_step_is_the_one_asked_for(self, configured):
        assert configured(NORMAL, starts(1), step_size=0.125) == Mile(step_size=0.125)

    def test_first_step_of_a_sampler_object_stays(self, configured):
        assert configured(NORMAL, starts(1), Mile(step_size=3.0)) == Mile(step_size=3.0)

    def test_budgets_replace_those_of_the_preset(self, configured):
        assert configured(NORMAL, starts(1), preset="quick", sampling_steps=50, step_size=1.0) == Mile(
            warmup_steps=5_000, sampling_steps=50, n_draws=50, step_size=1.0
        )


class Caught(Exception):
    pass


class TestBadArguments:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"positions": np.zeros(3)}, "positions must be an array"),
            ({"positions": np.zeros((2, 3, 4))}, "positions must be an array"),
            ({"positions": np.zeros((2, 1))}, "positions must be an array .* d >= 2; got shape .2, 1."),
            ({"positions": np.zeros((0, 3))}, "positions must be an array"),
            ({"positions": np.zeros((2, 3), int)}, "positions must be floating-point numbers; got dtype int"),
            ({"logdensity": 3.0}, "logdensity must be a function"),
            ({"logdensity": lambda x: x}, "logdensity must return one number"),
            ({"logdensity": lambda x: (x @ x, 0)}, "logdensity must return one number"),
            ({"sampler": "hmc"}, "sampler must be one of .*'mile'.*'hmc'"),
            ({"sampler": Mile}, "sampler must be one of"),
            ({"sampler": 3}, "sampler must be one of"),
            ({"preset": "fast"}, "preset must be one of .*'paper'.*'fast'"),
            ({"n_draws": 11, "sampling_steps": 10}, r"n_draws \(11\) must not exceed sampling_steps \(10\)"),
            ({"n_draws": 0}, "n_draws must be an integer of at least 1"),
            ({"n_draws": 2.5}, "n_draws must be an integer"),
            ({"sampling_steps": -1}, "sampling_steps must be an integer"),
            ({"warmup_steps": 2}, "warmup_steps must be an integer of at least 3"),
            ({"step_size": 0.0}, "step_size must be a positive number"),
            ({"step_size": float("nan")}, "step_size must be a positive number"),
            ({"random_state": -1}, "random_state must be None, an integer"),
            ({"random_state": "seed"}, "random_state must be None, an integer"),
        ],
    )
    def test_are_refused_by_name(self, arguments, message, monkeypatch):
        monkeypatch.setattr(log_density, "run_chains", lambda *args, **options: pytest.fail("the run began"))
        with pytest.raises(ValueError, match=message):
            mile.sample(**({"logdensity": NORMAL, "positions": np.zeros((2, 3))} | arguments))


class TestBadStarts:
    @pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
    def test_fail_alone_and_by_name(self, twelve, value):
        positions = starts(3).at[1, 2].set(value)  # 1e30: finite, but its square is not
        with pytest.warns(FitWarning, match=r"^Chain 1: its starting point .* not finite\.$"):
            result = mile.sample(NORMAL, positions, random_state=SEED, **BUDGET)
        assert result.status == (Status.OK, Status.NON_FINITE_START, Status.OK)
        assert_same_bits(slots(result, [0, 2]), slots(twelve, [0, 2]))

    @pytest.mark.filterwarnings("ignore::mile.FitWarning")
    @pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
    def test_leave_finite_draws_to_every_chain_that_is_ok(self, value):
        result = mile.sample(NORMAL, starts(3).at[1, 2].set(value), random_state=SEED, **BUDGET)
        assert result.ok.tolist() == [True, False, True]
        assert np.isfinite(result.draws[result.ok]).all()

    def test_everywhere_are_an_error_that_names_every_chain(self):
        with pytest.raises(FitFailedError, match="All chains failed") as caught:
            mile.sample(NORMAL, np.full((3, DIMENSION), np.nan), random_state=SEED, **BUDGET)
        assert all(f"Chain {chain}: its starting point" in str(caught.value) for chain in range(3))


class Recording:
    """A progress bar on paper."""

    def __init__(self):
        self.stages = []
        self.finished = 0

    def start(self, stage, total, *, unit="steps", n_chains=1):
        assert self.finished == len(self.stages), "a stage begins before the last has ended"
        self.stages.append([stage, total, 0])

    def advance(self, amount):
        self.stages[-1][2] += amount

    def finish(self):
        self.finished += 1

    def note(self, text):
        self.notes = [*getattr(self, "notes", []), text]

    def say(self, text):
        pass


class TestProgress:
    @pytest.mark.parametrize("block_steps", [None, 7, 1000])
    def test_every_stage_advances_by_exactly_its_total(self, block_steps):
        progress = Recording()
        # One thread: the recorder adds without a lock.
        run(n_chains=3, progress=progress, block_steps=block_steps, backend=InProcess(n_threads=1))
        assert progress.stages == [
            ["phase I", 720, 720],
            ["phase II", 90, 90],
            ["phase III", 90, 90],
            ["sampling", 1209, 1209],
        ]
        assert progress.finished == 4

    def test_every_stage_of_a_fit_advances_by_at_most_its_total(self):
        progress = Recording()
        options = {"training": Training(learning_rate=0.01, max_epochs=1), "n_chains": 1, "random_state": 0}
        network = MLP(n_inputs=3, hidden=(4,))
        mile.fit(small_dataset(), network, Gaussian(), sampler=mile.DeepEnsemble(), progress=progress, **options)
        assert [stage for stage, *_ in progress.stages] == ["ensemble", "members"]
        for stage, total, advanced in progress.stages:
            assert advanced <= total, stage


class TestCompilations:
    def test_a_program_is_compiled_once_for_all_chains_and_phases_one_and_two_share_theirs(self, compilations):
        positions = starts(3, dimension=7)
        compilations.clear()
        run_chains(SMALL, FunctionTarget(NORMAL), positions, seed=SEED)
        assert compilations.count("jit(begin)") == 4
        assert compilations.count("jit(advance)") == compilations.count("jit(finish)") == 3
        assert len(compilations) == 10

    def test_other_budgets_and_numbers_compile_nothing(self, compilations):
        run()
        compilations.clear()
        others = Mile(
            warmup_steps=205,
            sampling_steps=61,
            n_draws=20,
            step_size=0.2,
            fractions=(0.6, 0.3, 0.1),
            schedule=Linear(start=0.4, end=0.2),
            step_size_memory=50.0,
            trust=2.0,
            length_factor=0.3,
            n_fft_samples=8,
        )
        assert run(others).ok.all()
        assert compilations == []

    def test_a_second_run_compiles_nothing(self, compilations):
        run(block_steps=100)
        compilations.clear()
        run(block_steps=100, n_chains=2)
        assert compilations == []

    def test_other_seeds_and_ids_compile_nothing(self, compilations):
        run(block_steps=100)
        compilations.clear()
        run_chains(SMALL, FunctionTarget(NORMAL), starts(2), seed=99, chain_ids=[5, 6], block_steps=100)
        assert compilations == []

    def test_other_block_lengths_compile_no_phase(self, compilations):
        run(block_steps=100)
        compilations.clear()
        run(block_steps=11)
        assert not {"jit(begin)", "jit(advance)", "jit(finish)"} & set(compilations)

    def test_other_block_lengths_compile_nothing(self, compilations):
        run(block_steps=100)
        compilations.clear()
        run(block_steps=13)
        assert compilations == []
