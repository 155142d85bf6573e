"""MILE's configuration, presets and phases; the deep ensemble; `configure`."""

import dataclasses
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import case
from targets import StandardNormal, assert_same_bits

import mile
from mile import DeepEnsemble, Mile, _registry
from mile.posterior import FunctionTarget
from mile.samplers import configure, presets_of
from mile.samplers._decoherence import length_from_autocorrelation, length_from_moments
from mile.samplers._step_size import Geometric, Linear
from mile.sampling.chains import run_chains

TARGET = FunctionTarget(StandardNormal())
NAN, INF = float("nan"), float("inf")


IMPOSSIBLE = {
    "warmup_steps": [2, 0, -1, 100.0, True, "100", None],
    "sampling_steps": [0, -1, 10.0, True, "10", None],
    "n_draws": [0, -1, 1.5, True, "10", None, 10_001],
    "n_coordinates": [0, -1, 2.0, True, None],
    "n_fft_samples": [3, 0, -1, 100.0, None],
    "step_size": [0.0, -0.1, NAN, INF, "small", True],
    "trust": [0.0, -1.0, NAN, INF, "much", None],
    "length_factor": [0.0, -1.0, NAN, INF, "long", None],
    # Below 1 the average would weigh its own past negatively.
    "step_size_memory": [0.0, -1.0, NAN, INF, "long", 0.5],
    "fractions": [
        (0.5, 0.5),
        (0.8, 0.1, 0.2),
        (1.0, 0.0, 0.0),
        (1.1, -0.2, 0.1),
        (0.8, NAN, 0.1),
        (NAN, 0.5, 0.5),
        ("a", "b", "c"),
        None,
        0.8,
    ],
    "schedule": [None, "linear", 0.5, Linear],
    "diagonal_metric": [None, 1, "yes"],
    "energy_limit": [0.0, -1.0, NAN, INF, "high", True],
}


