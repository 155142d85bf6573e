"""Sizes whose products pass 32 bits are computed as others are, and what the kernel cannot count is left to XLA."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import large_networks
import pytest

from mile import Categorical, Gaussian, native
from mile.networks import MLP, ConvNet, Convolution

pytestmark = pytest.mark.skipif(native.kernel_name() == "xla", reason="the native kernel was not built")
QUICK = [
    "170,000 inputs",
    "200,000 hidden units",
    "200,000 hidden units below another layer",
    "200,000 hidden units above another layer",
]
# A sum of a million numbers in single precision; where a product overflowed, nothing was right.
TOLERANCE = 2e-4
LIMIT = 2**31


@pytest.mark.parametrize(
    "names",
    [QUICK, pytest.param([name for name in large_networks.CASES if name not in QUICK], marks=pytest.mark.slow)],
    ids=["quick", "large"],
)
def test_networks_of_any_size_give_the_numbers_of_float64_in_every_build(names):
    folders = [str(Path(large_networks.__file__).parent), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, large_networks.__file__, *names],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, folders))},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stderr)  # -11: a segmentation fault
    found = json.loads(done.stdout)
    assert list(found) == names
    for name, by_kernel in found.items():
        assert native.kernel_name().removeprefix("native-") in by_kernel
        for kernel, errors in by_kernel.items():
            assert len(errors) >= 4
            assert max(errors.values()) < TOLERANCE, (name, kernel, errors)


class TestLimits:
    """XLA counts in 64 bits, so it computes what the kernel cannot, if there is memory for it."""

    def test_a_network_of_two_billion_parameters_is_left_to_xla(self):
        for hidden, n_inputs in [((), LIMIT // 2 - 2), ((1,), LIMIT - 6), ((LIMIT // 4 - 1,), 1)]:
            largest = MLP(n_inputs=n_inputs, hidden=hidden)
            assert LIMIT - 4 <= largest.dimension < LIMIT
            assert native.specify(largest, Gaussian(), jnp.float32) is not None
            larger = MLP(n_inputs=n_inputs + 4, hidden=hidden)
            assert larger.dimension >= LIMIT
            assert native.specify(larger, Gaussian(), jnp.float32) is None

    def test_so_are_sizes_whose_product_has_more_than_64_bits(self):
        huge = MLP(n_inputs=2**40, hidden=(2**40,), n_outputs=3)
        assert native.specify(huge, Categorical(3), jnp.float32) is None

    def test_so_are_images_with_more_features_than_that_however_few_parameters_there_are(self):
        def network(side, **options):
            convolution = Convolution(filters=options.pop("filters", 1), kernel=1, **options)
            return ConvNet(convolutions=(convolution,), image=(side, side, 1), n_outputs=2)

        for small, large in [
            (network(40_000, pool=1_000), network(50_000, pool=1_000)),
            (network(10, padding=20_000, pool=1_000), network(10, padding=2**40, pool=2**40)),
            (network(1_000, filters=2_000, pool=1_000), network(1_000, filters=3_000, pool=1_000)),
        ]:
            assert max(small.dimension, large.dimension) < 2**24
            assert native.specify(small, Gaussian(), jnp.float32) is not None
            assert native.specify(large, Gaussian(), jnp.float32) is None
