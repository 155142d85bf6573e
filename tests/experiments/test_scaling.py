"""The simulation of clusters and the cost model behind docs/scale.md, in cases whose answer is known."""

import importlib
import re
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mile.ensemble.training import Training
from mile.likelihoods import Gaussian
from mile.networks import MLP
from mile.posterior import FunctionTarget
from mile.samplers import Mile

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
if not (BENCHMARKS / "scaling").is_dir():
    pytest.skip("the benchmarks are not part of this copy", allow_module_level=True)
sys.path.append(str(BENCHMARKS))  # last: both folders have a runs.py
from scaling import dispatch  # noqa: E402
from scaling.costs import Problem, Speed, checkpoint_bytes, stages  # noqa: E402
from scaling.setting import Setting, Stage  # noqa: E402
from scaling.simulate import simulate  # noqa: E402

STEP = 0.01
STEPS = 10_000  # a chain takes 100 s
STAGE = Stage(name="sampling", n_steps=STEPS, step_seconds=STEP, checkpoint_bytes=1e4, record_bytes=100.0)
CHAIN = STEPS * STEP


def run(seed=0, **changes):
    setting = Setting(**({"n_chains": 1, "n_slots": 1, "stages": (STAGE,)} | changes))
    return simulate(setting, np.random.default_rng(seed))


def test_one_slot_without_overhead_takes_as_long_as_the_work():
    result = run(n_chains=3)
    assert result.wall_seconds == pytest.approx(3 * CHAIN)
    assert result.efficiency == pytest.approx(1.0)
    assert result.lost_seconds == 0.0


@pytest.mark.parametrize(("n_chains", "n_slots"), [(8, 4), (100, 10), (4, 4)])
def test_chains_divide_among_slots(n_chains, n_slots):
    result = run(n_chains=n_chains, n_slots=n_slots)
    assert result.wall_seconds == pytest.approx(n_chains * CHAIN / n_slots, rel=0.01)


def test_three_chains_share_two_slots_because_blocks_take_turns():
    # Whole chains would take two rounds. At the end two chains are left, and a block of the third.
    result = run(n_chains=3, n_slots=2)
    assert 1.5 * CHAIN <= result.wall_seconds <= 1.5 * CHAIN + 2.0


def test_more_slots_than_chains_do_not_help():
    few, many = run(n_chains=4, n_slots=4), run(n_chains=4, n_slots=40)
    assert few.wall_seconds == pytest.approx(CHAIN)
    assert many.wall_seconds == pytest.approx(CHAIN)
    assert many.efficiency == pytest.approx(0.1)


def test_a_stage_waits_for_its_last_chain():
    result = run(n_chains=3, n_slots=2, stages=(STAGE, replace(STAGE, name="more")))
    assert result.stage_seconds["sampling"] >= 1.5 * CHAIN
    assert result.wall_seconds == pytest.approx(sum(result.stage_seconds.values()))


def test_every_task_pays_its_overhead():
    plain, costly = run(), run(overhead_seconds=0.5, short_seconds=0.25)
    assert costly.n_tasks == plain.n_tasks
    assert costly.wall_seconds == pytest.approx(plain.wall_seconds + 0.5 * plain.n_tasks + 2 * 0.25)


def test_start_up_is_paid_once_and_programs_for_each_kind_of_task_by_each_worker():
    result = run(n_chains=2, n_slots=2, startup_seconds=5.0, program_seconds=2.0, prepare_seconds=1.0)
    assert result.wall_seconds == pytest.approx(5.0 + 1.0 + CHAIN + 3 * 2.0)  # begin, blocks, finish


def test_blocks_last_as_long_as_asked_and_end_short():
    result = run(n_chains=40, n_slots=2, block_seconds=10.0)
    work = 40 * CHAIN
    assert work / 10.0 <= result.n_tasks - 80 <= 1.4 * work / 10.0 + 100  # 80 tasks begin and finish chains


def test_client_counts_every_byte():
    result = run(n_chains=5, n_slots=2)
    assert result.client_bytes == pytest.approx(2e4 * result.n_tasks + 5 * STEPS * 100.0)


@pytest.mark.parametrize("name", ["scheduler", "client"])
def test_what_serves_one_task_at_a_time_limits_the_rate(name):
    result = run(n_chains=200, n_slots=200, block_seconds=1.0, **{f"{name}_seconds": 0.02})
    assert result.utilization[name] > 0.9
    assert result.wall_seconds == pytest.approx(0.02 * result.n_tasks, rel=0.1)


