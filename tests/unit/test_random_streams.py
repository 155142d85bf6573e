"""Keys depend on seed, stage and chain only, and differ in each; a seed can always be written down."""

from itertools import product

import jax
import numpy as np
import pytest

from mile._random import Stage, draw_seed, stream


def bits(key):
    return tuple(np.asarray(jax.random.key_data(key)).tolist())


class TestStream:
    def test_same_arguments_give_the_same_key(self):
        assert bits(stream(3, Stage.OPTIMIZE, 5)) == bits(stream(3, Stage.OPTIMIZE, 5))

    def test_keys_differ_in_seed_stage_and_chain(self):
        stages = [Stage.INITIALIZE, Stage.OPTIMIZE, *(Stage.SAMPLE + phase for phase in range(4))]
        keys = {bits(stream(*which)) for which in product(range(6), stages, range(12))}
        assert len(keys) == 6 * len(stages) * 12

    def test_seed_and_chain_do_not_trade_places(self):
        # Seed s + 1 of chain c must not be seed s of chain c + 1.
        keys = [bits(stream(seed, Stage.INITIALIZE, chain)) for seed, chain in [(0, 1), (1, 0), (2, 1), (1, 2)]]
        assert len(set(keys)) == 4

    def test_keys_are_typed_and_cover_all_seeds(self):
        largest = stream(2**32 - 1, Stage.SAMPLE, 0)
        assert jax.dtypes.issubdtype(largest.dtype, jax.dtypes.prng_key)
        assert bits(largest) != bits(stream(2**31 - 1, Stage.SAMPLE, 0))

    def test_stages_leave_room_for_phases(self):
        assert max(Stage) == Stage.SAMPLE
        assert len({*Stage}) == len(Stage.__members__)


class TestDrawSeed:
    @pytest.mark.parametrize("seed", [0, 7, 2**31, 2**32 - 1, np.int32(5), np.uint32(2**32 - 1), np.int64(9)])
    def test_an_integer_is_its_own_seed(self, seed):
        assert draw_seed(seed) == int(seed)
        assert type(draw_seed(seed)) is int

    def test_none_draws_a_new_one_each_time(self):
        seeds = {draw_seed(None) for _ in range(10)}
        assert len(seeds) == 10  # false failure: 2e-8
        assert all(draw_seed(seed) == seed for seed in seeds)

    @pytest.mark.parametrize("generator", [np.random.RandomState, np.random.default_rng])
    def test_a_generator_gives_a_seed_of_its_own_each_time(self, generator):
        rng, twin = generator(3), generator(3)
        seeds = [draw_seed(rng) for _ in range(3)]
        assert seeds == [draw_seed(twin) for _ in range(3)]
        assert len(set(seeds)) == 3
        assert all(type(seed) is int and 0 <= seed < 2**32 for seed in seeds)

    def test_numpys_global_state_is_left_alone(self):
        before = np.random.get_state()[1].copy()  # noqa: NPY002
        draw_seed(None)
        draw_seed(4)
        np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002

    @pytest.mark.parametrize("value", [-1, 2**32, True, False, 1.0, "1", np.float64(2), np.array([1, 2]), [1], object])
    def test_anything_else_is_refused_by_name(self, value):
        with pytest.raises(ValueError, match="random_state must be None, an integer"):
            draw_seed(value)