class TestConfiguration:
    def test_defaults_are_the_papers(self):
        sampler = Mile()
        assert (sampler.warmup_steps, sampler.sampling_steps, sampler.n_draws) == (50_000, 10_000, 1_000)
        assert sampler.fractions == (0.8, 0.1, 0.1)
        assert sampler.schedule == Linear(start=0.5, end=0.1)
        assert (sampler.step_size_memory, sampler.trust, sampler.length_factor) == (100.0, 1.5, 0.4)
        assert (sampler.n_coordinates, sampler.n_fft_samples) == (2_000, 10_000)
        assert sampler.gradient_evaluations() == 120_001
        assert sampler.name == "mile"

    def test_memory_may_follow_the_draws(self):
        for n_draws, memory in ((100, 100.0), (1_000, 100.0), (5_000, 500.0)):
            phases = Mile(n_draws=n_draws, step_size_memory=None, step_size=0.01).phases
            assert [phase.memory for phase in phases[:2]] == [memory, memory]
        assert Mile(n_draws=5_000, step_size=0.01).phases[0].memory == 100.0

    def test_phases_have_the_papers_names_and_sizes(self):
        phases = Mile(step_size=0.01).phases
        assert [phase.name for phase in phases] == ["phase I", "phase II", "phase III", "sampling"]
        assert [phase.n_steps for phase in phases] == [40_000, 5_000, 5_000, 10_000]
        assert [phase.n_records for phase in phases] == [200, 200, 200, 1_000]
        assert [phase.first_steps for phase in phases[:2]] == [40_000, 40_000]
        assert [phase.total_steps for phase in phases[:2]] == [45_000, 45_000]

    @pytest.mark.parametrize("warmup_steps", [3, 10, 21, 101, 5_003])
    @pytest.mark.parametrize("fractions", [(0.8, 0.1, 0.1), (0.5, 0.3, 0.2), (1 / 3, 1 / 3, 1 / 3)])
    def test_phases_use_the_whole_budget_and_are_never_empty(self, warmup_steps, fractions):
        phases = Mile(warmup_steps=warmup_steps, fractions=fractions, step_size=0.01).phases
        assert sum(phase.n_steps for phase in phases[:3]) == warmup_steps
        assert min(phase.n_steps for phase in phases) >= 1
        assert min(phase.n_records for phase in phases) >= 1

    def test_impossible_values_are_refused_with_the_name_of_the_field(self):
        assert IMPOSSIBLE.keys() == {field.name for field in dataclasses.fields(Mile)}
        for name, values in IMPOSSIBLE.items():
            for value in values:
                with case(f"{name}={value!r}"), pytest.raises(ValueError, match=rf"\b{name}\b"):
                    Mile(**{name: value})

    def test_warmup_too_short_for_its_fractions_is_refused(self):
        with pytest.raises(ValueError, match="warmup_steps"):
            Mile(warmup_steps=3, fractions=(0.05, 0.9, 0.05))

    def test_numpy_integers_are_numbers_too(self):
        assert Mile(warmup_steps=np.int64(100), sampling_steps=np.int32(10), n_draws=np.int64(10)).n_draws == 10

    def test_step_size_left_open_must_be_filled_in_before_running(self):
        with pytest.raises(ValueError, match="step_size"):
            _ = Mile().phases
        assert Mile().with_start(0.03).step_size == 0.03
        assert Mile(step_size=0.5).with_start(0.03).step_size == 0.5

    def test_phases_of_other_budgets_and_numbers_make_the_same_programs(self):
        one = Mile(step_size=0.1, warmup_steps=300, sampling_steps=50, n_draws=20)
        other = Mile(
            step_size=0.2,
            warmup_steps=5_000,
            sampling_steps=10_000,
            n_draws=1_000,
            fractions=(0.6, 0.3, 0.1),
            schedule=Linear(start=0.4, end=0.2),
            step_size_memory=50.0,
            trust=2.0,
            length_factor=0.3,
            n_fft_samples=400,
        )
        structures = [[jax.tree.structure(phase) for phase in sampler.phases] for sampler in (one, other)]
        assert structures[0] == structures[1]
        first, second, third, sampling = structures[0]
        assert first == second
        assert len({first, third, sampling}) == 3
        geometric = Mile(step_size=0.1, schedule=Geometric()).phases[0]
        assert jax.tree.structure(geometric) != first  # another rule is another program

    def test_phases_are_hashable_so_that_programs_can_be_reused(self):
        one, other = (Mile(step_size=0.1, schedule=Geometric()).phases for _ in range(2))
        assert one == other
        assert hash(one) == hash(other)


class TestPresets:
    def test_paper_is_the_default_configuration(self):
        assert Mile.presets()["paper"] == Mile()

    def test_quick_has_a_tenth_of_the_steps_and_200_draws(self):
        assert Mile.presets()["quick"] == Mile(warmup_steps=5_000, sampling_steps=1_000, n_draws=200)

    def test_accurate_has_four_times_the_steps_and_a_geometric_schedule(self):
        schedule = Geometric(start=0.5, end=5e-4, fraction=0.5)
        assert Mile.presets()["accurate"] == Mile(warmup_steps=200_000, sampling_steps=40_000, schedule=schedule)
        assert Mile.presets()["accurate"].n_draws == 1_000


