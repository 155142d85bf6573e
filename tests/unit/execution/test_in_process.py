"""Groups have a fixed width, padding is nobody's chain, results keep their order, and errors come through."""

import threading
import time
from dataclasses import dataclass
from itertools import chain

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from targets import StandardNormal

from mile.execution import InProcess
from mile.posterior import FunctionTarget
from mile.samplers import DeepEnsemble, Draw
from mile.samplers.point import Keep
from mile.sampling.chains import run_chains


class Wide(InProcess):
    """An accelerator's groups on any device."""

    width = 4


@jax.tree_util.register_static
@dataclass(frozen=True, kw_only=True)
class Stride(Keep):
    """Five steps of a random walk, a phase that compiles in no time."""

    n_steps: int = 5
    n_records: int = 5

    def step(self, key, carry, target):
        position = carry.position + jax.random.normal(key, carry.position.shape)
        draw = Draw(position, target.logdensity(position), carry.energy_change)
        return draw, draw


@dataclass(frozen=True, kw_only=True)
class Walk(DeepEnsemble):
    @property
    def phases(self):
        return (Stride(),)


class TestGroups:
    def test_width_is_one_on_a_cpu_and_more_on_an_accelerator(self, monkeypatch):
        for platform, width in [("cpu", 1), ("gpu", 16), ("tpu", 16)]:
            monkeypatch.setattr(jax, "default_backend", lambda platform=platform: platform)
            assert InProcess().width == width

    @pytest.mark.parametrize("n_chains", [1, 2, 5])
    def test_of_width_one_hold_one_chain_each(self, n_chains):
        assert InProcess().groups(range(n_chains)) == [[chain] for chain in range(n_chains)]

    @pytest.mark.parametrize(
        ("chains", "groups"),
        [
            (range(1), [[0, 0, 0, 0]]),
            (range(4), [[0, 1, 2, 3]]),
            (range(6), [[0, 1, 2, 3], [4, 5, 4, 4]]),
            ([12, 7, 3, 9, 5], [[12, 7, 3, 9], [5, 5, 5, 5]]),
        ],
    )
    def test_of_width_four_are_filled_up(self, chains, groups):
        assert Wide().groups(chains) == groups

    @pytest.mark.parametrize("backend", [InProcess(), Wide()])
    @pytest.mark.parametrize("n_chains", range(1, 14))
    def test_put_together_begin_with_the_chains_in_order(self, backend, n_chains):
        groups = backend.groups(range(n_chains))
        assert {len(group) for group in groups} == {backend.width}
        assert list(chain.from_iterable(groups))[:n_chains] == list(range(n_chains))


class TestOverGroup:
    def test_of_any_width_gives_the_same_numbers(self):
        def function(x, tree):
            return {"norm": jnp.sqrt(x @ x), "sum": x + tree["a"]}, tree["b"]

        x = jnp.asarray(np.random.default_rng(0).standard_normal((4, 3)), jnp.float32)
        tree = {"a": x**2, "b": jnp.arange(4)}
        (norms, counts) = Wide().over_group(function)(x, tree)
        for slot in range(4):
            one = slice(slot, slot + 1)
            single_norms, single_counts = InProcess().over_group(function)(
                x[one], {"a": x[one] ** 2, "b": tree["b"][one]}
            )
            np.testing.assert_allclose(single_norms["norm"], norms["norm"][one], rtol=1e-6)
            np.testing.assert_allclose(single_norms["sum"], norms["sum"][one], rtol=1e-6)
            np.testing.assert_array_equal(single_counts, counts[one])

    def test_of_any_width_runs_the_same_chains_without_the_padding(self):
        positions = jnp.asarray(np.random.default_rng(1).standard_normal((6, 3)), jnp.float32)
        target = FunctionTarget(StandardNormal())
        single, wide = (
            run_chains(Walk(), target, positions, seed=0, block_steps=2, backend=backend)
            for backend in (InProcess(), Wide())
        )
        assert wide.draws.shape == (6, 5, 3)
        assert wide.status == single.status
        np.testing.assert_allclose(wide.draws, single.draws, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(wide.logdensity, single.logdensity, rtol=1e-6, atol=1e-6)


class TestMap:
    @pytest.mark.parametrize("n_threads", [None, 1, 2, 8])
    def test_keeps_the_order(self, n_threads):
        def slow_at_first(task):
            time.sleep(0.02 * (task < 2))
            return task**2

        assert InProcess(n_threads=n_threads).map(slow_at_first, range(7)) == [task**2 for task in range(7)]

    def test_runs_as_many_tasks_at_once_as_there_are_threads(self):
        barrier = threading.Barrier(3, timeout=30)  # broken unless three tasks wait at the same time
        assert sorted(InProcess(n_threads=3).map(lambda task: barrier.wait(), range(3))) == [0, 1, 2]

    def test_of_one_thread_stays_in_this_one(self):
        assert set(InProcess(n_threads=1).map(lambda task: threading.get_ident(), range(3))) == {threading.get_ident()}

    def test_of_nothing_is_nothing(self):
        assert InProcess(n_threads=2).map(lambda task: task, []) == []

    @pytest.mark.parametrize("n_threads", [1, 2])
    def test_lets_errors_through(self, n_threads):
        def fail_at_two(task):
            if task == 2:
                raise ZeroDivisionError("task two")
            return task

        with pytest.raises(ZeroDivisionError, match="task two"):
            InProcess(n_threads=n_threads).map(fail_at_two, range(4))


def test_backends_are_configuration_that_compiled_programs_can_be_keyed_by():
    assert InProcess(n_threads=2) == InProcess(n_threads=2)
    assert hash(InProcess(n_threads=2)) == hash(InProcess(n_threads=2))
    assert InProcess(n_threads=2) != Wide(n_threads=2)