def test_a_slow_link_limits_the_rate():
    result = run(n_chains=20, n_slots=20, bandwidth=1e4, with_duplicates=False)
    assert result.wall_seconds >= result.client_bytes / 1e4
    assert result.utilization["link"] > 0.9


def test_a_failure_costs_at_most_a_block_and_the_restart():
    calm = run(n_chains=2, n_slots=2)
    for seed in range(20):
        broken = run(seed, n_chains=2, n_slots=2, failures_per_hour=12.0, restart_seconds=5.0)
        assert broken.lost_seconds <= 10.0 * broken.n_failures
        assert broken.wall_seconds <= calm.wall_seconds + 16.0 * broken.n_failures
    assert broken.n_failures > 0


def test_a_straggler_is_bounded_by_duplicates():
    options = {"n_chains": 8, "n_slots": 16, "slow_workers": 0.1, "slow_worker_factor": 1_000.0, "block_seconds": 2.0}
    drawn = {seed: np.flatnonzero(np.random.default_rng(seed).random(16) < 0.1).tolist() for seed in range(100)}
    seed = next(seed for seed, slow in drawn.items() if slow and max(slow) < 8)  # one that is given a chain
    alone = run(seed, with_duplicates=False, **options)
    helped = run(seed, **options)
    assert alone.wall_seconds > 1.5 * CHAIN
    assert helped.n_duplicates >= 1
    # Three times a block, but at least five seconds, until it is noticed, and the block once more.
    assert helped.wall_seconds <= CHAIN + helped.n_duplicates * (2.0 + max(3 * 2.0, 5.0))


def test_members_of_the_ensemble_train_without_begin_and_finish():
    training = Stage(name="ensemble", n_steps=100, step_seconds=0.1, is_training=True)
    result = run(n_chains=6, n_slots=3, stages=(training,))
    assert result.wall_seconds == pytest.approx(20.0)
    assert result.n_tasks >= 6


def test_the_seed_decides_everything():
    trouble = {"n_chains": 30, "n_slots": 7, "failures_per_hour": 5.0, "slow_tasks": 0.1, "slow_task_factor": 6.0}
    assert run(3, **trouble) == run(3, **trouble)
    assert run(3, **trouble) != run(4, **trouble)


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("mile.sampling.block_schedule", ["_FIRST_STEPS"]),
        ("mile.ensemble.members", ["_FIRST_EPOCHS", "_BLOCK_SHARE"]),
        ("mile.execution.dask", ["_SHARES", "_SHORTEST_SHARE"]),
        ("mile.execution._dispatch", ["_SLOW", "_SHORTEST_DELAY", "_FEWEST_TIMED"]),
    ],
)
def test_the_simulation_follows_the_rules_of_the_library(module, names):
    library = importlib.import_module(module)
    assert {name: getattr(dispatch, name) for name in names} == {name: getattr(library, name) for name in names}


def test_nothing_runs_without_chains_or_slots():
    with pytest.raises(ValueError, match="chains and slots"):
        run(n_slots=0)


# -- the cost model

AIRFOIL = Problem(name="airfoil", n_rows=1_052, n_inputs=5, hidden=(16, 16))


def test_parameters_are_those_of_the_network():
    assert AIRFOIL.dimension == MLP(n_inputs=5, hidden=(16, 16)).dimension == 402


def test_a_step_on_airfoil_has_the_known_arithmetic():
    assert 2 * AIRFOIL.gradient_flops == pytest.approx(4.3e6, rel=0.01)  # counted by hand for the native kernel


def test_gradient_arithmetic_agrees_with_the_compiler():
    # Wide layers, so that activations and sums, which the model leaves out, hardly count.
    problem = Problem(name="wide", n_rows=64, n_inputs=48, hidden=(256, 192))
    network, likelihood = MLP(n_inputs=48, hidden=(256, 192)), Gaussian()
    x, y = jnp.ones((48, 64)), jnp.ones(64)

    def loss(weights):
        return likelihood.log_prob(network.apply(weights, x), y).sum()

    compiled = jax.jit(jax.grad(loss)).lower(jnp.zeros(network.dimension)).compile()
    assert compiled.cost_analysis()["flops"] == pytest.approx(problem.gradient_flops, rel=0.03)