class TestConfigure:
    def test_a_name_and_a_preset_give_the_entry_of_the_table(self):
        for name in _registry.sampler:
            for preset, sampler in presets_of(name).items():
                assert configure(name, preset) == sampler
        assert configure("mile") == Mile.presets()["paper"]

    @pytest.mark.parametrize("sampler", ["hmc", "", "MILE", 3, None, Mile, object(), ["mile"]])
    def test_unknown_samplers_are_refused_with_the_names_that_exist(self, sampler):
        with pytest.raises(ValueError, match=r"sampler must be one of .*deep_ensemble.*mile"):
            configure(sampler)

    def test_unknown_presets_are_refused_with_the_names_that_exist(self):
        for name, preset in product(_registry.sampler, ["fast", "", "Paper", None]):
            with pytest.raises(ValueError, match=r"preset must be one of .*accurate.*paper.*quick"):
                configure(name, preset)

    def test_budgets_replace_those_of_the_preset_and_nothing_else(self):
        configured = configure("mile", "accurate", warmup_steps=400, sampling_steps=300, n_draws=30)
        assert configured == Mile(warmup_steps=400, sampling_steps=300, n_draws=30, schedule=Geometric())

    def test_an_object_stands_for_itself_whatever_the_preset(self):
        sampler = Mile(trust=2.0, sampling_steps=5_000)
        assert configure(sampler, "quick") == sampler
        assert configure(sampler, "no such preset") == sampler
        assert configure(sampler, warmup_steps=100) == dataclasses.replace(sampler, warmup_steps=100)

    def test_draws_left_open_never_exceed_the_steps(self):
        assert configure("mile", sampling_steps=300).n_draws == 300
        assert configure("mile", "quick", sampling_steps=300).n_draws == 200
        assert configure(Mile(n_draws=50), sampling_steps=20).n_draws == 20

    def test_more_draws_than_steps_are_refused(self):
        with pytest.raises(ValueError, match=r"n_draws.*sampling_steps"):
            configure("mile", sampling_steps=300, n_draws=301)
        with pytest.raises(ValueError, match=r"n_draws.*sampling_steps"):
            configure("mile", "quick", n_draws=1_001)

    @pytest.mark.parametrize("sampler", ["mile", "deep_ensemble", DeepEnsemble()])
    def test_impossible_budgets_are_refused_by_every_sampler(self, sampler):
        for name, value in product(["warmup_steps", "sampling_steps", "n_draws"], [0, -5, 2.5, True, "many"]):
            with case(f"{name}={value!r}"), pytest.raises(ValueError, match=name):
                configure(sampler, **{name: value})

    def test_the_deep_ensemble_ignores_possible_budgets(self):
        configured = configure("deep_ensemble", "quick", warmup_steps=1, sampling_steps=7, n_draws=9)
        assert configured == DeepEnsemble()
        assert configured.n_draws == 1


@jax.jit
def make_steps(phase, carry, keys):
    def step(carry, key):
        carry, record = phase.step(key, carry, TARGET)
        return carry, (carry.state.position, record)

    return jax.lax.scan(step, carry, keys)


begin = jax.jit(lambda phase, key, carry: phase.init(key, carry, TARGET))
end_phase = jax.jit(lambda phase, carry: phase.finish(carry))


def advance(phase, carry, seed):
    """Run a phase as the loop does; return its last carry, and the position and the record after each step."""
    return make_steps(phase, carry, jax.random.split(jax.random.key(seed), phase.n_steps))


DIMENSION = 9
SAMPLER = Mile(
    warmup_steps=100,
    sampling_steps=10,
    n_draws=10,
    fractions=(0.5, 0.25, 0.25),
    step_size=0.3,
    n_coordinates=4,
    n_fft_samples=10,
)


@pytest.fixture(scope="module")
def tuned():
    """Return the carries after phases I and II."""
    first, second, *_ = SAMPLER.phases
    carry = begin(first, jax.random.key(0), np.full(DIMENSION, 3.0, np.float32))
    after_first, _ = advance(first, carry, 1)
    after_second, _ = advance(second, begin(second, jax.random.key(2), after_first), 3)
    return after_first, after_second


@pytest.fixture(scope="module")
def measured(tuned):
    """Return phase III before its first and after its last step, and all its positions."""
    third = SAMPLER.phases[2]
    start = begin(third, jax.random.key(4), tuned[1])
    end, (positions, _) = advance(third, start, 5)
    return start, end, np.asarray(positions)


class TestPhases:
    def test_phase_one_starts_at_the_position_with_the_step_size_given(self):
        carry = begin(SAMPLER.phases[0], jax.random.key(0), np.ones(DIMENSION, np.float32))
        np.testing.assert_array_equal(carry.state.position, 1.0)
        assert carry.step_size.value == np.float32(0.3)
        assert carry.index == 0

    def test_phase_two_goes_on_with_the_average_of_phase_one_and_new_variances(self, tuned):
        after_first, after_second = tuned
        start = begin(SAMPLER.phases[1], jax.random.key(2), after_first)
        assert after_first.step_size.weight > 0
        assert_same_bits(start.step_size, after_first.step_size)
        assert_same_bits(start.state, after_first.state)
        assert start.index == 50
        assert start.moments.weight == 0.0
        assert not np.any(start.moments.deviation)
        assert after_second.index == 75

    def test_phase_two_weighs_positions_by_the_step_that_led_there(self, tuned):
        after_first, after_second = tuned
        second = SAMPLER.phases[1]
        start = begin(second, jax.random.key(2), after_first)
        _, (positions, record) = advance(second, start, 3)
        step_sizes = np.asarray(record.step_size)
        used = np.append(start.step_size.value, step_sizes[:-1])
        positions = np.asarray(positions, float)
        assert np.ptp(used) > 0.01
        mean = np.average(positions, axis=0, weights=used)
        variance = np.average(np.square(positions - mean), axis=0, weights=used)
        np.testing.assert_allclose(after_second.moments.mean, mean, atol=1e-4)
        found = np.asarray(after_second.moments.deviation) / after_second.moments.weight
        np.testing.assert_allclose(found, variance, rtol=1e-3)

    def test_a_step_that_was_reverted_counts_for_no_variance(self):
        first = SAMPLER.phases[0]
        nowhere = FunctionTarget(lambda x: jnp.where(jnp.all(x == 0.0), 0.0, jnp.nan))  # finite at the start alone
        carry = first.init(jax.random.key(0), jnp.zeros(DIMENSION), nowhere)
        after, _ = jax.jit(lambda carry: first.step(jax.random.key(1), carry, nowhere))(carry)
        assert after.health.bad_steps == 1
        assert after.moments.weight == 0.0

    def test_phase_three_takes_step_size_and_length_of_phase_two(self, tuned, measured):
        start, end, _ = measured
        step_size = tuned[1].step_size.value
        assert start.tuned.step_size == end.tuned.step_size == step_size
        assert start.tuned.L == end.tuned.L
        np.testing.assert_allclose(start.tuned.L, length_from_moments(tuned[1].moments, step_size), rtol=1e-6)
        assert_same_bits(start.state, tuned[1].state)

    def test_phase_three_stores_the_chosen_coordinates_of_thinned_steps_and_nothing_else(self, measured):
        start, end, positions = measured
        third = SAMPLER.phases[2]
        # 25 steps for at most 10 samples: every third, so 8 of them.
        assert third.thinning == 3
        assert start.samples.shape == end.samples.shape == (third.capacity, 4)
        samples = np.asarray(end.samples)
        np.testing.assert_array_equal(samples[:8], positions[2:24:3][:, np.asarray(start.coordinates)])
        assert not samples[9:].any()  # of the ninth there is only the first of three steps
        stored = sum(leaf.size for leaf in jax.tree.leaves(end)) - end.samples.size
        assert stored < 5 * DIMENSION

    def test_coordinates_are_chosen_at_random_before_the_first_step(self, tuned, measured):
        start, end, _ = measured
        third = SAMPLER.phases[2]
        np.testing.assert_array_equal(start.coordinates, end.coordinates)
        choices = [np.asarray(begin(third, jax.random.key(s), tuned[1]).coordinates) for s in range(40)]
        for choice in choices:
            assert len(set(choice.tolist())) == 4
        assert set(np.concatenate(choices).tolist()) == set(range(DIMENSION))

    def test_all_coordinates_are_stored_if_there_are_few(self, tuned):
        third = dataclasses.replace(SAMPLER.phases[2], n_coordinates=DIMENSION)
        start = begin(third, jax.random.key(0), tuned[1])
        np.testing.assert_array_equal(start.coordinates, np.arange(DIMENSION))

    @pytest.mark.parametrize(
        ("n_steps", "n_fft_samples", "thinning"),
        [(5_000, 10_000, 1), (10_000, 10_000, 1), (10_001, 10_000, 2), (7, 4, 2)],
    )
    def test_thinning_keeps_the_number_of_samples_within_its_limit(self, n_steps, n_fft_samples, thinning):
        sampler = dataclasses.replace(SAMPLER, warmup_steps=4 * n_steps, n_fft_samples=n_fft_samples)
        third = sampler.phases[2]
        assert third.n_steps == n_steps
        assert third.thinning == thinning
        assert n_steps // third.thinning <= n_fft_samples

    def test_room_for_samples_suffices_without_waste(self):
        for n_steps in [*range(1, 3_000, 7), 5_000, 9_999, 10_000]:
            third = Mile(warmup_steps=10 * n_steps, step_size=0.1).phases[2]
            assert n_steps <= third.capacity <= max(n_steps + 511, 1.25 * n_steps), n_steps

    def test_sampling_uses_the_length_of_phase_three_and_goes_on_with_its_velocity(self, measured):
        _, end, _ = measured
        third, sampling = SAMPLER.phases[2:]
        finished = end_phase(third, end)
        samples = np.asarray(end.samples)[:8]
        expected, was_measured = jax.jit(length_from_autocorrelation)(samples, 8, 3, *end.tuned[:2], 0.4)
        start = begin(sampling, jax.random.key(6), finished.carry)
        assert was_measured
        assert start.tuned.L == finished.report["L"] == pytest.approx(float(expected), rel=1e-5)
        assert start.tuned.L != end.tuned.L
        assert start.tuned.step_size == end.tuned.step_size
        assert_same_bits(start.state, end.state)
        last, _ = advance(sampling, start, 7)
        assert_same_bits(last.tuned, start.tuned)

    def test_the_loop_hands_over_what_the_phases_report_and_makes_the_gradient_evaluations_promised(self):
        evaluations = []

        def counted(x):
            jax.debug.callback(lambda: evaluations.append(None))
            return StandardNormal()(x)

        chains = run_chains(SAMPLER, FunctionTarget(counted), jnp.ones((2, DIMENSION)), seed=3)
        jax.effects_barrier()
        assert SAMPLER.gradient_evaluations() == 221
        np.testing.assert_array_equal(chains.gradient_evaluations, 221)
        assert len(evaluations) == 2 * 221
        step_size = chains.info["phase II"]["step_size"]
        assert not np.allclose(step_size, chains.info["phase I"]["step_size"])
        for phase in ("phase III", "sampling"):
            np.testing.assert_array_equal(chains.info[phase]["step_size"], step_size)
        assert not np.allclose(chains.info["phase III"]["L"], chains.info["phase II"]["L"])
        np.testing.assert_array_equal(chains.info["sampling"]["L"], chains.info["phase III"]["L"])
        np.testing.assert_array_equal(chains.tuned.step_size, step_size)
        np.testing.assert_array_equal(chains.tuned.L, chains.info["sampling"]["L"])
        np.testing.assert_array_equal(chains.history["phase I"].step_size[:, -1], chains.info["phase I"]["step_size"])


class TestDeepEnsemble:
    def test_gives_its_members_back_as_draws(self):
        members = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
        chains = mile.sample(StandardNormal(), members, sampler="deep_ensemble", random_state=0)
        np.testing.assert_array_equal(chains.draws, members[:, None])
        np.testing.assert_allclose(chains.logdensity[:, 0], -0.5 * np.square(members).sum(axis=1), rtol=1e-5)
        assert chains.ok.all()
        assert np.isnan(chains.tuned.step_size).all()
        assert not chains.gradient_evaluations.any()

    def test_a_member_without_a_finite_log_density_has_failed(self):
        members = np.ones((2, 3), np.float32)
        members[1, 0] = np.nan
        with pytest.warns(mile.FitWarning, match="Chain 1"):
            chains = mile.sample(StandardNormal(), members, sampler="deep_ensemble", random_state=0)
        assert chains.status == (mile.Status.OK, mile.Status.NON_FINITE_START)

    def test_needs_no_step_size(self):
        assert DeepEnsemble().with_start(0.1) == DeepEnsemble()
        assert DeepEnsemble().gradient_evaluations() == 0