@pytest.mark.parametrize("hidden", [(16, 16), (64, 64)])
def test_checkpoints_have_the_size_of_what_chains_carry(hidden):
    problem = replace(AIRFOIL, hidden=hidden)  # the wider network has more coordinates than phase III records
    sampler = Mile(warmup_steps=1_000, sampling_steps=100, n_draws=10).with_start(1e-3)
    target, carry = FunctionTarget(lambda theta: -0.5 * jnp.sum(theta**2)), jnp.zeros(problem.dimension)
    for phase in sampler.phases:
        carry = jax.eval_shape(lambda carry, phase=phase: phase.init(jax.random.key(0), carry, target), carry)
        counted = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(carry))
        assert 0 <= counted - checkpoint_bytes(problem, phase.name, sampler) <= 100  # a few numbers
        carry = jax.eval_shape(phase.finish, carry).carry


def test_stages_hold_the_whole_budget():
    sampler, training = Mile(), Training(max_epochs=100)
    found = stages(AIRFOIL, sampler, training, step_seconds=1e-4, epoch_seconds=1e-3)
    assert [stage.name for stage in found] == ["ensemble", "phase I", "phase II", "phase III", "sampling"]
    assert sum(stage.n_steps for stage in found[1:]) == 60_000
    assert sampler.gradient_evaluations() == 2 * 60_000 + 1
    assert found[-1].record_bytes * found[-1].n_steps == AIRFOIL.draw_bytes(sampler) == 4 * 1_000 * 404


def test_time_of_a_step_is_arithmetic_and_vectors():
    speed = Speed(peak=1e11, share=0.5, step_seconds=1e-6, coordinate_seconds=1e-8)
    expected = 2 * AIRFOIL.gradient_flops / 5e10 + 1e-6 + 402e-8
    assert speed.seconds_per_step(AIRFOIL) == pytest.approx(expected)


# -- reading the log of a fit


def logged(name, n_bytes=0, **times):
    return {"stage": name, "size": 1, "group": 0, "host": "here", "bytes": n_bytes, **times}


def test_tasks_are_read_from_their_names():
    measure = pytest.importorskip("scaling.measure", exc_type=ImportError)
    times = {"seconds": 1.0, "submitted": 0.0, "received": 1.5}
    read = [
        measure.read_task(logged(name, **times))
        for name in ("chain 3, phase II, steps 1,000 to 12,000", "chain 0, sampling, begin", "member 2, epochs 0 to 25")
    ]
    found = [(task.stage, task.kind, task.n_steps) for task in read]
    assert found == [("phase II", "block", 11_000), ("sampling", "begin", 0), ("ensemble", "block", 25)]


def test_calibration_gives_back_the_numbers_that_a_log_was_made_with():
    measure = pytest.importorskip("scaling.measure", exc_type=ImportError)
    overhead, loading, startup, prepare = 0.02, 0.5, 3.0, 0.25

    def fit(step_seconds):
        now, tasks, seen = 10.0, [], set()

        def add(name, seconds):
            nonlocal now
            kind = re.sub(r"\d+", "", name)
            extra = 0.0 if kind in seen else loading + (0.0 if seen else startup)
            seen.add(kind)
            received = now + seconds + extra + overhead
            times = {"seconds": seconds + extra, "submitted": now, "received": received}
            tasks.append(measure.read_task(logged(name, **times)))
            now = received

        for first in range(0, 100, 25):
            add(f"member 0, epochs {first} to {first + 25}", 25 * 0.01)
        for phase in measure.PHASES:
            add(f"chain 0, {phase}, begin", 0.003)
            add(f"chain 1, {phase}, begin", 0.003)
            now += prepare
            for first in range(0, 400, 100):
                add(f"chain 0, {phase}, steps {first} to {first + 100}", 100 * step_seconds)
            add(f"chain 0, {phase}, finish", 0.003)
            add(f"chain 1, {phase}, finish", 0.003)
        return measure.Timed(n_workers=1, seconds=now - 10.0 + 1.0, client_seconds=0.0, tasks=tasks)

    found = measure.calibrate(fit(0.05), fit(0.06))
    assert found == pytest.approx(
        {
            "step_seconds": 0.05,
            "epoch_seconds": 0.01,
            "sharing": 1.2,
            "overhead_seconds": overhead,
            "short_seconds": 0.003,
            "prepare_seconds": prepare,
            "startup_seconds": startup,
            "program_seconds": loading,
            "fixed_seconds": 1.0,
        },
        rel=0.01,
    )
